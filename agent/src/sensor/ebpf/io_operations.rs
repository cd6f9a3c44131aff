//! The table of io_uring operations that can fail because a file system does, and their kinds.
//!
//! Left out: operations on names (a completion does not tell which), sockets, and those without a file. No other
//! program counts them: those at system calls see the call that hands requests in, which does not fail.

use agent_common::settings::op;

/// Numbers and kinds: READV, WRITEV, FSYNC, READ_FIXED, WRITE_FIXED, SYNC_FILE_RANGE, FALLOCATE, READ, WRITE, FADVISE,
/// SPLICE, FSETXATTR, FGETXATTR, READ_MULTISHOT, FTRUNCATE, READV_FIXED, WRITEV_FIXED.
///
/// kernel: `enum io_uring_op`, include/uapi/linux/io_uring.h; numbers never change.
pub(super) const OPERATIONS: &[(u32, u8)] = &[
    (1, op::READ),
    (2, op::WRITE),
    (3, op::SYNC),
    (4, op::READ),
    (5, op::WRITE),
    (8, op::SYNC),
    (17, op::WRITE),
    (22, op::READ),
    (23, op::WRITE),
    (24, op::OTHER),
    (30, op::WRITE),
    (41, op::CHANGE),
    (43, op::STAT),
    (49, op::READ),
    (55, op::CHANGE),
    (58, op::READ),
    (59, op::WRITE),
];

#[cfg(test)]
mod tests {
    use agent_common::settings::IO_ROWS;

    use super::*;

    #[test]
    fn numbers_are_sorted_and_in_the_map() {
        assert!(OPERATIONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(OPERATIONS.iter().all(|(number, _)| *number < IO_ROWS));
    }
}
