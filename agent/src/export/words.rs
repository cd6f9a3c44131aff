//! The bounded words and the sentences for things that the core knows without names.

use agent_core::errno::Errno;
use agent_core::health::claims::{Claim, ClaimSource};
use agent_core::observation::{NotRun, PlanReport, ProbeResult, ProbeStep};
use agent_core::path::escape;
use agent_core::remediation::{Action, Outcome, Plan, Refusal};
use agent_core::verdict::Reason;
use agent_core::volume::{Method, Mode, Reach};

use agent_core::secret::hide;

pub(crate) mod orders;

/// The word of the configuration for a mode.
pub(crate) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Observe => "observe",
        Mode::DryRun => "dry-run",
        Mode::Act => "act",
    }
}

/// An error for people: its symbolic name, also where the table of errors does not list it.
pub(crate) fn errno(errno: Errno) -> String {
    if errno == Errno::UNKNOWN {
        return errno.label().to_owned();
    }
    match nix::errno::Errno::from_raw(i32::from(errno.0)) {
        nix::errno::Errno::UnknownErrno => errno.to_string(),
        _ if errno.row().is_some() => errno.to_string(),
        named => format!("{named:?}"),
    }
}

/// What the table or the file system says.
pub(crate) const fn claim(claim: Claim) -> &'static str {
    match claim {
        Claim::ShutDown => "shut down",
        Claim::EmergencyReadonly => "read-only after an error",
        Claim::Readonly => "read-only",
        Claim::Errors => "errors found",
        Claim::LostForSpace => "data was lost for lack of space",
    }
}

/// Who says it.
pub(crate) const fn claim_source(source: ClaimSource) -> &'static str {
    match source {
        ClaimSource::Table => "mount table",
        ClaimSource::Sensor(source) => source.label(),
    }
}

/// Every value of the label `result`, in the order of [`probe_result_index`].
pub(crate) const PROBE_RESULTS: [&str; 8] = [
    "ok",
    "error",
    "wrong_mount",
    "sentinel_missing",
    "sentinel_differs",
    "sentinel_unusable",
    "timeout",
    "not_run",
];

/// The place of a result in [`PROBE_RESULTS`].
pub(crate) const fn probe_result_index(result: &ProbeResult) -> usize {
    match result {
        ProbeResult::Ok(_) => 0,
        ProbeResult::Failed { .. } | ProbeResult::WriteFailed { .. } => 1,
        ProbeResult::WrongMount { .. } => 2,
        ProbeResult::SentinelMissing => 3,
        ProbeResult::SentinelDiffers => 4,
        ProbeResult::SentinelUnusable => 5,
        ProbeResult::TimedOut { .. } => 6,
        ProbeResult::NotRun(_) => 7,
    }
}

/// The bounded label of a probe's result.
pub(crate) fn probe_result(result: &ProbeResult) -> &'static str {
    PROBE_RESULTS.get(probe_result_index(result)).copied().unwrap_or("not_run")
}

/// What a probe found, for people; continues a sentence.
pub(crate) fn probe_sentence(result: &ProbeResult) -> String {
    match result {
        ProbeResult::Ok(found) if found.wrote_data => "everything answered, data was written".to_owned(),
        ProbeResult::Ok(found) if found.read_data => {
            "everything answered, data was read past the cache".to_owned()
        }
        ProbeResult::Ok(found) if found.read_device => {
            "the root and the device answered; no file was read past the cache".to_owned()
        }
        ProbeResult::Ok(_) => "the root answered; no data was read, there is no sentinel".to_owned(),
        ProbeResult::Failed { step, errno } => format!("{} failed with {errno}", step.doing()),
        ProbeResult::WriteFailed { errno, read } if read.read_data => {
            format!("data was read past the cache, {} failed with {errno}", ProbeStep::Write.doing())
        }
        ProbeResult::WriteFailed { errno, .. } => {
            format!("the root answered, {} failed with {errno}", ProbeStep::Write.doing())
        }
        ProbeResult::WrongMount { found } => format!("another superblock is there: {found}"),
        ProbeResult::SentinelMissing => "the sentinel is not there (the root answered)".to_owned(),
        ProbeResult::SentinelDiffers => "the sentinel has other content (the root answered)".to_owned(),
        ProbeResult::SentinelUnusable => {
            "the sentinel is no regular file, too large, or on another mount (the root answered)".to_owned()
        }
        ProbeResult::TimedOut { step } => {
            format!("no answer within the deadline while {}", step.doing())
        }
        ProbeResult::NotRun(NotRun::TooManyAbandoned) => {
            "no look was possible: too many probes have not come back".to_owned()
        }
        ProbeResult::NotRun(NotRun::WorkerLost) => {
            "no look was possible: the worker could not start or died".to_owned()
        }
        ProbeResult::NotRun(NotRun::NotThatUser) => {
            "no look was possible: a worker may not become the configured user; the agent needs CAP_SETUID and \
             CAP_SETGID, or leave out `probe`"
                .to_owned()
        }
        ProbeResult::NotRun(NotRun::Unreachable) => {
            "no look was possible: the path is in the host's table, but not reachable from the agent"
                .to_owned()
        }
    }
}

/// Every value of the label `method`. `settle` is a plan that only finishes or undoes one that was cut off.
pub(crate) const METHODS: [&str; 5] = ["mount", "fstab", "systemd", "command", "settle"];

/// The bounded label of a configured method.
pub(crate) const fn method(method: &Method) -> &'static str {
    match method {
        Method::Mount => "mount",
        Method::Fstab => "fstab",
        Method::Systemd(_) => "systemd",
        Method::Command(_) => "command",
    }
}

/// The bounded label of how a plan repairs.
pub(crate) fn plan_method(plan: &Plan) -> &'static str {
    let of_action = |action: &Action| match action {
        Action::Stage { method: own, .. } => Some(method(own)),
        Action::RestartUnit { .. } => Some("systemd"),
        Action::RunInPlace { .. } => Some("command"),
        Action::CheckSource { .. }
        | Action::CheckStaged { .. }
        | Action::AbortConnection { .. }
        | Action::MountAgain
        | Action::UnmountOld
        | Action::Swap { .. }
        | Action::Verify { .. }
        | Action::DetachTop
        | Action::CoverConsumers { .. }
        | Action::SwapConsumers { .. }
        | Action::Unstage => None,
    };
    // What is mounted only to see whether it can be is not how the volume is repaired.
    let restart = plan.actions.iter().find(|action| matches!(action, Action::RestartUnit { .. }));
    restart.into_iter().chain(&plan.actions).find_map(of_action).unwrap_or("settle")
}

/// What an action does, for people.
pub(crate) fn action_sentence(action: &Action, plan: &Plan) -> String {
    let (mountpoint, stage) = (&plan.mountpoint, &plan.stage);
    match action {
        Action::Stage { method: Method::Mount, source, fstype, .. } => {
            format!("mount {} (type {fstype}) at {stage}", hide(&escape(source)))
        }
        Action::Stage { method: Method::Fstab, .. } => {
            format!("mount what /etc/fstab says of {mountpoint} at {stage}")
        }
        Action::Stage { method: Method::Systemd(unit), .. } => format!("let {unit} mount it at {stage}"),
        Action::Stage { method: Method::Command(argv), .. } => {
            format!("let {} mount it at {stage}", program_name(argv))
        }
        Action::CheckSource { method: Method::Fstab, .. } => {
            format!("check that what /etc/fstab says of {mountpoint} can be mounted")
        }
        Action::CheckSource { source, .. } => {
            format!("check that {} can be mounted and is the same volume", hide(&escape(source)))
        }
        Action::MountAgain => format!("mount what was unmounted at {mountpoint} again, read-only"),
        Action::CheckStaged { .. } => "check that it answers, is new, and is the same volume".to_owned(),
        Action::UnmountOld => format!("unmount the old one at {mountpoint}"),
        Action::Swap { readonly: false } => format!("show it at {mountpoint}, then detach the old one"),
        Action::Swap { readonly: true } => {
            format!("show it read-only at {mountpoint}, then detach the old one")
        }
        Action::RunInPlace { argv, .. } => {
            format!("run {} to repair {mountpoint} in place", program_name(argv))
        }
        Action::AbortConnection { is_proven: true, .. } => {
            format!("end the FUSE connection that hangs at {mountpoint}: whoever waits in it gets an error")
        }
        Action::AbortConnection { is_proven: false, .. } => {
            format!(
                "end the FUSE connection at {mountpoint}, if its daemon is gone, stopped, or stuck in the kernel"
            )
        }
        Action::RestartUnit { unit, daemon: None } => {
            format!("restart {unit}, which repairs {mountpoint} in place")
        }
        Action::RestartUnit { unit, daemon: Some(pid) } => {
            format!("restart {unit}, which owns the daemon of {mountpoint} (process {pid})")
        }
        Action::Verify { .. } => format!("verify what {mountpoint} shows now"),
        Action::DetachTop => format!("detach the old mount that still covers {mountpoint}"),
        Action::Unstage => format!("clear {stage}"),
        Action::CoverConsumers { reach, .. } => {
            format!("put guards in the place of its other mounts, {}", reach_words(*reach))
        }
        Action::SwapConsumers { reach, .. } => {
            format!("show it wherever else the old one is mounted, {}", reach_words(*reach))
        }
    }
}

const fn reach_words(reach: Reach) -> &'static str {
    match reach {
        Reach::Nothing => "nowhere",
        Reach::Unowned => "on the host and in containers, the kubelet's own mounts excepted",
        Reach::All => "on the host and in containers, the kubelet's own mounts included",
    }
}

/// The program alone: arguments may carry secrets.
fn program_name(argv: &[String]) -> &str {
    argv.first().map_or("a command", String::as_str)
}

/// How a plan ended, for people.
pub(crate) fn outcome_sentence(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Changed => "done".to_owned(),
        Outcome::AlreadySo => "nothing was left to do".to_owned(),
        Outcome::Refused(refusal) => refusal_sentence(*refusal).to_owned(),
        Outcome::Failed(errno) => format!("failed with {errno}"),
        Outcome::HelperFailed(code) if *code < 0 => {
            format!("the helper was ended by signal {}", code.unsigned_abs())
        }
        Outcome::HelperFailed(code) => format!("the helper ended with code {code}"),
        Outcome::TimedOut => "the deadline passed".to_owned(),
        Outcome::Interrupted => "cut off by an end of the agent".to_owned(),
    }
}

/// What a refusal means, and what to do.
const fn refusal_sentence(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::SameSuperblock => {
            "refused: mounting again only gave the same dead file system; end what still holds it, or restart its server"
        }
        Refusal::OtherVolume => {
            "refused: the new mount is another file system than the one that was there; check source and identity"
        }
        Refusal::Busy => {
            "refused: the old mount is in use, and its device cannot be mounted twice; end the programs that use it"
        }
        Refusal::TableChanged => {
            "refused: somebody else changed the mounts at this place meanwhile; nothing to do, it is looked at again"
        }
        Refusal::StagedSick => {
            "refused: the new mount does not answer either; look at the storage or the server behind it"
        }
        Refusal::NotAMountPoint => {
            "refused: the mount point is not as it was when the plan was made; check that the directory exists"
        }
        Refusal::HelperStuck => {
            "refused: an earlier helper hangs in the kernel and cannot be ended, another would hang beside it; look at what it waits for, or reboot"
        }
        Refusal::OtherUnit => {
            "refused: the unit in which the daemon runs is not what serves this file system; the next attempt makes a mount of its own"
        }
        Refusal::NotPrepared => {
            "refused: what the helper needs is not there, or not safe to use; `mountie check-config` says what"
        }
        Refusal::MountLimit => {
            "refused: the kernel's limit on mounts is reached; unmount what is not needed, or raise fs.mount-max"
        }
        Refusal::ConsumersLeft => {
            "refused: not every container could be given the new mount; see the steps, and restart those that are left"
        }
    }
}

/// The most characters of a step in a line of the log.
const STEP_IN_LOG: usize = 200;

/// The step that ended a plan badly, without secrets and short enough for a line of the log.
pub(crate) fn failed_step(report: &PlanReport) -> Option<String> {
    let mark = format!(": [{}] ", report.outcome.label());
    let failed = report.steps.iter().rev().find(|step| !step.starts_with("undo ") && step.contains(&mark));
    failed.map(|step| hide(step).chars().take(STEP_IN_LOG).collect())
}

/// The reason as Kubernetes writes reasons: `IoError`.
pub(crate) fn camel_case(reason: Reason) -> String {
    let capitalised = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    reason.label().split('_').map(capitalised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_reasons_are_camel_case() {
        assert_eq!(camel_case(Reason::IoError), "IoError");
        assert_eq!(camel_case(Reason::Stale), "Stale");
        assert_eq!(camel_case(Reason::WritebackLost), "WritebackLost");
    }

    #[test]
    fn an_error_has_its_name_whether_the_table_lists_it_or_not() {
        let names = [116, 22, 524, 9999, 0].map(|number| errno(Errno(number)));
        assert_eq!(names, ["ESTALE", "EINVAL", "ENOTSUPP (524)", "errno 9999", "other"]);
    }

    #[test]
    fn every_refusal_is_a_sentence_that_says_what_to_do() {
        for refusal in Refusal::ALL {
            let sentence = outcome_sentence(&Outcome::Refused(refusal));
            assert!(sentence.starts_with("refused: ") && sentence.contains("; "), "{sentence}");
            assert!(!sentence.contains(refusal.label()) || refusal == Refusal::Busy, "{sentence}");
        }
    }

    #[test]
    fn only_the_program_of_a_command_is_shown() {
        let plan = Plan {
            id: agent_core::id::PlanId(1),
            volume: agent_core::id::VolumeId::new("a"),
            server: None,
            dead: None,
            reason: None,
            mountpoint: "/mnt/a".into(),
            stage: "/run/mountie/stage/1".into(),
            old: None,
            marks: None,
            actions: vec![Action::RunInPlace {
                argv: vec!["/sbin/fix".into(), "hunter2".into()],
                environment_file: Some("/etc/mountie/env".into()),
            }],
            undo: Vec::new(),
            timeout: std::time::Duration::from_secs(1),
            helper_timeout: std::time::Duration::from_secs(1),
        };
        let sentence = action_sentence(&plan.actions[0], &plan);
        assert_eq!(sentence, "run /sbin/fix to repair /mnt/a in place");
        assert_eq!(plan_method(&plan), "command");
        // A mount that is only made to see whether it answers is not how it is repaired.
        let stage = Action::Stage {
            method: Method::Mount,
            source: b"host:".to_vec(),
            fstype: "fuse.sshfs".into(),
            options: Vec::new(),
            environment_file: None,
        };
        let abort = Action::AbortConnection { daemon: Some(70), is_proven: true };
        let restart = Action::RestartUnit { unit: "a.service".into(), daemon: Some(70) };
        let plan = Plan { actions: vec![stage, abort, restart], ..plan };
        assert_eq!(plan_method(&plan), "systemd");
        let sentence = action_sentence(&plan.actions[1], &plan);
        assert!(sentence.starts_with("end the FUSE connection that hangs at /mnt/a"), "{sentence}");
        let sentence = action_sentence(&plan.actions[2], &plan);
        assert_eq!(sentence, "restart a.service, which owns the daemon of /mnt/a (process 70)");
    }
}
