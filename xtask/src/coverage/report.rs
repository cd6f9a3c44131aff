//! What must be run, and the table of what was.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A part of the code and how much of it must be run.
struct Part {
    name: &'static str,
    /// Beginnings of paths.
    files: &'static [&'static str],
    /// Percent of lines.
    least: u32,
}

const fn decoder(name: &'static str, files: &'static [&'static str]) -> Part {
    Part { name, files, least: 90 }
}

/// Everything that decides or decodes: pure code, which a test can reach in full.
const PARTS: &[Part] = &[
    Part { name: "agent-core", files: &["agent/core/src/"], least: 95 },
    decoder("fanotify events", &["agent/src/sensor/fanotify/decode.rs"]),
    decoder("mountinfo", &["agent/src/sys/mountinfo.rs", "agent/src/sys/mountinfo/"]),
    decoder("statmount", &["agent/src/sys/statmount/decode.rs"]),
    decoder("kernel records", &["agent-ebpf/common/src/decode.rs", "agent/src/sensor/ebpf/decode.rs"]),
    decoder("kernel types", &["agent/src/kernel/btf/format.rs"]),
    decoder("probe protocol", &["agent/src/probe/protocol.rs", "agent/src/probe/protocol/"]),
    decoder("census wire", &["agent/src/sensor/census/wire.rs"]),
    decoder("remediation wire", &["agent/src/remediation/wire.rs"]),
    decoder("journal", &["agent/src/store/journal.rs", "agent/src/store/record.rs"]),
];

/// Lines of a file that have code, and those that were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lines {
    count: u64,
    covered: u64,
}

impl Lines {
    /// Rounded down: what is not reached is not reached.
    const fn percent(self) -> u64 {
        match (self.covered * 100).checked_div(self.count) {
            Some(percent) => percent,
            None => 0,
        }
    }
}

/// Files without those that are tests. Tests at the end of a file count with it.
pub(super) fn files(export: &Value, root: &Path) -> Result<BTreeMap<String, Lines>> {
    let list =
        export.pointer("/data/0/files").and_then(Value::as_array).context("llvm-cov tells no files")?;
    let mut files = BTreeMap::new();
    for file in list {
        let path = file.get("filename").and_then(Value::as_str).context("a file without a name")?;
        let path = Path::new(path);
        // Absolute, or as the compiler was given it; what stays absolute is not the project's.
        let path = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let number = |key: &str| file.pointer(&format!("/summary/lines/{key}")).and_then(Value::as_u64);
        let (count, covered) = number("count").zip(number("covered")).context("a file without lines")?;
        if Path::new(&path).is_relative() && !is_test(&path) {
            files.insert(path, Lines { count, covered });
        }
    }
    Ok(files)
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("/model.rs")
}

/// Prints the table, and the worst files of parts that fall short.
pub(super) fn judge(files: &BTreeMap<String, Lines>) -> Result<()> {
    let mut short = Vec::new();
    println!("{:<20} {:>7} {:>8} {:>8} {:>6}", "part", "lines", "run", "percent", "least");
    for part in PARTS {
        let own = || files.iter().filter(|(path, _)| part.files.iter().any(|file| path.starts_with(file)));
        let sum = own().fold(Lines::default(), |sum, (_, lines)| Lines {
            count: sum.count + lines.count,
            covered: sum.covered + lines.covered,
        });
        println!(
            "{:<20} {:>7} {:>8} {:>8} {:>6}",
            part.name,
            sum.count,
            sum.covered,
            sum.percent(),
            part.least
        );
        if sum.percent() < u64::from(part.least) {
            short.push(part.name);
            for (path, lines) in own().filter(|(_, lines)| lines.percent() < u64::from(part.least)) {
                println!("    {path}: {} of {}", lines.covered, lines.count);
            }
        }
    }
    if short.is_empty() { Ok(()) } else { bail!("too few lines are run: {}", short.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(covered: u64) -> BTreeMap<String, Lines> {
        let file = |path: &str| {
            let name = format!("/root/{path}");
            json!({"filename": name, "summary": {"lines": {"count": 100, "covered": covered}}})
        };
        let mut list: Vec<Value> =
            PARTS.iter().flat_map(|part| part.files).map(|path| file(&format!("{path}x.rs"))).collect();
        list.extend(["agent/core/src/engine/tests.rs", "agent/core/src/engine/tests/x.rs"].map(file));
        list.push(json!({"filename": "/elsewhere/x.rs", "summary": {"lines": {"count": 1, "covered": 0}}}));
        files(&json!({"data": [{"files": list}]}), Path::new("/root")).unwrap()
    }

    #[test]
    fn tests_and_what_belongs_to_others_do_not_count() {
        let files = table(97);
        assert_eq!(files.len(), PARTS.iter().flat_map(|part| part.files).count());
        assert!(files.keys().all(|path| Path::new(path).is_relative()));
        assert_eq!(files["agent/core/src/x.rs"], Lines { count: 100, covered: 97 });
    }

    #[test]
    fn a_part_that_falls_short_is_named() {
        assert!(judge(&table(95)).is_ok());
        let error = judge(&table(94)).unwrap_err().to_string();
        assert!(error.ends_with(": agent-core"), "{error}");
        let error = judge(&table(89)).unwrap_err().to_string();
        assert!(error.contains("agent-core") && error.contains("journal"), "{error}");
        // A part whose files are gone falls short as well.
        assert!(judge(&BTreeMap::new()).is_err());
    }
}
