//! Who may use whom, and which crates may be named where.

use super::{Source, code_lines};

/// Modules of `agent`, and the sibling modules each may use. `app` and `main` may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("asking", &["error_chain", "exit_code", "sys"]),
    ("cli", &["config", "exit_code"]),
    ("client", &["exit_code", "export", "sys"]),
    ("config", &["exit_code", "sensor", "telemetry"]),
    ("export", &["sensor", "sys", "telemetry"]),
    ("kernel", &["sys"]),
    ("probe", &["error_chain", "exit_code", "kernel", "sys"]),
    ("remediation", &["exit_code", "kernel", "sys"]),
    ("error_chain", &[]),
    ("sensor", &["error_chain", "exit_code", "kernel", "sys"]),
    ("store", &["sys"]),
    ("sys", &[]),
    ("telemetry", &[]),
];

/// Words that only the named places of `agent/src` may contain, and why.
const CONFINED: &[(&str, &[&str], &str)] = &[
    ("aya::", &["sensor/ebpf", "kernel"], "kernel programs are loaded in one place"),
    ("prometheus::", &["export", "telemetry"], "metrics are made in one place"),
    ("rustix::mount", &["sys", "remediation/attributes.rs"], "mounts are changed in one place"),
    ("nix::mount", &["sys"], "mounts are changed in one place"),
    ("remove_dir_all", &[], "no recursive delete in this product"),
    ("canonicalize(", &[], "resolving a path may touch a watched mount"),
];

/// Parts of paths of files that only tests are built from.
const TESTS: &[&str] = &["fuzz", "tests.rs", "/tests/", "/lab", "private_namespace.rs"];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let path = source.path.to_string_lossy();
        if path.starts_with("agent/core/src") {
            for (number, line) in code_lines(&source.text) {
                if line.contains("std::") && !line.contains("extern crate std") && !path.ends_with("tests.rs")
                {
                    findings.push(format!("{path}:{number}: the core does not use `std`"));
                }
            }
        }
        let Some(inside) = path.strip_prefix("agent/src/") else { continue };
        let module = inside.split(['/', '.']).next().unwrap_or(inside);
        if TESTS.iter().any(|part| inside.contains(part)) {
            continue;
        }
        for (number, line) in code_lines(&source.text) {
            if let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) {
                if line.trim_end().ends_with("crate::{") {
                    findings.push(format!("{path}:{number}: a list over several lines hides what is used"));
                }
                for used in siblings(line) {
                    if used != module && !allowed.contains(&used) {
                        findings.push(format!("{path}:{number}: `{module}` may not use `{used}`"));
                    }
                }
            }
            for (word, places, why) in CONFINED {
                if line.contains(word) && !places.iter().any(|place| inside.starts_with(place)) {
                    findings.push(format!("{path}:{number}: `{word}` does not belong here: {why}"));
                }
            }
        }
    }
    findings
}

/// The modules named after `crate::` in a line, also those of a list in braces.
fn siblings(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for rest in line.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.extend(first_word(rest));
            continue;
        };
        let mut depth = 0_u32;
        let mut is_start = true;
        for (at, c) in list.char_indices() {
            if depth == 0 && is_start && !c.is_whitespace() {
                found.extend(list.get(at..).and_then(first_word));
            }
            is_start = c == ',' || (is_start && c.is_whitespace());
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

fn first_word(text: &str) -> Option<&str> {
    let word = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_found_alone_and_in_lists() {
        assert_eq!(siblings("use crate::probe::Pool;"), ["probe"]);
        assert_eq!(
            siblings("use crate::{probe, remediation::{Executor, act}, store};"),
            ["probe", "remediation", "store"]
        );
        assert_eq!(siblings("let a: crate::sys::A = crate::store::open();"), ["sys", "store"]);
        assert_eq!(siblings("pub(crate) fn x() {}"), Vec::<&str>::new());
    }

    #[test]
    fn a_forbidden_sibling_in_a_list_is_a_finding() {
        let source = |text: &str| Source { path: "agent/src/sensor/x.rs".into(), text: text.to_owned() };
        assert_eq!(check(&[source("use crate::{sys, store};")]).len(), 1);
        assert!(check(&[source("use crate::{sys, kernel};")]).is_empty());
        assert_eq!(check(&[source("use crate::{\n    store,\n};")]).len(), 1);
    }
}
