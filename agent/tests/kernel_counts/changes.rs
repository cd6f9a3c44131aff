//! Every way to change a read-only volume: one count for each call, also for those with two names.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, open, renameat, renameat2};
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmodat, mkdirat, mknodat, utimensat, utimes,
};
use nix::sys::time::{TimeSpec, TimeVal};
use nix::unistd::{FchownatFlags, UnlinkatFlags, fchownat, linkat, symlinkat, truncate, unlinkat};

use crate::cases::key;
use crate::harness::{Stage, Verdict, agent_or_skip, make_read_only};

/// A read-only volume with a file and a directory in it.
struct Volume {
    directory: File,
    old: PathBuf,
    fresh: PathBuf,
    sub: PathBuf,
}

/// What a call came to, whatever it would return.
type Returned = Result<(), Errno>;

/// Makes one call.
type Change = fn(&Volume) -> Returned;

fn of(result: std::io::Result<()>) -> Returned {
    result.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

/// Calls that change names or attributes.
const CHANGES: &[(&str, Change)] = &[
    ("mkdir", |v| of(std::fs::create_dir(&v.fresh))),
    ("mkdirat", |v| mkdirat(&v.directory, "fresh", Mode::S_IRWXU)),
    ("mknodat", |v| mknodat(&v.directory, "fresh", SFlag::S_IFREG, Mode::S_IRWXU, 0)),
    ("rmdir", |v| of(std::fs::remove_dir(&v.sub))),
    ("unlinkat of a directory", |v| unlinkat(&v.directory, "sub", UnlinkatFlags::RemoveDir)),
    ("unlink", |v| of(std::fs::remove_file(&v.old))),
    ("unlinkat", |v| unlinkat(&v.directory, "old", UnlinkatFlags::NoRemoveDir)),
    ("symlink", |v| of(symlink("target", &v.fresh))),
    ("symlinkat", |v| symlinkat("target", &v.directory, "fresh")),
    ("link", |v| of(std::fs::hard_link(&v.old, &v.fresh))),
    ("linkat", |v| linkat(&v.directory, "old", &v.directory, "fresh", AtFlags::empty())),
    ("rename", |v| of(std::fs::rename(&v.old, &v.fresh))),
    ("renameat", |v| renameat(&v.directory, "old", &v.directory, "fresh")),
    ("renameat2", |v| renameat2(&v.directory, "old", &v.directory, "fresh", RenameFlags::RENAME_NOREPLACE)),
    ("truncate", |v| truncate(&v.old, 1)),
    ("chmod", |v| of(std::fs::set_permissions(&v.old, std::fs::Permissions::from_mode(0o600)))),
    ("fchmod", |v| of(v.directory.set_permissions(std::fs::Permissions::from_mode(0o700)))),
    ("fchmodat", |v| fchmodat(&v.directory, "old", Mode::S_IRWXU, FchmodatFlags::FollowSymlink)),
    ("chown", |v| of(chown(&v.old, Some(1), Some(1)))),
    ("lchown", |v| of(lchown(&v.old, Some(1), Some(1)))),
    ("fchownat", |v| fchownat(&v.directory, "old", None, None, FchownatFlags::AT_SYMLINK_NOFOLLOW)),
    ("utimes", |v| utimes(&v.old, &TimeVal::new(1, 0), &TimeVal::new(1, 0))),
    ("utimensat", |v| {
        let time = TimeSpec::new(1, 0);
        utimensat(&v.directory, "old", &time, &time, UtimensatFlags::NoFollowSymlink)
    }),
    ("mkdirat with dots", |_| mkdirat(AT_FDCWD, "/mnt/volume/../volume/./fresh", Mode::S_IRWXU)),
    ("mkdirat through a symbolic link", |_| mkdirat(AT_FDCWD, "/mnt/link/fresh", Mode::S_IRWXU)),
];

/// Which of them the end of system calls alone cannot place: links are not followed by name.
const NEEDS_PLACES: &[&str] = &["mkdirat through a symbolic link"];

pub(crate) fn changes(family: &str) -> Verdict {
    let stage = Stage::enter();
    let place = stage.volume("volume", "size=64k");
    symlink(&place, stage.root.join("link")).unwrap();
    let volume = filled(&place);
    make_read_only(&place);
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&place);
    let changes = key(&place, "EROFS", "change");
    let mut expected = 0;
    let fits = |name: &str| agent.family == "fexit" || !NEEDS_PLACES.contains(&name);
    for (name, call) in CHANGES.iter().filter(|(name, _)| fits(name)).collect::<Vec<_>>() {
        assert_eq!(call(&volume), Err(Errno::EROFS), "{name}");
        expected += 1;
        let totals = agent.totals(&changes, expected);
        assert_eq!(totals.get(&changes), Some(&expected), "{name}: {totals:?}");
    }
    // A fence: what was counted too often by the last call is in the totals by then.
    assert!(File::create(&volume.fresh).is_err());
    let totals = agent.totals(&key(&place, "EROFS", "open"), 1);
    assert_eq!(totals.get(&changes), Some(&expected), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

fn filled(place: &Path) -> Volume {
    let volume = Volume {
        old: place.join("old"),
        fresh: place.join("fresh"),
        sub: place.join("sub"),
        directory: {
            let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY;
            open(place, flags, Mode::empty()).unwrap().into()
        },
    };
    File::create(&volume.old).unwrap();
    std::fs::create_dir(&volume.sub).unwrap();
    volume
}
