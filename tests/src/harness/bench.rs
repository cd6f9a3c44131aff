//! The world of one case: a directory in memory, a `/run` of its own, and the processes that were started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};

/// The world of one case. There is nothing to clean up: it ends with the namespaces.
#[derive(Debug)]
pub struct Bench {
    directory: PathBuf,
}

/// How much of each log is printed when a case has failed.
const LOG_LINES: usize = 80;

impl Bench {
    /// Makes the world. Called in fresh process and mount namespaces, and nowhere else.
    ///
    /// # Errors
    /// When something cannot be mounted.
    pub fn enter(directory: &Path, keep: bool) -> Result<Self> {
        // A process group that has a number in this namespace: autofs asks for one.
        nix::unistd::setsid().context("cannot start a session")?;
        if !keep {
            in_memory(directory)?;
        }
        // The agent's private places and `mount`'s notes are under /run: this case's own from here on.
        in_memory(Path::new("/run"))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Where the case keeps its files. Never a watched place.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A path in the case's directory.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    /// A fresh empty directory in the case's directory.
    ///
    /// # Errors
    /// When it is there already.
    pub fn make_directory(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// A file with this content in the case's directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: impl AsRef<Path>, content: &[u8]) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Prints the end of every log: what a person wants to see first after a failure.
    pub fn print_logs(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "log") {
                let bytes = fs::read(&path).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                let lines: Vec<&str> = text.lines().collect();
                let skipped = lines.len().saturating_sub(LOG_LINES);
                eprintln!("--- {} ({} lines, {skipped} not shown)", path.display(), lines.len());
                for line in lines.iter().skip(skipped) {
                    eprintln!("{line}");
                }
            }
        }
    }
}

/// Writes a script that can be started.
///
/// # Errors
/// When it cannot be written.
pub fn write_program(path: &Path, script: &str) -> Result<()> {
    fs::write(path, script).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} a program", path.display()))
}

/// Covers a directory with one in memory.
///
/// # Errors
/// When it cannot be mounted.
pub fn in_memory(directory: &Path) -> Result<()> {
    mount_tmpfs(directory, "mode=0755")
}

/// Mounts a tmpfs with these options.
///
/// # Errors
/// When it cannot be mounted.
pub fn mount_tmpfs(directory: &Path, options: &str) -> Result<()> {
    mount(Some("tmpfs"), directory, Some("tmpfs"), MsFlags::MS_NOSUID, Some(options))
        .with_context(|| format!("cannot mount a tmpfs on {}", directory.display()))
}
