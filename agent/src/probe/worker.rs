//! The worker process: the hidden subcommand `mountie worker`.
//!
//! The only place of the agent where a watched path is looked at. One thread, no runtime, no logger, no
//! descriptor but three: standard input is the socket to the pool, standard output is the progress file (one
//! byte: the step of the probe), standard error is `/dev/null`. The process may be killed at any moment, and
//! it may hang in the kernel for ever without anybody waiting for it.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, chdir, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_name, set_no_new_privs};

use super::protocol::{HEADER, Reply, Request, body_length, frame, step_to_byte};
use super::{privileges, steps};
use crate::exit_code::ExitCode;
use crate::sys;

/// What the pool passes on the command line, after the word `worker`: `--parent PID [--namespace PATH]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerArgs {
    /// The process that started it. A worker ends with its parent.
    pub parent: u32,
    /// The mount namespace to look in, as a file such as `/proc/1/ns/mnt`; its own when absent.
    pub namespace: Option<PathBuf>,
}

/// Why a worker cannot work here.
#[derive(Debug, thiserror::Error)]
enum SetUpError {
    #[error("the parent is not process {0}")]
    Orphaned(u32),
    #[error("cannot be bound to the parent's life")]
    Bind(#[source] rustix::io::Errno),
    #[error("cannot open mount namespace {path:?}")]
    OpenNamespace {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot enter mount namespace {path:?}")]
    EnterNamespace {
        path: PathBuf,
        #[source]
        source: rustix::io::Errno,
    },
    #[error("cannot leave the working directory")]
    WorkingDirectory(#[source] rustix::io::Errno),
    #[error("cannot give up privileges")]
    Privileges(#[source] rustix::io::Errno),
}

impl SetUpError {
    /// The whole chain in one line.
    fn text(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

/// Runs until the pool closes the socket.
#[must_use]
pub fn run(args: &WorkerArgs) -> ExitCode {
    // First of all: nothing that leaked into this process may stay, it could pin a mount.
    sys::descriptors::close_inherited();
    let Ok((mut socket, progress)) = open_channels() else { return ExitCode::Internal };
    if let Err(error) = set_up(args) {
        // Nobody is left to be told when this fails.
        let _ = send(&mut socket, &Reply::Refused(error.text()));
        return ExitCode::NoPermission;
    }
    match serve(&mut socket, &progress) {
        Ok(()) => ExitCode::Ok,
        Err(_) => ExitCode::Internal,
    }
}

fn open_channels() -> io::Result<(UnixStream, File)> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let progress = io::stdout().as_fd().try_clone_to_owned()?;
    Ok((UnixStream::from(socket), File::from(progress)))
}

fn set_up(args: &WorkerArgs) -> Result<(), SetUpError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(SetUpError::Bind)?;
    // The parent may have died before the line above.
    if getppid().map(Pid::as_raw_pid).map(i64::from) != Some(i64::from(args.parent)) {
        return Err(SetUpError::Orphaned(args.parent));
    }
    // For people who look at `ps`; nothing depends on it.
    let _ = set_name(c"mountie-probe");
    set_no_new_privs(true).map_err(SetUpError::Privileges)?;
    if let Some(path) = &args.namespace {
        enter(path)?;
    }
    // A sentinel must be readable for those who read the volume, whatever mask the agent was started with.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // The root directory is all that a worker pins.
    chdir("/").map_err(SetUpError::WorkingDirectory)?;
    privileges::reduce().map_err(SetUpError::Privileges)
}

/// Enters a mount namespace, unless it is this one already: then no privilege is needed.
///
/// kernel: `setns`, kernel/nsproxy.c, since 3.8 for mount namespaces. Root and working directory become the
/// namespace's own.
fn enter(path: &Path) -> Result<(), SetUpError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (wanted, file) =
        opened.map_err(|source| SetUpError::OpenNamespace { path: path.to_owned(), source })?;
    let identity = |facts: &Metadata| (facts.dev(), facts.ino());
    // Its own namespace is a kernel object, not a place on a watched mount.
    let own = std::fs::metadata("/proc/thread-self/ns/mnt").ok();
    if own.is_some_and(|own| identity(&own) == identity(&wanted)) {
        return Ok(());
    }
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|source| SetUpError::EnterNamespace { path: path.to_owned(), source })
}

/// Answers requests until the socket ends. A request that cannot be read ends the worker: the pool sees a
/// lost worker and starts another.
fn serve(socket: &mut UnixStream, progress: &File) -> io::Result<()> {
    let own = privileges::Standing::now()?;
    send(socket, &Reply::Ready)?;
    let mut header = [0; HEADER];
    loop {
        match socket.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let mut body = vec![0; body_length(header).map_err(io::Error::other)?];
        socket.read_exact(&mut body)?;
        let request = Request::decode(&body).map_err(io::Error::other)?;
        let announce = &mut |step| {
            // A step that cannot be noted is still carried out: only its name in a time-out is lost.
            let _ = progress.write_all_at(&[step_to_byte(step)], 0);
        };
        let reply = match &request.planting {
            None => Reply::Done(steps::perform(&request, announce)),
            Some(planting) => Reply::Planted(steps::plant(&request, planting, announce)),
        };
        send(socket, &reply)?;
        if privileges::Standing::now()? != own {
            return Err(io::Error::other("this process could not become itself again"));
        }
    }
}

fn send(socket: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    socket.write_all(&frame(&reply.encode()).map_err(io::Error::other)?)
}
