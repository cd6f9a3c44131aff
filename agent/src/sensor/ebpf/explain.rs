//! Errors of loading and attaching in words that help.

use std::error::Error;
use std::io;

use agent_core::errno::Errno;

use super::programs::Attachment;
use crate::kernel::KernelSupport;
use crate::kernel::capability::Capability;

/// Why a program is not attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// This kernel does not have what it hangs on or reads.
    Absent(String),
    /// Anything else.
    Failed(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// What an error of loading or attaching comes to.
#[must_use]
pub(super) fn refusal(
    error: &(dyn Error + 'static),
    attachment: Attachment,
    support: &KernelSupport,
) -> Refusal {
    let reason = explain(error, attachment, support);
    match os_error(error) {
        Some(libc::ENOENT | NO_TRAMPOLINES) => Refusal::Absent(reason),
        Some(libc::EPERM) if has_no_trampolines(attachment, support) => Refusal::Absent(reason),
        _ => Refusal::Failed(reason),
    }
}

/// `ENOTSUPP`: kernel-internal, without a name in any C library; arm64 answers so before 6.x.
const NO_TRAMPOLINES: i32 = 524;

/// The whole chain of an error as one line, then what it means here.
#[must_use]
pub(super) fn explain(
    error: &(dyn Error + 'static),
    attachment: Attachment,
    support: &KernelSupport,
) -> String {
    let Some(number) = os_error(error) else {
        return chain(error);
    };
    let errno = name(number);
    match meaning(number, attachment, support) {
        Some(meaning) => format!("{errno}: {meaning}"),
        None => format!("{errno}: {}", chain(error)),
    }
}

/// The name of an error, also of one that no volume is judged by.
fn name(number: i32) -> String {
    match nix::errno::Errno::from_raw(number) {
        // Kernel-internal numbers have names in the core alone.
        nix::errno::Errno::UnknownErrno => u16::try_from(number)
            .map_or_else(|_| format!("errno {number}"), |number| Errno(number).to_string()),
        known => format!("{known:?}"),
    }
}

fn meaning(number: i32, attachment: Attachment, support: &KernelSupport) -> Option<String> {
    let text = match number {
        libc::EPERM => return Some(refused(attachment, support)),
        NO_TRAMPOLINES => "this kernel has no trampolines",
        libc::ENOENT => "this kernel has no such hook",
        libc::ENOMEM => "no memory: before 5.11 raise RLIMIT_MEMLOCK or grant CAP_SYS_RESOURCE",
        libc::EBUSY => "another program holds this hook",
        libc::ENOSYS if support.seccomp == Some(true) => {
            "a seccomp filter refuses the bpf system call: allow it"
        }
        libc::ENOSYS => "this kernel has no bpf system call",
        // A helper that the kernel does not hand out is an invalid call to its verifier.
        libc::EINVAL if support.lockdown.as_deref() == Some("confidentiality") => {
            "programs may not read kernel memory (lockdown: confidentiality)"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn refused(attachment: Attachment, support: &KernelSupport) -> String {
    if let Some(missing) = support.capabilities.and_then(|set| set.missing_for_programs()) {
        return format!("{} is missing", missing.name());
    }
    if support.user_namespace == Some(true) {
        return "capabilities of a user namespace do not count: run in the first one".to_owned();
    }
    if support.misses(Capability::SysResource) {
        return "no memory may be locked: before 5.11 raise RLIMIT_MEMLOCK or grant CAP_SYS_RESOURCE"
            .to_owned();
    }
    let filter = if support.seccomp == Some(true) { "a seccomp filter, " } else { "" };
    let lockdown = match support.lockdown.as_deref() {
        None | Some("none") => String::new(),
        Some(mode) => format!(" (lockdown: {mode})"),
    };
    match attachment {
        Attachment::FunctionExit
        | Attachment::FunctionEntry
        | Attachment::CallExit
        | Attachment::PlaceExit(_) => {
            format!("trampolines are refused on this kernel{lockdown}")
        }
        Attachment::RawTracepoint | Attachment::RunOnce | Attachment::Iterator => {
            format!("refused by {filter}the kernel or a security policy{lockdown}")
        }
    }
}

/// Whether nobody may hang on functions here, whatever privileges: kernels that are hardened answer so.
fn has_no_trampolines(attachment: Attachment, support: &KernelSupport) -> bool {
    attachment.is_on_function()
        && support.capabilities.is_some_and(|set| set.missing_for_programs().is_none())
        && support.user_namespace != Some(true)
        && !support.misses(Capability::SysResource)
}

/// The number at the bottom of the chain.
fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(number) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(number);
        }
        next = error.source();
    }
    None
}

/// Every link of the chain, once, in one line of bounded length.
fn chain(error: &(dyn Error + 'static)) -> String {
    const LONGEST: usize = 400;
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let link = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.contains(&link) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&link);
        }
        next = error.source();
    }
    // The end of a verifier's log is what says why.
    match text.char_indices().rev().nth(LONGEST) {
        Some((at, _)) => format!("…{}", text.get(at..).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::capability::Capabilities;

    fn support(capabilities: &str, lockdown: Option<&str>) -> KernelSupport {
        KernelSupport {
            release: String::new(),
            capabilities: Capabilities::from_status(&format!("CapEff:\t{capabilities}\n")),
            lockdown: lockdown.map(str::to_owned),
            user_namespace: Some(false),
            seccomp: Some(false),
        }
    }

    #[test]
    fn a_refusal_names_the_missing_capability() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        let text = explain(&error, Attachment::RawTracepoint, &support("0", None));
        assert_eq!(text, "EPERM: CAP_BPF is missing");
    }

    #[test]
    fn a_refusal_with_all_capabilities_names_lockdown() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        let text = explain(&error, Attachment::FunctionExit, &support("200000", Some("integrity")));
        assert_eq!(text, "EPERM: trampolines are refused on this kernel (lockdown: integrity)");
    }

    #[test]
    fn a_refusal_in_a_container_names_what_stands_in_the_way() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        let mut inside = support("200000", None);
        inside.seccomp = Some(true);
        let text = explain(&error, Attachment::RawTracepoint, &inside);
        assert_eq!(text, "EPERM: refused by a seccomp filter, the kernel or a security policy");
        inside.user_namespace = Some(true);
        assert!(explain(&error, Attachment::RawTracepoint, &inside).contains("user namespace"));
        let absent = io::Error::from_raw_os_error(libc::ENOSYS);
        assert!(explain(&absent, Attachment::RawTracepoint, &inside).contains("seccomp"));
    }

    #[test]
    fn a_limit_on_locked_memory_is_told_on_old_kernels_only() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        let mut old = support("200000", None);
        old.release = "5.10.0-46-amd64".to_owned();
        assert!(explain(&error, Attachment::RawTracepoint, &old).contains("RLIMIT_MEMLOCK"));
        old.release = "6.1.0".to_owned();
        assert!(!explain(&error, Attachment::RawTracepoint, &old).contains("RLIMIT_MEMLOCK"));
    }

    #[test]
    fn a_helper_that_lockdown_withholds_is_told_as_lockdown() {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        for attachment in [Attachment::RawTracepoint, Attachment::Iterator] {
            let text = explain(&error, attachment, &support("200000", Some("confidentiality")));
            assert_eq!(text, "EINVAL: programs may not read kernel memory (lockdown: confidentiality)");
        }
        let text = explain(&error, Attachment::Iterator, &support("200000", None));
        assert!(text.starts_with("EINVAL: ") && !text.contains("bpf_task_pt_regs"), "{text}");
    }

    #[test]
    fn what_a_kernel_does_not_have_is_told_from_what_it_refuses() {
        let by = |number, attachment, set| {
            let error = io::Error::from_raw_os_error(number);
            refusal(&error, attachment, &support(set, None))
        };
        let of = |number| by(number, Attachment::FunctionEntry, "200000");
        // A program with all privileges that may hang on no function is on a kernel that has no place for it.
        for absent in [libc::ENOENT, NO_TRAMPOLINES, libc::EPERM] {
            assert!(matches!(of(absent), Refusal::Absent(_)), "{absent}");
        }
        assert!(matches!(by(libc::EPERM, Attachment::FunctionEntry, "0"), Refusal::Failed(_)));
        assert!(matches!(by(libc::EPERM, Attachment::RawTracepoint, "200000"), Refusal::Failed(_)));
        for failed in [libc::EINVAL, libc::EACCES, libc::ENOMEM, libc::EBUSY] {
            assert!(matches!(of(failed), Refusal::Failed(_)), "{failed}");
        }
    }

    #[test]
    fn the_number_without_a_name_has_one() {
        let error = io::Error::from_raw_os_error(524);
        let text = explain(&error, Attachment::FunctionExit, &support("200000", None));
        assert_eq!(text, "ENOTSUPP (524): this kernel has no trampolines");
    }
}
