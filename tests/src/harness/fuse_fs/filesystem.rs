//! The file system's operations: each goes through the gate and then to the tree. Nothing is cached by the
//! kernel: names and attributes live for no time, data is read directly, so that every call arrives here.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nix::sys::stat::SFlag;

use super::gate::Gate;
use super::tree::Tree;

/// Names and attributes are asked for anew each time.
const TTL: Duration = Duration::ZERO;

/// Files whose names begin so go through the page cache: only such can be mapped shared, and written back later.
pub(super) const CACHED: &str = "cached";

/// The injector's file system.
#[derive(Debug)]
pub(super) struct InjectorFs {
    gate: Gate,
    tree: Arc<Mutex<Tree>>,
}

impl InjectorFs {
    pub(super) fn new(gate: Gate, tree: Tree) -> Self {
        Self { gate, tree: Arc::new(Mutex::new(tree)) }
    }

    fn attributes(&self, operation: &'static str, inode: INodeNo, reply: ReplyAttr) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass(operation, reply, move |reply| match locked(&tree).attributes(inode.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        });
    }

    /// Makes a file of any type but those that are created open.
    fn make(
        &self,
        operation: &'static str,
        (parent, name): (INodeNo, &OsStr),
        (kind, data): (FileType, Vec<u8>),
        reply: ReplyEntry,
    ) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass(operation, reply, move |reply| {
            let mut tree = locked(&tree);
            let inode = tree.create(parent.0, &name, kind, data);
            entry(&tree, Some(inode), reply);
        });
    }

    /// A change that either finds what it is about or does not.
    fn change(
        &self,
        operation: &'static str,
        reply: ReplyEmpty,
        missing: Errno,
        change: impl FnOnce(&mut Tree) -> Option<()> + Send + 'static,
    ) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass(operation, reply, move |reply| match change(&mut locked(&tree)) {
            Some(()) => reply.ok(),
            None => reply.error(missing),
        });
    }

    /// How a file is opened: past the page cache unless its name says otherwise.
    fn open_flags(&self, inode: INodeNo) -> FopenFlags {
        flags_for(&locked(&self.tree).name(inode.0))
    }
}

fn flags_for(name: &str) -> FopenFlags {
    if name.starts_with(CACHED) { FopenFlags::empty() } else { FopenFlags::FOPEN_DIRECT_IO }
}

fn entry(tree: &Tree, inode: Option<u64>, reply: ReplyEntry) {
    match inode.and_then(|inode| tree.attributes(inode)) {
        Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        None => reply.error(Errno::ENOENT),
    }
}

/// Gives an extended attribute the way the kernel asks for it: first its size, then its bytes.
///
/// kernel: `fuse_getxattr`, fs/fuse/xattr.c, since 2.6.14.
fn extended(size: u32, value: &[u8], reply: ReplyXattr) {
    match u32::try_from(value.len()) {
        Ok(length) if size == 0 => reply.size(length),
        Ok(length) if length <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

fn type_of(mode: u32) -> FileType {
    match SFlag::from_bits_truncate(mode) & SFlag::S_IFMT {
        SFlag::S_IFIFO => FileType::NamedPipe,
        SFlag::S_IFSOCK => FileType::Socket,
        SFlag::S_IFCHR => FileType::CharDevice,
        SFlag::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn locked(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Filesystem for InjectorFs {
    /// kernel: `FUSE_FLOCK_LOCKS`, include/uapi/linux/fuse.h, since 3.1: else `flock` never comes here.
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config
            .add_capabilities(InitFlags::FUSE_FLOCK_LOCKS)
            .map_err(|_| io::Error::other("the kernel does not hand locks over"))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass("lookup", reply, move |reply| {
            let tree = locked(&tree);
            entry(&tree, tree.find(parent.0, &name), reply);
        });
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes("getattr", inode, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass("setattr", reply, move |reply| {
            let mut tree = locked(&tree);
            let resized = size.map_or(Some(()), |size| tree.resize(inode.0, size));
            let changed =
                resized.and_then(|()| mode.map_or(Some(()), |mode| tree.set_permissions(inode.0, mode)));
            match changed.and_then(|()| tree.attributes(inode.0)) {
                Some(attributes) => reply.attr(&TTL, &attributes),
                None => reply.error(Errno::ENOENT),
            }
        });
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass("readlink", reply, move |reply| match locked(&tree).target(inode.0) {
            Some(target) => reply.data(target),
            None => reply.error(Errno::EINVAL),
        });
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        self.make("mknod", (parent, name), (type_of(mode), Vec::new()), reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        self.make("mkdir", (parent, name), (FileType::Directory, Vec::new()), reply);
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_encoded_bytes().to_vec();
        self.make("symlink", (parent, name), (FileType::Symlink, target), reply);
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass("link", reply, move |reply| {
            let mut tree = locked(&tree);
            let made = tree.link(inode.0, parent.0, &name);
            entry(&tree, made, reply);
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.change("rename", reply, Errno::ENOENT, move |tree| {
            tree.rename((parent.0, &name), (new_parent.0, &new_name))
        });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change("rmdir", reply, Errno::ENOENT, move |tree| tree.unlink(parent.0, &name));
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = self.open_flags(inode);
        self.gate.pass("open", reply, move |reply| reply.opened(FileHandle(0), flags));
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let tree = Arc::clone(&self.tree);
        let file = locked(&self.tree).name(inode.0);
        self.gate.pass_for("read", file, reply, move |reply| {
            match locked(&tree).read(inode.0, offset, size) {
                Some(data) => reply.data(&data),
                None => reply.error(Errno::EISDIR),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (tree, data) = (Arc::clone(&self.tree), data.to_vec());
        self.gate.pass("write", reply, move |reply| match locked(&tree).write(inode.0, offset, &data) {
            Some(written) => reply.written(written),
            None => reply.error(Errno::EFBIG),
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.gate.pass("flush", reply, ReplyEmpty::ok);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.gate.pass("fsync", reply, ReplyEmpty::ok);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.gate.pass("opendir", reply, |reply| reply.opened(FileHandle(0), FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass("readdir", reply, move |mut reply| {
            let skip = usize::try_from(offset).unwrap_or(usize::MAX);
            for (position, (inode, kind, name)) in locked(&tree).list(inode.0, skip).into_iter().enumerate() {
                if reply.add(INodeNo(inode), offset + position as u64 + 1, kind, &name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.gate.pass("statfs", reply, |reply| {
            reply.statfs(1 << 20, 1 << 19, 1 << 19, 1000, 900, 4096, 255, 4096)
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass("create", reply, move |reply| {
            let mut tree = locked(&tree);
            let inode = tree.create(parent.0, &name, FileType::RegularFile, Vec::new());
            match tree.attributes(inode) {
                Some(attributes) => {
                    let flags = flags_for(&name.to_string_lossy());
                    reply.created(&TTL, &attributes, Generation(0), FileHandle(0), flags);
                }
                None => reply.error(Errno::EIO),
            }
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change("unlink", reply, Errno::ENOENT, move |tree| tree.unlink(parent.0, &name));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.gate.pass("fsyncdir", reply, ReplyEmpty::ok);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        self.gate.pass("access", reply, ReplyEmpty::ok);
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass("getxattr", reply, move |reply| match locked(&tree).extended(inode.0, &name) {
            Some(value) => extended(size, value, reply),
            None => reply.error(Errno::ENODATA),
        });
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass("listxattr", reply, move |reply| {
            extended(size, &locked(&tree).extended_names(inode.0), reply);
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.change("setxattr", reply, Errno::ENOENT, move |tree| {
            tree.set_extended(inode.0, &name, Some(&value))
        });
    }

    fn removexattr(&self, _: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change("removexattr", reply, Errno::ENODATA, move |tree| {
            tree.set_extended(inode.0, &name, None)
        });
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _start: u64,
        _end: u64,
        _kind: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        self.gate.pass("setlk", reply, ReplyEmpty::ok);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _command: u32,
        _input: &[u8],
        output_size: u32,
        reply: ReplyIoctl,
    ) {
        self.gate.pass("ioctl", reply, move |reply| reply.ioctl(0, &vec![0; output_size as usize]));
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        self.change("fallocate", reply, Errno::EFBIG, move |tree| {
            tree.grow(inode.0, usize::try_from(offset.checked_add(length)?).ok()?)
        });
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let tree = Arc::clone(&self.tree);
        self.gate.pass("copy_file_range", reply, move |reply| {
            let mut tree = locked(&tree);
            let read = tree.read(from.0, from_offset, u32::try_from(length).unwrap_or(u32::MAX));
            match read.and_then(|data| tree.write(to.0, to_offset, &data)) {
                Some(written) => reply.written(written),
                None => reply.error(Errno::EIO),
            }
        });
    }
}
