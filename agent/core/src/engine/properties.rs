//! What holds for every sequence of inputs, however odd. `World` checks it after each turn: one probe for a
//! superblock, one plan for a volume and a superblock, no repair outside mode `act`, no more attempts than allowed,
//! no deadline in the past, a reason exactly where there must be one.
//!
//! Each property is tried with 256 sequences, or as many as `PROPTEST_CASES` says: `cargo xtask fuzz engine`.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::tests::world::{Answer, World, device, fails, good, millis, mount, seconds, spec};
use crate::engine::{Engine, Input, Output};
use crate::errno::Errno;
use crate::id::{Generation, MountId, PlanId, ProbeId, VolumeId};
use crate::incident::{Daemon, Device};
use crate::observation::{
    Census, NotRun, Op, PlanReport, ProbeOk, ProbeReport, ProbeResult, ProbeStep, Unfinished,
};
use crate::policy::Policy;
use crate::remediation::asking::{Answer as HookAnswer, NoAnswer};
use crate::remediation::{Outcome, Refusal};
use crate::time::Monotonic;
use crate::topology::{MountTable, Options};
use crate::verdict::HealthState;
use crate::volume::{Hook, HookWay, Mode, VolumeSpec};

mod histories;
mod kept;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Act {
    Pass(u64),
    Answers(usize, Answer),
    Hint(u32, u16, Op, Option<u64>),
    Census(u32, Option<u64>, u64),
    Unmount(usize),
    Mount(usize, u32, bool),
    Options(usize, &'static str),
    Finish(u64, Outcome),
    Return(u64),
    Report(u64, usize, ProbeResult),
    Now(usize),
    Look(u32),
    Renewed(u32, u64),
    Mode(usize, Mode),
    Attempts(usize, u32),
    Unfinished(u64, usize),
    Stray(u64),
    Restart,
    Reboot,
    Acknowledge(usize),
    Daemons(u32, u32),
    Devices(u32, u32),
    Server(bool),
    Hook(usize, Option<HookAnswer>),
    Shows(u64),
}

fn result() -> impl Strategy<Value = ProbeResult> {
    prop_oneof![
        4 => Just(good()),
        4 => prop_oneof![Just(5), Just(13), Just(30), Just(107), Just(116), Just(2), Just(28), 0..200_u16]
            .prop_flat_map(|errno| (0..5_usize).prop_map(move |step| ProbeResult::Failed {
                step: [ProbeStep::Identity, ProbeStep::Root, ProbeStep::Sentinel, ProbeStep::Device, ProbeStep::Write][step],
                errno: Errno(errno),
            })),
        1 => prop_oneof![Just(ProbeResult::SentinelMissing), Just(ProbeResult::SentinelDiffers),
            Just(ProbeResult::SentinelUnusable)],
        1 => (prop_oneof![Just(13), Just(28), Just(30), Just(5)], any::<bool>()).prop_map(|(errno, read_data)| {
            let read = ProbeOk { root_inode: 2, read_data, ..ProbeOk::default() };
            ProbeResult::WriteFailed { errno: Errno(errno), read }
        }),
        1 => any::<bool>().prop_map(|read_data| ProbeResult::Ok(ProbeOk {
            root_inode: 2,
            read_data,
            wrote_data: true,
            ..ProbeOk::default()
        })),
        1 => Just(ProbeResult::WrongMount { found: device(99) }),
        1 => prop_oneof![Just(NotRun::WorkerLost), Just(NotRun::TooManyAbandoned), Just(NotRun::Unreachable),
            Just(NotRun::NotThatUser)].prop_map(ProbeResult::NotRun),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![6 => result().prop_map(Answer::Now), 1 => Just(Answer::Hangs), 1 => Just(Answer::Never)]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Changed),
        Just(Outcome::Failed(Errno(5))),
        Just(Outcome::TimedOut),
        Just(Outcome::Refused(Refusal::TableChanged)),
        Just(Outcome::Refused(Refusal::SameSuperblock)),
    ]
}

fn hook_answer() -> impl Strategy<Value = HookAnswer> {
    prop_oneof![
        3 => Just(HookAnswer::Remount),
        1 => Just(HookAnswer::Resolved),
        2 => (0..200_u64).prop_map(|time| HookAnswer::Wait(seconds(time))),
        1 => Just(HookAnswer::Escalate),
        1 => Just(HookAnswer::Nothing(NoAnswer::Bad)),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let volume = || 0..NAMES.len();
    let errno = || prop_oneof![Just(5), Just(13), Just(30), Just(107), Just(116), Just(28), 0..200_u16];
    let mode = prop_oneof![Just(Mode::Off), Just(Mode::Observe), Just(Mode::DryRun), Just(Mode::Act)];
    let options = prop_oneof![Just("rw"), Just("ro"), Just("rw,shutdown"), Just("rw,emergency_ro")];
    prop_oneof![
        8 => (0..40_000_u64).prop_map(Act::Pass),
        4 => (volume(), answer()).prop_map(|(volume, answer)| Act::Answers(volume, answer)),
        6 => (9..16_u32, errno(), 0..10_usize, prop::option::of(0..4_u64))
            .prop_map(|(minor, errno, op, root)| Act::Hint(minor, errno, Op::ALL[op], root)),
        3 => (9..16_u32, prop::option::of(0..4_u64), 0..20_u64)
            .prop_map(|(minor, root, waited)| Act::Census(minor, root, waited)),
        2 => volume().prop_map(Act::Unmount),
        3 => (volume(), 9..16_u32, any::<bool>()).prop_map(|(volume, minor, over)| Act::Mount(volume, minor, over)),
        1 => (volume(), options).prop_map(|(volume, options)| Act::Options(volume, options)),
        4 => (0..4_u64, outcome()).prop_map(|(which, outcome)| Act::Finish(which, outcome)),
        2 => (0..60_u64).prop_map(Act::Return),
        2 => (0..60_u64, volume(), result()).prop_map(|(id, volume, result)| Act::Report(id, volume, result)),
        1 => volume().prop_map(Act::Now),
        1 => (9..16_u32).prop_map(Act::Look),
        1 => (9..16_u32, 0..30_u64).prop_map(|(minor, ago)| Act::Renewed(minor, ago)),
        2 => (volume(), mode).prop_map(|(volume, mode)| Act::Mode(volume, mode)),
        1 => (volume(), 0..4_u32).prop_map(|(volume, attempts)| Act::Attempts(volume, attempts)),
        1 => (0..90_u64, volume()).prop_map(|(plan, volume)| Act::Unfinished(plan, volume)),
        1 => (0..200_u64).prop_map(Act::Stray),
        1 => Just(Act::Restart),
        1 => Just(Act::Reboot),
        1 => volume().prop_map(Act::Acknowledge),
        1 => (9..16_u32, 1..3_u32).prop_map(|(minor, pid)| Act::Daemons(minor, pid)),
        1 => (9..16_u32, 90..92_u32).prop_map(|(minor, below)| Act::Devices(minor, below)),
        2 => any::<bool>().prop_map(Act::Server),
        2 => (volume(), prop::option::weighted(0.9, hook_answer()))
            .prop_map(|(volume, answer)| Act::Hook(volume, answer)),
        2 => (0..4_u64).prop_map(Act::Shows),
    ]
}

fn specs() -> Vec<VolumeSpec> {
    let kinds = [("nfs4", "filer:/a"), ("fuse.sshfs", "host:"), ("ext4", "/dev/sdb"), ("nfs4", "filer:/d")];
    let mut specs: Vec<VolumeSpec> = NAMES
        .iter()
        .zip(kinds)
        .map(|(name, (fstype, source))| spec(name, fstype, source, Mode::Act))
        .collect();
    let how = HookWay::Exec(vec!["/ask".into()]);
    specs[1].repair.hook = Some(Hook { how: how.clone(), timeout: seconds(2) });
    specs[2].repair.hook = Some(Hook { how, timeout: seconds(10) });
    specs
}

fn carry_out(world: &mut World, act: Act) {
    let path = |volume: usize| alloc::format!("/mnt/{}", NAMES[volume]);
    let spec = |world: &World, volume: usize| world.policy.volumes[volume].clone();
    match act {
        Act::Pass(time) => world.run(millis(time)),
        Act::Answers(volume, answer) => world.answer(NAMES[volume], answer),
        Act::Hint(minor, errno, op, root) => world.hint(minor, root, errno, op),
        Act::Census(minor, root, waited) => world.census(minor, root, waited),
        Act::Unmount(volume) => world.unmount(&path(volume)),
        Act::Mount(volume, minor, over) => mount_again(world, volume, minor, over),
        Act::Options(volume, options) => {
            let mountpoint = spec(world, volume).mountpoint;
            for mount in world.mounts.iter_mut().filter(|mount| mount.mountpoint == mountpoint) {
                mount.super_options = Options::parse(options.as_bytes());
            }
            world.table();
        }
        Act::Finish(which, outcome) => {
            let running = world.running();
            let id = running.get(usize::try_from(which).unwrap()).map_or(PlanId(which), |plan| plan.id);
            world.finish(id, outcome);
        }
        Act::Return(id) => world.feed(Input::ProbeReturned(ProbeId(id))),
        Act::Report(id, volume, result) => world.feed(Input::Probe(ProbeReport {
            id: ProbeId(id),
            volume: VolumeId::new(NAMES[volume]),
            generation: Generation(id % 4),
            started: world.now,
            took: millis(id),
            result,
        })),
        Act::Look(minor) => world.feed(Input::Look(device(minor))),
        Act::Renewed(minor, ago) => {
            let seen = world.now - seconds(ago);
            world.feed(Input::Renewed(device(minor), seen));
        }
        Act::Now(volume) => world.feed(Input::ProbeNow(VolumeId::new(NAMES[volume]))),
        Act::Mode(volume, mode) => {
            world.policy.volumes[volume].watch.mode = mode;
            world.feed(Input::Policy(world.policy.clone()));
        }
        Act::Attempts(volume, attempts) => {
            world.policy.volumes[volume].repair.max_attempts = attempts;
            world.feed(Input::Policy(world.policy.clone()));
        }
        Act::Unfinished(plan, volume) => world.feed(Input::Unfinished(vec![Unfinished {
            plan: PlanId(plan),
            volume: VolumeId::new(NAMES[volume]),
            mountpoint: spec(world, volume).mountpoint,
            stage: alloc::format!("/run/mountie/stage/{plan}").as_str().into(),
            old: Some(device(10)),
            marks: None,
            holders: alloc::collections::BTreeSet::new(),
        }])),
        Act::Stray(name) => {
            let path = alloc::format!("/run/mountie/stage/{name}");
            world.mounts.push(mount(5000 + u32::try_from(name).unwrap(), 99, &path, "nfs4", "filer:/a"));
            world.table();
        }
        other => from_outside(world, &other),
    }
}

/// What comes from the agent's own life, from people, and from below.
fn from_outside(world: &mut World, act: &Act) {
    match act {
        Act::Restart => {
            world.restart();
            world.table();
        }
        Act::Reboot => {
            world.reboot(Monotonic::from_nanos(30_000_000_000));
            world.table();
        }
        Act::Acknowledge(volume) => drop(world.acknowledge(NAMES[*volume])),
        Act::Daemons(minor, pid) => {
            let daemon = Daemon { pid: *pid, comm: "sshfs".into(), unit: None };
            world.feed(Input::Daemons([(device(*minor), daemon)].into()));
        }
        Act::Devices(minor, below) => {
            let below = Device { number: device(*below), name: "sda".into() };
            world.feed(Input::Devices([(device(*minor), vec![below])].into()));
        }
        Act::Server(is_away) => {
            world.away.clear();
            if *is_away {
                world.away.insert("filer".into());
            }
        }
        Act::Hook(volume, answer) => drop(world.hooks.insert(NAMES[*volume].into(), answer.clone())),
        Act::Shows(which) => {
            let running = world.running();
            let id = running.get(usize::try_from(*which).unwrap()).map_or(PlanId(*which), |plan| plan.id);
            world.feed(Input::PlanShows(id));
        }
        other => unreachable!("{other:?}"),
    }
}

/// Another mount at a volume's place: over what is there, or instead of it.
fn mount_again(world: &mut World, volume: usize, minor: u32, over: bool) {
    let spec = world.policy.volumes[volume].clone();
    if !over {
        world.mounts.retain(|mount| mount.mountpoint != spec.mountpoint);
    }
    let top = MountTable::new(world.mounts.clone()).top_at(&spec.mountpoint).map(|mount| mount.id);
    let id = 1000 + u32::try_from(world.log.len()).unwrap();
    let source = alloc::string::String::from_utf8(spec.source.unwrap()).unwrap();
    let path = alloc::format!("/mnt/{}", NAMES[volume]);
    let mut new = mount(id, minor, &path, spec.fstype.as_deref().unwrap(), &source);
    new.parent = top.unwrap_or(MountId(1));
    world.mounts.push(new);
    world.table();
}

/// A new mount at each volume's place, and nothing else. That of a FUSE volume may let its maker alone look.
fn mount_anew(world: &mut World, is_private: bool) {
    world.mounts.truncate(1);
    for (spec, number) in world.policy.volumes.iter().zip(700..) {
        let path = alloc::format!("/mnt/{}", spec.id);
        let source = alloc::string::String::from_utf8(spec.source.clone().unwrap()).unwrap();
        let mut new = mount(number, number, &path, spec.fstype.as_deref().unwrap(), &source);
        if is_private && new.fstype.starts_with("fuse") {
            new.super_options = Options::parse(b"rw,user_id=1000");
        }
        world.mounts.push(new);
    }
    world.table();
}

fn end_plans(world: &mut World) {
    for _ in 0..20 {
        for plan in world.running() {
            world.finish(plan.id, Outcome::Failed(Errno(5)));
        }
    }
}

/// Whether this volume has never let anybody look.
fn was_never_readable(world: &World, volume: usize) -> bool {
    !world.engine.volumes[&VolumeId::new(NAMES[volume])].evidence.was_readable
}

/// Whether this lets somebody look at a volume that has let nobody.
fn lets_in(act: &Act, closed: usize) -> bool {
    let is_answer = |result: &ProbeResult| {
        !matches!(
            result,
            ProbeResult::Failed { .. }
                | ProbeResult::TimedOut { .. }
                | ProbeResult::WrongMount { .. }
                | ProbeResult::NotRun(_)
        )
    };
    match act {
        Act::Answers(volume, Answer::Now(result)) => *volume == closed && is_answer(result),
        Act::Report(.., result) => is_answer(result),
        _ => false,
    }
}

/// Puts everything right: the mounts, the answers, what is out. One volume may refuse as it has always refused.
fn heal(world: &mut World, closed: Option<usize>) {
    for (name, number) in NAMES.iter().zip(0..) {
        let answer = if closed == Some(number) { fails(13) } else { Answer::Now(good()) };
        world.answer(name, answer);
    }
    mount_anew(world, false);
    world.feed(Input::Census(Census { at: world.now, blocked: Vec::new() }));
    end_plans(world);
    world.run(seconds(700));
}

/// Outputs for one sequence of inputs, with the volumes and the lines of the table in another order.
fn outputs(inputs: &[(u64, u32, u16)], is_reversed: bool) -> Vec<Vec<Output>> {
    let order = |mut specs: Vec<VolumeSpec>| {
        if is_reversed {
            specs.reverse();
        }
        specs
    };
    let mut policy = Policy { volumes: order(specs()), ..Policy::default() };
    policy.discovery.enabled = true;
    let mut engine = Engine::new(policy, PlanId(1));
    let mut world = World::new(specs());
    world.mounts.push(mount(300, 300, "/srv/x", "nfs4", "filer:/x"));
    world.mounts.push(mount(301, 300, "/srv/y", "nfs4", "filer:/x"));
    if is_reversed {
        world.mounts.reverse();
    }
    let mut all = vec![engine.handle(world.now, Input::MountTable(MountTable::new(world.mounts.clone())))];
    for (pause, minor, errno) in inputs {
        world.now = world.now + millis(*pause);
        let errors = crate::observation::KernelErrors {
            source: crate::observation::Source::Bpf,
            superblock: device(*minor),
            root_inode: None,
            errno: Errno(*errno),
            op: Op::Write,
            count: 2,
            at: world.now,
            after: None,
            task: None,
        };
        all.push(engine.handle(world.now, Input::Kernel(errors)));
        all.push(engine.handle(world.now, Input::Deadline));
    }
    let report = PlanReport { put_back: true, ..PlanReport::of(PlanId(1), Outcome::TimedOut, millis(1)) };
    all.push(engine.handle(world.now, Input::PlanFinished(report)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_inputs_breaks_what_must_hold(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(specs());
        world.table();
        for act in acts {
            carry_out(&mut world, act);
        }
    }

    #[test]
    fn once_everything_is_right_every_volume_becomes_healthy_or_is_as_unknown_as_ever(
        acts in prop::collection::vec(act(), 1..40),
        closed in prop::option::of(0..NAMES.len()),
    ) {
        let mut world = World::new(specs());
        closed.into_iter().for_each(|closed| world.answer(NAMES[closed], fails(13)));
        world.table();
        for act in acts.into_iter().filter(|act| closed.is_none_or(|closed| !lets_in(act, closed))) {
            carry_out(&mut world, act);
        }
        let closed = closed.filter(|closed| was_never_readable(&world, *closed));
        heal(&mut world, closed);
        for status in world.engine.volumes() {
            let is_closed = closed.is_some_and(|closed| status.id.as_str() == NAMES[closed]);
            let is_unknown = status.mode == Mode::Off || is_closed;
            let expected = if is_unknown { HealthState::Unknown } else { HealthState::Healthy };
            prop_assert_eq!(status.condition.state, expected, "{:?}", status);
        }
    }

    #[test]
    fn a_restart_alone_ends_no_trouble_and_tells_none(acts in prop::collection::vec(act(), 1..40)) {
        let mut world = World::new(specs());
        world.table();
        for act in acts {
            carry_out(&mut world, act);
        }
        let before = world.engine.volumes();
        // For the next agent it is in probation.
        let unbelieved: Vec<_> = world.engine.volumes.values().map(|volume| volume.past.unbelieved).collect();
        world.log.clear();
        world.restart();
        prop_assert!(world.transitions().iter().all(|told| told.to == HealthState::Unknown), "{:?}", world.log);
        for ((old, new), unbelieved) in before.iter().zip(world.engine.volumes()).zip(unbelieved) {
            let is_kept = old.mode != Mode::Off && (old.condition.state.is_sick() || old.condition.state == HealthState::Probation);
            if is_kept {
                prop_assert_eq!(old.condition.reason, new.condition.reason);
                prop_assert_eq!(old.condition.since, new.condition.since);
                prop_assert_eq!(old.condition.state.is_sick(), new.condition.state.is_sick());
            } else if let Some(reason) = unbelieved {
                let expected = (HealthState::Probation, Some(reason));
                prop_assert_eq!((new.condition.state, new.condition.reason), expected);
            } else {
                prop_assert_eq!(new.condition.state, HealthState::Unknown, "{:?}", old.condition);
            }
            prop_assert_eq!(old.falls, new.falls);
        }
    }

    #[test]
    fn outputs_do_not_depend_on_the_order_of_settings_and_lines(
        inputs in prop::collection::vec((0..5000_u64, prop_oneof![10..14_u32, Just(300)], prop_oneof![Just(5), Just(116)]), 0..60)
    ) {
        prop_assert_eq!(outputs(&inputs, false), outputs(&inputs, true));
    }
}

#[test]
fn a_dead_volume_in_every_mode_is_told_and_only_repaired_in_act() {
    for mode in [Mode::Observe, Mode::DryRun, Mode::Act] {
        let mut specs = specs();
        specs.iter_mut().for_each(|spec| spec.watch.mode = mode);
        let mut world = World::healthy(specs);
        NAMES.iter().for_each(|name| world.answer(name, fails(107)));
        world.run(seconds(60));
        assert!(world.engine.volumes().iter().all(|status| status.condition.state.is_sick()));
        assert_eq!(world.running().is_empty(), mode != Mode::Act);
    }
}
