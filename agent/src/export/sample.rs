//! A fixed snapshot for tests: one volume that is sick in every way that can be shown, one that is well, one
//! that hangs, and one with an awkward name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent_core::consumer::{FileHolder, StaleMount};
use agent_core::engine::Transition;
use agent_core::errno::Errno;
use agent_core::health::claims::{Claim, ClaimSource, Said};
use agent_core::health::loss::{Acknowledgement, Actor, Loss};
use agent_core::id::{PlanId, SuperblockId, VolumeId};
use agent_core::incident::{Cause, CauseKind, Incident, IncidentId, Member, Moment};
use agent_core::observation::{BlockedTask, Op, PlanReport, ProbeOk, ProbeResult, ProbeStep, Source, Task};
use agent_core::path::BytePath;
use agent_core::remediation::{Action, Outcome, Plan};
use agent_core::status::VolumeStatus;
use agent_core::time::Monotonic;
use agent_core::verdict::{Advice, Condition, HealthState, Reason};
use agent_core::volume::{Identity, Method, Mode};

use super::chronicle::Chronicle;
use super::view::doctor::{HostFacts, Privilege};
use super::{Snapshot, SourceName, SourceState};
use crate::sensor::{LossCause, ProgramState, ProgramStatus, ScanStats};

const SECOND: u64 = 1_000_000_000;

/// The moment of the snapshot is 1000 s after boot, and 2026-01-31T12:00:00Z.
pub(crate) fn seconds(after_boot: u64) -> Monotonic {
    Monotonic::from_nanos(after_boot * SECOND)
}

/// Four volumes, every source, three programs.
pub(crate) fn sample_snapshot() -> Snapshot {
    Snapshot {
        at: seconds(1000),
        wall: Duration::from_secs(1_769_860_800),
        volumes: vec![awkward(), models(), scratch(), backup()],
        incidents: vec![incident().into()],
        sources: BTreeMap::from([
            (SourceName::Bpf, SourceState::Degraded("fexit is refused, continuing with sys_exit".into())),
            (SourceName::Census, SourceState::Running),
            (SourceName::Consumers, SourceState::Running),
            (SourceName::FanotifyFs, SourceState::Running),
            (SourceName::FanotifyMnt, SourceState::Off("the kernel is older than 6.15".into())),
            (SourceName::FuseDaemons, SourceState::Running),
            (SourceName::HostView, SourceState::Running),
            (SourceName::Listmount, SourceState::Running),
            (SourceName::Mountinfo, SourceState::Running),
            (SourceName::Probes, SourceState::Running),
            (SourceName::Sysfs, SourceState::Off("`/sys/fs` cannot be read".into())),
        ]),
        programs: vec![
            program("sys_exit", "sys_exit", ProgramState::Attached),
            program("vfs_read", "fexit", ProgramState::Failed("load: EPERM".into())),
            program("fuse_request_end", "always", ProgramState::NotChosen("family is off".into())),
        ],
        cgroups: Arc::new(BTreeMap::from([(77, "/system.slice/postgresql.service".to_owned())])),
        scan: ScanStats {
            entries: 41,
            bad_lines: 0,
            limit: Some(100_000),
            took: Duration::from_micros(1500),
        },
        bad_lines: 2,
        runs_skipped: BTreeMap::from([("vfs_read", 5)]),
        records_dropped: BTreeMap::from([(LossCause::Ring, 3)]),
        mount_events_dropped: 4,
        probes_inflight: 1,
        abandoned_workers: 1,
        stuck_helpers: 2,
        persist_errors: 0,
        check_deadline: Duration::from_secs(1),
        ready: true,
        progress: BTreeMap::new(),
    }
}

/// A repair, a fall and an incident that have happened, the fall first.
pub(crate) fn sample_chronicle() -> Arc<Chronicle> {
    let chronicle = Chronicle::new();
    chronicle.transition(&detection("models", seconds(808), Some(Duration::from_millis(8))));
    chronicle.incident(Moment::Began, &incident());
    chronicle.repair_ended(&mount_plan("models"), &failed_repair());
    chronicle.show();
    Arc::new(chronicle)
}

/// A healthy volume of that name that has nothing to tell.
pub(crate) fn quiet_volume(id: &str) -> VolumeStatus {
    VolumeStatus {
        id: VolumeId::new(id),
        expected: true,
        mountpoint: BytePath::from(format!("/mnt/{id}").as_str()),
        fstype: "nfs4".into(),
        source: format!("filer1:/export/{id}"),
        server: "filer1".into(),
        superblock: Some(SuperblockId { major: 0, minor: 77 }),
        stack_depth: 1,
        mode: Mode::Observe,
        method: Some(Method::Mount),
        interval: Duration::from_secs(10),
        condition: Condition {
            state: HealthState::Healthy,
            reason: None,
            since: seconds(100),
            since_wall: None,
            is_recalled: false,
            message: "The last probe was good.".into(),
            advice: BTreeSet::new(),
        },
        errors: BTreeMap::new(),
        error_times: BTreeMap::new(),
        claims: BTreeMap::new(),
        rule: None,
        loss: None,
        damage: None,
        falls: 0,
        settles_at: None,
        incident: None,
        is_automount: false,
        last_ok: Some(seconds(995)),
        last_probe: Some((seconds(995), Duration::from_millis(2), probe_ok())),
        stuck_since: None,
        probing: false,
        culprits: Vec::new(),
        blocked_count: 0,
        blocked: Vec::new(),
        stale_mounts: 0,
        sick_mounts: 0,
        stale: Vec::new(),
        stale_files: 0,
        stale_holders: Vec::new(),
        attempts: 0,
        plan: None,
        due_plan: None,
        last_repair: None,
        next_attempt: None,
        held_up: None,
        hook: None,
        asked: None,
        pause: None,
        not_repaired: None,
        history: Vec::new(),
    }
}

/// A good probe that read data.
pub(crate) fn probe_ok() -> ProbeResult {
    ProbeResult::Ok(ProbeOk { root_inode: 2, read_data: true, wrote_data: false, ..ProbeOk::default() })
}

/// A plan for `volume` that mounts anew.
pub(crate) fn mount_plan(volume: &str) -> Plan {
    let mountpoint = BytePath::from(format!("/mnt/{volume}").as_str());
    let stage = BytePath::from("/run/mountie/stage/7");
    let stage_action = Action::Stage {
        method: Method::Mount,
        source: format!("filer1:/export/{volume}").into_bytes(),
        fstype: "nfs4".into(),
        options: vec!["vers=4.2".into(), "hard".into()],
        environment_file: None,
    };
    Plan {
        id: PlanId(7),
        volume: VolumeId::new(volume),
        server: None,
        dead: None,
        reason: Some(Reason::Stale),
        mountpoint,
        stage,
        old: Some(SuperblockId { major: 0, minor: 77 }),
        marks: None,
        actions: vec![
            stage_action,
            Action::CheckStaged { sentinel: None, identity: Identity::default(), source: None, fstype: None },
            Action::Swap { readonly: false },
            Action::Verify {
                sentinel: None,
                identity: agent_core::volume::Identity::default(),
                source: None,
                fstype: None,
            },
            Action::Unstage,
        ],
        undo: vec![Action::Unstage],
        timeout: Duration::from_secs(60),
        helper_timeout: Duration::from_secs(60),
    }
}

/// From suspect to degraded, `evidence` before it if there was any.
pub(crate) fn detection(volume: &str, at: Monotonic, evidence: Option<Duration>) -> Transition {
    Transition {
        volume: VolumeId::new(volume),
        from: HealthState::Suspect,
        to: HealthState::Degraded,
        reason: Some(Reason::Stale),
        at,
        evidence_at: evidence.map(|before| at - before),
        message: "Reads fail with ESTALE and the probe agrees.".into(),
        incident: None,
        deed: None,
        by: None,
    }
}

/// Two volumes of one server that fail together.
pub(crate) fn incident() -> Incident {
    let member = |volume: &str, fell, reason| Member {
        volume: VolumeId::new(volume),
        fell: seconds(fell),
        reason,
        recovered: None,
    };
    Incident {
        id: IncidentId(3),
        cause: Cause { kind: CauseKind::Server, name: "filer1".into() },
        began: seconds(808),
        ended: None,
        members: vec![member("models", 808, Reason::Stale), member("scratch", 955, Reason::Hung)],
        more: 0,
    }
}

/// What the tests claim about the host.
pub(crate) fn sample_host() -> HostFacts {
    let privilege = |name: &str, held, needed_for: &str| Privilege {
        name: name.to_owned(),
        held,
        needed_for: needed_for.to_owned(),
        missed: !held,
    };
    HostFacts {
        node: "node-7".into(),
        kernel_release: "6.12.0-test".into(),
        architecture: "x86_64".into(),
        privileges: vec![
            privilege("CAP_BPF", true, "kernel programs"),
            privilege("CAP_SYS_ADMIN", false, "fanotify and repairs"),
        ],
        notes: Vec::new(),
    }
}

fn models() -> VolumeStatus {
    VolumeStatus {
        mode: Mode::Act,
        condition: Condition {
            state: HealthState::Recovering,
            reason: Some(Reason::Stale),
            since: seconds(808),
            since_wall: None,
            is_recalled: false,
            message: "Reads fail with ESTALE and the probe agrees; a good probe clears it.".into(),
            advice: BTreeSet::new(),
        },
        errors: BTreeMap::from([
            ((Errno(5), Op::Writeback, Source::Fanotify), 3),
            ((Errno(116), Op::Read, Source::Bpf), 12),
            ((Errno(116), Op::Stat, Source::Probe), 2),
        ]),
        error_times: BTreeMap::from([((Errno(116), Op::Read, Source::Bpf), (seconds(806), seconds(808)))]),
        claims: BTreeMap::from([
            (
                (Claim::EmergencyReadonly, ClaimSource::Table),
                Said { since: seconds(800), last: seconds(800), count: 0 },
            ),
            (
                (Claim::Errors, ClaimSource::Sensor(Source::Sysfs)),
                Said { since: seconds(801), last: seconds(807), count: 3 },
            ),
        ]),
        is_automount: false,
        last_ok: Some(seconds(800)),
        last_probe: Some((
            seconds(998),
            Duration::from_millis(12),
            ProbeResult::Failed { step: ProbeStep::Root, errno: Errno(116) },
        )),
        culprits: vec![
            (
                seconds(807),
                (Errno(116), Op::Read, Source::Bpf),
                Task { cgroup: 77, mnt_ns: 4_026_532_700, ..task(4242, "postgres") },
            ),
            (seconds(806), (Errno(116), Op::Read, Source::BpfName), task(77, "tar")),
        ],
        rule: Some(("probe-and-kernel-stale", "a good probe")),
        falls: 3,
        incident: Some(IncidentId(3)),
        attempts: 2,
        plan: Some(mount_plan("models")),
        last_repair: Some((seconds(900), failed_repair())),
        history: vec![
            Transition {
                from: HealthState::Degraded,
                to: HealthState::Recovering,
                ..detection("models", seconds(809), None)
            },
            detection("models", seconds(808), Some(Duration::from_millis(8))),
        ],
        ..quiet_volume("models")
    }
}

pub(crate) fn failed_repair() -> PlanReport {
    PlanReport {
        steps: vec![
            "stage: [helper_failed] mount.nfs4: -o password=Zx9 access denied — 40 ms".into(),
            "undo unstage: nothing is there — 1 ms".into(),
        ],
        ..PlanReport::of(PlanId(6), Outcome::HelperFailed(32), Duration::from_millis(41))
    }
}

fn scratch() -> VolumeStatus {
    VolumeStatus {
        condition: Condition {
            state: HealthState::Degraded,
            reason: Some(Reason::Hung),
            since: seconds(955),
            since_wall: None,
            is_recalled: false,
            message: "A probe has not returned for 45 s.".into(),
            advice: BTreeSet::new(),
        },
        is_automount: false,
        last_ok: None,
        last_probe: Some((
            seconds(952),
            Duration::from_secs(3),
            ProbeResult::TimedOut { step: ProbeStep::Root },
        )),
        stuck_since: Some(seconds(952)),
        blocked_count: 3,
        blocked: vec![
            BlockedTask {
                task: Task { cgroup: 77, mnt_ns: 4_026_532_700, ..task(4243, "postgres") },
                call: "pread64".into(),
                since: seconds(940),
                is_deep: true,
                is_by_name: false,
            },
            BlockedTask {
                task: Task { tid: 78, ..task(77, "tar") },
                call: "statx".into(),
                since: seconds(950),
                is_deep: false,
                is_by_name: true,
            },
        ],
        loss: Some(Loss {
            at: seconds(956),
            errno: Errno(5),
            acknowledged: Some(Acknowledgement {
                at: seconds(990),
                by: Actor { uid: 0, pid: 4321, comm: "mountie".into() },
            }),
        }),
        incident: Some(IncidentId(3)),
        stale_mounts: 2,
        sick_mounts: 0,
        stale: vec![stale_mount()],
        stale_files: 5,
        stale_holders: vec![file_holder()],
        probing: true,
        stack_depth: 2,
        ..quiet_volume("scratch")
    }
}

fn stale_mount() -> StaleMount {
    StaleMount {
        namespace: 4_026_532_701,
        process: 5151,
        comm: "python3".into(),
        mountpoint: "/data".into(),
        root: "/inner".into(),
    }
}

fn file_holder() -> FileHolder {
    FileHolder { process: 5152, comm: "worker".into(), count: 4, path: "/data/shard-7".into() }
}

fn backup() -> VolumeStatus {
    let quiet = quiet_volume("backup");
    VolumeStatus {
        source: "https://ann:Zx9@dav.example/".into(),
        server: "dav.example".into(),
        fstype: "fuse.davfs".into(),
        condition: Condition { advice: BTreeSet::from([Advice::Full]), ..quiet.condition },
        ..quiet
    }
}

/// A discovered volume at `/mnt/caf\xe9 "日本"`: its id is the escaped mount point.
fn awkward() -> VolumeStatus {
    let mountpoint = BytePath::new(b"/mnt/caf\xe9 \"\xe6\x97\xa5\xe6\x9c\xac\"".to_vec());
    VolumeStatus {
        id: VolumeId::new(mountpoint.to_string()),
        expected: false,
        mountpoint,
        ..quiet_volume("awkward")
    }
}

fn task(pid: u32, comm: &str) -> Task {
    Task { tid: pid, pid, comm: comm.into(), cgroup: 0, mnt_ns: 0 }
}

fn program(program: &'static str, family: &'static str, state: ProgramState) -> ProgramStatus {
    ProgramStatus {
        program,
        family,
        hook: "a hook",
        lost_without: "some errors",
        fallback: "probes only",
        state,
    }
}
