//! `mountie probe VOLUME`: looks at a volume now and says what was found.

use std::path::Path;

use hyper::StatusCode;

use super::table::clean;
use super::{ClientError, Console, Output, age, http};
use crate::exit_code::ExitCode;
use crate::export::percent::PercentEncoded;
use crate::export::view::VolumeAnswer;

/// Probes and prints. Ends with 1 when the volume is sick or the probe has not answered.
pub async fn probe(socket: &Path, volume: &str, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = ask_and_print(socket, volume, output, console).await;
    console.end(result)
}

async fn ask_and_print(
    socket: &Path,
    volume: &str,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let path = format!("/api/v1/volumes/{}?check=true", PercentEncoded(volume));
    let also = [StatusCode::GATEWAY_TIMEOUT];
    let (_, answer): (_, VolumeAnswer) = http::get_json(socket, &path, (http::WITHIN_PROBE, &also)).await?;
    console.show(&answer, output, render)?;
    let is_bad = answer.volume.sick || answer.error.is_some();
    Ok(if is_bad { ExitCode::FoundSick } else { ExitCode::Ok })
}

fn render(answer: &VolumeAnswer) -> String {
    let volume = &answer.volume;
    let state = match &volume.reason {
        Some(reason) => format!("{} ({reason})", volume.state),
        None => volume.state.clone(),
    };
    let mut text = format!("{} is {state}\n", volume.id);
    if let Some(error) = &answer.error {
        text.push_str(&format!("  {error}\n"));
    }
    if let Some(seconds) = volume.stuck_seconds {
        text.push_str(&format!("  a probe has not come back for {}\n", age::span_of_seconds(seconds)));
    }
    match &volume.last_probe {
        Some(probe) => text.push_str(&format!(
            "  last probe, {} ago: {} ({})\n",
            age::span(answer.at.since(probe.started)),
            probe.detail,
            age::span_of_seconds(probe.took_seconds)
        )),
        None => text.push_str("  no probe has answered yet\n"),
    }
    if volume.sick || volume.state == "suspect" {
        text.push_str(&format!("  {}\n", volume.message));
    }
    text.lines().map(|line| clean(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample::sample_snapshot;
    use crate::export::view::VolumeList;

    fn answer(id: &str, error: Option<&str>) -> VolumeAnswer {
        let list = VolumeList::new(&sample_snapshot());
        let volume = list.volumes.into_iter().find(|volume| volume.id == id).unwrap();
        VolumeAnswer { at: list.at, volume, error: error.map(str::to_owned) }
    }

    #[test]
    fn a_good_probe_is_two_lines() {
        let expected = "\
backup is healthy
  last probe, 5s ago: everything answered, data was read past the cache (2ms)
";
        assert_eq!(render(&answer("backup", None)), expected);
    }

    #[test]
    fn a_stuck_probe_says_so_and_why_the_volume_is_sick() {
        let expected = "\
scratch is degraded (hung)
  the probe has not answered within 4 s
  a probe has not come back for 48s
  last probe, 48s ago: no answer within the deadline while asking for the attributes of the root (3s)
  A probe has not returned for 45 s.
";
        assert_eq!(render(&answer("scratch", Some("the probe has not answered within 4 s"))), expected);
    }
}
