//! What the table and the file system itself say against a mount: since when, until when, and by whom. Kept for
//! people; the rules ask the evidence.

use alloc::collections::BTreeMap;

use crate::health::evidence::ESHUTDOWN;
use crate::health::table::TableFacts;
use crate::observation::{KernelErrors, Source};
use crate::time::Monotonic;

/// What is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Claim {
    /// The superblock has shut down.
    ShutDown,
    /// The superblock refuses to write after an error.
    EmergencyReadonly,
    /// Read-only, where writing should work.
    Readonly,
    /// The file system has found errors in itself.
    Errors,
    /// Dirty data was lost because there was no room for it.
    LostForSpace,
}

/// Who says it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClaimSource {
    /// The options in the mount table.
    Table,
    /// A sensor.
    Sensor(Source),
}

/// When it was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// First seen.
    pub since: Monotonic,
    /// Last time it was news.
    pub last: Monotonic,
    /// How many errors; 0 where nothing is counted.
    pub count: u64,
}

/// All of it, for one generation.
pub type Claims = BTreeMap<(Claim, ClaimSource), Said>;

/// Takes what the table says now: a claim that it no longer makes is gone.
pub fn take_table(claims: &mut Claims, table: &TableFacts, now: Monotonic) {
    let made = [
        (Claim::ShutDown, table.shutdown),
        (Claim::EmergencyReadonly, table.emergency_ro),
        (Claim::Readonly, table.ro && table.should_be_writable()),
    ];
    for (claim, is_made) in made {
        let key = (claim, ClaimSource::Table);
        if is_made {
            claims.entry(key).or_insert(Said { since: now, last: now, count: 0 });
        } else {
            claims.remove(&key);
        }
    }
}

/// A shutdown that a sensor reported turned out to be over.
pub fn withdraw_shutdown(claims: &mut Claims) {
    claims.retain(|key, _| !matches!(key, (Claim::ShutDown, ClaimSource::Sensor(_))));
}

/// Takes a file system's own report.
pub fn take_report(claims: &mut Claims, errors: &KernelErrors, now: Monotonic) {
    let claim = if errors.errno == ESHUTDOWN { Claim::ShutDown } else { Claim::Errors };
    take(claims, claim, errors, now);
}

/// Takes a loss of dirty data for lack of space.
pub fn take_loss(claims: &mut Claims, errors: &KernelErrors, now: Monotonic) {
    take(claims, Claim::LostForSpace, errors, now);
}

fn take(claims: &mut Claims, claim: Claim, errors: &KernelErrors, now: Monotonic) {
    let at = errors.at.min(now);
    let first = Said { since: at, last: at, count: 0 };
    let said = claims.entry((claim, ClaimSource::Sensor(errors.source))).or_insert(first);
    said.since = said.since.min(at);
    said.last = said.last.max(at);
    said.count = said.count.saturating_add(errors.count);
}
