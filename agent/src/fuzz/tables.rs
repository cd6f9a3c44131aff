//! Any text that parses as a mount table, given to all that works on tables: nothing a kernel or a forger prints
//! may trouble discovery or the engine.

use std::collections::BTreeSet;

use agent_core::consumer::Dead;
use agent_core::discovery::{Presence, discover};
use agent_core::engine::{Engine, Input, Output};
use agent_core::id::{PlanId, VolumeId};
use agent_core::memory::Memory;
use agent_core::path::BytePath;
use agent_core::policy::Policy;
use agent_core::time::Monotonic;
use agent_core::topology::MountTable;
use agent_core::topology::diff::changed;
use agent_core::volume::{Identity, Mode, Repair, VolumeSpec, Watch};

use crate::sys::mountinfo::parse_table;

/// One table, another that lost half of its lines, and the first again.
pub(super) fn mount_table(input: &[u8]) {
    let mounts = parse_table(input).mounts;
    let half: Vec<_> = mounts.iter().step_by(2).rev().cloned().collect();
    let (whole, half) = (MountTable::new(mounts), MountTable::new(half));
    assert!(changed(&whole, &whole.clone()).is_empty());
    let policy =
        Policy { volumes: vec![spec("models", "/mnt/models"), spec("data", "/data")], ..Policy::default() };
    check_sightings(&policy, &whole);
    let mut engine = Engine::new(policy, PlanId(1));
    let mut now = Monotonic::from_nanos(1_000_000_000);
    for table in [&whole, &half, &whole] {
        now = now + std::time::Duration::from_secs(1);
        check_outputs(&engine.handle(now, Input::MountTable(table.clone())));
        now = engine.next_deadline().unwrap_or(now).max(now);
        check_outputs(&engine.handle(now, Input::Deadline));
        assert!(engine.next_deadline().is_none_or(|next| next > now));
    }
    let known = engine.volumes().len();
    // What the half lost may be remembered beside what the whole brought back at other paths.
    assert!(known <= 2 * whole.mounts().len() + 2, "{known} volumes");
}

/// What an earlier run knew of a volume, whatever it is: it harms neither the engine nor the volume's future.
pub(super) fn remembered(memory: Memory, now: Monotonic) {
    let policy = Policy { volumes: vec![spec("models", "/mnt/models")], ..Policy::default() };
    let mut engine = Engine::new(policy, PlanId(1));
    check_outputs(&engine.handle(now, Input::Remembered(vec![memory])));
    let table = b"31 22 0:46 / /mnt/models rw - nfs4 filer1:/export/models rw\n";
    check_outputs(&engine.handle(now, Input::MountTable(MountTable::new(parse_table(table).mounts))));
    let mut now = now;
    for _ in 0..4 {
        let Some(next) = engine.next_deadline() else { break };
        assert!(next > now, "it asks for a time that was");
        now = next;
        check_outputs(&engine.handle(now, Input::Deadline));
    }
    assert_eq!(engine.volumes().len(), 1);
}

fn spec(name: &str, mountpoint: &str) -> VolumeSpec {
    VolumeSpec {
        id: VolumeId::new(name),
        mountpoint: BytePath::from(mountpoint),
        source: Some(b"filer1:/export/models".to_vec()),
        fstype: Some("nfs4".to_owned()),
        options: Vec::new(),
        watch: Watch { mode: Mode::Act, ..Watch::default() },
        sentinel: None,
        write_probe: false,
        identity: Identity::default(),
        repair: Repair::default(),
    }
}

/// Every volume once, in order; what is present is what a walk ends on.
fn check_sightings(policy: &Policy, table: &MountTable) {
    let sightings = discover(policy, table, &|_| None);
    for pair in sightings.windows(2) {
        if let [first, second] = pair {
            assert!(first.id <= second.id);
        }
    }
    for sighting in &sightings {
        let visible = table.visible_at(&sighting.mountpoint);
        if sighting.presence == Presence::Present {
            assert_eq!(sighting.mount.map(|mount| mount.id), visible.map(|mount| mount.id));
        }
        assert!(!sighting.further.contains(&sighting.mountpoint));
    }
}

/// One probe for a superblock at a time, and nothing twice in what the kernel counts for, what is kept, and what is
/// looked for.
fn check_outputs(outputs: &[Output]) {
    let (mut looked_at, mut remembered, mut dead) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for output in outputs {
        match output {
            Output::Probe(order) | Output::Errand(order) => {
                assert!(looked_at.insert(order.superblock), "two probes of one superblock")
            }
            Output::Track(tracked) => {
                assert_eq!(tracked.iter().collect::<BTreeSet<_>>().len(), tracked.len());
            }
            Output::Remember(memory) => assert!(remembered.insert(&memory.volume), "{}", memory.volume),
            Output::FindConsumers(asked) => {
                let key = |dead: &Dead| (dead.volume.clone(), dead.superblock, dead.holding.is_some());
                assert!(asked.iter().all(|asked| dead.insert(key(asked))), "asked twice: {asked:?}");
            }
            Output::Execute(_)
            | Output::WouldExecute(_)
            | Output::Stop(_)
            | Output::Ask(_)
            | Output::Reach(_)
            | Output::Follow(..)
            | Output::Held(..)
            | Output::Transition(_)
            | Output::Settled { .. }
            | Output::Acknowledged { .. }
            | Output::Ordered(_)
            | Output::Pauses(_)
            | Output::Deed(_)
            | Output::Incident(..)
            | Output::Forget(_)
            | Output::NoErrand { .. }
            | Output::LetGo(_)
            | Output::Note(_) => {}
        }
    }
}
