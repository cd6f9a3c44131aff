//! General tracing tools that count the same failures: what people use today.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::process::Background;
use integration_tests::harness::wait::wait_for_some;

/// Starting includes compiling and verifying, on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// One tool with its programme.
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// For bpftrace. The last probe tells that all before it are attached.
    script: &'static str,
}

/// Failing calls by number and errno, on the end of every system call; and failing reads, writes, opens and looks
/// by superblock, on the same functions as the agent's family.
pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "bpftrace sys_exit",
        script: "tracepoint:raw_syscalls:sys_exit /args->ret < 0/ { @[args->id, args->ret] = count(); } \
                 interval:s:1 { printf(\"ready\\n\"); }",
    },
    Peer {
        name: "bpftrace kretfunc",
        script: "kretfunc:vfs_read /(int64)retval < 0/ { @[args->file->f_inode->i_sb->s_dev, retval] = count(); } \
                 kretfunc:vfs_write /(int64)retval < 0/ { @[args->file->f_inode->i_sb->s_dev, retval] = count(); } \
                 kretfunc:vfs_open /retval < 0/ { @[args->path->dentry->d_sb->s_dev, retval] = count(); } \
                 kretfunc:vfs_getattr /retval < 0/ { @[args->path->dentry->d_sb->s_dev, retval] = count(); } \
                 interval:s:1 { printf(\"ready\\n\"); }",
    },
];

impl Peer {
    /// Starts it and waits until it is attached.
    pub(super) fn start(&self, bench: &Bench) -> Result<Background> {
        let path = bench.path(format!("{}.output", self.name.replace(' ', "-")));
        let output = File::create(&path).context("cannot make the output file")?;
        let child = Command::new("bpftrace")
            .args(["-B", "line", "-e", self.script])
            .env("BPFTRACE_MAX_STRLEN", "64")
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot duplicate the output file")?)
            .stderr(output)
            .spawn()
            .context("cannot start bpftrace")?;
        let mut running = Background(child);
        wait_for_some("bpftrace is attached", PATIENCE, || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if let Some(status) = running.ended()? {
                anyhow::bail!("bpftrace ended with {status}: {}", text.trim());
            }
            Ok(text.contains("ready").then_some(()))
        })?;
        Ok(running)
    }
}
