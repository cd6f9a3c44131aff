//! A "container": a process with a mount namespace of its own that holds a volume in several ways.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::agent::SOON;
use super::bench::Bench;
use super::mnt_ns::only_mount_at;
use super::process::Background;
use super::wait::wait_for;

/// The volume's directory and file that a container uses.
pub const INNER: &str = "inner";
/// The file that it may hold open, and the one in [`INNER`].
pub const FILE: &str = "file";

/// A mount namespace of its own with binds of a volume, and a process in it.
#[derive(Debug)]
pub struct Container {
    process: Background,
    /// A bind of the volume.
    pub data: PathBuf,
    /// A read-only bind of it.
    pub readonly: PathBuf,
    /// A bind of its directory [`INNER`].
    pub inner: PathBuf,
}

impl Container {
    /// Starts one whose places have names that begin with `name`. It may hold [`FILE`] open all the while.
    ///
    /// # Errors
    /// When it cannot be started, or the volume cannot be bound.
    pub fn start(bench: &Bench, name: &str, volume: &Path, holds_a_file: bool) -> Result<Self> {
        let place = |what: &str| bench.make_directory(format!("{name}-{what}"));
        let (data, readonly, inner) = (place("data")?, place("readonly")?, place("inner")?);
        let script = "mount --bind $0 $1 && mount --bind $0 $2 && mount -o remount,bind,ro,nosuid $2 && \
                      mount --bind $0/inner $3 && exec sleep infinity < $4";
        let held = if holds_a_file { data.join(FILE) } else { PathBuf::from("/dev/null") };
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(volume);
        command.args([&data, &readonly, &inner, &held]).stdin(Stdio::null());
        let process = Background(command.spawn().context("cannot start a container")?);
        let container = Self { process, data, readonly, inner };
        let comm = format!("/proc/{}/comm", container.id());
        wait_for("the container runs", SOON, || {
            fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")
        })?;
        Ok(container)
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Device number and options of what is mounted at a place in it, bottom first.
    fn mounts_at(&self, place: &Path) -> Result<Vec<(String, String)>> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.id()))
            .context("cannot read the container's mount table")?;
        let place = place.to_str().context("a place that is text")?;
        let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let here = fields.filter(|fields| fields.get(4) == Some(&place));
        Ok(here
            .filter_map(|fields| Some(((*fields.get(2)?).to_owned(), (*fields.get(5)?).to_owned())))
            .collect())
    }

    /// One deep everywhere, on the superblock that the host shows, with the options that it had.
    ///
    /// # Errors
    /// When it is not so.
    pub fn follows(&self, volume: &Path) -> Result<()> {
        let device = only_mount_at(volume)?.device;
        for place in [volume, &self.data, &self.readonly, &self.inner] {
            let mounts = self.mounts_at(place)?;
            let is_one = matches!(mounts.as_slice(), [(shown, _)] if *shown == device);
            ensure!(is_one, "{} in the container: {mounts:?}, on the host {device}", place.display());
        }
        let readonly = self.mounts_at(&self.readonly)?;
        let words: Vec<&str> = readonly.iter().flat_map(|(_, options)| options.split(',')).collect();
        ensure!(words.contains(&"ro") && words.contains(&"nosuid"), "{words:?}");
        Ok(())
    }

    /// What is written to a volume through its own place is read through every place of the container; nothing can be
    /// written through the read-only one, and all can through the others.
    ///
    /// # Errors
    /// When it is not so.
    pub fn shares(&self, volume: &Path, text: &str) -> Result<()> {
        let write = |path: PathBuf| {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write(volume.join("fresh"))?;
        write(volume.join(INNER).join("fresh"))?;
        for place in [volume, &self.data, &self.readonly, &self.inner] {
            let read = self.read(&place.join("fresh"))?;
            ensure!(read == text, "{} in the container reads {read:?}", place.display());
        }
        let read = fs::read_to_string(volume.join("fresh")).context("cannot read on the host")?;
        ensure!(read == text, "the host reads {read:?}");
        match fs::write(self.seen(&self.readonly.join("fresh")), "through the read-only bind") {
            Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {}
            other => bail!("a write through the read-only bind: {other:?}"),
        }
        for place in [&self.data, &self.inner] {
            write(self.seen(&place.join("written")))?;
        }
        Ok(())
    }

    /// Reads a file as a program in the container does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: &Path) -> Result<String> {
        let seen = self.seen(path);
        fs::read_to_string(&seen).with_context(|| format!("cannot read {}", seen.display()))
    }

    /// A path of the container, as it is found from outside.
    fn seen(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.id(), path.display()))
    }
}
