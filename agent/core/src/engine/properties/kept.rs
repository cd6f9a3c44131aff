//! What outlives the agent, and what volumes have in common: nothing is lost on the way to the store and back, and
//! what is told as one incident stays one, of bounded size.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{NAMES, act, carry_out, specs};
use crate::engine::tests::world::{Answer, World, fails, good, millis, seconds, spec};
use crate::id::VolumeId;
use crate::incident::{Incident, IncidentId, Moment};
use crate::memory::Memory;
use crate::observation::Op;
use crate::verdict::HealthState;
use crate::volume::{Mode, VolumeSpec};

/// Memories of volumes as the engine would write them now.
fn exported(world: &World) -> BTreeMap<VolumeId, Memory> {
    world.engine.volumes.iter().map(|(id, volume)| (id.clone(), volume.memory())).collect()
}

/// Without what may lag behind in the store: what only words it, and what being taken changes.
fn settled(memory: &Memory, world: &World) -> Memory {
    let mut memory = taken(memory.clone(), world);
    if let Some(trouble) = &mut memory.trouble {
        trouble.message.clear();
        trouble.by_errors = false;
    }
    memory
}

/// What a memory becomes by being taken: no plan is running any more, what is on probation is not kept sick, and what
/// is not watched has no trouble.
fn taken(mut memory: Memory, world: &World) -> Memory {
    let spec = world.policy.volumes.iter().find(|spec| spec.id == memory.volume).unwrap();
    memory.trouble = memory.trouble.filter(|_| spec.watch.mode != Mode::Off);
    if let Some(trouble) = &mut memory.trouble {
        if trouble.state == HealthState::Recovering {
            trouble.state = HealthState::Degraded;
        }
        trouble.by_errors &= trouble.state.is_sick();
        trouble.by_table &= trouble.state.is_sick();
    }
    // What a hook has said is about a trouble that is not over.
    if !memory.trouble.as_ref().is_some_and(|trouble| trouble.state.is_sick()) {
        (memory.asked, memory.asked_of_consumers) = (None, None);
    }
    // Attempts that the operator does not allow any more are spent.
    let allowed = usize::try_from(spec.repair.max_attempts).unwrap();
    let surplus = memory.attempts.len().saturating_sub(allowed);
    memory.attempts.drain(..surplus);
    memory
}

/// Two volumes of each of two servers, and one of neither.
const SHARED: [(&str, &str); 5] =
    [("a", "one:/a"), ("b", "one:/b"), ("c", "two:/c"), ("d", "two:/d"), ("e", "three:/e")];

fn of_few_servers() -> Vec<VolumeSpec> {
    let own = |(name, source): (&str, &str)| {
        let mut spec = spec(name, "nfs4", source, Mode::Observe);
        // Fewer looks over the same time.
        spec.watch.interval = seconds(30);
        spec
    };
    SHARED.into_iter().map(own).collect()
}

/// Which volume answers how from now on, whether somebody else meets it first, and how long nothing else happens.
fn answers() -> impl Strategy<Value = Vec<(usize, Answer, bool, u64)>> {
    let answer = prop_oneof![2 => Just(fails(116)), 1 => Just(fails(5)), 2 => Just(Answer::Now(good()))];
    let pause = prop_oneof![4 => 0..3_000_u64, 1 => 0..60_000_u64];
    prop::collection::vec((0..SHARED.len(), answer, any::<bool>(), pause), 1..40)
}

/// Whether incidents were told in an order that makes sense; those that are not over yet.
fn open_after(told: &[(Moment, Arc<Incident>)]) -> BTreeSet<IncidentId> {
    let (mut begun, mut open) = (BTreeSet::new(), BTreeSet::new());
    for (moment, incident) in told {
        let names: BTreeSet<_> = incident.members.iter().map(|member| &member.volume).collect();
        assert!(names.len() == incident.members.len() && names.len() <= Incident::MOST);
        assert!(incident.members.is_sorted_by_key(|member| member.fell), "{incident:?}");
        match moment {
            Moment::Began => {
                assert!(begun.insert(incident.id) && open.insert(incident.id), "{} twice", incident.id);
                assert_eq!(incident.ended, None);
            }
            Moment::Ended => {
                assert!(open.remove(&incident.id), "{} ends without having begun", incident.id);
                let last = incident.members.iter().filter_map(|member| member.recovered).max();
                assert_eq!(incident.ended, last, "{incident:?}");
            }
        }
    }
    open
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_has_what_is_known(acts in prop::collection::vec(act(), 1..60)) {
        let mut world = World::new(specs());
        world.table();
        for act in acts {
            carry_out(&mut world, act);
            let known = exported(&world);
            prop_assert_eq!(world.stored.keys().collect::<Vec<_>>(), known.keys().collect::<Vec<_>>());
            for (stored, known) in world.stored.values().zip(known.values()) {
                prop_assert_eq!(settled(stored, &world), settled(known, &world));
            }
        }
    }

    #[test]
    fn what_is_taken_from_the_store_is_what_was_given_to_it(acts in prop::collection::vec(act(), 1..60)) {
        let mut world = World::new(specs());
        world.table();
        acts.into_iter().for_each(|act| carry_out(&mut world, act));
        let given: BTreeMap<_, _> =
            world.stored.iter().map(|(id, memory)| (id.clone(), taken(memory.clone(), &world))).collect();
        world.restart();
        prop_assert_eq!(&exported(&world), &given);
        // And once more: nothing is worn off by being taken.
        world.stored = exported(&world);
        world.restart();
        prop_assert_eq!(&exported(&world), &given);
        prop_assert_eq!(given.len(), NAMES.len());
    }

    #[test]
    fn an_incident_begins_once_ends_once_and_leaves_nothing_behind(answers in answers()) {
        let mut world = World::new(of_few_servers());
        world.table();
        for (volume, answer, is_met, pause) in answers {
            world.answer(SHARED[volume].0, answer);
            if is_met {
                world.hint(10 + u32::try_from(volume).unwrap(), None, 116, Op::Read);
            }
            world.run(millis(pause));
            let open = world.engine.incidents().iter().filter(|incident| incident.ended.is_none()).count();
            prop_assert!(open <= 2, "{:?}", world.engine.incidents());
        }
        SHARED.iter().for_each(|(name, _)| world.answer(name, Answer::Now(good())));
        world.run(seconds(700));
        prop_assert_eq!(open_after(&world.told()), BTreeSet::new());
        prop_assert!(world.engine.incidents().iter().all(|incident| incident.ended.is_some()));
        prop_assert_eq!(world.engine.incidents.sick().count(), 0);
        prop_assert_eq!(world.engine.incidents.next_due(), None);
    }
}
