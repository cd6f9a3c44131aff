//! The codes with which the commands end: part of the interface.

/// How a command ends. Numbers follow `sysexits.h` where it has a word for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitCode {
    /// All is well.
    Ok = 0,
    /// A volume is sick.
    FoundSick = 1,
    /// Wrong usage or configuration.
    Usage = 64,
    /// No sensor can run, or no agent answers.
    Unavailable = 69,
    /// A fault of the agent itself, or of what it stands on (a port in use).
    Internal = 70,
    /// A privilege is missing.
    NoPermission = 77,
    /// A child of the agent's own could not become the program that it was told to be. As shells say it.
    NoProgram = 127,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
