//! One worker process, seen from the agent.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream as BlockingStream;
use std::process::Stdio;
use std::time::Duration;

use agent_core::observation::ProbeStep;
use bytes::BytesMut;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::Settings;
use super::protocol::{Malformed, Reply, Request, frame, step_from_byte, take_body};
use crate::sys::environment;

/// A worker that is not ready by then never will be. Generous: it only has to start, on a busy node.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No process could be made.
    #[error("cannot start a probe worker")]
    Spawn(#[source] io::Error),
    /// It started and says that it cannot work here: the mount namespace cannot be entered, for example.
    #[error("probe worker cannot work: {0}")]
    Refused(String),
    /// It started and ended without a word.
    #[error("probe worker ended at its start")]
    Ended(#[source] Lost),
    /// It started and never said that it is ready.
    #[error("probe worker was not ready in time")]
    TooLate,
}

/// The conversation with a worker is over.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// It ended, or its socket failed.
    #[error("probe worker is gone")]
    Gone(#[source] io::Error),
    /// It said something that is no message.
    #[error("probe worker sent nonsense")]
    Malformed(#[source] Malformed),
}

/// A living worker. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Worker {
    /// Kills on drop; the runtime reaps it.
    child: Child,
    socket: UnixStream,
    /// One byte: the step that the worker is in. Shared memory, so reading it never waits.
    progress: File,
    /// What has been received and is not a whole message yet.
    received: BytesMut,
}

impl Worker {
    /// Starts the process. It is not ready yet: see [`Worker::greet`].
    ///
    /// Must be called on the thread that lives as long as the agent: the kernel ends a worker together with
    /// the thread that started it (`PR_SET_PDEATHSIG`).
    pub(super) fn spawn(settings: &Settings) -> Result<Self, StartError> {
        Self::try_spawn(settings).map_err(StartError::Spawn)
    }

    fn try_spawn(settings: &Settings) -> io::Result<Self> {
        let (ours, theirs) = BlockingStream::pair()?;
        ours.set_nonblocking(true)?;
        let progress = File::from(memfd_create(c"mountie-probe-step", MemfdFlags::CLOEXEC)?);
        progress.write_all_at(&[0], 0)?;
        let mut command = Command::new(&settings.exe);
        environment::clear(command.as_std_mut());
        command
            .arg0("mountie")
            .args(["worker", "--parent", &std::process::id().to_string()])
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(progress.try_clone()?))
            .stderr(Stdio::null())
            // An interrupt from a terminal is for the agent, which then ends its workers itself.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(namespace) = &settings.namespace {
            command.arg("--namespace").arg(namespace);
        }
        let child = command.spawn()?;
        Ok(Self { child, socket: UnixStream::from_std(ours)?, progress, received: BytesMut::new() })
    }

    /// Waits until it is ready.
    pub(super) async fn greet(&mut self) -> Result<(), StartError> {
        match tokio::time::timeout(START_LIMIT, self.next_reply()).await {
            Err(_) => Err(StartError::TooLate),
            Ok(Err(lost)) => Err(StartError::Ended(lost)),
            Ok(Ok(Reply::Ready)) => Ok(()),
            Ok(Ok(Reply::Refused(reason))) => Err(StartError::Refused(reason)),
            Ok(Ok(Reply::Done(_) | Reply::Planted(_))) => Err(StartError::Ended(out_of_turn())),
        }
    }

    /// Sends a request.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<(), Lost> {
        self.progress.write_all_at(&[0], 0).map_err(Lost::Gone)?;
        let bytes = frame(&request.encode()).map_err(Lost::Malformed)?;
        self.socket.write_all(&bytes).await.map_err(Lost::Gone)
    }

    /// The next message. May be dropped and called again without losing a byte.
    pub(super) async fn next_reply(&mut self) -> Result<Reply, Lost> {
        loop {
            if let Some(body) = take_body(&mut self.received).map_err(Lost::Malformed)? {
                return Reply::decode(&body).map_err(Lost::Malformed);
            }
            if self.socket.read_buf(&mut self.received).await.map_err(Lost::Gone)? == 0 {
                return Err(Lost::Gone(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// The step it is in; `None` when it has not begun.
    pub(super) fn step(&self) -> Option<ProbeStep> {
        let mut byte = [0];
        self.progress.read_exact_at(&mut byte, 0).ok()?;
        step_from_byte(byte[0])
    }

    /// Kills it and waits until it is gone. That is at once, unless the kernel holds it in a call on a
    /// mount that hangs: then it is when that call returns, or never. Nothing but the process itself is kept
    /// while waiting for that.
    pub(super) async fn end(self) {
        let Self { mut child, socket, progress, received } = self;
        drop((socket, progress, received));
        // Both fail only for a process that is gone already.
        let _ = child.start_kill();
        let _ = child.wait().await;
    }
}

fn out_of_turn() -> Lost {
    Lost::Malformed(Malformed::Unknown { what: "reply at the start", value: 2 })
}
