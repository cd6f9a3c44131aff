//! Which volumes a page shows, and in which order: by the query alone, so that an address says it all.

use std::fmt::{self, Display};

use crate::export::percent::PercentEncoded;
use crate::export::view::VolumeView;

/// Volumes on one page.
pub(super) const ON_A_PAGE: usize = 200;
/// The longest filter that is taken as it is.
const LONGEST: usize = 500;

/// The worst first. The same words as in `mountie_volume_state`.
pub(super) const STATES: [&str; 7] =
    ["quarantined", "degraded", "recovering", "suspect", "unknown", "probation", "healthy"];

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Filter {
    pub(super) words: String,
    pub(super) state: String,
    pub(super) from: usize,
}

impl Filter {
    pub(super) fn new(words: &str, state: &str, from: usize) -> Self {
        let short = |text: &str| text.trim().chars().take(LONGEST).collect();
        Self { words: short(words), state: short(state), from }
    }

    /// The volumes that are wanted, the worst first, and by name.
    pub(super) fn pick<'a>(&self, volumes: &'a [VolumeView]) -> Vec<&'a VolumeView> {
        let words: Vec<String> = self.words.split_whitespace().map(str::to_lowercase).collect();
        let mut picked: Vec<&VolumeView> =
            volumes.iter().filter(|volume| self.has_state(volume) && has_words(volume, &words)).collect();
        picked.sort_by_key(|volume| (rank(&volume.state), &volume.id));
        picked
    }

    fn has_state(&self, volume: &VolumeView) -> bool {
        match self.state.as_str() {
            "" => true,
            "sick" => volume.sick,
            state => volume.state == state,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.state.is_empty()
    }

    /// The same words with another state.
    pub(super) fn in_state(&self, state: &str) -> Self {
        Self { state: state.to_owned(), from: 0, ..self.clone() }
    }

    /// The same from another place on.
    pub(super) fn starting_at(&self, from: usize) -> Self {
        Self { from, ..self.clone() }
    }
}

/// Its address.
impl Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        let mut sign = '?';
        for (key, value) in [("q", &self.words), ("state", &self.state)] {
            if !value.is_empty() {
                write!(f, "{sign}{key}={}", PercentEncoded(value))?;
                sign = '&';
            }
        }
        if self.from > 0 {
            write!(f, "{sign}from={}", self.from)?;
        }
        Ok(())
    }
}

fn rank(state: &str) -> usize {
    STATES.iter().position(|known| *known == state).unwrap_or(STATES.len())
}

fn has_words(volume: &VolumeView, words: &[String]) -> bool {
    if words.is_empty() {
        return true;
    }
    let reason = volume.reason.as_deref().unwrap_or_default();
    let mut text = [
        volume.id.as_str(),
        &volume.mountpoint,
        &volume.fstype,
        &volume.source,
        &volume.state,
        &volume.mode,
        reason,
    ]
    .join("\n");
    text.extend(volume.advice.iter().flat_map(|advice| ["\n", advice]));
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}
