//! Logging set-up: to stderr, one line per event, as text for people and the journal or as JSON.

use std::fmt;
use std::io::stderr;

use agent_core::path::{is_deceptive, visible_json};
use thiserror::Error;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Compact, DefaultFields, Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

pub mod flood;

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
        "MOUNTIE_LOG: found \"{found}\"; expected a level (error, warn, info, debug, trace) or filters such as \"info,agent::probe=debug\""
    )]
    Filter {
        /// The value.
        found: String,
        /// What the parser says.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Another subscriber is in place.
    #[error("logging is set up already")]
    AlreadySet,
}

/// Sets up logging for the process. The level comes from `MOUNTIE_LOG`, `info` when that is unset.
///
/// # Errors
/// A filter that cannot be read, or a second call.
pub fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let filter = filter(std::env::var("MOUNTIE_LOG").ok().as_deref())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    let journal = is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
    let done = match format {
        LogFormat::Json => {
            builder.fmt_fields(JsonFields::new()).event_format(JsonLine::new(journal)).try_init()
        }
        LogFormat::Text => builder.with_ansi(false).event_format(OneLine::new(journal)).try_init(),
    };
    done.map_err(|_| TelemetryError::AlreadySet)
}

fn filter(value: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let text = value.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("info");
    EnvFilter::builder()
        .parse(text)
        .map_err(|source| TelemetryError::Filter { found: text.escape_debug().to_string(), source })
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
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;
        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn logged(journal: bool, events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(lines.clone())
            .event_format(OneLine::new(journal))
            .finish();
        tracing::subscriber::with_default(subscriber, events);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_event_is_one_line_whatever_a_field_holds() {
        let text = logged(false, || tracing::warn!(error = %"a\n<0>b\x1b[31m\u{9b}", "Probe failed"));
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(
            text.contains("Probe failed") && text.contains("WARN") && text.contains("a\\n<0>b\\"),
            "{text:?}"
        );
        assert!(!text.contains(['\x1b', '\u{9b}']), "{text:?}");
        let turned = logged(false, || tracing::warn!(volume = %"a\u{202e}b", "Probe failed"));
        assert!(turned.contains("a\\u{202e}b"), "{turned:?}");
    }

    #[test]
    fn the_journal_gets_priorities_instead_of_time_and_level() {
        let text = logged(true, || {
            tracing::error!("One");
            tracing::warn!(volume = "models", "Two");
            tracing::info!("Three");
            tracing::debug!("Four");
        });
        let starts: Vec<&str> = text.lines().map(|line| line.get(..3).unwrap_or_default()).collect();
        assert_eq!(starts, ["<3>", "<4>", "<6>", "<7>"], "{text}");
        assert!(text.contains("Two volume=\"models\"") && !text.contains("WARN"), "{text}");
    }

    fn logged_as_json(journal: bool, events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(lines.clone())
            .fmt_fields(JsonFields::new())
            .event_format(JsonLine::new(journal))
            .finish();
        tracing::subscriber::with_default(subscriber, events);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_of_json_has_a_constant_message_and_its_fields_and_the_journal_its_priority() {
        let event = || tracing::warn!(volume = "a\u{202e}\u{e0041}\n\"b", count = 3, "Volume is sick");
        let text = logged_as_json(false, event);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{202e}', '\u{e0041}']), "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["message"], "Volume is sick");
        assert_eq!(line["volume"], "a\u{202e}\u{e0041}\n\"b");
        assert_eq!(line["count"], 3);
        assert!(line["timestamp"].is_string(), "{text}");
        let text = logged_as_json(true, event);
        assert!(text.starts_with("<4>{") && text.ends_with("}\n"), "{text}");
    }

    #[test]
    fn a_wrong_filter_is_refused_and_an_empty_one_is_info() {
        assert_eq!(filter(None).unwrap().to_string(), "info");
        assert_eq!(filter(Some(" ")).unwrap().to_string(), "info");
        assert_eq!(filter(Some("agent=debug")).unwrap().to_string(), "agent=debug");
        let error = filter(Some("agent=loud")).unwrap_err().to_string();
        assert!(error.starts_with("MOUNTIE_LOG: found \"agent=loud\""), "{error}");
    }

    #[test]
    fn the_journal_is_recognised_by_device_and_inode() {
        let stat = nix::sys::stat::fstat(stderr()).unwrap();
        assert!(is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino))));
        assert!(!is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino + 1))));
        assert!(!is_journal(Some("nonsense")));
        assert!(!is_journal(None));
    }
}
