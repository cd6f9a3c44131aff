//! Plans by class of file system and by method.

use super::*;
use crate::volume::{Repair, Sentinel, Watch};

fn spec(fstype: &str, source: &str) -> VolumeSpec {
    VolumeSpec {
        id: VolumeId::new("v"),
        mountpoint: BytePath::from("/v"),
        source: Some(source.as_bytes().to_vec()),
        fstype: Some(fstype.into()),
        options: vec!["ro".into()],
        watch: Watch::default(),
        sentinel: Some(Sentinel { path: ".mountie".into(), content: None }),
        write_probe: false,
        identity: Identity::default(),
        repair: Repair::default(),
    }
}

const OLD: SuperblockId = SuperblockId { major: 0, minor: 7 };

fn holding() -> Holding {
    Holding { root: "/".into(), fstype: "nfs4".into(), source: b"filer:/a".to_vec() }
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::Stage { .. } => "stage",
        Action::CheckSource { .. } => "look",
        Action::CheckStaged { .. } => "check",
        Action::MountAgain => "mount again",
        Action::UnmountOld => "unmount",
        Action::Swap { readonly } => {
            assert!(*readonly);
            "swap"
        }
        Action::RunInPlace { .. } => "run",
        Action::AbortConnection { is_proven: true, .. } => "abort",
        Action::AbortConnection { is_proven: false, .. } => "abort if stuck",
        Action::RestartUnit { .. } => "restart",
        Action::Verify { .. } => "verify",
        Action::DetachTop => "detach",
        Action::CoverConsumers { .. } => "cover",
        Action::SwapConsumers { .. } => "follow",
        Action::Unstage => "unstage",
    }
}

fn names(spec: &VolumeSpec, old: Option<SuperblockId>) -> Vec<&'static str> {
    let patient = Patient {
        spec,
        reason: Reason::Stale,
        old,
        fstype: None,
        source: None,
        identity: Identity::default(),
        server: None,
        daemon: None,
        unit_was_tried: false,
        holding: old.map(|_| holding()),
        stale: None,
    };
    let plan = plan(PlanId(12), &patient, &"/stage".into()).unwrap();
    assert_eq!(plan.stage, BytePath::from("/stage/12"));
    assert_eq!(plan.undo.last(), Some(&Action::Unstage));
    let has = |is_meant: fn(&Action) -> bool| plan.actions.iter().any(is_meant);
    let swaps = has(|action| matches!(action, Action::Swap { .. }));
    let covers = has(|action| matches!(action, Action::CoverConsumers { .. }));
    assert_eq!(plan.undo.first() == Some(&Action::DetachTop), swaps, "a half-done swap is finished");
    let unmounts = has(|action| matches!(action, Action::UnmountOld));
    assert_eq!(plan.undo.contains(&Action::MountAgain), unmounts, "what was unmounted comes back");
    let undone = 1 + [covers, swaps, unmounts].into_iter().filter(|is_so| *is_so).count();
    assert_eq!(plan.undo.len(), undone, "what was covered comes back");
    for action in &plan.actions {
        if let Action::SwapConsumers { holding, .. } = action {
            assert_eq!(holding.is_some(), old.is_some());
        }
    }
    plan.actions.iter().map(name).collect()
}

#[test]
fn servers_and_daemons_are_swapped_without_a_gap() {
    for (fstype, source) in [("nfs4", "filer:/a"), ("fuse.sshfs", "host:"), ("newfs", "x")] {
        assert_eq!(
            names(&spec(fstype, source), Some(OLD)),
            ["stage", "check", "swap", "verify", "follow", "unstage"]
        );
    }
}

#[test]
fn a_device_is_unmounted_first_unless_nothing_is_mounted() {
    let spec = spec("ext4", "/dev/sdb1");
    assert_eq!(
        names(&spec, Some(OLD)),
        ["look", "cover", "unmount", "stage", "check", "swap", "verify", "follow", "unstage"]
    );
    assert_eq!(names(&spec, None), ["stage", "check", "swap", "verify", "follow", "unstage"]);
}

#[test]
fn a_helper_gets_the_configured_time_and_the_rest_its_own() {
    let mut spec = spec("ext4", "/dev/sdb1");
    let limits = |spec: &VolumeSpec| {
        let patient = Patient {
            spec,
            reason: Reason::Stale,
            old: Some(OLD),
            fstype: None,
            source: None,
            identity: Identity::default(),
            server: None,
            daemon: None,
            unit_was_tried: false,
            holding: Some(holding()),
            stale: None,
        };
        let plan = plan(PlanId(1), &patient, &"/stage".into()).unwrap();
        let limits: Vec<u64> = plan.actions.iter().map(|action| plan.limit(action).as_secs()).collect();
        (limits, plan.timeout.as_secs())
    };
    (spec.repair.timeout, spec.watch.deadline) = (Duration::from_secs(2), Duration::from_secs(1));
    // look, cover, unmount, stage, check, swap, verify, follow, unstage
    assert_eq!(limits(&spec), (vec![10, 10, 2, 2, 10, 10, 10, 10, 10], 4));
    spec.watch.deadline = Duration::from_secs(20);
    assert_eq!(limits(&spec), (vec![40, 40, 2, 2, 40, 40, 40, 40, 40], 42));
    spec.repair.method = Method::Command(vec!["/fix".into()]);
    assert_eq!(limits(&spec), (vec![2, 40, 40, 40], 42));
}

#[test]
fn the_staged_mount_must_be_what_the_specification_says() {
    let wanted = |spec: &VolumeSpec| {
        let patient = Patient {
            spec,
            reason: Reason::Missing,
            old: None,
            fstype: None,
            source: Some(b"seen:/b"),
            identity: Identity::default(),
            server: None,
            daemon: None,
            unit_was_tried: false,
            holding: Some(holding()),
            stale: None,
        };
        let mut actions = plan(PlanId(1), &patient, &"/stage".into()).unwrap().actions.into_iter();
        actions.find_map(|action| match action {
            Action::CheckStaged { source, fstype, .. } => Some((source, fstype)),
            _ => None,
        })
    };
    let mut spec = spec("nfs4", "filer:/a");
    assert_eq!(wanted(&spec), Some((Some(b"filer:/a".to_vec()), Some("nfs4".into()))));
    spec.options = vec!["bind".into()];
    assert_eq!(wanted(&spec), Some((None, Some("nfs4".into()))));
    spec.repair.method = Method::Command(vec!["/fix".into(), "{target}".into()]);
    (spec.source, spec.fstype) = (None, None);
    assert_eq!(wanted(&spec), Some((None, None)));
}

#[test]
fn a_command_works_aside_or_in_place() {
    let mut spec = spec("nfs4", "filer:/a");
    spec.repair.method = Method::Command(vec!["/fix".into(), "--at={target}".into()]);
    assert_eq!(names(&spec, Some(OLD)), ["stage", "check", "swap", "verify", "follow", "unstage"]);
    spec.repair.method = Method::Command(vec!["/fix".into(), "{mountpoint}".into()]);
    assert_eq!(names(&spec, Some(OLD)), ["run", "verify", "follow", "unstage"]);
}

#[test]
fn consumers_are_left_alone_on_wish_and_followed_alone_where_the_host_is_good() {
    let mut spec = spec("nfs4", "filer:/a");
    spec.repair.consumers = Reach::Nothing;
    assert_eq!(names(&spec, Some(OLD)), ["stage", "check", "swap", "verify", "unstage"]);
    let follow = |spec: &VolumeSpec, holding: Option<Holding>| {
        let patient = Patient {
            spec,
            reason: Reason::ConsumerStale,
            old: Some(OLD),
            fstype: None,
            source: None,
            identity: Identity::default(),
            server: None,
            daemon: None,
            unit_was_tried: false,
            holding,
            stale: None,
        };
        plan(PlanId(1), &patient, &"/stage".into()).map(|plan| plan.actions)
    };
    assert_eq!(follow(&spec, Some(holding())), None);
    spec.repair.consumers = Reach::All;
    let guards = Action::SwapConsumers { holding: None, ids: None, reach: Reach::All };
    let verify = Action::Verify {
        sentinel: spec.sentinel.clone(),
        identity: Identity::default(),
        source: Some(b"filer:/a".to_vec()),
        fstype: Some("nfs4".into()),
    };
    assert_eq!(follow(&spec, None), Some(vec![verify.clone(), guards, Action::Unstage]));
    spec.source = None;
    let Action::Verify { sentinel, identity, fstype, .. } = verify else { panic!() };
    let verify = Action::Verify { sentinel, identity, source: None, fstype };
    let swap = Action::SwapConsumers { holding: Some(holding()), ids: None, reach: Reach::All };
    assert_eq!(follow(&spec, Some(holding())), Some(vec![verify, swap, Action::Unstage]));
}

/// What is made aside is looked at there; what others mount at the place is looked at before anybody is moved to it.
#[test]
fn what_is_mounted_in_place_must_be_the_same_volume() {
    let identity = Identity { uuid: Some("u".into()), fsid: None };
    let verified = |method: Method, reason: Reason| {
        let mut spec = spec("xfs", "/dev/sdb");
        spec.repair.method = method;
        let patient = Patient {
            spec: &spec,
            reason,
            old: Some(OLD),
            fstype: Some("xfs"),
            source: Some(b"/dev/sdb"),
            identity: identity.clone(),
            server: None,
            daemon: None,
            unit_was_tried: false,
            holding: Some(holding()),
            stale: None,
        };
        let actions = plan(PlanId(1), &patient, &"/stage".into()).unwrap().actions;
        actions.into_iter().find_map(|action| match action {
            Action::Verify { identity, source, fstype, .. } => Some((identity, source, fstype)),
            _ => None,
        })
    };
    let whole = Some((identity.clone(), Some(b"/dev/sdb".to_vec()), Some(String::from("xfs"))));
    let at_the_place = Method::Command(vec!["/fix".into(), "{mountpoint}".into()]);
    assert_eq!(verified(at_the_place, Reason::FsShutdown), whole);
    assert_eq!(verified(Method::Systemd("v.mount".into()), Reason::FsShutdown), whole);
    assert_eq!(verified(Method::Mount, Reason::ConsumerStale), whole);
    assert_eq!(verified(Method::Mount, Reason::FsShutdown), Some((Identity::default(), None, None)));
}

#[test]
fn fstab_is_swapped_and_a_unit_is_restarted_in_place() {
    let mut spec = spec("nfs4", "filer:/a");
    spec.repair.method = Method::Fstab;
    assert_eq!(names(&spec, Some(OLD)), ["stage", "check", "swap", "verify", "follow", "unstage"]);
    (spec.source, spec.fstype) = (None, None);
    assert_eq!(names(&spec, None), ["stage", "check", "swap", "verify", "follow", "unstage"]);
    spec.repair.method = Method::Systemd("v.mount".into());
    assert_eq!(names(&spec, Some(OLD)), ["restart", "verify", "follow", "unstage"]);
}

/// What is done for a sick FUSE volume, by how it is repaired and what is known of its daemon.
fn below(spec: &VolumeSpec, reason: Reason, unit: Option<&str>, tried: bool) -> Vec<&'static str> {
    let daemon = Daemon { pid: 70, comm: "sshfs".into(), unit: unit.map(String::from) };
    let patient = Patient {
        spec,
        reason,
        old: Some(OLD),
        fstype: Some("fuse.sshfs"),
        source: None,
        identity: Identity::default(),
        server: None,
        daemon: Some(&daemon),
        unit_was_tried: tried,
        holding: Some(holding()),
        stale: None,
    };
    let plan = plan(PlanId(12), &patient, &"/stage".into()).unwrap();
    for action in &plan.actions {
        match action {
            Action::AbortConnection { daemon, .. } => assert_eq!(*daemon, Some(70)),
            Action::RestartUnit { daemon, .. } => {
                assert_eq!(daemon.is_none(), matches!(spec.repair.method, Method::Systemd(_)));
            }
            _ => {}
        }
    }
    plan.actions.iter().map(name).collect()
}

#[test]
fn a_hung_connection_is_ended_when_a_fresh_mount_answers_and_before_the_old_one_leaves_the_table() {
    let mut spec = spec("fuse.sshfs", "host:");
    let staged = ["stage", "check", "swap", "verify", "follow", "unstage"];
    let aborted = ["stage", "check", "abort", "swap", "verify", "follow", "unstage"];
    assert_eq!(below(&spec, Reason::Hung, None, false), aborted);
    for reason in [Reason::Disconnected, Reason::IoError, Reason::Stale, Reason::HostDown] {
        assert_eq!(below(&spec, reason, None, false), staged, "{reason:?}");
    }
    spec.repair.method = Method::Command(vec!["/fix".into(), "{target}".into()]);
    assert_eq!(below(&spec, Reason::Hung, Some("a.service"), false), aborted);
    spec.repair.method = Method::Command(vec!["/fix".into(), "{mountpoint}".into()]);
    assert_eq!(
        below(&spec, Reason::Hung, None, false),
        ["abort if stuck", "run", "verify", "follow", "unstage"]
    );
    spec.repair.method = Method::Systemd("v.mount".into());
    assert_eq!(
        below(&spec, Reason::Hung, Some("a.service"), false),
        ["abort if stuck", "restart", "verify", "follow", "unstage"]
    );
    spec.repair.heal_below = false;
    assert_eq!(
        below(&spec, Reason::Hung, Some("a.service"), false),
        ["restart", "verify", "follow", "unstage"]
    );
    spec.repair.method = Method::Mount;
    assert_eq!(below(&spec, Reason::Hung, Some("a.service"), false), staged);
}

#[test]
fn the_unit_of_a_daemon_is_restarted_once_before_a_new_mount() {
    let spec = spec("fuse.sshfs", "host:");
    let unit = Some("a.service");
    assert_eq!(below(&spec, Reason::Disconnected, unit, false), ["restart", "verify", "follow", "unstage"]);
    let proven = ["stage", "check", "abort", "unstage", "restart", "verify", "follow", "unstage"];
    assert_eq!(below(&spec, Reason::Hung, unit, false), proven);
    let staged = ["stage", "check", "swap", "verify", "follow", "unstage"];
    assert_eq!(below(&spec, Reason::Disconnected, unit, true), staged);
    // A daemon that answers with an error is not restarted: what it asks may be at fault.
    assert_eq!(below(&spec, Reason::IoError, unit, false), staged);
}

#[test]
fn what_the_specification_does_not_say_is_not_guessed() {
    let mut bare = spec("nfs4", "filer:/a");
    bare.source = None;
    assert!(!is_repairable(&bare));
    let patient = Patient {
        spec: &bare,
        reason: Reason::Missing,
        old: None,
        fstype: Some("nfs4"),
        source: Some(b"filer:/a"),
        identity: Identity::default(),
        server: None,
        daemon: None,
        unit_was_tried: false,
        holding: None,
        stale: None,
    };
    assert_eq!(plan(PlanId(1), &patient, &"/stage".into()), None);
    assert_eq!(patient.class(), FsClass::Network);
    bare.repair.method = Method::Command(Vec::new());
    assert!(!is_repairable(&bare));
    bare.repair.method = Method::Command(vec!["/fix".into()]);
    assert!(is_repairable(&bare));
}

#[test]
fn the_type_auto_is_read_from_the_table() {
    let auto = spec("auto", "UUID=1");
    assert_eq!(class_of(&auto, Some("xfs"), Some(b"/dev/sdb")), FsClass::Block);
    assert_eq!(class_of(&auto, None, None), FsClass::Other);
}

#[test]
fn a_plan_counts_for_the_server_of_its_source() {
    // Two shares of one kind need not be of one server.
    let server = |source: &str| server_of(FsClass::Fuse, "fuse.davfs", source.as_bytes());
    assert_ne!(server("https://one/x"), server("https://two/x"));
    assert_eq!(server_of(FsClass::Block, "ext4", b"a:/b"), None);
    let lustre = |source: &[u8]| server_of(FsClass::Network, "lustre", source);
    assert_ne!(lustre(b"10.0.0.1@tcp:/a"), lustre(b"10.9.9.9@tcp:/b"));
}

#[test]
fn the_device_is_looked_at_before_anything_is_taken_away_and_a_command_by_itself() {
    let mut spec = spec("ext4", "/dev/sdb1");
    spec.repair.method = Method::Fstab;
    assert_eq!(names(&spec, Some(OLD))[..3], ["look", "cover", "unmount"]);
    spec.repair.method = Method::Command(vec!["/fix".into(), "{target}".into()]);
    assert_eq!(names(&spec, Some(OLD))[..2], ["cover", "unmount"]);
}
