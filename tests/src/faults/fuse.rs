//! FUSE daemons that die, freeze, lie, or are cut off.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use integration_tests::harness::bindfs::Bindfs;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::{mounts_at, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::send;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::fault::{Fault, Place, World, names};
use super::tools::{detach_all, mount, switch};
use super::user::User;
use super::watch::Watch;

const NEEDS: &[Need] = &[Need::Fuse, Need::Tool("bindfs")];

/// Where the kernel lets a connection be cut.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The daemon of the row that is running.
#[derive(Debug)]
struct Daemon {
    directory: PathBuf,
    served: Option<Bindfs>,
    injector: Option<Injector>,
}

impl Daemon {
    fn serve(&mut self, place: &Place) -> Result<()> {
        let source = self.directory.join(format!("{}.source", place.name));
        fs::create_dir_all(&source).context("cannot make a source")?;
        self.served = Some(Bindfs::mount(&source, &place.mountpoint)?);
        Ok(())
    }

    fn served(&self) -> Result<&Bindfs> {
        self.served.as_ref().context("no daemon")
    }

    fn serve_as_told(&mut self, place: &Place) -> Result<()> {
        let control = self.directory.join(format!("{}.control", place.name));
        fs::create_dir(&control).context("cannot make a control directory")?;
        let injector = Injector::between(control, place.mountpoint.clone(), "here")?;
        self.injector.insert(injector).mount(&[])
    }

    fn tell(&self, mode: &Mode) -> Result<()> {
        self.injector.as_ref().context("no injector")?.set(mode)
    }

    fn serve_anew(&mut self, place: &Place) -> Result<()> {
        detach_all(&place.mountpoint)?;
        self.serve(place)
    }
}

impl World for Daemon {
    fn clear(&mut self, place: &Place) -> Result<()> {
        if let Some(served) = self.served.take()
            && served.daemon().is_ok()
        {
            served.kill()?;
        }
        if let Some(injector) = self.injector.take() {
            injector.kill()?;
        }
        detach_all(&place.mountpoint)
    }
}

const KILLED: Fault<Daemon> = Fault {
    row: "FUSE daemon killed",
    reasons: &["disconnected"],
    needs: NEEDS,
    user: User::Nobody,
    sentinel: false,
    data: 64 << 10,
    deadline: "2s",
    set_up: |world, place| world.serve(place),
    break_it: |world, _| world.served()?.kill(),
    repair: Some(|world, place| world.serve_anew(place)),
    beside: None,
};

const FROZEN: Fault<Daemon> = Fault {
    row: "FUSE daemon frozen",
    reasons: &["hung"],
    deadline: "1s",
    break_it: |world, _| send(world.served()?.daemon()?, Signal::SIGSTOP),
    repair: Some(|world, _| send(world.served()?.daemon()?, Signal::SIGCONT)),
    ..KILLED
};

const CUT_OFF: Fault<Daemon> =
    Fault { row: "FUSE connection aborted", break_it: |_, place| abort(&place.mountpoint), ..KILLED };

const ANSWERS_ERRORS: Fault<Daemon> = Fault {
    row: "FUSE daemon answers EIO",
    reasons: &["io_error"],
    data: 0,
    set_up: |world, place| world.serve_as_told(place),
    break_it: |world, _| world.tell(&Mode::fail_all(Errno::EIO)),
    repair: Some(|world, _| world.tell(&Mode::Ok)),
    ..KILLED
};

const FAULTS: &[Fault<Daemon>] = &[
    KILLED,
    Fault { user: User::Reads, ..KILLED },
    FROZEN,
    Fault { user: User::Reads, ..FROZEN },
    CUT_OFF,
    Fault { user: User::Reads, ..CUT_OFF },
    ANSWERS_ERRORS,
    Fault { user: User::Reads, ..ANSWERS_ERRORS },
];

/// The names of the rows.
pub(super) fn rows() -> Vec<String> {
    names(FAULTS)
}

/// Runs them.
pub(super) fn run(watch: &mut Watch<'_>) -> Result<()> {
    if mounts_at(Path::new(CONNECTIONS))?.is_empty() {
        mount("fusectl", "none", Path::new(CONNECTIONS), "")?;
    }
    let mut world = Daemon { directory: watch.directory().to_owned(), served: None, injector: None };
    watch.run(&mut world, FAULTS)
}

/// kernel: `fuse_ctl_add_conn`, fs/fuse/control.c, since 2.6.18: the directory is named after the minor number.
fn abort(mountpoint: &Path) -> Result<()> {
    let device = only_mount_at(mountpoint)?.device;
    let (_, minor) = device.split_once(':').context("no device number")?;
    switch(Path::new(CONNECTIONS).join(minor).join("abort"), "1")
}
