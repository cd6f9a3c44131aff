//! What is run in each guest: the project's own tests, each part in a guest of its own, so that one that brings
//! its kernel down costs only itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent::Profile;
use crate::command::{cargo, must, step};

use super::Family;
use super::guest::{Job, ROWS};

/// One part of the suite.
#[derive(Debug)]
pub(super) struct Part {
    /// For people; where the part is a suite of its own, its row in the table.
    pub(super) name: &'static str,
    /// The test binary.
    program: &'static str,
    /// Its arguments.
    arguments: &'static [&'static str],
    /// The families that it is run with.
    families: &'static [Family],
    /// Whether how it ended is a row; otherwise its cases add rows themselves.
    pub(super) is_row: bool,
    deadline: Duration,
}

/// How many times longer things may take in a guest, two of which share a busy machine.
const PATIENCE: &str = "6";

/// Parts of many rows or cases: with `fexit` an agent takes a minute to start on a busy machine, and a row of the
/// table of I/O up to ten seconds.
const LONG: Duration = Duration::from_secs(2700);

const BOTH: &[Family] = &[Family::Fexit, Family::SysExit];
const AUTO: &[Family] = &[Family::Auto];

/// Every part, in the order of the table.
pub(super) const PARTS: &[Part] = &[
    Part {
        name: "programs and kinds of I/O",
        program: "cases",
        arguments: &["--vm=programs,io", "--test-threads=1"],
        families: BOTH,
        is_row: false,
        deadline: LONG,
    },
    Part {
        name: "faults",
        program: "cases",
        arguments: &["--vm=faults", "--test-threads=1"],
        families: AUTO,
        is_row: false,
        deadline: LONG,
    },
    Part {
        name: "kernel_counts",
        program: "kernel_counts",
        arguments: &[],
        families: BOTH,
        is_row: true,
        deadline: Duration::from_secs(600),
    },
    Part {
        name: "swap",
        program: "swap",
        arguments: &["--test-threads=1"],
        families: AUTO,
        is_row: true,
        deadline: Duration::from_secs(1200),
    },
    Part {
        name: "cases",
        program: "cases",
        // The table of kinds of I/O has a part of its own.
        arguments: &["--test-threads=1", "--skip=io::"],
        families: AUTO,
        is_row: true,
        deadline: Duration::from_secs(1200),
    },
];

/// File systems and devices that cases look for before they would be loaded by use.
const MODULES: &[&str] = &[
    "loop", "fuse", "autofs4", "overlay", "ext4", "xfs", "btrfs", "nfs", "nfsv3", "nfsv4", "cifs", "dm-mod",
];

/// A part with a family, and the job that runs it.
#[derive(Debug)]
pub(super) struct Planned {
    /// Which part.
    pub(super) part: &'static Part,
    /// With which family.
    pub(super) family: Family,
    /// What the guest does.
    pub(super) job: Job,
}

/// The jobs for one kernel. Without a family every part has its own; a filter leaves out the parts that have no
/// case of such a name.
pub(super) fn plan(binaries: &Path, family: Option<Family>, filter: Option<&str>) -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for part in PARTS {
        if let Some(filter) = filter
            && !part.has_case(binaries, filter)?
        {
            continue;
        }
        let families = family.as_ref().map_or(part.families, std::slice::from_ref);
        planned.extend(families.iter().map(|family| part.with(*family, filter)));
    }
    Ok(planned)
}

impl Part {
    fn with(&'static self, family: Family, filter: Option<&str>) -> Planned {
        let mut command = vec![format!("/host/{}", self.program)];
        command.extend(self.arguments.iter().map(|&word| word.to_owned()));
        command.extend(filter.filter(|_| !self.answers_by_name()).map(str::to_owned));
        let environment = [
            ("MOUNTIE_BIN", "/host/mountie"),
            ("MOUNTIE_MATRIX", ROWS),
            ("MOUNTIE_FAMILY", family.label()),
            ("MOUNTIE_TEST_FAMILY", family.label()),
            ("MOUNTIE_PATIENCE", PATIENCE),
        ];
        Planned {
            part: self,
            family,
            job: Job {
                name: format!("{} ({})", self.name, family.label()),
                command,
                environment: environment.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
                modules: MODULES.iter().map(|&name| name.to_owned()).collect(),
                deadline: self.deadline,
            },
        }
    }

    /// The one binary that lists no cases is chosen as a whole.
    fn answers_by_name(&self) -> bool {
        self.program == "kernel_counts"
    }

    fn has_case(&self, binaries: &Path, filter: &str) -> Result<bool> {
        if self.answers_by_name() {
            return Ok(self.name.contains(filter));
        }
        let program = binaries.join(self.program);
        let output = Command::new(&program)
            .args(self.arguments)
            .arg("--list")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("failed to start {}", program.display()))?;
        if !output.status.success() {
            bail!("{} --list ended with {}", program.display(), output.status);
        }
        let list = String::from_utf8_lossy(&output.stdout);
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).any(|name| name.contains(filter)))
    }
}

/// Builds what the guests run and puts it into one folder, without the hashes in the names.
pub(super) fn build(into: &Path) -> Result<()> {
    let agent = crate::agent::build(Profile::Guest)?;
    step("building the tests that run in the guests");
    let mut list = cargo();
    list.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    list.args(["--profile", Profile::Guest.name()]);
    list.args(["--package", "integration-tests", "--test", "cases"]);
    list.args(["--package", "agent", "--test", "kernel_counts", "--test", "swap"]);
    let output = list.stderr(Stdio::inherit()).output().context("failed to start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut binaries = executables(&String::from_utf8_lossy(&output.stdout));
    binaries.insert("mountie".to_owned(), agent);
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    for name in ["mountie"].into_iter().chain(PARTS.iter().map(|part| part.program)) {
        let binary = binaries.get(name).with_context(|| format!("cargo built no {name}"))?;
        strip(binary, &into.join(name))?;
    }
    Ok(())
}

/// A copy without debug information: the guest reads it through a slow share. Kept while it is newer.
fn strip(binary: &Path, to: &Path) -> Result<()> {
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let is_current = changed(to).is_ok_and(|to| changed(binary).is_ok_and(|from| from <= to));
    if is_current {
        return Ok(());
    }
    must(Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(binary))
}

/// The executables in the messages of cargo, by the names of their targets.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let name = message.pointer("/target/name")?.as_str()?.to_owned();
            Some((name, PathBuf::from(message.get("executable")?.as_str()?)))
        })
        .collect()
}

/// How many tests of a binary passed, failed and were skipped, as a few words.
pub(super) fn counts(output: &str) -> Option<String> {
    let words = |number: usize, what: &str| (number > 0).then(|| format!("{number} {what}"));
    let (passed, failed, skipped) = match output.lines().rev().find(|line| line.starts_with("test result: "))
    {
        Some(line) => {
            let number = |what: &str| {
                let before = line.split(what).next()?.trim_end();
                before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            };
            (number(" passed")?, number(" failed")?, number(" ignored")?)
        }
        None => {
            let lines = |start: &str| output.lines().filter(|line| line.starts_with(start)).count();
            (lines("ok: "), lines("FAILED: "), lines("skipped: "))
        }
    };
    let all = [words(failed, "failed"), words(passed, "passed"), words(skipped, "skipped")];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_with_its_own_families_unless_told_otherwise() {
        let all = plan(Path::new("/"), None, None).unwrap();
        let families: usize = PARTS.iter().map(|part| part.families.len()).sum();
        assert_eq!(all.len(), families);
        let one = plan(Path::new("/"), Some(Family::SysExit), None).unwrap();
        assert_eq!(one.len(), PARTS.len());
        let variable = ("MOUNTIE_FAMILY".to_owned(), "sys_exit".to_owned());
        assert!(one.iter().all(|planned| planned.job.environment.contains(&variable)));
    }

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"agent"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"swap"},"executable":"/t/swap-1"}
"#;
        let found = executables(messages);
        assert_eq!(found, BTreeMap::from([("swap".to_owned(), PathBuf::from("/t/swap-1"))]));
    }

    #[test]
    fn both_kinds_of_output_are_counted() {
        let trials =
            "test a ... ok\ntest result: FAILED. 60 passed; 2 failed; 5 ignored; 0 measured; 0 filtered";
        assert_eq!(counts(trials).as_deref(), Some("2 failed, 60 passed, 5 skipped"));
        assert_eq!(counts("ok: a\nok: b\nskipped: c: why\n").as_deref(), Some("2 passed, 1 skipped"));
        assert_eq!(counts("nothing\n"), None);
    }
}
