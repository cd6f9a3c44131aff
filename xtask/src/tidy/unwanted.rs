//! The project speaks of itself alone: no unfinished business, no silenced lints.

use super::Source;

/// What must not stand in the sources, and what to do instead.
const UNWANTED: &[(&str, &str)] = &[
    ("TODO", "finish it, or file it"),
    ("FIXME", "finish it, or file it"),
    ("#[allow(", "use `#[expect(…, reason = …)]`"),
    ("#[ignore", "a test either runs or says why it is skipped"),
    ("#[should_panic", "assert on a result"),
    ("thread::sleep", "await a condition (`harness::wait`)"),
];

/// Where a word is allowed after all: the lint itself, and the one place that polls.
const EXCEPTIONS: &[(&str, &str)] = &[("thread::sleep", "tests/src/harness/wait.rs")];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let path = source.path.to_string_lossy();
        if path.starts_with("xtask/src/tidy/") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            for (word, instead) in UNWANTED {
                if line.contains(word) && !EXCEPTIONS.contains(&(word, &path)) {
                    findings.push(format!("{path}:{}: `{word}`: {instead}", number + 1));
                }
            }
        }
    }
    findings
}
