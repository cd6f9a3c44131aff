//! What a scrape shows, read by the strict reader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_core::errno::Errno;
use agent_core::health::loss::{Acknowledgement, Actor, Loss};
use agent_core::id::{Generation, PlanId, ProbeId, VolumeId};
use agent_core::incident::{Cause, CauseKind, Incident, IncidentId, Member};
use agent_core::observation::{NotRun, Op, PlanReport, ProbeReport, ProbeResult, ProbeStep, Source};
use agent_core::pause::Pause;
use agent_core::remediation::{Outcome, Refusal};
use agent_core::status::{HeldUp, Hold};
use agent_core::time::Monotonic;
use agent_core::verdict::{HealthState, Reason};
use agent_core::volume::{Method, Mode};

use super::labels::{LABELS, label_of, words_of};
use super::strict::{Series, parse};
use super::table::{Row, TABLE};
use super::{Metrics, Suppression};
use crate::export::Snapshot;
use crate::export::sample::{
    detection, incident, mount_plan, probe_ok, quiet_volume, sample_snapshot, seconds,
};
use crate::export::text::Format;

fn scrape(metrics: &Metrics, snapshot: &Snapshot) -> BTreeMap<Series, f64> {
    let text = metrics.render(snapshot, Format::Prometheus);
    parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

fn value(series: &BTreeMap<Series, f64>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    series.get(&(format!("mountie_{name}"), labels)).copied()
}

fn probe(volume: &str, at: Monotonic, result: ProbeResult) -> ProbeReport {
    ProbeReport {
        id: ProbeId(1),
        volume: VolumeId::new(volume),
        generation: Generation(1),
        started: at,
        took: Duration::from_millis(20),
        result,
    }
}

fn with_volumes(ids: &[&str]) -> Snapshot {
    Snapshot { volumes: ids.iter().map(|id| quiet_volume(id)).collect(), ..sample_snapshot() }
}

#[test]
fn the_table_is_sorted_and_follows_the_naming_rules() {
    assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
    for row in TABLE {
        assert!(row.name.starts_with("mountie_"), "{}", row.name);
        assert_eq!(row.name.ends_with("_total"), row.kind == super::table::Kind::Counter, "{}", row.name);
        assert!(row.help.ends_with('.') && !row.labels.contains(&"le"), "{}", row.name);
    }
}

#[test]
fn every_label_is_explained_and_every_explanation_has_a_metric() {
    for row in TABLE {
        for name in row.labels {
            assert!(label_of(row.name, name).is_some(), "{} of {} means nothing", name, row.name);
        }
    }
    for label in LABELS {
        let is_used = |row: &Row| {
            let found = label_of(row.name, label.name).filter(|_| row.labels.contains(&label.name));
            found.is_some_and(|found| found.of == label.of)
        };
        assert!(TABLE.iter().any(is_used), "{} of `{}` is in no metric", label.name, label.of);
        let words = words_of(label);
        assert!(words.is_none_or(|words| words.len() > 1), "{} has no choice", label.name);
    }
    assert!(LABELS.windows(2).all(|pair| pair[0].name <= pair[1].name));
}

#[test]
fn values_of_labels_are_those_that_are_told() {
    let metrics = Metrics::new().unwrap();
    metrics.observe_probe(&probe("models", seconds(1), probe_ok()));
    for (name, labels) in scrape(&metrics, &sample_snapshot()).keys() {
        for (label, value) in labels.iter().filter(|(label, _)| label != "le") {
            let words = label_of(name, label).and_then(words_of);
            assert!(words.is_none_or(|words| words.contains(value.as_str())), "{name} {label}=\"{value}\"");
        }
    }
}

#[test]
fn both_formats_tell_the_same() {
    let metrics = Metrics::new().unwrap();
    let snapshot = sample_snapshot();
    let open = metrics.render(&snapshot, Format::OpenMetrics);
    let body = open.strip_suffix("# EOF\n").expect("an end");
    let units: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("# UNIT ")).collect();
    let expected: Vec<String> =
        TABLE.iter().filter_map(|row| row.unit().map(|unit| format!("{} {unit}", row.base()))).collect();
    assert_eq!(units, expected);
    assert!(units.iter().all(|line| line.split_once(' ').is_some_and(|(name, unit)| name.ends_with(unit))));
    // Where the two differ: units, the names of counters in the head, and how bounds are written.
    let mut plain = String::new();
    for line in body.lines().filter(|line| !line.starts_with("# UNIT ")) {
        let counter =
            TABLE.iter().find(|row| row.base() != row.name && line.split(' ').nth(2) == Some(row.base()));
        match counter.filter(|_| line.starts_with('#')) {
            Some(row) => plain.push_str(&line.replacen(row.base(), row.name, 1)),
            None if line.contains("le=\"") => plain.push_str(&line.replace(".0\"} ", "\"} ")),
            None => plain.push_str(line),
        }
        plain.push('\n');
    }
    let wanted = metrics.render(&snapshot, Format::Prometheus);
    let other = plain.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert_eq!((other, plain.lines().count()), (None, wanted.lines().count()));
}

#[test]
fn a_volume_tells_since_when_in_which_incident_and_what_holds_its_repair() {
    let mut snapshot = with_volumes(&["a", "b"]);
    snapshot.incidents = vec![incident().into()];
    snapshot.volumes[0].incident = Some(IncidentId(3));
    snapshot.volumes[0].condition.since_wall = Some(Duration::from_secs(1_700_000_000));
    snapshot.volumes[0].mode = Mode::Act;
    let hold = Hold::Change;
    snapshot.volumes[0].held_up = Some(HeldUp { hold, since: seconds(1), until: None, text: String::new() });
    let series = scrape(&Metrics::new().unwrap(), &snapshot);
    let of = |name, volume, label, word| value(&series, name, &[("volume", volume), (label, word)]);
    for (kind, is_in) in [("server", 1.0), ("device", 0.0), ("daemon", 0.0)] {
        assert_eq!(of("volume_incident", "a", "kind", kind), Some(is_in));
        assert_eq!(of("volume_incident", "b", "kind", kind), Some(0.0));
    }
    for (cause, holds) in [("other_healer", 1.0), ("server_unreachable", 0.0), ("hook", 0.0), ("paused", 0.0)]
    {
        assert_eq!(of("volume_repair_held", "a", "cause", cause), Some(holds));
        assert_eq!(of("volume_repair_held", "b", "cause", cause), Some(0.0));
    }
    let since = |volume| value(&series, "volume_state_since_timestamp_seconds", &[("volume", volume)]);
    assert_eq!(since("a"), Some(1_700_000_000.0));
    assert_eq!(since("b"), Some(snapshot.clock().at(seconds(100)).epoch_seconds()));
    let labels = [("kind", "server"), ("name", "filer1")];
    assert_eq!(value(&series, "incident_volumes", &labels), Some(0.0), "it is well again");
    let info =
        series.keys().find(|(name, labels)| name == "mountie_volume_info" && labels[0].1 == "a").unwrap();
    assert_eq!(
        info.1[4..],
        [("server", "filer1"), ("mode", "act"), ("namespace", ""), ("persistentvolumeclaim", "")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    assert_eq!(value(&series, "probe_interval_seconds", &[("volume", "a")]), Some(10.0));
}

#[test]
fn an_incident_counts_all_that_are_sick_in_it_and_none_for_another_reason() {
    let ids: Vec<String> = (0..Incident::MOST + 44).map(|number| format!("v{number}")).collect();
    let mut snapshot = with_volumes(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    for volume in &mut snapshot.volumes {
        volume.incident = Some(IncidentId(3));
        volume.condition.state = HealthState::Degraded;
        volume.condition.reason = Some(Reason::Hung);
    }
    snapshot.volumes[0].condition.state = HealthState::Probation;
    snapshot.volumes[1].condition.reason = Some(Reason::Missing);
    let members = ids.iter().take(Incident::MOST).map(|id| Member {
        volume: VolumeId::new(id.as_str()),
        fell: seconds(900),
        reason: Reason::Hung,
        recovered: None,
    });
    snapshot.incidents = vec![Incident { members: members.collect(), more: 44, ..incident() }.into()];
    let series = scrape(&Metrics::new().unwrap(), &snapshot);
    let labels = [("kind", "server"), ("name", "filer1")];
    assert_eq!(value(&series, "incident_volumes", &labels), Some(298.0));
}

#[test]
fn a_daemon_that_comes_back_with_another_number_is_the_same_series() {
    for (name, label) in [
        ("sshfs (process 42)", "sshfs"),
        ("sshfs (process 43)", "sshfs"),
        ("process 44", "unknown"),
        ("connection 51", "unknown"),
    ] {
        let cause = Cause { kind: CauseKind::Daemon, name: name.into() };
        let incidents = vec![Incident { cause, ..incident() }.into()];
        let series = scrape(&Metrics::new().unwrap(), &Snapshot { incidents, ..sample_snapshot() });
        let labels = [("kind", "daemon"), ("name", label)];
        assert!(value(&series, "incident_volumes", &labels).is_some(), "{name}");
    }
}

#[test]
fn a_pause_tells_when_it_ends() {
    let mut snapshot = with_volumes(&["a", "b", "c"]);
    let by = Actor { uid: 0, pid: 1, comm: String::new() };
    let pause =
        |until| (Pause { since: seconds(900), since_wall: None, until, by: by.clone(), reason: None }, true);
    snapshot.volumes[0].pause = Some(pause(Some(seconds(1060))));
    snapshot.volumes[1].pause = Some(pause(None));
    let series = scrape(&Metrics::new().unwrap(), &snapshot);
    let end = |volume| value(&series, "volume_pause_end_timestamp_seconds", &[("volume", volume)]);
    assert_eq!([end("a"), end("b"), end("c")], [Some(1_769_860_860.0), Some(0.0), Some(0.0)]);
}

#[test]
fn lost_data_is_told_whatever_else_is_wrong() {
    let mut snapshot = with_volumes(&["a", "b", "c"]);
    let loss = Loss { at: seconds(900), errno: Errno(5), acknowledged: None };
    snapshot.volumes[0].condition.state = HealthState::Degraded;
    snapshot.volumes[0].condition.reason = Some(Reason::IoError);
    snapshot.volumes[0].loss = Some(loss.clone());
    let by = Actor { uid: 0, pid: 1, comm: String::new() };
    let acknowledged = Some(Acknowledgement { at: seconds(950), by });
    snapshot.volumes[1].loss = Some(Loss { acknowledged, ..loss });
    let series = scrape(&Metrics::new().unwrap(), &snapshot);
    let lost = |volume| {
        ["no", "yes"].map(|word| {
            value(&series, "volume_data_lost", &[("volume", volume), ("acknowledged", word)]).unwrap()
        })
    };
    assert_eq!([lost("a"), lost("b"), lost("c")], [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]);
}

#[test]
fn an_incident_that_is_over_has_no_series_and_leaves_no_volume_in_it() {
    let mut snapshot = with_volumes(&["a"]);
    snapshot.incidents = vec![Incident { ended: Some(seconds(900)), ..incident() }.into()];
    snapshot.volumes[0].incident = Some(IncidentId(3));
    let series = scrape(&Metrics::new().unwrap(), &snapshot);
    assert!(!series.keys().any(|(name, _)| name == "mountie_incident_volumes"));
    assert_eq!(value(&series, "volume_incident", &[("volume", "a"), ("kind", "server")]), Some(0.0));
}

#[test]
fn every_row_has_series_with_exactly_its_labels() {
    let metrics = Metrics::new().unwrap();
    let series = scrape(&metrics, &sample_snapshot());
    for row in TABLE {
        let suffix = if row.kind == super::table::Kind::Histogram { "_count" } else { "" };
        let name = format!("{}{suffix}", row.name);
        let mut found = 0;
        for (_, labels) in series.keys().filter(|(other, _)| *other == name) {
            assert_eq!(labels.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>(), row.labels);
            found += 1;
        }
        assert!(found > 0, "{name} has no series");
    }
}

#[test]
fn the_state_is_one_of_seven_and_the_reason_one_of_thirteen() {
    let series = scrape(&Metrics::new().unwrap(), &sample_snapshot());
    for id in ["models", "scratch", "backup", "/mnt/caf\\xe9 \"日本\""] {
        let of = |name: &str| {
            let ones = series
                .iter()
                .filter(|((other, labels), _)| other == name && labels[0].1 == id)
                .map(|(_, value)| *value)
                .collect::<Vec<_>>();
            (ones.len(), ones.iter().sum::<f64>())
        };
        assert_eq!(of("mountie_volume_state"), (7, 1.0), "{id}");
        assert_eq!(of("mountie_volume_condition_reason").0, 19, "{id}");
    }
    assert_eq!(value(&series, "volume_state", &[("volume", "models"), ("state", "recovering")]), Some(1.0));
    assert_eq!(
        value(&series, "volume_condition_reason", &[("volume", "scratch"), ("reason", "hung")]),
        Some(1.0)
    );
    assert_eq!(
        value(&series, "volume_condition_reason", &[("volume", "backup"), ("reason", "full")]),
        Some(1.0)
    );
}

#[test]
fn facts_of_the_snapshot_are_shown() {
    let series = scrape(&Metrics::new().unwrap(), &sample_snapshot());
    assert_eq!(value(&series, "probe_stuck_seconds", &[("volume", "scratch")]), Some(48.0));
    assert_eq!(value(&series, "blocked_tasks", &[("volume", "scratch")]), Some(3.0));
    assert_eq!(value(&series, "blocked_tasks", &[("volume", "backup")]), Some(0.0));
    assert_eq!(value(&series, "mount_stack_depth", &[("volume", "scratch")]), Some(2.0));
    for (volume, mounts, files) in [("scratch", 2.0, 5.0), ("backup", 0.0, 0.0)] {
        let of = |name: &str| value(&series, name, &[("volume", volume)]);
        assert_eq!((of("consumer_stale_mounts"), of("stale_open_files")), (Some(mounts), Some(files)));
    }
    assert_eq!(
        value(&series, "volume_last_ok_timestamp_seconds", &[("volume", "models")]),
        Some(1_769_860_600.0)
    );
    assert_eq!(value(&series, "volume_last_ok_timestamp_seconds", &[("volume", "scratch")]), Some(0.0));
    assert_eq!(value(&series, "source_up", &[("source", "bpf")]), Some(0.5), "degraded");
    assert_eq!(value(&series, "source_up", &[("source", "census")]), Some(1.0));
    assert_eq!(value(&series, "source_up", &[("source", "fanotify_mnt")]), Some(0.0));
    assert_eq!(
        value(&series, "program_attached", &[("program", "vfs_read"), ("family", "fexit")]),
        Some(0.0)
    );
    assert_eq!(value(&series, "mount_table_bad_lines_total", &[]), Some(2.0));
    assert_eq!(value(&series, "remediation_stuck_helpers", &[]), Some(2.0));
    assert_eq!(value(&series, "mount_table_scan_seconds", &[]), Some(0.0015));
}

#[test]
fn errors_are_there_at_zero_and_errors_without_a_name_are_added_up() {
    let mut snapshot = with_volumes(&["a"]);
    snapshot.volumes[0].errors = BTreeMap::from([
        ((Errno(2), Op::Open, Source::Bpf), 3),
        ((Errno(9999), Op::Open, Source::Bpf), 4),
        ((Errno(116), Op::Read, Source::Bpf), 5),
    ]);
    let series = scrape(&Metrics::new().unwrap(), &snapshot);
    let errors = |errno, op| {
        let labels = [("volume", "a"), ("errno", errno), ("op", op), ("source", "bpf")];
        value(&series, "volume_errors_total", &labels)
    };
    assert_eq!(errors("EIO", "read"), Some(0.0));
    assert_eq!(errors("ENOTCONN", "read"), Some(0.0));
    assert_eq!(errors("ESTALE", "read"), Some(5.0));
    assert_eq!((errors("EIO", "writeback"), errors("ENOSPC", "writeback")), (Some(0.0), Some(0.0)));
    let met = [("volume", "a"), ("errno", "ESTALE"), ("op", "stat"), ("source", "probe")];
    assert_eq!(value(&series, "volume_errors_total", &met), Some(0.0));
    assert_eq!(errors("other", "open"), Some(7.0));
}

#[test]
fn probes_count_by_result_and_time_only_what_was_looked_at() {
    let metrics = Metrics::new().unwrap();
    metrics.observe_probe(&probe("a", seconds(1), probe_ok()));
    metrics.observe_probe(&probe("a", seconds(2), ProbeResult::TimedOut { step: ProbeStep::Root }));
    metrics.observe_probe(&probe("a", seconds(3), ProbeResult::NotRun(NotRun::WorkerLost)));
    let series = scrape(&metrics, &with_volumes(&["a", "b"]));
    for (result, count) in [("ok", 1.0), ("timeout", 1.0), ("not_run", 1.0), ("error", 0.0)] {
        assert_eq!(value(&series, "probe_total", &[("volume", "a"), ("result", result)]), Some(count));
        assert_eq!(value(&series, "probe_total", &[("volume", "b"), ("result", result)]), Some(0.0));
    }
    assert_eq!(value(&series, "probe_duration_seconds_count", &[("volume", "a")]), Some(2.0));
    assert_eq!(
        value(&series, "probe_duration_seconds_bucket", &[("volume", "a"), ("le", "0.025")]),
        Some(2.0)
    );
    assert_eq!(value(&series, "probe_duration_seconds_count", &[("volume", "b")]), Some(0.0));
}

#[test]
fn only_a_fall_with_kernel_evidence_has_a_detection_time() {
    let metrics = Metrics::new().unwrap();
    let fall = detection("a", seconds(10), Some(Duration::from_millis(40)));
    metrics.observe_transition(&fall);
    metrics.observe_transition(&detection("a", seconds(10), None));
    metrics.observe_transition(&agent_core::engine::Transition {
        from: HealthState::Recovering,
        ..fall.clone()
    });
    metrics.observe_transition(&agent_core::engine::Transition { to: HealthState::Suspect, ..fall });
    let series = scrape(&metrics, &with_volumes(&[]));
    assert_eq!(value(&series, "detection_seconds_count", &[]), Some(1.0));
    assert_eq!(value(&series, "detection_seconds_bucket", &[("le", "0.02")]), Some(0.0));
    assert_eq!(value(&series, "detection_seconds_bucket", &[("le", "0.05")]), Some(1.0));
}

#[test]
fn plans_count_by_method_and_outcome_and_show_their_gap() {
    let metrics = Metrics::new().unwrap();
    let report = PlanReport::of(PlanId(7), Outcome::Changed, Duration::from_millis(150));
    let mut report = PlanReport { gap: Some(Duration::ZERO), ..report };
    metrics.observe_plan(&mount_plan("a"), &report);
    report.outcome = Outcome::Refused(Refusal::SameSuperblock);
    report.gap = None;
    metrics.observe_plan(&mount_plan("a"), &report);
    metrics.suppressed(Suppression::DryRun);
    let mut snapshot = with_volumes(&["a", "b", "c", "d", "e"]);
    snapshot.volumes[1].mode = Mode::Act;
    snapshot.volumes[1].method = Some(Method::Command(Vec::new()));
    snapshot.volumes[2].mode = Mode::Off;
    snapshot.volumes[3].method = None;
    snapshot.volumes[4].fstype = "fuse.sshfs".into();
    let series = scrape(&metrics, &snapshot);
    let plans = |volume, method, outcome| {
        value(&series, "remediation_total", &[("volume", volume), ("method", method), ("outcome", outcome)])
    };
    assert_eq!(plans("a", "mount", "changed"), Some(1.0));
    assert_eq!(plans("a", "mount", "same_superblock"), Some(1.0));
    for outcome in super::labels::outcomes()
        .into_iter()
        .filter(|outcome| !["changed", "same_superblock"].contains(outcome))
    {
        assert_eq!(plans("a", "mount", outcome), Some(0.0), "a person may order it: {outcome}");
        assert_eq!(plans("b", "command", outcome), Some(0.0), "{outcome}");
        assert_eq!(plans("e", "systemd", outcome), Some(0.0), "{outcome}");
        assert_eq!([plans("c", "mount", outcome), plans("d", "mount", outcome)], [None, None], "{outcome}");
    }
    assert_eq!(plans("a", "settle", "already_so"), Some(0.0));
    assert_eq!(plans("a", "command", "changed"), None, "it is no method of this volume");
    assert_eq!(value(&series, "remediation_duration_seconds_count", &[("method", "mount")]), Some(2.0));
    assert_eq!(value(&series, "remediation_gap_seconds_bucket", &[("le", "0")]), Some(1.0));
    assert_eq!(value(&series, "remediation_suppressed_total", &[("cause", "dry_run")]), Some(1.0));
    let fresh = scrape(&Metrics::new().unwrap(), &snapshot);
    assert_eq!(value(&fresh, "remediation_suppressed_total", &[("cause", "dry_run")]), Some(0.0));
}

#[test]
fn a_vanished_volume_leaves_no_series_and_a_missing_one_keeps_all() {
    let metrics = Metrics::new().unwrap();
    metrics.observe_probe(&probe("gone", seconds(1), probe_ok()));
    metrics.observe_probe(&probe("missing", seconds(1), probe_ok()));
    let mut snapshot = with_volumes(&["gone", "missing"]);
    let before = scrape(&metrics, &snapshot);
    snapshot.volumes.remove(0);
    snapshot.volumes[0].superblock = None;
    snapshot.volumes[0].stack_depth = 0;
    snapshot.volumes[0].condition.state = HealthState::Degraded;
    metrics.forget_vanished(&snapshot);
    let after = scrape(&metrics, &snapshot);
    let names = |series: &BTreeMap<Series, f64>, id: &str| -> BTreeSet<String> {
        let of_volume = |(_, labels): &&Series| labels.first().is_some_and(|(_, value)| value == id);
        series.keys().filter(of_volume).map(|(name, _)| name.clone()).collect()
    };
    assert!(!names(&before, "gone").is_empty());
    assert_eq!(names(&after, "gone"), BTreeSet::new());
    assert_eq!(names(&after, "missing"), names(&before, "missing"));
    assert_eq!(value(&after, "probe_total", &[("volume", "missing"), ("result", "ok")]), Some(1.0));
    // Back again: a new volume, not the old counts.
    let again = scrape(&metrics, &with_volumes(&["gone"]));
    assert_eq!(value(&again, "probe_total", &[("volume", "gone"), ("result", "ok")]), Some(0.0));
    assert_eq!(value(&again, "probe_duration_seconds_count", &[("volume", "gone")]), Some(0.0));
}

#[test]
fn a_probe_of_a_volume_that_only_the_next_snapshot_knows_is_not_lost() {
    let metrics = Metrics::new().unwrap();
    metrics.observe_probe(&probe("new", seconds(1001), probe_ok()));
    metrics.forget_vanished(&with_volumes(&["a"]));
    let before = scrape(&metrics, &with_volumes(&["a"]));
    assert!(!before.keys().any(|(_, labels)| labels.iter().any(|(_, value)| value == "new")));
    let after = scrape(&metrics, &with_volumes(&["a", "new"]));
    assert_eq!(value(&after, "probe_total", &[("volume", "new"), ("result", "ok")]), Some(1.0));
}

#[test]
fn what_vanished_is_forgotten_whether_anybody_scrapes_or_not() {
    let metrics = Metrics::new().unwrap();
    for number in 0..1000 {
        metrics.observe_probe(&probe(&format!("v{number}"), seconds(1), probe_ok()));
        metrics.forget_vanished(&with_volumes(&[]));
        // One that nobody has looked at yet, and one that goes while an older snapshot is read.
        scrape(&metrics, &with_volumes(&[&format!("v{number}"), &format!("w{number}")]));
        metrics.forget_vanished(&with_volumes(&[]));
    }
    assert!(metrics.volumes().is_empty());
    let durations = prometheus::core::Collector::collect(&metrics.inner.probe_duration);
    assert!(durations.iter().all(|family| family.get_metric().is_empty()));
}

#[test]
fn lost_records_are_told_by_cause() {
    let series = scrape(&Metrics::new().unwrap(), &sample_snapshot());
    let lost = |cause| value(&series, "ebpf_records_dropped_total", &[("cause", cause)]);
    let all = crate::sensor::LossCause::ALL.map(|cause| lost(cause.label()));
    let expected = crate::sensor::LossCause::ALL
        .map(|cause| Some(if cause == crate::sensor::LossCause::Ring { 3.0 } else { 0.0 }));
    assert_eq!(all, expected);
}

#[test]
fn two_volumes_of_one_name_do_not_spoil_the_scrape() {
    let metrics = Metrics::new().unwrap();
    scrape(&metrics, &with_volumes(&["a", "b", "a"]));
}

#[test]
fn the_strict_reader_is_strict() {
    let good = "# HELP a A.\n# TYPE a gauge\na{b=\"c\\\\d\\\"\\n\"} 1\n";
    assert!(parse(good).is_ok());
    for (wrong, why) in [
        ("# TYPE a gauge\na 1\n", "TYPE without its HELP"),
        ("# HELP a A.\n# TYPE a gauge\na 1\na 2\n", "twice"),
        ("# HELP b A.\n# TYPE b gauge\n# HELP a A.\n# TYPE a gauge\n", "not sorted"),
        ("# HELP a A.\n# TYPE a gauge\na{b=\"\\x\"} 1\n", "not a sample"),
        ("# HELP a A.\n# TYPE a gauge\na{b=\"1\",b=\"2\"} 1\n", "not a sample"),
        ("# HELP a A.\n# TYPE a gauge\nab 1\n", "wrong suffix"),
        ("# HELP a A.\n# TYPE a histogram\na_count 1\n", "is broken"),
        ("# HELP a A.\n# TYPE a gauge\na 1", "does not end"),
    ] {
        let error = parse(wrong).expect_err(wrong);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_thousand_volumes_are_rendered() {
    let metrics = Metrics::new().unwrap();
    let ids: Vec<String> = (0..1000).map(|number| format!("volume-{number:04}")).collect();
    let snapshot = with_volumes(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let text = metrics.render(&snapshot, Format::Prometheus);
    let started = crate::sys::clock::now();
    let again = metrics.render(&snapshot, Format::Prometheus);
    let took = crate::sys::clock::now().since(started);
    // Printed, not judged: the machine decides.
    println!("1000 volumes: {} bytes, {} lines in {took:?}", again.len(), again.lines().count());
    assert_eq!(text, again);
}
