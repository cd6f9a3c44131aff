//! (Test only.) A FUSE file system whose daemon takes every request and answers none.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::mount::MsFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// kernel: `FUSE_MIN_READ_BUFFER`, include/uapi/linux/fuse.h.
const READ_BUFFER: usize = 64 * 1024;

/// The daemon. When it is dropped its connection ends, and with it every call that waits.
pub(in crate::probe) struct HungFuse {
    pub(in crate::probe) mountpoint: PathBuf,
    stop: Arc<AtomicBool>,
    daemon: Option<JoinHandle<()>>,
}

impl HungFuse {
    pub(in crate::probe) fn mount(target: PathBuf) -> Self {
        Self::mount_of(0, target)
    }

    /// One that belongs to a user, who alone may look at it: `allow_other` is not set.
    pub(in crate::probe) fn mount_of(user: u32, target: PathBuf) -> Self {
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!("fd={},rootmode=40755,user_id={user},group_id=0", device.as_raw_fd());
        let mountpoint = super::mount("fuse", target, MsFlags::empty(), &data);
        greet(&device);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let daemon = std::thread::spawn(move || swallow(&device, &seen));
        Self { mountpoint, stop, daemon: Some(daemon) }
    }
}

impl Drop for HungFuse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.daemon.take().unwrap().join().unwrap();
    }
}

/// Answers the first request, `FUSE_INIT`, without which the kernel sends no other.
fn greet(mut device: &File) {
    let mut request = vec![0; READ_BUFFER];
    let length = device.read(&mut request).unwrap();
    assert!(length >= 40 && request[4..8] == 26_u32.to_le_bytes(), "not FUSE_INIT");
    // `fuse_out_header` and `fuse_init_out`.
    let mut answer = Vec::new();
    answer.extend_from_slice(&80_u32.to_le_bytes());
    answer.extend_from_slice(&0_i32.to_le_bytes());
    answer.extend_from_slice(&request[8..16]);
    for number in [7_u32, 31, 4096, 0, 0, 4096, 1] {
        answer.extend_from_slice(&number.to_le_bytes());
    }
    answer.resize(80, 0);
    assert_eq!(device.write(&answer).unwrap(), 80);
}

/// A request that was read cannot be called off, not even by SIGKILL of the caller.
fn swallow(mut device: &File, stop: &AtomicBool) {
    let mut request = vec![0; READ_BUFFER];
    while !stop.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::from(20_u8)).unwrap() > 0 {
            // ENODEV after the mount is gone; nothing is left to swallow then.
            let _ = device.read(&mut request);
        }
    }
}
