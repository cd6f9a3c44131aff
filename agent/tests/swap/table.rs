//! What plans do when the mount table is not what they were made for, and repairs that need no swap.

use std::time::Duration;

use agent_core::remediation::{Action, Outcome, Refusal};

use super::Test;
use super::lab::{Lab, bytes, run, stage_by_mount, stage_tmpfs, swap_after, text, unmount, verify};

pub(crate) const TESTS: &[Test] = &[
    ("a_missing_volume_is_mounted_and_covered_data_reported", a_missing_volume_is_mounted),
    ("a_mount_that_somebody_else_made_is_left_alone", a_mount_that_somebody_else_made_is_left_alone),
    ("mounts_inside_the_old_one_are_not_lost", mounts_inside_the_old_one_are_not_lost),
    ("the_same_superblock_is_not_called_repaired", the_same_superblock_is_not_called_repaired),
    ("a_link_on_the_way_to_the_mount_point_is_followed", a_link_on_the_way_is_followed),
    ("files_at_the_private_place_are_never_deleted", files_at_the_private_place_are_never_deleted),
    ("no_private_place_outside_the_root_is_touched", no_private_place_outside_the_root_is_touched),
    ("the_gap_of_a_repair_in_place_is_measured", the_gap_of_a_repair_in_place_is_measured),
    ("a_new_mount_keeps_the_options_of_the_old", a_new_mount_keeps_the_options_of_the_old),
];

fn a_missing_volume_is_mounted() {
    let lab = Lab::new("missing");
    std::fs::write(lab.mountpoint.join("stray"), "x").unwrap();
    let report = lab.execute(lab.plan(swap_after(stage_tmpfs("new"), true, None)));
    assert_eq!((&report.outcome, report.gap), (&Outcome::Changed, None), "{report:#?}");
    assert!(report.steps.iter().any(|step| step.contains("holds 1 entries")), "{report:#?}");
    assert!(lab.top().unwrap().options.has("ro"));
    unmount(&lab.mountpoint);
    assert!(lab.mountpoint.join("stray").is_file());
}

fn a_mount_that_somebody_else_made_is_left_alone() {
    let lab = Lab::new("changed");
    lab.mount_tmpfs("first");
    let plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
    lab.mount_tmpfs("second");
    let before = lab.stack();
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Refused(Refusal::TableChanged), "{report:#?}");
    assert_eq!(lab.stack(), before);
    lab.assert_unstaged();
}

fn mounts_inside_the_old_one_are_not_lost() {
    let lab = Lab::new("inside");
    lab.mount_tmpfs("first");
    let inside = lab.directory("volume/inside");
    run(&["mount", "-t", "tmpfs", "inside", text(&inside)]);
    let before = lab.stack();
    let report = lab.execute(lab.plan(swap_after(stage_tmpfs("new"), false, None)));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::Busy), "{report:#?}");
    assert_eq!(lab.stack(), before);
    assert!(super::lab::table().top_at(&bytes(&inside)).is_some());
}

fn the_same_superblock_is_not_called_repaired() {
    let lab = Lab::new("same");
    lab.mount_tmpfs("first");
    let before = lab.stack();
    let bind = super::lab::stage_by_command(&["mount", "--bind", "{mountpoint}", "{target}"]);
    let report = lab.execute(lab.plan(swap_after(bind, false, None)));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::SameSuperblock), "{report:#?}");
    assert_eq!(lab.stack(), before);
}

fn a_link_on_the_way_is_followed() {
    let lab = Lab::new("link");
    let old = lab.mount_tmpfs("first");
    let link = lab.directory.join("link");
    std::os::unix::fs::symlink(&lab.directory, &link).unwrap();
    let mut plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
    plan.mountpoint = bytes(&link.join("volume"));
    let report = lab.execute(plan);
    lab.assert_replaced(old, &report);
}

fn files_at_the_private_place_are_never_deleted() {
    let lab = Lab::new("kept");
    let plan = lab.plan(vec![Action::Unstage]);
    let place = std::path::PathBuf::from(plan.stage.to_string());
    // The root of the private places exists from the first staging on.
    let mut staged = plan.clone();
    staged.actions = vec![stage_tmpfs("new"), Action::Unstage];
    assert_eq!(lab.execute(staged).outcome, Outcome::Changed);
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("precious"), "x").unwrap();
    assert_eq!(lab.execute(plan).outcome, Outcome::AlreadySo);
    assert!(place.join("precious").is_file());
}

fn no_private_place_outside_the_root_is_touched() {
    let lab = Lab::new("outside");
    lab.mount_tmpfs("first");
    let mut plan = lab.plan(vec![Action::Unstage]);
    plan.stage = plan.mountpoint.clone();
    let report = lab.execute(plan);
    assert!(!report.outcome.is_success(), "{report:#?}");
    assert_eq!(lab.stack().len(), 1);
}

fn the_gap_of_a_repair_in_place_is_measured() {
    let lab = Lab::new("in-place");
    lab.mount_tmpfs("first");
    let script = "umount $0 && sleep 0.3 && mount -t tmpfs new $0";
    let argv = ["sh", "-c", script, "{mountpoint}"].map(str::to_owned).to_vec();
    let report =
        lab.execute(lab.plan(vec![Action::RunInPlace { argv, environment_file: None }, verify(None)]));
    assert_eq!(report.outcome, Outcome::Changed, "{report:#?}");
    let gap = report.gap.unwrap();
    println!("gap {gap:?}");
    assert!(gap >= Duration::from_millis(290) && gap <= report.took, "{report:#?}");
}

fn a_new_mount_keeps_the_options_of_the_old() {
    let lab = Lab::new("options");
    run(&["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec,noatime", "old", text(&lab.mountpoint)]);
    let before = lab.top().unwrap();
    let report = lab.execute(lab.plan(swap_after(stage_by_mount("new", "tmpfs", &["size=1m"]), false, None)));
    lab.assert_replaced(before.superblock, &report);
    assert_eq!(lab.top().unwrap().options, before.options);
}
