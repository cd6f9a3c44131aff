//! The commands that ask a running agent: over its unix socket, for people and for scripts.
//!
//! Asking and printing are apart: `http` asks, the renderers are pure functions of what was answered. Text
//! goes to [`Console::out`], complaints to [`Console::err`], the verdict into the exit code.

use std::io::{self, Write};
use std::path::PathBuf;

use agent_core::path::visible_json;

use crate::exit_code::ExitCode;
use crate::export::age;

pub mod ack;
pub mod describe;
pub mod doctor;
pub mod events;
pub mod look;
pub mod orders;
pub mod probe;
pub mod remount;
pub mod sentinel;
pub mod status;

pub(crate) mod http;

mod screen;
mod stream;
mod table;
mod watch;
mod yaml;

pub use ack::ack;
pub use describe::describe;
pub use doctor::doctor;
pub use events::events;
pub use look::Look;
pub use orders::{forget, pause, resume};
pub use probe::probe;
pub use remount::{preview, remount};
pub use sentinel::init_sentinel;
pub use status::{known_volumes, status};

/// How an answer is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Output {
    /// A table for people.
    #[default]
    Table,
    /// The same with more columns.
    Wide,
    /// The API's JSON.
    Json,
    /// The same as YAML.
    Yaml,
    /// The names alone, one a line.
    Name,
}

/// Where a command writes. Not `println!`: that panics when the reader of a pipe has left.
pub struct Console<'a> {
    /// What was asked for.
    pub out: &'a mut dyn Write,
    /// Why there is none.
    pub err: &'a mut dyn Write,
    /// What may be sent to `out` beside text.
    pub look: Look,
}

/// Why a command has no answer.
#[derive(thiserror::Error, Debug)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no agent answers at {}; start it with `mountie run`", socket.display())]
    NoAgent {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket belongs to root.
    #[error("not permitted to ask the agent at {}; try again as root", socket.display())]
    NotPermitted {
        /// The socket.
        socket: PathBuf,
    },
    /// It accepted, and then said nothing.
    #[error("the agent at {} has not answered within {seconds} s", socket.display())]
    TimedOut {
        /// The socket.
        socket: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The socket failed in another way.
    #[error("failed to reach the agent at {}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the answer of the agent at {} broke off: {source}", socket.display())]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An agent of another version, or something else.
    #[error("the answer of the agent at {} is not understood: {source}", socket.display())]
    NotUnderstood {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// It said no.
    #[error("{error}{}", known_list(known))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the agent says.
        error: String,
        /// What would have been right.
        known: Vec<String>,
    },
    /// What was answered cannot be written as YAML.
    #[error("failed to write the answer as YAML; ask for JSON")]
    Yaml {
        /// The cause.
        source: serde_saphyr::ser::Error,
    },
    /// The reader of the output has left, or the disk is full.
    #[error("failed to write the output: {source}")]
    Output {
        /// The cause.
        source: io::Error,
    },
}

fn known_list(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; there is: {}", known.join(", ")) }
}

impl ClientError {
    /// Whoever read the output has left.
    fn is_reader_gone(&self) -> bool {
        matches!(self, Self::Output { source } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The code with which the command ends.
    #[must_use]
    pub const fn exit_code(&self) -> ExitCode {
        match self {
            Self::NoAgent { .. } | Self::TimedOut { .. } | Self::Connect { .. } => ExitCode::Unavailable,
            Self::NotPermitted { .. } | Self::Refused { status: 403, .. } => ExitCode::NoPermission,
            // The volume is not in a state for it.
            Self::Refused { status: 409, .. } => ExitCode::FoundSick,
            // What is left is what a user can get wrong: a name, an option.
            Self::Refused { status: 400..=499, .. } => ExitCode::Usage,
            Self::Refused { status: 503 | 504, .. } => ExitCode::Unavailable,
            Self::Broken { .. }
            | Self::NotUnderstood { .. }
            | Self::Refused { .. }
            | Self::Yaml { .. }
            | Self::Output { .. } => ExitCode::Internal,
        }
    }
}

/// An answer as the API has it, or as text for people.
fn written<T: serde::Serialize>(
    answer: &T,
    output: Output,
    text: impl FnOnce(&T) -> String,
) -> Result<String, ClientError> {
    match output {
        // The views hold nothing that JSON cannot: string keys and finite numbers.
        Output::Json => Ok(visible_json(&serde_json::to_string_pretty(answer).unwrap_or_default()) + "\n"),
        Output::Yaml => yaml::visible(answer).map_err(|source| ClientError::Yaml { source }),
        Output::Table | Output::Wide | Output::Name => Ok(text(answer)),
    }
}

impl Console<'_> {
    /// Prints an answer. A reader that has left is no failure of anybody (`mountie status | head`), and the command ends
    /// with what it has found.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), ClientError> {
        match self.go_on(text) {
            Err(error) if error.is_reader_gone() => Ok(()),
            other => other,
        }
    }

    /// Prints what others will follow, for which there must be a reader.
    fn go_on(&mut self, text: &str) -> Result<(), ClientError> {
        let text = self.look.spelled(text);
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|source| ClientError::Output { source })
    }

    /// Prints an answer: as the API has it, or as text for people.
    fn show<T: serde::Serialize>(
        &mut self,
        answer: &T,
        output: Output,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), ClientError> {
        let shown = written(answer, output, text)?;
        self.print(&shown)
    }

    /// Prints a report that no agent was asked for. The code when that fails.
    pub(crate) fn report<T: serde::Serialize>(
        &mut self,
        report: &T,
        output: Output,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), ExitCode> {
        match self.show(report, output, text) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.end(Err(error))),
        }
    }

    fn complain(&mut self, text: &dyn std::fmt::Display) {
        // There is nowhere to report that reporting failed.
        let _ = writeln!(self.err, "mountie: {text}");
    }

    /// Says what is wrong, as it is.
    pub(crate) fn tell(&mut self, text: &dyn std::fmt::Display) {
        // As above.
        let _ = writeln!(self.err, "{text}");
    }

    /// Turns a result into an exit code, and tells the error.
    pub(crate) fn end(&mut self, result: Result<ExitCode, ClientError>) -> ExitCode {
        match result {
            Ok(code) => code,
            Err(error) if error.is_reader_gone() => ExitCode::Ok,
            Err(error) => {
                self.complain(&error);
                error.exit_code()
            }
        }
    }
}

#[cfg(test)]
mod tests;
