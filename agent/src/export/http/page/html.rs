//! Text that becomes part of a document. Every value goes through [`Escaped`].

use std::fmt::{self, Display, Write};

use agent_core::path::is_deceptive;

/// A document that is being written.
pub(super) struct Document(String);

impl Document {
    pub(super) fn new() -> Self {
        Self(String::with_capacity(16 << 10))
    }

    pub(super) fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// A value as text or attribute of HTML. What would steer how the text around it is shown is replaced, as on a
/// terminal; the ends of lines become spaces.
pub(super) struct Escaped<T>(pub(super) T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                '\n' | '\t' => self.0.write_char(' ')?,
                c if is_deceptive(c) => self.0.write_char('\u{fffd}')?,
                other => self.0.write_char(other)?,
            }
        }
        Ok(())
    }
}
