//! The one table of what is offered: routes, and what the API's own description says of them.

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Shared, ack, events, openapi, orders, page, scrape, sentinel, volumes};
use crate::export::SentinelAnswer;
use crate::export::view::doctor::DoctorReport;
use crate::export::view::{
    AckAnswer, ErrorBody, EventList, EventView, IncidentList, LostView, OrderAnswer, PauseOrder, PlanPreview,
    PulseView, SentinelOrder, VolumeAnswer, VolumeList,
};

/// Something that is offered.
pub(super) struct Route {
    /// As the router has it. `{*id}` takes slashes as well.
    pub(super) path: &'static str,
    /// Whether it changes something: `POST`, over the unix socket alone.
    pub(super) changes: bool,
    /// What it is for.
    pub(super) summary: &'static str,
    /// What may stand in the query.
    pub(super) parameters: &'static [Parameter],
    /// What is posted.
    pub(super) takes: Option<Shape>,
    /// Whether it must be posted.
    pub(super) needs_body: bool,
    /// What is answered, by status.
    pub(super) answers: &'static [Answer],
    pub(super) handler: fn() -> MethodRouter<Arc<Shared>>,
}

/// A parameter of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// A type of JSON.
    pub(super) kind: &'static str,
    pub(super) is: &'static str,
}

/// What is answered with one status.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is: &'static str,
    pub(super) bodies: &'static [Body],
}

/// What an answer is made of.
pub(super) enum Body {
    /// JSON of this shape.
    Json(Shape),
    /// A stream, of this media type, of JSON of one of these shapes.
    Stream(&'static str, &'static [Shape]),
    /// Text of this media type.
    Text(&'static str),
}

/// The shape of some JSON.
pub(super) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Route {
    /// As people write it.
    pub(super) fn shown(&self) -> String {
        self.path.replace("{*", "{")
    }
}

const fn route(
    path: &'static str,
    summary: &'static str,
    handler: fn() -> MethodRouter<Arc<Shared>>,
) -> Route {
    Route {
        path,
        changes: false,
        summary,
        parameters: &[],
        takes: None,
        needs_body: false,
        answers: &[],
        handler,
    }
}

const fn order(
    path: &'static str,
    summary: &'static str,
    handler: fn() -> MethodRouter<Arc<Shared>>,
) -> Route {
    Route { changes: true, ..route(path, summary, handler) }
}

impl Route {
    const fn with(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    const fn taking(self, shape: Shape) -> Self {
        Self { takes: Some(shape), ..self }
    }

    const fn needing(self, shape: Shape) -> Self {
        Self { needs_body: true, ..self.taking(shape) }
    }

    const fn answering(self, answers: &'static [Answer]) -> Self {
        Self { answers, ..self }
    }
}

const fn parameter(name: &'static str, kind: &'static str, is: &'static str) -> Parameter {
    Parameter { name, kind, is }
}

const fn json(status: u16, is: &'static str, bodies: &'static [Body]) -> Answer {
    Answer { status, is, bodies }
}

const ERROR: &[Body] = &[Body::Json(shape::<ErrorBody>)];
const PLAIN: &[Body] = &[Body::Text("text/plain")];
const HTML: &[Body] = &[Body::Text("text/html")];
const BAD_REQUEST: Answer = json(400, "the question is not understood", ERROR);
const NO_SUCH_VOLUME: Answer = json(404, "no volume has that name", ERROR);
const NOT_ALLOWED: Answer = json(403, "not over this connection, or not for this user", ERROR);
const CONFLICT: Answer = json(409, "the volume is not in a state for it", ERROR);
const TOO_LONG: Answer = json(413, "what was posted is too long", ERROR);
const NOT_CONFIGURED: Answer = json(422, "the configuration does not say what that needs", ERROR);
/// What every path but those of metrics and liveness may answer.
pub(super) const BUSY: Answer = json(503, "too many ask, or the agent is about to end", ERROR);
const CHECK: Parameter =
    parameter("check", "boolean", "look first, within the deadline; over TCP at most once a second a volume");
const FILTER: &[Parameter] = &[
    parameter("q", "string", "only volumes in which all these words stand"),
    parameter("state", "string", "only volumes in this state; `sick`: in any that counts as sick"),
    parameter("from", "integer", "leave out so many volumes"),
    parameter("volume", "string", "one volume, with all that is known of it"),
];
const ORDERED: &[Answer] = &[
    json(200, "it was done", &[Body::Json(shape::<OrderAnswer>)]),
    BAD_REQUEST,
    NOT_ALLOWED,
    NO_SUCH_VOLUME,
    CONFLICT,
    TOO_LONG,
    NOT_CONFIGURED,
];
const PAGE: &[Answer] =
    &[json(200, "the page", HTML), BAD_REQUEST, json(404, "no volume has that name", HTML)];

/// Everything.
pub(super) const ROUTES: &[Route] = &[
    route("/", "The status page.", || get(page::overview)).with(FILTER).answering(PAGE),
    route("/metrics", "Metrics, as Prometheus reads them.", || get(scrape::metrics)).answering(&[json(
        200,
        "the metrics, in the format that is asked for",
        &[Body::Text("text/plain"), Body::Text("application/openmetrics-text")],
    )]),
    route("/healthz", "Whether the agent's event loop lives.", || get(super::alive))
        .answering(&[json(200, "it does", PLAIN), json(503, "it does not", PLAIN)]),
    route("/readyz", "Whether every volume of the start was looked at.", || get(super::ready)).answering(&[
        json(200, "it was", PLAIN),
        json(503, "not yet, or the event loop does not live", PLAIN),
    ]),
    route("/api/v1/volumes", "Every volume, with all that is known of it.", || get(volumes::list))
        .with(&[CHECK])
        .answering(&[
            json(200, "the volumes", &[Body::Json(shape::<VolumeList>)]),
            json(504, "the volumes; some looks have not answered", &[Body::Json(shape::<VolumeList>)]),
            BAD_REQUEST,
        ]),
    route("/api/v1/volumes/{*id}", "One volume, by its name or mount point.", || get(volumes::one))
        .with(&[CHECK])
        .answering(&[
            json(200, "the volume", &[Body::Json(shape::<VolumeAnswer>)]),
            json(
                504,
                "the volume as it is known; the look has not answered",
                &[Body::Json(shape::<VolumeAnswer>)],
            ),
            BAD_REQUEST,
            NO_SUCH_VOLUME,
        ]),
    route("/api/v1/events", "What has happened, newest first, or as a stream.", || get(events::events))
        .with(&[
            parameter(
                "follow",
                "boolean",
                "a stream; lines of JSON where `application/x-ndjson` is accepted",
            ),
            parameter("after", "string", "only what happened after this event; Last-Event-ID counts more"),
            parameter("volume", "string", "only what is about this volume"),
            parameter("limit", "integer", "at most so many, the newest; not of a stream"),
        ])
        .answering(&[
            json(
                200,
                "the events",
                &[
                    Body::Json(shape::<EventList>),
                    Body::Stream("text/event-stream", &[shape::<EventView>, shape::<LostView>]),
                    Body::Stream(
                        "application/x-ndjson",
                        &[shape::<EventView>, shape::<LostView>, shape::<PulseView>],
                    ),
                ],
            ),
            BAD_REQUEST,
            NO_SUCH_VOLUME,
        ]),
    route("/api/v1/incidents", "Volumes that fail together.", || get(super::incidents)).answering(&[json(
        200,
        "the incidents",
        &[Body::Json(shape::<IncidentList>)],
    )]),
    route("/api/v1/plan/{*id}", "What a remount would do now; nothing is done.", || get(orders::plan))
        .answering(&[
            json(200, "the plan", &[Body::Json(shape::<PlanPreview>)]),
            BAD_REQUEST,
            NO_SUCH_VOLUME,
            CONFLICT,
            NOT_CONFIGURED,
        ]),
    route("/api/v1/doctor", "What works on this host.", || get(super::doctor)).answering(&[json(
        200,
        "the report",
        &[Body::Json(shape::<DoctorReport>)],
    )]),
    route("/api/v1/openapi.json", "This description.", || get(openapi::document)).answering(&[json(
        200,
        "OpenAPI 3.1",
        &[Body::Text("application/json")],
    )]),
    order("/api/v1/ack/{*id}", "A person knows of a loss, or of damage.", || post(ack::acknowledge))
        .answering(&[
            json(200, "it is acknowledged", &[Body::Json(shape::<AckAnswer>)]),
            json(409, "there is nothing to acknowledge", &[Body::Json(shape::<AckAnswer>)]),
            BAD_REQUEST,
            NOT_ALLOWED,
            NO_SUCH_VOLUME,
        ]),
    order("/api/v1/pause", "No repairs on this node.", || post(orders::pause))
        .taking(shape::<PauseOrder>)
        .answering(ORDERED),
    order("/api/v1/pause/{*id}", "No repairs of this volume.", || post(orders::pause))
        .taking(shape::<PauseOrder>)
        .answering(ORDERED),
    order("/api/v1/resume", "Repairs again, of everything.", || post(orders::resume)).answering(ORDERED),
    order("/api/v1/resume/{*id}", "Repairs of this volume again.", || post(orders::resume))
        .answering(ORDERED),
    order("/api/v1/remount/{*id}", "Mount this volume anew.", || post(orders::remount)).answering(ORDERED),
    order("/api/v1/forget/{*id}", "Keep nothing of this volume.", || post(orders::forget)).answering(ORDERED),
    order("/api/v1/sentinel", "Put a sentinel on a volume.", || post(sentinel::plant))
        .needing(shape::<SentinelOrder>)
        .answering(&[
            json(200, "it is there", &[Body::Json(shape::<SentinelAnswer>)]),
            BAD_REQUEST,
            NOT_ALLOWED,
            NO_SUCH_VOLUME,
            CONFLICT,
            json(412, "something is there already", ERROR),
            json(504, "no worker has answered in time", ERROR),
        ]),
];
