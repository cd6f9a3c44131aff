//! Completion in shells: the script that a shell loads asks this very program for each word, so that it always fits the
//! program that is installed, and knows the names of the volumes.

use std::io;
use std::time::Duration;

use clap::{Command, CommandFactory as _, ValueHint};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;

use crate::cli::{Cli, Shell};
use crate::client::{self, ClientError, Console};
use crate::config::{self, Environment, Sources};
use crate::exit_code::ExitCode;

/// What a shell that asks has set: the shell's name.
const VARIABLE: &str = "_MOUNTIE_COMPLETE";
/// The argument that is a volume, in every command that has one.
const VOLUME: &str = "volume";
/// Whoever presses a key waits no longer for names.
const WITHIN: Duration = Duration::from_secs(1);

/// Answers a shell, if it is one that asks: then nothing else is to be done.
#[must_use]
pub fn answer() -> Option<ExitCode> {
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(definition).var(VARIABLE);
    match asked.try_complete(std::env::args_os(), here.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::Ok),
        // A shell has nobody to tell it to.
        Err(_) => Some(ExitCode::Usage),
    }
}

/// Prints what a shell has to load.
pub(super) fn print(shell: Shell, console: &mut Console<'_>) -> ExitCode {
    let result = script(shell)
        .map_err(|source| ClientError::Output { source })
        .and_then(|text| console.print(&text).map(|()| ExitCode::Ok));
    console.end(result)
}

fn script(shell: Shell) -> io::Result<String> {
    let unknown = || io::Error::other("this shell is not known");
    let shells = Shells::builtins();
    let mut text = Vec::new();
    let name = Cli::command().get_name().to_owned();
    let completer = shells.completer(shell.name()).ok_or_else(unknown)?;
    completer.write_registration(VARIABLE, &name, &name, &name, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The command line, with what volumes there are.
fn definition() -> Command {
    with_volumes(Cli::command())
}

/// Names of files are left to the shell, which puts them on the line as one word whatever is in them.
fn without_paths(command: Command) -> Command {
    command.mut_args(|argument| {
        let takes_values = argument.get_action().takes_values();
        if takes_values { argument.value_hint(ValueHint::Other) } else { argument }
    })
}

fn with_volumes(command: Command) -> Command {
    let mut command = without_paths(command);
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, with_volumes);
    }
    if command.get_arguments().any(|argument| argument.get_id() == VOLUME) {
        command = command.mut_arg(VOLUME, |argument| argument.add(ArgValueCandidates::new(volumes)));
    }
    command
}

/// The volumes, as the agent has them; none where it cannot be asked.
fn volumes() -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let flags = typed_socket(&words).map(|socket| ("--socket", socket.to_owned())).into_iter().collect();
    let sources = Sources { environment: Environment::of_process(), flags, ..Sources::default() };
    let socket = config::socket_path(&sources);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let known = runtime.block_on(client::known_volumes(&socket, WITHIN));
    let candidate = |(name, state): (String, String)| CompletionCandidate::new(name).help(Some(state.into()));
    known.unwrap_or_default().into_iter().filter(|(name, _)| is_plain(name)).map(candidate).collect()
}

/// Whether a shell reads the name as the one word that it is, however it stands on a line. The name of a volume that was
/// found is its mount point, which any user may have made: bash puts what is offered on root's line as it is. Other names
/// have to be typed.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/@-".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

/// The socket that stands on the line which is completed. Bash takes a word apart at `=`.
fn typed_socket(words: &[String]) -> Option<&str> {
    let at = words.iter().rposition(|word| word == "--socket" || word.starts_with("--socket="))?;
    let mut rest = words.iter().skip(at).map(String::as_str);
    let value = match rest.next()?.split_once('=') {
        Some((_, value)) => value,
        None => rest.find(|word| *word != "=")?,
    };
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_file_is_offered_since_bash_would_put_it_on_the_line_as_it_is() {
        fn hints(command: &Command, found: &mut Vec<ValueHint>) {
            let arguments = command.get_arguments().filter(|argument| argument.get_action().takes_values());
            found.extend(arguments.map(clap::Arg::get_value_hint));
            command.get_subcommands().for_each(|below| hints(below, found));
        }
        let mut found = Vec::new();
        hints(&definition(), &mut found);
        assert!(found.len() > 10 && found.iter().all(|hint| *hint == ValueHint::Other), "{found:?}");
    }

    fn takes_a_volume(command: &Command, path: &str, found: &mut Vec<String>) {
        for argument in command.get_arguments() {
            if argument.get::<ArgValueCandidates>().is_some() {
                found.push(path.trim().to_owned());
            }
        }
        for below in command.get_subcommands() {
            takes_a_volume(below, &format!("{path} {}", below.get_name()), found);
        }
    }

    #[test]
    fn every_command_about_a_volume_completes_its_name() {
        let mut found = Vec::new();
        takes_a_volume(&definition(), "", &mut found);
        for command in ["describe", "probe", "events", "pause", "state show", "sentinel init"] {
            assert!(found.iter().any(|path| path == command), "{command}: {found:?}");
        }
        definition().debug_assert();
    }

    #[test]
    fn no_name_that_is_offered_is_more_than_a_word_to_a_shell() {
        for name in ["models", "/mnt/models-2", "pvc_1", "a.b@c"] {
            assert!(is_plain(name), "{name}");
        }
        let wild = [
            "",
            "-rf",
            "/home/u/x;id",
            "$(id)",
            "`id`",
            "a b",
            "a&b",
            "a|b",
            "a*",
            "a?",
            "[a]",
            "{a,b}",
            "~a",
            "a\\x0a",
            "host:/a",
            "a=b",
            "a\"b",
            "a'b",
            "a#b",
            "!a",
            "a>b",
            "(a)",
            "é",
            "a\n",
        ];
        for name in wild {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn the_agent_at_the_socket_that_was_typed_is_asked() {
        let typed = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            typed_socket(&words).map(str::to_owned)
        };
        assert_eq!(typed("mountie -- mountie --socket /x/s describe m").as_deref(), Some("/x/s"));
        assert_eq!(typed("mountie -- mountie describe --socket=/x/s m").as_deref(), Some("/x/s"));
        assert_eq!(typed("mountie -- mountie --socket = /x/s describe m").as_deref(), Some("/x/s"));
        assert_eq!(typed("mountie -- mountie describe m"), None);
        assert_eq!(typed("mountie -- mountie describe --socket"), None);
    }

    #[test]
    fn the_script_of_each_shell_asks_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = script(shell).unwrap();
            assert!(text.contains(VARIABLE) && text.contains("mountie"), "{text}");
        }
    }
}
