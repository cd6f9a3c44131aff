//! What a case needs of the machine, decided by looking at the machine and never by its version.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// One thing a case needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// User 0, and permission to mount.
    Root,
    /// `/dev/fuse`.
    Fuse,
    /// `/dev/loop-control`.
    Loop,
    /// A program in the search path.
    Tool(&'static str),
    /// A file-system type of the running kernel.
    FileSystem(&'static str),
    /// A module of the running kernel, which is loaded. Only for machines that belong to the tests.
    Module(&'static str),
    /// Permission to load kernel programs, and type information to find fields with.
    Bpf,
    /// No other case beside it: two agents would be in each other's way.
    Alone,
}

/// `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`.
///
/// kernel: include/uapi/linux/capability.h; the last two since 5.8.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

impl Need {
    /// Why the need is not met here; `None` when it is.
    #[must_use]
    pub fn unmet(self) -> Option<String> {
        match self {
            Self::Root => (!has_capability(CAP_SYS_ADMIN)).then(|| "needs root that may mount".to_owned()),
            Self::Fuse => cannot_open("/dev/fuse"),
            Self::Loop => cannot_open("/dev/loop-control"),
            Self::Tool(tool) => find_tool(tool).is_none().then(|| format!("needs the program {tool}")),
            Self::FileSystem(fstype) => {
                (!kernel_knows(fstype)).then(|| format!("needs a kernel with the file system {fstype}"))
            }
            Self::Module(name) => (!can_load(name)).then(|| format!("needs a kernel with the module {name}")),
            Self::Bpf => bpf_unmet(),
            // The runner sees to it.
            Self::Alone => None,
        }
    }
}

/// The first need that is not met.
#[must_use]
pub fn first_unmet(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| need.unmet())
}

/// Where a program is. Mount helpers are often outside of a user's search path.
#[must_use]
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"])
        .map(|directory| PathBuf::from(directory).join(name))
        .find(|candidate| candidate.is_file())
}

fn cannot_open(device: &str) -> Option<String> {
    let opened = fs::OpenOptions::new().read(true).write(true).open(device);
    opened.err().map(|error| format!("needs {device}: {error}"))
}

fn kernel_knows(fstype: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(fstype))
}

fn can_load(module: &str) -> bool {
    Command::new("modprobe").arg(module).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    bits & (1 << number) != 0
}

fn bpf_unmet() -> Option<String> {
    let permitted = has_capability(CAP_SYS_ADMIN) || (has_capability(CAP_BPF) && has_capability(CAP_PERFMON));
    if !permitted {
        return Some("needs permission to load kernel programs".to_owned());
    }
    let types = fs::metadata("/sys/kernel/btf/vmlinux").map(|found| found.len()).unwrap_or(0);
    (types == 0).then(|| "needs the kernel's type information (BTF)".to_owned())
}
