//! How lines look, and which filters are taken.

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

fn read(text: &str) -> Result<String, String> {
    filter(Some(OsStr::new(text))).map(|filter| filter.to_string()).map_err(|error| error.to_string())
}

#[test]
fn a_wrong_filter_is_refused_and_an_empty_one_is_info() {
    assert_eq!(filter(None).unwrap().to_string(), "info");
    assert_eq!(read(" ").unwrap(), "info");
    for right in ["agent=debug", "INFO", "off", "agent::probe", "agent_core::engine=debug"] {
        assert!(read(right).is_ok(), "{right}");
    }
    assert!(read("info,agent::probe=debug,hyper=warn").is_ok());
    let error = read("agent=loud").unwrap_err();
    assert!(error.starts_with("MOUNTIE_LOG: found \"agent=loud\""), "{error}");
}

#[test]
fn no_slip_of_the_pen_silences_the_agent() {
    use std::os::unix::ffi::OsStrExt;
    for wrong in ["warning", "verbose", "agnt=debug", "info,verbose", "hyper=info", ",", "[x]", "agnt::probe"]
    {
        let error = read(wrong).unwrap_err();
        assert!(error.contains("expected a level"), "{error}");
    }
    let error = filter(Some(OsStr::from_bytes(b"info\xff"))).unwrap_err().to_string();
    assert!(error.contains("it is no text"), "{error}");
    let error = read("info,password=Zx9").unwrap_err();
    assert!(!error.contains("Zx9"), "{error}");
}

#[test]
fn the_journal_is_recognised_by_device_and_inode() {
    let stat = nix::sys::stat::fstat(stderr()).unwrap();
    assert!(is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino))));
    assert!(!is_journal(Some(&format!("{}:{}", stat.st_dev, stat.st_ino + 1))));
    assert!(!is_journal(Some("nonsense")));
    assert!(!is_journal(None));
}
