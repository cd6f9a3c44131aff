//! The log lines, read back through a subscriber.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::engine::Transition;
use agent_core::errno::Errno;
use agent_core::id::PlanId;
use agent_core::observation::PlanReport;
use agent_core::remediation::Outcome;
use agent_core::verdict::HealthState;
use tracing::Level;

use super::super::sample::{detection, mount_plan, seconds};
use super::{Log, log_plan_finished, log_plan_started, log_transition};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `act` logs at `level` and above.
fn logged(level: Level, act: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_fall_is_a_warning_with_the_detection_time() {
    let fall = detection("models", seconds(10), Some(Duration::from_millis(250)));
    let log = logged(Level::INFO, || log_transition(&fall));
    assert!(
        log.starts_with(" WARN Volume is sick volume=\"models\" from=\"suspect\" to=\"degraded\""),
        "{log}"
    );
    assert!(log.contains("reason=\"stale\" detection_seconds=0.25"), "{log}");
}

#[test]
fn giving_up_is_an_error_and_recovery_is_not() {
    let step = |from, to| Transition { from, to, ..detection("models", seconds(10), None) };
    let give_up = step(HealthState::Recovering, HealthState::Quarantined);
    assert!(logged(Level::INFO, || log_transition(&give_up)).starts_with("ERROR Giving up"));
    let recovery = step(HealthState::Recovering, HealthState::Probation);
    assert!(logged(Level::INFO, || log_transition(&recovery)).starts_with(" INFO Volume answers again"));
}

#[test]
fn secrets_and_steps_do_not_reach_the_log_above_debug() {
    let mut transition = detection("models", seconds(10), None);
    transition.message = "mount of https://u:Zx9@dav.example/ failed".to_owned();
    let report = PlanReport {
        steps: vec![
            "check: made /run/secret-place — 1 ms".to_owned(),
            format!("stage: [failed] mount -o password=Zx9: {} — 2 ms", "x".repeat(500)),
            "undo unstage: [failed] cleared /run/secret-place — 1 ms".to_owned(),
        ],
        ..report(Outcome::Failed(Errno(5)))
    };
    let act = || {
        log_transition(&transition);
        log_plan_started(&mount_plan("models"));
        log_plan_finished(&mount_plan("models"), &report);
    };
    let log = logged(Level::INFO, act);
    assert!(log.contains("WARN Repair failed plan=7"), "{log}");
    assert!(log.contains("errno=EIO"), "{log}");
    assert!(log.contains("step=\"stage: [failed] mount -o password=***"), "{log}");
    assert!(log.contains(&"x".repeat(100)) && !log.contains(&"x".repeat(200)), "{log}");
    assert!(!log.contains("Zx9") && !log.contains("secret-place"), "{log}");
    let log = logged(Level::DEBUG, act);
    assert!(!log.contains("Zx9") && log.contains("Step of the repair"), "{log}");
}

/// A clock that does not go on: a storm of one moment.
const fn stopped() -> agent_core::time::Monotonic {
    agent_core::time::Monotonic::from_nanos(0)
}

#[test]
fn a_volume_that_flaps_cannot_fill_the_log_and_what_was_left_out_is_told_with_its_state() {
    let step = |from, to| Transition { from, to, ..detection("models", seconds(10), None) };
    let mut log = Log { now: stopped, ..Log::default() };
    let text = logged(Level::INFO, || {
        for _ in 0..500 {
            log.transition(&step(HealthState::Healthy, HealthState::Suspect));
            log.transition(&step(HealthState::Suspect, HealthState::Healthy));
        }
        log.transition(&detection("other", seconds(10), None));
        log.settle();
    });
    assert_eq!(text.lines().count(), 61, "{text}");
    assert!(text.lines().last().unwrap().contains("volume=\"other\""), "{text}");
    // It is given up: that is told whatever the room, with what was left out before it.
    let text = logged(Level::INFO, || {
        log.transition(&step(HealthState::Recovering, HealthState::Quarantined));
        log.transition(&step(HealthState::Quarantined, HealthState::Probation));
        log.finish();
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with(" WARN Lines about a volume were left out volume=\"models\" count=940"),
        "{text}"
    );
    assert!(lines[0].contains("state=\"healthy\""), "{text}");
    assert!(lines[1].starts_with("ERROR Giving up on the volume"), "{text}");
    assert!(lines[2].contains("count=1") && lines[2].contains("state=\"probation\""), "{text}");
}

fn report(outcome: Outcome) -> PlanReport {
    PlanReport::of(PlanId(7), outcome, Duration::from_secs(2))
}

#[test]
fn what_was_left_out_keeps_the_state_and_how_the_last_repair_failed() {
    let mut log = Log { now: stopped, ..Log::default() };
    let plan = mount_plan("models");
    let fall = detection("models", seconds(10), None);
    let text = logged(Level::INFO, || {
        for _ in 0..60 {
            log.transition(&fall);
        }
        // None of these finds room; only the first says a state.
        log.transition(&fall);
        log.plan_started(&plan);
        log.plan_finished(&plan, &report(Outcome::Failed(Errno(5))));
        log.plan_started(&plan);
        log.finish();
    });
    let last = text.lines().last().unwrap();
    assert!(last.contains("count=4") && last.contains("last=\"repair started\""), "{last}");
    assert!(last.contains("state=\"degraded\" reason=\"stale\" failed=\"failed\""), "{last}");
    // A state without a reason has none, whatever was the reason before.
    let healthy = Transition { to: HealthState::Healthy, reason: None, ..fall.clone() };
    let text = logged(Level::INFO, || {
        for _ in 0..60 {
            log.transition(&fall);
        }
        log.transition(&fall);
        log.transition(&healthy);
        log.finish();
    });
    let last = text.lines().last().unwrap();
    assert!(last.contains("state=\"healthy\"") && !last.contains("reason="), "{last}");
}

#[test]
fn that_volumes_fail_together_is_told_however_many_have_filled_the_log() {
    let mut log = Log { now: stopped, ..Log::default() };
    let incident = super::super::sample::sample_snapshot().incidents[0].clone();
    let text = logged(Level::INFO, || {
        for volume in 0..300 {
            for _ in 0..60 {
                log.transition(&detection(&format!("v{volume}"), seconds(10), None));
            }
        }
        log.incident(agent_core::incident::Moment::Began, &incident);
    });
    assert!(text.lines().count() < 300 * 60, "the log was not full");
    assert!(text.lines().last().unwrap().contains("Volumes fail together"), "{text}");
}
