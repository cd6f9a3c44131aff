//! The pages of alerts: one for each, with the same headings, and commands that the agent has.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::rules::{Rule, alerts};
use super::{RUNBOOKS, files, stem, text};

/// What stands on every page, in this order.
const HEADINGS: [&str; 4] = ["## What it means", "## What to look at", "## What to do", "## What not to do"];

/// What stands on every page, as it is: the commands are those of a host with systemd.
const ELSEWHERE: &str = "\
In Kubernetes, `kubectl -n NAMESPACE get pods -o wide --field-selector spec.nodeName=NODE` finds the agent's pod of a node,
`kubectl -n NAMESPACE exec POD -- mountie …` stands for a command of `mountie` there, `kubectl -n NAMESPACE logs POD` for
`journalctl -u mountie`.
";

pub(super) fn check(root: &Path, rules: &[Rule]) -> Result<Vec<String>> {
    let alerts = alerts(rules);
    let mut findings = Vec::new();
    let mut pages = BTreeSet::new();
    for path in files(&root.join(RUNBOOKS), "md")? {
        let (name, page) = (stem(&path), text(&path)?);
        findings.extend(wrong_with(&name, &page));
        pages.insert(name);
    }
    let pages: BTreeSet<&str> = pages.iter().map(String::as_str).collect();
    findings.extend(alerts.difference(&pages).map(|name| format!("{name}: it has no page in {RUNBOOKS}")));
    findings.extend(
        pages.difference(&alerts).map(|name| format!("{RUNBOOKS}/{name}.md: there is no such alert")),
    );
    Ok(findings)
}

fn wrong_with(name: &str, page: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
    if !page.starts_with(&format!("# {name}\n")) || headings != HEADINGS {
        findings.push(format!("{name}: its headings are not {HEADINGS:?}"));
    }
    if !page.contains(ELSEWHERE) {
        findings.push(format!("{name}: it does not say how its commands are given in Kubernetes"));
    }
    if commands(page).next().is_none() {
        findings.push(format!("{name}: it names no command of mountie"));
    }
    findings
}

/// The commands of `mountie` that a page names: in the block of commands, and as code in a line.
pub(crate) fn commands(page: &str) -> impl Iterator<Item = &str> {
    let in_line = page.split('`').skip(1).step_by(2);
    page.lines().chain(in_line).filter_map(|text| text.strip_prefix("mountie ")).map(|rest| {
        let rest = rest.lines().next().unwrap_or(rest);
        rest.split(" # ").next().unwrap_or(rest).trim()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n\n## What it means\n\nx\n\n## What to look at\n\n```sh\nmountie describe VOLUME   # why\n```\n\n\
                        ## What to do\n\n- `mountie ack VOLUME`, `df`\n\n## What not to do\n\n- x\n";

    fn page() -> String {
        PAGE.replace("## What to do\n", &format!("{ELSEWHERE}\n## What to do\n"))
    }

    #[test]
    fn commands_are_found_in_blocks_and_in_lines() {
        let found: BTreeSet<&str> = commands(PAGE).collect();
        assert_eq!(found, BTreeSet::from(["ack VOLUME", "describe VOLUME"]));
    }

    #[test]
    fn a_page_has_its_headings_and_a_command() {
        let page = page();
        assert_eq!(wrong_with("A", &page), Vec::<String>::new());
        assert_eq!(wrong_with("B", &page).len(), 1);
        assert_eq!(
            wrong_with("A", &page.replace("`mountie ack", "`other").replace("\nmountie ", "\nother ")).len(),
            1
        );
        assert_eq!(wrong_with("A", &page.replace("## What to do\n", "")).len(), 1);
        assert_eq!(wrong_with("A", PAGE).len(), 1);
    }
}
