//! The mount table of the case's own mount namespace, as bytes. Written anew for the tests, so that they do
//! not believe the agent's own parser.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::wait::wait_for_some;

/// One line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountLine {
    /// The reusable id.
    pub id: u32,
    /// `major:minor` of the superblock.
    pub device: String,
    /// Where.
    pub mountpoint: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// Type.
    pub fstype: String,
    /// Source.
    pub source: OsString,
    /// Options of the superblock.
    pub super_options: String,
}

/// The whole table. Lines that do not parse are an error: the kernel wrote them.
///
/// # Errors
/// When the table cannot be read.
pub fn table() -> Result<Vec<MountLine>> {
    let bytes = fs::read("/proc/self/mountinfo").context("cannot read the mount table")?;
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| parse(line).with_context(|| String::from_utf8_lossy(line).into_owned())).collect()
}

/// What is mounted at exactly a path, bottom first.
///
/// # Errors
/// When the table cannot be read.
pub fn mounts_at(path: &Path) -> Result<Vec<MountLine>> {
    Ok(table()?.into_iter().filter(|line| line.mountpoint == path).collect())
}

/// The one mount at a path.
///
/// # Errors
/// When there is none, or more than one.
pub fn only_mount_at(path: &Path) -> Result<MountLine> {
    let mut found = mounts_at(path)?;
    match (found.pop(), found.is_empty()) {
        (Some(line), true) => Ok(line),
        (line, _) => anyhow::bail!("not exactly one mount at {}: {line:?}, {found:?}", path.display()),
    }
}

/// What is mounted below a directory, not at it.
///
/// # Errors
/// When the table cannot be read.
pub fn mounts_below(path: &Path) -> Result<Vec<MountLine>> {
    let inside = |line: &MountLine| line.mountpoint != path && line.mountpoint.starts_with(path);
    Ok(table()?.into_iter().filter(inside).collect())
}

/// Unmounts plainly: fails when somebody holds the mount.
///
/// # Errors
/// When the kernel refuses.
pub fn unmount(path: &Path) -> Result<()> {
    umount2(path, MntFlags::UMOUNT_NOFOLLOW).with_context(|| format!("cannot unmount {}", path.display()))
}

/// Unmounts plainly as soon as nobody holds the mount: a look of the agent that is under way does for a moment.
///
/// # Errors
/// When somebody holds it for long.
pub fn unmount_when_free(path: &Path) -> Result<()> {
    wait_for_some("nobody holds the mount", Duration::from_secs(30), || unmount(path).map(Some))
}

/// Detaches the top mount, whoever holds it.
///
/// # Errors
/// When the kernel refuses.
pub fn detach(path: &Path) -> Result<()> {
    let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
    umount2(path, flags).with_context(|| format!("cannot detach {}", path.display()))
}

/// Shows a file or directory at another place too.
///
/// # Errors
/// When the kernel refuses.
pub fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("cannot bind {} to {}", from.display(), to.display()))
}

/// Mounts a file system of a type that takes no options, from a source that may be any bytes.
///
/// # Errors
/// When the kernel refuses.
pub fn mount_from(source: &OsStr, place: &Path, fstype: &str) -> Result<()> {
    mount(Some(source), place, Some(fstype), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("cannot mount {source:?} on {}", place.display()))
}

/// Moves a mount to another place.
///
/// # Errors
/// When the kernel refuses.
pub fn move_mount(from: &Path, to: &Path) -> Result<()> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

/// Changes a whole file system between read-only and writable, as `mount -o remount` does.
///
/// # Errors
/// When the kernel refuses.
pub fn remount(path: &Path, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, flags | MsFlags::MS_REMOUNT, None::<&str>)
        .with_context(|| format!("cannot remount {}", path.display()))
}

/// Makes one bind read-only, and nothing else.
///
/// # Errors
/// When the kernel refuses.
pub fn make_bind_readonly(path: &Path) -> Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot make {} read-only", path.display()))
}

/// kernel: `show_mountinfo`, fs/proc_namespace.c, since 2.6.26. The separator is the first field `-` after the
/// sixth.
fn parse(line: &[u8]) -> Option<MountLine> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |index: usize| fields.get(index).map(|field| String::from_utf8_lossy(field).into_owned());
    Some(MountLine {
        id: text(0)?.parse().ok()?,
        device: text(2)?,
        mountpoint: PathBuf::from(decode(fields.get(4)?)),
        options: text(5)?,
        fstype: text(separator + 1)?,
        source: decode(fields.get(separator + 2)?),
        super_options: text(separator + 3)?,
    })
}

/// kernel: `mangle`, fs/proc_namespace.c: space, tab, newline, backslash and hash as three octal digits.
fn decode(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// A path that need not be UTF-8 from its bytes.
#[must_use]
pub fn path_from_bytes(base: &Path, name: &[u8]) -> PathBuf {
    base.join(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::{decode, parse};

    #[test]
    fn escapes_empty_sources_and_dashes_are_read_as_the_kernel_wrote_them() {
        let line =
            parse(b"219 31 0:58 / /mnt/\\040-\\040x rw shared:77 master:3 - tmpfs - rw,size=1m").unwrap();
        assert_eq!(line.mountpoint.to_str(), Some("/mnt/ - x"));
        assert_eq!((line.fstype.as_str(), line.source.to_str()), ("tmpfs", Some("-")));
        let line = parse(b"318 29 0:87 / /run/s rw - tmpfs  rw,size=64k").unwrap();
        assert_eq!((line.source.to_str(), line.super_options.as_str()), (Some(""), "rw,size=64k"));
        assert_eq!(decode(b"caf\xe9\\134").as_encoded_bytes(), b"caf\xe9\\");
    }
}
