//! What may be sent to where a command writes: colours and cursor movements only to a terminal.

use std::io::{self, IsTerminal as _};

/// How the output is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// It is a terminal that knows control sequences.
    pub terminal: bool,
    /// Colours are welcome there.
    pub colour: bool,
}

/// A colour, or its emphasis, as a terminal takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tint {
    /// All is well.
    Green,
    /// Somebody should look.
    Yellow,
    /// Something is broken.
    Red,
    /// Only a person can go on.
    Alarm,
}

/// Ends every colour.
pub(super) const PLAIN: &str = "\x1b[0m";

impl Look {
    /// As this process was started: see <https://no-color.org> for `NO_COLOR`.
    #[must_use]
    pub fn of_process() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let terminal = io::stdout().is_terminal() && !is_dumb;
        Self { terminal, colour: terminal && !is_set("NO_COLOR") }
    }

    /// A state's word, coloured where that is welcome.
    pub(super) fn state(self, word: &str) -> String {
        match Tint::of_state(word).filter(|_| self.colour) {
            Some(tint) => format!("{}{word}{PLAIN}", tint.begin()),
            None => word.to_owned(),
        }
    }
}

impl Tint {
    /// The colour of a state, by its word.
    pub(super) fn of_state(word: &str) -> Option<Self> {
        match word {
            "healthy" => Some(Self::Green),
            "unknown" | "suspect" | "recovering" | "probation" => Some(Self::Yellow),
            "degraded" => Some(Self::Red),
            "quarantined" => Some(Self::Alarm),
            _ => None,
        }
    }

    /// What begins it.
    pub(super) const fn begin(self) -> &'static str {
        match self {
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
            Self::Alarm => "\x1b[1;31m",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::verdict::HealthState;

    #[test]
    fn every_state_has_a_colour_that_only_shows_where_it_is_welcome() {
        let look = Look { terminal: true, colour: true };
        for state in HealthState::ALL {
            let shown = look.state(state.label());
            assert!(shown.starts_with('\x1b') && shown.ends_with(PLAIN), "{shown:?}");
            for plain in [Look::default(), Look { terminal: true, colour: false }] {
                assert_eq!(plain.state(state.label()), state.label());
            }
        }
        assert_eq!(look.state("nonsense"), "nonsense");
    }
}
