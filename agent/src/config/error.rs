//! What can be wrong with a configuration, and where. Every problem found is kept; none hides another.

use std::fmt;

use thiserror::Error;

/// Where a value came from: a key of the file, a variable, a flag, or the file itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    key: String,
    line: Option<usize>,
}

impl Place {
    /// A key path such as `volume[2].repair.timeout`, a variable, a flag, or a file.
    pub(super) fn new(key: impl Into<String>, line: Option<usize>) -> Self {
        Self { key: key.into(), line }
    }

    /// A key below this table.
    pub(super) fn child(&self, key: &str) -> Self {
        let key = if is_bare(key) { key.to_owned() } else { format!("\"{}\"", key.escape_debug()) };
        let key = if self.key.is_empty() { key } else { format!("{}.{key}", self.key) };
        Self { key, line: self.line }
    }

    /// An entry of this array, counted from 0.
    pub(super) fn entry(&self, index: usize) -> Self {
        Self { key: format!("{}[{index}]", self.key), line: self.line }
    }

    /// The same key, on a line of its own.
    pub(super) fn on_line(mut self, line: Option<usize>) -> Self {
        self.line = line.or(self.line);
        self
    }

    /// The key path.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Keys that TOML takes without quotes.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// One thing that is wrong, and where.
#[derive(Debug, Error)]
#[error("{}: {problem}", place.key)]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What.
    #[source]
    pub problem: Problem,
}

/// One thing that is wrong. The texts name what was found and what is accepted; none shows a secret.
#[derive(Debug, Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// The file is a directory, a pipe, a device.
    #[error("is not a regular file")]
    NotAFile,
    /// The file cannot be a configuration.
    #[error("is larger than {limit} bytes, which no configuration is")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Others may write what decides what root mounts.
    #[error(
        "may be written by others than its owner (mode {mode:04o}), and it decides what root mounts; run: chmod go-w {path}"
    )]
    WritableByOthers {
        /// Permission bits.
        mode: u32,
        /// The file.
        path: String,
    },
    /// Somebody else owns what decides what root mounts.
    #[error("belongs to uid {uid}, and it decides what root mounts; run: chown root {path}")]
    ForeignOwner {
        /// The owner.
        uid: u32,
        /// The file.
        path: String,
    },
    /// The text is not UTF-8.
    #[error("is not UTF-8; TOML must be")]
    NotUtf8,
    /// The text is not TOML.
    #[error("line {line}, column {column}: {message}\n    {text}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What the parser says.
        message: String,
        /// The line itself.
        text: String,
    },
    /// A key nobody reads.
    #[error("unknown key{}; accepted here: {accepted}", DidYouMean(suggestion.as_deref()))]
    UnknownKey {
        /// The accepted key that looks most like it.
        suggestion: Option<String>,
        /// Every accepted key.
        accepted: String,
    },
    /// A variable `MOUNTIE_…` nobody reads.
    #[error("unknown variable{}; accepted: {accepted}", DidYouMean(suggestion.as_deref()))]
    UnknownVariable {
        /// The accepted variable that looks most like it.
        suggestion: Option<String>,
        /// Every accepted variable.
        accepted: String,
    },
    /// A value of the wrong type, the wrong form, or out of range.
    #[error("found {found}{}; expected {expected}{}", Reason(reason), Advice(advice.as_deref()))]
    Value {
        /// What was found.
        found: String,
        /// What is wrong with it, where that is not plain.
        reason: &'static str,
        /// What is accepted.
        expected: String,
        /// What to write instead, when it can be guessed.
        advice: Option<String>,
    },
    /// A value that is right by itself and wrong together with another.
    #[error("found {found}, {why}")]
    Conflict {
        /// What was found.
        found: String,
        /// Why it cannot be, and what can.
        why: String,
    },
    /// A key that must be there.
    #[error("missing; {why}")]
    Missing {
        /// Why it is needed, and what to write.
        why: String,
    },
    /// A value that must be unique.
    #[error("found {found}, which {first} has already; each volume needs its own")]
    Duplicate {
        /// What was found.
        found: String,
        /// The key that had it first.
        first: String,
    },
    /// A secret where everybody can read it.
    #[error(
        "holds a secret ({name}=…), which would show in process lists, logs and state files; put it into a file that only root can read and use credentials=FILE (ceph: secretfile=FILE), or environment_file = FILE in [volume.repair]"
    )]
    Secret {
        /// The option's name, never its value.
        name: String,
    },
    /// A documented value that this version does not know how to honour.
    #[error("{what} is not supported by this version; {instead}")]
    Unsupported {
        /// The value.
        what: String,
        /// What can be done today.
        instead: &'static str,
    },
}

struct DidYouMean<'a>(Option<&'a str>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, ", did you mean \"{name}\"?"))
    }
}

struct Reason<'a>(&'a str);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", which {}", self.0) }
    }
}

struct Advice<'a>(Option<&'a str>);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

/// Everything that is wrong, in the order of the file. Shown as one line each.
#[derive(Debug, Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Puts them in the order of the file; what stands in no line comes first.
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|error| error.place.line);
        Self(errors)
    }

    /// Each problem.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "error: config: {error}")?;
            if let Problem::Unreadable(source) = &error.problem {
                write!(f, ": {source}")?;
            }
            if let Some(line) = error.place.line {
                write!(f, " (line {line})")?;
            }
        }
        Ok(())
    }
}
