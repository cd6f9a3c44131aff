//! What operators are given beside the binary: rules, their tests, runbooks and dashboards. Here they are held to each
//! other and to the table of metrics, by reading alone; `surface` tries them with a real Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) mod dashboards;
pub(crate) mod metrics;
pub(crate) mod promql;
pub(crate) mod rules;
pub(crate) mod runbooks;
mod vocabulary;

use vocabulary::Vocabulary;

/// The folder of rules and dashboards.
pub(crate) const FOLDER: &str = "dashboards";
/// The rules.
pub(crate) const RULES: &str = "dashboards/mountie.rules.yml";
/// Their tests.
pub(crate) const TESTS: &str = "dashboards/tests";
/// The pages of alerts.
pub(crate) const RUNBOOKS: &str = "docs/runbooks";

/// Everything that is wrong, below the root of the workspace.
///
/// # Errors
/// When a file cannot be read, or is not of its kind.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let metrics = metrics::Metrics::read(root)?;
    let rules = rules::read(root)?;
    let tests = rules::read_tests(root)?;
    let boards = dashboards::read(root)?;
    let (vocabulary, mut findings) = Vocabulary::new(&metrics, &rules);
    findings.extend(rules::check(&rules, &vocabulary));
    findings.extend(rules::check_tests(&rules, &tests, &vocabulary));
    findings.extend(runbooks::check(root, &rules)?);
    findings.extend(dashboards::check(&boards, &vocabulary));
    let queries: Vec<String> =
        boards.iter().flat_map(dashboards::Dashboard::queries).map(|query| query.expr).collect();
    findings.extend(rules::unread(&rules, &queries));
    Ok(findings)
}

/// The files of a folder with one ending, by name.
pub(crate) fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let mut paths = BTreeSet::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == ending) {
            paths.insert(path);
        }
    }
    Ok(paths.into_iter().collect())
}

/// The text of a file.
pub(crate) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

/// A file without its folders and its ending.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_tests_runbooks_and_dashboards_fit_each_other_and_the_metrics() {
        assert_eq!(check(&crate::command::root()).unwrap(), Vec::<String>::new());
    }
}
