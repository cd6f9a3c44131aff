//! The files of the injector, in memory.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

use super::{DATA_FILES, DATA_SIZE};

/// The parent of what has no name any more.
const NOWHERE: u64 = 0;

pub(super) const ROOT: u64 = 1;
const SENTINEL: u64 = 2;
const DIRECTORY: u64 = 3;
const INNER: u64 = 4;
const FIRST_DATA: u64 = 10;
const FIRST_NEW: u64 = 1000;

/// A file, or a directory where `data` is `None`.
#[derive(Debug)]
struct Node {
    parent: u64,
    name: OsString,
    data: Option<Vec<u8>>,
}

/// All files.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    owner: u32,
}

impl Tree {
    pub(super) fn new(sentinel: Vec<u8>, owner: u32) -> Self {
        let file = |parent, name: &str, data| Node { parent, name: name.into(), data: Some(data) };
        let folder = |parent, name: &str| Node { parent, name: name.into(), data: None };
        let mut nodes = BTreeMap::from([
            (ROOT, folder(ROOT, "")),
            (SENTINEL, file(ROOT, ".mountie", sentinel)),
            (DIRECTORY, folder(ROOT, "sub")),
            (INNER, file(DIRECTORY, "inner", b"inner".to_vec())),
        ]);
        for (number, inode) in (0..DATA_FILES).zip(FIRST_DATA..) {
            let content = format!("{number}").into_bytes().into_iter().cycle().take(DATA_SIZE).collect();
            nodes.insert(inode, file(ROOT, &format!("data{number}"), content));
        }
        Self { nodes, next: FIRST_NEW, owner }
    }

    pub(super) fn find(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let is_it = |(inode, node): (&u64, &Node)| {
            (node.parent == parent && node.name == name && *inode != ROOT).then_some(*inode)
        };
        self.nodes.iter().find_map(is_it)
    }

    pub(super) fn name(&self, inode: u64) -> String {
        self.nodes.get(&inode).map(|node| node.name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(super) fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let node = self.nodes.get(&inode)?;
        let size = node.data.as_ref().map_or(0, Vec::len) as u64;
        let directory = node.data.is_none();
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o755 } else { 0o644 },
            nlink: 1,
            uid: self.owner,
            gid: self.owner,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// The entries of a directory after the first `skip`: inode, type, name.
    pub(super) fn list(&self, parent: u64, skip: usize) -> Vec<(u64, FileType, OsString)> {
        let dots =
            [(parent, FileType::Directory, OsString::from(".")), (ROOT, FileType::Directory, "..".into())];
        let entries = self.nodes.iter().filter(|(inode, node)| node.parent == parent && **inode != ROOT);
        let entries = entries.map(|(inode, node)| {
            let kind = if node.data.is_none() { FileType::Directory } else { FileType::RegularFile };
            (*inode, kind, node.name.clone())
        });
        dots.into_iter().chain(entries).skip(skip).collect()
    }

    pub(super) fn read(&self, inode: u64, offset: u64, size: u32) -> Option<Vec<u8>> {
        let data = self.nodes.get(&inode)?.data.as_ref()?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let end = start.saturating_add(size as usize).min(data.len());
        data.get(start..end).map(<[u8]>::to_vec)
    }

    /// Writes, and returns how much.
    pub(super) fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> Option<u32> {
        let data = self.nodes.get_mut(&inode)?.data.as_mut()?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(bytes.len())?;
        if data.len() < end {
            data.resize(end, 0);
        }
        data.get_mut(start..end)?.copy_from_slice(bytes);
        u32::try_from(bytes.len()).ok()
    }

    pub(super) fn resize(&mut self, inode: u64, size: u64) -> Option<()> {
        let data = self.nodes.get_mut(&inode)?.data.as_mut()?;
        data.resize(usize::try_from(size).ok()?, 0);
        Some(())
    }

    pub(super) fn create(&mut self, parent: u64, name: &OsStr) -> u64 {
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, Node { parent, name: name.to_owned(), data: Some(Vec::new()) });
        inode
    }

    /// Removes a name. The data stays for those who have it open.
    pub(super) fn unlink(&mut self, parent: u64, name: &OsStr) -> Option<()> {
        let inode = self.find(parent, name)?;
        self.nodes.get_mut(&inode)?.parent = NOWHERE;
        Some(())
    }
}
