//! Changes of names and of attributes.

use nix::errno::Errno;

use crate::io::raw::sys;
use crate::io::row::{Row, row};
use crate::io::scene::Scene;

const HERE: i32 = libc::AT_FDCWD;

/// A regular file, for `mknod`.
const FILE: i64 = (libc::S_IFREG | 0o644) as i64;

pub(in crate::io) const NAMES: &[Row] = &[
    #[cfg(target_arch = "x86_64")]
    row("rename", "change", &["rename"], |s| sys!(SYS_rename, &*s.old(), &*s.fresh())).prepare(files),
    #[cfg(target_arch = "x86_64")]
    row("renameat", "change", &["rename"], |s| sys!(SYS_renameat, HERE, &*s.old(), HERE, &*s.fresh()))
        .answer(Errno::ETIMEDOUT)
        .prepare(files),
    row("renameat2", "change", &["rename"], |s| {
        sys!(SYS_renameat2, HERE, &*s.old(), HERE, &*s.fresh(), i64::from(libc::RENAME_NOREPLACE))
    })
    .answer(Errno::EROFS)
    .prepare(files),
    #[cfg(target_arch = "x86_64")]
    row("unlink", "change", &["unlink"], |s| sys!(SYS_unlink, &*s.old())).prepare(files),
    row("unlinkat", "change", &["unlink"], |s| sys!(SYS_unlinkat, HERE, &*s.old(), 0)).prepare(files),
    #[cfg(target_arch = "x86_64")]
    row("rmdir", "change", &["rmdir"], |s| sys!(SYS_rmdir, &*s.old())).prepare(directories),
    row("unlinkat of a directory", "change", &["rmdir"], |s| {
        sys!(SYS_unlinkat, HERE, &*s.old(), libc::AT_REMOVEDIR)
    })
    .answer(Errno::EACCES)
    .prepare(directories),
    #[cfg(target_arch = "x86_64")]
    row("mkdir", "change", &["mkdir"], |s| sys!(SYS_mkdir, &*s.fresh(), 0o755)).answer(Errno::ENOSPC),
    row("mkdirat", "change", &["mkdir"], |s| sys!(SYS_mkdirat, HERE, &*s.fresh(), 0o755)),
    #[cfg(target_arch = "x86_64")]
    row("mknod", "change", &["mknod"], |s| sys!(SYS_mknod, &*s.fresh(), FILE, 0)),
    row("mknodat", "change", &["mknod"], |s| sys!(SYS_mknodat, HERE, &*s.fresh(), FILE, 0))
        .answer(Errno::EDQUOT),
    #[cfg(target_arch = "x86_64")]
    row("symlink", "change", &["symlink"], |s| sys!(SYS_symlink, c"data0", &*s.fresh())),
    row("symlinkat", "change", &["symlink"], |s| sys!(SYS_symlinkat, c"data0", HERE, &*s.fresh())),
    #[cfg(target_arch = "x86_64")]
    row("link", "change", &["link"], |s| sys!(SYS_link, &*s.path("data0"), &*s.fresh())),
    row("linkat", "change", &["link"], |s| sys!(SYS_linkat, HERE, &*s.path("data0"), HERE, &*s.fresh(), 0))
        .answer(Errno::ESTALE),
];

pub(in crate::io) const CHANGES: &[Row] = &[
    row("truncate", "change", &["setattr"], |s| sys!(SYS_truncate, &*s.path("data0"), 65536)),
    row("ftruncate", "change", &["setattr"], |s| sys!(SYS_ftruncate, s.fd(0), 65536)),
    #[cfg(target_arch = "x86_64")]
    row("chmod", "change", &["setattr"], |s| sys!(SYS_chmod, &*s.path("data0"), 0o644)).answer(Errno::EROFS),
    row("fchmod", "change", &["setattr"], |s| sys!(SYS_fchmod, s.fd(0), 0o644)).answer(Errno::EPERM),
    row("fchmodat", "change", &["setattr"], |s| sys!(SYS_fchmodat, HERE, &*s.path("data0"), 0o644)),
    #[cfg(target_arch = "x86_64")]
    row("chown", "change", &["setattr"], |s| sys!(SYS_chown, &*s.path("data0"), 0, 0)),
    #[cfg(target_arch = "x86_64")]
    row("lchown", "change", &["setattr"], |s| sys!(SYS_lchown, &*s.path("data0"), 0, 0)),
    row("fchown", "change", &["setattr"], |s| sys!(SYS_fchown, s.fd(0), 0, 0)).answer(Errno::ENOTCONN),
    row("fchownat", "change", &["setattr"], |s| sys!(SYS_fchownat, HERE, &*s.path("data0"), 0, 0, 0)),
    row("utimensat", "change", &["setattr"], |s| sys!(SYS_utimensat, HERE, &*s.path("data0"), 0, 0)),
    row("utimensat of a descriptor", "change", &["setattr"], |s| sys!(SYS_utimensat, s.fd(0), 0, 0, 0)),
    #[cfg(target_arch = "x86_64")]
    row("utime", "change", &["setattr"], |s| sys!(SYS_utime, &*s.path("data0"), 0)),
    #[cfg(target_arch = "x86_64")]
    row("utimes", "change", &["setattr"], |s| sys!(SYS_utimes, &*s.path("data0"), 0)),
    row("setxattr", "change", &["setxattr"], |s| {
        sys!(SYS_setxattr, &*s.path("data0"), c"user.two", &mut *s.buffer, 8, 0)
    })
    .answer(Errno::EDQUOT),
    row("lsetxattr", "change", &["setxattr"], |s| {
        sys!(SYS_lsetxattr, &*s.path("data0"), c"user.two", &mut *s.buffer, 8, 0)
    }),
    row("fsetxattr", "change", &["setxattr"], |s| {
        sys!(SYS_fsetxattr, s.fd(0), c"user.two", &mut *s.buffer, 8, 0)
    }),
    row("removexattr", "change", &["removexattr"], |s| sys!(SYS_removexattr, &*s.old(), c"user.two"))
        .prepare(attributed),
    row("lremovexattr", "change", &["removexattr"], |s| sys!(SYS_lremovexattr, &*s.old(), c"user.two"))
        .prepare(attributed),
    row("fremovexattr", "change", &["removexattr"], |s| {
        // Set each time, so that there is something to remove.
        sys!(SYS_fsetxattr, s.fd(0), c"user.two", &mut *s.buffer, 8, 0)?;
        sys!(SYS_fremovexattr, s.fd(0), c"user.two")
    })
    .answer(Errno::EROFS),
    row("flock", "other", &["setlk"], |s| sys!(SYS_flock, s.fd(0), libc::LOCK_EX)),
    row("ioctl", "other", &["ioctl"], |s| sys!(SYS_ioctl, s.fd(0), OWN_COMMAND, &mut *s.buffer)),
];

/// `_IOR('x', 1, int)`: a command that no layer above the file system knows.
const OWN_COMMAND: i64 = 0x8004_7801;

fn files(s: &mut Scene) -> anyhow::Result<()> {
    s.stock(|path| std::fs::write(path, b"x"))
}

fn directories(s: &mut Scene) -> anyhow::Result<()> {
    s.stock(|path| match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => match std::fs::remove_dir(path) {
            Ok(()) => std::fs::create_dir(path),
            Err(_) => Err(error),
        },
        _ => std::fs::create_dir(path),
    })
}

fn attributed(s: &mut Scene) -> anyhow::Result<()> {
    s.stock(|path| {
        let _ = std::fs::remove_dir(path);
        std::fs::write(path, b"x")?;
        let name = super::elsewhere::name(path);
        sys!(SYS_setxattr, &*name, c"user.two", &mut b"value".to_owned()[..], 5, 0)?;
        Ok(())
    })
}
