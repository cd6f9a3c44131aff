//! Every file begins by saying what it is for.

use super::Source;

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| format!("{}: begins without `//! ` and what the file is for", source.path.display()))
        .collect()
}
