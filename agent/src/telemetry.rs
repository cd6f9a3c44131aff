//! Logging set-up: to stderr, one line per event, as text for people and the journal or as JSON.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, stderr};
use std::os::fd::AsFd;

use agent_core::path::{is_deceptive, visible_json};
use agent_core::secret::hide;
use thiserror::Error;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Compact, DefaultFields, Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use queue::Queue;
pub use queue::Rest;

pub mod flood;
mod queue;

/// How the targets of the agent's own lines begin: the names of its crates.
const TARGET: &str = "agent";

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people, and for the journal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// `MOUNTIE_LOG` is no filter.
    #[error(
        "MOUNTIE_LOG: found \"{found}\": {why}; expected a level (error, warn, info, debug, trace) or filters such as \"info,agent::probe=debug\""
    )]
    Filter {
        /// The value.
        found: String,
        /// What is wrong with it.
        why: String,
    },
    /// No thread starts that could write the log, or stderr is closed.
    #[error("the log cannot be written: {source}")]
    NoWriter {
        /// The cause.
        source: io::Error,
    },
    /// Another subscriber is in place.
    #[error("logging is set up already")]
    AlreadySet,
}

/// Sets up logging for the process. The level comes from `MOUNTIE_LOG`, `info` when that is unset. What is returned is
/// to be held until the process ends.
///
/// # Errors
/// A filter that cannot be read, or a second call.
pub fn init(format: LogFormat) -> Result<Rest, TelemetryError> {
    let filter = filter(std::env::var_os("MOUNTIE_LOG").as_deref())?;
    let no_writer = |source| TelemetryError::NoWriter { source };
    // A descriptor of its own: the lock of the standard one stays free while a write waits.
    let out = stderr().as_fd().try_clone_to_owned().map(File::from).map_err(no_writer)?;
    let (queue, rest) = Queue::start(out, tell_lost).map_err(no_writer)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(queue);
    let journal = is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
    let done = match format {
        LogFormat::Json => {
            builder.fmt_fields(JsonFields::new()).event_format(JsonLine::new(journal)).try_init()
        }
        LogFormat::Text => builder.with_ansi(false).event_format(OneLine::new(journal)).try_init(),
    };
    done.map(|()| rest).map_err(|_| TelemetryError::AlreadySet)
}

fn tell_lost(count: u64) {
    tracing::warn!(count, "Lines of the log were lost, it was not read or could not be written");
}

/// The filter that this text says. What would silence the agent by mistake is refused: a word that is no level names a
/// target, of which everything is told, and nothing of any other.
fn filter(value: Option<&OsStr>) -> Result<EnvFilter, TelemetryError> {
    let value = value.unwrap_or_default();
    let wrong = |why: String| {
        let found = hide(&value.to_string_lossy()).escape_debug().to_string();
        TelemetryError::Filter { found, why }
    };
    let text = value.to_str().ok_or_else(|| wrong("it is no text".to_owned()))?.trim();
    let text = if text.is_empty() { "info" } else { text };
    let mut is_about_the_agent = false;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let target = part.split_once('=').map(|(target, _)| target.trim());
        let is_level = target.is_none() && part.parse::<LevelFilter>().is_ok();
        let names_agent = target.unwrap_or(part).starts_with(TARGET);
        if target.is_none() && !is_level && !names_agent {
            return Err(wrong(format!(
                "{} is neither a level nor a part of the agent",
                hide(part).escape_debug()
            )));
        }
        is_about_the_agent |= is_level || names_agent;
    }
    if !is_about_the_agent {
        return Err(wrong("it says nothing of the agent, which would be silent".to_owned()));
    }
    EnvFilter::builder().parse(text).map_err(|source| wrong(hide(&source.to_string())))
}

/// Whether stderr is the journal. `JOURNAL_STREAM` is inherited by children whose stderr may be elsewhere, so
/// its device and inode are compared, as systemd.exec(5) asks.
fn is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else { return false };
    nix::sys::stat::fstat(stderr())
        .is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

/// The text form. Names of processes and servers stand in fields and may hold anything, so line breaks, other control
/// characters and what turns a line around are escaped: one event is one line, nobody else's, and reads as it is.
struct OneLine {
    journal: bool,
    /// The journal keeps time and level itself.
    bare: Format<Compact, ()>,
    full: Format<Compact>,
}

impl OneLine {
    fn new(journal: bool) -> Self {
        let full = tracing_subscriber::fmt::format().compact();
        let bare = tracing_subscriber::fmt::format().compact().without_time().with_level(false);
        Self { journal, bare, full }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, DefaultFields> for OneLine {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        if self.journal {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
            self.bare.format_event(context, Writer::new(&mut line), event)?;
        } else {
            self.full.format_event(context, Writer::new(&mut line), event)?;
        }
        write_escaped(&mut writer, line.trim_end())?;
        writeln!(writer)
    }
}

fn write_escaped(writer: &mut Writer<'_>, line: &str) -> fmt::Result {
    for c in line.chars() {
        if is_deceptive(c) {
            write!(writer, "{}", c.escape_default())?;
        } else {
            writer.write_char(c)?;
        }
    }
    Ok(())
}

/// The JSON form. What deceives the eye is written as JSON can write it, so that it means the same to programs. The
/// journal takes the priority away before it keeps the line.
struct JsonLine {
    journal: bool,
    inner: Format<Json>,
}

impl JsonLine {
    fn new(journal: bool) -> Self {
        Self { journal, inner: tracing_subscriber::fmt::format().json().flatten_event(true) }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for JsonLine {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        if self.journal {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
        }
        writer.write_str(&visible_json(line.trim_end()))?;
        writeln!(writer)
    }
}

/// The syslog priority of a level, as in sd-daemon(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests;
