//! Facts about this host's kernel, gathered once: what it is, what this process may do, how its structures lie.
//!
//! Versions are for reports. Decisions are made by trying.

pub mod btf;
pub mod capability;
pub mod namespace;

use std::path::Path;

use capability::Capabilities;

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
}

impl KernelSupport {
    /// Looks at the running kernel. What cannot be read is left out.
    #[must_use]
    pub fn gather() -> Self {
        Self {
            release: nix::sys::utsname::uname()
                .map(|names| names.release().to_string_lossy().into_owned())
                .unwrap_or_default(),
            capabilities: std::fs::read_to_string("/proc/self/status")
                .ok()
                .and_then(|status| Capabilities::from_status(&status)),
            lockdown: lockdown_mode(Path::new("/sys/kernel/security/lockdown")),
        }
    }
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
    fn this_kernel_has_a_release_and_capabilities() {
        let support = KernelSupport::gather();
        assert!(!support.release.is_empty());
        assert!(support.capabilities.is_some());
    }
}
