//! Swaps where mounts travel between namespaces.

use std::path::Path;
use std::time::Duration;

use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Action, Outcome};
use agent_core::topology::Propagation;
use agent_core::volume::Reach;

use super::Test;
use super::lab::{
    Alone, Lab, Namespace, assert_gap, bytes, is_linux, run, stage_tmpfs, swap_after, table, text,
};
use super::patience::patiently;

pub(crate) const TESTS: &[Test] = &[
    ("under_a_shared_parent_every_namespace_stays_one_deep", under_a_shared_parent),
    ("a_shared_mount_under_a_private_parent_stays_shared", a_shared_mount_stays_shared),
    ("the_volumes_own_propagation_is_kept", the_volumes_own_propagation_is_kept),
    ("consumers_pass_events_on_as_before", consumers_pass_events_on_as_before),
    ("where_beneath_is_refused_the_gap_is_measured", where_beneath_is_refused),
    ("plans_act_in_the_namespace_they_are_given", plans_act_in_the_namespace_they_are_given),
];

fn under_a_shared_parent() {
    let lab = Lab::new("shared");
    run(&["mount", "--bind", text(&lab.directory), text(&lab.directory)]);
    run(&["mount", "--make-shared", text(&lab.directory)]);
    let mut old = lab.mount_tmpfs("first");
    let slave = Namespace::new("slave");
    let private = Namespace::new("private");
    let shown = || vec![lab.top().unwrap().superblock.to_string()];
    assert_eq!(slave.superblocks_at(&lab.mountpoint), shown());
    let first = shown();
    for content in ["second", "third"] {
        let report = lab.execute(lab.plan(swap_after(stage_tmpfs(content), false, None)));
        lab.assert_replaced(old, &report);
        assert_gap(&report);
        assert_eq!(slave.superblocks_at(&lab.mountpoint), shown(), "{report:#?}");
        assert!(lab.top().unwrap().propagation.shared.is_some());
        old = lab.top().unwrap().superblock;
    }
    // Cut off by its own choice: keeps the old one until it is swapped there.
    assert_eq!(private.superblocks_at(&lab.mountpoint), first);
    // What is made at the private places goes nowhere.
    let place = std::path::Path::new("/mnt/run/stage").join(lab.name);
    let report = lab.execute(lab.plan(vec![stage_tmpfs("staged")]));
    assert!(report.outcome.is_success());
    assert!(slave.superblocks_at(&place).is_empty());
    lab.execute(lab.plan(vec![Action::Unstage]));
    lab.assert_unstaged();
}

fn a_shared_mount_stays_shared() {
    let lab = Lab::new("peer");
    let old = lab.mount_tmpfs("first");
    run(&["mount", "--make-shared", text(&lab.mountpoint)]);
    let report = lab.execute(lab.plan(swap_after(stage_tmpfs("second"), false, None)));
    lab.assert_replaced(old, &report);
    assert!(lab.top().unwrap().propagation.shared.is_some(), "{:?}", lab.top());
}

/// Under a shared parent whatever is mounted becomes shared.
fn the_volumes_own_propagation_is_kept() {
    let lab = Lab::new("own-kin");
    run(&["mount", "--bind", text(&lab.directory), text(&lab.directory)]);
    run(&["mount", "--make-shared", text(&lab.directory)]);
    lab.mount_tmpfs("first");
    for how in ["--make-private", "--make-unbindable", "--make-shared"] {
        run(&["mount", how, text(&lab.mountpoint)]);
        let old = lab.top().unwrap();
        let report = lab.execute(lab.plan(swap_after(stage_tmpfs(how), false, None)));
        lab.assert_replaced(old.superblock, &report);
        let Propagation { shared, master, unbindable } = lab.top().unwrap().propagation;
        let before = (old.propagation.shared.is_some(), old.propagation.unbindable);
        assert_eq!((shared.is_some(), unbindable), before, "{how} {report:#?}");
        assert_eq!(master, None);
    }
}

fn consumers_pass_events_on_as_before() {
    // Before, a detached tree has no propagation that could be set.
    if !is_linux((5, 12)) {
        return;
    }
    let _alone = Alone::begin();
    let lab = Lab::new("kin");
    lab.mount_tmpfs("first");
    run(&["mount", "--make-shared", text(&lab.mountpoint)]);
    let slave = Namespace::new("slave");
    let parent = lab.directory("parent");
    run(&["mount", "--bind", text(&parent), text(&parent)]);
    run(&["mount", "--make-shared", text(&parent)]);
    let places = ["peer", "private", "group", "parent/private", "stranger"].map(|name| lab.directory(name));
    let other = lab.directory("other");
    run(&["mount", "--bind", text(&lab.mountpoint), text(&other)]);
    run(&["mount", "--make-private", text(&other)]);
    run(&["mount", "--make-shared", text(&other)]);
    for (place, from) in places.iter().zip([&lab.mountpoint; 4].into_iter().chain([&other])) {
        run(&["mount", "--bind", text(from), text(place)]);
    }
    for place in [&places[1], &places[2], &places[3]] {
        run(&["mount", "--make-private", text(place)]);
    }
    run(&["mount", "--make-shared", text(&places[2])]);
    run(&["mount", "--make-slave", text(&places[4])]);
    let follow = Action::SwapConsumers {
        holding: Some(Holding::of(&lab.top().unwrap())),
        ids: None,
        reach: Reach::Unowned,
    };
    let mut actions = swap_after(stage_tmpfs("second"), false, None);
    actions.insert(4, follow);
    let report = lab.execute(lab.plan(actions));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    let own = lab.top().unwrap();
    let group = own.propagation.shared;
    assert!(group.is_some());
    let now = places.clone().map(|place| table().top_at(&bytes(&place)).cloned().unwrap());
    assert!(now.iter().all(|mount| mount.superblock == own.superblock), "{now:#?} {report:#?}");
    let now = now.map(|mount| (mount.propagation.shared, mount.propagation.master));
    assert_eq!(now[0], (group, None), "a peer of the volume");
    assert_eq!((now[1], now[3]), ((None, None), (None, None)), "private, also under a shared parent");
    assert!(now[2].0.is_some() && now[2].0 != group && now[2].1.is_none(), "a group of its own: {now:?}");
    assert_eq!(now[4], (None, None), "what it was a slave of is another file system's");
    let told = format!("{}: it receives no more", places[4].display());
    assert!(report.steps.iter().any(|step| step.contains(&told)), "{report:#?}");
    let there = slave.stack_at(&lab.mountpoint);
    assert_eq!(there.len(), 1, "{report:#?}");
    assert_eq!((there[0].propagation.shared, there[0].propagation.master), (None, group), "{report:#?}");
    // What is mounted inside the volume appears where it did.
    let inside = lab.directory("volume/inside");
    run(&["mount", "-t", "tmpfs", "inside", text(&inside)]);
    let is_at = |place: &Path| table().top_at(&bytes(&place.join("inside"))).is_some();
    assert_eq!(places.clone().map(|place| is_at(&place)), [true, false, false, false, false]);
    assert_eq!(slave.stack_at(&inside).len(), 1);
}

fn where_beneath_is_refused() {
    let lab = Lab::new("refused");
    // The mount point is a bind of its own parent: a peer of it, into which the new mount would be copied.
    run(&["mount", "-t", "tmpfs", "parent", text(&lab.directory)]);
    run(&["mount", "--make-shared", text(&lab.directory)]);
    std::fs::create_dir(&lab.mountpoint).unwrap();
    run(&["mount", "--bind", text(&lab.mountpoint), text(&lab.mountpoint)]);
    let old = lab.top().unwrap().superblock;
    let report = lab.execute(lab.plan(swap_after(stage_tmpfs("second"), false, None)));
    lab.assert_replaced(old, &report);
    let gap = report.gap.unwrap();
    println!("gap {gap:?}");
    assert!(gap > Duration::ZERO && gap < patiently(Duration::from_secs(1)), "{report:#?}");
    assert!(report.steps.iter().any(|step| step.contains("beneath is refused")), "{report:#?}");
}

fn plans_act_in_the_namespace_they_are_given() {
    let here = Lab::new("elsewhere");
    let first = here.mount_tmpfs("first").to_string();
    let namespace = Namespace::new("private");
    let there = Lab::with_exe("elsewhere", std::env::current_exe().unwrap(), Some(namespace.path()));
    let mut plan = there.plan(swap_after(stage_tmpfs("second"), false, None));
    // The plan was made by the table of this namespace: the mount's copy in the other one has an id of its own.
    plan.marks.as_mut().unwrap().unique.clear();
    let report = there.execute(plan);
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    let shown = namespace.superblocks_at(&here.mountpoint);
    assert!(shown.len() == 1 && shown[0] != first, "{shown:?}");
    assert_eq!(here.top().unwrap().superblock.to_string(), first);
}
