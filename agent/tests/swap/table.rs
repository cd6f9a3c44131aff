//! What plans do when the mount table is not what they were made for, and repairs that need no swap.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_core::remediation::{Action, Marks, Outcome, Plan, Refusal};
use agent_core::topology::{Mount, MountTable};

use super::Test;
use super::lab::{
    Lab, bytes, run, stage_by_mount, stage_tmpfs, swap_after, table_by_id, text, unmount, verify,
};

pub(crate) const TESTS: &[Test] = &[
    ("a_missing_volume_is_mounted_and_covered_data_reported", a_missing_volume_is_mounted),
    ("a_mount_point_that_is_gone_is_named_or_made", a_mount_point_that_is_gone_is_named_or_made),
    ("a_mount_that_somebody_else_made_is_left_alone", a_mount_that_somebody_else_made_is_left_alone),
    ("what_a_cut_off_swap_left_goes_with_the_old_one", what_a_cut_off_swap_left_goes_with_the_old_one),
    ("what_lay_beneath_before_is_not_shown", what_lay_beneath_before_is_not_shown),
    ("mounts_inside_the_old_one_are_not_lost", mounts_inside_the_old_one_are_not_lost),
    ("what_only_has_the_number_of_the_old_mount_is_left_alone", what_only_has_the_number_is_left_alone),
    ("what_is_mounted_over_it_meanwhile_is_kept_or_told", what_is_mounted_over_it_is_kept_or_told),
    ("a_bind_of_the_volume_inside_itself_is_not_lost", a_bind_inside_itself_is_not_lost),
    ("the_same_superblock_is_not_called_repaired", the_same_superblock_is_not_called_repaired),
    ("what_a_container_holds_is_not_shown_again", what_a_container_holds_is_not_shown_again),
    ("a_mount_beside_what_is_held_has_a_superblock_of_its_own", a_mount_beside_what_is_held),
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

/// Nothing is mounted aside for a place that is not there, and it is made where the options say so.
fn a_mount_point_that_is_gone_is_named_or_made() {
    let lab = Lab::new("no-directory");
    std::fs::remove_dir(&lab.mountpoint).unwrap();
    let execute = |options: &[&str]| {
        lab.execute(lab.plan(swap_after(stage_by_mount("new", "tmpfs", options), false, None)))
    };
    let report = execute(&["size=1m"]);
    assert_eq!(report.outcome, Outcome::Refused(Refusal::NotPrepared), "{report:#?}");
    let told = format!("the directory {} is not there", lab.mountpoint.display());
    assert!(report.steps[0].contains(&told), "{report:#?}");
    assert!(lab.mountpoint.symlink_metadata().is_err());
    lab.assert_unstaged();
    let report = execute(&["x-mount.mkdir", "size=1m"]);
    assert_eq!((&report.outcome, lab.stack().len()), (&Outcome::Changed, 1), "{report:#?}");
    unmount(&lab.mountpoint);
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

/// An earlier plan was cut off between its halves, and nothing could put that in order.
fn what_a_cut_off_swap_left_goes_with_the_old_one() {
    let lab = Lab::new("left-beneath");
    lab.mount_tmpfs("left");
    let left = lab.top().unwrap();
    let old = lab.mount_tmpfs("first");
    let mut plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
    let marks = plan.marks.as_mut().unwrap();
    assert!(marks.others.remove(&left.id), "{marks:?}");
    marks.own.insert(left.id);
    let report = lab.execute(plan);
    lab.assert_replaced(old, &report);
    assert_eq!(std::fs::read_to_string(lab.mountpoint.join("file")).unwrap(), "new\n");
    unmount(&lab.mountpoint);
}

/// Somebody mounted the volume over something else. What finishes a swap that was cut off does not show that.
fn what_lay_beneath_before_is_not_shown() {
    let lab = Lab::new("lay-beneath");
    lab.mount_tmpfs("somebody's");
    lab.mount_tmpfs("first");
    let before = lab.stack();
    let report = lab.execute(lab.plan(vec![Action::DetachTop]));
    assert_eq!((report.outcome, lab.stack()), (Outcome::AlreadySo, before));
    unmount(&lab.mountpoint);
    unmount(&lab.mountpoint);
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
    let own = finish.marks.clone().map(|marks| Marks { others: BTreeSet::new(), ..marks });
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
    let (mut kept, mut told, mut unseen) = (0, 0, 0);
    for round in 0..40 {
        let old = lab.top().unwrap().superblock;
        let plan = lab.plan(swap_after(stage_tmpfs("new"), false, None));
        let marks = plan.marks.clone();
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
        assert!(!(is_there && is_told), "{stack:#?} {report:#?}");
        // Within the very call, which has found the old one already, it lands on that and goes with it: nobody can see
        // it then, as with any `umount --lazy`.
        let is_unseen = !is_there && !is_told;
        assert!(!is_unseen || report.outcome.is_success(), "{stack:#?} {report:#?}");
        // Then the check at the end cannot tell it from the old one.
        let took_its_number = has(&|mount| mount.superblock == old && mount.source == b"intruder");
        let is_refused = !report.outcome.is_success();
        // The new one lay beneath the old one already, and the way back has taken the old one off it.
        let is_done = report.steps.iter().any(|step| step.contains("detached the old mount that covered"));
        let may_lack_it = is_refused && (took_its_number || is_done);
        assert!(has(&is_old) == is_refused || may_lack_it, "{stack:#?} {report:#?}");
        kept += u32::from(is_there);
        told += u32::from(is_told);
        unseen += u32::from(is_unseen);
        if is_there {
            unmount(&lab.mountpoint);
        }
        let is_between = report.steps.iter().any(|step| step.contains("the new one lies between them"));
        if is_between {
            // No call takes a mount away from beneath another: whoever mounted that one has it shown when it goes.
            assert!(is_refused && lab.stack().len() == 2, "{report:#?}");
            unmount(&lab.mountpoint);
        } else if is_refused {
            // It may have come when the new one lay beneath the old one already.
            lab.execute(Plan { marks, ..lab.plan(vec![Action::DetachTop, Action::Unstage]) });
        }
        assert_eq!(lab.stack().len(), 1, "{report:#?}");
    }
    println!("{kept} kept, {told} told, {unseen} unseen");
    assert!(unseen <= 4, "that moment is shorter than any other");
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

/// Nothing is mounted: somebody has taken the dead mount away here, and a container shows it still.
fn what_a_container_holds_is_not_shown_again() {
    let lab = Lab::new("dead-elsewhere");
    let dead = lab.mount_tmpfs("dead");
    let held = lab.directory("held");
    run(&["mount", "--bind", text(&lab.mountpoint), text(&held)]);
    unmount(&lab.mountpoint);
    let find = super::lab::stage_by_command(&["mount", "--bind", text(&held), "{target}"]);
    let mut plan = lab.plan(swap_after(find, false, None));
    plan.dead = Some(BTreeSet::from([dead]));
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Refused(Refusal::SameSuperblock), "{report:#?}");
    assert!(lab.top().is_none());
    lab.assert_unstaged();
    unmount(&held);
}

/// With its option the kernel looks for no other mount of the same.
fn a_mount_beside_what_is_held() {
    let lab = Lab::new("own-superblock");
    let stage = |dead| {
        let stage = stage_by_mount("192.0.2.66:/x", "nfs4", &["retry=0", "soft"]);
        let mut plan = lab.plan(vec![stage]);
        plan.dead = dead;
        plan.helper_timeout = Duration::from_millis(500);
        lab.execute(plan).steps.concat()
    };
    assert!(stage(Some(BTreeSet::new())).contains("nosharecache"));
    assert!(!stage(None).contains("nosharecache"));
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
