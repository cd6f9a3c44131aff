//! The agent's part: loads the programs, tracks what it is told to, adds up what it hears.
//!
//! One command a line on standard input, one answer a line on standard output.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::process::{Command, ExitCode};
use std::time::Duration;

use agent::sensor::ebpf::{Family, Handle, Settings, Watched, start};
use agent::sensor::{ProgramState, SensorEvent};
use agent::sys::clock;
use agent_core::engine::Tracked;
use agent_core::id::SuperblockId;
use agent_core::observation::Source;
use agent_core::path::BytePath;
use tokio::sync::mpsc::Receiver;

use crate::patience::patiently;

/// The first argument that selects this role.
pub(crate) const ARGUMENT: &str = "agent-role";

/// Runs until standard input ends.
pub(crate) fn run(family: &str) -> ExitCode {
    let family = match family {
        "fexit" => Family::Fexit,
        "sys_exit" => Family::SysExit,
        _ => Family::Auto,
    };
    let (sender, events) = tokio::sync::mpsc::channel(1024);
    let started = start(&Settings { family, ..Settings::default() }, sender);
    if std::env::var_os("MOUNTIE_TEST_VERBOSE").is_some() {
        for row in &started.programs {
            eprintln!("{} {} {:?}", row.family, row.program, row.state);
        }
    }
    let Some(handle) = started.handle else {
        println!("off {:?}", started.state);
        return ExitCode::SUCCESS;
    };
    let mut used =
        started.programs.iter().filter(|row| row.state == ProgramState::Attached).map(|row| row.family);
    println!("ready {}", used.next_back().unwrap_or("none"));
    let programs = started.programs.iter().map(|row| (row.program, format!("{:?}", row.state))).collect();
    let (tracked, shadows) = (Vec::new(), Vec::new());
    let mut role =
        Role { handle, events, programs, tracked, shadows, totals: BTreeMap::new(), source: String::new() };
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = role.obey(&line);
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
    let began = clock::now();
    role.handle.stop();
    // A second, and some for a busy machine: nobody waits for what hangs on functions.
    assert!(clock::now().since(began) < patiently(Duration::from_millis(1500)), "stopping took too long");
    ExitCode::SUCCESS
}

struct Role {
    handle: Handle,
    events: Receiver<SensorEvent>,
    programs: BTreeMap<&'static str, String>,
    tracked: Vec<Tracked>,
    shadows: Vec<BytePath>,
    totals: BTreeMap<String, u64>,
    /// What was last said of the source.
    source: String,
}

impl Role {
    fn obey(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["track", major, minor, root, mountpoint] => {
                self.tracked.push(Tracked {
                    superblock: SuperblockId { major: major.parse().unwrap(), minor: minor.parse().unwrap() },
                    root_inode: Some(root.parse().unwrap()),
                    mountpoint: BytePath::from(*mountpoint),
                });
                self.apply()
            }
            ["track_roots", major, minor, mountpoint, roots] => {
                let superblock =
                    SuperblockId { major: major.parse().unwrap(), minor: minor.parse().unwrap() };
                self.tracked.extend(roots.split(',').map(|root| Tracked {
                    superblock,
                    root_inode: Some(root.parse().unwrap()),
                    mountpoint: BytePath::from(*mountpoint),
                }));
                self.apply()
            }
            ["shadow", mountpoint] => {
                self.shadows.push(BytePath::from(*mountpoint));
                self.apply()
            }
            ["own", directory] => {
                for _ in 0..5 {
                    assert!(std::fs::create_dir(format!("{directory}/own")).is_err());
                    let status = Command::new("mkdir")
                        .arg(format!("{directory}/own"))
                        .stderr(std::process::Stdio::null())
                        .status();
                    assert!(!status.unwrap().success());
                }
                "done".to_owned()
            }
            // Answered by the next set of what is watched.
            ["forget"] => {
                self.tracked.clear();
                self.shadows.clear();
                "done".to_owned()
            }
            ["source"] => self.source.clone(),
            ["await_source", words @ ..] => self.wait_for_source(&words.join(" ")),
            ["state", program] => self.state(program),
            ["await", key, count] => self.wait_for(key, count.parse().unwrap()),
            _ => format!("what is {line:?}?"),
        }
    }

    /// Sets what is watched and waits until the reader says that it did.
    fn apply(&mut self) -> String {
        let (tracked, shadows) = (self.tracked.clone(), self.shadows.clone());
        self.handle.track(Watched { tracked, shadows, ..Watched::default() });
        let end = clock::now() + patiently(Duration::from_secs(5));
        while clock::now() < end {
            if let Some(SensorEvent::Source(_, state)) = self.next() {
                return format!("{state:?}");
            }
        }
        "no answer".to_owned()
    }

    /// What is said of the source, once that has these words or some seconds have passed.
    fn wait_for_source(&mut self, words: &str) -> String {
        let end = clock::now() + patiently(Duration::from_secs(5));
        while clock::now() < end && !self.source.contains(words) {
            self.next();
        }
        self.source.clone()
    }

    /// What became of a program. One that waits for a module gets the time to see that it has come.
    fn state(&mut self, program: &str) -> String {
        let end = clock::now() + patiently(Duration::from_secs(30));
        let waits = |state: &String| state.starts_with("Waits");
        while clock::now() < end && self.programs.get(program).is_some_and(waits) {
            self.next();
        }
        self.programs.get(program).cloned().unwrap_or_default()
    }

    /// Adds up until the total of `key` is there, or some seconds have passed; then tells all totals.
    fn wait_for(&mut self, key: &str, count: u64) -> String {
        let end = clock::now() + patiently(Duration::from_secs(5));
        while clock::now() < end && self.totals.get(key).copied().unwrap_or(0) < count {
            self.next();
        }
        let rows = self.totals.iter().map(|(key, count)| format!("{key}={count}"));
        format!("totals {}", rows.collect::<Vec<_>>().join(" "))
    }

    fn next(&mut self) -> Option<SensorEvent> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let event = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(200), self.events.recv()).await.ok().flatten()
        })?;
        if let SensorEvent::Kernel(errors) = &event {
            let key = format!("{}:{}:{}", errors.superblock, errors.errno, errors.op.label());
            if errors.count == 0 {
                let task = errors.task.as_ref().map(|task| task.comm.clone());
                eprintln!("record {key} by {task:?} after {:?}", clock::now().since(errors.at));
            }
            *self.totals.entry(key).or_default() += errors.count;
            *self.totals.entry("counted".to_owned()).or_default() += errors.count;
            if errors.source == Source::BpfName {
                *self.totals.entry("by_name".to_owned()).or_default() += errors.count;
            }
            let root = format!("root:{}", errors.root_inode.unwrap_or(0));
            *self.totals.entry(root).or_default() += errors.count;
            if errors.count == 0 {
                *self.totals.entry("records".to_owned()).or_default() += 1;
            }
        }
        if let SensorEvent::Source(_, state) = &event {
            self.source = format!("{state:?}");
        }
        if let SensorEvent::Skipped { runs, .. } = &event {
            *self.totals.entry("skipped".to_owned()).or_default() += runs;
        }
        if let SensorEvent::Program(status) = &event {
            self.programs.insert(status.program, format!("{:?}", status.state));
        }
        if let SensorEvent::Dropped(_, records) = &event {
            *self.totals.entry("dropped".to_owned()).or_default() += records;
        }
        Some(event)
    }
}
