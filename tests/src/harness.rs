//! The bench, part by part. Nothing here knows a case by name.

pub mod agent;
pub mod autofs;
pub mod bench;
pub mod bindfs;
pub mod case;
pub mod container;
pub mod fleet;
pub mod fuse_fs;
pub mod http;
pub mod json;
pub mod loop_dev;
pub mod matrix;
pub mod mnt_ns;
pub mod needs;
pub mod process;
pub mod reader;
pub mod runner;
pub mod scrape;
pub mod tally;
pub mod wait;
pub mod watcher;
pub mod without_bpf;
pub mod words;
