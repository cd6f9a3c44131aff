//! The system calls that the agent makes itself, behind safe functions.

pub mod allocator;
pub mod bpf;
pub mod btrfs;
pub mod clock;
pub mod descriptors;
pub mod device_name;
pub mod direct_read;
pub mod environment;
pub mod fs_uuid;
pub mod fuse_control;
pub mod look;
pub mod mount;
pub mod mount_attributes;
pub mod mount_exactly;
pub mod mount_limit;
pub mod mount_table;
pub mod mountinfo;
pub mod namespace_owner;
pub mod namespaces;
pub mod network;
pub mod parent_death;
pub mod peer;
pub mod process_group;
pub mod procfs_child;
pub mod sentinel;
pub mod statmount;
