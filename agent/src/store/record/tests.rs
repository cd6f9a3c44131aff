//! What a plan becomes on disk, and what comes back of it.

use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::remediation::Refusal;
use agent_core::verdict::Reason;
use serde_json::{Value, json};

use super::*;

fn marks() -> Marks {
    let source = b"//filer/caf\xe9".to_vec();
    let holding = Holding { root: "/".into(), fstype: "cifs".to_owned(), source };
    Marks {
        holding,
        unique: BTreeSet::from([7, u64::MAX]),
        here: BTreeSet::new(),
        others: BTreeSet::from([MountId(31)]),
        own: BTreeSet::new(),
    }
}

fn plan(mountpoint: &[u8], reason: Option<Reason>, old: Option<SuperblockId>) -> Plan {
    Plan {
        id: PlanId(7),
        volume: VolumeId::new("models"),
        server: None,
        dead: None,
        reason,
        mountpoint: BytePath::new(mountpoint),
        stage: "/run/mountie/stage/7".into(),
        old,
        marks: old.map(|_| marks()),
        actions: Vec::new(),
        undo: Vec::new(),
        timeout: Duration::from_secs(60),
        helper_timeout: Duration::from_secs(40),
    }
}

/// What an agent that starts later reads of it.
fn read_again(record: &Record) -> Record {
    serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap()
}

#[test]
fn an_intent_comes_back_as_what_was_cut_off() {
    let old = SuperblockId { major: 253, minor: 4 };
    let holders = BTreeSet::from([MountId(31), MountId(u32::MAX)]);
    for mountpoint in [b"/mnt/models".as_slice(), b"/mnt/caf\xe9\n"] {
        let record = read_again(&Record::intent(&plan(mountpoint, Some(Reason::Stale), Some(old)), &holders));
        assert_eq!(record.plan(), 7);
        let expected = Unfinished {
            plan: PlanId(7),
            volume: VolumeId::new("models"),
            mountpoint: BytePath::new(mountpoint),
            stage: "/run/mountie/stage/7".into(),
            // Written and read during one boot, where that can be told.
            old: current_boot().map(|_| old),
            marks: current_boot().map(|_| marks()),
            holders: current_boot().map(|_| holders.clone()).unwrap_or_default(),
        };
        assert_eq!(record.into_unfinished(), Some(expected));
    }
}

#[test]
fn a_record_says_its_version_its_kind_and_its_reason() {
    let text = |record: &Record| serde_json::to_value(record).unwrap();
    let repair = text(&Record::intent(&plan(b"/a", Some(Reason::Stale), None), &BTreeSet::new()));
    assert_eq!(
        (&repair["apiVersion"], &repair["kind"]),
        (&Value::from("mountie/v1"), &Value::from("Intent"))
    );
    assert_eq!((&repair["reason"], &repair["mountpoint"]), (&Value::from("stale"), &Value::from("/a")));
    assert_eq!(repair.get("old"), None);
    assert_eq!(text(&Record::intent(&plan(b"/a", None, None), &BTreeSet::new()))["reason"], "settle");
    assert_eq!(
        text(&Record::intent(&plan(b"\xe9", None, None), &BTreeSet::new()))["mountpoint"],
        json!([233])
    );
    for (outcome, label) in [
        (Outcome::Changed, "changed"),
        (Outcome::Failed(Errno(5)), Outcome::Failed(Errno(5)).label()),
        (Outcome::Refused(Refusal::Busy), Outcome::Refused(Refusal::Busy).label()),
    ] {
        assert_eq!(text(&Record::outcome(PlanId(9), &outcome))["outcome"], label);
    }
}

#[test]
fn outcomes_and_marks_leave_nothing_to_settle() {
    for (record, plan) in
        [(Record::outcome(PlanId(9), &Outcome::TimedOut), 9), (Record::mark(u64::MAX), u64::MAX)]
    {
        let again = read_again(&record);
        assert_eq!(again, record);
        assert_eq!((again.plan(), again.into_unfinished()), (plan, None));
    }
}

#[test]
fn what_is_no_record_is_refused_and_what_is_new_in_one_is_passed_over() {
    let intent =
        serde_json::to_value(Record::intent(&plan(b"/a", Some(Reason::Stale), None), &BTreeSet::new()))
            .unwrap();
    let without = |key: &str| {
        let mut value = intent.clone();
        value.as_object_mut().unwrap().remove(key);
        value
    };
    for key in ["apiVersion", "kind", "plan", "volume", "mountpoint", "stage", "reason"] {
        assert!(serde_json::from_value::<Record>(without(key)).is_err(), "{key}");
    }
    let with = |key: &str, value: Value| {
        let mut changed = intent.clone();
        changed[key] = value;
        serde_json::from_value::<Record>(changed)
    };
    for (key, value) in [
        ("kind", json!("Wish")),
        ("plan", json!(-1)),
        ("plan", json!(1.5)),
        ("mountpoint", json!([256])),
        ("mountpoint", json!({"path": "/a"})),
        ("old", json!([0])),
        ("marks", json!({"root": "/"})),
        ("old", json!([0, 4_294_967_296_u64])),
    ] {
        assert!(with(key, value.clone()).is_err(), "{key} {value}");
    }
    assert!(with("newer", json!({"x": [1, 2]})).is_ok());
    // The journal is told without what a later version may leave out.
    let bare = serde_json::from_value::<Record>(without("boot")).unwrap();
    assert_eq!(bare.into_unfinished().and_then(|unfinished| unfinished.old), None);
}
