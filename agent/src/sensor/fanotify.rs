//! fanotify: file-system errors and mount events.
//!
//! Two groups, because one group cannot report both kinds: [`FsErrors`] (marks per superblock, since 5.16, and
//! in some older distribution kernels) and [`MountEvents`] (one mark on the mount namespace, since 6.15). Both
//! are tried, never decided by version; without them the agent loses time, not facts: the mount table is polled,
//! and volumes are probed.
//!
//! * [`decode`] understands what is read; `group` has the calls and the numbers of the flags;
//! * [`mark`] is what the agent and its child say to each other when a mark is set, [`mark_child`] the child;
//! * `ledger` knows which superblock an event is about; [`support`] which types are worth asking.

pub mod decode;
pub mod fs_errors;
mod group;
mod ledger;
pub mod mark;
pub mod mark_child;
pub mod mount_events;
pub mod support;

pub use self::fs_errors::{FsErrors, Settings};
pub use self::mark::{MARK_SUBCOMMAND, MarkRefused, MarkStep};
pub use self::mark_child::run_mark_child;
pub use self::mount_events::MountEvents;
pub use self::support::may_report;
