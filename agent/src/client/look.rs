//! What may be sent to where a command writes: colours and cursor movements only to a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};

/// How the output is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// It is a terminal that knows control sequences.
    pub terminal: bool,
    /// Colours are welcome there.
    pub colour: bool,
    /// It shows ASCII alone.
    pub ascii: bool,
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
        let locale = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let ascii = io::stdout().is_terminal() && !is_utf8(["LC_ALL", "LC_CTYPE", "LANG"].map(locale));
        Self { terminal, colour: terminal && !is_set("NO_COLOR"), ascii }
    }

    /// The text as it can be shown there: what is not ASCII as JSON would escape it, and signs of our own by their like.
    pub(super) fn spelled(self, text: &str) -> Cow<'_, str> {
        if !self.ascii || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                _ if c.is_ascii() => out.push(c),
                '→' => out.push_str("->"),
                '…' => out.push_str("..."),
                '—' | '–' => out.push('-'),
                '×' => out.push('x'),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
        }
        Cow::Owned(out)
    }

    /// A state's word, coloured where that is welcome.
    pub(super) fn state(self, word: &str) -> String {
        match Tint::of_state(word).filter(|_| self.colour) {
            Some(tint) => format!("{}{word}{PLAIN}", tint.begin()),
            None => word.to_owned(),
        }
    }
}

/// Whether the locale of these settings, of which the first that is not empty counts, is written in UTF-8. Without any it
/// is `POSIX`, which is not.
///
/// See locale(7).
fn is_utf8(settings: [Option<String>; 3]) -> bool {
    let locale = settings.into_iter().flatten().find(|value| !value.is_empty());
    let name = locale.unwrap_or_default().to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
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
    fn a_terminal_of_another_locale_than_utf_8_is_sent_ascii() {
        let locale = |all: &str, kind: &str, lang: &str| {
            is_utf8([all, kind, lang].map(|value| Some(value.to_owned())))
        };
        assert!(locale("", "", "de_DE.UTF-8") && locale("", "C.utf8", "C"));
        assert!(!locale("C", "", "de_DE.UTF-8") && !locale("", "de_DE.ISO-8859-1", "x.UTF-8"));
        assert!(!is_utf8([None, None, None]));
        let ascii = Look { terminal: true, colour: false, ascii: true };
        assert_eq!(ascii.spelled("a → é… × 😀"), "a -> \\u00e9... x \\ud83d\\ude00");
        assert_eq!(serde_json::from_str::<String>(&ascii.spelled("\"é😀\"")).unwrap(), "é😀");
        assert_eq!(Look::default().spelled("é"), "é");
    }

    #[test]
    fn every_state_has_a_colour_that_only_shows_where_it_is_welcome() {
        let look = Look { terminal: true, colour: true, ascii: false };
        for state in HealthState::ALL {
            let shown = look.state(state.label());
            assert!(shown.starts_with('\x1b') && shown.ends_with(PLAIN), "{shown:?}");
            for plain in [Look::default(), Look { terminal: true, colour: false, ascii: false }] {
                assert_eq!(plain.state(state.label()), state.label());
            }
        }
        assert_eq!(look.state("nonsense"), "nonsense");
    }
}
