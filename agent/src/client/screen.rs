//! A terminal that is drawn on again and again, and left as it was found: after Ctrl-C, while it is stopped with
//! Ctrl-Z, and when a command fails.
//!
//! The second screen of the terminal is used, so that what stood there comes back. Nothing wraps or scrolls: what does
//! not fit the window is cut, and how many lines are missing is said.

use std::io::{self, Write};

use super::table::cut;

/// To the second screen, without a cursor, and without wrapping: a window that shrinks meanwhile stays in order.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Back to what was there before.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// To the upper left.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const REST_OF_LINE: &str = "\x1b[K";
/// Clears what is below.
const REST: &str = "\x1b[J";

/// A window that says nothing of its size is taken for one of these rows and columns.
const USUAL: (usize, usize) = (24, 80);

/// The screen. Entered with the first picture, and left when it is dropped.
pub(super) struct Screen<'a> {
    out: &'a mut dyn Write,
    is_entered: bool,
}

impl<'a> Screen<'a> {
    pub(super) const fn new(out: &'a mut dyn Write) -> Self {
        Self { out, is_entered: false }
    }

    /// Shows a text in a window of so many rows and columns.
    pub(super) fn draw(&mut self, text: &str, window: Option<(usize, usize)>) -> io::Result<()> {
        if !self.is_entered {
            // Before: what is written in part must be left as well.
            self.is_entered = true;
            self.out.write_all(ENTER.as_bytes())?;
        }
        self.out.write_all(frame(text, window.unwrap_or(USUAL)).as_bytes())?;
        self.out.flush()
    }

    /// Gives the terminal back until the next picture.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_entered) {
            return Ok(());
        }
        self.out.write_all(LEAVE.as_bytes()).and_then(|()| self.out.flush())
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        // Where the terminal is gone there is nothing to be put in order.
        let _ = self.leave();
    }
}

/// What is written for one picture.
fn frame(text: &str, (rows, columns): (usize, usize)) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let all_fit = lines.len() <= rows;
    let shown = if all_fit { lines.len() } else { rows.saturating_sub(1) };
    let mut kept: Vec<String> = lines.iter().take(shown).map(|line| cut(line, columns)).collect();
    if !all_fit {
        kept.push(cut(&format!("… {} more lines", lines.len() - shown), columns));
    }
    // After the last line no new one: it would scroll where the window is full.
    format!("{HOME}{}{REST_OF_LINE}{REST}", kept.join(&format!("{REST_OF_LINE}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_and_counted() {
        let text = "first line\nsecond line\nthird line\n";
        assert_eq!(frame(text, (3, 80)), "\x1b[Hfirst line\x1b[K\nsecond line\x1b[K\nthird line\x1b[K\x1b[J");
        assert_eq!(frame(text, (2, 6)), "\x1b[Hfirst \x1b[K\n… 2 mo\x1b[K\x1b[J");
        assert_eq!(frame(text, (1, 80)), "\x1b[H… 3 more lines\x1b[K\x1b[J");
        assert_eq!(frame("", (1, 1)), "\x1b[H\x1b[K\x1b[J");
    }

    #[test]
    fn the_terminal_is_left_as_it_was_found_also_by_those_who_fail() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out);
        screen.draw("x", None).unwrap();
        screen.leave().unwrap();
        screen.leave().unwrap();
        screen.draw("y", None).unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches(ENTER).count(), 2);
        assert_eq!(text.matches(LEAVE).count(), 2);
        assert!(text.starts_with(ENTER) && text.ends_with(LEAVE), "{text:?}");
    }

    #[test]
    fn a_terminal_on_which_nothing_was_drawn_is_not_touched() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out);
        screen.leave().unwrap();
        drop(screen);
        assert!(out.is_empty());
    }
}
