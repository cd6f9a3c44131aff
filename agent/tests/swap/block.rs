//! Block file systems, whose device shows the same superblock again as long as anyone holds it.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agent_core::remediation::consumers::is_guard;
use agent_core::remediation::{Action, Outcome, Refusal};
use agent_core::verdict::Reason;
use agent_core::volume::Identity;

use super::Test;
use super::lab::{Alone, Lab, run, stage_by_command, stage_by_mount, text, unmount, verify, wait_for};

pub(crate) const TESTS: &[Test] = &[
    ("an_ext4_that_gave_up_is_mounted_afresh", an_ext4_that_gave_up_is_mounted_afresh),
    ("a_device_that_cannot_be_mounted_afresh_is_not_unmounted", a_device_that_cannot_be_mounted_afresh),
    (
        "what_was_unmounted_comes_back_read_only_where_no_new_one_comes",
        what_was_unmounted_comes_back_read_only,
    ),
    ("a_busy_device_is_left_alone", a_busy_device_is_left_alone),
    ("a_superblock_that_somebody_holds_is_not_called_repaired", a_held_superblock_is_not_called_repaired),
    ("what_is_put_back_is_what_stood_there_or_a_guard", what_is_put_back_is_what_stood_there),
    ("another_device_is_not_swapped_in", another_device_is_not_swapped_in),
    ("what_was_mounted_in_place_must_be_the_volume", what_was_mounted_in_place_must_be_the_volume),
];

/// A loop device with a file system. An ext4 on it gives up at the first error.
pub(crate) struct Device {
    fstype: &'static str,
    pub(crate) path: String,
    pub(crate) uuid: String,
}

impl Device {
    pub(crate) fn new(lab: &Lab, name: &str) -> Self {
        Self::of(lab, name, "ext4")
    }

    /// The same with a file system of this type.
    pub(crate) fn of(lab: &Lab, name: &str, fstype: &'static str) -> Self {
        let image: PathBuf = lab.directory.join(name);
        // The smallest that each takes.
        let (size, mkfs): (u64, &[&str]) = match fstype {
            "xfs" => (320 << 20, &["mkfs.xfs", "-q", "-K"]),
            "btrfs" => (128 << 20, &["mkfs.btrfs", "-q", "-K"]),
            _ => (8 << 20, &["mkfs.ext4", "-q", "-e", "remount-ro"]),
        };
        File::create(&image).unwrap().set_len(size).unwrap();
        run(&[mkfs, &[text(&image)]].concat());
        let path = run(&["losetup", "--find", "--show", text(&image)]);
        let uuid = run(&["blkid", "-p", "-o", "value", "-s", "UUID", &path]);
        Self { fstype, path, uuid }
    }

    /// Makes a mounted one give up. There is no way to do that to a btrfs whose device is to be good afterwards.
    pub(crate) fn break_file_system(&self, mountpoint: &Path) {
        if self.fstype == "xfs" {
            run(&["xfs_io", "-x", "-c", "shutdown", text(mountpoint)]);
            return;
        }
        let name = Path::new(&self.path).file_name().unwrap().to_str().unwrap();
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "x").unwrap();
    }

    pub(crate) fn plan_actions(&self) -> Vec<Action> {
        let identity = Identity { uuid: Some(self.uuid.clone()), fsid: None };
        vec![
            Action::UnmountOld,
            stage_by_mount(&self.path, self.fstype, &[]),
            Action::CheckStaged { sentinel: None, identity, source: None, fstype: None },
            Action::Swap { readonly: false },
            verify(None),
            Action::Unstage,
        ]
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Takes effect when the last mount is gone, at the latest with this process's namespace.
        run(&["losetup", "--detach", &self.path]);
    }
}

/// On the disk when it is back: some kernels lose what a file system that gives up had not written yet.
fn write(lab: &Lab) -> std::io::Result<()> {
    let mut file = File::create(lab.mountpoint.join("file"))?;
    file.write_all(b"x")?;
    file.sync_all()
}

fn an_ext4_that_gave_up_is_mounted_afresh() {
    let _alone = Alone::begin();
    let lab = Lab::new("ext4");
    let device = Device::new(&lab, "image");
    run(&["mount", "-o", "nosuid,nodev,noatime", &device.path, text(&lab.mountpoint)]);
    write(&lab).unwrap();
    device.break_file_system(&lab.mountpoint);
    wait_for("writes are refused", || write(&lab).is_err());
    let mut plan = lab.plan(device.plan_actions());
    plan.reason = Some(Reason::Readonly);
    let report = lab.execute(plan.clone());
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    println!("{:?}, gap {:?}", report.took, report.gap);
    assert!(report.gap.is_some_and(|gap| !gap.is_zero() && gap < report.took), "{report:#?}");
    assert_eq!(lab.stack().len(), 1);
    // The plan says nothing of these: they are those of the mount that had to go first.
    let options = lab.top().unwrap().options;
    assert!(["nosuid", "nodev", "noatime"].iter().all(|word| options.has(word)), "{options:?}");
    write(&lab).unwrap();
    lab.assert_unstaged();
    unmount(&lab.mountpoint);
}

fn check_source(source: &str, uuid: &str) -> Action {
    let identity = Identity { uuid: Some(uuid.to_owned()), fsid: None };
    Action::CheckSource {
        method: agent_core::volume::Method::Mount,
        source: source.as_bytes().to_vec(),
        readonly: false,
        identity,
    }
}

/// What can still be read stays, where no new mount could come in its place.
fn a_device_that_cannot_be_mounted_afresh() {
    let _alone = Alone::begin();
    let lab = Lab::new("ext4-kept");
    let device = Device::new(&lab, "image");
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    write(&lab).unwrap();
    device.break_file_system(&lab.mountpoint);
    let before = lab.stack();
    let execute = |source: &str, uuid: &str| {
        let mut actions = device.plan_actions();
        actions.insert(0, check_source(source, uuid));
        let mut plan = lab.plan(actions);
        plan.reason = Some(Reason::Readonly);
        lab.execute(plan)
    };
    let refused = |source: &str, uuid: &str, expected: Refusal, why: &str| {
        let report = execute(source, uuid);
        assert_eq!(report.outcome, Outcome::Refused(expected), "{report:#?}");
        assert!(report.steps[0].contains(why), "{report:#?}");
        assert_eq!(lab.stack(), before);
        match std::fs::read(lab.mountpoint.join("file")) {
            Ok(content) => assert_eq!(content, b"x"),
            // Debian's 6.12 reads nothing any more that was not read before.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}"),
        }
    };
    refused("/dev/no-such-device", &device.uuid, Refusal::NotPrepared, "is not there");
    let other = "01234567-89ab-cdef-0123-456789abcdef";
    refused(&device.path, other, Refusal::OtherVolume, other);
    run(&["blockdev", "--setro", &device.path]);
    refused(&device.path, &device.uuid, Refusal::NotPrepared, "write-protected");
    run(&["blockdev", "--setrw", &device.path]);
    let report = execute(&device.path, &device.uuid);
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert!(lab.top().unwrap().super_options.has("rw"), "{report:#?}");
    unmount(&lab.mountpoint);
}

fn what_was_unmounted_comes_back_read_only() {
    let _alone = Alone::begin();
    for (name, is_other) in [("ext4-back", false), ("ext4-other", true)] {
        let lab = Lab::new(name);
        let device = Device::new(&lab, "image");
        run(&["mount", "-o", "nosuid", &device.path, text(&lab.mountpoint)]);
        write(&lab).unwrap();
        let mut actions = device.plan_actions();
        if is_other {
            let identity = Identity { uuid: Some("01234567-89ab".to_owned()), fsid: None };
            actions[2] = Action::CheckStaged { sentinel: None, identity, source: None, fstype: None };
        } else {
            actions[1] = stage_by_command(&["false", "{target}"]);
        }
        let mut plan = lab.plan(actions);
        plan.undo = vec![Action::MountAgain, Action::Unstage];
        let report = lab.execute(plan);
        let top = lab.top().unwrap();
        if is_other {
            assert_eq!(report.outcome, Outcome::Refused(Refusal::OtherVolume), "{report:#?}");
            assert!(is_guard(&top), "it is another disk by now: {top:#?}");
        } else {
            assert_eq!(report.outcome, Outcome::HelperFailed(1), "{report:#?}");
            assert_eq!(lab.stack().len(), 1, "{report:#?}");
            assert!(top.super_options.has("ro") && top.options.has("nosuid"), "{top:#?} {report:#?}");
            assert_eq!(std::fs::read(lab.mountpoint.join("file")).unwrap(), b"x");
            assert!(report.gap.is_some(), "{report:#?}");
        }
        lab.assert_unstaged();
        unmount(&lab.mountpoint);
    }
}

fn a_busy_device_is_left_alone() {
    let _alone = Alone::begin();
    let lab = Lab::new("busy");
    let device = Device::new(&lab, "image");
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    write(&lab).unwrap();
    let old = lab.top().unwrap();
    let open = File::open(lab.mountpoint.join("file")).unwrap();
    let report = lab.execute(lab.plan(device.plan_actions()));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::Busy), "{report:#?}");
    assert_eq!(lab.stack(), [old]);
    drop(open);
    unmount(&lab.mountpoint);
}

fn a_held_superblock_is_not_called_repaired() {
    let _alone = Alone::begin();
    let lab = Lab::new("held");
    let device = Device::new(&lab, "image");
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    write(&lab).unwrap();
    let open = File::open(lab.mountpoint.join("file")).unwrap();
    device.break_file_system(&lab.mountpoint);
    // What a script does that means well: the dead superblock is back, and a plain unmount will succeed.
    run(&["umount", "--lazy", text(&lab.mountpoint)]);
    // Older kernels mark the dead one read-only and mount it in no other way.
    let script = "mount -o nosuid,nodev $0 $1 2>/dev/null || mount -o ro,nosuid,nodev $0 $1";
    run(&["sh", "-c", script, &device.path, text(&lab.mountpoint)]);
    let report = lab.execute(lab.plan(device.plan_actions()));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::SameSuperblock), "{report:#?}");
    // Nobody can write into the bare directory meanwhile.
    assert_eq!(lab.stack().len(), 1, "{report:#?}");
    assert!(write(&lab).is_err());
    let options = lab.top().unwrap().options;
    assert!(options.has("nosuid") && options.has("nodev"), "{options:?}");
    // Also where the one mount is read-only and the superblock is not said to be.
    run(&["mount", "-o", "remount,bind,ro,nosuid", text(&lab.mountpoint)]);
    let report = lab.execute(lab.plan(device.plan_actions()));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::SameSuperblock), "{report:#?}");
    let options = lab.top().unwrap().options;
    assert!(options.has("ro") && options.has("nosuid"), "{options:?}");
    run(&["mount", "-o", "remount,bind,rw,nosuid", text(&lab.mountpoint)]);
    drop(open);
    let report = lab.execute(lab.plan(device.plan_actions()));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    write(&lab).unwrap();
    unmount(&lab.mountpoint);
}

/// The volume is a directory of the device, and somebody else keeps the superblock.
fn what_is_put_back_is_what_stood_there() {
    let _alone = Alone::begin();
    let lab = Lab::new("stood");
    let device = Device::new(&lab, "image");
    let (whole, volume) = (lab.directory("whole"), text(&lab.mountpoint));
    run(&["mount", &device.path, text(&whole)]);
    std::fs::create_dir(whole.join("sub")).unwrap();
    std::fs::write(whole.join("sub/file"), "data").unwrap();
    run(&["mount", "--bind", text(&whole.join("sub")), volume]);
    run(&["mount", "-o", "remount,bind,nosuid,noexec,noatime", volume]);
    run(&["mount", "--make-shared", volume]);
    let before = lab.top().unwrap();
    assert_eq!(before.root, "/sub".into());
    let report = lab.execute(lab.plan(device.plan_actions()));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::SameSuperblock), "{report:#?}");
    let stack = lab.stack();
    assert_eq!(stack.len(), 1, "{report:#?}");
    assert_eq!((&stack[0].root, &stack[0].options), (&before.root, &before.options), "{report:#?}");
    assert_eq!(stack[0].superblock, before.superblock);
    assert!(stack[0].propagation.shared.is_some(), "{:?}", stack[0]);
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "data");
    lab.assert_unstaged();
    // What is no more can be shown by nobody.
    run(&["rm", "-r", text(&whole.join("sub"))]);
    let report = lab.execute(lab.plan(device.plan_actions()));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::SameSuperblock), "{report:#?}");
    assert!(report.steps.iter().any(|step| step.contains("a guard keeps programs")), "{report:#?}");
    let stack = lab.stack();
    assert!(stack.len() == 1 && is_guard(&stack[0]), "{stack:#?}");
    assert!(write(&lab).is_err());
    lab.assert_unstaged();
    unmount(&lab.mountpoint);
    unmount(&whole);
}

fn another_device_is_not_swapped_in() {
    let _alone = Alone::begin();
    for (name, fstype) in [("exchanged", "ext4"), ("exchanged-xfs", "xfs")] {
        let lab = Lab::new(name);
        let (right, wrong) = (Device::of(&lab, "right", fstype), Device::of(&lab, "wrong", fstype));
        let mut actions = right.plan_actions();
        actions[1] = stage_by_mount(&wrong.path, fstype, &[]);
        let report = lab.execute(lab.plan(actions));
        assert_eq!(report.outcome, Outcome::Refused(Refusal::OtherVolume), "{report:#?}");
        assert!(report.steps.iter().any(|step| step.contains(&wrong.uuid)), "{report:#?}");
        assert!(lab.stack().is_empty());
        lab.assert_unstaged();
    }
}

/// What a unit or a command has mounted at the place itself.
fn what_was_mounted_in_place_must_be_the_volume() {
    let _alone = Alone::begin();
    let lab = Lab::new("in-place");
    let device = Device::of(&lab, "image", "xfs");
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    let root = File::open(&lab.mountpoint).unwrap();
    // The kernel tells what blkid reads, on older ones too.
    assert_eq!(agent::sys::xfs::uuid(root.as_fd()).unwrap(), device.uuid);
    assert_eq!(agent::sys::fs_uuid::uuid(root.as_fd()).unwrap(), device.uuid);
    drop(root);
    let verified = |uuid: &str, source: &str, fstype: &str| {
        let mut plan = lab.plan(vec![Action::Verify {
            sentinel: None,
            identity: Identity { uuid: Some(uuid.to_owned()), fsid: None },
            source: Some(source.as_bytes().to_vec()),
            fstype: Some(fstype.to_owned()),
        }]);
        (plan.old, plan.undo) = (None, Vec::new());
        lab.execute(plan).outcome
    };
    let other = Outcome::Refused(Refusal::OtherVolume);
    assert_eq!(verified(&device.uuid, &device.path, "xfs"), Outcome::AlreadySo);
    assert_eq!(verified("00000000-0000-4000-8000-000000000000", &device.path, "xfs"), other);
    assert_eq!(verified(&device.uuid, "/dev/none", "xfs"), other);
    assert_eq!(verified(&device.uuid, &device.path, "ext4"), other);
    unmount(&lab.mountpoint);
}
