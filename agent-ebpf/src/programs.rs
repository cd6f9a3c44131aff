//! The programs, one family of hooks in a file.

mod aio;
mod block;
mod blocked;
pub mod calls;
mod fexit;
mod fexit_notes;
mod file_system;
mod fuse;
mod io_uring;
pub mod names;
mod sigbus;
mod sys_exit;
mod whoami;
mod writeback;
