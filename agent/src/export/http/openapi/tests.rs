//! The description against what is really answered: every route is asked, every field of every answer must be
//! described, and the document itself must be what it says it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_core::engine::AckAnswer;
use agent_core::order::{Done, Preview, Refused};
use agent_core::pause::Scope;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

use super::super::routes::ROUTES;
use super::super::{Api, LARGEST_POST, Shared, listen, routes};
use super::describe;
use crate::export::metrics::Metrics;
use crate::export::sample::{mount_plan, sample_chronicle, sample_host, sample_snapshot};
use crate::export::{Command, SentinelAnswer, Snapshot};
use crate::sys::clock;

/// An agent whose event loop says yes to everything, but to what is about `backup`.
struct Served {
    directory: tempfile::TempDir,
    _publish: watch::Sender<Arc<Snapshot>>,
}

async fn serve() -> Served {
    let directory = tempfile::tempdir().unwrap();
    // An hour ahead: however slow the machine is, it is not taken for one whose event loop is stuck.
    let at = clock::now() + Duration::from_secs(3600);
    let snapshot = Snapshot { at, wall: clock::wall(), ..sample_snapshot() };
    let (publish, snapshots) = watch::channel(Arc::new(snapshot.clone()));
    let (commands, mut orders) = mpsc::channel(64);
    let (metrics, chronicle) = (Metrics::new().unwrap(), sample_chronicle());
    let api = Api { snapshots, metrics, commands, chronicle, host: sample_host() };
    let router = routes(Arc::new(Shared::new(api)));
    let listener: UnixListener = listen::bind_unix(&directory.path().join("s")).await.unwrap();
    tokio::spawn(listen::serve_unix(listener, router));
    tokio::spawn(async move {
        while let Some(command) = orders.recv().await {
            obey(command, &snapshot);
        }
    });
    Served { directory, _publish: publish }
}

fn obey(command: Command, snapshot: &Snapshot) {
    match command {
        Command::ProbeNow { volume, done } => {
            let found = snapshot.volumes.iter().find(|known| known.id == volume).cloned();
            let _ = done.send(found);
        }
        Command::Acknowledge { volume, done, .. } => {
            let answer = if volume.as_str() == "backup" { AckAnswer::Nothing } else { AckAnswer::Done };
            let _ = done.send((answer, true));
        }
        Command::Order { order, done, .. } => {
            let answer = match order {
                agent_core::order::Order::Remount(volume) if volume.as_str() == "backup" => {
                    Err(Refused::Found)
                }
                agent_core::order::Order::Remount(volume) => {
                    Ok(Done::Remounting(Box::new(mount_plan(volume.as_str()))))
                }
                agent_core::order::Order::Resume(Scope::Volume(volume)) if volume.as_str() == "backup" => {
                    Err(Refused::NotPaused)
                }
                _ => Ok(Done::Forgotten { paused: None }),
            };
            let _ = done.send((answer, true));
        }
        Command::Preview { volume, done } => {
            let hindered = Some(Refused::Unsettled);
            let _ = done.send(Ok(Preview { plan: mount_plan(volume.as_str()), hindered }));
        }
        Command::PlantSentinel { volume, done, .. } => {
            let text = || volume.to_string();
            let _ = done.send(Ok(SentinelAnswer {
                volume: text(),
                mountpoint: text(),
                path: text(),
                content: Some(text()),
                outcome: "written".into(),
                named: true,
                pinned: false,
                kept: true,
                toml: text(),
            }));
        }
    }
}

impl Served {
    /// Status, media type and body.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let mut stream = UnixStream::connect(self.directory.path().join("s")).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        tokio::time::timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let media_type = head.split("content-type: ").nth(1).unwrap().split(['\r', ';']).next().unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), media_type.to_owned(), body.to_owned())
    }
}

/// The document as a schema in which no object has a field that is not described.
fn closed() -> Value {
    fn close(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.values_mut().for_each(close);
                if map.get("properties").is_some_and(Value::is_object) {
                    map.entry("additionalProperties").or_insert(Value::Bool(false));
                }
            }
            Value::Array(values) => values.iter_mut().for_each(close),
            _ => {}
        }
    }
    let mut document = describe();
    close(&mut document["components"]["schemas"]);
    document
}

/// What is wrong with an answer, by the document.
fn faults(
    document: &Value,
    (method, path): (&str, &str),
    (status, media_type): (u16, &str),
    body: &str,
) -> Vec<String> {
    let answer = &document["paths"][path][method]["responses"][status.to_string()];
    let content = &answer["content"][media_type]["schema"];
    if content.is_null() {
        return vec![format!("{method} {path}: {status} {media_type} is not described: {body}")];
    }
    if media_type != "application/json" || path.ends_with("openapi.json") {
        return Vec::new();
    }
    let schema = json!({ "allOf": [content], "components": document["components"] });
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    validator
        .iter_errors(&body)
        .map(|error| format!("{method} {path}: {error} at {}", error.instance_path()))
        .collect()
}

/// What is posted to `pause` that is longer than what may be posted.
const LONG: &str = "/api/v1/pause/models?long";

/// Questions beside the plain one about `models`, by path: what is asked behind it.
const MORE: &[(&str, &str, u16)] = &[
    ("/api/v1/volumes", "/api/v1/volumes?check=true", 504),
    ("/api/v1/volumes", "/api/v1/volumes?chekc=true", 400),
    ("/api/v1/volumes/{id}", "/api/v1/volumes/scratch?check=true", 504),
    ("/api/v1/volumes/{id}", "/api/v1/volumes/nobody", 404),
    ("/api/v1/events", "/api/v1/events?after=1-1&limit=2", 200),
    ("/api/v1/events", "/api/v1/events?after=x", 400),
    ("/api/v1/events", "/api/v1/events?volume=nobody", 404),
    ("/api/v1/volumes/{id}", "/api/v1/volumes/%ff", 400),
    ("/api/v1/plan/{id}", "/api/v1/plan/nobody", 404),
    ("/api/v1/plan/{id}", "/api/v1/plan/%ff", 400),
    ("/api/v1/ack/{id}", "/api/v1/ack/%ff", 400),
    ("/api/v1/pause/{id}", "/api/v1/pause/%ff", 400),
    ("/api/v1/pause/{id}", LONG, 413),
    ("/api/v1/resume/{id}", "/api/v1/resume/%ff", 400),
    ("/api/v1/remount/{id}", "/api/v1/remount/%ff", 400),
    ("/api/v1/forget/{id}", "/api/v1/forget/%ff", 400),
    ("/api/v1/ack/{id}", "/api/v1/ack/backup", 409),
    ("/api/v1/resume/{id}", "/api/v1/resume/backup", 409),
    ("/api/v1/remount/{id}", "/api/v1/remount/backup", 422),
    ("/", "/?volume=nobody", 404),
    ("/", "/?volume=%ff&from=x", 400),
    ("/", "/?from=x", 400),
    ("/", "/?volume=nobody", 404),
];

#[tokio::test]
async fn every_route_and_every_field_of_real_answers_is_described() {
    let (served, document) = (serve().await, closed());
    let mut wrong = Vec::new();
    for route in ROUTES {
        let shown = route.shown();
        let (method, body) = if route.changes { ("post", "{\"volume\":\"models\"}") } else { ("get", "") };
        // Orders but one take less.
        let body = if shown.ends_with("sentinel") || body.is_empty() { body } else { "{}" };
        let plain = (shown.replace("{id}", "models"), 200);
        let more = MORE
            .iter()
            .filter(|(path, ..)| *path == shown)
            .map(|(_, ask, status)| ((*ask).to_owned(), *status));
        for (ask, expected) in std::iter::once(plain).chain(more) {
            let long = " ".repeat(LARGEST_POST + 1);
            let body = if ask == LONG { &long } else { body };
            let (status, media_type, answer) = served.ask(&method.to_uppercase(), &ask, body).await;
            assert_eq!(status, expected, "{method} {ask}: {answer}");
            wrong.extend(faults(&document, (method, &shown), (status, &media_type), &answer));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn what_streams_send_is_described() {
    let document = closed();
    let schema =
        &document["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"]["application/x-ndjson"];
    let schema = json!({ "allOf": [schema["schema"]], "components": document["components"] });
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let id = sample_chronicle().latest(1, |_| true)[0].id;
    let mut samples: Vec<Value> = sample_chronicle()
        .latest(9, |_| true)
        .iter()
        .map(|event| serde_json::to_value(&**event).unwrap())
        .collect();
    let at = "2026-01-31T12:00:00Z";
    samples.push(json!({ "kind": "lost", "at": at, "id": id, "missed": 3, "message": "x" }));
    samples.push(json!({ "kind": "lost", "at": at, "id": id, "message": "x" }));
    samples.push(json!({ "kind": "pulse", "at": at, "id": id }));
    for sample in &samples {
        assert!(validator.is_valid(sample), "{sample}");
    }
    assert!(!validator.is_valid(&json!({ "kind": "pulse", "at": at, "id": id, "more": 1 })));
}

#[test]
fn a_field_or_an_answer_that_is_not_described_is_found() {
    let mut document = closed();
    let body = json!({ "error": "x", "known": [], "more": 1 }).to_string();
    let at = ("get", "/api/v1/volumes/{id}");
    assert_eq!(faults(&document, at, (404, "application/json"), &body).len(), 1);
    assert_eq!(faults(&document, at, (418, "application/json"), "{}").len(), 1);
    let body = json!({ "error": 1 }).to_string();
    assert_eq!(faults(&document, at, (404, "application/json"), &body).len(), 1);
    document["components"]["schemas"]["ErrorBody"]["properties"].as_object_mut().unwrap().remove("known");
    let body = json!({ "error": "x", "known": ["a"] }).to_string();
    assert_eq!(faults(&document, at, (404, "application/json"), &body).len(), 1);
}

#[test]
fn the_document_is_whole() {
    let document = describe();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for route in ROUTES {
        let operation = &document["paths"][route.shown()][if route.changes { "post" } else { "get" }];
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{}", route.path);
        assert!(operation["responses"]["200"].is_object(), "{}", route.path);
        assert_eq!(operation["requestBody"].is_object(), route.takes.is_some());
    }
    // Every reference leads somewhere, and fields say what they are.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let place = reference.trim_start_matches('#');
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (field, shape) in schema["properties"].as_object().into_iter().flatten() {
            assert!(shape["description"].is_string(), "{name}.{field} does not say what it is");
        }
    }
}
