//! The description of the sample's volumes, word by word.

use super::*;
use crate::export::sample::{mount_plan, sample_snapshot, seconds};
use crate::export::view::VolumeList;

fn described(id: &str) -> String {
    let list = VolumeList::new(&sample_snapshot());
    let volume = list.volumes.into_iter().find(|volume| volume.id == id).unwrap();
    render(&VolumeAnswer { at: list.at, volume, error: None }, None)
}

#[test]
fn a_volume_under_repair_is_explained_with_evidence_and_plan() {
    let expected = "\
models is recovering (stale) since 2026-01-31T11:56:48Z, 3m12s ago
  Reads fail with ESTALE and the probe agrees; a good probe clears it.
  The server no longer knows this file system by its handle; only a new mount helps.

Volume
  mount point       /mnt/models
  type              nfs4
  source            filer1:/export/models
  device            0:77
  known from        the configuration
  Kubernetes words  Inaccessible, Stale

Evidence
  last good probe   2026-01-31T11:56:40Z, 3m20s ago
  last probe        2026-01-31T11:59:58Z, 2s ago, took 12ms
                    asking for the attributes of the root failed with ESTALE
  file system says  read-only after an error, seen by mount table since 2026-01-31T11:56:40Z, 3m20s ago
                    errors found (3 until 2026-01-31T11:56:47Z, 3m13s ago), seen by sysfs since 2026-01-31T11:56:41Z, 3m19s ago
  errors            3 × EIO on writeback, counted by fanotify
                    12 × ESTALE on read, counted by bpf
                      first 2026-01-31T11:56:46Z, 3m14s ago; last 2026-01-31T11:56:48Z, 3m12s ago
                    2 × ESTALE on stat, counted by probe
  met by            postgres (process 4242), ESTALE on read, 2026-01-31T11:56:47Z, 3m13s ago
                      in cgroup /system.slice/postgresql.service, mount namespace 4026532700
                    tar (process 77), ESTALE on read, by its name, 2026-01-31T11:56:46Z, 3m14s ago

Judgement
  rule              probe-and-kernel-stale
  cleared by        a good probe
  incident          3: 2 volumes of server filer1 fail together since 2026-01-31T11:56:48Z, 3m12s ago
                    with scratch
  falls             3 within the last ten minutes; repair and belief wait longer

Repair
  mode              act: watched and repaired
  attempts          2 within the last hour
  running           plan 7, by mount
                    1. mount filer1:/export/models (type nfs4) at /run/mountie/stage/7
                    2. check that it answers, is new, and is the same volume
                    3. show it at /mnt/models, then detach the old one
                    4. verify what /mnt/models shows now
                    5. clear /run/mountie/stage/7
  last attempt      plan 6, 2026-01-31T11:58:20Z, 1m40s ago
                    the helper ended with code 32
                    1. stage: [helper_failed] mount.nfs4: -o password=*** access denied — 40 ms
                    2. undo unstage: nothing is there — 1 ms

History, newest first
  2026-01-31T11:56:49Z  degraded → recovering (stale)
    Reads fail with ESTALE and the probe agrees.
  2026-01-31T11:56:48Z  suspect → degraded (stale)
    Reads fail with ESTALE and the probe agrees.
";
    assert_eq!(described("models"), expected);
}

#[test]
fn a_hung_volume_says_what_is_stuck_and_how_to_have_it_repaired() {
    let text = described("scratch");
    assert!(text.contains("  last good probe   never since the agent started\n"), "{text}");
    assert!(text.contains("  stuck             a probe has not come back for 48s\n"), "{text}");
    let waiting = "  waiting           postgres (process 4243), pread64 for 1m00s, state D
                      in cgroup /system.slice/postgresql.service, mount namespace 4026532700
                    tar (process 77, thread 78), statx for 50s, state S, by its name
                    and 1 more\n";
    assert!(text.contains(waiting), "{text}");
    let held = "
Still on what was replaced
  mounted           /data (its /inner)
                      in mount namespace 4026532701 of python3 (process 5151)
                    and 1 more
  open files        4 of worker (process 5152)
                      such as /data/shard-7
                    and 1 more
";
    assert!(text.contains(held), "{text}");
    assert!(!described("backup").contains("Still on"), "nobody holds anything there");
    assert!(text.contains("  stack             2 mounts at this place; the topmost is judged\n"), "{text}");
    assert!(text.contains("mountie probe scratch\n"), "{text}");
}

#[test]
fn a_loss_is_told_with_what_to_do_or_with_who_knows_of_it() {
    let text = described("scratch");
    let known = "  data lost         2026-01-31T11:59:16Z, 44s ago, with EIO
                    acknowledged by uid 0 (mountie, process 4321), 2026-01-31T11:59:50Z, 10s ago\n";
    assert!(text.contains(known), "{text}");
    let mut snapshot = sample_snapshot();
    let volume = snapshot.volumes.iter_mut().find(|volume| volume.id.as_str() == "scratch").unwrap();
    volume.loss.as_mut().unwrap().acknowledged = None;
    volume.damage = volume.loss.clone();
    volume.condition.is_recalled = true;
    volume.rule = None;
    volume.settles_at = Some(seconds(1004));
    let list = VolumeList::new(&snapshot);
    let volume = list.volumes.into_iter().find(|volume| volume.id == "scratch").unwrap();
    let text = render(&VolumeAnswer { at: list.at, volume, error: None }, None);
    assert_eq!(
        text.matches("                    not acknowledged: mountie ack scratch\n").count(),
        2,
        "{text}"
    );
    assert!(text.contains("  damage found      2026-01-31T11:59:16Z, 44s ago, with EIO\n"), "{text}");
    assert!(text.contains("known before the agent started; no look has decided"), "{text}");
    assert!(text.contains("  rule              none: nothing newer is known\n"), "{text}");
    assert!(
        text.contains("  believed          not before 2026-01-31T12:00:04Z, in 4s, if looks stay good\n"),
        "{text}"
    );
}

#[test]
fn what_a_dry_run_would_do_is_told_step_by_step() {
    let mut snapshot = sample_snapshot();
    let volume = snapshot.volumes.iter_mut().find(|volume| volume.id.as_str() == "scratch").unwrap();
    volume.due_plan = Some(mount_plan("scratch"));
    let list = VolumeList::new(&snapshot);
    let volume = list.volumes.into_iter().find(|volume| volume.id == "scratch").unwrap();
    let text = render(&VolumeAnswer { at: list.at, volume, error: None }, None);
    let steps = "  would be done     by mount, in mode \"act\"
                    1. mount filer1:/export/scratch (type nfs4) at /run/mountie/stage/7
                    2. check that it answers, is new, and is the same volume\n";
    assert!(text.contains(steps), "{text}");
}

#[test]
fn of_a_sick_volume_that_is_only_observed_it_is_told_what_a_repair_would_do() {
    let snapshot = sample_snapshot();
    let list = VolumeList::new(&snapshot);
    let volume = list.volumes.into_iter().find(|volume| volume.id == "scratch").unwrap();
    assert!(is_only_observed(&volume), "{volume:?}");
    let mut plan = PlanPreview::new(&mount_plan("scratch"));
    plan.hindered = Some("a look is out".to_owned());
    let text = render(&VolumeAnswer { at: list.at, volume, error: None }, Some(&plan));
    let steps = "  would be done     by mount, in mode \"act\", or now by mountie remount
                    1. mount filer1:/export/scratch (type nfs4) at /run/mountie/stage/7
                    2. check that it answers, is new, and is the same volume\n";
    assert!(text.contains(steps), "{text}");
    assert!(text.contains("                    it would not be begun now: a look is out\n"), "{text}");
}

#[test]
fn advice_is_told_apart_from_the_verdict() {
    let text = described("backup");
    assert!(text.starts_with("backup is healthy since "), "{text}");
    assert!(text.contains("  Also full: no space or quota is left;"), "{text}");
    assert!(!text.contains("Zx9"), "{text}");
}

#[test]
fn what_a_reason_means_is_told_only_of_what_is_sick() {
    let list = VolumeList::new(&sample_snapshot());
    let mut volume = list.volumes.into_iter().find(|volume| volume.id == "models").unwrap();
    (volume.state, volume.sick) = ("probation".to_owned(), false);
    let text = render(&VolumeAnswer { at: list.at, volume, error: None }, None);
    assert!(text.starts_with("models is probation (stale) since"), "{text}");
    assert!(!text.contains("The server no longer knows this file system"), "{text}");
}

#[test]
fn names_are_quoted_for_the_shell() {
    assert_eq!(quoted("/mnt/a.b-c_1"), "/mnt/a.b-c_1");
    assert_eq!(quoted("/mnt/it's \"x\""), "'/mnt/it'\\''s \"x\"'");
}

#[test]
fn what_a_repair_waits_for_is_told_and_what_the_hook_has_said() {
    use agent_core::remediation::asking::{Answer, Asked};
    use agent_core::status::{HeldUp, Hold};

    let mut snapshot = sample_snapshot();
    let scratch = snapshot.volumes.iter_mut().find(|volume| volume.id.as_str() == "scratch").unwrap();
    let text = "waits for server filer1:2049 (connection refused)".to_owned();
    scratch.held_up = Some(HeldUp { hold: Hold::Server, since: seconds(900), until: None, text });
    scratch.hook = Some("/etc/mountie/ask".to_owned());
    let answered =
        Some((seconds(961), Answer::Wait(std::time::Duration::from_secs(60)), "token=Zx9".to_owned()));
    scratch.asked = Some(Asked { at: seconds(960), answered, put_off: 2 });
    let list = VolumeList::new(&snapshot);
    let volume = list.volumes.into_iter().find(|volume| volume.id == "scratch").unwrap();
    let text = render(&VolumeAnswer { at: list.at, volume, error: None }, None);
    let expected = "
  held back         waits for server filer1:2049 (connection refused), since 2026-01-31T11:58:20Z, 1m40s ago
  hook              /etc/mountie/ask is asked before each attempt
                    asked 2026-01-31T11:59:20Z, 40s ago
                    wait: token=***, 2026-01-31T11:59:21Z, 39s ago
                    put off 2 times, one after the other
";
    assert!(text.contains(expected), "{text}");
}
