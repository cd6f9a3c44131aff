//! Whether the time that a decoder takes grows like its input. No absolute time is judged: the same kind of input
//! is measured at two lengths, on the thread's own processor time, and the least of several readings counts.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::Target;

/// How much longer the long input is, and how much longer its time may be. The machine is shared, and caches and
/// logarithms cost something; what grows with the square takes 16 times as long.
const FACTOR: usize = 4;
const ALLOWED: u32 = 10;
/// The short input has so many copies at first; twice as many until it takes long enough to be measured.
const COPIES: usize = 16;
const MEASURABLE: Duration = Duration::from_millis(2);
/// No input gets longer than this: what is this quick even so needs no comparison.
const LONGEST: usize = 1 << 21;
/// Readings of each, and attempts at the whole before it is believed.
const READINGS: usize = 3;
const ATTEMPTS: usize = 4;

/// Fails when the target's time grows faster than its input.
///
/// # Panics
/// When it does.
pub(super) fn check(target: &Target, piece: &[u8]) {
    let Some((short, long)) = measurable(target, piece) else { return };
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let (quick, slow) = (least(target, &short), least(target, &long));
        if slow <= quick.saturating_mul(ALLOWED) {
            return;
        }
        seen.push((quick, slow));
    }
    let (name, lengths) = (target.name, (short.len(), long.len()));
    let start: Vec<u8> = piece.iter().copied().take(400).collect();
    assert!(
        seen.is_empty(),
        "{name}: inputs of {lengths:?} bytes take {seen:?}; made of {}",
        agent_core::path::escape(&start)
    );
}

/// An input that takes long enough to be measured, and one that is longer by [`FACTOR`].
fn measurable(target: &Target, piece: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut copies, mut before) = (COPIES, 0);
    loop {
        let short = (target.grow)(piece, copies);
        let still_grows = short.len() > before;
        if !still_grows || short.len().saturating_mul(FACTOR) > LONGEST {
            return None;
        }
        if once(target, &short) >= MEASURABLE {
            return Some((short, (target.grow)(piece, copies.saturating_mul(FACTOR))));
        }
        copies = copies.saturating_mul(2);
        before = short.len();
    }
}

fn least(target: &Target, input: &[u8]) -> Duration {
    (0..READINGS).map(|_| once(target, input)).min().unwrap_or_default()
}

fn once(target: &Target, input: &[u8]) -> Duration {
    let start = processor_time();
    (target.feed)(input);
    processor_time().saturating_sub(start)
}

/// Of this thread: what others do on the machine hardly counts.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
