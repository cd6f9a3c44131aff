//! Who is connected, and how much room each kind of guest has.
//!
//! No kind can take the room of another. Of those who have not asked for anything yet, and of those who ask for
//! metrics and liveness, one goes when there are too many: of the address, or the process, from which most have come,
//! the one that came first. Who means it has asked and read long before, and is not cut off for others' sake. So
//! neither silent connections nor slow readers of metrics keep a scraper waiting, however many they are.
//! Of those who read other answers, and of those who follow events, the one too many is told to try again.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// What guests of one listener may use up.
#[derive(Clone, Copy, Debug)]
pub(in crate::export::http) struct Limits {
    /// The head of a request must be there by then.
    pub(in crate::export::http) head: Duration,
    /// A connection of somebody who reads ends by then.
    pub(in crate::export::http) whole: Duration,
    /// One without a reader's place ends by then: a scrape, a question about liveness, one that asks for nothing. So
    /// does one of a follower, after the last that it is sent.
    pub(in crate::export::http) brief: Duration,
    /// A stream that takes nothing for so long is broken off.
    pub(in crate::export::http) takes: Duration,
    /// Something is sent to a follower at least this often, so that both ends notice when the other is gone.
    pub(in crate::export::http) pulse: Duration,
    /// Connections that have not asked for anything yet, or were refused.
    pub(in crate::export::http) silent: usize,
    /// Those that have asked for metrics or liveness.
    pub(in crate::export::http) scrapers: usize,
    /// Those that read anything else.
    pub(in crate::export::http) readers: usize,
    /// Those that follow events.
    pub(in crate::export::http) followers: usize,
}

/// The rooms of one listener.
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) silent: Crowd,
    pub(super) scrapers: Crowd,
    readers: Arc<Semaphore>,
    followers: Arc<Semaphore>,
    takes: Duration,
    pulse: Duration,
}

/// From where guests come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::export::http) enum Origin {
    /// From this address.
    Address(IpAddr),
    /// From this process of the node; 0 where it is not known.
    Process(u32),
}

/// Guests of whom one goes when there are too many.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    inside: Mutex<VecDeque<Weak<Guest>>>,
}

/// One connection.
#[derive(Debug)]
pub(in crate::export::http) struct Guest {
    rooms: Arc<Rooms>,
    origin: Origin,
    place: Mutex<Place>,
    /// It must go at once: another one needs its room.
    pub(super) shown_out: Notify,
    /// It has been sent the last of what it follows.
    over: Notify,
    /// Its connection has ended.
    gone: Notify,
}

/// What a guest has taken.
#[derive(Debug)]
enum Place {
    None,
    /// Held for as long as the connection: the answer is made long before a slow reader has it.
    Reader {
        _permit: OwnedSemaphorePermit,
    },
    Follower {
        _permit: OwnedSemaphorePermit,
    },
}

/// For how long a guest may stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stay {
    Brief,
    Whole,
    UntilOver,
}

impl Rooms {
    pub(super) fn new(limits: Limits) -> Self {
        let crowd = |most| Crowd { most, inside: Mutex::default() };
        Self {
            silent: crowd(limits.silent),
            scrapers: crowd(limits.scrapers),
            readers: Arc::new(Semaphore::new(limits.readers)),
            followers: Arc::new(Semaphore::new(limits.followers)),
            takes: limits.takes,
            pulse: limits.pulse,
        }
    }
}

impl Crowd {
    pub(super) fn enter(&self, guest: &Arc<Guest>) {
        let mut inside = self.inside();
        inside.retain(|one| one.strong_count() > 0);
        inside.push_back(Arc::downgrade(guest));
        if inside.len() > self.most
            && let Some(one) = one_too_many(&inside)
        {
            inside.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(&one)));
            one.shown_out.notify_one();
        }
    }

    pub(super) fn leave(&self, guest: &Arc<Guest>) {
        self.inside().retain(|one| !std::ptr::eq(one.as_ptr(), Arc::as_ptr(guest)));
    }

    fn inside(&self) -> MutexGuard<'_, VecDeque<Weak<Guest>>> {
        // It is whole after every statement.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first of those who have come from where most have.
fn one_too_many(inside: &VecDeque<Weak<Guest>>) -> Option<Arc<Guest>> {
    let guests: Vec<Arc<Guest>> = inside.iter().filter_map(Weak::upgrade).collect();
    let mut counts: BTreeMap<Origin, usize> = BTreeMap::new();
    for guest in &guests {
        *counts.entry(guest.origin).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    guests.into_iter().find(|guest| counts.get(&guest.origin) == Some(&most))
}

impl Guest {
    pub(super) fn new(rooms: &Arc<Rooms>, origin: Origin) -> Arc<Self> {
        let rooms = Arc::clone(rooms);
        let place = Mutex::new(Place::None);
        let (shown_out, over, gone) = (Notify::new(), Notify::new(), Notify::new());
        Arc::new(Self { rooms, origin, place, shown_out, over, gone })
    }

    pub(super) fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// Takes a reader's place, if one is free.
    pub(super) fn read(&self) -> bool {
        let permit = Arc::clone(&self.rooms.readers).try_acquire_owned();
        permit.map(|permit| *self.place() = Place::Reader { _permit: permit }).is_ok()
    }

    /// Takes a follower's place for the reader's, if one is free.
    pub(in crate::export::http) fn follow(&self) -> bool {
        let permit = Arc::clone(&self.rooms.followers).try_acquire_owned();
        permit.map(|permit| *self.place() = Place::Follower { _permit: permit }).is_ok()
    }

    /// For how long what is sent to a follower waits to be taken.
    pub(in crate::export::http) fn takes_within(&self) -> Duration {
        self.rooms.takes
    }

    /// How often a follower is sent something.
    pub(in crate::export::http) fn pulse(&self) -> Duration {
        self.rooms.pulse
    }

    /// What it follows has ended.
    pub(in crate::export::http) fn is_over(&self) {
        self.over.notify_one();
    }

    pub(super) async fn until_over(&self) {
        self.over.notified().await;
    }

    /// It has left.
    pub(super) fn is_gone(&self) {
        self.gone.notify_one();
    }

    /// Whoever sends it something need not go on then.
    pub(in crate::export::http) async fn until_gone(&self) {
        self.gone.notified().await;
    }

    pub(super) fn stay(&self) -> Stay {
        match *self.place() {
            Place::None => Stay::Brief,
            Place::Reader { .. } => Stay::Whole,
            Place::Follower { .. } => Stay::UntilOver,
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // As above.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
