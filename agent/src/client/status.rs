//! `mountie status`: every volume in one line.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use super::table::{STATE, Table, clean};
use super::watch::watch;
use super::{ClientError, Console, Look, Output, age, http, written};
use crate::exit_code::ExitCode;
use crate::export::timestamp::Timestamp;
use crate::export::view::{IncidentView, VolumeList, VolumeView};

/// Where every volume is.
const PATH: &str = "/api/v1/volumes";
/// Stands before each picture in YAML: a stream of documents.
pub(super) const DOCUMENT: &str = "---\n";

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusRequest {
    /// How to print it.
    pub output: Output,
    /// Show it again after every change, until interrupted.
    pub watch: bool,
}

/// Prints the status, with `watch` until `until`. Ends with 1 when any volume is sick.
pub async fn status(
    socket: &Path,
    request: StatusRequest,
    until: impl Future<Output = ()>,
    console: &mut Console<'_>,
) -> ExitCode {
    let result = if request.watch {
        watch(socket, request.output, until, console).await
    } else {
        once(socket, request.output, console).await
    };
    console.end(result)
}

async fn once(socket: &Path, output: Output, console: &mut Console<'_>) -> Result<ExitCode, ClientError> {
    let list = ask(socket).await?;
    if !list.ready {
        console.complain(&"the agent has started and not looked at every volume yet");
    }
    console.print(&picture(&list, output, console.look)?)?;
    Ok(verdict(&list))
}

/// The volumes that there are, each with its state. `None` where the agent does not say within that time.
pub async fn known_volumes(socket: &Path, within: Duration) -> Option<Vec<(String, String)>> {
    let asked: Result<(_, VolumeList), _> = http::get_json(socket, PATH, (within, &[])).await;
    let volumes = asked.ok()?.1.volumes.into_iter();
    Some(volumes.map(|volume| (volume.id, volume.state)).collect())
}

pub(super) async fn ask(socket: &Path) -> Result<VolumeList, ClientError> {
    let (_, list) = http::get_json(socket, PATH, (http::WITHIN, &[])).await?;
    Ok(list)
}

pub(super) fn verdict(list: &VolumeList) -> ExitCode {
    if list.volumes.iter().any(|volume| volume.sick) { ExitCode::FoundSick } else { ExitCode::Ok }
}

/// What is printed.
pub(super) fn picture(list: &VolumeList, output: Output, look: Look) -> Result<String, ClientError> {
    written(list, output, |list| {
        if output == Output::Name {
            return list.volumes.iter().map(|volume| clean(&volume.id) + "\n").collect();
        }
        if list.volumes.is_empty() {
            return "no volume is watched; name one in the configuration, or mount one that discovery takes in\n"
                .to_owned();
        }
        let volumes = if output == Output::Wide { wide(list) } else { table(list) }.render_for(look);
        volumes + &incidents(list) + &pauses(list)
    })
}

fn table(list: &VolumeList) -> Table {
    let mut table =
        Table::new(&["VOLUME", STATE, "REASON", "SINCE", "MOUNTPOINT", "TYPE", "ERRORS", "LAST OK"]);
    for volume in &list.volumes {
        table.row(columns(list.at, volume));
    }
    table
}

/// One line for each incident that lasts.
fn incidents(list: &VolumeList) -> String {
    let line = |incident: &IncidentView| {
        let since = age::span(list.at.since(incident.began));
        let line = format!(
            "incident {}: {}, since {since}, {} still sick",
            incident.id, incident.message, incident.sick
        );
        clean(&line) + "\n"
    };
    let lines: String = list.incidents.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// One line for the pause of the node, and one for each volume that is paused by itself.
fn pauses(list: &VolumeList) -> String {
    let mut lines: Vec<String> = Vec::new();
    for volume in &list.volumes {
        let Some(pause) = &volume.paused else { continue };
        let whom = if pause.all { "all volumes" } else { &volume.id };
        let since = age::span(list.at.since(pause.since));
        let until = match pause.until {
            Some(until) => format!("for another {}", age::span(until.since(list.at))),
            None => "until mountie resume".to_owned(),
        };
        let reason = pause.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let by = format!("uid {}", pause.by.uid);
        let line = clean(&format!("paused: {whom}, since {since} by {by}, {until}{reason}")) + "\n";
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

fn wide(list: &VolumeList) -> Table {
    let mut table = Table::new(&[
        "VOLUME",
        STATE,
        "REASON",
        "SINCE",
        "MOUNTPOINT",
        "TYPE",
        "ERRORS",
        "LAST OK",
        "SOURCE",
        "DEVICE",
        "MODE",
        "MESSAGE",
    ]);
    for volume in &list.volumes {
        let [id, state, reason, since, mountpoint, fstype, errors, last_ok] = columns(list.at, volume);
        let device = volume.device.clone().unwrap_or_default();
        let (source, mode, message) = (volume.source.clone(), volume.mode.clone(), volume.message.clone());
        table.row([
            id, state, reason, since, mountpoint, fstype, errors, last_ok, source, device, mode, message,
        ]);
    }
    table
}

fn columns(at: Timestamp, volume: &VolumeView) -> [String; 8] {
    let errors: u64 = volume.errors.iter().map(|error| error.count).sum();
    let last_ok = match volume.last_ok {
        Some(time) => format!("{} ago", age::span(at.since(time))),
        None => "never".to_owned(),
    };
    [
        volume.id.clone(),
        volume.state.clone(),
        reason_and_advice(volume),
        age::span(at.since(volume.since)),
        volume.mountpoint.clone(),
        volume.fstype.clone(),
        errors.to_string(),
        last_ok,
    ]
}

/// The reason; advice after it in brackets, because it is none.
fn reason_and_advice(volume: &VolumeView) -> String {
    let advice = (!volume.advice.is_empty()).then(|| format!("({})", volume.advice.join(",")));
    volume.reason.iter().cloned().chain(advice).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample::sample_snapshot;

    #[test]
    fn the_table_shows_every_volume_in_one_line() {
        let list = VolumeList::new(&sample_snapshot());
        let expected = "\
VOLUME               STATE       REASON  SINCE   MOUNTPOINT           TYPE        ERRORS  LAST OK
/mnt/caf\\xe9 \"日本\"  healthy     -       15m00s  /mnt/caf\\xe9 \"日本\"  nfs4        0       5s ago
backup               healthy     (full)  15m00s  /mnt/backup          fuse.davfs  0       5s ago
models               recovering  stale   3m12s   /mnt/models          nfs4        17      3m20s ago
scratch              degraded    hung    45s     /mnt/scratch         nfs4        0       never

incident 3: 2 volumes of server filer1 fail together, since 3m12s, 2 still sick
";
        assert_eq!(picture(&list, Output::Table, Look::default()).unwrap(), expected);
        assert_eq!(verdict(&list), ExitCode::FoundSick);
    }

    #[test]
    fn the_wide_table_adds_source_device_mode_and_message() {
        let mut list = VolumeList::new(&sample_snapshot());
        list.volumes.retain(|volume| volume.id == "backup");
        list.incidents.clear();
        let expected = "\
VOLUME  STATE    REASON  SINCE   MOUNTPOINT   TYPE        ERRORS  LAST OK  SOURCE                        DEVICE  MODE     MESSAGE
backup  healthy  (full)  15m00s  /mnt/backup  fuse.davfs  0       5s ago   https://ann:***@dav.example/  0:77    observe  The last probe was good.
";
        assert_eq!(picture(&list, Output::Wide, Look::default()).unwrap(), expected);
        assert_eq!(verdict(&list), ExitCode::Ok);
    }

    #[test]
    fn json_is_the_answer_of_the_api() {
        let list = VolumeList::new(&sample_snapshot());
        assert_eq!(
            serde_json::from_str::<VolumeList>(&picture(&list, Output::Json, Look::default()).unwrap())
                .unwrap(),
            list
        );
    }

    #[test]
    fn yaml_says_the_same_whatever_names_and_messages_are_made_of() {
        let mut list = VolumeList::new(&sample_snapshot());
        let awkward =
            ["no", "1e3", "~", "- a: b", "#x", "a\n\tb: 'c'\n", "", " \u{85}\u{feff}\u{7f}", "\"日本\\xe9"];
        let template = list.volumes.pop().unwrap();
        list.volumes.extend(awkward.map(|word| VolumeView {
            id: word.to_owned(),
            message: format!("{word} {word}"),
            source: word.to_owned(),
            ..template.clone()
        }));
        let text = picture(&list, Output::Yaml, Look::default()).unwrap();
        assert_eq!(serde_saphyr::from_str::<VolumeList>(&text).unwrap(), list, "{text}");
        assert!(text.ends_with('\n') && !text.contains("volumes: ["), "in block style: {text}");
        // Each picture of `--watch` is a document of its own.
        let stream = format!("{DOCUMENT}{text}# no agent answers\n{DOCUMENT}{text}");
        assert_eq!(serde_saphyr::from_multiple::<VolumeList>(&stream).unwrap(), [list.clone(), list]);
    }

    #[test]
    fn without_volumes_there_is_a_hint() {
        let mut list = VolumeList::new(&sample_snapshot());
        list.volumes.clear();
        assert!(picture(&list, Output::Table, Look::default()).unwrap().starts_with("no volume is watched"));
    }

    #[test]
    fn names_stand_alone_one_a_line_for_scripts() {
        let list = VolumeList::new(&sample_snapshot());
        let names = picture(&list, Output::Name, Look::default()).unwrap();
        assert_eq!(names, "/mnt/caf\\xe9 \"日本\"\nbackup\nmodels\nscratch\n");
    }
}
