//! `mountie sentinel init VOLUME`: has the agent put a sentinel on a volume, and says what to write into the
//! configuration.

use std::path::Path;

use super::table::clean;
use super::{ClientError, Console, Output, http};
use crate::exit_code::ExitCode;
use crate::export::SentinelAnswer;
use crate::export::view::SentinelOrder;

/// Asks and prints.
pub async fn init_sentinel(
    socket: &Path,
    order: &SentinelOrder,
    output: Output,
    console: &mut Console<'_>,
) -> ExitCode {
    let result = ask_and_print(socket, order, output, console).await;
    console.end(result)
}

async fn ask_and_print(
    socket: &Path,
    order: &SentinelOrder,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let answer: SentinelAnswer =
        http::post_json(socket, "/api/v1/sentinel", order, http::WITHIN_PROBE).await?;
    console.show(&answer, output, render)?;
    Ok(ExitCode::Ok)
}

/// What was done as comments, what to configure as it stands: the whole can be pasted.
fn render(answer: &SentinelAnswer) -> String {
    let SentinelAnswer { volume, mountpoint, path, .. } = answer;
    let done = match answer.outcome.as_str() {
        "written" => "was written",
        "found" => "was there already, with the same content",
        _ => "was there already, and its content counts from now on",
    };
    let mut text = format!("# {path} on {volume} ({mountpoint}) {done}\n");
    if answer.pinned {
        text.push_str("# it is pinned until the configuration names a sentinel; to keep it for good, add:\n");
    } else if answer.named {
        text.push_str("# the configuration has it:\n");
    } else {
        text.push_str("# the volume was found, not named: what counts is what the configuration says:\n");
    }
    text = text.lines().map(|line| clean(line) + "\n").collect();
    text.push_str("[[volume]]\n");
    if answer.named {
        text.push_str(&format!("# name = {}\n", toml::Value::from(volume.as_str())));
    } else {
        let name = mountpoint.trim_matches('/').replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        text.push_str(&format!("name = {}\n", toml::Value::from(name)));
        text.push_str(&format!("mountpoint = {}\n", toml::Value::from(mountpoint.as_str())));
    }
    text.push_str(&answer.toml);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> SentinelAnswer {
        SentinelAnswer {
            volume: "models".into(),
            mountpoint: "/mnt/models".into(),
            path: ".mountie".into(),
            content: Some("models-7f3a".into()),
            outcome: "written".into(),
            named: true,
            pinned: true,
            toml: "sentinel = { path = \".mountie\", content = \"models-7f3a\" }\n".into(),
        }
    }

    #[test]
    fn what_to_configure_stands_there_as_it_is_written() {
        let expected = "\
# .mountie on models (/mnt/models) was written
# it is pinned until the configuration names a sentinel; to keep it for good, add:
[[volume]]
# name = \"models\"
sentinel = { path = \".mountie\", content = \"models-7f3a\" }
";
        assert_eq!(render(&answer()), expected);
    }

    #[test]
    fn for_a_volume_that_was_found_the_whole_table_is_printed_and_is_a_configuration() {
        let found = SentinelAnswer { named: false, pinned: false, volume: "/mnt/models".into(), ..answer() };
        let config: toml::Table = render(&found).parse().unwrap();
        let volume = &config["volume"][0];
        assert_eq!(volume["name"].as_str(), Some("mnt-models"));
        assert_eq!(volume["mountpoint"].as_str(), Some("/mnt/models"));
        assert_eq!(volume["sentinel"]["content"].as_str(), Some("models-7f3a"));
    }
}
