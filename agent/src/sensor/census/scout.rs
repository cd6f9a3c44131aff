//! The agent's side of the child that reads procfs: starts it, asks it, and gives up on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Duration;

use agent_common::record::BlockedRecord;
use agent_core::time::Monotonic;
use nix::poll::PollFlags;

use super::wire::{Answer, Ask};
use crate::sensor::wake::{Wake, Woken};
use crate::sys::{clock, procfs_child};

/// How long a child may take.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// One that says nothing for so long hangs on the process that it named last.
    silence: Duration,
    /// For one answer, however much it says.
    whole: Duration,
}

const PATIENCE: Patience = Patience { silence: Duration::from_secs(5), whole: Duration::from_secs(30) };
/// Children that were killed and are not gone. With so many nothing is asked any more.
const LEFT_MAX: usize = 4;
/// A process on which a child hung is left out for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScoutError {
    /// No process could be made, or it does not listen.
    #[error("the child that reads procfs cannot be started")]
    Start(#[source] io::Error),
    /// It ended, or said nonsense.
    #[error("the child that reads procfs gave no answer")]
    NoAnswer,
    /// Others like it are stuck.
    #[error("{LEFT_MAX} children that read procfs hang")]
    TooMany,
}

/// What an answer came to.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) records: Vec<BlockedRecord>,
    /// Where the names of threads lead; 0: nowhere that is tracked.
    pub(super) texts: BTreeMap<u32, u32>,
    /// Threads that were looked at, and those of them that may not be.
    pub(super) looked: u64,
    pub(super) refused: u64,
    /// The processor time that the child used for it.
    pub(super) cost: Duration,
    /// Processes that were left out, and are still there.
    left: BTreeSet<u32>,
    /// The answer does not come to its end: in this process, or before the first one (0).
    cut: Option<u32>,
}

impl Found {
    /// Whether nothing is known of a process, because it was left out or not reached.
    pub(super) fn is_unknown(&self, process: u32) -> bool {
        self.left.contains(&process) || self.cut.is_some_and(|cut| process >= cut)
    }
}

#[derive(Debug)]
struct Running {
    child: Child,
    asks: ChildStdin,
    answers: ChildStdout,
    received: Vec<u8>,
}

/// Asks the child.
#[derive(Debug)]
pub(super) struct Scout {
    program: Vec<OsString>,
    wake: Arc<Wake>,
    running: Option<Running>,
    /// Killed, and kept by the kernel.
    left: Vec<Child>,
    avoided: BTreeMap<u32, Monotonic>,
    /// The last answer took too long as a whole.
    is_slow: bool,
    patience: Patience,
}

impl Scout {
    pub(super) const fn new(program: Vec<OsString>, wake: Arc<Wake>) -> Self {
        Self {
            program,
            wake,
            running: None,
            left: Vec::new(),
            avoided: BTreeMap::new(),
            is_slow: false,
            patience: PATIENCE,
        }
    }

    /// Everything that waits on what is tracked.
    pub(super) fn all(&mut self, tracked: &BTreeSet<u32>) -> Result<Found, ScoutError> {
        self.forget();
        self.ask(&Ask::All(tracked.clone(), self.avoided.keys().copied().collect()))
    }

    /// Where the names of these threads lead, each given with its process.
    pub(super) fn texts(
        &mut self,
        tracked: &BTreeSet<u32>,
        threads: BTreeSet<(u32, u32)>,
    ) -> Result<Found, ScoutError> {
        self.ask(&Ask::Text(tracked.clone(), threads))
    }

    /// Begins anew, also with what was avoided long enough.
    pub(super) fn forget(&mut self) {
        self.is_slow = false;
        let now = clock::now();
        self.avoided.retain(|_, since| now.since(*since) < AVOIDED_FOR);
    }

    /// Whether nothing is asked about a process because a child hung on it.
    pub(super) fn avoids(&self, process: u32) -> bool {
        self.avoided.contains_key(&process)
    }

    /// What is missing in the answers at present, for people.
    pub(super) fn gap(&self) -> Option<String> {
        let Patience { silence, whole } = self.patience;
        match self.avoided.len() {
            0 if self.is_slow => Some(format!("incomplete: it takes longer than {} s", whole.as_secs())),
            0 => None,
            _ => {
                let processes: Vec<String> = self.avoided.keys().map(ToString::to_string).collect();
                let (processes, seconds) = (processes.join(", "), silence.as_secs());
                Some(format!("incomplete: looking at these processes hung for {seconds} s: {processes}"))
            }
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Found, ScoutError> {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.left.len() >= LEFT_MAX {
            return Err(ScoutError::TooMany);
        }
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.program).map_err(ScoutError::Start)?,
        };
        let mut found = Found::default();
        let mut at = None;
        let used = running.used();
        let end = running.converse(ask, (&self.wake, self.patience), &mut found, &mut at);
        self.is_slow = matches!(end, End::TooLong);
        match end {
            End::Answered => self.running = Some(running),
            End::Gone => {
                self.give_up(running);
                return Err(ScoutError::NoAnswer);
            }
            End::Silent | End::TooLong => {
                tracing::debug!(process = at, "Child that reads procfs does not finish, giving it up");
                // One that goes on telling only happens to be there.
                if let (End::Silent, Some(process)) = (end, at) {
                    self.avoided.insert(process, clock::now());
                }
                found.cut = Some(at.unwrap_or(0));
                // It has not said what it used.
                let cost = running.used().zip(used).map(|(now, before)| now.saturating_sub(before));
                found.cost = cost.unwrap_or(self.patience.silence);
                self.give_up(running);
            }
        }
        Ok(found)
    }

    fn give_up(&mut self, running: Running) {
        let Running { mut child, asks, answers, received } = running;
        drop((asks, answers, received));
        // Fails only for one that is gone.
        let _ = child.kill();
        self.left.push(child);
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.give_up(running);
        }
        for child in &mut self.left {
            let _ = child.try_wait();
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Answered,
    /// It ended or said nonsense, or nobody wants the answer any more.
    Gone,
    /// It hangs.
    Silent,
    /// It goes on and on.
    TooLong,
}

impl Running {
    fn start(program: &[OsString]) -> io::Result<Self> {
        let mut child = procfs_child::start(program)?;
        let none = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (asks, answers) = (child.stdin.take().ok_or_else(none)?, child.stdout.take().ok_or_else(none)?);
        Ok(Self { child, asks, answers, received: Vec::new() })
    }

    /// The processor time of its life.
    fn used(&self) -> Option<Duration> {
        clock::processor_time_of(self.child.id())
    }

    /// Asks, and takes the answer until it ends. What was said before a hang counts.
    fn converse(
        &mut self,
        ask: &Ask,
        (wake, patience): (&Wake, Patience),
        found: &mut Found,
        at: &mut Option<u32>,
    ) -> End {
        if self.asks.write_all(ask.to_line().as_bytes()).is_err() {
            return End::Gone;
        }
        let begun = clock::now();
        let mut heard = begun;
        loop {
            while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                match Answer::from_line(&String::from_utf8_lossy(&line)) {
                    Some(Answer::At(process)) => *at = Some(process),
                    Some(Answer::Left(process)) => drop(found.left.insert(process)),
                    Some(Answer::Task(record)) => found.records.push(record),
                    Some(Answer::Text(thread, s_dev)) => drop(found.texts.insert(thread, s_dev)),
                    Some(Answer::End { looked, refused, micros }) => {
                        (found.looked, found.refused) = (looked, refused);
                        found.cost = Duration::from_micros(micros);
                        return End::Answered;
                    }
                    None => return End::Gone,
                }
            }
            let now = clock::now();
            let until_silent = patience.silence.saturating_sub(now.since(heard));
            let until_end = patience.whole.saturating_sub(now.since(begun));
            match (wake.is_stopping(), until_silent.is_zero(), until_end.is_zero()) {
                (true, ..) => return End::Gone,
                (_, true, _) => return End::Silent,
                (.., true) => return End::TooLong,
                _ => {}
            }
            // The bell is also rung for other things; they stay in their flags.
            let answers = Some((self.answers.as_fd(), PollFlags::POLLIN));
            if wake.wait(answers, until_silent.min(until_end)) == Woken::Ready {
                if !self.receive() {
                    return End::Gone;
                }
                heard = clock::now();
            }
        }
    }

    /// Takes what there is; false at the end.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.answers.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.received.extend_from_slice(bytes.get(..count).unwrap_or_default());
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    /// A shell has started and spoken by then.
    const SHORT: Duration = Duration::from_secs(1);

    /// Asked for everything, with a shell as the child. What it reads it has been asked.
    fn asked(script: &str, patience: Patience) -> (Scout, Result<Found, ScoutError>) {
        let program = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let mut scout = Scout::new(program, Arc::new(Wake::new().unwrap()));
        scout.patience = patience;
        let found = scout.all(&BTreeSet::from([1]));
        (scout, found)
    }

    #[test]
    fn what_hangs_is_avoided_and_what_it_hides_is_unknown() {
        let script = "read ask; echo at 7; echo text 7 1; echo at 8; read ask";
        let (mut scout, found) = asked(script, Patience { silence: SHORT, whole: LONG });
        let found = found.unwrap();
        assert_eq!(found.texts, BTreeMap::from([(7, 1)]), "what was said counts");
        assert_eq!([7, 8, 9].map(|process| found.is_unknown(process)), [false, true, true]);
        assert_eq!([7, 8, 9].map(|process| scout.avoids(process)), [false, true, false]);
        assert!(scout.gap().unwrap().ends_with(": 8"), "{:?}", scout.gap());
        scout.program = ["/bin/sh", "-c", "read a; echo left ${a##* }; echo end 1 0 5; read a"]
            .map(OsString::from)
            .to_vec();
        scout.patience = PATIENCE;
        let found = scout.all(&BTreeSet::from([1])).unwrap();
        assert_eq!((found.is_unknown(8), found.is_unknown(9)), (true, false), "it was left out");
        assert!(scout.gap().is_some() && found.cost == Duration::from_micros(5));
    }

    #[test]
    fn what_goes_on_telling_does_not_hang_but_has_an_end_and_a_cost() {
        let script = "read ask; while :; do echo at 8; done";
        let (scout, found) = asked(script, Patience { silence: LONG, whole: SHORT });
        let found = found.unwrap();
        assert!(found.is_unknown(8) && !found.is_unknown(7) && !scout.avoids(8));
        assert!(found.cost > Duration::ZERO && scout.gap().is_some());
    }

    #[test]
    fn before_the_first_process_all_are_unknown() {
        let (scout, found) = asked("read ask; read ask", Patience { silence: SHORT, whole: LONG });
        assert!(found.unwrap().is_unknown(1) && scout.avoided.is_empty());
    }

    #[test]
    fn a_child_that_ends_gives_no_answer() {
        let (_, found) = asked("read ask; echo at 7", Patience { silence: LONG, whole: LONG });
        assert!(matches!(found, Err(ScoutError::NoAnswer)));
    }
}
