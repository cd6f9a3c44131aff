//! What hangs on functions of the kernel, held so that letting go of it holds nobody up.
//!
//! The kernel takes its time to take a program off a function: it waits until no processor can be inside, for a
//! hundred functions one after the other. Whoever closes the last descriptor of a link waits for that, and a process
//! that ends closes all of its own. So each link gets a name in a file system that is in no mount table, and no
//! descriptor: when the agent ends, however it ends, that file system goes, and workers of the kernel do the rest.
//!
//! kernel: `bpf_link_put`, kernel/bpf/syscall.c: the last name of a link hands it to a worker, since 5.7.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use aya::pin::PinError;
use aya::programs::links::FdLink;

use crate::sys::bpf;

/// Says that the kernel is a real-time one. There, before 6.5, the end of a name waits where it must not.
///
/// kernel: `realtime_show`, kernel/ksysfs.c, of the real-time patches.
const REAL_TIME: &str = "/sys/kernel/realtime";

/// Links of one agent; dropping them detaches, in the background where the kernel can.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Root of the file system that holds what is not in `descriptors`.
    place: Option<OwnedFd>,
    descriptors: Vec<FdLink>,
}

impl Links {
    /// None yet. Where there can be no such file system, links are held by descriptors.
    pub(super) fn new() -> Self {
        match place() {
            Ok(place) => Self { place: Some(place), descriptors: Vec::new() },
            Err(error) => {
                tracing::debug!(%error, "Links are held by descriptors: ending takes as long as detaching");
                Self::default()
            }
        }
    }

    /// Holds a link, under the name of its hook where it can have one.
    ///
    /// # Errors
    /// When it can have no name, against all expectation: then it is gone.
    pub(super) fn hold(&mut self, hook: &str, link: FdLink) -> Result<(), PinError> {
        match &self.place {
            Some(place) => link.pin(name(place, hook)).map(drop),
            None => {
                self.descriptors.push(link);
                Ok(())
            }
        }
    }
}

/// Makes the file system, and a name in it to see that it can be reached: procfs may be that of other processes.
fn place() -> io::Result<OwnedFd> {
    if std::fs::read(REAL_TIME).is_ok() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this is a real-time kernel"));
    }
    let place = bpf::detached_file_system()?;
    let tried = name(&place, "tried");
    std::fs::create_dir(&tried)?;
    std::fs::remove_dir(&tried)?;
    Ok(place)
}

/// The file system is nowhere else to be found than behind its descriptor.
fn name(place: &OwnedFd, hook: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{hook}", place.as_raw_fd()))
}
