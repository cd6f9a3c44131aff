//! Reading, writing, and moving data between files.

use anyhow::{Context, Result};
use nix::errno::Errno;

use crate::io::raw::sys;
use crate::io::row::{Returned, Row, row};
use crate::io::scene::Scene;

pub(in crate::io) const READS: &[Row] = &[
    row("read", "read", &["read"], |s| sys!(SYS_read, s.fd(0), &mut *s.buffer, 16))
        .seen_by(&["sys_exit", "vfs_read"]),
    row("read, answered with ETIMEDOUT", "read", &["read"], |s| sys!(SYS_read, s.fd(0), &mut *s.buffer, 16))
        .answer(Errno::ETIMEDOUT)
        .seen_by(&["sys_exit", "vfs_read"]),
    row("pread", "read", &["read"], |s| sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 16, 0))
        .answer(Errno::ENOTCONN)
        .seen_by(&["sys_exit", "vfs_read"]),
    row("readv", "read", &["read"], |s| sys!(SYS_readv, s.fd(0), &mut *s.vector(), 1)),
    row("preadv", "read", &["read"], |s| sys!(SYS_preadv, s.fd(0), &mut *s.vector(), 1, 0, 0))
        .answer(Errno::ESTALE),
    row("preadv2", "read", &["read"], |s| {
        sys!(SYS_preadv2, s.fd(0), &mut *s.vector(), 1, 0, 0, libc::RWF_HIPRI)
    }),
    row("read through the page cache", "read", &["read"], uncached).prepare(Scene::cached),
    row("read with O_DIRECT", "read", &["read"], |s| sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 4096, 0))
        .prepare(direct)
        .seen_by(&["sys_exit", "vfs_read"]),
];

pub(in crate::io) const WRITES: &[Row] = &[
    row("write", "write", &["write"], |s| sys!(SYS_write, s.fd(0), &mut *s.buffer, 16))
        .seen_by(&["sys_exit", "vfs_write"]),
    row("write, answered with EROFS", "write", &["write"], |s| sys!(SYS_write, s.fd(0), &mut *s.buffer, 16))
        .answer(Errno::EROFS)
        .seen_by(&["sys_exit", "vfs_write"]),
    row("pwrite", "write", &["write"], |s| sys!(SYS_pwrite64, s.fd(0), &mut *s.buffer, 16, 0))
        .answer(Errno::ENOSPC)
        .seen_by(&["sys_exit", "vfs_write"]),
    row("writev", "write", &["write"], |s| sys!(SYS_writev, s.fd(0), &mut *s.vector(), 1)),
    row("pwritev", "write", &["write"], |s| sys!(SYS_pwritev, s.fd(0), &mut *s.vector(), 1, 0, 0))
        .answer(Errno::EDQUOT),
    row("pwritev2", "write", &["write"], |s| {
        sys!(SYS_pwritev2, s.fd(0), &mut *s.vector(), 1, 0, 0, libc::RWF_HIPRI)
    }),
    row("write through the page cache", "write", &["write"], |s| {
        sys!(SYS_pwrite64, s.fd(0), &mut *s.buffer, 4096, 0)
    })
    .prepare(Scene::cached)
    .also(&["writeback"])
    .seen_by(&["sys_exit", "vfs_write"]),
    row("write with O_DIRECT", "write", &["write"], |s| sys!(SYS_pwrite64, s.fd(0), &mut *s.buffer, 4096, 0))
        .prepare(direct)
        .seen_by(&["sys_exit", "vfs_write"]),
    row("fallocate", "write", &["fallocate"], |s| sys!(SYS_fallocate, s.fd(0), 0, 0, 4096))
        .answer(Errno::ENOSPC),
];

pub(in crate::io) const TRANSFERS: &[Row] = &[
    row("sendfile, the source fails", "read", &["read"], |s| sys!(SYS_sendfile, s.fd(1), s.fd(0), 0, 16))
        .prepare(volume_and_other),
    row("sendfile, the target fails", "write", &["write"], |s| {
        rewind(s, 1)?;
        sys!(SYS_sendfile, s.fd(0), s.fd(1), 0, 16)
    })
    .prepare(volume_and_other),
    row("splice from a file", "read", &["read"], |s| {
        s.fresh_pipe(1)?;
        sys!(SYS_splice, s.fd(0), 0, s.fd(2), 0, 16, 0)
    }),
    row("splice to a file", "write", &["write"], |s| {
        s.fresh_pipe(1)?;
        sys!(SYS_write, s.fd(2), &mut *s.buffer, 16)?;
        sys!(SYS_splice, s.fd(1), 0, s.fd(0), 0, 16, 0)
    }),
    row("copy_file_range", "write", &["copy_file_range"], |s| {
        sys!(SYS_copy_file_range, s.fd(0), 0, s.fd(1), 0, 16, 0)
    })
    .prepare(|s| {
        s.open("data0", libc::O_RDONLY)?;
        s.open("data1", libc::O_RDWR)
    }),
];

/// A read that finds nothing in the page cache.
fn uncached(s: &mut Scene) -> Returned {
    sys!(SYS_fadvise64, s.fd(0), 0, 0, libc::POSIX_FADV_DONTNEED)?;
    sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 16, 0)
}

fn direct(s: &mut Scene) -> Result<()> {
    std::fs::write(s.root().join("cached"), [b'c'; 8192]).context("cannot make a file")?;
    s.open("cached", libc::O_RDWR | libc::O_DIRECT)
}

fn rewind(s: &Scene, index: usize) -> Returned {
    sys!(SYS_lseek, s.fd(index), 0, libc::SEEK_SET)
}

fn volume_and_other(s: &mut Scene) -> Result<()> {
    s.open("data0", libc::O_RDWR)?;
    let other = s.outside("other");
    std::fs::write(&other, [b'o'; 4096]).context("cannot make a file outside")?;
    s.open_at(&other, libc::O_RDWR)
}
