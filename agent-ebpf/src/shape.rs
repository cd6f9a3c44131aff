//! What the components of a name look like: whether its bytes alone say where it leads.
//!
//! Without branches, eight bytes at a time: a loop over bytes with a state makes the verifier walk every way
//! through it. One bit (the highest) of each byte of a word stands for that byte.

use agent_common::key::NAME_BYTES;

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const EACH: u64 = 0x0101_0101_0101_0101;

const PLAIN: u32 = 1;
const CLIMBS: u32 = 2;

/// What was found, as bits: the programs' functions return what fits a register.
#[derive(Clone, Copy)]
pub struct Shape(pub u32);

impl Shape {
    /// No `.`, `..` or empty component: its bytes are its place.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 & PLAIN != 0
    }

    /// A `..` component.
    #[inline(always)]
    pub fn climbs(self) -> bool {
        self.0 & CLIMBS != 0
    }
}

/// The state from the word before, as the bit that moves into the first byte of the next.
struct Carry {
    /// The last byte was a slash, or nothing came before.
    start: u64,
    /// The last bytes were a slash and a dot.
    dot: u64,
    /// The last bytes were a slash and two dots.
    two_dots: u64,
}

/// Looks at every component of a name of `NAME_BYTES` bytes that ends with NUL. A function of its own: what it needs of
/// the stack is then needed nowhere else.
#[inline(never)]
pub fn look(words: *const u32) -> u32 {
    let mut carry = Carry { start: 0, dot: 0, two_dots: 0 };
    let (mut odd, mut climbs, mut alive) = (0u64, 0u64, u64::MAX);
    // A relative name begins a component with its first byte; an absolute one does with its second.
    // SAFETY: the caller's row has `NAME_BYTES` bytes from here on, aligned to four.
    let first = unsafe { *words };
    carry.start |= u64::from(first & 0xff != u32::from(b'/')) << 7;
    for index in 0..NAME_BYTES / 8 {
        // SAFETY: as above.
        let word = unsafe { u64::from(*words.add(index * 2)) | u64::from(*words.add(index * 2 + 1)) << 32 };
        let (slash, point, end) = (equal(word, b'/'), equal(word, b'.'), equal(word, 0));
        // Up to the first end mark; what lies behind it is from other names.
        let valid = (end.wrapping_sub(1) ^ end) & alive;
        let start = slash << 8 | carry.start;
        let dot = start & point;
        let after_dot = dot << 8 | carry.dot;
        let two_dots = after_dot & point;
        let after_two = two_dots << 8 | carry.two_dots;
        let stop = slash | end;
        odd |= ((start & slash) | (after_dot & stop)) & valid;
        climbs |= after_two & stop & valid;
        carry = Carry { start: slash >> 56, dot: dot >> 56, two_dots: two_dots >> 56 };
        // All ones while no end mark was seen, zero from then on. Whether a number is zero would be asked by a branch,
        // and the verifier would go on both ways from each word: so the bits are folded into one.
        let halves = end | end >> 32;
        let quarters = halves | halves >> 16;
        let any = (quarters | quarters >> 8) >> 7 & 1;
        alive &= any.wrapping_sub(1);
    }
    u32::from(odd | climbs == 0) * PLAIN | u32::from(climbs != 0) * CLIMBS
}

/// The highest bit of each byte that equals `byte`; exact for every byte.
#[inline(always)]
fn equal(word: u64, byte: u8) -> u64 {
    let difference = word ^ (EACH * u64::from(byte));
    !(((difference & LOW) + LOW) | difference | LOW)
}
