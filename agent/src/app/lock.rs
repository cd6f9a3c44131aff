//! One agent per node: a lock file that dies with its holder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// Why there is no lock.
#[derive(Debug, Error)]
pub(super) enum LockError {
    /// Another agent has it.
    #[error("`{}` is held by process {pid}", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// What the holder wrote into it.
        pid: String,
    },
    /// The file cannot be made or locked.
    #[error("cannot lock `{}`", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How long an agent that is just ending is waited for: a new one may start at the moment it was killed.
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Takes the lock; it is given back when the value is dropped or the process ends, however it ends.
pub(super) async fn take(path: &Path) -> Result<Flock<File>, LockError> {
    for _ in 0..PATIENCE {
        match try_take(path) {
            Err(LockError::Held { .. }) => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
    try_take(path)
}

fn try_take(path: &Path) -> Result<Flock<File>, LockError> {
    let failed = |source| LockError::Io { path: path.to_path_buf(), source };
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(failed)?;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(failed)?;
    let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            return Err(LockError::Held { path: path.to_path_buf(), pid: pid.trim().to_owned() });
        }
        Err((_, errno)) => return Err(failed(errno.into())),
    };
    let written =
        lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| writeln!(lock, "{}", std::process::id()));
    // The lock holds without the number in it; a full /run must not end the agent.
    if let Err(error) = written {
        tracing::debug!(%error, "The lock file could not be written");
    }
    Ok(lock)
}
