//! What the agent's own children are started with. Nobody else starts them: they are in no help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// `worker`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct WorkerArgs {
    /// The agent's process id: a worker ends with its agent.
    #[arg(long, value_name = "PID")]
    pub parent: u32,
    /// The mount namespace to enter.
    #[arg(long, value_name = "PATH")]
    pub namespace: Option<PathBuf>,
}

/// `act`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ActArgs {
    /// The mount namespace to enter.
    #[arg(long, value_name = "PATH")]
    pub namespace: Option<PathBuf>,
}

/// `mark-fs`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct MarkFsArgs {
    /// Everything after the command's name, as the parent passes it: read by the child itself.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `census`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct CensusArgs {
    /// The agent's process id: the child ends with its agent.
    #[arg(long, value_name = "PID")]
    pub parent: u32,
}

/// `reach`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ReachArgs {
    /// The agent's process id: the child ends with its agent.
    #[arg(long, value_name = "PID")]
    pub parent: u32,
    /// The mount namespace to enter.
    #[arg(long, value_name = "PATH")]
    pub namespace: Option<PathBuf>,
    /// The network namespace to enter.
    #[arg(long, value_name = "PATH")]
    pub network: Option<PathBuf>,
}

/// `ask`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct AskArgs {
    /// The agent's process id: the program ends with its agent.
    #[arg(long, value_name = "PID")]
    pub parent: u32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub argv: Vec<OsString>,
}

/// `consumers`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ConsumersArgs {
    /// The agent's process id: the child ends with its agent.
    #[arg(long, value_name = "PID")]
    pub parent: u32,
}
