//! Who is ended first when a node runs out of memory.

use std::fs;

/// kernel: `proc_oom_score_adj_operations`, fs/proc/base.c, since 2.6.36: from -1000 (never) to 1000 (first).
const ADJUSTMENT: &str = "/proc/self/oom_score_adj";

/// Gives up what spares this process, and those that it will start, when memory runs out. The agent is spared, and its
/// children inherit that: a FUSE daemon that grows would be the last to be ended, and applications the first. Raising
/// the number needs no privilege; where it cannot be done, all is as it was.
pub fn take_no_precedence() {
    if fs::read_to_string(ADJUSTMENT).is_ok_and(|text| is_spared(&text)) {
        // Nothing else depends on it.
        let _ = fs::write(ADJUSTMENT, "0");
    }
}

fn is_spared(text: &str) -> bool {
    text.trim().parse::<i32>().is_ok_and(|adjustment| adjustment < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_spared_gives_it_up() {
        assert!(is_spared("-900\n"));
        assert!(!is_spared("0\n"));
        assert!(!is_spared("937\n"));
        assert!(!is_spared(""));
    }
}
