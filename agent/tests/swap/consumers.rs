//! Containers that hold a volume when it is repaired: they follow, each at its own places.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::id::VolumeId;
use agent_core::observation::PlanReport;
use agent_core::remediation::consumers::{Holding, guard_source, is_guard};
use agent_core::remediation::{Action, Outcome, Plan, Refusal};
use agent_core::topology::{Mount, Propagation};
use agent_core::verdict::Reason;
use agent_core::volume::Reach;

use super::Test;
use super::block::Device;
use super::container::{Container, Hammer, assert_bare, mark};
use super::fuse::{assert_is_dead, sentinel};
use super::lab::{
    Alone, Lab, Namespace, Process, assert_gap, bytes, has_beneath, is_linux, run, stage_by_mount,
    stage_tmpfs, start_bindfs, swap_after, table, text, unmount, verify, wait_for,
};
use super::patience::patiently;

pub(crate) const TESTS: &[Test] = &[
    ("a_container_follows_when_a_killed_daemon_is_replaced", a_container_follows_a_killed_daemon),
    ("a_container_follows_when_a_device_is_mounted_afresh", a_container_follows_a_device),
    ("what_fails_its_check_is_shown_to_no_container", what_fails_its_check_is_shown_to_nobody),
    ("a_container_that_uses_a_device_keeps_all_of_it", a_container_that_uses_a_device_keeps_it),
    ("consumers_alone_follow_a_host_that_was_repaired_by_hand", consumers_alone_follow),
    ("a_directory_that_is_gone_is_left_and_named", a_directory_that_is_gone_is_left),
    ("what_propagation_brought_is_not_doubled", what_propagation_brought_is_not_doubled),
    ("what_only_calls_itself_a_guard_gets_nothing", what_only_calls_itself_a_guard_gets_nothing),
    ("what_has_the_number_of_the_old_one_by_now_stays", what_has_the_number_by_now_stays),
    ("a_copy_of_the_host_at_the_same_path_follows", a_copy_of_the_host_follows),
    ("what_the_kernel_locks_is_left_as_it_was_and_named", what_is_locked_is_left),
    ("guards_of_a_plan_that_was_cut_off_are_replaced", guards_of_a_plan_that_was_cut_off_are_replaced),
    ("what_lies_inside_another_is_not_lost_with_it", what_lies_inside_another_is_not_lost),
    ("many_namespaces_are_looked_through_in_time", many_namespaces_are_looked_through),
    ("binds_on_the_host_follow_and_strangers_stay", binds_on_the_host_follow),
    ("no_program_meets_the_bare_directory_in_200_swaps_of_a_container", no_program_meets_the_bare_directory),
    ("no_program_meets_the_bare_directory_of_a_device", no_program_meets_the_bare_directory_of_a_device),
];

fn holding(lab: &Lab) -> Holding {
    Holding::of(&lab.top().unwrap())
}

fn follow(holding: Holding) -> Action {
    Action::SwapConsumers { holding: Some(holding), ids: None, reach: Reach::Unowned }
}

/// The usual plan with its consumers.
fn plan(lab: &Lab, stage: Action, sentinel_content: Option<&str>) -> Plan {
    let mut actions = swap_after(stage, false, sentinel_content.and_then(sentinel));
    actions.insert(4, follow(holding(lab)));
    lab.plan(actions)
}

pub(crate) fn device_plan(lab: &Lab, device: &Device) -> Plan {
    let (holding, reach) = (holding(lab), Reach::Unowned);
    let mut actions = device.plan_actions();
    actions.insert(0, Action::CoverConsumers { holding: holding.clone(), reach });
    actions.insert(6, follow(holding));
    let mut plan = lab.plan(actions);
    plan.undo = vec![Action::SwapConsumers { holding: None, ids: None, reach }, Action::Unstage];
    plan.reason = Some(Reason::Readonly);
    plan
}

fn source(lab: &Lab) -> PathBuf {
    let source = lab.directory("source");
    std::fs::create_dir_all(source.join("inner")).unwrap();
    std::fs::write(source.join("file"), "data\n").unwrap();
    std::fs::write(source.join("inner/file"), "inner\n").unwrap();
    source
}

fn assert_good(report: &PlanReport) {
    assert!(report.outcome.is_success(), "{report:#?}");
}

fn a_container_follows_a_killed_daemon() {
    let _alone = Alone::begin();
    let lab = Lab::new("container-fuse");
    let source = source(&lab);
    let mut daemon = start_bindfs(&source, &lab.mountpoint);
    let container = Container::new(&lab);
    let before = container.stacks(&lab);
    daemon.kill();
    assert_is_dead(&lab.mountpoint);
    let stage = stage_by_mount(text(&source), "fuse.bindfs", &["no-allow-other"]);
    let report = lab.execute(plan(&lab, stage, Some("data")));
    assert_good(&report);
    assert_gap(&report);
    container.assert_follows(&lab, &before);
    std::fs::write(source.join("file"), "fresh\n").unwrap();
    for place in [&container.data, &container.readonly] {
        assert_eq!(container.namespace.run(&["cat", text(&place.join("file"))]), "fresh");
    }
    assert_eq!(container.namespace.run(&["cat", text(&container.inner.join("file"))]), "inner");
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "fresh\n");
    assert!(container.stacks(&lab)[2][0].options.has("ro"));
    assert_eq!(report.left_behind.len(), 4, "{report:#?}");
    lab.assert_unstaged();
    println!("{:?}, {:#?}", report.took, report.steps);
    unmount(&lab.mountpoint);
}

fn device_with_container(lab: &Lab, device: &Device) -> Container {
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    std::fs::create_dir(lab.mountpoint.join("inner")).unwrap();
    std::fs::write(lab.mountpoint.join("file"), "data\n").unwrap();
    std::fs::write(lab.mountpoint.join("inner/file"), "inner\n").unwrap();
    run(&["sync", "-f", text(&lab.mountpoint)]);
    Container::new(lab)
}

pub(crate) fn break_it(lab: &Lab, device: &Device) {
    device.break_file_system(&lab.mountpoint);
    wait_for("writes are refused", || std::fs::write(lab.mountpoint.join("probe"), "x").is_err());
}

fn a_container_follows_a_device() {
    let _alone = Alone::begin();
    follows_a_device("container-ext4", "ext4");
    follows_a_device("container-xfs", "xfs");
    follows_a_device("container-btrfs", "btrfs");
}

fn follows_a_device(name: &'static str, fstype: &'static str) {
    let lab = Lab::new(name);
    let device = Device::of(&lab, "image", fstype);
    let container = device_with_container(&lab, &device);
    let before = container.stacks(&lab);
    if fstype != "btrfs" {
        break_it(&lab, &device);
    }
    let report = lab.execute(device_plan(&lab, &device));
    assert_good(&report);
    container.assert_follows(&lab, &before);
    assert_eq!(container.namespace.run(&["cat", text(&container.inner.join("file"))]), "inner");
    container.namespace.run(&["touch", text(&container.data.join("writable"))]);
    assert!(lab.mountpoint.join("writable").symlink_metadata().is_ok());
    println!("{:?}, gap {:?}, {:#?}", report.took, report.gap, report.steps);
    assert!(report.gap.is_some_and(|gap| !gap.is_zero() && gap < report.took), "{report:#?}");
    lab.assert_unstaged();
}

fn a_container_that_uses_a_device_keeps_it() {
    let _alone = Alone::begin();
    let lab = Lab::new("container-busy");
    let device = Device::new(&lab, "image");
    let container = device_with_container(&lab, &device);
    let before = container.stacks(&lab);
    let file = container.inner.join("file");
    let argv = container.namespace.command(&["sh", "-c", "exec sleep 600 < $0", text(&file)]);
    let holder = Process::start(&argv.iter().map(String::as_str).collect::<Vec<_>>());
    let open = format!("/proc/{}/fd/0", holder.id());
    wait_for("the file is open", || std::fs::read_link(&open).is_ok_and(|path| path.ends_with("file")));
    break_it(&lab, &device);
    let report = lab.execute(device_plan(&lab, &device));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::Busy), "{report:#?}");
    // What had gone already is back, as it was.
    container.assert_follows(&lab, &before);
    drop(holder);
    let report = lab.execute(device_plan(&lab, &device));
    assert_good(&report);
    container.assert_follows(&lab, &before);
    container.namespace.run(&["touch", text(&container.data.join("writable"))]);
}

/// The device has come back as another one.
fn what_fails_its_check_is_shown_to_nobody() {
    let _alone = Alone::begin();
    let lab = Lab::new("container-other");
    let device = Device::new(&lab, "image");
    let container = device_with_container(&lab, &device);
    break_it(&lab, &device);
    let mut plan = device_plan(&lab, &device);
    for action in &mut plan.actions {
        if let Action::CheckStaged { identity, .. } = action {
            identity.uuid = Some("00000000-0000-4000-8000-000000000000".to_owned());
        }
    }
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Refused(Refusal::OtherVolume), "{report:#?}");
    for place in [&container.data, &container.readonly, &container.inner] {
        let stack = container.namespace.stack_at(place);
        assert!(stack.len() == 1 && is_guard(&stack[0]), "{stack:#?} {report:#?}");
    }
    lab.assert_unstaged();
}

fn consumers_alone_follow() {
    let lab = Lab::new("container-alone");
    let source = source(&lab);
    let mut daemon = start_bindfs(&source, &lab.mountpoint);
    let container = Container::new(&lab);
    let before = container.stacks(&lab);
    let (old, holding) = (lab.top().unwrap().superblock, holding(&lab));
    daemon.kill();
    run(&["umount", "--lazy", text(&lab.mountpoint)]);
    let _daemon = start_bindfs(&source, &lab.mountpoint);
    run(&["mount", "--make-shared", text(&lab.mountpoint)]);
    let ids = before.iter().flatten().map(|mount| mount.id).collect();
    let follow = Action::SwapConsumers { holding: Some(holding), ids: Some(ids), reach: Reach::Unowned };
    let mut plan = lab.plan(vec![follow, Action::Unstage]);
    plan.old = Some(old);
    plan.reason = Some(Reason::ConsumerStale);
    let report = lab.execute(plan.clone());
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    container.assert_follows(&lab, &before);
    // What is mounted in a container must not appear on the host.
    let alone = |stack: &Vec<Mount>| stack.iter().all(|mount| mount.propagation == Propagation::default());
    assert!(container.stacks(&lab).iter().all(alone), "{:#?}", container.stacks(&lab));
    assert_eq!(lab.execute(plan).outcome, Outcome::AlreadySo);
    run(&["umount", "--lazy", text(&lab.mountpoint)]);
}

fn a_directory_that_is_gone_is_left() {
    let lab = Lab::new("container-gone");
    let source = source(&lab);
    let mut daemon = start_bindfs(&source, &lab.mountpoint);
    let container = Container::new(&lab);
    let before = container.stacks(&lab);
    daemon.kill();
    std::fs::rename(source.join("inner"), source.join("elsewhere")).unwrap();
    std::fs::write(source.join("inner"), "a file").unwrap();
    let stage = stage_by_mount(text(&source), "fuse.bindfs", &["no-allow-other"]);
    let report = lab.execute(plan(&lab, stage, None));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::ConsumersLeft), "{report:#?}");
    let place = container.inner.display().to_string();
    assert!(report.steps.iter().any(|step| step.contains(&format!("left {place}"))), "{report:#?}");
    let after = container.stacks(&lab);
    assert_eq!(after[3], before[3], "nothing else is in its place");
    let superblock = lab.top().unwrap().superblock;
    assert!(after[..3].iter().all(|stack| stack.len() == 1 && stack[0].superblock == superblock));
    std::fs::remove_file(source.join("inner")).unwrap();
    lab.assert_unstaged();
    unmount(&lab.mountpoint);
}

fn what_propagation_brought_is_not_doubled() {
    let lab = Lab::new("container-slave");
    run(&["mount", "--bind", text(&lab.directory), text(&lab.directory)]);
    run(&["mount", "--make-shared", text(&lab.directory)]);
    lab.mount_tmpfs("first");
    let other = lab.directory("other");
    run(&["mount", "--bind", text(&lab.mountpoint), text(&other)]);
    let slave = Namespace::new("slave");
    let peer = Namespace::new("unchanged");
    let report = lab.execute(plan(&lab, stage_tmpfs("second"), None));
    assert_good(&report);
    let superblock = lab.top().unwrap().superblock;
    for namespace in [&slave, &peer] {
        for place in [&lab.mountpoint, &other] {
            let stack = namespace.stack_at(place);
            assert!(stack.len() == 1 && stack[0].superblock == superblock, "{stack:#?} {report:#?}");
        }
    }
    let stack = table().stack_at(&bytes(&other)).len();
    assert_eq!(stack, 1, "{report:#?}");
}

/// The number of a superblock is free when its last mount is gone, and the next one of any kind gets it: also one with the
/// same type and source, which is another file system all the same.
fn what_has_the_number_by_now_stays() {
    let lab = Lab::new("container-number");
    lab.mount_tmpfs("first");
    let mut plan = lab.plan(vec![follow(holding(&lab)), Action::Unstage]);
    let other = lab.directory("other");
    let source = String::from_utf8(holding(&lab).source).unwrap();
    unmount(&lab.mountpoint);
    run(&["mount", "-t", "tmpfs", &source, text(&other)]);
    lab.mount_tmpfs("second");
    let there = || {
        let table = table();
        table.top_at(&bytes(&other)).map(|mount| (mount.id, mount.superblock)).unwrap()
    };
    let before = there();
    // As if the volume had been this one until the plan began, which it was not.
    plan.old = Some(before.1);
    let report = lab.execute(plan);
    assert_eq!(there(), before, "{report:#?}");
    assert_eq!(report.outcome, Outcome::AlreadySo);
    unmount(&other);
}

/// As a service has one that systemd gave mounts of its own: it has the volume nowhere but where the host has it.
fn a_copy_of_the_host_follows() {
    let lab = Lab::new("container-copy");
    lab.mount_tmpfs("first");
    let copy = Namespace::new("private");
    let report = lab.execute(plan(&lab, stage_tree(7), None));
    assert_good(&report);
    let stack = copy.stack_at(&lab.mountpoint);
    assert_eq!(stack.len(), 1, "{report:#?}");
    assert_eq!(stack[0].superblock, lab.top().unwrap().superblock, "{report:#?}");
    assert_eq!(copy.run(&["cat", text(&lab.mountpoint.join("file"))]), "7");
}

/// In a namespace of another user namespace, as rootless containers have one, nothing that it began with can be taken
/// away. A new mount beneath it would be one more with each attempt.
fn what_is_locked_is_left() {
    let lab = Lab::new("container-locked");
    lab.mount_tmpfs("first");
    let user = Namespace::of_a_user(&lab, "true");
    let before = user.stack_at(&lab.mountpoint);
    assert_eq!(before.len(), 1);
    let old = holding(&lab);
    for turn in 0..2 {
        let mut plan = match turn {
            0 => plan(&lab, stage_tree(7), None),
            _ => {
                let (holding, ids) = (Some(old.clone()), Some([before[0].id].into()));
                lab.plan(vec![Action::SwapConsumers { holding, ids, reach: Reach::Unowned }])
            }
        };
        plan.old = Some(before[0].superblock);
        let report = lab.execute(plan);
        assert_eq!(report.outcome, Outcome::Refused(Refusal::ConsumersLeft), "{report:#?}");
        let told = format!("{report:#?}");
        assert!(told.contains("belongs to another user namespace"), "{told}");
        assert_eq!(user.stack_at(&lab.mountpoint), before, "{told}");
    }
    assert_ne!(lab.top().unwrap().superblock, before[0].superblock, "the host has the new one");
}

fn what_only_calls_itself_a_guard_gets_nothing() {
    let lab = Lab::new("container-forged");
    let [forged, guard] = ["forged", "guard"].map(|name| lab.directory(name));
    let source = String::from_utf8(guard_source(&VolumeId::new(lab.name), &"inner".into())).unwrap();
    let mount = |place: &Path| format!("mount -t tmpfs -o mode=0555 {source} {}", text(place));
    let user = Namespace::of_a_user(&lab, &mount(&forged));
    lab.mount_tmpfs("first");
    let container = Namespace::new("private");
    container.run(&["sh", "-c", &mount(&guard)]);
    let before = user.stack_at(&forged);
    assert_eq!(before.len(), 1);
    let report = lab.execute(plan(&lab, stage_tree(7), None));
    assert_good(&report);
    assert_eq!(user.stack_at(&forged), before, "{report:#?}");
    assert_eq!(container.run(&["cat", text(&guard.join("file"))]), "7", "{report:#?}");
}

/// The agent died when the guards were in place. A person has mounted the device again, which has its number again.
fn guards_of_a_plan_that_was_cut_off_are_replaced() {
    let _alone = Alone::begin();
    let lab = Lab::new("container-cut");
    let device = Device::new(&lab, "image");
    let container = device_with_container(&lab, &device);
    let before = container.stacks(&lab);
    let old = lab.top().unwrap().superblock;
    let mut plan = device_plan(&lab, &device);
    plan.actions.truncate(1);
    plan.undo.clear();
    assert_good(&lab.execute(plan));
    let guards = || container.stacks(&lab).into_iter().flatten().filter(is_guard).count();
    assert_eq!(guards(), before.len());
    unmount(&lab.mountpoint);
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    assert_eq!(lab.top().unwrap().superblock, old);
    let follow = Action::SwapConsumers { holding: None, ids: None, reach: Reach::Unowned };
    let mut plan = lab.plan(vec![verify(None), follow, Action::Unstage]);
    (plan.old, plan.marks, plan.undo) = (None, None, vec![Action::Unstage]);
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    assert_eq!(guards(), 0, "{report:#?}");
    container.assert_follows(&lab, &before);
    lab.assert_unstaged();
}

fn what_lies_inside_another_is_not_lost() {
    let lab = Lab::new("container-inside");
    lab.mount_tmpfs("first");
    for name in ["volume/inner", "volume/x"] {
        lab.directory(name);
    }
    let outer = lab.directory("outer");
    let inside = outer.join("x");
    run(&["mount", "--bind", text(&lab.mountpoint), text(&outer)]);
    run(&["mount", "--bind", text(&lab.mountpoint.join("inner")), text(&inside)]);
    let at = |path: &Path| table().top_at(&bytes(path)).cloned();
    let (before, old) = ([at(&outer), at(&inside)], holding(&lab));
    let superblock = lab.top().unwrap().superblock;
    // The new one has the directory that is shown, and not the one on which it is shown.
    let report = lab.execute(plan(&lab, stage_tree(7), None));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::ConsumersLeft), "{report:#?}");
    assert_eq!([at(&outer), at(&inside)], before, "{report:#?}");
    lab.directory("volume/x");
    let ids = before.iter().flatten().map(|mount| mount.id).collect();
    let follow = Action::SwapConsumers { holding: Some(old), ids: Some(ids), reach: Reach::Unowned };
    let mut plan = lab.plan(vec![follow, Action::Unstage]);
    (plan.old, plan.marks) = (Some(superblock), None);
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    let new = lab.top().unwrap().superblock;
    for (path, root) in [(&outer, "/"), (&inside, "/inner")] {
        let stack: Vec<_> = table().stack_at(&bytes(path)).into_iter().cloned().collect();
        assert!(stack.len() == 1 && stack[0].superblock == new, "{stack:#?} {report:#?}");
        assert_eq!(stack[0].root, root.into());
    }
    unmount(&inside);
    unmount(&outer);
}

/// What a plan costs before its first action.
fn many_namespaces_are_looked_through() {
    let _alone = Alone::begin();
    let lab = Lab::new("container-many");
    lab.mount_tmpfs("first");
    let mut took = Vec::new();
    let mut namespaces = Vec::new();
    for count in [1, 50] {
        namespaces.resize_with(count, || Namespace::new("private"));
        let look = Action::SwapConsumers { holding: Some(holding(&lab)), ids: None, reach: Reach::Unowned };
        // It shows the old one still, so that the plan ends before it does anything.
        let mut plan = lab.plan(vec![verify(None), look]);
        plan.undo.clear();
        let with = lab.execute(plan.clone());
        plan.actions.pop();
        let without = lab.execute(plan);
        assert_eq!(with.consumers.len(), count, "{with:#?}");
        took.push((count, with.took.saturating_sub(without.took)));
        assert!(with.took < patiently(Duration::from_secs(5)), "{with:#?}");
    }
    println!("{took:?}");
}

fn binds_on_the_host_follow() {
    let lab = Lab::new("container-host");
    lab.mount_tmpfs("first");
    let (bind, single, kubelets) =
        (lab.directory("bind"), lab.directory.join("single"), lab.directory("kubelet/pods/1/volumes/v"));
    std::fs::write(&single, "").unwrap();
    run(&["mount", "--bind", text(&lab.mountpoint), text(&bind)]);
    run(&["mount", "--bind", text(&lab.mountpoint), text(&bind)]);
    run(&["mount", "--bind", text(&lab.mountpoint.join("file")), text(&single)]);
    run(&["mount", "--bind", text(&lab.mountpoint), text(&kubelets)]);
    let stranger = lab.directory("stranger");
    run(&["mount", "-t", "tmpfs", "other", text(&stranger)]);
    let at = |path: &Path| -> Vec<_> { table().stack_at(&bytes(path)).into_iter().cloned().collect() };
    let (old, before) = (at(&kubelets), at(&stranger));
    let (superblock, holding) = (lab.top().unwrap().superblock, holding(&lab));
    let ids = Some([old[0].id].into());
    let report = lab.execute(plan(&lab, stage_tmpfs("second"), None));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::ConsumersLeft), "{report:#?}");
    assert_eq!((at(&kubelets), at(&stranger)), (old, before));
    assert_eq!(at(&bind).len(), 1, "{report:#?}");
    assert_eq!(std::fs::read_to_string(bind.join("file")).unwrap(), "second\n");
    // Before 5.12 a read-only file could be written to for a moment: it is left, and named.
    let follows = std::fs::read_to_string(&single).unwrap() == "second\n";
    let is_named = report.steps.iter().any(|step| step.contains("the options of a single file's mount"));
    assert_eq!((follows, is_named), (is_linux((5, 12)), !is_linux((5, 12))), "{report:#?}");
    // Said to be touched, what the kubelet made follows too.
    let follow = Action::SwapConsumers { holding: Some(holding), ids, reach: Reach::All };
    let mut plan = lab.plan(vec![follow, Action::Unstage]);
    plan.old = Some(superblock);
    assert_eq!(lab.execute(plan).outcome, Outcome::Changed);
    assert_eq!(std::fs::read_to_string(kubelets.join("file")).unwrap(), "second\n");
}

fn stage_tree(content: u32) -> Action {
    let script = format!(
        "mount -t tmpfs new \"$0\" && mkdir $0/inner && echo {content} > $0/inner/file && echo {content} > $0/file"
    );
    super::lab::stage_by_command(&["sh", "-c", &script, "{target}"])
}

fn no_program_meets_the_bare_directory() {
    let lab = Lab::new("container-200");
    let marked = mark(&lab);
    lab.mount_tmpfs("first");
    std::fs::create_dir(lab.mountpoint.join("inner")).unwrap();
    std::fs::write(lab.mountpoint.join("inner/file"), "first").unwrap();
    let container = Container::new(&lab);
    let before = container.stacks(&lab);
    let there = Some(&container.namespace);
    let hammers = [
        Hammer::start(&lab, None, &lab.mountpoint, "write"),
        Hammer::start(&lab, there, &container.data, "write"),
        Hammer::start(&lab, there, &container.inner, "write"),
        Hammer::start(&lab, there, &container.readonly, "readonly"),
    ];
    for round in 0..200 {
        let report = lab.execute(plan(&lab, stage_tree(round), None));
        assert_good(&report);
        assert_gap(&report);
        container.assert_follows(&lab, &before);
    }
    for (hammer, what) in hammers.into_iter().zip(["host", "data", "inner", "readonly"]) {
        let (good, bad) = hammer.stop();
        println!("{what}: {good} rounds in 200 swaps, {bad} of them bad");
        assert!(good > 1_000, "{what}: only {good}");
        assert!(bad == 0 || !has_beneath(), "{what}: {bad} of {good}");
    }
    if has_beneath() {
        assert_bare(&marked);
    }
}

fn no_program_meets_the_bare_directory_of_a_device() {
    let _alone = Alone::begin();
    let lab = Lab::new("container-device");
    let marked = mark(&lab);
    let device = Device::new(&lab, "image");
    let container = device_with_container(&lab, &device);
    let before = container.stacks(&lab);
    let mut done = 0;
    for _ in 0..10 {
        // Stopped while the old one goes: what is in use does not go.
        break_it(&lab, &device);
        let mut plan = device_plan(&lab, &device);
        let rest = plan.actions.split_off(2);
        plan.undo.clear();
        assert_good(&lab.execute(plan.clone()));
        let there = Some(&container.namespace);
        let hammers = [
            Hammer::start(&lab, None, &lab.mountpoint, "guarded"),
            Hammer::start(&lab, there, &container.data, "guarded"),
        ];
        plan.actions = rest;
        plan.old = None;
        let report = lab.execute(plan);
        assert_good(&report);
        container.assert_follows(&lab, &before);
        for hammer in hammers {
            let (good, bad) = hammer.stop();
            assert!(good > 0 && (bad == 0 || !has_beneath()), "{good} {bad} {report:#?}");
            done += good;
        }
    }
    println!("{done} rounds");
    if has_beneath() {
        assert_bare(&marked);
    }
}
