//! Inputs that are nearly right: a seed with a few changes, each of which knows a little of how formats are made.

use super::Target;

/// A sequence of numbers that depends on its seed alone (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let number = usize::try_from(self.next() >> 1).unwrap_or(0);
        number.checked_rem(end).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

/// Numbers at the edges of what fields hold.
const EDGES: [u64; 14] =
    [0, 1, 2, 23, 24, 127, 128, 255, 256, 65_535, 65_536, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Bytes at which formats are cut into parts.
const SEPARATORS: &[u8] = b"\n ,:/=\0\\.";

/// A part is repeated at most so often, and an input grows to at most so many bytes.
const REPEATED: usize = 64;
const LONGEST: usize = 1 << 16;

/// Makes inputs for one target.
#[derive(Clone, Debug)]
pub(super) struct Mutator {
    seeds: Vec<Vec<u8>>,
    words: &'static [&'static [u8]],
}

/// One way to change an input.
type Change = fn(&Mutator, &mut Vec<u8>, &mut Random);

const CHANGES: [Change; 11] = [
    |_, bytes, random| flip(bytes, random),
    |_, bytes, random| set_byte(bytes, random),
    |_, bytes, random| set_number(bytes, random),
    Mutator::set_decimal,
    Mutator::insert_word,
    Mutator::remove,
    Mutator::repeat,
    Mutator::swap_parts,
    Mutator::splice,
    Mutator::cut,
    Mutator::add_seed,
];

impl Mutator {
    pub(super) fn new(target: &Target) -> Self {
        Self { seeds: (target.seeds)(), words: target.words }
    }

    /// A seed with some changes.
    #[cfg(test)]
    pub(super) fn input(&self, random: &mut Random) -> Vec<u8> {
        let seed = random.pick(&self.seeds).cloned().unwrap_or_default();
        self.change(&seed, random)
    }

    /// An input with some changes.
    pub(super) fn change(&self, input: &[u8], random: &mut Random) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=random.below(6) {
            if let Some(change) = random.pick(&CHANGES) {
                change(self, &mut bytes, random);
            }
            bytes.truncate(LONGEST);
        }
        bytes
    }

    /// Digits that stand together become another number.
    fn set_decimal(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let from = random.below(bytes.len());
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = bytes.iter().skip(from).position(is_digit).map(|offset| from + offset) else {
            return;
        };
        let end = start + bytes.iter().skip(start).take_while(|byte| is_digit(byte)).count();
        let sign = if random.below(8) == 0 { "-" } else { "" };
        let number = format!("{sign}{}", random.pick(&EDGES).copied().unwrap_or(0));
        bytes.splice(start..end, number.into_bytes());
    }

    fn insert_word(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(bytes.len() + 1);
        let word = random.pick(self.words).copied().unwrap_or_default();
        bytes.splice(at..at, word.iter().copied());
    }

    fn remove(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let (start, end) = part(bytes, random);
        bytes.drain(start..end);
    }

    fn repeat(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let (start, end) = part(bytes, random);
        let copy = bytes.get(start..end).unwrap_or_default().repeat(random.below(REPEATED) + 1);
        bytes.splice(end..end, copy);
    }

    fn swap_parts(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let (start, end) = part(bytes, random);
        let taken: Vec<u8> = bytes.drain(start..end).collect();
        let (at, _) = part(bytes, random);
        bytes.splice(at..at, taken);
    }

    /// A part of another seed in the place of a part.
    fn splice(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let other = random.pick(&self.seeds).cloned().unwrap_or_default();
        let (from, to) = part(&other, random);
        let (start, end) = part(bytes, random);
        bytes.splice(start..end, other.get(from..to).unwrap_or_default().iter().copied());
    }

    fn cut(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        bytes.truncate(random.below(bytes.len() + 1));
    }

    fn add_seed(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        bytes.extend(random.pick(&self.seeds).into_iter().flatten());
    }
}

/// Where a part begins and ends: what stands between two separators of a kind, or any range.
fn part(bytes: &[u8], random: &mut Random) -> (usize, usize) {
    let at = random.below(bytes.len() + 1);
    if random.below(3) == 0 {
        return (at, at + random.below(bytes.len() - at + 1).min(64));
    }
    let separator = random.pick(SEPARATORS).copied().unwrap_or(b'\n');
    let is_separator = |byte: &u8| *byte == separator;
    let before = bytes.get(..at).unwrap_or_default().iter().rposition(is_separator);
    let after = bytes.get(at..).unwrap_or_default().iter().position(is_separator);
    (before.map_or(0, |place| place + 1), after.map_or(bytes.len(), |place| at + place + 1))
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    let (at, bit) = (random.below(bytes.len()), 1 << random.below(8));
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= bit;
    }
}

fn set_byte(bytes: &mut [u8], random: &mut Random) {
    let (at, value) = (random.below(bytes.len()), u8::try_from(random.below(256)).unwrap_or(0));
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value;
    }
}

/// A number of one to eight bytes, at the edge of what it can be, or near the length of the input.
fn set_number(bytes: &mut [u8], random: &mut Random) {
    let length = u64::try_from(bytes.len()).unwrap_or(0);
    let near = length.wrapping_add(u64::try_from(random.below(9)).unwrap_or(0)).wrapping_sub(4);
    let value = if random.below(3) == 0 { near } else { random.pick(&EDGES).copied().unwrap_or(0) };
    let width = 1 << random.below(4);
    let at = random.below(bytes.len()) & !(width - 1);
    for (place, byte) in bytes.iter_mut().skip(at).take(width).zip(value.to_ne_bytes()) {
        *place = byte;
    }
}
