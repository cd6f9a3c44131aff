//! Files stay small enough to be read in one go.

use super::{Source, code_lines};

/// Path prefix, and the most code lines a file below it may have. The first that fits counts.
const LIMITS: &[(&str, usize)] = &[("agent/src/main.rs", 60), ("agent-ebpf/src/", 200), ("", 500)];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = code_lines(&source.text).count();
        let path = source.path.to_string_lossy();
        let limit = LIMITS
            .iter()
            .find(|(prefix, _)| path.starts_with(prefix))
            .map_or(usize::MAX, |(_, limit)| *limit);
        if lines > limit {
            findings.push(format!("{path}: {lines} lines of code, the limit is {limit}"));
        }
        let tests = source.text.lines().skip_while(|line| line.trim() != "mod tests {").count();
        if tests > 110 {
            findings.push(format!("{path}: {tests} lines of inline tests, move them to a file of their own"));
        }
    }
    findings
}
