//! Columns that line up on a terminal, whatever letters the cells hold.

use agent_core::path::is_deceptive;

/// Aligned rows. Cells are cleaned: nothing in them can move the cursor or break a line.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| clean(cell)).collect());
    }

    /// The text. An empty cell shows as a dash, so that columns can be cut by scripts.
    pub(super) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, column) in row.iter().zip(&widths) {
                let cell = if cell.is_empty() { "-" } else { cell };
                line.push_str(cell);
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
fn width(text: &str) -> usize {
    text.chars().map(width_of_char).sum()
}

/// Combining marks take none, wide letters two. The blocks, not the whole of Unicode's table: a rare letter
/// outside them shifts one line by one column.
const fn width_of_char(c: char) -> usize {
    match c {
        '\u{0300}'..='\u{036f}'
        | '\u{0483}'..='\u{0489}'
        | '\u{0591}'..='\u{05bd}'
        | '\u{064b}'..='\u{065f}'
        | '\u{1ab0}'..='\u{1aff}'
        | '\u{20d0}'..='\u{20ff}'
        | '\u{3099}'..='\u{309a}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
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
}
