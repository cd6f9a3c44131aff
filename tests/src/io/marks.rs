//! What the agent has counted, and when that is all there is.
//!
//! Whether a counter has been read since the last call cannot be seen in it. So a call of another kind follows,
//! the mark: a record of it makes the agent read all counters. The reading in which it is counted may have begun
//! before it was made, and passed other counters by then; a second mark, made when the first is counted, is counted
//! in a later reading. Then everything before the marks is counted, too.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::Agent;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::scrape::{Labels, Scrape};
use nix::errno::Errno;

/// A file that nothing but marks uses.
pub(super) const FILE: &str = "data9";

/// The errors of marks. Nothing else uses them; in turn, so that each has a record of its own in time.
const ERRORS: &[Errno] = &[
    Errno::EKEYREJECTED,
    Errno::EKEYREVOKED,
    Errno::EKEYEXPIRED,
    Errno::ENOKEY,
    Errno::ENOMEDIUM,
    Errno::EREMOTEIO,
    Errno::EUCLEAN,
    Errno::EHOSTUNREACH,
    Errno::EBADMSG,
    Errno::ENOLINK,
];

/// What was counted, by errno and operation.
pub(super) type Counts = BTreeMap<(String, String), u64>;

/// Where something is counted.
pub(super) fn key(errno: Errno, op: &str) -> (String, String) {
    (format!("{errno:?}"), op.to_owned())
}

/// What the kernel programs counted for a volume, however they knew that it was there.
pub(super) fn counts(scrape: &Scrape, volume: &str) -> Counts {
    let mut all = counts_of(scrape, volume, "bpf");
    for (key, count) in counts_of(scrape, volume, "bpf_name") {
        *all.entry(key).or_default() += count;
    }
    all
}

/// What one source counted for a volume.
pub(super) fn counts_of(scrape: &Scrape, volume: &str, source: &str) -> Counts {
    let labels = [("volume", volume), ("source", source)];
    let series = scrape.matching("mountie_volume_errors_total", &labels);
    let label = |labels: &Labels, name: &str| labels.get(name).cloned().unwrap_or_default();
    series.map(|(labels, value)| ((label(labels, "errno"), label(labels, "op")), value as u64)).collect()
}

/// How often calls are made again where the kernel skipped runs of a program meanwhile. Each of them may be a call that
/// is not counted, and the agent says so: a told loss is no wrong count.
pub(super) const TRIES: usize = 4;

/// Runs of programs that the kernel skipped.
pub(super) fn runs_skipped(scrape: &Scrape) -> f64 {
    scrape.sum("mountie_ebpf_runs_skipped_total", &[])
}

/// Whether the kernel skips more runs than these: awaited, since they are told a moment later.
pub(super) fn has_skipped_since(agent: &Agent, before: f64) -> bool {
    agent
        .wait_scrape("the kernel skipped runs of programs", |scrape| Ok(runs_skipped(scrape) > before))
        .is_ok()
}

/// What rose, and by how much.
pub(super) fn difference(before: &Counts, after: &Counts) -> Counts {
    let rise = |(key, count): (&(String, String), &u64)| {
        let rise = count.saturating_sub(before.get(key).copied().unwrap_or(0));
        (rise > 0).then(|| (key.clone(), rise))
    };
    after.iter().filter_map(rise).collect()
}

/// Makes marks.
pub(super) struct Marks {
    turn: usize,
}

impl Marks {
    pub(super) const fn new() -> Self {
        Self { turn: 0 }
    }

    /// Has somebody read the marks' file, which fails, until everything before is counted for the volume. Returns
    /// the errors of these marks.
    pub(super) fn settle(
        &mut self,
        injector: &Injector,
        counted: (&Agent, &str),
        mut read: impl FnMut() -> Result<Vec<i32>>,
    ) -> Result<[Errno; 2]> {
        Ok([self.mark(injector, counted, &mut read)?, self.mark(injector, counted, &mut read)?])
    }

    fn mark(
        &mut self,
        injector: &Injector,
        (agent, volume): (&Agent, &str),
        read: &mut impl FnMut() -> Result<Vec<i32>>,
    ) -> Result<Errno> {
        let errno = ERRORS.get(self.turn % ERRORS.len()).copied().context("no marks")?;
        self.turn += 1;
        let key = key(errno, "read");
        let count = |scrape: &Scrape| counts(scrape, volume).get(&key).copied().unwrap_or(0);
        let mut last = agent.scrape()?;
        let before = count(&last);
        // A mark is lost where the kernel skips the program that would have counted it: then it is made again.
        while count(&last) <= before {
            injector.set(&Mode::Fail(errno, vec![format!("read:{FILE}")]))?;
            let met = read()?;
            injector.set(&Mode::Ok)?;
            ensure!(met == [errno as i32], "the mark met {met:?}");
            let skipped = runs_skipped(&last);
            last = agent.wait_scrape("the mark is counted", |scrape| {
                Ok(count(scrape) > before || runs_skipped(scrape) > skipped)
            })?;
        }
        Ok(errno)
    }
}
