//! The kernel's own NFS server, exporting a small ext4 on loopback, and the ways in which it lets its clients
//! down. One for the whole machine.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use integration_tests::harness::bench::in_memory;
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::mounts_at;
use integration_tests::harness::process::Background;

use super::tools::{daemon, detach_all, mount, tool, wait_listening};

/// An overlay cannot be exported, and the pseudo-root of NFSv4 would be on it: so a root in memory.
const ROOT: &str = "/srv";
/// What is exported, for NFSv3.
pub(super) const EXPORT: &str = "/srv/exp";
/// The same for NFSv4.
pub(super) const EXPORT4: &str = "/exp";

/// Where the kernel is told about the server.
const CONTROL: &str = "/proc/fs/nfsd";

const OPTIONS: &str = "rw,no_root_squash,no_subtree_check,insecure,sync";

/// The server. Stopped when dropped.
#[derive(Debug)]
pub(super) struct NfsServer {
    /// Held until the server is gone.
    _disk: LoopDevice,
    daemons: Vec<Background>,
}

impl NfsServer {
    /// Starts it, in the case's own mount namespace.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        in_memory(Path::new(ROOT))?;
        fs::create_dir(EXPORT).context("cannot make the export")?;
        let disk = LoopDevice::make_in(directory, "exported", Kind::Ext4)?;
        disk.mount(Path::new(EXPORT), "")?;
        // Loading the module may have mounted it, by a rule of modprobe's.
        if mounts_at(Path::new(CONTROL))?.is_empty() {
            mount("nfsd", "nfsd", Path::new(CONTROL), "")?;
        }
        for place in ["/run/rpc_pipefs", "/var/lib/nfs/nfsdcld"] {
            fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
        }
        mount("rpc_pipefs", "rpc_pipefs", Path::new("/run/rpc_pipefs"), "")?;
        let rpcbind = daemon(directory, "rpcbind", &["-w", "-f"])?;
        wait_listening(111)?;
        // Without a memory of its clients the server would make each open wait for a lease.
        let nfsdcld = daemon(directory, "nfsdcld", &["--foreground"])?;
        let mut server = Self { _disk: disk, daemons: vec![rpcbind, nfsdcld] };
        server.export(1)?;
        server.daemons.push(daemon(directory, "rpc.mountd", &["--foreground"])?);
        server.run(true)?;
        Ok(server)
    }

    /// Exports the directory under this identity. Every handle that was given out under another is stale.
    pub(super) fn export(&self, fsid: u32) -> Result<()> {
        tool("exportfs", &["-ua"])?;
        tool("exportfs", &["-i", "-o", &format!("{OPTIONS},fsid=0,crossmnt"), &format!("*:{ROOT}")])?;
        tool("exportfs", &["-i", "-o", &format!("{OPTIONS},fsid={fsid}"), &format!("*:{EXPORT}")])?;
        tool("exportfs", &["-f"]).map(drop)
    }

    /// Starts or stops serving. Ten seconds is the shortest lease.
    pub(super) fn run(&self, on: bool) -> Result<()> {
        let threads = if on { "4" } else { "0" };
        tool("rpc.nfsd", &["-G", "10", "-L", "10", threads]).map(drop)
    }

    /// Whether it serves.
    pub(super) fn is_running(&self) -> bool {
        let threads = fs::read_to_string(Path::new(CONTROL).join("threads")).unwrap_or_default();
        threads.trim() != "0"
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        let _ = self.run(false);
        let _ = tool("exportfs", &["-ua"]);
        let _ = tool("exportfs", &["-f"]);
        let _ = detach_all(Path::new(EXPORT));
    }
}

/// A rule of the firewall that loses every packet from and to the server, without a word.
pub(super) fn lose_packets(on: bool) -> Result<()> {
    const TABLE: &str = "inet mountie_faults";
    if !on {
        return tool("nft", &[&format!("delete table {TABLE}")]).map(drop);
    }
    let rules = format!(
        "add table {TABLE}; \
         add chain {TABLE} lost {{ type filter hook input priority 0; }}; \
         add rule {TABLE} lost tcp dport 2049 drop; \
         add rule {TABLE} lost tcp sport 2049 drop"
    );
    tool("nft", &[&rules]).map(drop)
}
