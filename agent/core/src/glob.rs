//! A small glob matcher over bytes: `*`, `?` and, for paths, `**`.
//!
//! It follows every possibility at once (a set of places in the pattern), so the cost is at most the length of
//! the pattern times the length of the text, whatever the pattern: there is no backtracking to explode.

use alloc::{vec, vec::Vec};

/// What a star may cross.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A path: `*` and `?` stay within a component, `**` crosses components.
    Path,
    /// Plain text: `*` matches anything.
    Text,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// This byte.
    Byte(u8),
    /// Any byte, in a path not a slash.
    One,
    /// Any bytes, in a path not a slash.
    Many,
    /// Any bytes (`**`).
    Anything,
    /// `**/` at the start of a component: nothing, or any whole components.
    Components,
}

/// A compiled pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    tokens: Vec<Token>,
    kind: Kind,
}

impl Glob {
    /// Compiles a pattern. Every text is a pattern; there is nothing to fail.
    #[must_use]
    pub fn new(pattern: &str, kind: Kind) -> Self {
        let mut tokens = Vec::new();
        let mut rest = pattern.as_bytes();
        loop {
            let at_component = matches!(tokens.last(), None | Some(Token::Byte(b'/') | Token::Components));
            let (token, tail) = match (kind, rest) {
                (_, []) => break,
                (Kind::Path, [b'*', b'*', b'/', tail @ ..]) if at_component => (Token::Components, tail),
                (Kind::Path, [b'*', b'*', tail @ ..]) => (Token::Anything, tail),
                (_, [b'*', tail @ ..]) => (Token::Many, tail),
                (_, [b'?', tail @ ..]) => (Token::One, tail),
                (_, [byte, tail @ ..]) => (Token::Byte(*byte), tail),
            };
            tokens.push(token);
            rest = tail;
        }
        Self { tokens, kind }
    }

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        // Most mounts fail on the first bytes: find that out before anything is allocated.
        let mut literal = 0;
        for (token, byte) in self.tokens.iter().zip(text) {
            match token {
                Token::Byte(wanted) if wanted == byte => literal += 1,
                Token::Byte(_) => return false,
                Token::One | Token::Many | Token::Anything | Token::Components => break,
            }
        }
        let tokens = self.tokens.get(literal..).unwrap_or_default();
        let mut places = vec![false; tokens.len().saturating_add(1)];
        enter(tokens, &mut places, 0);
        for byte in text.get(literal..).unwrap_or_default() {
            let mut next = vec![false; places.len()];
            for (place, token) in tokens.iter().enumerate() {
                if places.get(place).copied().unwrap_or(false) {
                    self.advance(tokens, &mut next, (place, *token), *byte);
                }
            }
            places = next;
        }
        places.last().copied().unwrap_or(false)
    }

    fn advance(&self, tokens: &[Token], next: &mut [bool], (place, token): (usize, Token), byte: u8) {
        let inside = self.kind == Kind::Text || byte != b'/';
        match token {
            Token::Byte(wanted) if wanted == byte => enter(tokens, next, place + 1),
            Token::One if inside => enter(tokens, next, place + 1),
            Token::Many if inside => enter(tokens, next, place),
            Token::Anything => enter(tokens, next, place),
            Token::Components => {
                // In the middle of a component there is no way out but its slash.
                if let Some(here) = next.get_mut(place) {
                    *here = true;
                }
                if byte == b'/' {
                    enter(tokens, next, place + 1);
                }
            }
            Token::Byte(_) | Token::One | Token::Many => {}
        }
    }
}

/// Marks a place, and every place that is reached from it without a byte.
fn enter(tokens: &[Token], places: &mut [bool], mut place: usize) {
    loop {
        if let Some(here) = places.get_mut(place) {
            *here = true;
        }
        match tokens.get(place) {
            Some(Token::Many | Token::Anything | Token::Components) => place += 1,
            Some(Token::Byte(_) | Token::One) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(pattern: &str, text: &str) -> bool {
        Glob::new(pattern, Kind::Path).matches(text.as_bytes())
    }

    fn text(pattern: &str, text: &str) -> bool {
        Glob::new(pattern, Kind::Text).matches(text.as_bytes())
    }

    #[test]
    fn a_star_stays_within_a_component() {
        assert!(path("/mnt/*", "/mnt/a"));
        assert!(!path("/mnt/*", "/mnt/a/b"));
        assert!(path("/mnt/*/c", "/mnt/ab/c"));
        assert!(!path("/mnt/?", "/mnt//"));
        assert!(path("/mnt/v?", "/mnt/v1"));
        assert!(!path("/mnt/v?", "/mnt/v"));
        assert!(!path("/mnt", "/mnt/a"));
        assert!(!path("/mnt/a", "/mnt"));
    }

    #[test]
    fn two_stars_cross_components() {
        assert!(path("/srv/**", "/srv/a"));
        assert!(path("/srv/**", "/srv/a/b/c"));
        assert!(!path("/srv/**", "/srvx"));
        assert!(!path("/srv/**", "/srv"));
        assert!(path("/**/data", "/data"));
        assert!(path("/**/data", "/a/b/data"));
        assert!(!path("/**/data", "/a/bdata"));
        assert!(path("/a/**/**/z", "/a/z"));
        assert!(path("/a**z", "/a/b/z"));
        assert!(path("**", "/anything/at all"));
        assert!(path("**/data", "/srv/data"));
    }

    #[test]
    fn in_plain_text_a_star_matches_anything() {
        assert!(text("nfs*", "nfs4"));
        assert!(text("nfs*", "nfs"));
        assert!(!text("nfs*", "snfs"));
        assert!(text("filer?:*", "filer1:/export/a"));
        assert!(text("", ""));
        assert!(!text("", "x"));
        assert!(text("*.sshfs", "fuse.sshfs"));
    }

    #[test]
    fn bytes_that_are_not_text_match_stars() {
        assert!(Glob::new("/mnt/caf?", Kind::Path).matches(b"/mnt/caf\xe9"));
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let pattern = "*a".repeat(60);
        let long = "a".repeat(4096);
        assert!(!text(&alloc::format!("{pattern}b"), &long));
        assert!(text(&pattern, &long));
    }
}
