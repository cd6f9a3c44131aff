//! Mapped files, what makes them durable, and completions outside of system calls.

use io_uring::IoUring;
use nix::errno::Errno;

use crate::io::raw::sys;
use crate::io::ring::{self, Work};
use crate::io::row::{Returned, Row, row};
use crate::io::scene::{PAGE, Scene};

/// How much of a dirty file is written out: start, and wait. kernel: include/uapi/linux/fs.h, since 2.6.17.
const WRITE_AND_WAIT: u32 =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

// What was stored through a mapping is written back by FUSE in its own time: on 5.10 `msync` returned once, and an
// error came that only the next one told. So these rows go by what each call returned.
pub(in crate::io) const SYNCS: &[Row] = &[
    row("fsync", "sync", &["fsync"], |s| sys!(SYS_fsync, s.fd(0))),
    row("fdatasync", "sync", &["fsync"], |s| sys!(SYS_fdatasync, s.fd(0))).answer(Errno::ENOSPC),
    row("fsync of a directory", "sync", &["fsyncdir"], |s| sys!(SYS_fsync, s.fd(0)))
        .prepare(|s| s.open("sub", libc::O_RDONLY)),
    row("fsync after stores to a mapping", "sync", &["write"], |s| {
        s.dirty();
        sys!(SYS_fsync, s.fd(0))
    })
    .late()
    .prepare(Scene::mapped)
    .also(&["writeback"]),
    row("sync_file_range after stores to a mapping", "sync", &["write"], |s| {
        s.dirty();
        sys!(SYS_sync_file_range, s.fd(0), 0, 4096, i64::from(WRITE_AND_WAIT))
    })
    .late()
    .prepare(Scene::mapped)
    .also(&["writeback"]),
    row("syncfs after a lost write-back", "sync", &["write"], |s| {
        s.dirty();
        // The write-back fails here: closing waits for it, tells this file's error, and is no call that is counted,
        // as `msync` is by one family. `syncfs` has a memory of its own.
        // kernel: `fuse_flush`, fs/fuse/file.c, since 2.6.15.
        if let Some(copy) = sys!(SYS_dup, s.fd(0)).ok().and_then(|copy| i64::try_from(copy).ok()) {
            let _ = sys!(SYS_close, copy);
        }
        sys!(SYS_syncfs, s.fd(1))
    })
    .late()
    .prepare(|s| {
        s.mapped()?;
        s.open("", libc::O_RDONLY)
    })
    .also(&["writeback"]),
    row("msync after stores to a mapping", "sync", &["write"], |s| {
        s.dirty();
        s.mapping.as_ref().map_or(Err(Errno::EBADF), |mapping| mapping.sync())
    })
    .late()
    .prepare(Scene::mapped)
    .also(&["writeback"])
    .seen_by(&["vfs_fsync_range"]),
];

/// The programs that see a page that cannot be had, by kernel.
const FAULT: &[&str] = &["sigbus", "filemap_fault"];

pub(in crate::io) const FAULTS: &[Row] = &[
    row("load from a mapped file", "fault", &["read"], |s| s.touch("load", 0))
        .prepare(Scene::cached)
        .seen_by(FAULT),
    // A store may find no room as well: what it was nobody tells.
    row("store to a mapped file", "fault", &["read"], |s| s.touch("store", PAGE))
        .prepare(Scene::cached)
        .counted_as("unknown")
        .seen_by(FAULT),
    row("load beyond the end of a mapped file", "fault", &[], |s| match s.touch("load", 2 * PAGE) {
        Err(Errno::EIO) => Ok(0),
        other => other.and(Err(Errno::EINVAL)),
    })
    .prepare(Scene::cached)
    .unrefused(),
];

/// The programs that see the end of any request of io_uring, by kernel.
const RING: &[&str] = &["io_uring_entry", "io_uring_complete"];
/// And those that see the end of reading and writing.
const RING_DATA: &[&str] = &["io_uring_entry", "io_uring_complete", "io_complete_rw"];
const AIO: &[&str] = &["aio_complete_rw"];

pub(in crate::io) const RINGS: &[Row] = &[
    row("io_uring read", "read", &["read"], |s| through_ring(s, Work::Read))
        .prepare(with_ring)
        .seen_by(RING_DATA),
    row("io_uring write", "write", &["write"], |s| through_ring(s, Work::Write))
        .answer(Errno::ENOSPC)
        .prepare(with_ring)
        .seen_by(RING_DATA),
    row("io_uring fsync", "sync", &["fsync"], |s| through_ring(s, Work::Sync))
        .prepare(with_ring)
        .seen_by(RING),
    row("aio read", "read", &["read"], |s| through_aio(s, Work::Read)).prepare(with_aio).seen_by(AIO),
    row("aio write", "write", &["write"], |s| through_aio(s, Work::Write))
        .answer(Errno::EROFS)
        .prepare(with_aio)
        .seen_by(AIO),
    // Done by a thread of the kernel, for nobody.
    row("aio fsync", "sync", &["fsync"], |s| through_aio(s, Work::Sync)).prepare(with_aio).seen_by(&[]),
];

fn with_ring(s: &mut Scene) -> anyhow::Result<()> {
    s.open("data0", libc::O_RDWR)?;
    s.ring = Some(IoUring::new(2)?);
    Ok(())
}

fn through_ring(s: &mut Scene, work: Work) -> Returned {
    let file = s.raw(0);
    let ring = s.ring.as_mut().ok_or(Errno::EBADF)?;
    ring::through_ring(ring, work, file, &mut s.buffer)
}

fn with_aio(s: &mut Scene) -> anyhow::Result<()> {
    s.open("data0", libc::O_RDWR)?;
    s.aio = ring::aio_context()?;
    Ok(())
}

fn through_aio(s: &mut Scene, work: Work) -> Returned {
    ring::through_aio(s.aio, work, s.raw(0), &mut s.buffer)
}
