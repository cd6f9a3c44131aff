//! From a parsed command line to what it does.

use std::future::Future;
use std::io::{self, Write as _};
use std::path::Path;

use super::interrupted::interrupted;
use crate::cli::{Cli, Command, EventsArgs, ExportOutput, PauseArgs, ReachArgs, RemountArgs, ReportOutput};
use crate::cli::{SentinelCommand, SentinelInitArgs, StateCommand, StatusArgs, StatusOutput};
use crate::client::{self, Console, Look, Output};
use crate::config::{self, Config, Environment, Sources};
use crate::exit_code::ExitCode;
use crate::export::view::{PauseOrder, SentinelOrder};
use crate::sys::allocator;
use crate::telemetry::TelemetryError;
use crate::{asking, probe, remediation, sensor, telemetry};

/// Carries out one command.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    // The children first: they must not depend on a configuration or an environment.
    if let Some(code) = child(&cli.command) {
        return code;
    }
    let sources = cli.sources(Environment::of_process());
    let socket = config::socket_path(&sources);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let console = &mut Console { out: &mut out, err: &mut err, look: Look::of_process() };
    match cli.command {
        Command::Status(args) => status(&socket, args, console),
        Command::Events(args) => events(&socket, args, console),
        Command::Describe(args) => {
            block_on(client::describe(&socket, &args.volume, args.output.into(), console))
        }
        Command::Probe(args) => block_on(client::probe(&socket, &args.volume, args.output.into(), console)),
        Command::Ack(args) => block_on(client::ack(&socket, &args.volume, args.output.into(), console)),
        Command::Pause(args) => pause(&socket, args, console),
        Command::Resume(args) => {
            block_on(client::resume(&socket, args.whom.volume.as_deref(), args.output.into(), console))
        }
        Command::Remount(args) => remount(&socket, &args, console),
        Command::State(args) => state(&socket, &sources, args.command, console),
        Command::Sentinel(args) => {
            let SentinelCommand::Init(args) = args.command;
            let output = args.output.into();
            block_on(client::init_sentinel(&socket, &order(args), output, console))
        }
        Command::Doctor(args) => doctor(&socket, &sources, args.output.into(), console),
        Command::CheckConfig(_) => check_config(&sources, console),
        Command::Completions(args) => super::completions::print(args.shell, console),
        Command::Man(args) => super::man::run(&args, console),
        Command::Run(_)
        | Command::Worker(_)
        | Command::Act(_)
        | Command::MarkFs(_)
        | Command::Census(_)
        | Command::Consumers(_)
        | Command::Ask(_)
        | Command::Reach(_) => agent(sources, console),
    }
}

/// Carries out what only the agent starts; `None` for what people do.
fn child(command: &Command) -> Option<ExitCode> {
    Some(match command {
        Command::Worker(args) => {
            let (parent, namespace) = (args.parent, args.namespace.clone());
            probe::worker::run(&probe::worker::WorkerArgs { parent, namespace })
        }
        Command::Act(_) => remediation::run_act(),
        Command::MarkFs(args) => sensor::fanotify::run_mark_child(&args.arguments),
        Command::Census(args) => sensor::census::run_census_child(args.parent),
        Command::Reach(args) => {
            let ReachArgs { parent, namespace, network } = args.clone();
            asking::run_reach_child(&asking::ReachPlace { parent, namespace, network })
        }
        Command::Ask(args) => asking::run_ask_child(args.parent, &args.argv),
        Command::Consumers(args) => sensor::consumers::run_consumers_child(args.parent),
        _ => return None,
    })
}

fn status(socket: &Path, args: StatusArgs, console: &mut Console<'_>) -> ExitCode {
    let output = match args.output {
        StatusOutput::Table => Output::Table,
        StatusOutput::Wide => Output::Wide,
        StatusOutput::Json => Output::Json,
        StatusOutput::Yaml => Output::Yaml,
        StatusOutput::Name => Output::Name,
    };
    let request = client::status::StatusRequest { output, watch: args.watch };
    block_on(client::status(socket, request, interrupted(), console))
}

fn events(socket: &Path, args: EventsArgs, console: &mut Console<'_>) -> ExitCode {
    let EventsArgs { volume, follow, limit, after, output } = args;
    let request = client::events::EventsRequest { volume, limit, after, follow, output: output.into() };
    block_on(client::events(socket, &request, interrupted(), console))
}

fn pause(socket: &Path, args: PauseArgs, console: &mut Console<'_>) -> ExitCode {
    let PauseArgs { whom, length, reason, output } = args;
    let order = PauseOrder { seconds: length.map(|length| length.as_secs()), reason };
    block_on(client::pause(socket, whom.volume.as_deref(), &order, output.into(), console))
}

fn remount(socket: &Path, args: &RemountArgs, console: &mut Console<'_>) -> ExitCode {
    let (volume, output) = (&args.volume, args.output.into());
    if args.dry_run {
        block_on(client::preview(socket, volume, output, console))
    } else {
        block_on(client::remount(socket, volume, output, console))
    }
}

fn order(args: SentinelInitArgs) -> SentinelOrder {
    let SentinelInitArgs { volume, content, path, adopt, output: _ } = args;
    SentinelOrder { volume, path, content, adopt }
}

impl From<ReportOutput> for Output {
    fn from(output: ReportOutput) -> Self {
        match output {
            ReportOutput::Text => Self::Table,
            ReportOutput::Json => Self::Json,
            ReportOutput::Yaml => Self::Yaml,
        }
    }
}

/// What is kept is read as it is; what is to be forgotten is forgotten by the agent where one runs.
fn state(socket: &Path, sources: &Sources, command: StateCommand, console: &mut Console<'_>) -> ExitCode {
    let config = match Config::load(sources) {
        Ok(config) => config,
        Err(errors) => {
            console.tell(&errors);
            return ExitCode::Usage;
        }
    };
    let dir = &config.agent.state_dir;
    match command {
        StateCommand::Show(args) => {
            super::state::show(dir, args.volume.as_deref(), args.output.into(), console)
        }
        StateCommand::Export(args) => {
            let output = if args.output == ExportOutput::Yaml { Output::Yaml } else { Output::Json };
            super::state::show(dir, None, output, console)
        }
        StateCommand::Forget(args) => {
            let output = args.output.into();
            block_on(async {
                if tokio::net::UnixStream::connect(socket).await.is_ok() {
                    return client::forget(socket, &args.volume, output, console).await;
                }
                super::state::forget(dir, &args.volume, console)
            })
        }
    }
}

fn check_config(sources: &Sources, console: &mut Console<'_>) -> ExitCode {
    let config = match Config::load(sources) {
        Ok(config) => config,
        Err(errors) => {
            console.tell(&errors);
            return ExitCode::Usage;
        }
    };
    let missing = super::missing(&config);
    if missing.is_empty() {
        let printed = console.print(&config.to_toml()).map(|()| ExitCode::Ok);
        return console.end(printed);
    }
    for (volume, what) in missing {
        console.tell(&format_args!("error: on this node: volume \"{volume}\": {what}"));
    }
    ExitCode::Usage
}

fn agent(sources: Sources, console: &mut Console<'_>) -> ExitCode {
    let config = match Config::load(&sources) {
        Ok(config) => config,
        Err(errors) => {
            console.tell(&errors);
            return ExitCode::Usage;
        }
    };
    // Held until the end: the last lines are written when it goes.
    let _rest = match telemetry::init(config.agent.log_format) {
        Ok(rest) => rest,
        Err(error) => {
            console.tell(&format_args!("error: {error}"));
            return match error {
                TelemetryError::Filter { .. } => ExitCode::Usage,
                TelemetryError::NoWriter { .. } | TelemetryError::AlreadySet => ExitCode::Internal,
            };
        }
    };
    allocator::keep_little();
    block_on(super::run(config, sources))
}

/// Asks the agent; where none answers, tries everything out as an agent would.
fn doctor(socket: &Path, sources: &Sources, output: Output, console: &mut Console<'_>) -> ExitCode {
    let config = match Config::load(sources) {
        Ok(config) => config,
        Err(errors) => {
            console.tell(&errors);
            return ExitCode::Usage;
        }
    };
    for (volume, what) in super::missing(&config) {
        console.tell(&format_args!("warning: volume \"{volume}\" cannot be repaired: {what}"));
    }
    block_on(async {
        if tokio::net::UnixStream::connect(socket).await.is_ok() {
            return client::doctor(socket, output, console).await;
        }
        let report = super::doctor::look(&config).await;
        client::doctor::show_local(&report, output, console)
    })
}

/// One thread for everything that waits: workers must be children of a thread that lives as long as the agent,
/// since the kernel ties their end to that thread (`PR_SET_PDEATHSIG`).
fn block_on(future: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(future);
            // A blocking call that does not return must not keep the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            // Nowhere to say it is no reason to panic.
            let _ = writeln!(io::stderr(), "error: cannot start the event loop: {error}");
            ExitCode::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// A pipe whose reader has left.
    struct Closed;

    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn what_a_repair_would_lack_on_this_node_is_an_error_of_the_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mountie.toml");
        let text = "[agent]\nmount_namespace = \"self\"\n[[volume]]\nname = \"v\"\nmode = \"act\"\n\
                    mountpoint = \"/nonexistent/place\"\n[volume.repair]\nmethod = \"fstab\"\n\
                    environment_file = \"/nonexistent/env\"\n";
        std::fs::write(&file, text).unwrap();
        let words = ["mountie", "check-config", "--config", file.to_str().unwrap()];
        let sources = Cli::try_parse_from(words).unwrap().sources(Environment::default());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code =
            check_config(&sources, &mut Console { out: &mut out, err: &mut err, look: Look::default() });
        let told = String::from_utf8(err).unwrap();
        assert_eq!((code, out.len()), (ExitCode::Usage, 0));
        assert!(told.contains("error: on this node: volume \"v\": method \"fstab\": "), "{told}");
        assert!(told.contains("environment file /nonexistent/env cannot be looked at"), "{told}");
    }

    #[test]
    fn checking_a_configuration_for_a_reader_who_has_left_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mountie.toml");
        let check = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let words = ["mountie", "check-config", "--config", file.to_str().unwrap()];
            let sources = Cli::try_parse_from(words).unwrap().sources(Environment::default());
            let (mut out, mut err) = (Closed, Closed);
            check_config(&sources, &mut Console { out: &mut out, err: &mut err, look: Look::default() })
        };
        assert_eq!(check("[defaults]\ninterval = \"5s\"\n"), ExitCode::Ok);
        assert_eq!(check("[nonsense]\n"), ExitCode::Usage);
    }
}
