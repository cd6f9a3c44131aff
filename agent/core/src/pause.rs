//! Repairs that a person has stopped for a while: of one volume, or of the whole node. Sight goes on.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::health::loss::Actor;
use crate::id::VolumeId;
use crate::time::Monotonic;

/// What a pause is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Every volume of the node, also those that come later.
    Node,
    /// One volume.
    Volume(VolumeId),
}

/// One pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Since when, as far as this boot goes back.
    pub since: Monotonic,
    /// Since when on the wall clock, where it began before this boot.
    pub since_wall: Option<Duration>,
    /// It ends by itself then.
    pub until: Option<Monotonic>,
    /// Who.
    pub by: Actor,
    /// Why, in that person's words.
    pub reason: Option<String>,
}

/// Every pause that holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pauses {
    /// Of the whole node.
    pub node: Option<Pause>,
    /// Of single volumes.
    pub volumes: BTreeMap<VolumeId, Pause>,
}

impl Pause {
    fn is_over(&self, now: Monotonic) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Pauses {
    /// The pause that holds a volume back, and whether it is the node's: of two the one that ends last.
    #[must_use]
    pub fn of(&self, volume: &VolumeId) -> Option<(&Pause, bool)> {
        let own = self.volumes.get(volume).map(|pause| (pause, false));
        let node = self.node.as_ref().map(|pause| (pause, true));
        let ends_last = |(pause, _): &(&Pause, bool)| (pause.until.is_none(), pause.until);
        [own, node].into_iter().flatten().max_by_key(ends_last)
    }

    /// Sets one, in the place of what was set for the same.
    pub fn set(&mut self, scope: Scope, pause: Pause) {
        match scope {
            Scope::Node => self.node = Some(pause),
            Scope::Volume(id) => drop(self.volumes.insert(id, pause)),
        }
    }

    /// Ends one; for the node, all of them. Returns what ended.
    pub fn end(&mut self, scope: &Scope) -> Vec<Scope> {
        match scope {
            Scope::Volume(id) => {
                self.volumes.remove(id).map(|_| Scope::Volume(id.clone())).into_iter().collect()
            }
            Scope::Node => {
                let node = self.node.take().map(|_| Scope::Node);
                let own = core::mem::take(&mut self.volumes).into_keys().map(Scope::Volume);
                node.into_iter().chain(own).collect()
            }
        }
    }

    /// Ends those whose time is over, and returns them.
    pub fn expire(&mut self, now: Monotonic) -> Vec<Scope> {
        let over = |pause: &Pause| pause.is_over(now);
        let node = self.node.take_if(|pause| over(pause)).map(|_| Scope::Node);
        let own: Vec<VolumeId> =
            self.volumes.iter().filter(|(_, pause)| over(pause)).map(|(id, _)| id.clone()).collect();
        self.volumes.retain(|_, pause| !over(pause));
        node.into_iter().chain(own.into_iter().map(Scope::Volume)).collect()
    }

    /// When the next one ends by itself.
    #[must_use]
    pub fn next_end(&self) -> Option<Monotonic> {
        self.node.iter().chain(self.volumes.values()).filter_map(|pause| pause.until).min()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_nanos(seconds * 1_000_000_000)
    }

    fn pause(until: Option<u64>) -> Pause {
        let by = Actor { uid: 0, pid: 1, comm: String::new() };
        Pause { since: at(1), since_wall: None, until: until.map(at), by, reason: None }
    }

    #[test]
    fn the_pause_that_ends_last_is_the_one_that_is_told() {
        let (a, b) = (VolumeId::new("a"), VolumeId::new("b"));
        let mut pauses = Pauses::default();
        assert_eq!(pauses.of(&a), None);
        pauses.set(Scope::Volume(a.clone()), pause(Some(50)));
        pauses.set(Scope::Node, pause(Some(20)));
        assert_eq!(pauses.of(&a), Some((&pause(Some(50)), false)));
        assert_eq!(pauses.of(&b), Some((&pause(Some(20)), true)));
        pauses.set(Scope::Node, pause(None));
        assert_eq!(pauses.of(&a), Some((&pause(None), true)));
    }

    #[test]
    fn each_ends_in_its_time_and_the_node_ends_all() {
        let (a, b) = (VolumeId::new("a"), VolumeId::new("b"));
        let mut pauses = Pauses::default();
        pauses.set(Scope::Volume(a.clone()), pause(Some(50)));
        pauses.set(Scope::Volume(b.clone()), pause(None));
        pauses.set(Scope::Node, pause(Some(20)));
        assert_eq!(pauses.next_end(), Some(at(20)));
        assert_eq!(pauses.expire(at(19)), []);
        assert_eq!(pauses.expire(at(20)), [Scope::Node]);
        assert_eq!(pauses.expire(at(60)), [Scope::Volume(a.clone())]);
        assert_eq!(pauses.next_end(), None);
        pauses.set(Scope::Node, pause(None));
        assert_eq!(pauses.end(&Scope::Volume(a)), vec![]);
        assert_eq!(pauses.end(&Scope::Node), [Scope::Node, Scope::Volume(b)]);
        assert_eq!(pauses, Pauses::default());
    }
}
