//! The commands against a real router on a real unix socket, with a fixed snapshot.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::verdict::HealthState;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::status::StatusRequest;
use super::{ClientError, Console, Look, Output, describe, doctor, probe, status};
use crate::exit_code::ExitCode;
use crate::export::chronicle::Chronicle;
use crate::export::http::{Api, listen, routers};
use crate::export::metrics::Metrics;
use crate::export::sample::{quiet_volume, sample_chronicle, sample_host, sample_snapshot};
use crate::export::view::VolumeList;
use crate::export::{Command, Snapshot};

/// An agent that knows one snapshot and answers each order for a probe with what it knows.
pub(super) struct FixedAgent {
    directory: Option<tempfile::TempDir>,
    tasks: Vec<JoinHandle<()>>,
}

impl FixedAgent {
    pub(super) async fn start(snapshot: Snapshot) -> Self {
        Self::start_with(snapshot, sample_chronicle(), None).await
    }

    /// With what has happened, and at the place of an earlier one.
    pub(super) async fn start_with(
        snapshot: Snapshot,
        chronicle: Arc<Chronicle>,
        place: Option<tempfile::TempDir>,
    ) -> Self {
        let directory = place.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let volumes = snapshot.volumes.clone();
        let (_, snapshots) = watch::channel(Arc::new(snapshot));
        let (commands, mut orders) = mpsc::channel(8);
        let api =
            Api { snapshots, metrics: Metrics::new().unwrap(), commands, chronicle, host: sample_host() };
        let listener = listen::bind_unix(&directory.path().join("run/mountie.sock")).await.unwrap();
        let serving = tokio::spawn(async move {
            listen::serve_unix(listener, routers(api).all).await;
        });
        let answering = tokio::spawn(async move {
            while let Some(Command::ProbeNow { volume, done }) = orders.recv().await {
                let _ = done.send(volumes.iter().find(|known| known.id == volume).cloned());
            }
        });
        Self { directory: Some(directory), tasks: vec![serving, answering] }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.as_ref().unwrap().path().join("run/mountie.sock")
    }

    /// Ends it, and gives back where it was.
    pub(super) async fn stop(mut self) -> tempfile::TempDir {
        for task in std::mem::take(&mut self.tasks) {
            task.abort();
            // What it holds is free only then; one that ended by itself meanwhile is as good.
            let _ = task.await;
        }
        self.directory.take().unwrap()
    }
}

impl Drop for FixedAgent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Runs a command and returns its code, output and complaints.
async fn run(act: impl AsyncFnOnce(&mut Console<'_>) -> ExitCode) -> (ExitCode, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = act(&mut Console { out: &mut out, err: &mut err, look: Look::default() }).await;
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn json() -> StatusRequest {
    StatusRequest { output: Output::Json, watch: false }
}

#[tokio::test]
async fn status_finds_the_sick_and_prints_the_same_json_as_the_api() {
    let agent = FixedAgent::start(sample_snapshot()).await;
    let (code, out, err) =
        run(async |console| status(&agent.socket(), json(), pending(), console).await).await;
    assert_eq!((code, err.as_str()), (ExitCode::FoundSick, ""));
    let list: VolumeList = serde_json::from_str(&out).unwrap();
    assert_eq!(list, VolumeList::new(&sample_snapshot()));
}

#[tokio::test]
async fn status_is_content_when_all_are_healthy_and_says_when_it_is_early() {
    let snapshot = Snapshot { volumes: vec![quiet_volume("a")], ready: false, ..sample_snapshot() };
    let agent = FixedAgent::start(snapshot).await;
    let (code, out, err) =
        run(async |console| status(&agent.socket(), StatusRequest::default(), pending(), console).await)
            .await;
    assert_eq!(code, ExitCode::Ok);
    assert!(out.lines().nth(1).unwrap().starts_with("a       healthy"), "{out}");
    assert!(err.contains("not looked at every volume yet"), "{err}");
}

#[tokio::test]
async fn volumes_are_found_by_awkward_names_and_by_mount_points() {
    let agent = FixedAgent::start(sample_snapshot()).await;
    for name in ["/mnt/caf\\xe9 \"日本\"", "backup", "/mnt/backup"] {
        let (code, out, err) =
            run(async |console| describe(&agent.socket(), name, Output::Table, console).await).await;
        assert_eq!((code, err.as_str()), (ExitCode::Ok, ""), "{name}");
        assert!(out.contains("is healthy since"), "{out}");
    }
}

#[tokio::test]
async fn a_wrong_name_is_a_usage_error_that_lists_the_right_ones() {
    let agent = FixedAgent::start(sample_snapshot()).await;
    let (code, out, err) =
        run(async |console| describe(&agent.socket(), "modles", Output::Table, console).await).await;
    assert_eq!((code, out.as_str()), (ExitCode::Usage, ""));
    assert!(err.starts_with("mountie: there is no volume `modles`; there is: "), "{err}");
    assert!(err.contains("backup, models, scratch"), "{err}");
}

#[tokio::test]
async fn probe_tells_the_healthy_from_the_sick_and_the_stuck() {
    let agent = FixedAgent::start(sample_snapshot()).await;
    let (code, out, _) =
        run(async |console| probe(&agent.socket(), "backup", Output::Table, console).await).await;
    assert_eq!(code, ExitCode::Ok);
    assert!(out.starts_with("backup is healthy\n"), "{out}");
    let (code, out, _) =
        run(async |console| probe(&agent.socket(), "scratch", Output::Table, console).await).await;
    assert_eq!(code, ExitCode::FoundSick);
    assert!(out.contains("the probe has not answered within 1 s"), "{out}");
    let (code, out, _) =
        run(async |console| probe(&agent.socket(), "models", Output::Json, console).await).await;
    assert_eq!(code, ExitCode::FoundSick);
    assert!(out.contains("\"state\": \"recovering\""), "{out}");
}

#[tokio::test]
async fn doctor_prints_what_the_agent_has() {
    let agent = FixedAgent::start(sample_snapshot()).await;
    let (code, out, _) = run(async |console| doctor(&agent.socket(), Output::Table, console).await).await;
    // The sample misses a privilege.
    assert_eq!(code, ExitCode::NoPermission);
    assert!(out.contains("as the running agent has it") && out.contains("load: EPERM"), "{out}");
}

#[tokio::test]
async fn without_an_agent_the_message_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("mountie.sock");
    // A dead agent leaves its socket behind: nobody listens on this one.
    let left_behind = directory.path().join("left.sock");
    drop(UnixListener::bind(&left_behind).unwrap());
    for socket in [absent.as_path(), left_behind.as_path()] {
        let (code, out, err) = run(async |console| status(socket, json(), pending(), console).await).await;
        assert_eq!((code, out.as_str()), (ExitCode::Unavailable, ""));
        let expected =
            format!("mountie: no agent answers at {}; start it with `mountie run`\n", socket.display());
        assert_eq!(err, expected);
    }
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("mountie.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let error = super::http::get(&socket, "/", Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert_eq!(error.exit_code(), ExitCode::Unavailable);
}

/// Takes what a command prints, and lets somebody wait for it.
pub(super) struct Paper(pub(super) watch::Sender<String>);

impl std::io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send_modify(|text| text.push_str(std::str::from_utf8(bytes).unwrap()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Waits until this was printed.
pub(super) async fn printed(paper: &mut watch::Receiver<String>, wanted: &str) {
    let came = timeout(PATIENCE, paper.wait_for(|text| text.contains(wanted))).await.is_ok();
    assert!(came, "`{wanted}` is not in: {}", *paper.borrow());
}

/// Generous: the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn into_a_pipe_a_status_is_printed_again_when_a_condition_is_another_and_never_for_its_age() {
    let only = |id| Snapshot { volumes: vec![quiet_volume(id)], ..sample_snapshot() };
    let agent = FixedAgent::start(only("a")).await;
    let socket = agent.socket();
    let (out, err) = (watch::Sender::new(String::new()), watch::Sender::new(String::new()));
    let (mut shown, mut told) = (out.subscribe(), err.subscribe());
    let (stop, mut stopped) = watch::channel(false);
    let watching = async {
        let (mut out, mut err) = (Paper(out), Paper(err));
        let console = &mut Console { out: &mut out, err: &mut err, look: Look::default() };
        let request = StatusRequest { output: Output::Name, watch: true };
        let stopped = async {
            let _ = stopped.changed().await;
        };
        status(&socket, request, stopped, console).await
    };
    let happening = async {
        printed(&mut shown, "a\n").await;
        let place = agent.stop().await;
        printed(&mut told, "waiting for it\n").await;
        // The same as before is no news, and is asked for until something is.
        let agent = FixedAgent::start_with(only("a"), sample_chronicle(), Some(place)).await;
        printed(&mut told, "the agent answers again\n").await;
        let place = agent.stop().await;
        let sick = Snapshot { volumes: sample_snapshot().volumes, ..only("b") };
        let agent = FixedAgent::start_with(sick, sample_chronicle(), Some(place)).await;
        printed(&mut shown, "scratch\n").await;
        // It was sick, and nobody knows any more.
        let before = told.borrow().len();
        agent.stop().await;
        let gone = |text: &String| text.get(before..).is_some_and(|text| text.contains("waiting for it\n"));
        timeout(PATIENCE, told.wait_for(gone)).await.unwrap().unwrap();
        stop.send_replace(true);
    };
    let (code, ()) = timeout(PATIENCE * 4, async { tokio::join!(watching, happening) }).await.unwrap();
    assert_eq!(code, ExitCode::Unavailable);
    assert!(shown.borrow().starts_with("a\n/mnt/caf\\xe9"), "{}", *shown.borrow());
    assert!(!shown.borrow().contains('\x1b'));
}

#[tokio::test]
async fn a_reader_that_has_left_is_no_failure() {
    struct Left;
    impl std::io::Write for Left {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut well = sample_snapshot();
    well.volumes.iter_mut().for_each(|volume| volume.condition.state = HealthState::Healthy);
    for (snapshot, expected) in [(well, ExitCode::Ok), (sample_snapshot(), ExitCode::FoundSick)] {
        let agent = FixedAgent::start(snapshot).await;
        let socket: &Path = &agent.socket();
        // Also the end of `--watch`: it would redraw for ever otherwise. What was found is told by the code.
        for watch in [true, false] {
            let mut err = Vec::new();
            let request = StatusRequest { output: Output::Table, watch };
            let console = &mut Console { out: &mut Left, err: &mut err, look: Look::default() };
            let code = status(socket, request, pending(), console).await;
            assert_eq!((code, err.len()), (expected, 0), "watch: {watch}");
        }
    }
}
