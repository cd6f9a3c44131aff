//! `/api/v1/openapi.json`: what the API offers, made from the table of routes and from the types of the answers.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use hyper::body::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

use super::listen::ALWAYS;
use super::routes::{Answer, BUSY, Body, ROUTES, Route};

/// Where the shapes stand in the document.
const SHAPES: &str = "/components/schemas";

/// The document: it is the same for as long as the agent runs.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    // Nothing in it that JSON cannot hold.
    Bytes::from(serde_json::to_vec(&describe()).unwrap_or_default())
});

/// Serves it.
pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())
}

fn describe() -> Value {
    let mut shapes =
        Shapes { answered: generator(Contract::Serialize), posted: generator(Contract::Deserialize) };
    let mut paths = Map::new();
    for route in ROUTES {
        let method = if route.changes { "post" } else { "get" };
        paths.insert(route.shown(), json!({ method: operation(route, &mut shapes) }));
    }
    let mut schemas = shapes.answered.take_definitions(true);
    schemas.append(&mut shapes.posted.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mountie",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the agent of a node knows of its volumes. Fields may be added; none changes its \
                            meaning. Over TCP everything is only read; what changes something is posted over the \
                            agent's unix socket, by root or the agent's own user.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// Shapes as they are written, and as they are read: a field may be left out of the one and not of the other.
struct Shapes {
    answered: SchemaGenerator,
    posted: SchemaGenerator,
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SHAPES.into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    settings.into_generator()
}

fn operation(route: &Route, shapes: &mut Shapes) -> Value {
    let mut parameters = Vec::new();
    if route.shown().contains("{id}") {
        parameters.push(json!({
            "name": "id",
            "in": "path",
            "required": true,
            "schema": { "type": "string" },
            "description": "The volume's name, or its mount point. Slashes may be encoded or not.",
        }));
    }
    for parameter in route.parameters {
        parameters.push(json!({
            "name": parameter.name,
            "in": "query",
            "schema": { "type": parameter.kind },
            "description": parameter.is,
        }));
    }
    let mut operation = json!({ "summary": route.summary, "parameters": parameters });
    let mut answers = Map::new();
    let busy = (!ALWAYS.contains(&route.path)).then_some(&BUSY);
    for answer in route.answers.iter().chain(busy) {
        answers.insert(answer.status.to_string(), describe_answer(answer, shapes));
    }
    if let Some(described) = operation.as_object_mut() {
        described.insert("operationId".to_owned(), operation_id(route).into());
        described.insert("responses".to_owned(), answers.into());
        if let Some(shape) = route.takes {
            let schema = shape(&mut shapes.posted);
            let body = json!({ "required": route.needs_body, "content": { "application/json": { "schema": schema } } });
            described.insert("requestBody".to_owned(), body);
        }
    }
    operation
}

/// `get_api_v1_volumes_id`
fn operation_id(route: &Route) -> String {
    let method = if route.changes { "post" } else { "get" };
    let shown = route.shown();
    let words = shown.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn describe_answer(answer: &Answer, shapes: &mut Shapes) -> Value {
    let mut content = Map::new();
    for body in answer.bodies {
        let (media_type, schema) = match body {
            Body::Json(shape) => ("application/json", shape(&mut shapes.answered).to_value()),
            Body::Stream(media_type, of) => {
                let of: Vec<Value> = of.iter().map(|shape| shape(&mut shapes.answered).to_value()).collect();
                (*media_type, json!({ "description": "Each event, or line, is one of these.", "anyOf": of }))
            }
            Body::Text(media_type) => (*media_type, json!({ "type": "string" })),
        };
        content.insert(media_type.to_owned(), json!({ "schema": schema }));
    }
    json!({ "description": answer.is, "content": content })
}

#[cfg(test)]
mod tests;
