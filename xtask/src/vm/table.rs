//! The table of results: kernels are columns, what was tried are rows. It is kept as Markdown and read from there
//! again, so that a run replaces its own cells and leaves the others.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One cell, as a case wrote it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Row {
    /// Which section.
    pub(crate) table: String,
    /// The family of hooks that was configured.
    pub(crate) family: String,
    /// What was tried.
    pub(crate) row: String,
    /// What came of it.
    pub(crate) result: String,
    /// More, for who watches the run.
    #[serde(default)]
    detail: String,
}

/// Which row a cell is in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    table: String,
    /// Empty where the families share a section.
    family: String,
    row: String,
}

/// One section of the table.
struct Section {
    table: &'static str,
    title: &'static str,
    /// What the rows are, above them.
    rows: &'static str,
    /// Whether the families have a section each.
    by_family: bool,
    about: &'static str,
}

const SECTIONS: &[Section] = &[
    Section {
        table: "programs",
        title: "Kernel programs",
        rows: "program",
        by_family: false,
        about: "`attached`, or why not. `mountie doctor` says the same of the host it runs on.",
    },
    Section {
        table: "refusals",
        title: "What a kernel may refuse",
        rows: "refused",
        by_family: false,
        about: "Whether the kernel programs run all the same, or what the agent says of it. It watches in any case.",
    },
    Section {
        table: "io",
        title: "Kinds of I/O",
        rows: "failing operation",
        by_family: true,
        about: "Whether a failing operation of this kind is counted by the kernel programs, exactly once.",
    },
    Section {
        table: "faults",
        title: "Faults",
        rows: "fault",
        by_family: false,
        about: "From the fault to `Degraded`. Emulated kernels are about ten times slower than real ones.",
    },
    Section {
        table: "repairs",
        title: "Repairs",
        rows: "fault that ends",
        by_family: false,
        about: "From the end of the fault to `Healthy`, with the time in which that has to be believed, and the longest \
                gap in which a path showed nothing of the volume. A container of its own mount namespace holds a bind, \
                a read-only bind and a bind of a directory: they show the same superblock as the host then, one deep, \
                with their options. No gap where the kernel mounts beneath (6.5); a device can be mounted only once, \
                and has to go first.",
    },
    Section {
        table: "suites",
        title: "Test suites",
        rows: "suite",
        by_family: true,
        about: "A skipped test said what it lacks there.",
    },
];

impl Section {
    fn of(table: &str) -> Option<&'static Self> {
        SECTIONS.iter().find(|section| section.table == table)
    }

    fn heading(&self, family: &str) -> String {
        if family.is_empty() { self.title.to_owned() } else { format!("{}: family `{family}`", self.title) }
    }

    /// The section that has this heading, and its family.
    fn with_heading(heading: &str) -> Option<(&'static Self, String)> {
        let (title, family) = match heading.split_once(": family `") {
            Some((title, rest)) => (title, rest.trim_end_matches('`')),
            None => (heading, ""),
        };
        let section = SECTIONS.iter().find(|section| section.title == title)?;
        Some((section, family.to_owned()))
    }
}

impl Key {
    /// The row's place in the table.
    pub(crate) fn new(table: &str, family: &str, row: &str) -> Self {
        let by_family = Section::of(table).is_some_and(|section| section.by_family);
        let family = if by_family { family } else { "" };
        Self { table: table.to_owned(), family: family.to_owned(), row: row.to_owned() }
    }

    /// What was tried.
    pub(crate) fn row(&self) -> &str {
        &self.row
    }
}

impl Row {
    /// The row of a suite of tests.
    pub(crate) fn of_suite(family: &str, name: &str, result: String) -> Self {
        let [table, family, row] = ["suites", family, name].map(str::to_owned);
        Self { table, family, row, result, detail: String::new() }
    }

    /// What stands beside the result, for people.
    pub(crate) fn beside(&self) -> String {
        if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) }
    }

    /// Where it belongs.
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.table, &self.family, &self.row)
    }
}

/// Reads what cases wrote, one JSON object a line. A line without an end is left out: the guest died over it.
pub(crate) fn parse_rows(lines: &str) -> Result<Vec<Row>> {
    lines
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("a case wrote a bad row: {line}")))
        .collect()
}

/// What stands where nothing was said.
const NOTHING: &str = "–";

/// Cells of one row, by kernel.
type Cells = BTreeMap<String, String>;

/// All that is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Table {
    /// Name and `uname -r` of each kernel that has a column.
    kernels: Vec<(String, String)>,
    rows: Vec<(Key, Cells)>,
}

impl Table {
    /// No cells yet, for these kernels and these rows, in this order. It takes no others.
    pub(crate) fn new(kernels: impl Iterator<Item = &'static str>, known: &[Key]) -> Self {
        let kernels = kernels.map(|name| (name.to_owned(), NOTHING.to_owned())).collect();
        Self { kernels, rows: known.iter().map(|key| (key.clone(), Cells::new())).collect() }
    }

    /// Says which release a kernel is.
    pub(crate) fn release(&mut self, kernel: &str, release: &str) {
        for (_, known) in self.kernels.iter_mut().filter(|(name, _)| name == kernel) {
            release.clone_into(known);
        }
    }

    /// Replaces one cell, or empties it. A row that is not known is left out.
    pub(crate) fn set(&mut self, kernel: &str, key: &Key, result: Option<&str>) {
        for (_, cells) in self.rows.iter_mut().filter(|(known, _)| known == key) {
            match result {
                Some(result) => cells.insert(kernel.to_owned(), result.to_owned()),
                None => cells.remove(kernel),
            };
        }
    }

    /// Takes what the file says of these kernels and rows; what is not in order there is left out.
    pub(crate) fn read(&mut self, text: &str) {
        let (mut section, mut heads): (Option<(&Section, String)>, Vec<String>) = (None, Vec::new());
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = Section::with_heading(heading);
                heads.clear();
            }
            let Some(cells) = cells(line) else { continue };
            let Some((first, rest)) = cells.split_first() else { continue };
            if heads.is_empty() {
                rest.clone_into(&mut heads);
                continue;
            }
            for (kernel, cell) in heads.iter().zip(rest).filter(|(_, cell)| *cell != NOTHING) {
                match &section {
                    Some((section, family)) => {
                        self.set(kernel, &Key::new(section.table, family, first), Some(cell.as_str()));
                    }
                    None => self.release(kernel, cell.trim_matches('`')),
                }
            }
        }
    }

    /// The whole table, as Markdown. A section without any cell is left out.
    pub(crate) fn render(&self) -> String {
        let heads: Vec<String> = self.kernels.iter().map(|(name, _)| name.clone()).collect();
        let releases = self.kernels.iter().map(|(_, release)| format!("`{release}`")).collect();
        let mut text = grid("kernel", &heads, &[("`uname -r`".to_owned(), releases)]);
        for section in SECTIONS {
            let rows = || self.rows.iter().filter(|(key, _)| key.table == section.table);
            let mut families: Vec<&str> = Vec::new();
            for (key, _) in rows().filter(|(_, cells)| !cells.is_empty()) {
                if !families.contains(&key.family.as_str()) {
                    families.push(&key.family);
                }
            }
            for family in families {
                let cell = |cells: &Cells, kernel: &String| {
                    cells.get(kernel).map_or(NOTHING, String::as_str).to_owned()
                };
                let rows = rows().filter(|(key, _)| key.family == family).map(|(key, cells)| {
                    (key.row.clone(), heads.iter().map(|kernel| cell(cells, kernel)).collect())
                });
                let rows: Vec<_> = rows.collect();
                text.push_str(&format!("\n## {}\n\n{}\n\n", section.heading(family), section.about));
                text.push_str(&grid(section.rows, &heads, &rows));
            }
        }
        text
    }
}

/// The cells of a line of a table; `None` for any other line, and for the rule below the heads.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    if inner.chars().all(|c| "-|".contains(c)) {
        return None;
    }
    let mut cells = vec![String::new()];
    let mut letters = inner.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_escaped = letter == '\\' && letters.next_if_eq(&'|').is_some();
        match (letter, is_escaped, cells.last_mut()) {
            (_, true, Some(cell)) => cell.push('|'),
            ('|', false, _) => cells.push(String::new()),
            (_, false, Some(cell)) => cell.push(letter),
            (_, _, None) => {}
        }
    }
    Some(cells.into_iter().map(|cell| cell.trim().to_owned()).collect())
}

/// A table in Markdown, with columns as wide as their cells, so that it reads in a terminal too.
fn grid(corner: &str, heads: &[String], rows: &[(String, Vec<String>)]) -> String {
    let head: Vec<String> = [corner.to_owned()].into_iter().chain(heads.iter().cloned()).collect();
    let body = rows.iter().map(|(name, cells)| {
        [name].into_iter().chain(cells).map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect()
    });
    let lines: Vec<Vec<String>> = [head].into_iter().chain(body).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..=heads.len()).map(width).collect();
    let show = |line: &[String]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        text.push_str(&show(line));
        if number == 0 {
            text.push_str(&format!("|{rule}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of two kernels with these rows, all of them known.
    fn table(rows: &[(&str, &str, &str, [&str; 2])]) -> Table {
        let kernels = ["5.10", "7.3"];
        let keys: Vec<Key> = rows.iter().map(|(name, family, row, _)| Key::new(name, family, row)).collect();
        let mut table = Table::new(kernels.into_iter(), &keys);
        for ((.., cells), key) in rows.iter().zip(&keys) {
            for (kernel, cell) in kernels.into_iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
                table.set(kernel, key, Some(cell));
            }
        }
        table.release("5.10", "5.10.0-46-amd64");
        table
    }

    #[test]
    fn kernels_are_columns_and_what_only_some_have_is_empty() {
        let rows = [
            ("programs", "auto", "a", ["attached", "attached"]),
            ("programs", "auto", "b", ["", "attached"]),
            ("programs", "auto", "c", ["x|y", "attached"]),
        ];
        let expected = "\
| kernel     | 5.10              | 7.3 |
|------------|-------------------|-----|
| `uname -r` | `5.10.0-46-amd64` | `–` |

## Kernel programs

`attached`, or why not. `mountie doctor` says the same of the host it runs on.

| program | 5.10     | 7.3      |
|---------|----------|----------|
| a       | attached | attached |
| b       | –        | attached |
| c       | x\\|y     | attached |
";
        assert_eq!(table(&rows).render(), expected);
    }

    #[test]
    fn families_of_io_have_a_section_each_and_other_tables_have_one() {
        let rows = [
            ("io", "fexit", "read(2)", ["counted", ""]),
            ("io", "sys_exit", "read(2)", ["", "not counted"]),
            ("faults", "auto", "gone", ["missed", ""]),
        ];
        let text = table(&rows).render();
        let (fexit, sys_exit) = text.split_once("family `sys_exit`").unwrap();
        assert!(fexit.contains("family `fexit`") && fexit.contains("| counted |"), "{text}");
        assert!(sys_exit.contains("| not counted |"), "{text}");
        assert!(text.contains("\n## Faults\n") && !text.contains("Test suites"));
    }

    #[test]
    fn what_was_written_is_read_again_to_the_letter() {
        let rows = [
            ("programs", "", "a", ["EACCES: …> 1 | (bf) r2", "attached"]),
            ("io", "fexit", "read, answered with ETIMEDOUT", ["counted", ""]),
            ("io", "sys_exit", "read, answered with ETIMEDOUT", ["", "wrong"]),
            ("faults", "", "ext4, nobody reads", ["detected in 3 ms", "guest ended by time"]),
            ("suites", "auto", "swap", ["", "1 failed, 2 passed"]),
        ];
        let table = table(&rows);
        let known = rows.map(|(name, family, row, _)| Key::new(name, family, row));
        let mut again = Table::new(["5.10", "7.3"].into_iter(), &known);
        again.read(&format!("# Kernels\n\nWords | with a stroke.\n\n{}", table.render()));
        assert_eq!(again, table);
    }

    #[test]
    fn a_row_that_does_not_exist_any_more_is_not_shown_and_the_order_is_that_of_the_list() {
        let text = table(&[
            ("faults", "", "old", ["missed", "missed"]),
            ("faults", "", "b", ["missed", ""]),
            ("faults", "", "a", ["missed", ""]),
        ])
        .render();
        let known = ["a", "b", "new"].map(|row| Key::new("faults", "auto", row));
        let mut again = Table::new(["5.10", "7.3"].into_iter(), &known);
        again.read(&text);
        let rows: Vec<&str> = again.rows.iter().map(|(key, _)| key.row()).collect();
        assert_eq!(rows, ["a", "b", "new"]);
        again.set("7.3", &Key::new("faults", "auto", "old"), Some("missed"));
        again.set("5.10", &Key::new("faults", "auto", "a"), None);
        let text = again.render();
        assert!(!text.contains("old") && text.contains("| a     | –      | –   |"), "{text}");
    }

    #[test]
    fn rows_are_read_with_what_they_have_beside() {
        let line = r#"{"table":"io","family":"auto","row":"r","result":"counted","detail":"3 of 3"}"#;
        let rows = parse_rows(&format!("{line}\n{{\"table\":")).unwrap();
        assert_eq!(rows.iter().map(Row::key).collect::<Vec<_>>(), [Key::new("io", "auto", "r")]);
        assert!(parse_rows("{}\n").unwrap_err().to_string().contains("bad row"));
        assert!(parse_rows("").unwrap().is_empty());
    }
}
