//! Who is at the other end of the agent's socket.

use std::io::Read as _;

/// The name of a process, escaped; empty when there is none any more, or it is in another id namespace.
///
/// kernel: `comm_show`, fs/proc/base.c, since 2.6.33: at most 16 bytes, of the process's own choice.
#[must_use]
pub fn name_of_process(pid: u32) -> String {
    let mut name = Vec::new();
    let read = std::fs::File::open(format!("/proc/{pid}/comm"))
        .and_then(|file| file.take(64).read_to_end(&mut name));
    match read {
        Ok(_) => agent_core::path::escape(name.trim_ascii_end()),
        Err(_) => String::new(),
    }
}

/// The user whom this process acts for.
#[must_use]
pub fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_and_no_process_has_none() {
        assert!(!name_of_process(std::process::id()).is_empty());
        assert_eq!(name_of_process(u32::MAX), "");
    }
}
