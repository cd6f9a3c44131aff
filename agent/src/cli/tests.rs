//! What the command line takes, and how it ends.

use super::*;
use crate::config::Config;
use clap::CommandFactory;

fn cli(words: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("mountie").chain(words.iter().copied()))
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn wrong_usage_ends_with_64_and_help_with_0() {
    let usage: [&[&str]; 6] = [
        &[],
        &["nonsense"],
        &["run", "--nonsense"],
        &["status", "-o", "xml"],
        &["describe"],
        &["check-config", "a", "--config", "b"],
    ];
    for words in usage {
        assert_eq!(exit_code(&cli(words).unwrap_err()), ExitCode::Usage, "{words:?}");
    }
    for words in [["--help"], ["-h"], ["--version"]] {
        assert_eq!(exit_code(&cli(&words).unwrap_err()), ExitCode::Ok, "{words:?}");
    }
    assert_eq!(exit_code(&cli(&["run", "--help"]).unwrap_err()), ExitCode::Ok);
}

#[test]
fn the_socket_may_stand_before_or_after_the_command() {
    for words in [["--socket", "/x/s", "status"], ["status", "--socket", "/x/s"]] {
        let cli = cli(&words).unwrap();
        assert_eq!(cli.socket_path(Environment::default()), PathBuf::from("/x/s"));
    }
}

#[test]
fn the_socket_comes_from_flag_then_variable_then_file_then_default() {
    use std::io::Write;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // A mistake elsewhere does not keep a command from finding the agent.
    writeln!(file, "nonsense = 1\n[agent]\nsocket = \"/from/file\"").unwrap();
    let socket = |flag: Option<&str>, variable: Option<&str>, path: &str| {
        let pairs = variable.map(|value| ("MOUNTIE_AGENT_SOCKET", value));
        let mut sources = cli(&["status"]).unwrap().sources(Environment::from_pairs(pairs));
        sources.file = Some(PathBuf::from(path));
        sources.flags.extend(flag.map(|flag| ("--socket", flag.to_owned())));
        crate::config::socket_path(&sources)
    };
    let path = file.path().to_str().unwrap();
    assert_eq!(socket(Some("/from/flag"), Some("/from/variable"), path), PathBuf::from("/from/flag"));
    assert_eq!(socket(None, Some("/from/variable"), path), PathBuf::from("/from/variable"));
    assert_eq!(socket(None, None, path), PathBuf::from("/from/file"));
    assert_eq!(socket(None, None, "/nowhere/config"), PathBuf::from("/run/mountie/mountie.sock"));
}

#[test]
fn every_flag_of_the_configuration_is_taken_by_run_and_handed_on() {
    for flag in crate::config::flags() {
        let sources = cli(&["run", flag, "value"]).unwrap().sources(Environment::default());
        assert_eq!(sources.flags, BTreeMap::from([(flag, "value".to_owned())]));
    }
    assert_eq!(crate::config::flags().count(), 7);
}

#[test]
fn check_config_takes_its_file_as_an_argument() {
    let sources = cli(&["check-config", "/a.toml", "--mode", "act"]).unwrap().sources(Environment::default());
    assert_eq!(sources.file, Some(PathBuf::from("/a.toml")));
    assert_eq!(sources.flags.get("--mode").map(String::as_str), Some("act"));
    let sources = cli(&["run", "--config", "/b.toml"]).unwrap().sources(Environment::default());
    assert_eq!(sources.file, Some(PathBuf::from("/b.toml")));
}

#[test]
fn reports_are_for_people_unless_asked_otherwise() {
    let output = |words: &[&str]| match cli(words).unwrap().command {
        Command::Describe(volume) | Command::Probe(volume) => volume.output,
        Command::Doctor(doctor) => doctor.output,
        other => panic!("{other:?}"),
    };
    for words in [&["describe", "v"][..], &["probe", "v"], &["doctor"]] {
        assert_eq!(output(words), ReportOutput::Text);
        assert_eq!(output(&[words, &["-o", "json"]].concat()), ReportOutput::Json);
        assert_eq!(output(&[words, &["-o", "yaml"]].concat()), ReportOutput::Yaml);
    }
    let status = StatusArgs { output: StatusOutput::Wide, watch: true };
    assert_eq!(cli(&["status", "-o", "wide", "--watch"]).unwrap().command, Command::Status(status));
}

#[test]
fn an_empty_listen_flag_turns_tcp_off() {
    let mut sources = cli(&["run", "--listen", ""]).unwrap().sources(Environment::default());
    let file = tempfile::NamedTempFile::new().unwrap();
    sources.file = Some(file.path().to_owned());
    assert_eq!(Config::load(&sources).unwrap().agent.listen, None);
}

#[test]
fn hidden_commands_take_what_their_parents_pass() {
    let worker = WorkerArgs { parent: 7, namespace: Some("/proc/1/ns/mnt".into()) };
    let words = ["worker", "--parent", "7", "--namespace", "/proc/1/ns/mnt"];
    assert_eq!(cli(&words).unwrap().command, Command::Worker(worker));
    let act = ActArgs { namespace: Some("/n".into()) };
    assert_eq!(cli(&["act", "--namespace", "/n"]).unwrap().command, Command::Act(act));
    let arguments = ["--namespace", "/n", "--unknown", "/mnt/a b", "3"];
    let words: Vec<&str> = std::iter::once("mark-fs").chain(arguments).collect();
    let mark = MarkFsArgs { arguments: arguments.map(OsString::from).to_vec() };
    assert_eq!(cli(&words).unwrap().command, Command::MarkFs(mark));
}

#[test]
fn hidden_commands_take_paths_that_are_no_text() {
    use std::os::unix::ffi::OsStringExt;
    let path = OsString::from_vec(b"/mnt/caf\xe9".to_vec());
    let words = ["mountie".into(), "mark-fs".into(), path.clone()];
    let mark = MarkFsArgs { arguments: vec![path] };
    assert_eq!(Cli::try_parse_from(words).unwrap().command, Command::MarkFs(mark));
}

#[test]
fn the_help_teaches_exit_codes_files_and_examples_and_hides_what_is_internal() {
    let help = Cli::command().render_long_help().to_string();
    for text in ["64 ", "69 ", "77 ", "/etc/mountie/config.toml", "mountie check-config", "MOUNTIE_LOG"] {
        assert!(help.contains(text), "{text}");
    }
    for command in
        ["run", "status", "events", "describe", "probe", "doctor", "check-config", "completions", "man"]
    {
        assert!(help.contains(&format!("  {command} ")), "{command}");
    }
    for hidden in ["worker", "mark-fs"] {
        assert!(!help.contains(hidden), "{hidden}");
    }
}

/// The commands that people see, each with its examples.
fn shown(command: &clap::Command, found: &mut Vec<(String, String)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let examples = below.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        found.push((below.get_name().to_owned(), examples));
        shown(below, found);
    }
}

/// The words after each `mountie` of a line, as a shell would hand them on.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    // What an example means stands after it.
    let line = line.trim().split("   ").next().unwrap_or_default();
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, ' ' | '|' | ';' | '&' | '>' | '<' | '(' | ')') => {
                commands.last_mut().unwrap().extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                if c != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.push(c),
        }
    }
    let words_of = |words: Vec<String>| {
        let at = words.iter().position(|word| word == "mountie")?;
        let is_handed_one = words.first().is_some_and(|word| word == "xargs");
        Some(words.into_iter().skip(at + 1).chain(is_handed_one.then(|| "v".to_owned())).collect())
    };
    commands.into_iter().filter_map(words_of).collect()
}

#[test]
fn what_follows_a_pipe_in_an_example_is_looked_at_too() {
    let line =
        "  X=1 mountie status -o name | xargs -n 1 mountie describe; mountie a \"b c\"   mountie is it";
    let found = commands_of(line);
    assert_eq!(found, [vec!["status", "-o", "name"], vec!["describe", "v"], vec!["a", "b c"]]);
}

#[test]
fn every_command_has_examples_and_each_of_them_is_understood() {
    let mut found = Vec::new();
    shown(&Cli::command(), &mut found);
    assert!(found.len() > 15, "{found:?}");
    for (name, examples) in found {
        let lines: Vec<&str> = examples.lines().skip(1).collect();
        assert!(examples.starts_with("Examples:\n") && !lines.is_empty(), "{name}: {examples}");
        assert!(lines.iter().any(|line| line.contains(&format!(" {name}"))), "{name}: {examples}");
        for line in lines {
            let commands = commands_of(line);
            assert!(!commands.is_empty(), "{name}: {line}");
            for words in commands {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                assert!(cli(&words).is_ok(), "{name}: {words:?}: {}", cli(&words).unwrap_err());
            }
        }
    }
}
