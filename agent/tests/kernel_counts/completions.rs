//! Failures that no system call returns: completions of io_uring and AIO, and page faults.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::cases::key;
use crate::harness::{Agent, Stage, Verdict};

const IO_URING: &str = include_str!("io_uring.py");
const AIO: &str = include_str!("aio.py");
const TOUCH_PAGE: &str = include_str!("touch_page.py");

/// Runs a script with arguments; `None` without an interpreter.
pub(crate) fn python(script: &str, arguments: &[&str]) -> Option<Output> {
    Command::new("python3").args(["-c", script]).args(arguments).stderr(Stdio::inherit()).output().ok()
}

/// A volume without room for another page, and a file in it that is all hole.
fn full_volume(stage: &Stage) -> (PathBuf, PathBuf) {
    let volume = stage.volume("volume", "size=64k");
    let hole = volume.join("hole");
    File::create(&hole).unwrap();
    let mut file = File::create(volume.join("fill")).unwrap();
    while file.write(&[0; 4096]).is_ok() {}
    (volume, hole)
}

/// Starts the agent if one of these programs is attached; else why none is.
fn agent_with(programs: &[&str], family: &str) -> Result<Agent, String> {
    let mut agent = Agent::start(&[], family)?;
    let states: Vec<String> = programs.iter().map(|name| agent.tell(&format!("state {name}"))).collect();
    if states.iter().any(|state| state == "Attached") { Ok(agent) } else { Err(states.join(", ")) }
}

fn failed_write(script: &str, programs: &[&str], family: &str) -> Verdict {
    let stage = Stage::enter();
    let (volume, hole) = full_volume(&stage);
    let mut agent = match agent_with(programs, family) {
        Ok(agent) => agent,
        Err(reason) => return Verdict::Skipped(reason),
    };
    agent.track(&volume);
    for offset in ["0", "8192", "65536"] {
        match python(script, &[hole.to_str().unwrap(), offset]) {
            None => return Verdict::Skipped("no python3".to_owned()),
            Some(output) if output.status.code() == Some(77) => {
                return Verdict::Skipped("refused here".to_owned());
            }
            Some(output) => assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "-28"),
        }
    }
    let key = key(&volume, "ENOSPC", "write");
    let totals = agent.totals(&key, 3);
    assert_eq!(totals.get(&key), Some(&3), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

/// Each failed completion counts once.
pub(crate) fn io_uring(family: &str) -> Verdict {
    failed_write(IO_URING, &["io_uring_complete", "io_uring_entry", "io_complete_rw"], family)
}

/// Each failed completion counts once.
pub(crate) fn aio(family: &str) -> Verdict {
    failed_write(AIO, &["aio_complete_rw"], family)
}

fn dies_of_sigbus(file: &Path, arguments: &[&str]) {
    let mut all = vec![file.to_str().unwrap()];
    all.extend(arguments);
    let output = python(TOUCH_PAGE, &all).unwrap();
    assert_eq!(output.status.signal(), Some(7), "{output:?}");
}

/// A store that fails is counted, and not as an error of storage; one beyond the end of the file is the program's own.
pub(crate) fn page_faults(family: &str) -> Verdict {
    let stage = Stage::enter();
    let (volume, hole) = full_volume(&stage);
    let mut agent = match agent_with(&["sigbus"], family) {
        Ok(agent) => agent,
        Err(reason) => return Verdict::Skipped(reason),
    };
    if python("", &[]).is_none() {
        return Verdict::Skipped("no python3".to_owned());
    }
    agent.track(&volume);
    dies_of_sigbus(&hole, &["cut"]);
    dies_of_sigbus(&hole, &[]);
    dies_of_sigbus(&hole, &["cut"]);
    // There was no room for the page: that is no error of storage, and nobody tells what it is.
    let key = key(&volume, "unknown", "fault");
    agent.totals(&key, 1);
    // The last one is a fence: what it would add is there when a later failure is.
    assert!(File::options().append(true).open(volume.join("fill")).unwrap().write(&[0; 4096]).is_err());
    let fence = crate::cases::key(&volume, "ENOSPC", "write");
    let totals = agent.totals(&fence, 1);
    assert_eq!(totals.get(&key), Some(&1), "{totals:?}");
    agent.finish();
    Verdict::Passed
}
