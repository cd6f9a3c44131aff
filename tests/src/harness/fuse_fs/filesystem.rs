//! The file system's operations: each goes through the gate and then to the tree. Nothing is cached by the
//! kernel: names and attributes live for no time, data is read directly, so that every call arrives here.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::gate::Gate;
use super::tree::Tree;

/// Names and attributes are asked for anew each time.
const TTL: Duration = Duration::ZERO;

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
}

fn locked(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Filesystem for InjectorFs {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass("lookup", reply, move |reply| {
            let tree = locked(&tree);
            match tree.find(parent.0, &name).and_then(|inode| tree.attributes(inode)) {
                Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
                None => reply.error(Errno::ENOENT),
            }
        });
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes("getattr", inode, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
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
        if let Some(size) = size {
            let _ = locked(&self.tree).resize(inode.0, size);
        }
        self.attributes("setattr", inode, reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.gate.pass("open", reply, |reply| reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO));
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
            let inode = tree.create(parent.0, &name);
            match tree.attributes(inode) {
                Some(attributes) => {
                    let flags = FopenFlags::FOPEN_DIRECT_IO;
                    reply.created(&TTL, &attributes, Generation(0), FileHandle(0), flags);
                }
                None => reply.error(Errno::EIO),
            }
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (tree, name) = (Arc::clone(&self.tree), name.to_owned());
        self.gate.pass("unlink", reply, move |reply| match locked(&tree).unlink(parent.0, &name) {
            Some(()) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        });
    }
}
