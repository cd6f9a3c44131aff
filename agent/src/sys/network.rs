//! Network namespaces.

use agent_core::path::BytePath;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const OWN: &[u8] = b"/proc/self/ns/net";

/// Makes another network namespace this thread's own. Where it is already, nothing is asked of the kernel that needs a
/// privilege.
///
/// kernel: `netns_install`, net/core/net_namespace.c, since 3.0.
pub fn enter(path: &BytePath) -> Result<()> {
    let namespace = rustix::fs::open(path.as_bytes(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (own, other) = (rustix::fs::stat(OWN)?, rustix::fs::fstat(&namespace)?);
    if (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino) {
        return Ok(());
    }
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}
