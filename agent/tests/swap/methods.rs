//! The ways in which a new mount is made, or an old one healed: `/etc/fstab`, units, connections, variables.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::path::BytePath;
use agent_core::remediation::{Action, Outcome, Refusal};
use agent_core::volume::{Identity, Method};
use nix::sys::signal::Signal;

use super::Test;
use super::block::Device;
use super::lab::{
    Lab, Process, add_to_fstab, add_unit, bytes, run, run_in_place, stage_by_command, stage_by_mount,
    start_bindfs, swap_after, text, unmount, verify, wait_for,
};
use super::patience::patiently;

pub(crate) const TESTS: &[Test] = &[
    ("an_entry_of_fstab_is_mounted_at_a_private_place_and_swapped_in", an_entry_of_fstab_is_swapped_in),
    ("a_device_of_fstab_is_found_by_its_uuid_and_label", a_device_of_fstab_is_found),
    ("what_fstab_does_not_say_is_refused_by_name", what_fstab_does_not_say_is_refused),
    ("a_unit_is_restarted_in_place_and_the_gap_is_told", a_unit_is_restarted_in_place),
    ("a_unit_that_is_not_the_daemons_is_left_alone", a_unit_that_is_not_the_daemons_is_left_alone),
    ("the_end_of_a_hung_connection_frees_whoever_waits_in_it", the_end_of_a_hung_connection_frees),
    (
        "a_connection_is_not_ended_for_a_plan_that_is_refused",
        a_connection_is_not_ended_for_a_plan_that_is_refused,
    ),
    ("a_connection_is_ended_only_when_its_daemon_is_at_fault", a_connection_is_ended_only_at_fault),
    ("variables_reach_the_helper_and_nobody_else", variables_reach_the_helper_and_nobody_else),
];

/// With the type that the table shows for it.
fn by_fstab() -> Action {
    Action::Stage {
        method: Method::Fstab,
        source: Vec::new(),
        fstype: String::new(),
        options: Vec::new(),
        environment_file: None,
    }
}

fn an_entry_of_fstab_is_swapped_in() {
    let lab = Lab::new("fstab entry");
    let source = lab.directory("the source");
    std::fs::write(source.join("file"), "data").unwrap();
    let escaped = |path: &Path| text(path).replace(' ', "\\040");
    let options = "no-allow-other,ro,noauto,nofail,_netdev,x-systemd.automount,x-systemd.requires=a.service";
    add_to_fstab(&format!("{}\t{}/ fuse.bindfs {options} 0 0", escaped(&source), escaped(&lab.mountpoint)));
    let old = lab.mount_tmpfs("old");
    let report = lab.execute(lab.plan(swap_after(by_fstab(), false, None)));
    lab.assert_replaced(old, &report);
    let top = lab.top().unwrap();
    assert!(top.fstype.starts_with("fuse") && top.options.has("ro"), "{top:?}");
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "data");
    assert!(report.steps[0].contains("-o no-allow-other,ro "), "{report:#?}");
    unmount(&lab.mountpoint);
}

fn a_device_of_fstab_is_found() {
    for name in ["fstab-uuid", "fstab-label"] {
        let lab = Lab::new(name);
        let device = Device::new(&lab, "image");
        let label = format!("l{}", std::process::id());
        run(&["e2label", &device.path, &label]);
        let named =
            if name == "fstab-uuid" { format!("UUID={}", device.uuid) } else { format!("LABEL={label}") };
        add_to_fstab(&format!("{named} {} ext4 defaults,nosuid 0 2", text(&lab.mountpoint)));
        run(&["mount", &device.path, text(&lab.mountpoint)]);
        device.break_file_system(&lab.mountpoint);
        let mut actions = vec![Action::UnmountOld];
        actions.extend(swap_after(by_fstab(), false, None));
        actions[2] = Action::CheckStaged {
            sentinel: None,
            identity: Identity { uuid: Some(device.uuid.clone()), fsid: None },
            source: None,
            fstype: Some("ext4".to_owned()),
        };
        let report = lab.execute(lab.plan(actions));
        assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
        let stack = lab.stack();
        assert_eq!(stack.len(), 1, "{stack:#?}");
        assert!(stack[0].options.has("nosuid") && stack[0].super_options.has("rw"), "{stack:#?}");
        lab.assert_unstaged();
        unmount(&lab.mountpoint);
    }
}

fn what_fstab_does_not_say_is_refused() {
    let lab = Lab::new("fstab-refused");
    let old = lab.mount_tmpfs("old");
    let refused = |expected: &str| {
        let report = lab.execute(lab.plan(swap_after(by_fstab(), false, None)));
        assert_eq!(report.outcome, Outcome::Refused(Refusal::NotPrepared), "{report:#?}");
        assert!(report.steps[0].contains(expected), "{report:#?}");
        assert!(!format!("{report:?}").contains("Zx9"), "{report:#?}");
        assert_eq!(lab.top().unwrap().superblock, old);
        lab.assert_unstaged();
    };
    refused(&format!("/etc/fstab has no entry for {}", lab.mountpoint.display()));
    add_to_fstab(&format!("mon:/ {} ceph name=a,secret=Zx9 0 0", text(&lab.mountpoint)));
    refused("carries a secret (secret=…)");
}

/// The stand-in's unit mounts a tmpfs, with this many seconds between the old one and the new.
fn tmpfs_unit(lab: &Lab, name: &str, properties: &str) {
    let place = text(&lab.mountpoint);
    let restart =
        format!("umount {place} && sleep 0.3 && mount -t tmpfs new {place} && echo data > {place}/file");
    add_unit(name, properties, &restart);
}

fn restart(unit: &str, daemon: Option<u32>) -> Vec<Action> {
    vec![Action::RestartUnit { unit: unit.to_owned(), daemon }, verify(None)]
}

fn a_unit_is_restarted_in_place() {
    let lab = Lab::new("unit");
    lab.mount_tmpfs("old");
    tmpfs_unit(&lab, "mnt-unit-volume.mount", "LoadState=loaded\nExecMainPID=\n");
    let report = lab.execute(lab.plan(restart("mnt-unit-volume.mount", None)));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "data\n");
    let gap = report.gap.unwrap_or_else(|| panic!("{report:#?}"));
    assert!(gap >= Duration::from_millis(250) && gap < patiently(Duration::from_secs(10)), "{report:#?}");
    assert!(report.steps[0].contains("restarted mnt-unit-volume.mount"), "{report:#?}");
    // What is started first and mounts later is waited for.
    let place = text(&lab.mountpoint);
    let later = format!("umount {place}; (sleep 0.5; mount -t tmpfs later {place}) >/dev/null 2>&1 &");
    add_unit("later.service", "LoadState=loaded\n", &later);
    let report = lab.execute(lab.plan(restart("later.service", None)));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert_eq!(lab.top().unwrap().source, b"later");
    // And one that does not come up is told, with what it says.
    add_unit("broken.service", "LoadState=loaded\n", "echo 'Job for broken.service failed.' >&2; exit 1");
    let report = lab.execute(lab.plan(restart("broken.service", None)));
    assert_eq!(report.outcome, Outcome::HelperFailed(1), "{report:#?}");
    assert!(report.steps[0].contains("Job for broken.service failed."), "{report:#?}");
}

fn a_unit_that_is_not_the_daemons_is_left_alone() {
    let lab = Lab::new("other-unit");
    let old = lab.mount_tmpfs("old");
    tmpfs_unit(&lab, "cron-like.service", "LoadState=loaded\nExecMainPID=70\n");
    for (unit, daemon, expected) in [
        ("cron-like.service", Some(71), "process 71 serves"),
        ("not-there.service", None, "systemd has no unit not-there.service to restart (it is not-found)"),
        ("--now.service", None, "no name of a unit"),
    ] {
        let report = lab.execute(lab.plan(restart(unit, daemon)));
        let refusal = if daemon.is_some() { Refusal::OtherUnit } else { Refusal::NotPrepared };
        assert_eq!(report.outcome, Outcome::Refused(refusal), "{report:#?}");
        assert!(report.steps[0].contains(expected), "{report:#?}");
        assert_eq!(lab.top().unwrap().superblock, old);
    }
    let report = lab.execute(lab.plan(restart("cron-like.service", Some(70))));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "data\n");
}

/// A volume that hangs for good, since its daemon is stopped, with a caller in it.
struct Hung {
    caller: Process,
    daemon: Process,
    source: PathBuf,
}

impl Hung {
    fn new(lab: &Lab) -> Self {
        let source = lab.directory("source");
        std::fs::write(source.join("file"), "data").unwrap();
        let daemon = start_bindfs(&source, &lab.mountpoint);
        daemon.signal(Signal::SIGSTOP);
        let caller = Process::start(&["cat", text(&lab.mountpoint.join("file"))]);
        let connection = lab.top().unwrap().superblock;
        let waiting = || agent::sys::fuse_control::Connection::of(connection).unwrap().waiting().unwrap();
        wait_for("a request waits", || waiting() > 0);
        Self { caller, daemon, source }
    }
}

fn the_end_of_a_hung_connection_frees() {
    let lab = Lab::new("aborted");
    let hung = Hung::new(&lab);
    let old = lab.top().unwrap().superblock;
    let mut actions = swap_after(stage_by_mount(text(&hung.source), "fuse.bindfs", &[]), false, None);
    actions.insert(2, Action::AbortConnection { daemon: Some(hung.daemon.id()), is_proven: true });
    let report = lab.execute(lab.plan(actions));
    lab.assert_replaced(old, &report);
    let told = format!("abort: ended the FUSE connection {old}, in which ");
    assert!(report.steps[2].starts_with(&told), "{report:#?}");
    // It got an error, though the daemon never answered.
    wait_for("the caller is free", || hung.caller.has_ended());
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "data");
    unmount(&lab.mountpoint);
}

/// A daemon that is slow answers in the end: it is not cut off for a plan that could do nothing after that.
fn a_connection_is_not_ended_for_a_plan_that_is_refused() {
    let lab = Lab::new("not-aborted");
    let source = lab.directory("source");
    std::fs::create_dir_all(source.join("inside")).unwrap();
    let inside = lab.mountpoint.join("inside");
    let before = start_bindfs(&source, &lab.mountpoint);
    run(&["mount", "-t", "tmpfs", "inside", text(&inside)]);
    before.signal(Signal::SIGSTOP);
    let caller = Process::start(&["ls", text(&lab.mountpoint)]);
    let old = lab.top().unwrap().superblock;
    let waiting = || agent::sys::fuse_control::Connection::of(old).unwrap().waiting().unwrap();
    wait_for("a request waits", || waiting() > 0);
    let abort = Action::AbortConnection { daemon: Some(before.id()), is_proven: true };
    let swap = Action::Swap { readonly: false };
    let report = lab.execute(lab.plan(vec![abort.clone(), swap]));
    assert_eq!(
        (&report.outcome, report.steps[0].starts_with("abort")),
        (&Outcome::Refused(Refusal::Busy), true)
    );
    // Its daemon runs in a unit that starts something else.
    add_unit("cron-of-lab.service", "LoadState=loaded\nExecMainPID=1\n", "exit 1");
    let unit = "cron-of-lab.service".to_owned();
    let restart = Action::RestartUnit { unit, daemon: Some(before.id()) };
    let report = lab.execute(lab.plan(vec![abort, restart]));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::OtherUnit), "{report:#?}");
    assert!(report.steps[0].starts_with("abort"), "{report:#?}");
    assert!(waiting() > 0 && !caller.has_ended(), "the connection was ended");
    before.signal(Signal::SIGCONT);
    wait_for("the caller is answered", || caller.has_ended());
    unmount(&inside);
    unmount(&lab.mountpoint);
}

fn a_connection_is_ended_only_at_fault() {
    let lab = Lab::new("at-fault");
    let source = lab.directory("source");
    std::fs::write(source.join("file"), "data").unwrap();
    let abort = |daemon: Option<u32>, is_proven| {
        let report = lab.execute(lab.plan(vec![Action::AbortConnection { daemon, is_proven }]));
        (report.outcome.clone(), report.steps[0].clone())
    };
    let left = |(outcome, step): (Outcome, String), why: &str| {
        assert!(outcome == Outcome::AlreadySo && step.contains(why), "{outcome:?} {step}");
    };
    // Nobody waits: not even a proof is reason enough.
    let mut daemon = start_bindfs(&source, &lab.mountpoint);
    left(abort(Some(daemon.id()), true), "no request waits in it");
    // Its daemon is stopped, and somebody waits. Who is not known to serve it proves nothing.
    daemon.signal(Signal::SIGSTOP);
    let caller = Process::start(&["cat", text(&lab.mountpoint.join("file"))]);
    let old = lab.top().unwrap().superblock;
    let connection = agent::sys::fuse_control::Connection::of(old).unwrap();
    wait_for("a request waits", || connection.waiting().unwrap() > 0);
    left(abort(None, false), "not known which process");
    left(abort(Some(std::process::id()), false), "runs or waits for something itself");
    // Another superblock than the plan's is on top by now.
    let mut other = lab.plan(vec![Action::AbortConnection { daemon: None, is_proven: true }]);
    other.old = Some(agent_core::id::SuperblockId { major: 0, minor: old.minor + 1 });
    assert_eq!(lab.execute(other).outcome, Outcome::Refused(Refusal::TableChanged));
    assert!(!caller.has_ended());
    let (outcome, step) = abort(Some(daemon.id()), false);
    assert_eq!(outcome, Outcome::Changed, "{step}");
    assert!(step.contains("is stopped"), "{step}");
    wait_for("the caller is free", || caller.has_ended());
    daemon.kill();
    left(abort(Some(daemon.id()), true), "no request waits in it");
    unmount(&lab.mountpoint);
    lab.mount_tmpfs("no FUSE");
    left(abort(None, true), "none of FUSE");
}

fn variables_reach_the_helper_and_nobody_else() {
    let lab = Lab::new("variables");
    lab.mount_tmpfs("old");
    let file = lab.directory.join("env");
    std::fs::write(&file, "# for the helper\nTOKEN=Zx9-secret\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n")
        .unwrap();
    let protect = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let with = |mut action: Action| {
        let (Action::Stage { environment_file, .. } | Action::RunInPlace { environment_file, .. }) =
            &mut action
        else {
            panic!("no helper")
        };
        *environment_file = Some(bytes(&file));
        action
    };
    let seen = lab.directory.join("seen");
    let script = "printf %s \"$TOKEN\" > $0; echo said $TOKEN; echo and $TOKEN >&2; exit 7";
    let words = ["sh", "-c", script, text(&seen)];
    for action in [with(stage_by_command(&words)), with(run_in_place(&words))] {
        protect(0o640);
        let report = lab.execute(lab.plan(vec![action.clone()]));
        assert_eq!(report.outcome, Outcome::Refused(Refusal::NotPrepared), "{report:#?}");
        assert!(report.steps[0].contains("mode 0640") && seen.symlink_metadata().is_err(), "{report:#?}");
        protect(0o600);
        let report = lab.execute(lab.plan(vec![action]));
        assert_eq!(report.outcome, Outcome::HelperFailed(7), "{report:#?}");
        assert!(report.steps[0].contains("said ***"), "{report:#?}");
        assert!(!format!("{report:?}").contains("Zx9"), "{report:#?}");
        assert_eq!(std::fs::read_to_string(&seen).unwrap(), "Zx9-secret");
        std::fs::remove_file(&seen).unwrap();
    }
    let mut gone = with(stage_by_command(&words));
    let Action::Stage { environment_file, .. } = &mut gone else { panic!() };
    *environment_file = Some(BytePath::from("/nonexistent/env"));
    let report = lab.execute(lab.plan(vec![gone]));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::NotPrepared), "{report:#?}");
    assert!(report.steps[0].contains("cannot be opened"), "{report:#?}");
}
