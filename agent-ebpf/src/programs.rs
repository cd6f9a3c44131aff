//! The programs, one family of hooks in a file.

mod calls;
mod fexit;
mod sys_exit;
mod whoami;
mod writeback;
