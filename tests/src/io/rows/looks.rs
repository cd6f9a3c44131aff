//! Opening, and looking at attributes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use nix::errno::Errno;

use crate::io::raw::sys;
use crate::io::row::{Row, row};
use crate::io::scene::Scene;

/// The flags of `struct open_how`; its two other words stay zero.
const READ_ONLY: [u8; 24] = [0; 24];

pub(in crate::io) const OPENS: &[Row] = &[
    #[cfg(target_arch = "x86_64")]
    row("open", "open", &["open"], |s| sys!(SYS_open, &*s.path("data0"), libc::O_RDONLY))
        .seen_by(&["sys_exit", "vfs_open"]),
    row("openat", "open", &["open"], |s| sys!(SYS_openat, libc::AT_FDCWD, &*s.path("data0"), libc::O_RDWR))
        .answer(Errno::ENXIO),
    row("openat, answered with EACCES", "open", &["open"], |s| {
        sys!(SYS_openat, libc::AT_FDCWD, &*s.path("data0"), libc::O_RDONLY)
    })
    .answer(Errno::EACCES),
    row("openat, answered with ESTALE", "open", &["open"], |s| {
        sys!(SYS_openat, libc::AT_FDCWD, &*s.path("data0"), libc::O_RDONLY)
    })
    .answer(Errno::ESTALE),
    row("openat, the name cannot be looked up", "open", &["lookup"], |s| {
        sys!(SYS_openat, libc::AT_FDCWD, &*s.path("sub/inner"), libc::O_RDONLY)
    }),
    row("openat2", "open", &["open"], |s| {
        sys!(SYS_openat2, libc::AT_FDCWD, &*s.path("data0"), &mut { READ_ONLY }[..], 24)
    }),
    row("openat of a directory", "open", &["opendir"], |s| {
        sys!(SYS_openat, libc::AT_FDCWD, &*s.path("sub"), libc::O_RDONLY | libc::O_DIRECTORY)
    }),
    #[cfg(target_arch = "x86_64")]
    row("creat", "open", &["create"], |s| sys!(SYS_creat, &*s.fresh(), 0o644)).answer(Errno::EROFS),
    row("openat with O_CREAT", "open", &["create"], |s| {
        sys!(SYS_openat, libc::AT_FDCWD, &*s.fresh(), libc::O_CREAT | libc::O_WRONLY, 0o644)
    })
    .answer(Errno::ENOSPC),
    row("openat with O_TRUNC", "open", &["setattr"], |s| {
        sys!(SYS_openat, libc::AT_FDCWD, &*s.path("data0"), libc::O_WRONLY | libc::O_TRUNC)
    }),
    row("execve", "open", &["open"], |s| s.execute("program")).prepare(program),
];

pub(in crate::io) const LOOKS: &[Row] = &[
    #[cfg(target_arch = "x86_64")]
    row("stat", "stat", &["getattr"], |s| sys!(SYS_stat, &*s.path("data0"), &mut *s.buffer)),
    #[cfg(target_arch = "x86_64")]
    row("lstat", "stat", &["getattr"], |s| sys!(SYS_lstat, &*s.path("data0"), &mut *s.buffer))
        .answer(Errno::ETIMEDOUT),
    row("newfstatat", "stat", &["getattr"], |s| {
        sys!(SYS_newfstatat, libc::AT_FDCWD, &*s.path("data0"), &mut *s.buffer, 0)
    }),
    row("statx", "stat", &["getattr"], |s| {
        sys!(SYS_statx, libc::AT_FDCWD, &*s.path("data0"), 0, 0x7ff, &mut *s.buffer)
    })
    .answer(Errno::EHOSTDOWN),
    row("statx, the name cannot be looked up", "stat", &["lookup"], |s| {
        sys!(SYS_statx, libc::AT_FDCWD, &*s.path("sub/inner"), 0, 0x7ff, &mut *s.buffer)
    })
    .answer(Errno::ENOTCONN),
    row("fstat", "stat", &["getattr"], |s| sys!(SYS_fstat, s.fd(0), &mut *s.buffer)).answer(Errno::ESTALE),
    #[cfg(target_arch = "x86_64")]
    row("access", "stat", &["access"], |s| sys!(SYS_access, &*s.path("data0"), libc::R_OK)),
    row("faccessat", "stat", &["access"], |s| {
        sys!(SYS_faccessat, libc::AT_FDCWD, &*s.path("data0"), libc::R_OK)
    })
    .answer(Errno::ENODEV),
    row("faccessat2", "stat", &["access"], |s| {
        sys!(SYS_faccessat2, libc::AT_FDCWD, &*s.path("data0"), libc::R_OK, 0)
    }),
    #[cfg(target_arch = "x86_64")]
    row("readlink", "stat", &["readlink"], |s| sys!(SYS_readlink, &*s.path("pointer"), &mut *s.buffer, 4096))
        .prepare(pointer),
    row("readlinkat", "stat", &["readlink"], |s| {
        sys!(SYS_readlinkat, libc::AT_FDCWD, &*s.path("pointer"), &mut *s.buffer, 4096)
    })
    .prepare(pointer),
    row("statfs", "stat", &["statfs"], |s| sys!(SYS_statfs, &*s.path("data0"), &mut *s.buffer))
        .answer(Errno::ENOTCONN),
    row("fstatfs", "stat", &["statfs"], |s| sys!(SYS_fstatfs, s.fd(0), &mut *s.buffer)),
    row("chdir", "stat", &["lookup"], |s| sys!(SYS_chdir, &*s.path("sub"))),
    row("getdents64", "list", &["readdir"], |s| {
        sys!(SYS_lseek, s.fd(0), 0, libc::SEEK_SET)?;
        sys!(SYS_getdents64, s.fd(0), &mut *s.buffer, 4096)
    })
    .prepare(|s| s.open("", libc::O_RDONLY | libc::O_DIRECTORY))
    .seen_by(&["sys_exit", "iterate_dir"]),
    #[cfg(target_arch = "x86_64")]
    row("getdents", "list", &["readdir"], |s| {
        sys!(SYS_lseek, s.fd(0), 0, libc::SEEK_SET)?;
        sys!(SYS_getdents, s.fd(0), &mut *s.buffer, 4096)
    })
    .answer(Errno::ESTALE)
    .prepare(|s| s.open("", libc::O_RDONLY | libc::O_DIRECTORY))
    .seen_by(&["sys_exit", "iterate_dir"]),
    row("getxattr", "stat", &["getxattr"], |s| {
        sys!(SYS_getxattr, &*s.path("data0"), c"user.one", &mut *s.buffer, 4096)
    })
    .prepare(attribute),
    row("lgetxattr", "stat", &["getxattr"], |s| {
        sys!(SYS_lgetxattr, &*s.path("data0"), c"user.one", &mut *s.buffer, 4096)
    })
    .prepare(attribute),
    row("fgetxattr", "stat", &["getxattr"], |s| {
        sys!(SYS_fgetxattr, s.fd(0), c"user.one", &mut *s.buffer, 4096)
    })
    .prepare(attribute),
    row("listxattr", "stat", &["listxattr"], |s| {
        sys!(SYS_listxattr, &*s.path("data0"), &mut *s.buffer, 4096)
    }),
    row("llistxattr", "stat", &["listxattr"], |s| {
        sys!(SYS_llistxattr, &*s.path("data0"), &mut *s.buffer, 4096)
    }),
    row("flistxattr", "stat", &["listxattr"], |s| sys!(SYS_flistxattr, s.fd(0), &mut *s.buffer, 4096)),
];

fn program(s: &mut Scene) -> Result<()> {
    let path = s.root().join("program");
    std::fs::write(&path, "#!/bin/sh\nexit 0\n").context("cannot make a program")?;
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).context("cannot make it executable")
}

fn pointer(s: &mut Scene) -> Result<()> {
    let path = s.root().join("pointer");
    match std::os::unix::fs::symlink("data0", path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).context("cannot make a symbolic link")
        }
        _ => Ok(()),
    }
}

fn attribute(s: &mut Scene) -> Result<()> {
    s.open("data0", libc::O_RDWR)?;
    sys!(SYS_fsetxattr, s.fd(0), c"user.one", &mut b"value".to_owned()[..], 5, 0)
        .context("cannot set an attribute")?;
    Ok(())
}
