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

/// One file of any type.
#[derive(Debug)]
struct Node {
    parent: u64,
    name: OsString,
    kind: FileType,
    /// Content, or the target of a symbolic link.
    data: Vec<u8>,
    permissions: u16,
    attributes: BTreeMap<OsString, Vec<u8>>,
}

impl Node {
    fn new(parent: u64, name: &OsStr, kind: FileType, data: Vec<u8>) -> Self {
        let permissions = if kind == FileType::Directory { 0o755 } else { 0o644 };
        Self { parent, name: name.to_owned(), kind, data, permissions, attributes: BTreeMap::new() }
    }
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
        let file = |parent, name: &str, data| Node::new(parent, name.as_ref(), FileType::RegularFile, data);
        let folder = |parent, name: &str| Node::new(parent, name.as_ref(), FileType::Directory, Vec::new());
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
        let size = node.data.len() as u64;
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: node.kind,
            perm: node.permissions,
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
        let entries = entries.map(|(inode, node)| (*inode, node.kind, node.name.clone()));
        dots.into_iter().chain(entries).skip(skip).collect()
    }

    pub(super) fn read(&self, inode: u64, offset: u64, size: u32) -> Option<Vec<u8>> {
        let data = self.file(inode)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let end = start.saturating_add(size as usize).min(data.len());
        data.get(start..end).map(<[u8]>::to_vec)
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, inode: u64) -> Option<&[u8]> {
        let node = self.nodes.get(&inode)?;
        (node.kind == FileType::Symlink).then_some(node.data.as_slice())
    }

    /// Writes, and returns how much.
    pub(super) fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> Option<u32> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(bytes.len())?;
        self.grow(inode, end)?;
        self.nodes.get_mut(&inode)?.data.get_mut(start..end)?.copy_from_slice(bytes);
        u32::try_from(bytes.len()).ok()
    }

    /// Makes a file at least so long.
    pub(super) fn grow(&mut self, inode: u64, size: usize) -> Option<()> {
        if self.file(inode)?.len() < size {
            self.nodes.get_mut(&inode)?.data.resize(size, 0);
        }
        Some(())
    }

    pub(super) fn resize(&mut self, inode: u64, size: u64) -> Option<()> {
        self.file(inode)?;
        self.nodes.get_mut(&inode)?.data.resize(usize::try_from(size).ok()?, 0);
        Some(())
    }

    pub(super) fn set_permissions(&mut self, inode: u64, mode: u32) -> Option<()> {
        self.nodes.get_mut(&inode)?.permissions = u16::try_from(mode & 0o7777).ok()?;
        Some(())
    }

    /// Makes a file of any type; `data` is its content or, of a symbolic link, its target.
    pub(super) fn create(&mut self, parent: u64, name: &OsStr, kind: FileType, data: Vec<u8>) -> u64 {
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, Node::new(parent, name, kind, data));
        inode
    }

    /// Removes a name. The data stays for those who have it open.
    pub(super) fn unlink(&mut self, parent: u64, name: &OsStr) -> Option<()> {
        let inode = self.find(parent, name)?;
        self.nodes.get_mut(&inode)?.parent = NOWHERE;
        Some(())
    }

    /// Gives a file another name. What had that name loses it.
    pub(super) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Option<()> {
        let inode = self.find(from.0, from.1)?;
        self.unlink(to.0, to.1);
        let node = self.nodes.get_mut(&inode)?;
        (node.parent, node.name) = (to.0, to.1.to_owned());
        Some(())
    }

    /// A second name. Each name has a copy of its own: nobody looks whether they are one file.
    pub(super) fn link(&mut self, inode: u64, parent: u64, name: &OsStr) -> Option<u64> {
        let data = self.file(inode)?.to_vec();
        Some(self.create(parent, name, FileType::RegularFile, data))
    }

    /// An extended attribute; `None` where the file has none of this name.
    pub(super) fn extended(&self, inode: u64, name: &OsStr) -> Option<&[u8]> {
        self.nodes.get(&inode)?.attributes.get(name).map(Vec::as_slice)
    }

    /// The names of all extended attributes, each with a zero at its end.
    pub(super) fn extended_names(&self, inode: u64) -> Vec<u8> {
        let names = self.nodes.get(&inode).into_iter().flat_map(|node| node.attributes.keys());
        names.flat_map(|name| [name.as_encoded_bytes(), b"\0"].concat()).collect()
    }

    /// Sets an extended attribute, or removes it. `None` where there is nothing to remove.
    pub(super) fn set_extended(&mut self, inode: u64, name: &OsStr, value: Option<&[u8]>) -> Option<()> {
        let attributes = &mut self.nodes.get_mut(&inode)?.attributes;
        match value {
            Some(value) => {
                attributes.insert(name.to_owned(), value.to_vec());
                Some(())
            }
            None => attributes.remove(name).map(drop),
        }
    }

    fn file(&self, inode: u64) -> Option<&[u8]> {
        let node = self.nodes.get(&inode)?;
        (node.kind != FileType::Directory).then_some(node.data.as_slice())
    }
}
