//! Faults that are seen through something: two btrfs subvolumes on one device, an overlay over a sick lower.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::needs::Need;
use serde_json::Value;

use super::dm::{Answer, Mapped};
use super::fault::{Fault, Place, World, names};
use super::tools::{detach_all, mount, text, tool};
use super::user::{DATA, User};
use super::watch::{Watch, counted_by};

const SUBVOLUMES: &[Need] =
    &[Need::Module("dm-mod"), Need::Module("btrfs"), Need::Tool("mkfs.btrfs"), Need::Tool("btrfs")];
const OVERLAY: &[Need] = &[Need::Module("dm-mod"), Need::Module("overlay"), Need::Tool("mkfs.ext4")];

/// The device below the row that is running, and where it is mounted as a whole.
#[derive(Debug)]
struct Stack {
    directory: PathBuf,
    below: Option<(Mapped, PathBuf)>,
}

impl Stack {
    fn mount_below(&mut self, place: &Place, kind: Kind) -> Result<(PathBuf, PathBuf)> {
        let whole = self.directory.join(format!("{}.whole", place.name));
        fs::create_dir(&whole).context("cannot make a directory")?;
        let device = Mapped::make(&self.directory, &place.name, kind)?;
        let (device, whole) = self.below.insert((device, whole));
        mount(device.fstype(), text(&device.device())?, whole, "")?;
        Ok((device.device(), whole.clone()))
    }

    fn subvolumes(&mut self, place: &Place) -> Result<()> {
        let (device, whole) = self.mount_below(place, Kind::Btrfs)?;
        for one in [place, &place.beside()] {
            tool("btrfs", &["-q", "subvolume", "create", text(&whole.join(&one.name))?])?;
            mount("btrfs", text(&device)?, &one.mountpoint, &format!("subvol={}", one.name))?;
        }
        Ok(())
    }

    fn overlay(&mut self, place: &Place) -> Result<()> {
        let (_, whole) = self.mount_below(place, Kind::Ext4)?;
        fs::write(whole.join(DATA), vec![b'd'; 64 << 10]).context("cannot write the data")?;
        fs::write(whole.join(".mountie"), b"here").context("cannot write the sentinel")?;
        LoopDevice::settle(&whole)?;
        let upper = self.directory.join(format!("{}.upper", place.name));
        let work = self.directory.join(format!("{}.work", place.name));
        for directory in [&upper, &work] {
            fs::create_dir(directory).context("cannot make a directory")?;
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}", text(&whole)?, text(&upper)?, text(&work)?);
        mount("overlay", "overlay", &place.mountpoint, &options)
    }

    fn answer(&self, answer: Answer) -> Result<()> {
        self.below.as_ref().context("no device")?.0.answer(answer)
    }
}

impl World for Stack {
    fn clear(&mut self, place: &Place) -> Result<()> {
        detach_all(&place.mountpoint)?;
        detach_all(&place.beside().mountpoint)?;
        match self.below.take() {
            Some((device, whole)) => {
                detach_all(&whole)?;
                device.remove()
            }
            None => Ok(()),
        }
    }
}

const SICK_LOWER: Fault<Stack> = Fault {
    row: "overlay, device of the lower answers errors",
    reasons: &["io_error"],
    needs: OVERLAY,
    user: User::Nobody,
    sentinel: true,
    data: 64 << 10,
    deadline: "2s",
    set_up: |world, place| world.overlay(place),
    break_it: |world, _| world.answer(Answer::Errors),
    repair: Some(|world, _| world.answer(Answer::Good)),
    beside: None,
};

const FAULTS: &[Fault<Stack>] = &[
    SICK_LOWER,
    Fault { user: User::Reads, ..SICK_LOWER },
    Fault {
        row: "btrfs subvolume beside another, device answers errors",
        reasons: &["io_error", "readonly"],
        needs: SUBVOLUMES,
        user: User::Reads,
        sentinel: false,
        set_up: |world, place| world.subvolumes(place),
        repair: None,
        beside: Some(sick_as_well),
        ..SICK_LOWER
    },
];

/// The names of the rows.
pub(super) fn rows() -> Vec<String> {
    names(FAULTS)
}

/// Runs them.
pub(super) fn run(watch: &mut Watch<'_>) -> Result<()> {
    let mut world = Stack { directory: watch.directory().to_owned(), below: None };
    watch.run(&mut world, FAULTS)
}

/// The device is sick under both, and both must be called so. Whether the kernel's counts tell the two apart is
/// noted: the roots of all subvolumes have one inode number.
///
/// kernel: `BTRFS_FIRST_FREE_OBJECTID`, include/uapi/linux/btrfs_tree.h.
fn sick_as_well(beside: &Value) -> Result<String> {
    let probed = counted_by(beside, "probe");
    ensure!(probed > 0, "no probe met the device");
    Ok(match counted_by(beside, "bpf") {
        0 => "told apart".to_owned(),
        errors => format!("not told apart, {errors} errors of the first"),
    })
}
