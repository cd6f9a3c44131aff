//! A small deterministic hash: for indexes, and for jitter, since randomness does not exist here.
//!
//! Not for anything an enemy could profit from: a collision costs a comparison, never a wrong answer.

use core::time::Duration;

/// FNV-1a over words of eight bytes, with a final mix so that every bit depends on every byte.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state: u64 = 0xcbf2_9ce4_8422_2325 ^ u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    for word in words {
        state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    for byte in rest {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(state)
}

/// The finaliser of SplitMix64.
const fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// `duration`, moved by up to ten percent either way: the same name and sequence give the same answer.
#[must_use]
pub fn jittered(duration: Duration, name: &str, sequence: u64) -> Duration {
    scaled(duration, 9_000_u64.saturating_add(roll(name, sequence, 2_000)), 10_000)
}

/// `duration`, shortened by up to ten percent: for what must not come later than it says.
#[must_use]
pub fn hastened(duration: Duration, name: &str, sequence: u64) -> Duration {
    scaled(duration, 9_000_u64.saturating_add(roll(name, sequence, 1_000)), 10_000)
}

/// A number up to and with `most`.
fn roll(name: &str, sequence: u64, most: u64) -> u64 {
    let drawn = mix(hash(name.as_bytes()) ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    drawn.checked_rem(most.saturating_add(1)).unwrap_or(0)
}

/// A share of `duration` that depends on the name alone, to spread a first round.
#[must_use]
pub fn spread(duration: Duration, name: &str) -> Duration {
    scaled(duration, hash(name.as_bytes()) % 1024, 1024)
}

fn scaled(duration: Duration, numerator: u64, denominator: u64) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(u128::from(numerator)) / u128::from(denominator.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;

    #[test]
    fn jitter_stays_within_ten_percent_and_repeats() {
        let base = Duration::from_secs(10);
        for (shaken, most) in [(jittered as fn(_, &str, _) -> _, 11), (hastened, 10)] {
            let mut seen = BTreeSet::new();
            for sequence in 0..500 {
                let moved: Duration = shaken(base, "models", sequence);
                assert!(moved >= Duration::from_secs(9) && moved <= Duration::from_secs(most));
                assert_eq!(moved, shaken(base, "models", sequence));
                seen.insert(moved);
            }
            assert!(seen.len() > 350);
            assert!(shaken(Duration::MAX, "x", 1) <= Duration::from_nanos(u64::MAX));
        }
    }

    #[test]
    fn hashes_of_similar_paths_differ() {
        let all: BTreeSet<u64> =
            (0..10_000).map(|n| hash(format!("/var/lib/x/{n}/merged").as_bytes())).collect();
        assert_eq!(all.len(), 10_000);
        assert_ne!(hash(b""), hash(b"\0"));
        assert!(spread(Duration::from_secs(1), "a") < Duration::from_secs(1));
    }
}
