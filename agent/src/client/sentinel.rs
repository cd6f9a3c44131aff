//! `mountie sentinel init VOLUME`: has the agent put a sentinel on a volume, and says what to write into the
//! configuration.

use std::path::Path;

use super::table::clean;
use super::{ClientError, Console, Output, http};
use crate::exit_code::ExitCode;
use crate::export::SentinelAnswer;
use crate::export::view::SentinelOrder;

/// The configuration takes no longer name.
const LONGEST_NAME: usize = 128;

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

/// What was done as comments, what to configure as it stands. For a volume that the configuration names it is one line,
/// for the table that is there; a second table of that name would be a mistake.
fn render(answer: &SentinelAnswer) -> String {
    let SentinelAnswer { volume, mountpoint, path, .. } = answer;
    let done = match answer.outcome.as_str() {
        "written" => "was written",
        "found" => "was there already, with the same content",
        _ => "was there already, and its content counts from now on",
    };
    let mut text = format!("# {path} on {volume} ({mountpoint}) {done}\n");
    if answer.pinned {
        text.push_str(match answer.kept {
            true => "# it is pinned until the configuration names a sentinel\n",
            false => {
                "# it is pinned, but that could not be written to the state directory: a restart of the agent forgets it\n"
            }
        });
        text.push_str(&format!("# to keep it for good, put this into the table of {volume}:\n"));
    } else if answer.named {
        text.push_str(&format!("# the configuration has it, in the table of {volume}:\n"));
    } else {
        text.push_str("# the volume was found, not named: what counts is what the configuration says; put this there:\n");
    }
    text = text.lines().map(|line| clean(line) + "\n").collect();
    if !answer.named {
        text.push_str("[[volume]]\n");
        text.push_str(&format!("name = {}\n", toml::Value::from(name_for(mountpoint))));
        text.push_str(&format!("mountpoint = {}\n", toml::Value::from(mountpoint.as_str())));
    }
    text.push_str(&answer.toml);
    text
}

/// A name, made of a mount point, that the configuration takes.
fn name_for(mountpoint: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    let name: String = mountpoint.chars().map(plain).collect();
    let name: String = name.trim_matches('-').chars().take(LONGEST_NAME).collect();
    if name.is_empty() { "root".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn answer() -> SentinelAnswer {
        SentinelAnswer {
            volume: "models".into(),
            mountpoint: "/mnt/models".into(),
            path: ".mountie".into(),
            content: Some("models-7f3a".into()),
            outcome: "written".into(),
            named: true,
            pinned: true,
            kept: true,
            toml: "sentinel = { path = \".mountie\", content = \"models-7f3a\" }\n".into(),
        }
    }

    /// The one volume of a configuration: its name, mount point and sentinel's content.
    fn only_volume(config: &str) -> (String, String, Vec<u8>) {
        let config = Config::from_toml(config).unwrap_or_else(|errors| panic!("{errors}\n{config}"));
        let [volume] = &config.policy.volumes[..] else { panic!("{:?}", config.policy.volumes) };
        let content = volume.sentinel.clone().unwrap().content.unwrap();
        (volume.id.to_string(), volume.mountpoint.to_string(), content)
    }

    #[test]
    fn for_a_named_volume_one_line_is_printed_that_its_table_takes() {
        let printed = render(&answer());
        let expected = "\
# .mountie on models (/mnt/models) was written
# it is pinned until the configuration names a sentinel
# to keep it for good, put this into the table of models:
sentinel = { path = \".mountie\", content = \"models-7f3a\" }
";
        assert_eq!(printed, expected);
        let table = "[[volume]]\nname = \"models\"\nmountpoint = \"/mnt/models\"\n";
        let (name, _, content) = only_volume(&format!("{table}{printed}"));
        assert_eq!((name.as_str(), &content[..]), ("models", &b"models-7f3a"[..]));
    }

    #[test]
    fn what_is_not_on_disk_is_not_called_kept() {
        let printed = render(&SentinelAnswer { kept: false, ..answer() });
        assert!(printed.contains("could not be written to the state directory"), "{printed}");
        // From an agent that did not say it.
        let mut old = serde_json::to_value(answer()).unwrap();
        old.as_object_mut().unwrap().remove("kept");
        assert!(serde_json::from_value::<SentinelAnswer>(old).unwrap().kept);
    }

    #[test]
    fn for_a_volume_that_was_found_the_whole_table_is_printed_and_is_a_configuration() {
        let long = format!("/mnt/{}", "x".repeat(300));
        for (mountpoint, name) in [
            ("/mnt/models", "mnt-models"),
            ("/", "root"),
            ("/-", "root"),
            ("/srv/-caf\\xe9 \u{65e5}.d", "srv--caf-xe9--.d"),
            (long.as_str(), &format!("mnt-{}", "x".repeat(124))),
        ] {
            let found = SentinelAnswer {
                named: false,
                pinned: false,
                volume: mountpoint.into(),
                mountpoint: mountpoint.into(),
                ..answer()
            };
            let expected = (name.to_owned(), mountpoint.to_owned(), b"models-7f3a".to_vec());
            assert_eq!(only_volume(&render(&found)), expected);
        }
    }
}
