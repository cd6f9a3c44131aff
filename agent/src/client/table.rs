//! Columns that line up on a terminal, whatever letters the cells hold.

use agent_core::path::is_deceptive;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::look::{Look, PLAIN};

/// The head of the column that holds the words of states.
pub(super) const STATE: &str = "STATE";

/// Aligned rows. Cells are cleaned: nothing in them can move the cursor or break a line.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// The column that holds the words of states.
    states: Option<usize>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        let states = head.iter().position(|cell| *cell == STATE);
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()], states }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| clean(cell)).collect());
    }

    /// The text, without colours.
    pub(super) fn render(&self) -> String {
        self.render_for(Look::default())
    }

    /// The text. States are coloured where that is welcome. An empty cell shows as a dash, so that columns can be cut by scripts.
    pub(super) fn render_for(&self, look: Look) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (place, (cell, column)) in row.iter().zip(&widths).enumerate() {
                let cell = if cell.is_empty() { "-" } else { cell };
                if number > 0 && self.states == Some(place) {
                    line.push_str(&look.state(cell));
                } else {
                    line.push_str(cell);
                }
                let padding = column.saturating_sub(width(cell)) + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The text without what steers a terminal or makes one name look like another.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_deceptive(c) { '\u{fffd}' } else { c }).collect()
}

/// Columns that a text takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The beginning of a line that takes at most so many columns. Colours take none, and end with the line.
pub(super) fn cut(line: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut taken = 0;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = match rest.find('m').filter(|_| c == '\x1b') {
            Some(end) => end + 1,
            None => {
                taken += UnicodeWidthChar::width(c).unwrap_or(0);
                c.len_utf8()
            }
        };
        if taken > columns {
            break;
        }
        let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        out.push_str(part);
        rest = after;
    }
    if !rest.is_empty() && out.contains('\x1b') {
        out.push_str(PLAIN);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_under_wide_and_combining_letters() {
        let mut table = Table::new(&["A", "B"]);
        table.row(["日本".to_owned(), "x".to_owned()]);
        table.row(["e\u{301}".to_owned(), String::new()]);
        table.row(["abcd".to_owned(), "y".to_owned()]);
        assert_eq!(table.render(), "A     B\n日本  x\ne\u{301}     -\nabcd  y\n");
    }

    #[test]
    fn cells_cannot_steer_the_terminal() {
        let mut table = Table::new(&["A"]);
        table.row(["\x1b[2J\nx".to_owned()]);
        table.row(["a\u{202e}b\u{200b}".to_owned()]);
        assert_eq!(table.render(), "A\n\u{fffd}[2J\u{fffd}x\na\u{fffd}b\u{fffd}\n");
    }

    #[test]
    fn colours_are_around_states_alone_and_change_no_width() {
        let mut table = Table::new(&["A", "STATE", "B"]);
        table.row(["degraded", "healthy", "x"].map(str::to_owned));
        let coloured = table.render_for(Look { terminal: true, colour: true, ascii: false });
        assert_eq!(coloured, "A         STATE    B\ndegraded  \x1b[32mhealthy\x1b[0m  x\n");
        assert_eq!(table.render(), "A         STATE    B\ndegraded  healthy  x\n");
    }

    #[test]
    fn a_line_is_cut_by_columns_and_never_within_a_letter_or_a_colour() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abc", 2), "ab");
        assert_eq!(cut("日本x", 3), "日");
        assert_eq!(cut("日本x", 5), "日本x");
        assert_eq!(cut("e\u{301}x", 1), "e\u{301}");
        assert_eq!(cut("\x1b[32mhealthy\x1b[0m x", 4), "\x1b[32mheal\x1b[0m");
        assert_eq!(cut("a \x1b[32mok\x1b[0m", 4), "a \x1b[32mok\x1b[0m");
        assert_eq!(cut("", 0), "");
    }
}
