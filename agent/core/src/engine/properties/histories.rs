//! What history may do and what it may not: it limits repairs, and it moves states only along [`step`]; it does not
//! decide what a volume is called once what is seen of it has been the same for long enough.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Act, NAMES, act, carry_out, end_plans, mount_anew, specs};
use crate::engine::tests::world::{Answer, World, fails, good, millis, seconds};
use crate::engine::{Input, Output};
use crate::health::{Event, step};
use crate::id::{PlanId, VolumeId};
use crate::observation::{Census, Op, ProbeResult, ProbeStep};
use crate::time::Monotonic;
use crate::verdict::{HealthState, Reason, Verdict};
use crate::volume::Mode;

const STATES: [HealthState; 7] = [
    HealthState::Unknown,
    HealthState::Healthy,
    HealthState::Suspect,
    HealthState::Degraded,
    HealthState::Recovering,
    HealthState::Probation,
    HealthState::Quarantined,
];

/// The FUSE volume.
const PRIVATE: &str = "b";

/// Every change that one event can make.
fn steps() -> BTreeSet<(HealthState, HealthState)> {
    let reason = Reason::Stale;
    let verdicts = [Verdict::Unknown, Verdict::Healthy, Verdict::Suspect(reason), Verdict::Sick(reason)];
    let events: Vec<Event> = verdicts
        .into_iter()
        .map(Event::Judged)
        .chain([Event::Settled, Event::PlanStarted, Event::PlanFailed, Event::BudgetSpent])
        .chain([Event::BudgetRenewed, Event::Replaced, Event::Idle, Event::Unwatched, Event::OutOfSight])
        .chain([Event::Doubted(reason), Event::Undoubted])
        .collect();
    STATES.into_iter().flat_map(|from| events.iter().map(move |event| (from, step(from, *event)))).collect()
}

/// Repairs that began within an hour before any of them, since the operator last changed the volume. One that was
/// stopped before it had shown anything is none.
#[derive(Default)]
struct Repairs {
    seen: usize,
    begun: BTreeMap<VolumeId, Vec<(Monotonic, PlanId)>>,
}

impl Repairs {
    fn settings_changed(&mut self, volume: usize) {
        self.begun.remove(&VolumeId::new(NAMES[volume]));
    }

    fn check(&mut self, world: &World) {
        for (at, output) in world.log.iter().skip(self.seen) {
            let Output::Execute(plan) = output else { continue };
            if plan.reason.is_none() {
                continue;
            }
            let begun = self.begun.entry(plan.volume.clone()).or_default();
            begun.push((*at, plan.id));
            begun
                .retain(|(earlier, id)| at.since(*earlier) < seconds(3600) && !world.given_back.contains(id));
            let spec = world.policy.volumes.iter().find(|spec| spec.id == plan.volume).unwrap();
            let allowed = usize::try_from(spec.repair.max_attempts).unwrap();
            assert!(begun.len() <= allowed, "{} repairs of {}, allowed {allowed}", begun.len(), plan.volume);
        }
        self.seen = world.log.len();
    }
}

/// How a volume answers at the end.
fn ending() -> impl Strategy<Value = Answer> {
    let errno = prop_oneof![Just(5), Just(30), Just(107), Just(113), Just(116)];
    prop_oneof![3 => Just(Answer::Now(good())), 3 => errno.prop_map(fails), 1 => Just(Answer::Hangs)]
}

/// From here on the same is seen, whatever was before: new mounts, these answers, nobody who waits. A FUSE volume may
/// let nobody look any more.
fn see_only(world: &mut World, endings: &[Answer], is_private: bool) {
    for spec in &mut world.policy.volumes {
        spec.watch.mode = Mode::Observe;
        // Fewer looks over the same time.
        spec.watch.interval = seconds(60);
    }
    world.feed(Input::Policy(world.policy.clone()));
    end_plans(world);
    for (name, answer) in NAMES.iter().zip(endings) {
        world.answer(name, answer.clone());
    }
    if is_private {
        world.answer(PRIVATE, fails(13));
    }
    mount_anew(world, is_private);
    world.feed(Input::Census(Census { at: world.now, blocked: Vec::new() }));
    world.run(seconds(900));
}

/// Errors that are met at one moment: device, errno, operation.
type Moment = Vec<(u32, u16, usize)>;

fn moments() -> impl Strategy<Value = Vec<(u64, Moment)>> {
    let errno = prop_oneof![Just(5), Just(30), Just(107), Just(116), Just(28)];
    let error = (10..14_u32, errno, 0..9_usize);
    prop::collection::vec((0..4000_u64, prop::collection::vec(error, 1..5)), 1..20)
}

/// The volumes after these moments, with the errors of each in this or in the opposite order.
fn after(moments: &[(u64, Moment)], is_reversed: bool) -> Vec<crate::status::VolumeStatus> {
    let mut specs = specs();
    specs.iter_mut().for_each(|spec| spec.watch.mode = Mode::Observe);
    let mut world = World::healthy(specs);
    world.answer("b", fails(116));
    world.answer(
        "c",
        Answer::Now(ProbeResult::Failed { step: ProbeStep::Sentinel, errno: crate::errno::Errno(5) }),
    );
    for (pause, errors) in moments {
        world.run(millis(*pause));
        let mut errors = errors.clone();
        // Of one place, the later error is the one that is shown: only what is of different places commutes.
        errors.sort_by_key(|(minor, ..)| *minor);
        errors.dedup_by_key(|(minor, ..)| *minor);
        if is_reversed {
            errors.reverse();
        }
        for (minor, errno, op) in errors {
            world.hint(minor, None, errno, Op::ALL[op]);
        }
    }
    world.run(seconds(5));
    world.engine.volumes()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_hour_has_more_repairs_than_the_operator_allows(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(specs());
        let mut repairs = Repairs::default();
        NAMES.iter().for_each(|name| world.answer(name, fails(107)));
        world.table();
        for act in acts {
            if let Act::Mode(volume, _) | Act::Attempts(volume, _) = act {
                repairs.check(&world);
                repairs.settings_changed(volume);
            }
            carry_out(&mut world, act);
            repairs.check(&world);
        }
    }

    #[test]
    fn states_change_only_by_one_step_and_from_where_they_are(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(specs());
        world.table();
        let steps = steps();
        let mut states: BTreeMap<VolumeId, HealthState> = BTreeMap::new();
        let mut seen = 0;
        for act in acts {
            let begins_anew = matches!(act, Act::Restart | Act::Reboot);
            if begins_anew {
                states.clear();
            }
            carry_out(&mut world, act);
            let transitions = world.transitions();
            for transition in transitions.iter().skip(seen) {
                // A new agent begins with what was kept, which is not told again.
                let unheard = if begins_anew { transition.from } else { HealthState::Unknown };
                let before = states.insert(transition.volume.clone(), transition.to).unwrap_or(unheard);
                prop_assert_eq!(before, transition.from, "{:?}", transition);
                prop_assert!(steps.contains(&(transition.from, transition.to)), "{:?}", transition);
            }
            seen = transitions.len();
            for status in world.engine.volumes() {
                let now = status.condition.state;
                let unheard = if begins_anew { now } else { HealthState::Unknown };
                let told = states.get(&status.id).copied().unwrap_or(unheard);
                prop_assert_eq!(told, now);
                states.insert(status.id, now);
            }
        }
    }

    #[test]
    fn what_is_seen_decides_and_not_what_was_before(
        one in prop::collection::vec(act(), 0..40),
        other in prop::collection::vec(act(), 0..40),
        endings in prop::collection::vec(ending(), 4),
        is_private in any::<bool>(),
    ) {
        let mut ends = vec![];
        for acts in [one, other] {
            let mut world = World::new(specs());
            world.table();
            acts.into_iter().for_each(|act| carry_out(&mut world, act));
            see_only(&mut world, &endings, is_private);
            let state = |name: &&str| world.state(name);
            ends.push(NAMES.iter().map(state).collect::<Vec<_>>());
        }
        prop_assert_eq!(&ends[0], &ends[1]);
    }

    #[test]
    fn errors_of_one_moment_at_different_places_may_come_in_any_order(moments in moments()) {
        prop_assert_eq!(after(&moments, false), after(&moments, true));
    }
}
