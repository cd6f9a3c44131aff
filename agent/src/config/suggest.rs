//! "Did you mean": the accepted word that looks most like a wrong one.

/// The candidate with the fewest edits, when they are few enough to be a slip.
pub(super) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slip = (word.chars().count() / 3).clamp(1, 3);
    let folded = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (edits(&folded, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= slip)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Case, dashes and underscores are mixed up more often than letters.
fn fold(word: &str) -> Vec<char> {
    word.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn edits(left: &[char], right: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut left_before = None;
    for (row, l) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        let mut right_before = None;
        for (column, r) in right.iter().enumerate() {
            let at = |cells: &[usize], index: usize| cells.get(index).copied().unwrap_or(usize::MAX - 1);
            let mut best = (at(&last, column + 1) + 1)
                .min(at(&current, column) + 1)
                .min(at(&last, column) + usize::from(l != r));
            if left_before == Some(r) && right_before == Some(l) && column > 0 {
                best = best.min(at(&before_last, column - 1).saturating_add(1));
            }
            current.push(best);
            right_before = Some(r);
        }
        before_last = std::mem::replace(&mut last, current);
        left_before = Some(l);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let keys = ["timeout", "method", "max_attempts", "mode"];
        assert_eq!(closest("timout", keys), Some("timeout"));
        assert_eq!(closest("tiemout", keys), Some("timeout"));
        assert_eq!(closest("max-attempts", keys), Some("max_attempts"));
        assert_eq!(closest("Mode", keys), Some("mode"));
        assert_eq!(closest("password", keys), None);
        assert_eq!(closest("", keys), None);
    }

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(edits(&chars("ab"), &chars("ba")), 1);
        assert_eq!(edits(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(edits(&chars(""), &chars("abc")), 3);
        assert_eq!(edits(&chars("abc"), &chars("")), 3);
    }
}
