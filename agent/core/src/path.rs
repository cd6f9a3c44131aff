//! Paths and other kernel text as bytes, with a lossless printable form.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::fmt::{self, Write};

/// A path as the kernel has it: any bytes but NUL. Shown escaped, compared exactly.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytePath(Arc<[u8]>);

impl BytePath {
    /// Takes the bytes as they are; no normalisation.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Arc::from(bytes.into()))
    }

    /// The exact bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether `self` is `base` or lies below it, by whole components.
    #[must_use]
    pub fn is_within(&self, base: &Self) -> bool {
        let (path, base) = (self.as_bytes(), base.as_bytes());
        match path.strip_prefix(base) {
            Some(rest) => rest.is_empty() || base.ends_with(b"/") || rest.starts_with(b"/"),
            None => false,
        }
    }

    /// `self` and `name` joined by one slash.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut bytes = self.0.to_vec();
        if !bytes.ends_with(b"/") {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self::new(bytes)
    }
}

impl From<&str> for BytePath {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl fmt::Display for BytePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for BytePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", escape(&self.0))
    }
}

/// Whether a character changes how the text around it is shown, or cannot be seen itself: control characters, the
/// separators of lines and paragraphs, and the format characters, fillers and selectors of variants by which one name can be
/// made to look like another.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
                | '\u{e0100}'..='\u{e01ef}'
        )
}

/// Bytes as text without loss: valid UTF-8 stays, except the backslash and what deceives ([`is_deceptive`]); those and
/// every other byte become `\xNN`. Two different byte strings never give the same text.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || is_deceptive(c) {
                let mut utf8 = [0; 4];
                escape_raw(&mut out, c.encode_utf8(&mut utf8).as_bytes());
            } else {
                out.push(c);
            }
        }
        escape_raw(&mut out, chunk.invalid());
    }
    out
}

/// JSON in which nothing deceives the eye ([`is_deceptive`]), and that means the same: such characters can only stand in
/// its strings. Its own line breaks stay.
#[must_use]
pub fn visible_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_deceptive(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

fn escape_raw(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_bytes_have_different_labels() {
        assert_eq!(escape(b"/mnt/caf\xe9"), "/mnt/caf\\xe9");
        assert_ne!(escape(b"caf\xe9"), escape(b"caf\xe8"));
        assert_ne!(escape(b"caf\xe9"), escape(b"caf\\xe9"));
        assert_eq!(escape("/mnt/é x".as_bytes()), "/mnt/é x");
        assert_eq!(escape(b"a\nb"), "a\\x0ab");
    }

    #[test]
    fn no_name_can_look_like_another() {
        // `/mnt/exe.txt` to the eye, in both.
        assert_eq!(escape("/mnt/\u{202e}txt.exe".as_bytes()), "/mnt/\\xe2\\x80\\xaetxt.exe");
        assert_eq!(escape("a\u{200b}b\u{feff}".as_bytes()), "a\\xe2\\x80\\x8bb\\xef\\xbb\\xbf");
        for c in ['\u{2066}', '\u{2069}', '\u{2028}', '\u{200e}', '\u{61c}', '\u{e0041}', '\u{85}'] {
            assert!(is_deceptive(c), "{c:?}");
        }
        // What is drawn as nothing, or as a blank.
        let unseen = ['\u{34f}', '\u{115f}', '\u{1160}', '\u{17b4}', '\u{3164}', '\u{ffa0}'].into_iter();
        let variants =
            ('\u{180b}'..='\u{180f}').chain('\u{fe00}'..='\u{fe0f}').chain('\u{e0100}'..='\u{e01ef}');
        for c in unseen.chain(variants) {
            assert!(is_deceptive(c), "{c:?}");
            assert!(escape(c.encode_utf8(&mut [0; 4]).as_bytes()).is_ascii(), "{c:?}");
        }
        for c in ['é', '日', '\u{301}', '…', '→', '\u{fffd}', '😀'] {
            assert!(!is_deceptive(c), "{c:?}");
        }
    }

    #[test]
    fn json_is_made_visible_and_means_the_same() {
        assert_eq!(visible_json("{\n \"é日\"\n}"), "{\n \"é日\"\n}");
        assert_eq!(
            visible_json("\"\u{9b}\u{202e}\u{e0041}\u{7f}\""),
            "\"\\u009b\\u202e\\udb40\\udc41\\u007f\""
        );
    }

    #[test]
    fn within_counts_whole_components() {
        let base = BytePath::from("/mnt/a");
        assert!(BytePath::from("/mnt/a").is_within(&base));
        assert!(BytePath::from("/mnt/a/b").is_within(&base));
        assert!(!BytePath::from("/mnt/ab").is_within(&base));
        assert!(BytePath::from("/x").is_within(&BytePath::from("/")));
    }

    #[test]
    fn join_puts_one_slash() {
        assert_eq!(BytePath::from("/").join(b"a"), BytePath::from("/a"));
        assert_eq!(BytePath::from("/m").join(b"a"), BytePath::from("/m/a"));
    }
}
