//! The routes, asked over real sockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::engine::AckAnswer;
use agent_core::status::VolumeStatus;
use hyper::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::listen::{self, Limits, ListenError, Placed};
use super::{Api, Shared, plugin, routers, routes};
use crate::client::ClientError;
use crate::client::http::{Answer, get};
use crate::export::chronicle::Chronicle;
use crate::export::metrics::{Metrics, strict};
use crate::export::sample::{quiet_volume, sample_chronicle, sample_host, sample_snapshot, seconds};
use crate::export::view::SentinelOrder;
use crate::export::{Command, SentinelAnswer, SentinelRefusal, Snapshot};
use crate::sensor::{SourceName, SourceState};
use crate::sys::clock;

mod limits;
mod plugin_protocol;
mod streams;

const PATIENCE: Duration = Duration::from_secs(60);
const WIDE: Limits = Limits {
    head: PATIENCE,
    whole: PATIENCE,
    brief: PATIENCE,
    takes: PATIENCE,
    pulse: PATIENCE,
    silent: 8,
    scrapers: 8,
    readers: 8,
    followers: 8,
};

/// A served router, and both ends behind it.
struct Server {
    directory: tempfile::TempDir,
    publish: watch::Sender<Arc<Snapshot>>,
    orders: Option<mpsc::Receiver<Command>>,
    shared: Arc<Shared>,
    chronicle: Arc<Chronicle>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    async fn start(snapshot: Snapshot) -> Self {
        Self::start_with(snapshot, WIDE).await
    }

    async fn start_with(snapshot: Snapshot, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (publish, snapshots) = watch::channel(Arc::new(snapshot));
        let (commands, orders) = mpsc::channel(64);
        let chronicle = sample_chronicle();
        let api = Api {
            snapshots,
            metrics: Metrics::new().unwrap(),
            commands,
            chronicle: Arc::clone(&chronicle),
            host: sample_host(),
        };
        let shared = Arc::new(Shared::new(api));
        let mut tasks = Vec::new();
        for (name, router) in [("s", routes(Arc::clone(&shared))), ("p", plugin::routes(Arc::clone(&shared)))]
        {
            let listener = listen::bind_unix(&directory.path().join(name)).await.unwrap();
            tasks.push(tokio::spawn(async move {
                listen::serve(listener, router, limits).await;
            }));
        }
        Self { directory, publish, orders: Some(orders), shared, chronicle, tasks }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    async fn get(&self, path: &str) -> Answer {
        get(&self.socket(), path, PATIENCE).await.unwrap()
    }

    /// Asks for a path, and reads nothing.
    async fn ask(&self, path: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        stream
    }

    /// Head and body as they come over the wire, up to the end of the connection.
    async fn raw(&self, path: &str) -> String {
        let mut stream = self.ask(path).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn json(&self, path: &str) -> (StatusCode, Value) {
        let answer = self.get(path).await;
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    /// Every order is answered with the volume in the state `answer` makes of it.
    fn answer_orders(&mut self, answer: impl Fn(&mut VolumeStatus) + Send + 'static) {
        let mut orders = self.orders.take().unwrap();
        let snapshots = self.publish.subscribe();
        self.tasks.push(tokio::spawn(async move {
            while let Some(command) = orders.recv().await {
                let Command::ProbeNow { volume, done } = command else { continue };
                let snapshot = Arc::clone(&snapshots.borrow());
                let mut status = snapshot.volumes.iter().find(|known| known.id == volume).cloned();
                status.iter_mut().for_each(&answer);
                let _ = done.send(status);
            }
        }));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn fresh_snapshot() -> Snapshot {
    Snapshot { at: clock::now(), wall: clock::wall(), ..sample_snapshot() }
}

#[tokio::test]
async fn metrics_are_strict_text() {
    let server = Server::start(sample_snapshot()).await;
    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(
        server
            .raw("/metrics")
            .await
            .contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n")
    );
    let series = strict::parse(std::str::from_utf8(&answer.body).unwrap()).unwrap();
    assert!(series.keys().any(|(name, _)| name == "mountie_volume_state"));
}

#[tokio::test]
async fn open_metrics_is_given_to_who_asks_for_it() {
    let server = Server::start(sample_snapshot()).await;
    let mut stream = UnixStream::connect(server.socket()).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\naccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n")
    );
    assert!(answer.contains("\n# TYPE mountie_probe counter\n") && answer.contains("\nmountie_probe_total{"));
    assert!(answer.ends_with("# EOF\n"));
}

#[tokio::test]
async fn health_is_the_event_loop_and_readiness_is_the_first_look() {
    let server = Server::start(fresh_snapshot()).await;
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(server.get("/readyz").await.status, StatusCode::OK);
    assert_eq!(&server.get("/readyz").await.body[..], b"ready\n");
    let mut blind = fresh_snapshot();
    blind.sources.insert(SourceName::HostView, SourceState::Off("nothing of the host is seen".into()));
    server.publish.send_replace(Arc::new(blind));
    let answer = server.get("/readyz").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(&answer.body[..], b"ready\nhost_view: nothing of the host is seen\n");
    server.publish.send_replace(Arc::new(Snapshot { ready: false, ..fresh_snapshot() }));
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(server.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let stalled = Snapshot { at: clock::now() - Duration::from_secs(11), ..fresh_snapshot() };
    server.publish.send_replace(Arc::new(stalled));
    assert_eq!(server.get("/healthz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    // A dead event loop does not take the last known state away.
    assert_eq!(server.get("/api/v1/volumes").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_volume_is_found_by_name_place_and_path() {
    let server = Server::start(sample_snapshot()).await;
    let awkward = "/api/v1/volumes/%2Fmnt%2Fcaf%5Cxe9%20%22%E6%97%A5%E6%9C%AC%22";
    for (path, id) in [
        ("/api/v1/volumes/models", "models"),
        ("/api/v1/volumes/mnt/models", "models"),
        ("/api/v1/volumes//mnt/models", "models"),
        ("/api/v1/volumes/%2Fmnt%2Fmodels", "models"),
        (awkward, "/mnt/caf\\xe9 \"日本\""),
    ] {
        let (status, json) = server.json(path).await;
        assert_eq!((status, json["id"].as_str()), (StatusCode::OK, Some(id)), "{path}");
    }
}

#[tokio::test]
async fn errors_are_json_and_say_what_would_be_right() {
    let server = Server::start(sample_snapshot()).await;
    let (status, json) = server.json("/api/v1/volumes/nothing").await;
    assert_eq!(
        (status, json["error"].as_str()),
        (StatusCode::NOT_FOUND, Some("there is no volume `nothing`"))
    );
    assert_eq!(json["known"].as_array().unwrap().len(), 4);
    let (status, json) = server.json("/api/v2").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(json["known"].as_array().unwrap().contains(&"/metrics".into()));
    for path in ["/api/v1/volumes?check=perhaps", "/api/v1/volumes/models?chekc=true", "/api/v1/volumes/%ff"]
    {
        let (status, json) = server.json(path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(json["error"].is_string(), "{path}");
    }
}

#[tokio::test]
async fn doctor_and_events_are_served() {
    let server = Server::start(sample_snapshot()).await;
    let (_, json) = server.json("/api/v1/doctor").await;
    assert_eq!(json["sources"][0]["state"], "degraded");
    assert_eq!(json["programs"][1]["reason"], "load: EPERM");
    assert_eq!(json["host"]["kernel_release"], "6.12.0-test");
    let (_, json) = server.json("/api/v1/events").await;
    assert_eq!(json["events"][2]["to"], "degraded");
    let page = server.raw("/").await;
    assert!(page.contains("\r\ncontent-type: text/html"), "{page}");
    assert!(page.contains("\r\ncontent-security-policy: default-src 'none'"), "{page}");
    assert!(page.contains("<!doctype html>"), "{page}");
}

#[tokio::test]
async fn a_check_shows_what_the_probe_found() {
    let mut server = Server::start(sample_snapshot()).await;
    server.answer_orders(|volume| volume.condition.message = "looked".to_owned());
    let (status, json) = server.json("/api/v1/volumes/models?check=true").await;
    assert_eq!((status, json["message"].as_str()), (StatusCode::OK, Some("looked")));
}

#[tokio::test]
async fn a_check_without_an_answer_shows_the_last_view_and_says_so() {
    // The orders are never taken: a volume that hangs, or an event loop that does.
    let server = Server::start(sample_snapshot()).await;
    let (status, json) = server.json("/api/v1/volumes/models?check=true").await;
    assert_eq!((status, json["state"].as_str()), (StatusCode::GATEWAY_TIMEOUT, Some("recovering")));
    assert_eq!(json["error"], "the probe has not answered within 1 s");
}

#[tokio::test]
async fn a_check_waits_as_long_as_the_settings_of_now_say() {
    let server = Server::start(sample_snapshot()).await;
    let read_again = Duration::from_millis(200);
    server.publish.send_replace(Arc::new(Snapshot { check_deadline: read_again, ..sample_snapshot() }));
    let (_, json) = server.json("/api/v1/volumes/models?check=true").await;
    assert_eq!(json["error"], "the probe has not answered within 0.2 s");
}

#[tokio::test]
async fn a_volume_behind_a_probe_that_hangs_is_not_called_checked() {
    let behind = VolumeStatus { stuck_since: Some(seconds(940)), ..quiet_volume("b") };
    let mut server = Server::start(Snapshot { volumes: vec![behind], ..sample_snapshot() }).await;
    server.answer_orders(|_| ());
    let (status, json) = server.json("/api/v1/volumes/b?check=true").await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    let error = "no probe is possible: a worker on the same superblock has not come back for 60 s";
    assert_eq!((json["error"].as_str(), json["stuck_seconds"].as_f64()), (Some(error), Some(60.0)));
}

#[tokio::test]
async fn what_grows_with_the_volumes_is_made_beside_the_event_loop_a_few_at_a_time() {
    let server = Server::start(fresh_snapshot()).await;
    let thread = server.shared.beside(|_, _| std::thread::current().id()).await;
    assert_ne!(thread, Ok(std::thread::current().id()));

    let permits = Arc::clone(&server.shared.answers).acquire_many_owned(4).await.unwrap();
    let paths = ["/", "/api/v1/incidents", "/api/v1/volumes", "/api/v1/volumes/models", "/api/v1/events"];
    let mut answers = tokio::task::JoinSet::new();
    for path in paths.into_iter().chain(["/api/v1/doctor"]) {
        let socket = server.socket();
        answers.spawn(async move { (path, get(&socket, path, PATIENCE).await.unwrap().status) });
    }
    for _ in 0..50 {
        assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
        assert_eq!(server.get("/metrics").await.status, StatusCode::OK, "it waits for no other answer");
    }
    assert!(answers.try_join_next().is_none(), "it was made by the thread of the event loop");
    drop(permits);
    while let Some(answer) = answers.join_next().await {
        let (path, status) = answer.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_check_of_all_names_those_that_did_not_answer() {
    let mut server = Server::start(sample_snapshot()).await;
    server.answer_orders(|_| ());
    let (status, json) = server.json("/api/v1/volumes?check=true").await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(json["unanswered"], serde_json::json!(["scratch"]));
    server.publish.send_replace(Arc::new(Snapshot { volumes: vec![quiet_volume("a")], ..sample_snapshot() }));
    let (status, json) = server.json("/api/v1/volumes?check=true").await;
    assert_eq!((status, json.get("unanswered")), (StatusCode::OK, None));
}

#[tokio::test]
async fn scrapes_are_made_beside_the_event_loop_one_at_a_time() {
    let server = Server::start(fresh_snapshot()).await;
    let permit = Arc::clone(&server.shared.scrapes).acquire_many_owned(1).await.unwrap();
    let socket = server.socket();
    let mut scrape = tokio::spawn(async move { get(&socket, "/metrics", PATIENCE).await.unwrap().status });
    for _ in 0..20 {
        assert_eq!(server.get("/api/v1/volumes").await.status, StatusCode::OK);
    }
    assert!(!scrape.is_finished(), "it was made by the thread of the event loop");
    drop(permit);
    assert_eq!((&mut scrape).await.unwrap(), StatusCode::OK);
}

/// What TCP serves, and what it orders of the event loop.
struct OverTcp {
    address: SocketAddr,
    orders: mpsc::Receiver<Command>,
    serving: JoinHandle<Infallible>,
    _publish: watch::Sender<Arc<Snapshot>>,
}

impl OverTcp {
    async fn start(snapshot: Snapshot) -> Self {
        let (publish, snapshots) = watch::channel(Arc::new(snapshot));
        let (commands, orders) = mpsc::channel(4);
        let chronicle = sample_chronicle();
        let api =
            Api { snapshots, metrics: Metrics::new().unwrap(), commands, chronicle, host: sample_host() };
        let listener = listen::bind_tcp("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(listen::serve_tcp(listener, routers(api).all));
        Self { address, orders, serving, _publish: publish }
    }

    /// All that is answered. It ends because the server closes.
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Drop for OverTcp {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[tokio::test]
async fn tcp_is_read_only_and_answers_one_request_a_connection() {
    let tcp = OverTcp::start(sample_snapshot()).await;
    for (method, path) in [
        ("POST", "/api/v1/volumes"),
        ("POST", "/api/v1/pause"),
        ("PUT", "/"),
        ("DELETE", "/nothing"),
        ("OPTIONS", "/metrics"),
        ("TRACE", "/"),
        ("BREW", "/"),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        let answer = tcp.ask(&request).await;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        assert!(answer.contains("\r\nallow: GET, HEAD\r\n"), "{answer}");
        assert!(answer.contains("everything is read with GET"), "{answer}");
    }
    let answer = tcp.ask("HEAD /api/v1/volumes HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
    let taken = listen::bind_tcp(&tcp.address.to_string()).await.unwrap_err();
    assert!(matches!(taken, ListenError::AddressInUse { .. }));
    assert!(taken.to_string().contains("set [agent] listen"), "{taken}");
}

#[tokio::test]
async fn only_a_socket_that_nobody_answers_on_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/mountie.sock");
    let first = listen::bind_unix(&path).await.unwrap();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    let error = listen::bind_unix(&path).await.unwrap_err();
    assert!(matches!(error, ListenError::SocketInUse { .. }), "{error}");
    drop(first);
    assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let of_first = Placed::at(&path).unwrap();
    let second = listen::bind_unix(&path).await.unwrap();
    let of_second = Placed::at(&path).unwrap();
    of_first.clear();
    let (accepted, connected) = tokio::join!(second.accept(), UnixStream::connect(&path));
    assert!(accepted.is_ok() && connected.is_ok());
    // Nothing but the socket is left, and at the end not even that.
    let left = || std::fs::read_dir(directory.path().join("new")).unwrap().count();
    assert_eq!(left(), 1);
    of_second.clear();
    assert_eq!(left(), 0);

    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let error = listen::bind_unix(&file).await.unwrap_err();
    assert!(matches!(error, ListenError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let occupied = UnixListener::bind(directory.path().join("other")).unwrap();
    assert!(matches!(
        listen::bind_unix(&directory.path().join("other")).await.unwrap_err(),
        ListenError::SocketInUse { .. }
    ));
    drop(occupied);
}

/// What a POST is answered, with an event loop that answers `answer`.
async fn post(server: &mut Server, path: &str, answer: Option<(AckAnswer, bool)>) -> String {
    let mut orders = server.orders.take().unwrap();
    let taken = tokio::spawn(async move {
        let Some(Command::Acknowledge { volume, by, done }) = orders.recv().await else { return None };
        done.send(answer?).ok()?;
        Some((volume, by))
    });
    let mut stream = UnixStream::connect(server.socket()).await.unwrap();
    stream
        .write_all(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    if answer.is_some() {
        let (volume, by) = taken.await.unwrap().unwrap();
        assert_eq!((volume.as_str(), by.pid), ("scratch", std::process::id()));
        assert_eq!(by.uid, nix::unistd::geteuid().as_raw());
    } else {
        taken.abort();
    }
    text
}

#[tokio::test]
async fn an_acknowledgement_goes_to_the_event_loop_with_who_it_was() {
    let cases = [
        (AckAnswer::Done, true, "200 OK", "is acknowledged; what else"),
        (AckAnswer::Done, false, "200 OK", "could not be written"),
        (AckAnswer::Nothing, false, "409 Conflict", "nothing to acknowledge"),
        (AckAnswer::NoSuchVolume, false, "404 Not Found", "there is no volume"),
    ];
    for (answer, kept, status, words) in cases {
        let mut server = Server::start(fresh_snapshot()).await;
        let text = post(&mut server, "/api/v1/ack/scratch", Some((answer, kept))).await;
        assert!(text.contains(status) && text.contains(words), "{text}");
    }
    let mut server = Server::start(fresh_snapshot()).await;
    let text = post(&mut server, "/api/v1/ack/nobody", None).await;
    assert!(text.contains("404 Not Found") && text.contains("nobody"), "{text}");
}

#[tokio::test]
async fn nothing_is_changed_over_tcp_or_by_reading() {
    let server = Server::start(fresh_snapshot()).await;
    let mut tcp = OverTcp::start(fresh_snapshot()).await;
    let text = tcp.ask("POST /api/v1/ack/scratch HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    assert!(text.contains("405 Method") && text.contains("unix socket"), "{text}");
    assert!(tcp.orders.try_recv().is_err());
    for path in ["/api/v1/ack/scratch", "/api/v1/sentinel"] {
        let (status, json) = server.json(path).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
        let error = json["error"].as_str().unwrap();
        assert!(error.contains("with POST") && !error.contains("read with GET"), "{error}");
    }
}

#[tokio::test]
async fn incidents_are_listed_with_their_volumes() {
    let server = Server::start(fresh_snapshot()).await;
    let value: Value = serde_json::from_slice(&server.get("/api/v1/incidents").await.body).unwrap();
    let incident = &value["incidents"][0];
    assert_eq!((&incident["kind"], &incident["cause"]), (&Value::from("server"), &Value::from("filer1")));
    assert_eq!(incident["volumes"][1]["volume"], "scratch");
}

#[tokio::test]
async fn a_sentinel_is_put_there_for_root_over_the_unix_socket_and_refusals_say_why() {
    let mut server = Server::start(sample_snapshot()).await;
    let mut orders = server.orders.take().unwrap();
    server.tasks.push(tokio::spawn(async move {
        while let Some(command) = orders.recv().await {
            let Command::PlantSentinel { volume, wish, done } = command else { continue };
            let exists = || SentinelRefusal::Exists("something is there; use --adopt".to_owned());
            let answer = SentinelAnswer {
                volume: volume.to_string(),
                mountpoint: "/mnt/a".into(),
                path: wish.path.unwrap_or_default(),
                content: wish.content,
                outcome: "adopted".into(),
                named: true,
                pinned: true,
                kept: true,
                toml: String::new(),
            };
            let _ = done.send(if wish.adopt { Ok(answer) } else { Err(exists()) });
        }
    }));
    let order = SentinelOrder { volume: "a".into(), path: Some("s".into()), content: None, adopt: true };
    let within = Duration::from_secs(60);
    let post = async |order: &SentinelOrder| {
        crate::client::http::post_json::<SentinelAnswer>(&server.socket(), "/api/v1/sentinel", order, within)
            .await
    };
    let answer = post(&order).await.unwrap();
    assert_eq!((answer.volume.as_str(), answer.path.as_str()), ("a", "s"));
    let refused = post(&SentinelOrder { adopt: false, ..order }).await.unwrap_err();
    assert!(matches!(&refused, ClientError::Refused { status: 412, error, .. } if error.contains("--adopt")));
    assert_eq!(refused.exit_code(), crate::exit_code::ExitCode::Usage);
}

#[tokio::test]
async fn over_tcp_nothing_is_written() {
    let mut tcp = OverTcp::start(sample_snapshot()).await;
    let body = "{\"volume\":\"models\"}";
    let head = format!(
        "POST /api/v1/sentinel HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let answer = tcp.ask(&format!("{head}{body}")).await;
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("unix socket"), "{answer}");
    assert!(tcp.orders.try_recv().is_err());
}
