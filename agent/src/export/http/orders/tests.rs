//! Orders over real sockets, with an event loop that answers as the test says.

use std::path::PathBuf;

use agent_core::id::PlanId;
use agent_core::order::Preview;
use agent_core::pause::Pause;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::super::{Api, PREVIEWS_AT_ONCE, listen, routers};
use super::*;
use crate::export::metrics::Metrics;
use crate::export::sample::{mount_plan, sample_chronicle, sample_host, sample_snapshot};
use crate::export::{Snapshot, SnapshotReceiver};

/// What the event loop was told, and what it says.
type Came = mpsc::UnboundedReceiver<(Order, Actor)>;
type Answer = Result<Done, Refused>;

struct Server {
    directory: tempfile::TempDir,
    came: Came,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn api(snapshots: SnapshotReceiver, commands: mpsc::Sender<Command>) -> Api {
    let metrics = Metrics::new().unwrap();
    Api { snapshots, metrics, commands, chronicle: sample_chronicle(), host: sample_host() }
}

impl Server {
    /// Each order takes the next of `answers`, the last one for all that follow.
    async fn start(mut answers: Vec<(Answer, bool)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = Snapshot { at: clock::now(), wall: clock::wall(), ..sample_snapshot() };
        let (_, snapshots) = watch::channel(Arc::new(snapshot));
        let (commands, mut orders) = mpsc::channel(8);
        let (told, came) = mpsc::unbounded_channel();
        let api = api(snapshots, commands);
        let listener = listen::bind_unix(&directory.path().join("s")).await.unwrap();
        let serving = tokio::spawn(async move {
            listen::serve_unix(listener, routers(api).all).await;
        });
        let answering = tokio::spawn(async move {
            while let Some(command) = orders.recv().await {
                match command {
                    Command::Order { order, by, done } => {
                        told.send((order, by)).unwrap();
                        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
                        let _ = done.send(answer);
                    }
                    Command::Preview { volume, done } => {
                        let hindered = Some(Refused::Busy(PlanId(3)));
                        let _ = done.send(Ok(Preview { plan: mount_plan(volume.as_str()), hindered }));
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        Self { directory, came, tasks: vec![serving, answering] }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        exchange(stream, method, path, body).await
    }
}

async fn exchange(
    mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, Value) {
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn pause_of_root() -> Pause {
    let by = Actor { uid: 0, pid: 1, comm: "mountie".to_owned() };
    Pause { since: clock::now(), since_wall: None, until: None, by, reason: None }
}

#[tokio::test]
async fn a_pause_goes_to_the_event_loop_with_who_it_was_for_how_long_and_why() {
    let done = Done::Paused { pause: pause_of_root(), running: vec![PlanId(9)] };
    let mut server = Server::start(vec![(Ok(done), true)]).await;
    let body = "{\"seconds\":60,\"reason\":\"the filer moves\"}";
    let (status, answer) = server.ask("POST", "/api/v1/pause/mnt/scratch", body).await;
    assert_eq!((status, &answer["volume"]), (200, &Value::from("scratch")), "found by its place: {answer}");
    assert!(answer["message"].as_str().unwrap().contains("plan 9 is running"), "{answer}");
    let (order, by) = server.came.recv().await.unwrap();
    assert_eq!((by.uid, by.pid), (nix::unistd::geteuid().as_raw(), std::process::id()));
    let Order::Pause { scope, until, reason } = order else { panic!("{order:?}") };
    assert_eq!(scope, Scope::Volume(VolumeId::new("scratch")));
    assert!(until.is_some_and(|until| until.since(clock::now()) <= Duration::from_secs(60)));
    assert_eq!(reason.as_deref(), Some("the filer moves"));

    let (status, _) = server.ask("POST", "/api/v1/pause", "").await;
    let (order, _) = server.came.recv().await.unwrap();
    assert!(
        status == 200 && matches!(order, Order::Pause { scope: Scope::Node, until: None, .. }),
        "{order:?}"
    );
    for wrong in ["{", "{\"seconds\":0}", "{\"second\":1}", "{\"seconds\":99999999999}"] {
        assert_eq!(server.ask("POST", "/api/v1/pause", wrong).await.0, 400, "{wrong}");
    }
    assert!(server.came.try_recv().is_err());
}

#[tokio::test]
async fn refusals_have_codes_by_whose_matter_they_are() {
    let cases = [
        (Refused::NoSuchVolume, 404),
        (Refused::Found, 422),
        (Refused::Off, 422),
        (Refused::Busy(PlanId(3)), 409),
        (Refused::Paused(pause_of_root()), 409),
        (Refused::NotPaused, 409),
    ];
    for (refused, expected) in cases {
        let server = Server::start(vec![(Err(refused.clone()), false)]).await;
        let (status, answer) = server.ask("POST", "/api/v1/remount/scratch", "").await;
        assert_eq!(status, expected, "{refused:?}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains("scratch"), "{answer}");
    }
}

#[tokio::test]
async fn a_remount_waits_for_a_look_that_is_out_and_answers_with_the_plan() {
    let plan = mount_plan("scratch");
    let looking = (Err(Refused::Looking), false);
    let mut server =
        Server::start(vec![looking.clone(), looking, (Ok(Done::Remounting(Box::new(plan))), false)]).await;
    let (status, answer) = server.ask("POST", "/api/v1/remount/scratch", "").await;
    assert_eq!((status, &answer["plan"]["id"]), (200, &Value::from(7)));
    assert!(answer["plan"]["steps"][0]["touches"].as_str().is_some());
    for _ in 0..3 {
        assert_eq!(server.came.recv().await.unwrap().0, Order::Remount(VolumeId::new("scratch")));
    }
}

#[tokio::test]
async fn a_plan_may_be_read_and_says_why_it_would_not_begin() {
    let server = Server::start(vec![(Err(Refused::Off), false)]).await;
    let (status, answer) = server.ask("GET", "/api/v1/plan/scratch", "").await;
    assert_eq!((status, &answer["method"]), (200, &Value::from("mount")));
    assert!(answer["hindered"].as_str().unwrap().contains("plan 3"), "{answer}");
    assert_eq!(server.ask("GET", "/api/v1/plan/nobody", "").await.0, 404);
}

/// As the event loop's own: a crowd that asks must leave room in it.
const ROOM: usize = PREVIEWS_AT_ONCE + 2;

#[tokio::test]
async fn a_crowd_that_asks_for_plans_over_tcp_leaves_the_way_of_orders_free() {
    let snapshot = Snapshot { at: clock::now(), wall: clock::wall(), ..sample_snapshot() };
    let (_publish, snapshots) = watch::channel(Arc::new(snapshot));
    let (commands, mut orders) = mpsc::channel(ROOM);
    let own_way = commands.clone();
    let api = api(snapshots, commands);
    let listener = listen::bind_tcp("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(listen::serve_tcp(listener, routers(api).all));
    let crowd: Vec<_> = (0..ROOM * 4)
        .map(|_| {
            tokio::spawn(async move {
                let stream = TcpStream::connect(address).await.unwrap();
                exchange(stream, "GET", "/api/v1/plan/scratch", "").await.0
            })
        })
        .collect();
    // The event loop takes nothing meanwhile: it is busy until the crowd has sent what it may.
    while own_way.capacity() > ROOM - PREVIEWS_AT_ONCE {
        tokio::task::yield_now().await;
    }
    // Time for the others to send what they may.
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    let answering = tokio::spawn(async move {
        let mut most = 0;
        while let Some(command) = orders.recv().await {
            most = most.max(orders.len() + 1);
            let Command::Preview { volume, done } = command else { panic!("{command:?}") };
            let _ = done.send(Ok(Preview { plan: mount_plan(volume.as_str()), hindered: None }));
        }
        most
    });
    for one in crowd {
        assert_eq!(one.await.unwrap(), 200, "each has its turn");
    }
    assert_eq!(own_way.capacity(), ROOM);
    serving.abort();
    drop(own_way);
    // The routes hold the other end of the queue until they are gone.
    drop(serving.await);
    assert!(answering.await.unwrap() <= PREVIEWS_AT_ONCE);
}

#[tokio::test]
async fn what_is_kept_of_a_volume_that_is_not_shown_can_be_forgotten() {
    let mut server = Server::start(vec![(Ok(Done::Forgotten { paused: None }), false)]).await;
    let (status, answer) = server.ask("POST", "/api/v1/forget/gone", "").await;
    assert!(
        status == 200 && answer["message"].as_str().unwrap().contains("could not be written"),
        "{answer}"
    );
    assert_eq!(server.came.recv().await.unwrap().0, Order::Forget(VolumeId::new("gone")));
}

#[tokio::test]
async fn nothing_is_ordered_over_tcp() {
    let (_publish, snapshots) = watch::channel(Arc::new(sample_snapshot()));
    let (commands, mut orders) = mpsc::channel(4);
    let api = Api {
        snapshots,
        metrics: Metrics::new().unwrap(),
        commands,
        chronicle: sample_chronicle(),
        host: sample_host(),
    };
    let listener = listen::bind_tcp("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(listen::serve_tcp(listener, routers(api).all));
    for path in ["pause", "pause/scratch", "resume", "resume/scratch", "remount/scratch", "forget/scratch"] {
        let stream = TcpStream::connect(address).await.unwrap();
        let (status, answer) = exchange(stream, "POST", &format!("/api/v1/{path}"), "").await;
        assert_eq!(status, 405, "{path}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains("unix socket"), "{answer}");
    }
    assert!(orders.try_recv().is_err());
    serving.abort();
}
