//! Every message in both directions, and what is none.

use agent_core::id::{PlanId, VolumeId};

use super::*;

fn sentinel() -> Sentinel {
    Sentinel { path: BytePath::new(*b"a\xe9\n"), content: Some(vec![0, 255, 10]) }
}

fn plan(reason: Option<Reason>, old: Option<SuperblockId>) -> Plan {
    Plan {
        id: PlanId(7),
        volume: VolumeId::new("models"),
        server: None,
        dead: None,
        reason,
        mountpoint: BytePath::new(*b"/mnt/caf\xe9"),
        stage: "/run/mountie/stage/7".into(),
        old,
        marks: None,
        actions: Vec::new(),
        undo: Vec::new(),
        timeout: Duration::from_secs(60),
        helper_timeout: Duration::from_secs(40),
    }
}

/// A request as the child reads it.
fn received(plan: &Plan, action: &Action, known: Known) -> Request {
    let deadline = Monotonic::from_nanos(u64::MAX);
    let request = Request::new(plan, action.into(), &"/run/mountie/stage".into(), known, deadline);
    serde_json::from_slice(&serde_json::to_vec(&request).unwrap()).unwrap()
}

#[test]
fn a_request_brings_all_that_a_child_needs() {
    let former: Former =
        serde_json::from_str(r#"{"options":[114,111],"shared":5,"unbindable":false}"#).unwrap();
    let known = Known {
        number_proves_nothing: true,
        staged_is_good: true,
        former: Some(former.clone()),
        related: [(7, (Some(2), None))].into(),
    };
    let old = SuperblockId { major: 0, minor: 46 };
    let got = received(&plan(Some(Reason::Readonly), Some(old)), &Action::Unstage, known);
    assert_eq!((got.parent, got.deadline), (std::process::id(), u64::MAX));
    assert_eq!(
        (got.stage_root.as_slice(), got.mountpoint.as_slice()),
        (b"/run/mountie/stage".as_slice(), b"/mnt/caf\xe9".as_slice())
    );
    assert_eq!((got.stage.as_slice(), got.old), (b"/run/mountie/stage/7".as_slice(), Some(46)));
    assert_eq!(got.volume, "models");
    assert!(got.number_proves_nothing && got.repairs_readonly);
    assert_eq!((got.former, got.related.get(&7)), (Some(former), Some(&(Some(2), None))));

    let got = received(&plan(Some(Reason::Stale), None), &Action::DetachTop, Known::default());
    assert_eq!((got.old, got.former), (None, None));
    assert!(!got.number_proves_nothing && !got.repairs_readonly);
}

#[test]
fn every_action_arrives_with_what_belongs_to_it() {
    let argv = vec!["/bin/fix".to_owned(), "{target}".to_owned()];
    let stage = |method| Action::Stage {
        method,
        source: b"filer:/caf\xe9".to_vec(),
        fstype: "nfs4".to_owned(),
        options: vec!["hard".to_owned(), "vers=4.2".to_owned()],
        environment_file: Some("/etc/mountie/env".into()),
    };
    let arrived = |action: Action| received(&plan(None, None), &action, Known::default()).action;
    for (method, expected) in [
        (Method::Mount, WireMethod::Mount),
        (Method::Fstab, WireMethod::Fstab),
        (Method::Systemd("a.mount".to_owned()), WireMethod::Systemd("a.mount".to_owned())),
        (Method::Command(argv.clone()), WireMethod::Command(argv.clone())),
    ] {
        let action = arrived(stage(method));
        assert_eq!(action.environment_file(), Some("/etc/mountie/env".into()));
        let WireAction::Stage { method, source, fstype, options, .. } = action else {
            panic!("no stage");
        };
        assert_eq!((method, source.as_slice()), (expected, b"filer:/caf\xe9".as_slice()));
        assert_eq!((fstype.as_str(), options.join(",").as_str()), ("nfs4", "hard,vers=4.2"));
    }
    let check = Action::CheckStaged {
        sentinel: Some(sentinel()),
        identity: Identity { uuid: Some("u".to_owned()), fsid: None },
        source: Some(vec![255]),
        fstype: None,
    };
    let WireAction::CheckStaged { sentinel: found, uuid, fsid, source, fstype } = arrived(check) else {
        panic!("no check");
    };
    assert_eq!(found.map(Sentinel::from), Some(sentinel()));
    assert_eq!((uuid.as_deref(), fsid, source, fstype), (Some("u"), None, Some(vec![255]), None));
    assert!(matches!(arrived(Action::Swap { readonly: true }), WireAction::Swap { readonly: true }));
    assert!(matches!(arrived(Action::Swap { readonly: false }), WireAction::Swap { readonly: false }));
    let in_place = arrived(Action::RunInPlace { argv: argv.clone(), environment_file: None });
    assert_eq!(in_place.environment_file(), None);
    assert!(matches!(in_place, WireAction::RunInPlace { argv: got, .. } if got == argv));
    let abort = arrived(Action::AbortConnection { daemon: Some(7), is_proven: true });
    assert!(matches!(abort, WireAction::AbortConnection { daemon: Some(7), is_proven: true }));
    let restart = arrived(Action::RestartUnit { unit: "a.service".to_owned(), daemon: None });
    assert!(matches!(restart, WireAction::RestartUnit { unit, daemon: None } if unit == "a.service"));
    let verify = Action::Verify {
        sentinel: Some(sentinel()),
        identity: Identity { uuid: None, fsid: Some("f".to_owned()) },
        source: None,
        fstype: Some("t".to_owned()),
    };
    let WireAction::Verify { sentinel: found, uuid, fsid, source, fstype } = arrived(verify) else {
        panic!("no verify");
    };
    assert_eq!(found.map(Sentinel::from), Some(sentinel()));
    assert_eq!((uuid, fsid.as_deref(), source, fstype.as_deref()), (None, Some("f"), None, Some("t")));
    assert!(matches!(arrived(Action::UnmountOld), WireAction::UnmountOld));
    assert!(matches!(arrived(Action::DetachTop), WireAction::DetachTop));
    assert!(matches!(arrived(Action::Unstage), WireAction::Unstage));
}

#[test]
fn what_is_wanted_of_consumers_arrives_whole() {
    let holding =
        Holding { root: BytePath::new(*b"/s\xe9"), fstype: "nfs4".to_owned(), source: b"f:/\xe9".to_vec() };
    let arrived = |action: Action| match received(&plan(None, None), &action, Known::default()).action {
        WireAction::CoverConsumers(wanted) => ("cover", wanted),
        WireAction::SwapConsumers(wanted) => ("swap", wanted),
        other => panic!("{other:?}"),
    };
    let bytes = |wanted: &WireWanted| {
        wanted.holding.clone().map(|holding| (holding.root, holding.fstype, holding.source))
    };
    let expected = Some((b"/s\xe9".to_vec(), "nfs4".to_owned(), b"f:/\xe9".to_vec()));
    let (name, wanted) = arrived(Action::CoverConsumers { holding: holding.clone(), reach: Reach::Unowned });
    assert_eq!(
        (name, bytes(&wanted), wanted.all, wanted.namespace),
        ("cover", expected.clone(), false, None)
    );
    let (name, wanted) =
        arrived(Action::SwapConsumers { holding: Some(holding), ids: None, reach: Reach::All });
    assert_eq!((name, bytes(&wanted), wanted.all, wanted.namespace), ("swap", expected, true, None));
    let (_, wanted) = arrived(Action::SwapConsumers { holding: None, ids: None, reach: Reach::All });
    assert!(wanted.holding.is_none());
}

/// What the executor makes of a report with this outcome.
fn outcome(json: &str) -> Result<Outcome, serde_json::Error> {
    let line = format!(
        r#"{{"Done":{{"outcome":{json},"text":"","gap":null,"gone_at":null,"shown_at":null,"number_proves_nothing":false,"former":null}}}}"#
    );
    match serde_json::from_str(&line)? {
        Line::Done(report) => Ok(Step::from(*report).outcome),
        Line::Progress(text) => panic!("{text}"),
    }
}

#[test]
fn what_only_the_executor_may_say_and_what_nobody_says_is_a_failure() {
    for told in [Outcome::TimedOut, Outcome::Interrupted] {
        let report = WireReport::from(Step::new(told, "late"));
        assert_eq!(Step::from(report).outcome, Outcome::Failed(TIMED_OUT));
    }
    assert_eq!(outcome(r#"{"Refused":"because"}"#).unwrap(), Outcome::Failed(PROTOCOL));
    assert_eq!(outcome(r#"{"Failed":5}"#).unwrap(), Outcome::Failed(Errno(5)));
    for bad in [
        "null",
        "5",
        "\"TimedOut\"",
        "\"Interrupted\"",
        r#"{"Failed":-1}"#,
        r#"{"Failed":65536}"#,
        r#"{"Refused":7}"#,
    ] {
        assert!(outcome(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for bad in ["", "{", "[]", "{\"Done\":{}}", "{\"Progress\":1}", "{\"Other\":\"x\"}", "\u{0}"] {
        assert!(serde_json::from_str::<Line>(bad).is_err(), "{bad:?}");
        assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad:?}");
    }
    let request = Request::new(
        &plan(None, None),
        (&Action::Unstage).into(),
        &"/s".into(),
        Known::default(),
        Monotonic::from_nanos(1),
    );
    let whole = serde_json::to_value(&request).unwrap();
    for field in [
        "parent",
        "deadline",
        "volume",
        "stage_root",
        "mountpoint",
        "stage",
        "number_proves_nothing",
        "action",
    ] {
        let mut without = whole.clone();
        without.as_object_mut().unwrap().remove(field);
        assert!(serde_json::from_value::<Request>(without).is_err(), "{field}");
    }
    let mut deadly = whole;
    deadly["action"] = serde_json::json!({"RemoveAll": {"path": [47]}});
    assert!(serde_json::from_value::<Request>(deadly).is_err());
}

#[test]
fn a_step_survives_the_wire() {
    let outcomes = Refusal::ALL.into_iter().map(Outcome::Refused).chain([
        Outcome::Changed,
        Outcome::AlreadySo,
        Outcome::Failed(Errno(5)),
        Outcome::HelperFailed(-9),
    ]);
    for outcome in outcomes {
        let mut step = Step::new(outcome, "said \"this\"\nand that");
        step.gap = Some(Duration::from_nanos(17));
        step.gone_at = Some(Monotonic::from_nanos(5));
        step.number_proves_nothing = true;
        step.namespaces = vec![WireNamespace { number: 7, process: 8 }];
        step.detached = vec![9];
        step.former = serde_json::from_str(r#"{"options":[114,111],"unbindable":true}"#).unwrap();
        assert!(step.former.is_some());
        let text = serde_json::to_string(&Line::Done(Box::new(step.clone().into()))).unwrap();
        assert!(!text.contains('\n'));
        let Line::Done(report) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(Step::from(*report), step);
    }
}

#[test]
fn paths_and_contents_keep_every_byte() {
    let text = serde_json::to_string(&WireSentinel::from(&sentinel())).unwrap();
    assert_eq!(Sentinel::from(serde_json::from_str::<WireSentinel>(&text).unwrap()), sentinel());
}

#[test]
fn what_is_dead_and_held_arrives() {
    let dead = SuperblockId { major: 0, minor: 46 };
    for dead in [None, Some(BTreeSet::new()), Some(BTreeSet::from([dead]))] {
        let plan = Plan { dead: dead.clone(), ..plan(Some(Reason::Missing), None) };
        let got = received(&plan, &Action::Unstage, Known::default());
        assert_eq!(got.dead, dead.map(|dead| dead.into_iter().map(SuperblockId::to_kernel).collect()));
    }
}
