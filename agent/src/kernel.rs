//! Facts about this host's kernel, gathered once: what it is, what this process may do, how its structures lie.
//!
//! Versions are for reports. Decisions are made by trying.

pub mod btf;
pub mod capability;
pub mod namespace;
pub mod trampolines;

use std::path::Path;

use capability::{Capabilities, Capability};

/// What is known about the kernel and about this process's standing with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSupport {
    /// As `uname -r` prints it; empty when unknown.
    pub release: String,
    /// Effective capabilities of this process; `None` when they cannot be read.
    pub capabilities: Option<Capabilities>,
    /// The lockdown mode in force (`none`, `integrity`, `confidentiality`); `None` when the kernel has none or
    /// does not show it.
    pub lockdown: Option<String>,
    /// Whether this process is in a user namespace, where capabilities count for little; `None` when unknown.
    pub user_namespace: Option<bool>,
    /// Whether a seccomp filter decides about its system calls; `None` when unknown.
    pub seccomp: Option<bool>,
}

impl KernelSupport {
    /// Looks at the running kernel. What cannot be read is left out.
    #[must_use]
    pub fn gather() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").ok();
        Self {
            release: nix::sys::utsname::uname()
                .map(|names| names.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            capabilities: status.as_deref().and_then(Capabilities::from_status),
            lockdown: lockdown_mode(Path::new("/sys/kernel/security/lockdown")),
            user_namespace: std::fs::read_to_string("/proc/self/uid_map").ok().map(|map| !is_identity(&map)),
            seccomp: status.as_deref().and_then(has_filter),
        }
    }

    /// Whether a capability is not held, nothing stands in for it, and this kernel asks for it.
    #[must_use]
    pub fn misses(&self, capability: Capability) -> bool {
        let Some(held) = self.capabilities else { return false };
        let stands_in = match capability {
            Capability::Bpf | Capability::Perfmon => held.has(Capability::SysAdmin),
            // The only version that decides: nothing else tells how memory of maps is accounted before it is
            // used up.
            Capability::SysResource => !self.accounts_by_limit(),
            Capability::DacReadSearch | Capability::SysPtrace | Capability::SysAdmin => false,
        };
        !held.has(capability) && !stands_in
    }

    /// Whether maps count against the limit on locked memory.
    ///
    /// kernel: `bpf_map_charge_memlock`, kernel/bpf/syscall.c, until 5.10; by memory cgroup since 5.11.
    fn accounts_by_limit(&self) -> bool {
        self.version().is_some_and(|version| version < (5, 11))
    }

    /// Series of the release: major and minor.
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut numbers =
            self.release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
        numbers.next().zip(numbers.next())
    }
}

/// Whether every user is himself: the map of the first user namespace.
///
/// kernel: `user_namespaces(7)`; kernel/user_namespace.c, since 3.8.
fn is_identity(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether the status of a process tells of a seccomp filter (mode 2).
///
/// kernel: `proc_pid_status`, fs/proc/array.c, since 3.8.
fn has_filter(status: &str) -> Option<bool> {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() == "2")
}

/// The word in brackets of the lockdown file.
///
/// kernel: `lockdown_read`, security/lockdown/lockdown.c, since 5.4.
fn lockdown_mode(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let (_, rest) = text.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    Some(mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_brackets_is_the_one_in_force() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lockdown");
        std::fs::write(&file, "none [integrity] confidentiality\n").unwrap();
        assert_eq!(lockdown_mode(&file).as_deref(), Some("integrity"));
        assert_eq!(lockdown_mode(&directory.path().join("absent")), None);
    }

    #[test]
    fn a_capability_is_missed_only_where_it_is_needed() {
        let support = |release: &str, held: &str| KernelSupport {
            release: release.to_owned(),
            capabilities: Capabilities::from_status(&format!("CapEff:\t{held}\n")),
            lockdown: None,
            user_namespace: None,
            seccomp: None,
        };
        let missed = |support: &KernelSupport| -> Vec<Capability> {
            Capability::ALL.into_iter().filter(|capability| support.misses(*capability)).collect()
        };
        // CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH.
        let admin = "0000000000280004";
        assert_eq!(missed(&support("6.18.0-x", admin)), []);
        assert_eq!(missed(&support("5.11.0", admin)), []);
        assert_eq!(missed(&support("5.10.0-46-amd64", admin)), [Capability::SysResource]);
        // CAP_BPF alone.
        let bpf =
            [Capability::DacReadSearch, Capability::SysPtrace, Capability::SysAdmin, Capability::Perfmon];
        assert_eq!(missed(&support("6.18.0", "0000008000000000")), bpf);
    }

    #[test]
    fn user_namespaces_and_filters_are_seen() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0     100000      65536\n") && !is_identity(""));
        assert_eq!(has_filter("Name:\tx\nSeccomp:\t2\n"), Some(true));
        assert_eq!(has_filter("Seccomp:\t0\nSeccomp_filters:\t0\n"), Some(false));
        assert_eq!(has_filter("Name:\tx\n"), None);
    }

    #[test]
    fn this_kernel_has_a_release_and_capabilities() {
        let support = KernelSupport::gather();
        assert!(!support.release.is_empty());
        assert!(support.capabilities.is_some());
    }
}
