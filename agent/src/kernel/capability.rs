//! Capabilities of this process: which one is missing when the kernel says no.

/// A capability that some part of the agent needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Capability {
    /// Reading what permission bits refuse.
    DacReadSearch,
    /// Looking into other processes.
    SysPtrace,
    /// Mounting, entering namespaces, fanotify marks.
    SysAdmin,
    /// Raising limits; only wanted before 5.11.
    SysResource,
    /// Programs that read kernel memory.
    Perfmon,
    /// Maps and programs.
    Bpf,
}

impl Capability {
    /// Every capability that is asked for.
    pub const ALL: [Self; 6] =
        [Self::DacReadSearch, Self::SysPtrace, Self::SysAdmin, Self::SysResource, Self::Perfmon, Self::Bpf];

    /// As documents and tools write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }

    /// The bit.
    ///
    /// kernel: include/uapi/linux/capability.h; `CAP_PERFMON` and `CAP_BPF` since 5.8.
    const fn bit(self) -> u32 {
        match self {
            Self::DacReadSearch => 2,
            Self::SysPtrace => 19,
            Self::SysAdmin => 21,
            Self::SysResource => 24,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The effective set, from the text of `/proc/<pid>/status`.
    #[must_use]
    pub fn from_status(status: &str) -> Option<Self> {
        let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(digits.trim(), 16).ok().map(Self)
    }

    /// Whether the set holds one.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 >> capability.bit() & 1 == 1
    }

    /// What the agent may want and does not have.
    pub fn missing(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |capability| !self.has(*capability))
    }

    /// The first one that is missing for kernel programs. `CAP_SYS_ADMIN` stands in for both.
    #[must_use]
    pub const fn missing_for_programs(self) -> Option<Capability> {
        if self.has(Capability::SysAdmin) {
            None
        } else if !self.has(Capability::Bpf) {
            Some(Capability::Bpf)
        } else if !self.has(Capability::Perfmon) {
            Some(Capability::Perfmon)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_line_is_read() {
        let set = Capabilities::from_status("Name:\tx\nCapPrm:\t0\nCapEff:\t000000c000000000\n").unwrap();
        assert!(set.has(Capability::Bpf) && set.has(Capability::Perfmon) && !set.has(Capability::SysAdmin));
        assert_eq!(set.missing_for_programs(), None);
        assert_eq!(set.missing().count(), 4);
        assert_eq!(Capabilities::from_status("CapEff:\tzz\n"), None);
    }

    #[test]
    fn the_one_that_is_missing_is_named() {
        let only_bpf = Capabilities::from_status("CapEff:\t0000008000000000\n").unwrap();
        assert_eq!(only_bpf.missing_for_programs(), Some(Capability::Perfmon));
        let none = Capabilities::from_status("CapEff:\t0\n").unwrap();
        assert_eq!(none.missing_for_programs(), Some(Capability::Bpf));
        let admin = Capabilities::from_status("CapEff:\t200000\n").unwrap();
        assert_eq!(admin.missing_for_programs(), None);
    }
}
