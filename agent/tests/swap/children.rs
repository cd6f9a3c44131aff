//! Children and helpers that fail, hang, or never go.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use agent::sys::mount;
use agent_core::id::VolumeId;
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Action, Outcome, Plan, Refusal};
use agent_core::volume::{Identity, Reach};
use nix::sys::signal::Signal;

use super::Test;
use super::lab::{
    Lab, bytes, has_beneath, run, run_in_place, stage_by_command, stage_by_mount, stage_tmpfs, start_bindfs,
    swap_after, text, unmount, wait_for,
};
use super::patience::patiently;

pub(crate) const TESTS: &[Test] = &[
    ("a_helper_that_fails_is_quoted_without_secrets", a_helper_that_fails_is_quoted_without_secrets),
    ("a_helper_that_hangs_is_killed_with_all_it_started", a_helper_that_hangs_is_killed),
    ("a_plan_that_is_given_up_leaves_no_helper_and_keeps_what_is_done", a_plan_that_is_given_up),
    ("a_plan_that_is_stopped_ends_its_look_for_consumers", a_plan_that_is_stopped_ends_its_look),
    ("a_helper_that_mounts_something_else_is_refused", a_helper_that_mounts_something_else_is_refused),
    ("a_helper_that_mounts_nothing_is_refused_in_time", a_helper_that_mounts_nothing_is_refused),
    ("a_child_that_dies_without_an_answer_is_reported", a_child_that_dies_is_reported),
    ("a_swap_whose_child_is_killed_is_finished_by_another", a_swap_whose_child_is_killed_is_finished),
    ("a_swap_that_hangs_between_its_halves_is_finished", a_swap_that_hangs_between_its_halves_is_finished),
    (
        "a_swap_that_none_can_finish_is_finished_by_the_undo",
        a_swap_that_none_can_finish_is_finished_by_the_undo,
    ),
    ("a_child_that_stays_after_its_answer_is_counted_and_holds_up_nothing", a_child_that_stays_is_counted),
    ("no_helper_is_started_beside_one_that_hangs", no_helper_is_started_beside_one_that_hangs),
    ("one_hanging_server_does_not_hold_up_another", one_hanging_server_does_not_hold_up_another),
];

fn a_helper_that_fails_is_quoted_without_secrets() {
    let lab = Lab::new("failing");
    let options = ["username=u", "password=Zx9", "pass=Zx9", "password2=Zx9", "cred=/run/c"];
    let report = lab.execute(lab.plan(vec![stage_by_mount("https://u:Zx9@dav.example/", "ext4", &options)]));
    assert_eq!(report.outcome, Outcome::HelperFailed(32), "{report:#?}");
    assert!(!format!("{report:?}").contains("Zx9"), "{report:#?}");
    assert!(report.steps[0].contains("mount: "), "{report:#?}");
    let echo = ["sh", "-c", "echo tried $1 >&2; exit 3", "x", "token=Zx9"];
    let report = lab.execute(lab.plan(vec![stage_by_command(&echo)]));
    assert_eq!(report.outcome, Outcome::HelperFailed(3), "{report:#?}");
    assert!(report.steps[0].contains("tried token=***"), "{report:#?}");
    assert!(!format!("{report:?}").contains("Zx9"), "{report:#?}");
    lab.assert_unstaged();
}

fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn a_helper_that_hangs_is_killed() {
    let lab = Lab::new("hung");
    let pids = lab.directory.join("pids");
    let script = "sleep 600 & echo $! $$ > $0; wait";
    let mut plan = lab.plan(vec![stage_by_command(&["sh", "-c", script, text(&pids)])]);
    plan.helper_timeout = Duration::from_millis(700);
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::TimedOut, "{report:#?}");
    // Far less than the helper would take; the machine may be slow.
    assert!(report.took < patiently(Duration::from_secs(10)), "{report:#?}");
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.split_whitespace().count(), 2);
    wait_for("the helper and its child are gone", || !pids.split_whitespace().any(is_alive));
    lab.assert_unstaged();
}

fn a_plan_that_is_given_up() {
    let lab = Lab::new("given-up");
    let (daemon, pids) = (lab.directory.join("daemon"), lab.directory.join("pids"));
    let serve = "mount -t tmpfs new \"$1\"; setsid sleep 600 & echo $! > $0";
    let hang = "sleep 600 & echo $! $$ > $0; wait";
    let plan = lab.plan(vec![
        stage_by_command(&["sh", "-c", serve, text(&daemon), "{target}"]),
        run_in_place(&["sh", "-c", hang, text(&pids)]),
    ]);
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    lab.give_up_when(plan, || read(&pids).ends_with('\n'));
    let pids = read(&pids);
    assert_eq!(pids.split_whitespace().count(), 2);
    wait_for("the helper and its child are gone", || !pids.split_whitespace().any(is_alive));
    let daemon = read(&daemon);
    assert!(is_alive(daemon.trim()), "the daemon of the finished step is gone");
    run(&["kill", daemon.trim()]);
}

/// Looking through all namespaces comes before the first action.
fn a_plan_that_is_stopped_ends_its_look() {
    let lab = Lab::new("looking");
    let pid = lab.directory.join("pid");
    let exe = script(&lab, &format!("cat > /dev/null; echo $$ > {}; exec sleep 600", text(&pid)));
    let lab = Lab::with_exe("looking", exe, None);
    lab.mount_tmpfs("first");
    let holding = Some(Holding::of(&lab.top().unwrap()));
    let follow = Action::SwapConsumers { holding, ids: None, reach: Reach::Unowned };
    let mut plan = lab.plan(vec![stage_by_command(&["true", "{target}"]), follow]);
    plan.undo.clear();
    let read = || std::fs::read_to_string(&pid).unwrap_or_default();
    let report = lab.stop_when(plan, || read().ends_with('\n'));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::TableChanged), "{report:#?}");
    assert!(report.took < Duration::from_secs(5), "the look had 10 s: {report:#?}");
    assert!(!is_alive(read().trim()), "{report:#?}");
    assert_eq!(report.steps.len(), 1, "{report:#?}");
    unmount(&lab.mountpoint);
}

fn a_helper_that_mounts_something_else_is_refused() {
    let lab = Lab::new("something-else");
    let check = |source: Option<&str>, fstype: Option<&str>| Action::CheckStaged {
        sentinel: None,
        identity: Identity::default(),
        source: source.map(|source| source.as_bytes().to_vec()),
        fstype: fstype.map(str::to_owned),
    };
    let outcome = |source, fstype, expected: &str| {
        let stage = stage_by_command(&["mount", "-t", "tmpfs", "http://u:Zx9@b/", "{target}"]);
        let report = lab.execute(lab.plan(vec![stage, check(source, fstype), Action::Unstage]));
        assert!(report.steps[1].contains(expected), "{report:#?}");
        assert!(!format!("{report:?}").contains("Zx9"), "{report:#?}");
        report.outcome
    };
    let other = Outcome::Refused(Refusal::OtherVolume);
    let text = "@b/ of type tmpfs instead of a of type tmpfs";
    assert_eq!(outcome(Some("a"), Some("tmpfs"), text), other);
    assert_eq!(outcome(None, Some("nfs4"), "of type tmpfs instead of any source of type nfs4"), other);
    assert_eq!(outcome(Some("http://u:Zx9@b/"), Some("tmpfs"), "answers"), Outcome::Changed);
    assert_eq!(outcome(None, None, "answers"), Outcome::Changed);
    lab.assert_unstaged();
}

fn a_helper_that_mounts_nothing_is_refused() {
    let lab = Lab::new("nothing");
    let place = format!("the helper ended with 0 and mounted nothing at /mnt/run/stage/{}", lab.name);
    for (timeout, took) in [(2, 0..=2), (30, 5..=8)] {
        let mut plan = lab.plan(vec![stage_by_command(&["true", "{target}"])]);
        plan.timeout = Duration::from_secs(timeout);
        let report = lab.execute(plan);
        assert_eq!(report.outcome, Outcome::Refused(Refusal::NotAMountPoint), "{report:#?}");
        assert!(report.steps[0].contains(&place), "{report:#?}");
        assert!(took.contains(&report.took.as_secs()), "{report:#?}");
        lab.assert_unstaged();
    }
}

/// A stand-in for the agent's binary.
fn script(lab: &Lab, content: &str) -> std::path::PathBuf {
    let path = lab.directory.join("stand-in");
    std::fs::write(&path, format!("#!/bin/sh\n{content}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn a_child_that_dies_is_reported() {
    let lab = Lab::new("dying");
    let exe = script(&lab, "cat > /dev/null; echo '{\"Progress\":\"look around\"}'; kill -9 $$");
    let lab = Lab::with_exe("dying", exe, None);
    let report = lab.execute(lab.plan(vec![Action::Unstage]));
    assert_eq!(report.outcome, Outcome::HelperFailed(-9), "{report:#?}");
    assert!(report.steps[0].contains("look around"), "{report:#?}");
}

/// Killed at its work: whatever it has done, a second one does the rest.
fn a_swap_whose_child_is_killed_is_finished() {
    let lab = Lab::new("killed");
    let own = std::env::current_exe().unwrap();
    let (request, killed) = (lab.directory.join("request"), lab.directory.join("was-killed"));
    let [own, request, killed] = [&own, &request, &killed].map(|path| text(path));
    let exe = script(
        &lab,
        &format!(
            "cat > {request}\nif grep -q '\"Swap\"' {request} && [ ! -e {killed} ]; then\n\
             : > {killed}; kill -9 $$\nfi\nexec {own} \"$@\" < {request}"
        ),
    );
    let lab = Lab::with_exe("killed", exe, None);
    let first = lab.mount_tmpfs("first");
    let report = lab.execute(lab.plan(swap_after(stage_tmpfs("second"), false, None)));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert!(std::fs::exists(killed).unwrap(), "{report:#?}");
    let stack = lab.stack();
    assert!(stack.len() == 1 && stack[0].superblock != first, "{stack:#?}");
    lab.assert_unstaged();
    unmount(&lab.mountpoint);
}

/// A stand-in for the agent's binary whose children hang at their swap, or are killed there once the test has done half
/// of it; `count` of them.
fn interrupted_swaps(lab: &Lab, count: u32, end: &str) -> std::path::PathBuf {
    let own = std::env::current_exe().unwrap();
    let begun = lab.directory.join("begun");
    let [own, begun, directory] = [&own, &begun, &lab.directory].map(|path| text(path));
    script(
        lab,
        &format!(
            "request=$(mktemp -p {directory}); cat > $request\n\
             if grep -q '\"Swap\"' $request && [ \"$(cat {begun} 2>/dev/null | wc -l)\" -lt {count} ]; then\n\
             echo x >> {begun}; {end}\nfi\nexec {own} \"$@\" < $request"
        ),
    )
}

/// Does the half of the swap that a child has done when it is cut off.
fn do_half(lab: &Lab, is_beneath: bool) {
    wait_for("the child swaps", || std::fs::exists(lab.directory.join("begun")).unwrap());
    let place = bytes(&lab.mountpoint);
    if is_beneath {
        let stage = BytePath::from(format!("/mnt/run/stage/{}", lab.name).as_str());
        mount::attach_beneath(&mount::clone_tree(&stage).unwrap(), &place).unwrap();
    } else {
        mount::detach(&place).unwrap();
    }
    std::fs::write(lab.directory.join("half-done"), "").unwrap();
}

/// Out of time: beneath the old mount lies the new one, or nothing is mounted at all.
fn a_swap_that_hangs_between_its_halves_is_finished() {
    for (name, is_beneath) in [("hangs-beneath", true), ("hangs-bare", false)] {
        if is_beneath && !has_beneath() {
            continue;
        }
        let lab = Lab::new(name);
        let exe = interrupted_swaps(&lab, 1, "exec sleep 600");
        let lab = Lab::with_exe(name, exe, None);
        let first = lab.mount_tmpfs("first");
        let mut plan = lab.plan(swap_after(stage_tmpfs("second"), false, None));
        // The child that hangs has no more than what every swap gets.
        plan.timeout = Duration::from_secs(4);
        let report = std::thread::scope(|scope| {
            scope.spawn(|| do_half(&Lab::new(name), is_beneath));
            lab.execute(plan)
        });
        lab.assert_replaced(first, &report);
        assert!(report.steps.iter().any(|step| step.contains("[timed_out]")), "{report:#?}");
        unmount(&lab.mountpoint);
    }
}

/// Every child of the swap is killed: the plan fails, and is put in order all the same.
fn a_swap_that_none_can_finish_is_finished_by_the_undo() {
    if !has_beneath() {
        return;
    }
    let lab = Lab::new("undone");
    let half = lab.directory.join("half-done");
    let end = format!("while [ ! -e {} ]; do :; done; kill -9 $$", text(&half));
    let lab = Lab::with_exe("undone", interrupted_swaps(&lab, 90, &end), None);
    let first = lab.mount_tmpfs("first");
    let plan = lab.plan(swap_after(stage_tmpfs("second"), false, None));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| do_half(&Lab::new("undone"), true));
        lab.execute(plan)
    });
    assert_eq!(report.outcome, Outcome::HelperFailed(-9), "{report:#?}");
    let stack = lab.stack();
    assert!(stack.len() == 1 && stack[0].superblock != first, "{stack:#?} {report:#?}");
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "second\n");
    lab.assert_unstaged();
    unmount(&lab.mountpoint);
}

fn a_child_that_stays_is_counted() {
    let lab = Lab::new("staying");
    let done = r#"{"Done":{"outcome":"Changed","text":"done","gap":null,"gone_at":null,"shown_at":null,"number_proves_nothing":false}}"#;
    // Stays for a while, as one does whose last reference to a sick file system is slow to go.
    let exe = script(&lab, &format!("cat > /dev/null; echo '{done}'; exec sleep 4"));
    let lab = Lab::with_exe("staying", exe, None);
    let report = lab.execute(lab.plan(vec![Action::Unstage]));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert!(report.took < Duration::from_secs(1), "{report:#?}");
    let counts = |count| {
        lab.idle(Duration::from_millis(20));
        lab.executor.stuck() == count
    };
    wait_for("it is counted", || counts(1));
    wait_for("it is gone", || counts(0));
}

/// A daemon that has taken a request and cannot answer it keeps the caller out of reach of signals: here because it
/// asks another daemon, which is stopped.
fn no_helper_is_started_beside_one_that_hangs() {
    let lab = Lab::new("beside");
    let (source, first, second) = (lab.directory("source"), lab.directory("first"), lab.directory("second"));
    std::fs::write(source.join("file"), "data").unwrap();
    let below = start_bindfs(&source, &first);
    let above = start_bindfs(&first, &second);
    below.signal(Signal::SIGSTOP);
    let started = lab.directory.join("started");
    let script = "echo x >> $0; cat $1/file";
    let mut plan = lab.plan(vec![stage_by_command(&["sh", "-c", script, text(&started), text(&second)])]);
    plan.helper_timeout = Duration::from_millis(700);
    plan.server = Some(b"filer".to_vec());
    let report = lab.execute(plan.clone());
    assert_eq!(report.outcome, Outcome::TimedOut, "{report:#?}");
    assert_eq!(lab.executor.stuck(), 1, "{report:#?}");
    let report = lab.execute(plan.clone());
    assert_eq!(report.outcome, Outcome::Refused(Refusal::HelperStuck), "{report:#?}");
    assert_eq!(std::fs::read_to_string(&started).unwrap(), "x\n", "it was started again");
    // Nor for another volume of the same server, in whichever way.
    let of_server =
        |name, action| Plan { volume: VolumeId::new(name), actions: vec![action], ..plan.clone() };
    for action in [
        stage_by_command(&["mount", "-t", "tmpfs", "x", "{target}"]),
        Action::RunInPlace { argv: vec!["/bin/true".to_owned()], environment_file: None },
        Action::RestartUnit { unit: "x.service".to_owned(), daemon: None },
    ] {
        let beside = lab.execute(of_server("two", action));
        assert_eq!(beside.outcome, Outcome::Refused(Refusal::HelperStuck), "{beside:#?}");
        assert!(beside.took < plan.timeout / 2, "{beside:#?}");
    }
    plan.helper_timeout = plan.timeout;
    plan.actions = vec![stage_by_command(&["mount", "-t", "tmpfs", "x", "{target}"]), Action::Unstage];
    // One of another server is not held up.
    let other = Plan { volume: VolumeId::new("another"), server: None, ..plan.clone() };
    assert_eq!(lab.execute(other).outcome, Outcome::Changed);
    below.signal(Signal::SIGCONT);
    wait_for("nothing is stuck", || {
        lab.idle(Duration::from_millis(20));
        lab.executor.stuck() == 0
    });
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    drop((above, below));
    run(&["umount", "-l", text(&second), text(&first)]);
}

fn one_hanging_server_does_not_hold_up_another() {
    let lab = Lab::new("servers");
    let stage = |source: &str, argv: &[&str]| {
        let mut stage = stage_by_command(argv);
        let Action::Stage { source: named, .. } = &mut stage else { panic!() };
        *named = source.as_bytes().to_vec();
        vec![stage, Action::Unstage]
    };
    let mut dead = lab.plan(stage("192.0.2.66:/gone", &["sleep", "600"]));
    dead.timeout = Duration::from_secs(5);
    let mut waiting = lab.plan(stage("192.0.2.66:/other", &["mount", "-t", "tmpfs", "x", "{target}"]));
    waiting.stage = "/mnt/run/stage/servers-waiting".into();
    waiting.volume = VolumeId::new("servers-waiting");
    let mut good = lab.plan(stage("192.0.2.1:/good", &["mount", "-t", "tmpfs", "x", "{target}"]));
    good.stage = "/mnt/run/stage/servers-good".into();
    good.volume = VolumeId::new("servers-good");
    let (dead, waiting, good) = lab.execute_together([dead, waiting, good]);
    assert_eq!(dead.outcome, Outcome::TimedOut, "{dead:#?}");
    assert_eq!(good.outcome, Outcome::Changed, "{good:#?}");
    assert!(good.took < dead.took, "{good:#?} {dead:#?}");
    assert_eq!(waiting.outcome, Outcome::Changed, "{waiting:#?}");
    assert!(waiting.took >= Duration::from_millis(4900), "{waiting:#?}");
}
