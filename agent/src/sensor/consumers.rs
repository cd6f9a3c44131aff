//! Who still holds a file system that was replaced: other mounts of it, in every mount namespace, and open files.
//!
//! Nothing is looked at until a volume is sick. Then a disposable child (`child`) looks through procfs, at once and
//! every five seconds from then on, and never so often that it costs more than one percent of a processor.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::consumer::{Consumers, Dead};
use agent_core::time::Monotonic;
use nix::poll::PollFlags;
use tokio::sync::mpsc::Sender;

use self::wire::{Answer, WireDead};
use crate::sensor::wake::{Outbox, Running, Wake, Woken, no_thread};
use crate::sensor::{SensorEvent, SourceName, SourceState, lock};
use crate::sys::{clock, procfs_child};

mod child;
pub(crate) mod wire;

pub use self::child::run_consumers_child;

/// The name of the hidden subcommand.
pub const CONSUMERS_SUBCOMMAND: &str = "consumers";

/// Between two looks.
const REST: Duration = Duration::from_secs(5);
/// Between two looks when something else is asked for.
const AT_LEAST: Duration = Duration::from_millis(100);
/// After a look comes a pause of so many times the processor time that it cost.
const PAUSE_PER_COST: u32 = 100;
/// The same when something else is asked for.
const PAUSE_PER_COST_IN_HASTE: u32 = 5;
/// A child that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// An answer is never longer.
const LONGEST: usize = 4 << 20;
/// Children that were killed and are not gone. With so many nothing is asked any more.
const LEFT_MAX: usize = 4;

/// The running sensor. It ends when this is dropped.
#[derive(Debug)]
pub struct Handle {
    wake: Arc<Wake>,
    asked: Arc<Mutex<Arc<Vec<Dead>>>>,
    /// Kept for its end alone.
    _thread: Running,
}

impl Handle {
    /// These are looked for from now on; replaces the last set.
    pub fn ask(&self, dead: Vec<Dead>) {
        *lock(&self.asked) = Arc::new(dead);
        self.wake.request();
    }
}

/// Starts the sensor. `program`: the agent's executable and the hidden subcommand.
#[must_use]
pub fn start(program: Vec<OsString>, events: Sender<SensorEvent>) -> (Option<Handle>, SourceState) {
    let wake = match Wake::for_thread() {
        Ok(wake) => wake,
        Err(why) => return (None, SourceState::Off(why)),
    };
    let asked = Arc::new(Mutex::new(Arc::new(Vec::new())));
    let outbox = Outbox::new(events, Arc::clone(&wake));
    let looker = Looker {
        program,
        asked: Arc::clone(&asked),
        outbox: outbox.clone(),
        wake: Arc::clone(&wake),
        left: Vec::new(),
        begun: Monotonic::default(),
        cost: Duration::ZERO,
        reported: SourceState::Running,
    };
    match Running::start("consumers", SourceName::Consumers, &outbox, move || looker.run()) {
        Ok(thread) => (Some(Handle { wake, asked, _thread: thread }), SourceState::Running),
        Err(error) => (None, SourceState::Off(no_thread(error))),
    }
}

/// The thread's own state.
struct Looker {
    program: Vec<OsString>,
    asked: Arc<Mutex<Arc<Vec<Dead>>>>,
    outbox: Outbox,
    wake: Arc<Wake>,
    /// Killed, and kept by the kernel.
    left: Vec<Child>,
    /// When the last look began, and what it cost.
    begun: Monotonic,
    cost: Duration,
    reported: SourceState,
}

impl Looker {
    fn run(mut self) {
        let mut is_new = false;
        while !self.wake.is_stopping() {
            is_new |= self.wake.take_request();
            let asked = Arc::clone(&lock(&self.asked));
            if asked.is_empty() {
                is_new = false;
                self.wake.wait(None, REST);
                continue;
            }
            let rest = self.rest(is_new);
            if !rest.is_zero() {
                self.wake.wait(None, rest);
                continue;
            }
            is_new = false;
            if !self.look(&asked) {
                return;
            }
        }
    }

    fn rest(&self, is_new: bool) -> Duration {
        let pause = if is_new {
            AT_LEAST.max(self.cost.saturating_mul(PAUSE_PER_COST_IN_HASTE))
        } else {
            REST.max(self.cost.saturating_mul(PAUSE_PER_COST))
        };
        pause.saturating_sub(clock::now().since(self.begun))
    }

    /// Looks once and tells it. False: nobody listens any more.
    fn look(&mut self, asked: &[Dead]) -> bool {
        self.begun = clock::now();
        let state = match self.answer(asked) {
            Ok(answer) => {
                self.cost = Duration::from_micros(answer.micros);
                let state = state_of(&answer);
                let found = answer.found.into_iter().zip(asked).map(|(found, dead)| found.of(dead));
                let consumers = Consumers { at: self.begun, found: found.collect() };
                if !self.outbox.send(SensorEvent::Consumers(consumers)) {
                    return false;
                }
                state
            }
            Err(_) if self.wake.is_stopping() => return false,
            Err(why) => {
                self.cost = self.cost.max(REST / PAUSE_PER_COST);
                SourceState::Degraded(why)
            }
        };
        if self.reported == state {
            return true;
        }
        self.reported = state.clone();
        self.outbox.send(SensorEvent::Source(SourceName::Consumers, state))
    }

    fn answer(&mut self, asked: &[Dead]) -> Result<Answer, String> {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.left.len() >= LEFT_MAX {
            return Err(format!("{LEFT_MAX} children that look through the namespaces hang"));
        }
        let question: Vec<WireDead> = asked.iter().map(WireDead::from).collect();
        let question = serde_json::to_vec(&question).map_err(|error| error.to_string())?;
        let mut child = procfs_child::start(&self.program)
            .map_err(|error| format!("no child to look through the namespaces: {error}"))?;
        let text = self.converse(&mut child, &question);
        // Fails only for one that has ended.
        let _ = child.kill();
        if !matches!(child.try_wait(), Ok(Some(_))) {
            self.left.push(child);
        }
        serde_json::from_slice(&text?).map_err(|_| "the child gave no answer".to_owned())
    }

    /// Everything that the child says until it ends.
    fn converse(&self, child: &mut Child, question: &[u8]) -> Result<Vec<u8>, String> {
        let mut stdin = child.stdin.take();
        // One that died early says nothing.
        let _ = stdin.as_mut().map(|stdin| stdin.write_all(question));
        drop(stdin);
        let mut text = Vec::new();
        let Some(stdout) = &mut child.stdout else { return Ok(text) };
        loop {
            let left = PATIENCE.saturating_sub(clock::now().since(self.begun));
            if left.is_zero() || self.wake.is_stopping() {
                return Err(format!(
                    "looking through the namespaces takes longer than {} s",
                    PATIENCE.as_secs()
                ));
            }
            if self.wake.wait(Some((stdout.as_fd(), PollFlags::POLLIN)), left) != Woken::Ready {
                continue;
            }
            let mut bytes = [0; 16 << 10];
            match stdout.read(&mut bytes) {
                Ok(0) => return Ok(text),
                Ok(count) => text.extend_from_slice(bytes.get(..count).unwrap_or_default()),
                Err(error) => return Err(format!("the child's answer cannot be read: {error}")),
            }
            if text.len() > LONGEST {
                return Err("the child does not come to an end".to_owned());
            }
        }
    }
}

fn state_of(answer: &Answer) -> SourceState {
    match (answer.refused, answer.is_partial) {
        (0, false) => SourceState::Running,
        (0, true) => SourceState::Degraded("there are more open files than were looked at".to_owned()),
        (refused, _) => SourceState::Degraded(format!(
            "the files of {refused} processes may not be looked at: CAP_SYS_PTRACE is missing"
        )),
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        for child in &mut self.left {
            let _ = child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests;
