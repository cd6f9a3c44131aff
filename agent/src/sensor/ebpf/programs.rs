//! The table of kernel programs: hook, needs, what is lost without it, what takes its place.
//! The loader walks it, `doctor` prints it, metrics export it.

use agent_common::names;

use super::layout::Group;

/// Programs that do the same work by other means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProgramFamily {
    /// Used whatever the family.
    Always,
    /// Ends of file functions, through trampolines.
    Fexit,
    /// The end of every system call.
    SysExit,
}

impl ProgramFamily {
    /// The bounded label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Fexit => "fexit",
            Self::SysExit => "sys_exit",
        }
    }
}

/// How a program gets to its hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// A raw tracepoint.
    RawTracepoint,
    /// The end of a kernel function.
    FunctionExit,
    /// Nowhere: the agent runs it once.
    RunOnce,
}

/// One program.
#[derive(Debug)]
pub struct ProgramRow {
    /// Its name in the object.
    pub name: &'static str,
    /// Its family.
    pub family: ProgramFamily,
    /// How it is attached.
    pub attachment: Attachment,
    /// Tracepoint or function.
    pub hook: &'static str,
    /// Fields of kernel structures that it reads.
    pub needs: &'static [Group],
    /// What nobody sees without it.
    pub lost_without: &'static str,
    /// What stands in for it.
    pub fallback: &'static str,
}

const ON_FILES: &[Group] = &[Group::Task, Group::File];
const ON_NAMES: &[Group] = &[Group::Task, Group::File, Group::Descriptor, Group::Name, Group::Filename];

const fn at_exit(name: &'static str, needs: &'static [Group], lost_without: &'static str) -> ProgramRow {
    ProgramRow {
        name,
        family: ProgramFamily::Fexit,
        attachment: Attachment::FunctionExit,
        hook: name,
        needs,
        lost_without,
        fallback: "sys_exit",
    }
}

/// Every program, in the order in which they are attached.
pub const PROGRAMS: &[ProgramRow] = &[
    ProgramRow {
        name: names::PROGRAM_WHOAMI,
        family: ProgramFamily::Always,
        attachment: Attachment::RunOnce,
        hook: "BPF_PROG_TEST_RUN",
        needs: &[],
        lost_without: "in a nested process id namespace the agent's own failed calls are counted as others'",
        fallback: "the process id as the agent sees it",
    },
    ProgramRow {
        name: names::PROGRAM_WRITEBACK,
        family: ProgramFamily::Always,
        attachment: Attachment::RawTracepoint,
        hook: "filemap_set_wb_err",
        needs: &[Group::Task, Group::Mapping],
        lost_without: "write-back errors that no program asks about",
        fallback: "fanotify's file-system errors, and fsync by the program itself",
    },
    at_exit(names::PROGRAM_READ, ON_FILES, "failed reads"),
    at_exit(names::PROGRAM_WRITE, ON_FILES, "failed writes"),
    at_exit(names::PROGRAM_FSYNC, ON_FILES, "failed fsync"),
    at_exit(names::PROGRAM_LIST, ON_FILES, "failed directory reads"),
    at_exit(names::PROGRAM_OPEN, ON_FILES, "failed opens, attributed exactly"),
    at_exit(names::PROGRAM_GETATTR, ON_FILES, "failed reads of attributes"),
    at_exit(names::PROGRAM_LOOKUP, ON_NAMES, "names that cannot be looked up (stat, statfs, chdir, …)"),
    at_exit(names::PROGRAM_FILP_OPEN, ON_NAMES, "names that cannot be looked up while opening"),
    ProgramRow {
        name: names::PROGRAM_SYS_EXIT,
        family: ProgramFamily::SysExit,
        attachment: Attachment::RawTracepoint,
        hook: "sys_exit",
        needs: &[Group::Task, Group::Registers, Group::File, Group::Descriptor, Group::Name],
        lost_without: "all failed system calls on files and names",
        fallback: "probes only",
    },
];
