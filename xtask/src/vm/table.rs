//! The table of results: kernels are columns, what was tried are rows.

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
        table: "suites",
        title: "Test suites",
        rows: "suite",
        by_family: true,
        about: "A skipped test said what it lacks there.",
    },
];

/// A kernel's column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// What people call the kernel.
    pub(crate) name: String,
    /// `uname -r`.
    pub(crate) release: String,
    /// Its cells, in the order in which they came.
    pub(crate) rows: Vec<Row>,
}

/// Reads what cases wrote, one JSON object a line. A line without an end is left out: the guest died over it.
pub(crate) fn parse(lines: &str) -> Result<Vec<Row>> {
    lines
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(|line| serde_json::from_str(line).with_context(|| format!("a case wrote a bad row: {line}")))
        .collect()
}

/// The whole table, as Markdown.
pub(crate) fn render(columns: &[Column]) -> String {
    let mut text = String::new();
    let heads: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let releases = columns.iter().map(|column| format!("`{}`", column.release)).collect();
    text.push_str(&grid("kernel", &heads, &[("`uname -r`".to_owned(), releases)]));
    for section in SECTIONS {
        for family in families(section, columns) {
            let rows = rows(section, family.as_deref(), columns);
            if rows.is_empty() {
                continue;
            }
            let title = family
                .map_or(section.title.to_owned(), |family| format!("{}: family `{family}`", section.title));
            text.push_str(&format!("\n## {title}\n\n{}\n\n", section.about));
            text.push_str(&grid(section.rows, &heads, &rows));
        }
    }
    text
}

/// The families that have a section: all that occur, in the order of the first kernel that has them; or none.
fn families(section: &Section, columns: &[Column]) -> Vec<Option<String>> {
    if !section.by_family {
        return vec![None];
    }
    let mut found = Vec::new();
    for row in columns.iter().flat_map(|column| &column.rows).filter(|row| row.table == section.table) {
        let family = Some(row.family.clone());
        if !found.contains(&family) {
            found.push(family);
        }
    }
    found
}

/// The rows of a section, with one cell a kernel.
fn rows(section: &Section, family: Option<&str>, columns: &[Column]) -> Vec<(String, Vec<String>)> {
    let belongs = |row: &&Row| row.table == section.table && family.is_none_or(|family| row.family == family);
    let mut names: Vec<&str> = Vec::new();
    for column in columns {
        let mut after = names.len();
        for row in column.rows.iter().filter(belongs) {
            match names.iter().position(|name| *name == row.row) {
                Some(at) => after = at + 1,
                // A row that only later kernels have stands behind the one that came before it there.
                None => {
                    names.insert(after.min(names.len()), &row.row);
                    after += 1;
                }
            }
        }
    }
    let cells: Vec<BTreeMap<&str, &str>> = columns
        .iter()
        .map(|column| {
            column.rows.iter().filter(belongs).map(|row| (row.row.as_str(), row.result.as_str())).collect()
        })
        .collect();
    let cell = |cells: &BTreeMap<&str, &str>, name: &str| cells.get(name).copied().unwrap_or("–").to_owned();
    names
        .into_iter()
        .map(|name| (name.to_owned(), cells.iter().map(|cells| cell(cells, name)).collect()))
        .collect()
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

    fn row(table: &str, family: &str, row: &str, result: &str) -> Row {
        let [table, family, row, result] = [table, family, row, result].map(str::to_owned);
        Row { table, family, row, result }
    }

    fn column(name: &str, rows: Vec<Row>) -> Column {
        Column { name: name.to_owned(), release: format!("{name}-amd64"), rows }
    }

    #[test]
    fn kernels_are_columns_and_what_only_some_have_is_in_its_place() {
        let old = column(
            "5.10",
            vec![row("programs", "auto", "a", "attached"), row("programs", "auto", "c", "x|y")],
        );
        let names = ["a", "b", "c"];
        let new = column("7.3", names.map(|name| row("programs", "auto", name, "attached")).to_vec());
        let expected = "\
| kernel     | 5.10         | 7.3         |
|------------|--------------|-------------|
| `uname -r` | `5.10-amd64` | `7.3-amd64` |

## Kernel programs

`attached`, or why not. `mountie doctor` says the same of the host it runs on.

| program | 5.10     | 7.3      |
|---------|----------|----------|
| a       | attached | attached |
| b       | –        | attached |
| c       | x\\|y     | attached |
";
        assert_eq!(render(&[old, new]), expected);
    }

    #[test]
    fn families_of_io_have_a_section_each_and_the_last_word_counts() {
        let rows = vec![
            row("io", "fexit", "read(2)", "not counted"),
            row("io", "fexit", "read(2)", "counted"),
            row("io", "sys_exit", "read(2)", "not counted"),
        ];
        let text = render(&[column("6.1", rows)]);
        let (fexit, sys_exit) = text.split_once("family `sys_exit`").unwrap();
        assert!(fexit.contains("family `fexit`") && fexit.contains("| counted |"), "{text}");
        assert!(sys_exit.contains("| not counted |"), "{text}");
        assert!(!text.contains("## Faults"));
    }

    #[test]
    fn rows_are_read_with_what_they_have_beside() {
        let line = r#"{"table":"io","family":"auto","row":"r","result":"counted","detail":"3 of 3"}"#;
        let expected = [row("io", "auto", "r", "counted")];
        assert_eq!(parse(&format!("{line}\n{{\"table\":")).unwrap(), expected);
        assert!(parse("{}\n").unwrap_err().to_string().contains("bad row"));
        assert!(parse("").unwrap().is_empty());
    }
}
