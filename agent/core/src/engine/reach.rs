//! Whether the servers of sick volumes can be reached. While one cannot, nothing is mounted from it and no attempt is
//! spent; it is tried again and again, once for all of its volumes. When it is back, they begin one after the other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{format, string::String};
use core::time::Duration;

use crate::engine::{Engine, Output};
use crate::hash::{jittered, spread};
use crate::id::VolumeId;
use crate::observation::{Reach, ReachReport};
use crate::remediation::service::Service;
use crate::time::Monotonic;

/// An answer speaks for its server for so long.
const FRESH: Duration = Duration::from_secs(5);
/// A connection takes no longer.
const DEADLINE: Duration = Duration::from_secs(3);
/// Whoever tries is given this long beyond that.
const GRACE: Duration = Duration::from_secs(10);
/// The pause after the first failure; grows by as much each time.
const PAUSE: Duration = Duration::from_secs(1);
/// … up to this: a server that is back is not to wait long.
const PAUSE_AT_MOST: Duration = Duration::from_secs(10);
/// What hung on a server that is back may answer by itself, and needs no other mount then.
const MAY_ANSWER: Duration = Duration::from_secs(3);
/// The volumes that waited begin within this time for each of them.
const SPREAD: Duration = Duration::from_millis(500);
/// … and within this for all. Also what waited alone: other nodes wait for the same server.
const SPREAD_AT_LEAST: Duration = Duration::from_secs(2);
const SPREAD_AT_MOST: Duration = Duration::from_secs(60);

/// A server to be tried, by whoever can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReachOrder {
    /// Where.
    pub service: Service,
    /// It is unreachable if no name of it answers by then.
    pub deadline: Duration,
}

/// How things stand with a volume's server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Reached just now, or nobody can tell.
    Reached,
    /// It is being tried for the first time.
    Trying,
    /// Not reachable since then.
    Away(Monotonic),
    /// It is back: not before this time.
    Back(Monotonic),
}

/// What is known of one server.
#[derive(Clone, Debug, Default)]
struct Contact {
    /// Volumes that wait for it.
    waiting: BTreeSet<VolumeId>,
    /// It is tried; it counts as lost then.
    out_until: Option<Monotonic>,
    /// It is tried next.
    next: Option<Monotonic>,
    /// The last answer that was not "no".
    reached: Option<Monotonic>,
    /// Since when it is away, and what the last try said.
    away: Option<(Monotonic, String)>,
    failures: u32,
    /// When it came back, and over how long its volumes are spread.
    back: Option<(Monotonic, Duration)>,
    /// When each of them begins, soonest first.
    turns: BTreeSet<(Monotonic, VolumeId)>,
}

/// All servers that somebody waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Contacts {
    contacts: BTreeMap<Service, Contact>,
}

impl Contacts {
    /// A volume wants its server: how things stand. It waits for it unless it is reached.
    pub(super) fn stand(&mut self, service: &Service, id: &VolumeId, node: u64, now: Monotonic) -> Standing {
        let contact = self.contacts.entry(service.clone()).or_default();
        contact.waiting.insert(id.clone());
        if let Some((since, _)) = contact.away {
            contact.next = contact.next.or(Some(now));
            return Standing::Away(since);
        }
        if let Some(turn) = contact.turn(id, node).filter(|turn| *turn > now) {
            contact.turns.insert((turn, id.clone()));
            return Standing::Back(turn);
        }
        if contact.reached.is_some_and(|at| now.since(at) < FRESH) {
            return Standing::Reached;
        }
        contact.next = Some(contact.next.map_or(now, |next| next.min(now)));
        Standing::Trying
    }

    /// A volume waits for no server any more, or for no other than this.
    pub(super) fn leave(&mut self, id: &VolumeId, but: Option<&Service>) {
        for (service, contact) in &mut self.contacts {
            if but != Some(service) && contact.waiting.remove(id) {
                contact.turns.retain(|(_, waits)| waits != id);
            }
        }
    }

    /// What the last try said of a server that is away.
    pub(super) fn why(&self, service: &Service) -> Option<&str> {
        self.contacts.get(service)?.away.as_ref().map(|(_, why)| why.as_str())
    }

    /// When something is to be done.
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        let of = |contact: &Contact| {
            let turn = contact.turns.first().map(|(turn, _)| *turn);
            [contact.out_until.or(contact.next), turn].into_iter().flatten().min()
        };
        self.contacts.values().filter_map(of).min()
    }

    /// Volumes whose turn has come, or that nobody can tell more about.
    pub(super) fn take_due(&mut self, now: Monotonic) -> BTreeSet<VolumeId> {
        let mut due = BTreeSet::new();
        for contact in self.contacts.values_mut() {
            if contact.out_until.is_some_and(|until| until <= now) {
                contact.take(&Reach::Unknown, now);
                contact.next = contact.away.as_ref().map(|_| now);
                due.extend(contact.waiting.iter().cloned());
            }
            while contact.turns.first().is_some_and(|(turn, _)| *turn <= now) {
                due.extend(contact.turns.pop_first().map(|(_, id)| id));
            }
        }
        due
    }

    /// Takes an answer. Says who waited for it.
    pub(super) fn take(&mut self, report: &ReachReport, now: Monotonic) -> BTreeSet<VolumeId> {
        let Some(contact) = self.contacts.get_mut(&report.service) else { return BTreeSet::new() };
        contact.take(&report.reach, now);
        if contact.away.is_some() {
            let name = alloc::string::ToString::to_string(&report.service);
            contact.next = Some(now + contact.pause(&name));
        }
        contact.waiting.clone()
    }

    /// Whom to try now. What nobody waits for is forgotten.
    pub(super) fn tries(&mut self, now: Monotonic) -> impl Iterator<Item = ReachOrder> {
        self.contacts.retain(|_, contact| {
            let is_fresh = contact.reached.is_some_and(|at| now.since(at) < FRESH);
            !contact.waiting.is_empty() || contact.out_until.is_some() || is_fresh
        });
        let mut orders = alloc::vec::Vec::new();
        for (service, contact) in &mut self.contacts {
            let is_due = contact.next.is_some_and(|next| next <= now) && contact.out_until.is_none();
            if contact.waiting.is_empty() {
                contact.next = None;
            } else if is_due {
                contact.next = None;
                contact.out_until = Some(now + DEADLINE + GRACE);
                orders.push(ReachOrder { service: service.clone(), deadline: DEADLINE });
            }
        }
        orders.into_iter()
    }
}

impl Contact {
    fn take(&mut self, reach: &Reach, now: Monotonic) {
        self.out_until = None;
        match reach {
            // A try that was not possible does not bring a server back.
            Reach::Unknown if self.away.is_some() => self.failures = self.failures.saturating_add(1),
            Reach::Yes | Reach::Unknown => {
                self.reached = Some(now);
                self.failures = 0;
                self.next = None;
                if self.away.take().is_some() {
                    let many = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
                    let window = SPREAD.saturating_mul(many).clamp(SPREAD_AT_LEAST, SPREAD_AT_MOST);
                    self.back = Some((now, window));
                }
            }
            Reach::No(why) => {
                self.reached = None;
                self.back = None;
                self.turns.clear();
                self.failures = self.failures.saturating_add(1);
                let since = self.away.as_ref().map_or(now, |(since, _)| *since);
                self.away = Some((since, why.clone()));
            }
        }
    }

    fn pause(&self, name: &str) -> Duration {
        jittered(PAUSE.saturating_mul(self.failures).min(PAUSE_AT_MOST), name, u64::from(self.failures))
    }

    /// When a volume begins, after its server has come back.
    fn turn(&self, id: &VolumeId, node: u64) -> Option<Monotonic> {
        let (at, window) = self.back?;
        Some(at + MAY_ANSWER + spread(window, &format!("{node:x} {id}")))
    }
}

impl Engine {
    /// Takes whether a server was reached.
    pub(super) fn take_reach(&mut self, report: &ReachReport, now: Monotonic) {
        for id in self.contacts.take(report, now) {
            let shown = self.volumes.get_mut(&id).and_then(|volume| volume.shown.as_mut());
            if let Some(shown) = shown.filter(|_| !report.addresses.is_empty()) {
                shown.server_now.clone_from(&report.addresses);
            }
            self.touched.insert(id);
        }
    }

    /// Tries the servers whose time has come.
    pub(super) fn try_servers(&mut self, now: Monotonic, outputs: &mut alloc::vec::Vec<Output>) {
        outputs.extend(self.contacts.tries(now).map(Output::Reach));
    }
}
