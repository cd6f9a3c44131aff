//! The commands that ask nobody: completions and manual pages are made of the definition of the command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `completions`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct CompletionsArgs {
    /// For which shell.
    pub shell: Shell,
}

/// The shells that can complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

impl Shell {
    /// The shell's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }
}

/// `man`
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ManArgs {
    /// The command whose page is printed, such as status, or state show. Default: mountie itself.
    #[arg(conflicts_with = "dir")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
