//! Answers that are no faults, and the ways on which a program comes to a volume.

use std::ffi::CString;
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::io::raw::sys;
use crate::io::row::{Row, row};
use crate::io::scene::{Scene, text};

const HERE: i32 = libc::AT_FDCWD;

pub(in crate::io) const HARMLESS: &[Row] = &[
    row("read, answered with EAGAIN", "read", &["read"], |s| sys!(SYS_read, s.fd(0), &mut *s.buffer, 16))
        .answer(Errno::EAGAIN)
        .harmless(),
    row("read, answered with EINTR", "read", &["read"], |s| sys!(SYS_read, s.fd(0), &mut *s.buffer, 16))
        .answer(Errno::EINTR)
        .harmless(),
    row("openat, answered with ENOENT", "open", &["open"], |s| {
        sys!(SYS_openat, HERE, &*s.path("data0"), libc::O_RDONLY)
    })
    .answer(Errno::ENOENT)
    .harmless(),
    row("lgetxattr of an attribute that is not there", "stat", &["getxattr"], |s| {
        sys!(SYS_lgetxattr, &*s.path("data0"), c"user.none", &mut *s.buffer, 64).or_else(missing)
    })
    .unrefused(),
    row("statx of a name that is not there", "stat", &[], |s| {
        sys!(SYS_statx, HERE, &*s.path("nothing"), 0, 0x7ff, &mut *s.buffer).or_else(missing)
    })
    .unrefused(),
    row("read at the end of a file", "read", &[], |s| {
        sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 16, 1 << 20)
    })
    .unrefused(),
];

fn missing(errno: Errno) -> Result<usize, Errno> {
    if matches!(errno, Errno::ENODATA | Errno::ENOENT) { Ok(0) } else { Err(errno) }
}

pub(in crate::io) const PLACES: &[Row] = &[
    row("openat by a name relative to the working directory", "open", &["open"], |_| {
        sys!(SYS_openat, HERE, c"data0", libc::O_RDONLY)
    })
    .prepare(|s| std::env::set_current_dir(s.root()).context("cannot go there")),
    row("openat by a name relative to a descriptor", "open", &["open"], |s| {
        sys!(SYS_openat, s.fd(0), c"inner", libc::O_RDONLY)
    })
    .prepare(|s| s.open("sub", libc::O_RDONLY | libc::O_DIRECTORY)),
    // On another volume the link would give that one a hint: see `links`. What a link leads to is seen by the functions inside the call alone.
    row("openat through a symbolic link outside the volume", "open", &["open"], |s| {
        sys!(SYS_openat, HERE, &*name(&s.outside("link")), libc::O_RDONLY)
    })
    .prepare(linked)
    .seen_by(&["vfs_open"]),
    row("statx of a descriptor by an empty name", "stat", &["getattr"], |s| {
        sys!(SYS_statx, s.fd(0), c"", libc::AT_EMPTY_PATH, 0x7ff, &mut *s.buffer)
    }),
    row("read through a bind of a subdirectory", "read", &["read"], |s| {
        sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 16, 0)
    })
    .prepare(through_bind)
    .seen_by(&["sys_exit", "vfs_read"]),
    row("openat below a bind, from its directory", "open", &["open"], |s| {
        sys!(SYS_openat, s.fd(1), c"inner", libc::O_RDONLY)
    })
    .prepare(through_bind),
    row("read from a mount namespace of its own", "read", &["read"], |s| {
        sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 16, 0)
    })
    .prepare(own_namespace)
    .seen_by(&["sys_exit", "vfs_read"]),
    row("openat from a mount namespace of its own, relative", "open", &["open"], |_| {
        sys!(SYS_openat, HERE, c"data0", libc::O_RDONLY)
    })
    .prepare(own_namespace),
    row("read as a container does, with another root", "read", &["read"], |s| {
        sys!(SYS_pread64, s.fd(0), &mut *s.buffer, 16, 0)
    })
    .prepare(container)
    .seen_by(&["sys_exit", "vfs_read"]),
    row("openat as a container does, relative", "open", &["open"], |_| {
        sys!(SYS_openat, HERE, c"data0", libc::O_RDONLY)
    })
    .prepare(container),
    // Absolute names of other namespaces are placed by the agent, through its /proc: where it sees the processes of
    // others under their own numbers.
    row("openat as a container does, absolute", "open", &["open"], |_| {
        sys!(SYS_openat, HERE, c"/data/data0", libc::O_RDONLY)
    })
    .prepare(container)
    .seen_by(&["vfs_open"])
    .by_process(),
];

/// Shows the volume's subdirectory outside, for this process alone.
fn through_bind(s: &mut Scene) -> Result<()> {
    let place = s.outside("bound");
    alone()?;
    make(&place)?;
    bind(&s.root().join("sub"), &place)?;
    s.open_at(&place.join("inner"), libc::O_RDONLY)?;
    s.open_at(&place, libc::O_RDONLY | libc::O_DIRECTORY)
}

/// A link outside that leads to a file of the volume.
fn linked(s: &mut Scene) -> Result<()> {
    let link = s.outside("link");
    match std::os::unix::fs::symlink(s.root().join("data0"), link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error).context("cannot link"),
        _ => Ok(()),
    }
}

fn own_namespace(s: &mut Scene) -> Result<()> {
    alone()?;
    s.open("data0", libc::O_RDONLY)?;
    std::env::set_current_dir(s.root()).context("cannot go there")
}

/// A root directory of its own with nothing but the volume in it.
fn container(s: &mut Scene) -> Result<()> {
    let root = s.outside("container");
    alone()?;
    make(&root)?;
    make(&root.join("data"))?;
    bind(s.root(), &root.join("data"))?;
    nix::unistd::chroot(&root).context("cannot change the root")?;
    std::env::set_current_dir("/data").context("cannot go there")?;
    s.open_at(Path::new("/data/data0"), libc::O_RDONLY)
}

fn alone() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the mount namespace")?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).context("cannot make mounts private")
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    integration_tests::harness::mnt_ns::bind(from, to)
}

fn make(directory: &Path) -> Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot create {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// A path as calls take it.
pub(super) fn name(path: &Path) -> CString {
    text(path.to_path_buf())
}
