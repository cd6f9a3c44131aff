//! What plans do when the mount table is not what they were made for, and repairs that need no swap.

use std::time::Duration;

use agent_core::remediation::{Action, Outcome, Refusal};
use agent_core::topology::{Mount, MountTable};

use super::Test;
use super::lab::{
    Lab, bytes, run, stage_by_mount, stage_tmpfs, swap_after, table_by_id, text, unmount, verify,
};

pub(crate) const TESTS: &[Test] = &[
    ("a_missing_volume_is_mounted_and_covered_data_reported", a_missing_volume_is_mounted),
    ("a_mount_that_somebody_else_made_is_left_alone", a_mount_that_somebody_else_made_is_left_alone),
    ("mounts_inside_the_old_one_are_not_lost", mounts_inside_the_old_one_are_not_lost),
    ("what_only_has_the_number_of_the_old_mount_is_left_alone", what_only_has_the_number_is_left_alone),
    ("what_is_mounted_over_it_meanwhile_is_kept_or_told", what_is_mounted_over_it_is_kept_or_told),
    ("a_bind_of_the_volume_inside_itself_is_not_lost", a_bind_inside_itself_is_not_lost),
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

/// The number of a superblock is free when its last mount is gone, and whatever is mounted next has it.
fn what_only_has_the_number_is_left_alone() {
    let lab = Lab::new("number");
    lab.mount_tmpfs("first");
    let mut plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
    unmount(&lab.mountpoint);
    lab.mount_tmpfs("second");
    // As if it had been given the very number.
    plan.old = lab.top().map(|top| top.superblock);
    let is_told = plan.marks.as_ref().is_some_and(|marks| !marks.unique.is_empty());
    let before = lab.stack();
    let report = lab.execute(plan.clone());
    // It has the same type and the same source: only its id tells.
    assert_eq!(report.outcome.is_success(), !is_told, "{report:#?}");
    if !is_told {
        return unmount(&lab.mountpoint);
    }
    assert_eq!(report.outcome, Outcome::Refused(Refusal::TableChanged), "{report:#?}");
    assert_eq!(lab.stack(), before);
    let mut device = lab.plan(vec![Action::UnmountOld]);
    (device.old, device.marks) = (plan.old, plan.marks.clone());
    let report = lab.execute(device);
    assert_eq!(report.outcome, Outcome::Refused(Refusal::TableChanged), "{report:#?}");
    // Nor is it taken for what a swap that was cut off left on top.
    unmount(&lab.mountpoint);
    lab.mount_tmpfs("below");
    lab.mount_tmpfs("above");
    let before = lab.stack();
    let mut finish = lab.plan(vec![Action::DetachTop]);
    let own = finish.marks.clone();
    finish.marks = plan.marks;
    assert_eq!(lab.execute(finish.clone()).outcome, Outcome::AlreadySo);
    finish.marks = None;
    assert_eq!(lab.execute(finish.clone()).outcome, Outcome::AlreadySo, "nothing is known of it");
    assert_eq!(lab.stack(), before);
    finish.marks = own;
    assert_eq!(lab.execute(finish).outcome, Outcome::Changed);
    assert_eq!(lab.stack().len(), 1);
    unmount(&lab.mountpoint);
}

/// No call takes a mount away by anything but its place. What somebody mounts there in the moment between the look and
/// the call goes instead: the plan ends then, and says so.
fn what_is_mounted_over_it_is_kept_or_told() {
    let lab = Lab::new("over");
    lab.mount_tmpfs("first");
    let (mut kept, mut told) = (0, 0);
    for round in 0..40 {
        let old = lab.top().unwrap().superblock;
        let plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
        let report = std::thread::scope(|scope| {
            let place = lab.mountpoint.clone();
            scope.spawn(move || {
                // It comes a little later each time.
                (0..round).for_each(|_| drop(table_by_id()));
                run(&["mount", "-t", "tmpfs", "intruder", text(&place)]);
            });
            lab.execute(plan)
        });
        let stack = lab.stack();
        let has = |what: &dyn Fn(&Mount) -> bool| stack.iter().any(what);
        // What comes last may have the number that has just become free.
        let is_old = |mount: &Mount| mount.superblock == old && mount.source != b"intruder";
        let is_there = has(&|mount| mount.source == b"intruder");
        let is_told = report.steps.iter().any(|step| step.contains("was taken away instead"));
        assert_ne!(is_there, is_told, "{stack:#?} {report:#?}");
        // Then the check at the end cannot tell it from the old one.
        let took_its_number = has(&|mount| mount.superblock == old && mount.source == b"intruder");
        let is_refused = !report.outcome.is_success();
        assert!(has(&is_old) == is_refused || (is_refused && took_its_number), "{stack:#?} {report:#?}");
        kept += u32::from(is_there);
        told += u32::from(is_told);
        if is_there {
            unmount(&lab.mountpoint);
        }
        if !report.outcome.is_success() {
            // It may have come when the new one lay beneath the old one already.
            lab.execute(lab.plan(vec![Action::DetachTop, Action::Unstage]));
        }
        assert_eq!(lab.stack().len(), 1, "{report:#?}");
    }
    println!("{kept} kept, {told} told");
    unmount(&lab.mountpoint);
}

/// The volume, and a directory of it, shown once more inside itself.
fn a_bind_inside_itself_is_not_lost() {
    let lab = Lab::new("inside-itself");
    lab.mount_tmpfs("first");
    for name in ["volume/x", "volume/directory", "volume/y"] {
        lab.directory(name);
    }
    for (what, place) in [(".", "x"), ("directory", "y")] {
        let place = lab.mountpoint.join(place);
        run(&["mount", "--bind", text(&lab.mountpoint.join(what)), text(&place)]);
        let before = super::lab::table();
        let plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
        let report = lab.execute(plan.clone());
        assert_eq!(report.outcome, Outcome::Refused(Refusal::Busy), "{report:#?}");
        let remedy = format!("umount {}", place.display());
        assert!(report.steps.iter().any(|step| step.contains(&remedy)), "{report:#?}");
        let there = |table: &MountTable| table.top_at(&bytes(&place)).cloned();
        assert!(there(&before).is_some());
        assert_eq!(there(&super::lab::table()), there(&before));
        assert_eq!(lab.stack().len(), 1);
        lab.assert_unstaged();
        unmount(&place);
        let report = lab.execute(plan.clone());
        lab.assert_replaced(plan.old.unwrap(), &report);
        for name in ["volume/directory", "volume/y"] {
            lab.directory(name);
        }
    }
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
