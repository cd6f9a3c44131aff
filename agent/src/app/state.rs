//! `mountie state`: what is kept across restarts, read from the directory as it is.

use std::path::Path;

use serde_json::Value;

use crate::client::{Console, Output};
use crate::error_chain::chain;
use crate::exit_code::ExitCode;
use crate::store::StoreError;
use crate::store::reading::{self, Forgotten, State};

/// Prints what is kept, of one volume or of all. Ends with 1 when some of it could not be read.
pub(super) fn show(dir: &Path, volume: Option<&str>, output: Output, console: &mut Console<'_>) -> ExitCode {
    let state = match reading::read(dir) {
        Ok(state) => state,
        Err(error) => return failed(&error, console),
    };
    let code = if state.problems.is_empty() { ExitCode::Ok } else { ExitCode::FoundSick };
    let state = match volume {
        None => state,
        Some(volume) => match state.of(volume) {
            Some(state) => state,
            None => {
                console.tell(&format_args!("mountie: nothing is kept of `{volume}` in {}", dir.display()));
                return ExitCode::Usage;
            }
        },
    };
    console.report(&state, output, render).map_or_else(|code| code, |()| code)
}

/// Forgets a volume where no agent runs.
pub(super) fn forget(dir: &Path, volume: &str, console: &mut Console<'_>) -> ExitCode {
    match reading::forget(dir, volume) {
        Ok(Forgotten { was_kept: false, is_paused: false }) => {
            console.tell(&format_args!("mountie: nothing is kept of `{volume}` in {}", dir.display()));
            ExitCode::Usage
        }
        Ok(Forgotten { is_paused, .. }) => {
            let pause = if is_paused { " but its pause, which `mountie resume` ends" } else { "" };
            let text = format!("{volume}: all that was kept of it is forgotten{pause}; no agent runs\n");
            let printed = console.print(&text).map(|()| ExitCode::Ok);
            console.end(printed)
        }
        Err(error) => failed(&error, console),
    }
}

fn failed(error: &StoreError, console: &mut Console<'_>) -> ExitCode {
    console.tell(&format_args!("mountie: {}", chain(error)));
    match error {
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ExitCode::NoPermission
        }
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => ExitCode::Usage,
        StoreError::Held { .. } => ExitCode::Unavailable,
        _ => ExitCode::Internal,
    }
}

/// For people: one block a volume.
fn render(state: &State) -> String {
    let mut page = Page(format!("{}\n", state.directory));
    for volume in &state.volumes {
        volume_block(&mut page, volume);
    }
    for pause in &state.pauses {
        let whom = word(pause, "/volume").unwrap_or_else(|| "all volumes".to_owned());
        let reason = word(pause, "/reason").map(|reason| format!(": {reason}")).unwrap_or_default();
        page.block(
            "paused",
            &format!("{whom}, by uid {}{reason}", word(pause, "/by/uid").unwrap_or_default()),
        );
    }
    for sentinel in &state.sentinels {
        let [volume, path] = ["/volume", "/path"].map(|key| word(sentinel, key).unwrap_or_default());
        page.block("sentinel", &format!("{path} on {volume}"));
    }
    for plan in &state.unfinished {
        let [id, volume, stage] =
            ["/plan", "/volume", "/stage"].map(|key| word(plan, key).unwrap_or_default());
        page.block("unfinished", &format!("plan {id} for {volume}, at {stage}"));
    }
    for problem in &state.problems {
        page.block("problem", problem);
    }
    if state.volumes.is_empty() {
        page.block("volumes", "none are kept");
    }
    page.0
}

fn volume_block(page: &mut Page, volume: &Value) {
    page.block("volume", &word(volume, "/volume").unwrap_or_default());
    page.pair("mount point", word(volume, "/mountpoint"));
    let owner = word(volume, "/owner/kind").map(|kind| match (kind.as_str(), word(volume, "/owner/pod")) {
        ("kubelet", Some(pod)) => format!("kubelet, for pod {pod}"),
        ("table", _) => "the mount table: observed only, how it is made nobody has said".to_owned(),
        _ => kind.clone(),
    });
    page.pair("known from", owner);
    let options = |key: &str| {
        let words = volume.pointer(key)?.as_array()?;
        let words: Vec<String> = words.iter().filter_map(text).collect();
        (!words.is_empty()).then(|| words.join(","))
    };
    page.pair("type", word(volume, "/mounted/fstype"));
    page.pair("source", word(volume, "/mounted/source"));
    page.pair("root", word(volume, "/mounted/root").filter(|root| root != "/"));
    page.pair("options", options("/mounted/options"));
    page.pair("of file system", options("/mounted/superOptions"));
    page.pair("fsid", word(volume, "/identity/fsid"));
    let trouble = word(volume, "/trouble/state").zip(word(volume, "/trouble/reason"));
    let message = word(volume, "/trouble/message").unwrap_or_default();
    page.pair("trouble", trouble.map(|(state, reason)| format!("{state} ({reason}): {message}")));
    let count = |key: &str| volume.pointer(key).and_then(Value::as_array).map_or(0, Vec::len);
    page.pair("falls", Some(count("/falls")).filter(|count| *count > 0).map(|count| count.to_string()));
    page.pair("attempts", Some(count("/attempts")).filter(|count| *count > 0).map(|count| count.to_string()));
}

/// What stands at a place, if it is a text or a number.
fn word(value: &Value, place: &str) -> Option<String> {
    text(value.pointer(place)?)
}

/// A text, a number, or bytes that are no text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(bytes) => {
            let bytes: Option<Vec<u8>> =
                bytes.iter().map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
            bytes.map(|bytes| agent_core::path::escape(&bytes))
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

struct Page(String);

impl Page {
    fn block(&mut self, name: &str, value: &str) {
        self.0.push_str(&format!("\n{name:<14} {}\n", one_line(value)));
    }

    fn pair(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.0.push_str(&format!("  {name:<14} {}\n", one_line(&value)));
        }
    }
}

/// Nothing that was written into a file moves the cursor of a terminal.
fn one_line(text: &str) -> String {
    agent_core::path::escape(text.as_bytes())
}
