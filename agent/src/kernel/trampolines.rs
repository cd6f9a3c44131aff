//! Whether programs may hang on functions of the kernel without danger to the whole node.
//!
//! Letting go of such a program waits until every task has been scheduled once. Before 6.9 that wait can be for ever
//! when the program goes with a process that is killed because process 1 of its process id namespace ends: the
//! kernel then waits for process 1, which waits for the process, which waits for the kernel. Nothing that hangs
//! on functions can be attached or detached on that node any more until it is started anew.
//!
//! kernel: `rcu_tasks_postscan`, kernel/rcu/tasks.h, and `zap_pid_ns_processes`, kernel/pid_namespace.c, until 6.9.

/// The first kernel without the danger. It cannot be found out by trying.
const SAFE: (u32, u32) = (6, 9);

/// Why nothing should hang on functions here; `None`: it may.
#[must_use]
pub fn danger(version: (u32, u32), in_first_process_namespace: Option<bool>) -> Option<&'static str> {
    let is_safe = version >= SAFE || in_first_process_namespace == Some(true);
    (!is_safe).then_some(
        "before 6.9 a program on a function can hang the kernel when a container ends: run with the host's \
         processes (hostPID)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_kernels_and_only_nested_agents_are_in_danger() {
        assert!(danger((6, 1), Some(false)).is_some() && danger((5, 10), None).is_some());
        assert!(danger((6, 1), Some(true)).is_none() && danger((6, 9), Some(false)).is_none());
        assert!(danger((7, 3), None).is_none());
    }
}
