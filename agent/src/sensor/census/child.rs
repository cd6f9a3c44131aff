//! The disposable child that reads procfs for the census. It may hang on a lock of a stuck process; then the agent
//! kills it, and leaves out that process for a while. It says which process it looks at before it does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, Write};
use std::path::PathBuf;

use agent_common::record::{BlockedRecord, SLEEPS, SLEEPS_DEEP, Who};
use agent_common::settings::{NO_ARGUMENT, SyscallRow, kind};

use super::calls;
use super::procfs::{InCall, Mounts, Place, Proc, Stat};
use super::wire::{Answer, Ask};
use crate::exit_code::ExitCode;
use crate::sensor::cgroups::ROOTS;
use crate::sys;

/// How far up the agent is looked for: a worker, its helper, and the helper's helper.
const GENERATIONS: usize = 3;

/// The body of the hidden subcommand: answers until its standard input ends.
#[must_use]
pub fn run_census_child(parent: u32) -> ExitCode {
    sys::descriptors::close_inherited();
    if !sys::parent_death::follow(parent).unwrap_or(false) {
        return ExitCode::Internal;
    }
    let census = Reader {
        proc: Proc { root: PathBuf::from("/proc") },
        agent: parent,
        roots: ROOTS.map(PathBuf::from),
    };
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let Some(ask) = line.ok().as_deref().and_then(Ask::from_line) else { return ExitCode::Internal };
        if census.answer(&ask, &mut out).is_err() {
            return ExitCode::Internal;
        }
    }
    ExitCode::Ok
}

struct Reader {
    proc: Proc,
    agent: u32,
    roots: [PathBuf; 2],
}

/// A tracked superblock that a call is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    s_dev: u32,
    /// Whether only the text of a name says so.
    is_by_name: bool,
}

/// What one answer has found out so far.
struct Round<'a> {
    tracked: &'a BTreeSet<u32>,
    /// By namespace: every thread in it sees the same.
    mounts: BTreeMap<u32, Mounts>,
    looked: u64,
    refused: u64,
}

impl Reader {
    fn answer(&self, ask: &Ask, out: &mut impl Write) -> io::Result<()> {
        let (Ask::All(tracked, _) | Ask::Text(tracked, _)) = ask;
        let used = sys::clock::thread_processor_time();
        let mut round = Round { tracked, mounts: BTreeMap::new(), looked: 0, refused: 0 };
        match ask {
            Ask::All(_, without) => self.all(without, &mut round, out)?,
            Ask::Text(_, threads) => {
                for (process, thread) in threads {
                    say(out, Answer::At(*process))?;
                    say(out, Answer::Text(*thread, self.place_of_name(*thread, &mut round).unwrap_or(0)))?;
                }
            }
        }
        let cost = sys::clock::thread_processor_time().saturating_sub(used);
        let micros = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
        say(out, Answer::End { looked: round.looked, refused: round.refused, micros })
    }

    fn all(&self, without: &BTreeSet<u32>, round: &mut Round<'_>, out: &mut impl Write) -> io::Result<()> {
        let processes: BTreeMap<u32, Stat> =
            self.proc.processes().into_iter().filter_map(|id| Some((id, self.proc.stat(id)?))).collect();
        for (process, stat) in &processes {
            if !stat.is_program || self.is_agents(*process, &processes) {
                continue;
            }
            if without.contains(process) {
                say(out, Answer::Left(*process))?;
                continue;
            }
            say(out, Answer::At(*process))?;
            let threads = if stat.threads > 1 { self.proc.threads(*process) } else { vec![*process] };
            for thread in threads {
                if let Some(record) = self.look(*process, thread, round) {
                    say(out, Answer::Task(record))?;
                }
            }
        }
        Ok(())
    }

    fn is_agents(&self, process: u32, processes: &BTreeMap<u32, Stat>) -> bool {
        let parent = |id: &u32| processes.get(id).map(|stat| stat.parent);
        std::iter::successors(Some(process), parent).take(GENERATIONS + 1).any(|id| id == self.agent)
    }

    /// The record of a thread that waits in a call on something tracked.
    fn look(&self, process: u32, thread: u32, round: &mut Round<'_>) -> Option<BlockedRecord> {
        round.looked += 1;
        let (call, row) = self.call(thread, round)?;
        let stat = self.proc.stat(thread)?;
        let state = match stat.state {
            b'S' => SLEEPS,
            b'D' => SLEEPS_DEEP,
            _ => return None,
        };
        let mnt_ns = self.proc.mnt_ns(thread);
        let found = self.place(thread, (&call, row), (mnt_ns, stat.state), round)?;
        if self.proc.waits_for_a_program(thread, stat.state) {
            return None;
        }
        let mut comm = [0; 16];
        comm.iter_mut().zip(&stat.comm).for_each(|(to, from)| *to = *from);
        let cgroup = self.proc.cgroup(thread, &self.roots);
        Some(BlockedRecord {
            who: Who { cgroup, pid: thread, tgid: process, mnt_ns, reserved: 0, comm },
            arguments: call.arguments,
            started: stat.started,
            switches: self.proc.switches(thread),
            calls: self.proc.data_calls(thread),
            s_dev: found.s_dev,
            by_name: u32::from(found.is_by_name),
            syscall: u32::try_from(call.number).ok()?,
            state,
            ..BlockedRecord::default()
        })
    }

    fn call(&self, thread: u32, round: &mut Round<'_>) -> Option<(InCall, &'static SyscallRow)> {
        let call = match self.proc.call(thread) {
            Ok(call) => call?,
            Err(error) => {
                round.refused += u64::from(error.kind() == io::ErrorKind::PermissionDenied);
                return None;
            }
        };
        Some((call, calls::row(call.number)?))
    }

    /// The tracked superblock that a call is about.
    fn place(
        &self,
        thread: u32,
        (call, row): (&InCall, &SyscallRow),
        (mnt_ns, state): (u32, u8),
        round: &mut Round<'_>,
    ) -> Option<Found> {
        let argument = |number: u8| call.arguments.get(usize::from(number)).copied();
        let descriptor = |number: u8| self.proc.of_descriptor(thread, argument(number)?);
        let places = if row.kind == kind::DESCRIPTOR {
            let first = descriptor(row.first);
            let second = (row.second != NO_ARGUMENT).then(|| descriptor(row.second));
            // Who copies into a pipe or a socket waits for its reader, but not where signals do not end the wait.
            if state != b'D' && (first.is_none() || second == Some(None)) {
                return None;
            }
            [first, second.flatten()]
        } else {
            let name =
                |directory: u8, name: u8| self.proc.of_name(thread, argument(directory), argument(name)?);
            let second = (row.second_name != NO_ARGUMENT).then(|| name(row.second, row.second_name));
            [name(row.first, row.first_name), second.flatten()]
        };
        let places: Vec<Place> = places.into_iter().flatten().collect();
        // The table may have thousands of lines. Nobody needs it for a pipe or a socket.
        if places.is_empty() {
            return None;
        }
        let mounts = round.mounts.entry(mnt_ns).or_insert_with(|| self.proc.mounts(thread));
        let found = |place: &Place| {
            let is_by_name = matches!(place, Place::Path(_));
            mounts.at(place).map(|s_dev| Found { s_dev, is_by_name })
        };
        places.iter().filter_map(found).find(|found| round.tracked.contains(&found.s_dev))
    }

    fn place_of_name(&self, thread: u32, round: &mut Round<'_>) -> Option<u32> {
        let (call, row) = self.call(thread, round)?;
        let mnt_ns = self.proc.mnt_ns(thread);
        let state = self.proc.stat(thread)?.state;
        let found = self.place(thread, (&call, row), (mnt_ns, state), round)?;
        (!self.proc.waits_for_a_program(thread, state)).then_some(found.s_dev)
    }
}

/// At once: what comes after it may hang.
fn say(out: &mut impl Write, answer: Answer) -> io::Result<()> {
    out.write_all(answer.to_line().as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests;
