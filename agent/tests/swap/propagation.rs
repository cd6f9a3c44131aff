//! Swaps where mounts travel between namespaces.

use std::time::Duration;

use agent_core::remediation::{Action, Outcome};

use super::Test;
use super::lab::{Lab, Namespace, assert_gap, run, stage_tmpfs, swap_after, text};
use super::patience::patiently;

pub(crate) const TESTS: &[Test] = &[
    ("under_a_shared_parent_every_namespace_stays_one_deep", under_a_shared_parent),
    ("a_shared_mount_under_a_private_parent_stays_shared", a_shared_mount_stays_shared),
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
    let report = there.execute(there.plan(swap_after(stage_tmpfs("second"), false, None)));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    let shown = namespace.superblocks_at(&here.mountpoint);
    assert!(shown.len() == 1 && shown[0] != first, "{shown:?}");
    assert_eq!(here.top().unwrap().superblock.to_string(), first);
}
