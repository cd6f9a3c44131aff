//! What a program of the bench met, call by call, on disk so that the case can read it at any time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use serde_json::{Value, json};

/// Calls that ended, by how they ended.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Calls that did not fail.
    pub good: u64,
    /// Failed calls, by kind (the agent's word for it) and error number.
    pub failed: BTreeMap<(String, i32), u64>,
    /// Looks that found neither the old nor the new file system: only [`super::watcher`] counts these.
    pub gaps: u64,
}

impl Tally {
    /// How many calls of a kind failed with an error.
    #[must_use]
    pub fn failed(&self, operation: &str, errno: Errno) -> u64 {
        self.failed.get(&(operation.to_owned(), errno as i32)).copied().unwrap_or(0)
    }

    /// Failed calls in all.
    #[must_use]
    pub fn all_failed(&self) -> u64 {
        self.failed.values().sum()
    }

    pub(super) fn note<T>(&mut self, operation: &str, result: &io::Result<T>) {
        match result {
            Ok(_) => self.good += 1,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                *self.failed.entry((operation.to_owned(), errno)).or_default() += 1;
            }
        }
    }

    pub(super) fn read(file: &Path) -> Result<Self> {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let value: Value = serde_json::from_slice(&bytes).context("cannot parse a tally")?;
        let number = |name: &str| value.get(name).and_then(Value::as_u64).context("a tally lacks a number");
        let mut failed = BTreeMap::new();
        for (name, count) in value.get("failed").and_then(Value::as_object).into_iter().flatten() {
            let Some((operation, errno)) = name.split_once(' ') else { bail!("odd key {name}") };
            failed.insert((operation.to_owned(), errno.parse()?), count.as_u64().unwrap_or(0));
        }
        Ok(Self { good: number("good")?, gaps: number("gaps")?, failed })
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let failed: BTreeMap<String, u64> =
            self.failed.iter().map(|((name, errno), count)| (format!("{name} {errno}"), *count)).collect();
        let text = json!({ "good": self.good, "gaps": self.gaps, "failed": failed }).to_string();
        let new = file.with_extension("new");
        fs::write(&new, text).context("cannot write a tally")?;
        fs::rename(&new, file).context("cannot put a tally in place")
    }
}

/// The two files through which a case and a program of the bench speak.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    /// The program writes its tally here.
    pub(super) tally: PathBuf,
    /// The case creates this: end now, after the call that is under way.
    pub(super) stop: PathBuf,
}

impl Channel {
    /// Files of this name in the case's directory, without what an earlier process of the same name left: its
    /// stop would stop this one too.
    pub(super) fn new(directory: &Path, name: &str) -> Self {
        let channel = Self::of(directory.join(format!("{name}.tally")));
        for file in [&channel.tally, &channel.stop] {
            // Usually there is none.
            let _ = std::fs::remove_file(file);
        }
        channel
    }

    pub(super) fn of(tally: PathBuf) -> Self {
        let stop = tally.with_extension("stop");
        Self { tally, stop }
    }
}
