//! What is run in each guest: the project's own tests, each part in a guest of its own, so that one that brings
//! its kernel down costs only itself.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::agent::Profile;
use crate::built;
use crate::command::{cargo, must, step};

use super::Family;
use super::guest::{Job, ROWS};
use super::table::Key;

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
    /// How long it may take; `None`: as long as its cases may, each of which is ended when it takes too long.
    deadline: Option<Duration>,
    /// Whether it is left out unless it is asked for.
    on_request: bool,
}

/// How many times longer things may take in a guest, two of which share a busy machine.
const PATIENCE: &str = "6";

/// From the start of the emulator to that of the tests, and from their end to its own.
const AROUND: Duration = Duration::from_secs(300);

/// A guest from which nothing was heard for so long is ended. A case that adds no row before its end, and then hangs
/// in it, is given up by its own limits sooner.
const SILENCE: Duration = Duration::from_secs(1200);

const BOTH: &[Family] = &[Family::Fexit, Family::SysExit];
const AUTO: &[Family] = &[Family::Auto];

/// A case with many faults has a guest for itself: what hangs there costs no other.
const fn faults(name: &'static str, arguments: &'static [&'static str]) -> Part {
    Part {
        name,
        program: "cases",
        arguments,
        families: AUTO,
        is_row: false,
        deadline: None,
        on_request: false,
    }
}

/// A suite whose end is one row.
const fn suite(program: &'static str, arguments: &'static [&'static str], minutes: u64) -> Part {
    Part {
        name: program,
        program,
        arguments,
        families: AUTO,
        is_row: true,
        deadline: Some(Duration::from_secs(minutes * 60)),
        on_request: false,
    }
}

/// Every part, in the order of the table.
pub(super) const PARTS: &[Part] = &[
    Part {
        name: "programs and kinds of I/O",
        families: BOTH,
        ..faults("", &["--vm=programs,io", "--test-threads=1"])
    },
    faults("refusals", &["--vm=refusals", "--test-threads=1"]),
    faults(
        "faults::local_file_systems",
        &["--vm=faults", "--test-threads=1", "--exact", "faults::local_file_systems"],
    ),
    faults("faults::fuse", &["--vm=faults", "--test-threads=1", "--exact", "faults::fuse"]),
    faults("faults::nfs", &["--vm=faults", "--test-threads=1", "--exact", "faults::nfs"]),
    faults("faults::smb", &["--vm=faults", "--test-threads=1", "--exact", "faults::smb"]),
    faults(
        "repairs::local_file_systems",
        &["--vm=repairs", "--test-threads=1", "--exact", "repairs::local_file_systems"],
    ),
    faults("repairs::nfs", &["--vm=repairs", "--test-threads=1", "--exact", "repairs::nfs"]),
    faults("repairs::smb", &["--vm=repairs", "--test-threads=1", "--exact", "repairs::smb"]),
    Part { families: BOTH, ..suite("kernel_counts", &[], 20) },
    suite("swap", &["--test-threads=1"], 20),
    // The table of kinds of I/O has a part of its own.
    Part { on_request: true, ..suite("cases", &["--test-threads=1", "--skip=io::"], 60) },
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
    /// The rows of the table that it should come to.
    pub(super) rows: Vec<Key>,
    /// Whether what comes of it belongs into the table.
    pub(super) is_kept: bool,
}

/// What is to be run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish<'a> {
    /// This family instead of each part's own.
    pub(super) family: Option<Family>,
    /// Parts with this in their name, or else the cases that have it.
    pub(super) filter: Option<&'a str>,
    /// Only rows with this in their name.
    pub(super) row: Option<&'a str>,
}

/// One case for guests, as the test binary describes it.
#[derive(Clone, Debug, Deserialize)]
struct Described {
    case: String,
    seconds: u64,
    table: String,
    rows: Vec<String>,
}

/// The jobs for one kernel. Without a family every part has its own; a filter leaves out the parts that have no
/// case of such a name.
pub(super) fn plan(binaries: &Path, wish: &Wish<'_>) -> Result<Vec<Planned>> {
    let mut planned = Vec::new();
    for part in PARTS {
        let Some(case) = part.is_wanted(binaries, wish.filter)? else { continue };
        for family in wish.family.as_ref().map_or(part.families, std::slice::from_ref) {
            let described = part.describe(binaries, *family)?;
            let job = part.planned(*family, &described, case, wish.row);
            planned.extend(Some(job).filter(|job| wish.row.is_none() || !job.rows.is_empty()));
        }
    }
    Ok(planned)
}

/// Every row that the table can have, in its order.
pub(super) fn rows(binaries: &Path) -> Result<Vec<Key>> {
    let mut rows: Vec<Key> = Vec::new();
    for part in PARTS {
        for family in part.families {
            let described = part.describe(binaries, *family)?;
            for row in part.planned(*family, &described, None, None).rows {
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
    }
    Ok(rows)
}

impl Part {
    /// The job. `case` is a part of the names of cases.
    fn planned(
        &'static self,
        family: Family,
        described: &[Described],
        case: Option<&str>,
        row: Option<&str>,
    ) -> Planned {
        let mut command = vec![format!("/host/{}", self.program)];
        command.extend(self.arguments.iter().map(|&word| word.to_owned()));
        command.extend(case.map(str::to_owned));
        let mut environment = variables(family);
        environment
            .extend(row.into_iter().flat_map(|row| ["MOUNTIE_FAULT", "MOUNTIE_IO"].map(|key| (key, row))));
        let chosen =
            || described.iter().filter(|described| case.is_none_or(|case| described.case.contains(case)));
        let keys = chosen().flat_map(|described| {
            described.rows.iter().map(|row| Key::new(&described.table, family.label(), row))
        });
        let mut rows: Vec<Key> = keys
            .filter(|key| row.is_none_or(|row| row.split(';').any(|part| key.row().contains(part))))
            .collect();
        if self.is_row && case.is_none() && row.is_none() {
            rows.push(self.key(family));
        }
        let seconds = chosen().map(|described| described.seconds).sum();
        Planned {
            part: self,
            family,
            job: Job {
                name: format!("{} ({})", self.name, family.label()),
                command,
                environment: environment
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
                modules: MODULES.iter().map(|&name| name.to_owned()).collect(),
                deadline: self.deadline.unwrap_or(AROUND + Duration::from_secs(seconds)),
                silence: SILENCE,
            },
            rows,
            is_kept: self.families.contains(&family),
        }
    }

    /// Its own row, where how it ended is one.
    pub(super) fn key(&self, family: Family) -> Key {
        Key::new("suites", family.label(), self.name)
    }

    /// The one binary that lists no cases is chosen as a whole.
    fn answers_by_name(&self) -> bool {
        self.program == "kernel_counts"
    }

    /// `None`: the part is not wanted. Otherwise which of its cases: all, or those with this in their names.
    fn is_wanted<'f>(&self, binaries: &Path, filter: Option<&'f str>) -> Result<Option<Option<&'f str>>> {
        let Some(filter) = filter else { return Ok((!self.on_request).then_some(None)) };
        // What names a part means no case of another.
        if PARTS.iter().any(|part| part.name.contains(filter)) {
            return Ok(self.name.contains(filter).then_some(None));
        }
        if self.answers_by_name() {
            return Ok(None);
        }
        let output = run(binaries, self.program, self.arguments, "--list", Family::Auto)?;
        let mut names = output.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.any(|name| name.contains(filter)).then_some(Some(filter)))
    }

    /// Its cases, where they add rows of their own.
    fn describe(&self, binaries: &Path, family: Family) -> Result<Vec<Described>> {
        if self.is_row {
            return Ok(Vec::new());
        }
        let output = run(binaries, self.program, self.arguments, "--plan", family)?;
        let all = output.lines().map(|line| {
            serde_json::from_str::<Described>(line).with_context(|| format!("a bad description: {line}"))
        });
        let only = |case: &Described| {
            !self.arguments.contains(&"--exact") || self.arguments.contains(&case.case.as_str())
        };
        all.filter(|case| case.as_ref().map_or(true, only)).collect()
    }
}

/// What every test program is told.
fn variables(family: Family) -> Vec<(&'static str, &'static str)> {
    [
        ("MOUNTIE_BIN", "/host/mountie"),
        ("MOUNTIE_MATRIX", ROWS),
        ("MOUNTIE_FAMILY", family.label()),
        ("MOUNTIE_TEST_FAMILY", family.label()),
        ("MOUNTIE_PATIENCE", PATIENCE),
    ]
    .to_vec()
}

/// Asks a test program about itself, on this machine.
fn run(binaries: &Path, program: &str, arguments: &[&str], question: &str, family: Family) -> Result<String> {
    let path = binaries.join(program);
    let output = Command::new(&path)
        .args(arguments)
        .arg(question)
        .envs(variables(family))
        .env("MOUNTIE_BIN", binaries.join("mountie"))
        .env_remove("MOUNTIE_MATRIX")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start {}", path.display()))?;
    if !output.status.success() {
        bail!("{} {question} ended with {}", path.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds what the guests run and puts it into one folder, without the hashes in the names.
pub(super) fn build(into: &Path) -> Result<()> {
    let agent = crate::agent::build(Profile::Guest)?;
    step("building the tests that run in the guests");
    let mut list = cargo();
    list.args(["test", "--profile", Profile::Guest.name()]);
    list.args(["--package", "integration-tests", "--test", "cases"]);
    list.args(["--package", "agent", "--test", "kernel_counts", "--test", "swap"]);
    let mut binaries = built::tests(&mut list)?;
    binaries.insert("mountie".to_owned(), agent);
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    for name in ["mountie"].into_iter().chain(PARTS.iter().map(|part| part.program)) {
        let binary = binaries.get(name).with_context(|| format!("cargo built no {name}"))?;
        strip(binary, &into.join(name))?;
    }
    Ok(())
}

/// A copy without debug information: the guest reads it through a slow share.
fn strip(binary: &Path, to: &Path) -> Result<()> {
    must(Command::new("strip").arg("--strip-debug").arg("-o").arg(to).arg(binary))
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

    fn described(case: &str, seconds: u64, rows: &[&str]) -> Described {
        let rows = rows.iter().map(|&row| row.to_owned()).collect();
        Described { case: case.to_owned(), seconds, table: "io".to_owned(), rows }
    }

    fn part(name: &str) -> &'static Part {
        PARTS.iter().find(|part| part.name == name).unwrap()
    }

    #[test]
    fn the_deadline_of_a_part_is_later_than_the_ends_of_all_its_cases() {
        let cases = [described("io::a", 1000, &["read", "write"]), described("io::b", 500, &["open"])];
        let io = part("programs and kinds of I/O");
        let all = io.planned(Family::SysExit, &cases, None, None);
        assert!(all.job.deadline > Duration::from_secs(1500));
        assert_eq!(all.rows, ["read", "write", "open"].map(|row| Key::new("io", "sys_exit", row)));
        let variable = ("MOUNTIE_FAMILY".to_owned(), "sys_exit".to_owned());
        assert!(all.job.environment.contains(&variable) && all.is_kept);

        let one = io.planned(Family::Auto, &cases, Some("::b"), Some("op"));
        assert!(one.job.deadline < Duration::from_secs(1000));
        assert_eq!(one.rows, [Key::new("io", "auto", "open")]);
        assert_eq!(one.job.command.last().map(String::as_str), Some("::b"));
        // The table has no section for a family that the part is not run with.
        assert!(!one.is_kept);
    }

    #[test]
    fn a_suite_is_a_row_only_when_all_of_it_runs() {
        let swap = part("swap");
        let rows = |case, row| swap.planned(Family::Auto, &[], case, row).rows;
        assert_eq!(rows(None, None), [Key::new("suites", "auto", "swap")]);
        assert!(rows(Some("a_test"), None).is_empty() && rows(None, Some("a row")).is_empty());
    }

    #[test]
    fn parts_are_wanted_by_name_and_some_only_then() {
        let wanted = |name: &str, filter| part(name).is_wanted(Path::new("/"), filter).unwrap();
        assert_eq!(wanted("faults::nfs", None), Some(None));
        assert_eq!(wanted("faults::nfs", Some("faults")), Some(None));
        assert_eq!(
            (wanted("repairs::nfs", Some("repairs")), wanted("faults::nfs", Some("repairs"))),
            (Some(None), None)
        );
        assert_eq!((wanted("faults::nfs", Some("smb")), wanted("cases", Some("programs"))), (None, None));
        assert_eq!(wanted("kernel_counts", Some("counts")), Some(None));
        assert_eq!((wanted("cases", None), wanted("cases", Some("cases"))), (None, Some(None)));
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
