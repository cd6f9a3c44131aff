//! FUSE file systems whose daemon was killed or does not answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::remediation::{Action, Outcome, Plan, Refusal};
use agent_core::volume::{Identity, Sentinel};
use nix::sys::signal::Signal;

use super::Test;
use super::lab::{
    Lab, Process, assert_gap, bytes, has_beneath, run, stage_by_command, stage_by_mount, start_bindfs,
    swap_after, table, text, unmount, verify, wait_for,
};

pub(crate) const TESTS: &[Test] = &[
    ("a_killed_daemon_is_replaced", a_killed_daemon_is_replaced),
    ("a_stopped_daemon_is_replaced_while_callers_hang", a_stopped_daemon_is_replaced),
    ("dead_mounts_on_dead_mounts_all_go", dead_mounts_on_dead_mounts_all_go),
    ("a_staged_mount_that_hangs_is_given_up_and_nothing_changes", a_staged_mount_that_hangs_is_given_up),
    ("another_volume_is_not_swapped_in", another_volume_is_not_swapped_in),
    ("what_a_dead_agent_left_is_cleared", what_a_dead_agent_left_is_cleared),
];

fn source(lab: &Lab) -> PathBuf {
    let source = lab.directory("source");
    std::fs::write(source.join("file"), "data\n").unwrap();
    source
}

pub(crate) fn sentinel(content: &str) -> Option<Sentinel> {
    Some(Sentinel { path: bytes(&PathBuf::from("file")), content: Some(content.as_bytes().to_vec()) })
}

fn replace(lab: &Lab, source: &Path) {
    let old = lab.top().unwrap().superblock;
    let stage = stage_by_mount(text(source), "fuse.bindfs", &["no-allow-other"]);
    let report = lab.execute(lab.plan(swap_after(stage, false, sentinel("data"))));
    assert_gap(&report);
    lab.assert_replaced(old, &report);
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "data\n");
    println!("{} in {:?}", lab.name, report.took);
    unmount(&lab.mountpoint);
}

fn a_killed_daemon_is_replaced() {
    let lab = Lab::new("killed");
    let source = source(&lab);
    let mut daemon = start_bindfs(&source, &lab.mountpoint);
    daemon.kill();
    assert_is_dead(&lab.mountpoint);
    replace(&lab, &source);
}

/// kernel: `fuse_get_req`, fs/fuse/dev.c: `ENOTCONN` once the daemon is gone, `ECONNREFUSED` where it went before it
/// had answered `FUSE_INIT`, since 2.6.14. What it has said of a directory is believed for a while after its end.
pub(crate) fn assert_is_dead(mountpoint: &Path) {
    wait_for("the root is not remembered any more", || std::fs::metadata(mountpoint).is_err());
    let errno = std::fs::metadata(mountpoint).unwrap_err().raw_os_error();
    assert!(matches!(errno, Some(libc::ENOTCONN | libc::ECONNREFUSED)), "{errno:?}");
}

fn a_stopped_daemon_is_replaced() {
    let lab = Lab::new("stopped");
    let source = source(&lab);
    let daemon = start_bindfs(&source, &lab.mountpoint);
    daemon.signal(Signal::SIGSTOP);
    let caller = Process::start(&["ls", text(&lab.mountpoint)]);
    let state = format!("/proc/{}/stat", caller.id());
    // Dropped in this order: the caller cannot be killed before the daemon is.
    let _processes = (daemon, caller);
    wait_for("a caller hangs", || {
        std::fs::read_to_string(&state).is_ok_and(|stat| stat.contains("(ls) S") || stat.contains("(ls) D"))
    });
    replace(&lab, &source);
}

fn dead_mounts_on_dead_mounts_all_go() {
    let lab = Lab::new("stacked");
    let source = source(&lab);
    let mut daemon = start_bindfs(&source, &lab.mountpoint);
    for _ in 0..3 {
        run(&["mount", "--bind", text(&lab.mountpoint), text(&lab.mountpoint)]);
    }
    daemon.kill();
    assert_eq!(lab.stack().len(), 4);
    replace(&lab, &source);
}

fn a_staged_mount_that_hangs_is_given_up() {
    let lab = Lab::new("hanging");
    let source = source(&lab);
    let old = lab.mount_tmpfs("first");
    let pid_file = lab.directory.join("pid");
    // In a session of its own: a stopped process in a group that nobody leads any more would get SIGHUP.
    let script = "setsid bindfs -f $1 $0 & echo $! > $2; while ! mountpoint -q $0; do :; done; kill -STOP $!";
    let stage = stage_by_command(&["sh", "-c", script, "{target}", text(&source), text(&pid_file)]);
    let mut plan = lab.plan(swap_after(stage, false, None));
    plan.timeout = Duration::from_secs(2);
    let report = lab.execute(plan);
    let pid: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    assert_eq!(report.outcome, Outcome::TimedOut, "{report:#?}");
    assert!(report.took < Duration::from_secs(5), "{report:#?}");
    assert_eq!(lab.top().unwrap().superblock, old);
    lab.assert_unstaged();
    // Whatever hung in the dead connection comes back, and is no longer counted.
    let wait = || lab.idle(Duration::from_millis(20));
    wait_for("nothing is stuck", || {
        wait();
        lab.executor.stuck() == 0
    });
}

fn another_volume_is_not_swapped_in() {
    let lab = Lab::new("other");
    let source = source(&lab);
    let old = lab.mount_tmpfs("first");
    let wrong_fsid = Identity { uuid: None, fsid: Some("0123456789abcdef".to_owned()) };
    let checks = [
        Action::CheckStaged {
            sentinel: sentinel("other data"),
            identity: Identity::default(),
            source: None,
            fstype: None,
        },
        Action::CheckStaged { sentinel: None, identity: wrong_fsid, source: None, fstype: None },
    ];
    for check in checks {
        let stage = stage_by_mount(text(&source), "fuse.bindfs", &[]);
        let report = lab.execute(lab.plan(vec![stage, check, Action::Swap { readonly: false }]));
        assert_eq!(report.outcome, Outcome::Refused(Refusal::OtherVolume), "{report:#?}");
        assert_eq!(lab.stack().len(), 1);
        assert_eq!(lab.top().unwrap().superblock, old);
        lab.assert_unstaged();
    }
}

fn what_a_dead_agent_left_is_cleared() {
    let lab = Lab::new("leftovers");
    let source = source(&lab);
    let old = lab.mount_tmpfs("first");
    // A plan that stops after staging, twice over, is what a dead agent leaves.
    let stage = || stage_by_mount(text(&source), "fuse.bindfs", &[]);
    let mut plan = lab.plan(vec![stage()]);
    plan.undo.clear();
    assert!(lab.execute(plan.clone()).outcome.is_success());
    let place = plan.stage.clone();
    run(&["mount", "--bind", &place.to_string(), &place.to_string()]);
    assert_eq!(table().stack_at(&place).len(), 2);
    if !has_beneath() {
        assert_eq!(lab.execute(lab.plan(vec![Action::DetachTop, Action::Unstage])).outcome, Outcome::Changed);
        assert_eq!(lab.top().unwrap().superblock, old);
        return lab.assert_unstaged();
    }
    // So is a swap that got no further than beneath.
    let tree = agent::sys::mount::clone_tree(&place).unwrap();
    agent::sys::mount::attach_beneath(&tree, &plan.mountpoint).unwrap();
    drop(tree);
    assert_eq!(lab.stack().len(), 2);
    let finish = vec![Action::DetachTop, verify(sentinel("data")), Action::Unstage];
    // By what was known when that plan began.
    let report = lab.execute(Plan { actions: finish.clone(), ..plan });
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    lab.assert_replaced(old, &report);
    // Nothing is done twice.
    let mut again = lab.plan(finish);
    again.old = Some(old);
    assert_eq!(lab.execute(again).outcome, Outcome::AlreadySo);
    assert!(source.join("file").symlink_metadata().is_ok());
    unmount(&lab.mountpoint);
}
