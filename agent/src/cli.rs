//! The command line: what can be asked, and a help that teaches. Nothing is carried out here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Environment, Sources};
use crate::exit_code::ExitCode;

mod children;
mod examples;
mod help;
mod unasked;

pub use children::{ActArgs, AskArgs, CensusArgs, ConsumersArgs, MarkFsArgs, ReachArgs, WorkerArgs};
pub use unasked::{CompletionsArgs, ManArgs, Shell};

/// Watches mounts: notices stale, hung, read-only and vanished ones, says so, and repairs them if asked to.
#[derive(Clone, PartialEq, Eq, Debug, Parser)]
#[command(name = "mountie", version, long_about = help::OVERVIEW, after_long_help = help::AFTER)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The agent's unix socket: for run, where to make it; else, where to ask. Default: MOUNTIE_AGENT_SOCKET, or
    /// the configuration's, or /run/mountie/mountie.sock.
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<String>,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum Command {
    /// Run the agent.
    #[command(long_about = help::RUN, after_long_help = examples::RUN)]
    Run(ConfigArgs),
    /// Show every volume and its state.
    #[command(long_about = help::STATUS, after_long_help = examples::STATUS)]
    Status(StatusArgs),
    /// Show what has happened, and follow what happens.
    #[command(long_about = help::EVENTS, after_long_help = examples::EVENTS)]
    Events(EventsArgs),
    /// Show everything known about one volume.
    #[command(long_about = help::DESCRIBE, after_long_help = examples::DESCRIBE)]
    Describe(VolumeArgs),
    /// Look at one volume now.
    #[command(long_about = help::PROBE, after_long_help = examples::PROBE)]
    Probe(VolumeArgs),
    /// Acknowledge that a volume has lost data, or is damaged.
    #[command(long_about = help::ACK, after_long_help = examples::ACK)]
    Ack(VolumeArgs),
    /// Stop the repairs of a volume, or of all, for a while.
    #[command(long_about = help::PAUSE, after_long_help = examples::PAUSE)]
    Pause(PauseArgs),
    /// Let the repairs of a volume, or of all, go on.
    #[command(long_about = help::RESUME, after_long_help = examples::RESUME)]
    Resume(ResumeArgs),
    /// Mount a volume anew, or show what that would do.
    #[command(long_about = help::REMOUNT, after_long_help = examples::REMOUNT)]
    Remount(RemountArgs),
    /// Show, export or forget what is kept across restarts.
    #[command(long_about = help::STATE, after_long_help = examples::STATE)]
    State(StateArgs),
    /// Put a sentinel on a volume.
    #[command(long_about = help::SENTINEL, after_long_help = examples::SENTINEL)]
    Sentinel(SentinelArgs),
    /// Find out what works on this host, and what is lost where it does not.
    #[command(long_about = help::DOCTOR, after_long_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Check a configuration and print what is in effect.
    #[command(long_about = help::CHECK_CONFIG, after_long_help = examples::CHECK_CONFIG)]
    CheckConfig(CheckConfigArgs),
    /// Print what has a shell complete commands, options and volumes.
    #[command(long_about = help::COMPLETIONS, after_long_help = examples::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them.
    #[command(long_about = help::MAN, after_long_help = examples::MAN)]
    Man(ManArgs),
    /// The disposable process that touches a watched path for a probe.
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// The disposable process that carries out one action of a repair.
    #[command(hide = true)]
    Act(ActArgs),
    /// The disposable process that sets a fanotify mark.
    #[command(hide = true)]
    MarkFs(MarkFsArgs),
    /// The disposable process that looks for waiting tasks in procfs.
    #[command(hide = true)]
    Census(CensusArgs),
    /// The disposable process that tries whether a server can be reached, or where a path leads.
    #[command(hide = true)]
    Reach(ReachArgs),
    /// The disposable process that becomes the program of a hook.
    #[command(hide = true)]
    Ask(AskArgs),
    /// The disposable process that looks for holders of what was replaced in procfs.
    #[command(hide = true)]
    Consumers(ConsumersArgs),
}

/// Where the configuration comes from, and what overrides it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Args)]
pub struct ConfigArgs {
    /// The configuration file; must exist. Default: /etc/mountie/config.toml, if it exists.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where HTTP listens: address:port, or "" for nowhere (agent.listen).
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Where state is kept (agent.state_dir).
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,
    /// Whose mounts are watched: self, or a path such as /proc/1/ns/mnt (agent.mount_namespace).
    #[arg(long, value_name = "PATH")]
    pub mount_namespace: Option<String>,
    /// How log lines look: text, json (agent.log_format).
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Kernel programs: auto, fexit, sys_exit, off (kernel.family).
    #[arg(long, value_name = "FAMILY")]
    pub kernel_family: Option<String>,
    /// For volumes that do not set their own: off, observe, dry-run, act (defaults.mode).
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
}

/// `status`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StatusArgs {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = StatusOutput::Table)]
    pub output: StatusOutput,
    /// Show it again after every change, until interrupted.
    #[arg(short, long)]
    pub watch: bool,
}

/// `events`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct EventsArgs {
    /// Only what is about this volume.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: Option<String>,
    /// Go on with what happens, until interrupted; also when the agent is started anew.
    #[arg(short, long)]
    pub follow: bool,
    /// At most so many of those that have happened: the last, with --after the first. Default: all that the agent
    /// remembers; with --follow and without --after 10.
    #[arg(short = 'n', long, value_name = "NUMBER")]
    pub limit: Option<usize>,
    /// Only those after this one: the id of an event, as -o json has it.
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// How `status` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StatusOutput {
    /// For people.
    Table,
    /// With more columns.
    Wide,
    /// For programs.
    Json,
    /// For programs.
    Yaml,
    /// The names of the volumes alone, one a line.
    Name,
}

/// A command about one volume.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct VolumeArgs {
    /// The volume's name, as `mountie status` shows it; bytes that are no text may also stand as they are.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: String,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// One volume, or all of them.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Whom {
    /// The volume's name, as `mountie status` shows it.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: Option<String>,
    /// Every volume of the node, also those that come later.
    #[arg(long)]
    pub all: bool,
}

/// `pause`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct PauseArgs {
    /// What.
    #[command(flatten)]
    pub whom: Whom,
    /// End by itself after this time: 90s, 30m, 2h. Default: until mountie resume.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::config::duration)]
    pub length: Option<Duration>,
    /// Why, for those who find it paused.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// `resume`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ResumeArgs {
    /// What.
    #[command(flatten)]
    pub whom: Whom,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// `remount`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct RemountArgs {
    /// The volume's name, as `mountie status` shows it.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: String,
    /// Only show the plan, step by step, with what each touches.
    #[arg(long)]
    pub dry_run: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// `state`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StateArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: StateCommand,
    /// The configuration file, which names the state directory.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The state directory (agent.state_dir).
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<String>,
}

/// What to do with what is kept.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum StateCommand {
    /// Show what is kept, of one volume or of all. Needs no agent.
    #[command(after_long_help = examples::STATE_SHOW)]
    Show(StateShowArgs),
    /// Keep nothing of a volume any more; it is watched on as if it were new.
    #[command(after_long_help = examples::STATE_FORGET)]
    Forget(StateForgetArgs),
    /// Print everything for programs. Needs no agent.
    #[command(after_long_help = examples::STATE_EXPORT)]
    Export(StateExportArgs),
}

/// `state show`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StateShowArgs {
    /// The volume's name. Default: all.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// `state forget`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StateForgetArgs {
    /// The volume's name.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: String,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// `state export`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StateExportArgs {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ExportOutput::Json)]
    pub output: ExportOutput,
}

/// How `state export` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportOutput {
    /// The files' own shape.
    Json,
    /// The same.
    Yaml,
}

/// `sentinel`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct SentinelArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SentinelCommand,
}

/// What to do with a sentinel.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum SentinelCommand {
    /// Have the agent write one, and print the line for the configuration.
    #[command(long_about = help::SENTINEL, after_long_help = examples::SENTINEL_INIT)]
    Init(SentinelInitArgs),
}

/// `sentinel init`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct SentinelInitArgs {
    /// The volume's name, as `mountie status` shows it.
    #[arg(value_parser = OsStringValueParser::new().map(volume_name))]
    pub volume: String,
    /// What it shall contain. Default: what the configuration says, else a random id.
    #[arg(long, value_name = "TEXT")]
    pub content: Option<String>,
    /// The file, below the volume's root. Default: what the configuration says, else .mountie.
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// Take a file that is there already, with whatever it contains.
    #[arg(long)]
    pub adopt: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
}

/// `doctor`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct DoctorArgs {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Text)]
    pub output: ReportOutput,
    /// The configuration to look at.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// How reports are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReportOutput {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs.
    Yaml,
}

/// `check-config`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct CheckConfigArgs {
    /// The file to check; must exist. Default: as for run.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub file: Option<PathBuf>,
    /// What overrides it.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// A name as it was typed; bytes that are no text as `mountie status` shows them.
fn volume_name(typed: OsString) -> String {
    typed.into_string().unwrap_or_else(|raw| agent_core::path::escape(raw.as_bytes()))
}

/// Reads the process's arguments.
///
/// # Errors
/// Wrong usage, and also `--help` and `--version`: print it, and end with [`exit_code`].
pub fn parse() -> Result<Cli, clap::Error> {
    Cli::try_parse()
}

/// How to end after what [`parse`] returned. clap's own code for wrong usage is 2; ours is 64.
#[must_use]
pub fn exit_code(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::Ok,
        _ => ExitCode::Usage,
    }
}

impl Cli {
    /// Where this command's configuration comes from.
    #[must_use]
    pub fn sources(&self, environment: Environment) -> Sources {
        let mut none = ConfigArgs::default();
        if let Command::State(state) = &self.command {
            none.config.clone_from(&state.config);
            none.state_dir.clone_from(&state.state_dir);
        }
        let (config, file) = match &self.command {
            Command::Run(config) => (config, None),
            Command::Doctor(doctor) => (&doctor.config, None),
            Command::CheckConfig(check) => (&check.config, check.file.as_ref()),
            Command::Status(_)
            | Command::Events(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Describe(_)
            | Command::Probe(_)
            | Command::Ack(_)
            | Command::Sentinel(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Remount(_)
            | Command::State(_)
            | Command::Worker(_)
            | Command::Act(_)
            | Command::MarkFs(_)
            | Command::Census(_)
            | Command::Consumers(_)
            | Command::Ask(_)
            | Command::Reach(_) => (&none, None),
        };
        let flags = [
            ("--socket", &self.socket),
            ("--listen", &config.listen),
            ("--state-dir", &config.state_dir),
            ("--mount-namespace", &config.mount_namespace),
            ("--log-format", &config.log_format),
            ("--kernel-family", &config.kernel_family),
            ("--mode", &config.mode),
        ];
        let flags: BTreeMap<_, _> =
            flags.into_iter().filter_map(|(flag, value)| Some((flag, value.clone()?))).collect();
        Sources { file: file.or(config.config.as_ref()).cloned(), environment, flags }
    }

    /// Where commands reach the agent: flag, variable, configuration, default.
    #[must_use]
    pub fn socket_path(&self, environment: Environment) -> PathBuf {
        crate::config::socket_path(&self.sources(environment))
    }
}

#[cfg(test)]
mod tests;
