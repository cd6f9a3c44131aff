//! The views of the sample snapshot.

use super::super::sample::{sample_host, sample_snapshot};
use super::doctor::{DoctorReport, SourceWord};
use super::{VolumeAnswer, VolumeList};
use crate::sensor::SourceName;

#[test]
fn a_sick_volume_is_shown_with_everything_that_is_known() {
    let list = VolumeList::new(&sample_snapshot());
    let models = list.volumes.iter().find(|volume| volume.id == "models").unwrap();
    assert_eq!(models.state, "recovering");
    assert!(models.sick);
    assert_eq!(models.since.to_string(), "2026-01-31T11:56:48Z");
    assert_eq!(models.kubernetes.as_ref().unwrap().status, "Inaccessible");
    assert_eq!(models.kubernetes.as_ref().unwrap().reason, "Stale");
    assert_eq!(models.device.as_deref(), Some("0:77"));
    assert_eq!(models.errors.iter().map(|error| error.count).sum::<u64>(), 17);
    assert_eq!(models.culprits[0].comm, "postgres");
    assert_eq!(models.history[1].from, "suspect");
    let plan = models.plan.as_ref().unwrap();
    assert_eq!(plan.steps[0], "mount filer1:/export/models (type nfs4) at /run/mountie/stage/7");
    assert_eq!(models.last_probe.as_ref().unwrap().result, "error");
}

#[test]
fn volumes_are_listed_by_name_and_without_secrets() {
    let list = VolumeList::new(&sample_snapshot());
    let ids: Vec<_> = list.volumes.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!(ids, ["/mnt/caf\\xe9 \"日本\"", "backup", "models", "scratch"]);
    let json = serde_json::to_string(&list).unwrap();
    assert!(!json.contains("Zx9"));
    assert!(json.contains("https://ann:***@dav.example/"));
}

#[test]
fn a_healthy_volume_has_no_kubernetes_condition() {
    let list = VolumeList::new(&sample_snapshot());
    let backup = list.volumes.iter().find(|volume| volume.id == "backup").unwrap();
    assert_eq!(backup.kubernetes, None);
    assert_eq!(backup.advice, ["full"]);
    assert_eq!(backup.stuck_seconds, None);
}

#[test]
fn views_read_back_as_written() {
    let list = VolumeList::new(&sample_snapshot());
    let json = serde_json::to_string(&list).unwrap();
    assert_eq!(serde_json::from_str::<VolumeList>(&json).unwrap(), list);
    let answer = VolumeAnswer { at: list.at, volume: list.volumes[2].clone(), error: None };
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["id"], "models");
    assert_eq!(serde_json::from_value::<VolumeAnswer>(json).unwrap(), answer);
}

#[test]
fn the_doctor_names_every_source_even_one_that_never_reported() {
    let mut snapshot = sample_snapshot();
    snapshot.sources.clear();
    let report = DoctorReport::of_agent(&sample_host(), &snapshot);
    assert_eq!(report.sources.len(), SourceName::ALL.len());
    assert!(report.sources.iter().all(|source| source.state == SourceWord::Off));
    assert!(!report.has_a_source());
}

#[test]
fn a_hook_is_told_everything_but_secrets() {
    use agent_core::id::QuestionId;
    use agent_core::remediation::asking::Question;
    use agent_core::volume::{Hook, HookWay};

    let mut snapshot = sample_snapshot();
    let mut status = snapshot.volumes.pop().unwrap();
    status.source = "https://ann:Zx9@dav.example/".into();
    status.condition.message = "tried password=Zx9".into();
    let mut plan = super::super::sample::mount_plan("models");
    for action in &mut plan.actions {
        if let agent_core::remediation::Action::Stage { source, options, .. } = action {
            *source = b"https://ann:Zx9@dav.example/".to_vec();
            options.push("password=Zx9".into());
        }
    }
    let how = HookWay::Exec(vec!["/etc/mountie/ask".into(), "--token=Zx9".into()]);
    let question = Question {
        id: QuestionId(7),
        volume: status.id.clone(),
        hook: Hook { how, timeout: std::time::Duration::from_secs(10) },
        plan,
        put_off: 1,
        put_off_at_most: 10,
    };
    let json = super::QuestionView::new(&question, &status, &snapshot).to_json();
    let text = String::from_utf8(json).unwrap();
    assert!(!text.contains("Zx9"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["apiVersion"], &value["kind"]), (&"mountie/v1".into(), &"RepairQuestion".into()));
    assert_eq!(
        (&value["question"], &value["put_off"], &value["timeout_seconds"]),
        (&7.into(), &1.into(), &10.0.into())
    );
    assert_eq!(value["volume"]["id"], status.id.as_str());
    assert_eq!(value["plan"]["method"], "mount");
    assert_eq!(text.matches('\n').count(), 1, "one line");
}
