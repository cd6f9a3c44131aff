//! Completion in shells: the script that a shell loads asks this very program for each word, so that it always fits the
//! program that is installed, and knows the names of the volumes.

use std::io;
use std::time::Duration;

use clap::{Command, CommandFactory as _};
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

fn with_volumes(mut command: Command) -> Command {
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
    let sources = Sources { environment: Environment::of_process(), ..Sources::default() };
    let socket = config::socket_path(&sources);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let known = runtime.block_on(client::known_volumes(&socket, WITHIN));
    let candidate = |(name, state): (String, String)| CompletionCandidate::new(name).help(Some(state.into()));
    known.unwrap_or_default().into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_script_of_each_shell_asks_this_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = script(shell).unwrap();
            assert!(text.contains(VARIABLE) && text.contains("mountie"), "{text}");
        }
    }
}
