//! The sensor with shells in the place of its child.

use super::*;
use agent_core::id::{SuperblockId, VolumeId};

fn dead() -> Dead {
    Dead {
        volume: VolumeId::new("v"),
        superblock: SuperblockId { major: 0, minor: 7 },
        holding: None,
        ids: std::collections::BTreeSet::new(),

        gone: std::collections::BTreeSet::new(),
        is_shown: false,
    }
}

/// The first event that the sensor sends when its child is this script.
fn first(script: &str) -> SensorEvent {
    let program = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
    let (events, mut received) = tokio::sync::mpsc::channel(8);
    let (handle, state) = start(program, events);
    assert_eq!(state, SourceState::Running);
    handle.as_ref().unwrap().ask(vec![dead()]);
    received.blocking_recv().unwrap()
}

#[test]
fn an_answer_is_told_as_it_is() {
    let script = r#"cat > /dev/null
        echo '{"found":[{"mounts":2,"shown":[],"ids":[5],"files":0,"holders":[]}],"refused":0,"is_partial":false,"micros":9}'"#;
    let SensorEvent::Consumers(consumers) = first(script) else { panic!() };
    assert_eq!((consumers.found.len(), consumers.found[0].mounts), (1, 2));
    assert_eq!((consumers.found[0].volume.as_str(), consumers.found[0].has_holding), ("v", false));
}

#[test]
fn a_child_that_says_nothing_costs_the_source_its_word() {
    for script in ["exit 3", "cat > /dev/null; echo nonsense"] {
        let event = first(script);
        let is_told = matches!(
            &event,
            SensorEvent::Source(SourceName::Consumers, SourceState::Degraded(why)) if why.contains("no answer")
        );
        assert!(is_told, "{event:?}");
    }
}

#[test]
fn what_may_not_be_looked_at_is_told() {
    let answer = |refused, is_partial| Answer { found: Vec::new(), refused, is_partial, micros: 0 };
    assert_eq!(state_of(&answer(0, false)), SourceState::Running);
    for (refused, is_partial) in [(3, false), (0, true), (3, true)] {
        assert!(matches!(state_of(&answer(refused, is_partial)), SourceState::Degraded(_)));
    }
}
