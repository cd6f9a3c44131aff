//! What a program costs: processor time and memory, with all that it started.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use integration_tests::harness::process::{children, descendants};
use integration_tests::harness::wait::{now, pause};

/// Processor time of a program over some real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Percent of one processor.
    pub(super) percent: f64,
    /// Of it, the program itself without its children.
    pub(super) own_percent: f64,
}

/// A moment from which processor time is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    process: u32,
    at: Duration,
    all: u64,
    own: u64,
}

impl Meter {
    pub(super) fn start(process: u32) -> Result<Self> {
        let (all, own) = ticks(process)?;
        Ok(Self { process, at: now(), all, own })
    }

    pub(super) fn stop(self) -> Result<Cost> {
        let (all, own) = ticks(self.process)?;
        let elapsed = (now() - self.at).as_secs_f64();
        let percent = |ticks: u64| ticks as f64 / TICKS_PER_SECOND / elapsed * 100.0;
        let spent = all.checked_sub(self.all).context("processor time of a child was lost")?;
        Ok(Cost { percent: percent(spent), own_percent: percent(own.saturating_sub(self.own)) })
    }
}

/// Over a time in which nothing is done.
pub(super) fn cost_over(process: u32, time: Duration) -> Result<Cost> {
    let meter = Meter::start(process)?;
    pause(time);
    meter.stop()
}

/// kernel: `USER_HZ`, include/asm-generic/param.h, since 2.6: what is told to programs, whatever the kernel counts in.
const TICKS_PER_SECOND: f64 = 100.0;

/// Ticks of a process with all that it has buried and all that runs below it, and its own. A child that is buried
/// between two looks would be missed: then all is read again.
fn ticks(process: u32) -> Result<(u64, u64)> {
    for _ in 0..RETRIES {
        let times = Times::of(process)?;
        let below = children(process).into_iter().map(|child| ticks(child).map(|(all, _)| all));
        let below = below.collect::<Result<Vec<u64>>>();
        if let Ok(below) = below
            && Times::of(process)?.buried == times.buried
        {
            return Ok((times.own + times.buried + below.iter().sum::<u64>(), times.own));
        }
    }
    bail!("children of process {process} end faster than their time can be read")
}

const RETRIES: usize = 100;

/// Ticks of a process.
#[derive(Clone, Copy)]
struct Times {
    own: u64,
    /// Those of children that it has waited for, and of theirs.
    buried: u64,
}

impl Times {
    /// kernel: fields 14 to 17 of `/proc/PID/stat`, fs/proc/array.c, since 2.6.
    fn of(process: u32) -> Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).context("the program has ended")?;
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4);
        let numbers = fields.map(str::parse).collect::<Result<Vec<u64>, _>>().context("no number")?;
        let &[user, system, buried_user, buried_system] = numbers.as_slice() else {
            bail!("not the times of a process: {text}")
        };
        Ok(Self { own: user + system, buried: buried_user + buried_system })
    }
}

/// Memory in MiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Resident, of the program alone.
    pub(super) rss: f64,
    /// Its share, of the program alone.
    pub(super) pss: f64,
    /// The share of its children.
    pub(super) children_pss: f64,
}

pub(super) fn memory(process: u32) -> Result<Memory> {
    let below: f64 = descendants(process).into_iter().filter_map(|child| field(child, "Pss:").ok()).sum();
    Ok(Memory { rss: field(process, "Rss:")?, pss: field(process, "Pss:")?, children_pss: below })
}

/// kernel: `show_smaps_rollup`, fs/proc/task_mmu.c, since 4.14.
fn field(process: u32, name: &str) -> Result<f64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("no number")?;
    Ok(kib / 1024.0)
}
