//! A hook that is a program: the evidence on its standard input, the answer on its standard output. A child of the
//! agent's own becomes it (`launch.rs`): to start a program is to wait for its path.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::remediation::asking::NoAnswer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{ANSWER_LIMIT, Failure};
use crate::exit_code::ExitCode;
use crate::sys::process_group::Group;
use crate::sys::{environment, parent_death};

/// What is kept of a hook's complaints.
const COMPLAINT_LIMIT: usize = 4 * 1024;
/// Something that the program left behind may hold its output open: after its end that is read for so long.
const DRAIN: Duration = Duration::from_millis(200);
/// A killed program may take so long to be gone before it counts as stuck.
const GONE: Duration = Duration::from_secs(1);
/// With so many stuck ones no other is started.
const STUCK_MAX: usize = 8;

/// What a program said, and how it ended.
struct Said {
    status: ExitStatus,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

/// Runs the program. It has a process group of its own, which is killed with it when its time is over.
pub(super) async fn ask(
    (launcher, argv): (&[OsString], &[String]),
    evidence: &[u8],
    limit: Duration,
    stuck: &Arc<AtomicUsize>,
) -> Result<Vec<u8>, Failure> {
    if stuck.load(Ordering::Relaxed) >= STUCK_MAX {
        let text = format!("{STUCK_MAX} hooks were killed and do not end");
        return Err(Failure::new(NoAnswer::Unreachable, text));
    }
    let mut child = start(launcher, argv)
        .map_err(|error| Failure::new(NoAnswer::Unreachable, format!("{}: {error}", name(argv))))?;
    let group = Group::of(&child);
    match timeout(limit, talk(&mut child, evidence)).await {
        Ok(Ok(said)) => {
            // What it has left behind on purpose lives on.
            group.release();
            judge(argv, said)
        }
        Ok(Err(failure)) => {
            drop(group);
            leave(child, stuck).await;
            Err(failure)
        }
        Err(_) => {
            drop(group);
            leave(child, stuck).await;
            let text = format!("{} took longer than {} s and was killed", name(argv), limit.as_secs_f64());
            Err(Failure::new(NoAnswer::TimedOut, text))
        }
    }
}

fn name(argv: &[String]) -> &str {
    argv.first().map(String::as_str).unwrap_or_default()
}

fn start(launcher: &[OsString], argv: &[String]) -> std::io::Result<Child> {
    let mut words = launcher.iter();
    let mut command = Command::new(words.next().cloned().unwrap_or_default());
    environment::clear(command.as_std_mut());
    command
        .args(words)
        .args(["--parent", &std::process::id().to_string(), "--"])
        .args(argv)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    parent_death::bind(command.as_std_mut());
    command.spawn()
}

async fn talk(child: &mut Child, evidence: &[u8]) -> Result<Said, Failure> {
    let lost = |error: std::io::Error| Failure::new(NoAnswer::Failed, format!("lost sight of it: {error}"));
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut output, mut complaint) = (Vec::new(), Vec::new());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A hook need not read what it does not want to know.
            let _ = stdin.write_all(evidence).await;
        }
    };
    let read = async {
        tokio::join!(
            write,
            fill(stdout, &mut output, ANSWER_LIMIT, Beyond::Refused),
            fill(stderr, &mut complaint, COMPLAINT_LIMIT, Beyond::Dropped)
        )
        .1
    };
    let mut read = Box::pin(read);
    let (status, is_whole) = tokio::select! {
        status = child.wait() => (status.map_err(lost)?, timeout(DRAIN, &mut read).await.unwrap_or(true)),
        is_whole = &mut read => {
            if !is_whole {
                return Err(too_long());
            }
            (child.wait().await.map_err(lost)?, true)
        }
    };
    drop(read);
    if is_whole { Ok(Said { status, output, complaint }) } else { Err(too_long()) }
}

fn too_long() -> Failure {
    Failure::new(NoAnswer::Bad, format!("the answer is longer than {ANSWER_LIMIT} bytes"))
}

/// What becomes of more than the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// It is left unread: who says so much is wrong.
    Refused,
    /// It is read and forgotten: who complains much may still be right, and would die of a closed pipe.
    Dropped,
}

/// Reads to the end, or to what is refused: then false.
async fn fill(
    from: Option<impl AsyncRead + Unpin>,
    into: &mut Vec<u8>,
    limit: usize,
    beyond: Beyond,
) -> bool {
    let Some(mut from) = from else { return true };
    let mut piece = [0_u8; 4096];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let room = limit.saturating_sub(into.len());
        into.extend_from_slice(piece.get(..count.min(room)).unwrap_or_default());
        if count > room && beyond == Beyond::Refused {
            return false;
        }
    }
    true
}

fn judge(argv: &[String], said: Said) -> Result<Vec<u8>, Failure> {
    if said.status.success() {
        return Ok(said.output);
    }
    let complaint = String::from_utf8_lossy(&said.complaint);
    let first = complaint.lines().map(str::trim).find(|line| !line.is_empty());
    let first = first.map_or(String::new(), |line| format!(": {line}"));
    if said.status.code() == Some(ExitCode::NoProgram as i32) {
        return Err(Failure::new(NoAnswer::Unreachable, format!("{}{first}", name(argv))));
    }
    Err(Failure::new(NoAnswer::Failed, format!("{} ended with {}{first}", name(argv), said.status)))
}

/// Lets go of a killed program. One that the kernel keeps is counted until it ends.
async fn leave(mut child: Child, stuck: &Arc<AtomicUsize>) {
    if timeout(GONE, child.wait()).await.is_err() {
        stuck.fetch_add(1, Ordering::Relaxed);
        let stuck = Arc::clone(stuck);
        tokio::spawn(async move {
            // Fails only when somebody else has reaped it.
            let _ = child.wait().await;
            stuck.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
