//! (Test only.) `docs/METRICS.md`, made of the tables. `cargo xtask docs` has it written; otherwise this fails when
//! the page is not what the tables give.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::labels::{LABELS, Label, Values, label_of, words_of};
use super::table::{Row, TABLE};

/// Set: the page is written.
const WRITE: &str = "MOUNTIE_WRITE_DOCS";

const HEAD: &str = "\
# Metrics

<!-- Made of agent/src/export/metrics/table.rs and labels.rs by `cargo xtask docs`: change those. -->

`/metrics` answers in the Prometheus text format, and in OpenMetrics 1.0 who asks for that (Prometheus does by itself).
A scrape reads memory only: it never touches a mount, and costs the same while volumes hang.

Every series of a volume is there at zero from the moment at which the volume is known, stays while the volume is stuck
or missing, and goes when the volume is watched no more. Of `mountie_volume_errors_total` only the usual combinations
are there at zero; the others come with their first count, which is no increase to Prometheus. `mountie_remediation_total`
has every outcome of the volume's own method at zero, unless the volume is in mode `off` or was only found.
Names and labels of `stable` metrics stay until the next major version; `internal` ones follow the kernel or the inside
of the agent. No label has the text of an error, and none a secret.

Alert rules and dashboards made of these are in [dashboards/](../dashboards/README.md).

## Metrics

| metric | type | unit | labels | stability | meaning |
|---|---|---|---|---|---|
";

const LABELS_HEAD: &str = "
## Labels

| label | meaning | in | values |
|---|---|---|---|
";

#[test]
fn the_page_is_what_the_tables_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/METRICS.md");
    let wanted = page();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/METRICS.md is not what the tables give: run `cargo xtask docs`");
}

#[test]
fn no_text_breaks_a_table() {
    for line in page().lines().filter(|line| line.starts_with('|')) {
        assert!([5, 7].contains(&line.matches('|').count()), "{line}");
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for row in TABLE {
        let Row { name, kind, labels, stability, help, .. } = row;
        let unit = row.unit().unwrap_or_default();
        let (kind, labels, stability) = (kind.word(), code(labels), stability.word());
        let _ = writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {stability} | {help} |");
    }
    page += LABELS_HEAD;
    for label in LABELS {
        let Label { name, meaning, values, .. } = label;
        let has = |row: &&Row| {
            row.labels.contains(name) && label_of(row.name, name).is_some_and(|found| found.of == label.of)
        };
        let metrics: Vec<&str> = TABLE.iter().filter(has).map(|row| row.name).collect();
        let every = "every metric of a volume";
        let metrics = if *name == "volume" { every.to_owned() } else { code(&metrics) };
        let values = match (values, words_of(label)) {
            (Values::Bounded(text), _) => (*text).to_owned(),
            (Values::Words(_), words) => code(&words.unwrap_or_default().into_iter().collect::<Vec<_>>()),
        };
        let _ = writeln!(page, "| `{name}` | {meaning} | {metrics} | {values} |");
    }
    page
}

fn code(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ")
}
