//! What the injector has answered, on disk so that the case can read it at any time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Totals by operation.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Answers {
    /// Good answers.
    pub good: BTreeMap<String, u64>,
    /// Errors, by operation and number.
    pub failed: BTreeMap<(String, i32), u64>,
    /// Requests that are being held back now.
    pub held: BTreeMap<String, u64>,
}

impl Answers {
    /// Adds up what every daemon under a control directory wrote.
    pub(super) fn read(control: &Path) -> Result<Self> {
        let mut sum = Self::default();
        for entry in fs::read_dir(control).context("cannot read the control directory")?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "answers") {
                continue;
            }
            let bytes = fs::read(&path).context("cannot read the answers")?;
            sum.add(&serde_json::from_slice(&bytes).context("cannot parse the answers")?);
        }
        Ok(sum)
    }

    /// How many errors with this number were answered to this operation.
    #[must_use]
    pub fn failed(&self, operation: &str, errno: nix::errno::Errno) -> u64 {
        self.failed.get(&(operation.to_owned(), errno as i32)).copied().unwrap_or(0)
    }

    /// How many requests were answered in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.good.values().sum::<u64>() + self.failed.values().sum::<u64>()
    }

    fn add(&mut self, value: &Value) {
        for (name, count) in numbers(value.get("good")) {
            *self.good.entry(name).or_default() += count;
        }
        for (name, count) in numbers(value.get("held")) {
            *self.held.entry(name).or_default() += count;
        }
        for (name, count) in numbers(value.get("failed")) {
            if let Some((operation, errno)) = name.split_once(' ') {
                let key = (operation.to_owned(), errno.parse().unwrap_or(0));
                *self.failed.entry(key).or_default() += count;
            }
        }
    }

    fn to_json(&self) -> Value {
        let failed: BTreeMap<String, u64> =
            self.failed.iter().map(|((name, errno), count)| (format!("{name} {errno}"), *count)).collect();
        json!({ "good": self.good, "failed": failed, "held": self.held })
    }
}

fn numbers(value: Option<&Value>) -> Vec<(String, u64)> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0))).collect()
}

/// The daemon's own counts. Written out at each change, before the answer goes out.
#[derive(Debug)]
pub(super) struct Counter {
    file: PathBuf,
    answers: Mutex<Answers>,
}

impl Counter {
    pub(super) fn new(control: &Path) -> Self {
        let file = control.join(format!("{}.answers", std::process::id()));
        Self { file, answers: Mutex::default() }
    }

    pub(super) fn good(&self, operation: &str) {
        self.change(|answers| *answers.good.entry(operation.to_owned()).or_default() += 1);
    }

    pub(super) fn failed(&self, operation: &str, errno: i32) {
        self.change(|answers| *answers.failed.entry((operation.to_owned(), errno)).or_default() += 1);
    }

    pub(super) fn held(&self, operation: &str) {
        self.change(|answers| *answers.held.entry(operation.to_owned()).or_default() += 1);
    }

    pub(super) fn released(&self, operation: &str) {
        self.change(|answers| {
            if let Some(count) = answers.held.get_mut(operation) {
                *count = count.saturating_sub(1);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Answers)) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut answers);
        let new = self.file.with_extension("new");
        let written = fs::write(&new, answers.to_json().to_string());
        if let Err(error) = written.and_then(|()| fs::rename(&new, &self.file)) {
            // Counts that are not exact would make a case lie. Ending shows as ENOTCONN instead.
            eprintln!("cannot write the answers: {error}");
            std::process::exit(1);
        }
    }
}
