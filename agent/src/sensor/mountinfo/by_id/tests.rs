//! The reader against a kernel that counts what it is asked, and against the one that runs this.

use std::sync::Mutex;

use agent_core::id::SuperblockId;
use agent_core::path::BytePath;
use agent_core::topology::{Options, Propagation};
use nix::mount::{MsFlags, mount};

use super::*;
use crate::sensor::private_namespace::PrivateNamespace;
use crate::sys::mountinfo::parse_table;

/// Mounts in memory. A clone is the same kernel.
#[derive(Clone, Default)]
struct Double {
    mounts: Arc<Mutex<BTreeMap<u64, Mount>>>,
    asked: Arc<Mutex<Vec<u64>>>,
}

impl Double {
    fn with(count: u32) -> Self {
        let double = Self::default();
        for id in 1..=count {
            double.set(line(id, 1.min(id - 1), &format!("/m/{id}")));
        }
        double
    }

    fn set(&self, mount: Mount) {
        self.mounts.lock().unwrap().insert(mount.unique.unwrap(), mount);
    }

    fn remove(&self, id: u64) {
        self.mounts.lock().unwrap().remove(&id);
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Mounts for Double {
    fn list(&mut self) -> Result<Vec<u64>, Errno> {
        Ok(self.mounts.lock().unwrap().keys().copied().collect())
    }

    fn get(&mut self, id: u64) -> Result<Option<Mount>, StatError> {
        self.asked.lock().unwrap().push(id);
        Ok(self.mounts.lock().unwrap().get(&id).cloned())
    }
}

fn line(id: u32, parent: u32, path: &str) -> Mount {
    Mount {
        id: MountId(id),
        unique: Some(u64::from(id)),
        parent: MountId(parent),
        superblock: SuperblockId { major: 0, minor: id },
        root: BytePath::from("/"),
        mountpoint: BytePath::from(path),
        options: Options::parse(b"rw"),
        propagation: Propagation::default(),
        fstype: "tmpfs".into(),
        source: b"x".to_vec(),
        super_options: Options::parse(b"rw"),
    }
}

fn read(double: &Double) -> ById {
    let mut by_id = ById::new(Box::new(double.clone()));
    assert!(by_id.read().unwrap());
    double.asked();
    by_id
}

fn paths(by_id: &ById) -> Vec<String> {
    by_id.table().mounts().iter().map(|mount| mount.mountpoint.to_string()).collect()
}

#[test]
fn a_change_among_ten_thousand_costs_one_question() {
    let double = Double::with(10_000);
    let mut by_id = read(&double);
    double.set(line(10_001, 1, "/new"));
    double.remove(77);
    assert!(by_id.patch(&[10_001, 77].into()).unwrap());
    assert_eq!(double.asked(), [77, 10_001]);
    assert_eq!(by_id.entries(), 10_000);
    assert!(!by_id.patch(&[10_001, 77].into()).unwrap(), "nothing is news twice");
}

#[test]
fn a_moved_mount_takes_everything_below_it_along() {
    let double = Double::default();
    for mount in
        [line(1, 0, "/"), line(2, 1, "/a"), line(3, 2, "/a/b"), line(4, 3, "/a/b/c"), line(5, 1, "/z")]
    {
        double.set(mount);
    }
    let mut by_id = read(&double);
    for mount in [line(2, 1, "/x"), line(3, 2, "/x/b"), line(4, 3, "/x/b/c")] {
        double.set(mount);
    }
    assert!(by_id.patch(&[2].into()).unwrap());
    assert_eq!(double.asked(), [2, 3, 4]);
    assert_eq!(paths(&by_id), ["/", "/x", "/x/b", "/x/b/c", "/z"]);
}

#[test]
fn a_mount_that_is_slid_beneath_another_becomes_its_parent() {
    let double = Double::default();
    for mount in [line(1, 0, "/"), line(2, 1, "/a"), line(3, 2, "/a/b"), line(5, 1, "/z")] {
        double.set(mount);
    }
    let mut by_id = read(&double);
    let parent = |by_id: &ById, id: u64| by_id.known[&id].parent;
    double.set(line(9, 1, "/a"));
    double.set(line(2, 9, "/a"));
    assert!(by_id.patch(&[9].into()).unwrap());
    assert_eq!(double.asked(), [9, 2]);
    assert_eq!(parent(&by_id, 2), MountId(9));
    // And back, when it goes away from under it.
    double.remove(9);
    double.set(line(2, 1, "/a"));
    assert!(by_id.patch(&[9].into()).unwrap());
    assert_eq!(double.asked(), [9, 2]);
    assert_eq!(parent(&by_id, 2), MountId(1));
}

#[test]
fn a_refresh_asks_for_volumes_and_finds_what_no_event_told() {
    let double = Double::with(100);
    let mut by_id = read(&double);
    assert!(!by_id.refresh(&[7, 8].into()).unwrap());
    assert_eq!(double.asked(), [7, 8]);
    let mut changed = line(7, 1, "/m/7");
    changed.super_options = Options::parse(b"rw,emergency_ro");
    double.set(changed);
    double.set(line(200, 1, "/new"));
    double.remove(50);
    assert!(by_id.refresh(&[7, 8].into()).unwrap());
    assert_eq!(double.asked(), [7, 8, 200]);
    assert_eq!(by_id.entries(), 100);
    assert!(by_id.table().mounts()[6].super_options.has("emergency_ro"));
}

#[test]
fn a_kernel_that_tells_no_source_is_not_believed() {
    let double = Double::with(3);
    for id in 1..=3 {
        double.set(Mount { source: Vec::new(), ..line(id, 1.min(id - 1), "/x") });
    }
    assert_eq!(ById::new(Box::new(double)).read(), Err(ByIdError::NoSources));
}

#[test]
fn a_disagreement_with_mountinfo_is_named_and_a_change_meanwhile_is_none() {
    let double = Double::with(3);
    let by_id = read(&double);
    let text = |mounts: &[Mount]| {
        MountTable::new(mounts.iter().map(|mount| Mount { unique: None, ..mount.clone() }).collect())
    };
    let all: Vec<Mount> = double.mounts.lock().unwrap().values().cloned().collect();
    by_id.agrees(&text(&all), &text(&all)).unwrap();
    // One came and one went between the readings.
    let more = [all.clone(), vec![line(9, 1, "/m/9")]].concat();
    by_id.agrees(&text(&more), &text(&all)).unwrap();
    by_id.agrees(&text(&all[..2]), &text(&all)).unwrap();
    // A field that is told differently, a mount that is not told, and one that is not there.
    let mut odd = all.clone();
    odd[1].source = b"y".to_vec();
    let error = by_id.agrees(&text(&odd), &text(&odd)).unwrap_err();
    assert_eq!(error.to_string(), "listmount and mountinfo disagree about /m/2");
    assert!(by_id.agrees(&text(&more), &text(&more)).is_err());
    assert!(by_id.agrees(&text(&all[..2]), &text(&all[..2])).is_err());
}

/// Mounts that have broken readers: each is a directory to mount on and how.
fn odd_mounts(namespace: &PrivateNamespace) {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStringExt;
    let tmpfs = |place: &std::path::Path, source: &OsStr, flags, data: &str| {
        mount(Some(source), place, Some("tmpfs"), flags, Some(data)).unwrap();
    };
    let plain = MsFlags::empty();
    let place = namespace.directory().join(OsString::from_vec(b"caf\xe9 - #\\040\n\t,x".to_vec()));
    std::fs::create_dir(&place).unwrap();
    tmpfs(&place, OsStr::new(""), MsFlags::MS_NOSUID | MsFlags::MS_NODIRATIME, "size=64k,mode=700");
    tmpfs(&namespace.place("odd-source"), &OsString::from_vec(b"a b\\c\xb1#\n-".to_vec()), plain, "size=64k");
    tmpfs(&namespace.place("none"), OsStr::new("none"), MsFlags::MS_RDONLY | MsFlags::MS_NOATIME, "");
    let flags =
        MsFlags::MS_SYNCHRONOUS | MsFlags::MS_DIRSYNC | MsFlags::MS_LAZYTIME | MsFlags::MS_STRICTATIME;
    tmpfs(&namespace.place("flags"), OsStr::new("f"), flags | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC, "");
    // A stack, a bind of a directory, one whose root was removed, and a bind with options of its own.
    let stack = namespace.place("stack");
    tmpfs(&stack, OsStr::new("lower"), plain, "");
    tmpfs(&stack, OsStr::new("upper"), plain, "");
    let (inside, bound) = (stack.join("in side"), namespace.place("bound"));
    std::fs::create_dir(&inside).unwrap();
    let none = None::<&str>;
    mount(Some(&inside), &bound, none, MsFlags::MS_BIND, none).unwrap();
    std::fs::remove_dir(&inside).unwrap();
    let readonly = namespace.place("readonly");
    mount(Some(&stack), &readonly, none, MsFlags::MS_BIND, none).unwrap();
    mount(none, &readonly, none, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
    // Propagation: shared, a slave of it, both at once, unbindable.
    for (name, kinds) in [
        ("shared", &[MsFlags::MS_SHARED][..]),
        ("slave", &[MsFlags::MS_SHARED, MsFlags::MS_SLAVE]),
        ("both", &[MsFlags::MS_SHARED, MsFlags::MS_SLAVE, MsFlags::MS_SHARED]),
        ("unbindable", &[MsFlags::MS_UNBINDABLE]),
    ] {
        let (place, other) = (namespace.place(name), namespace.place(&format!("{name}-2")));
        tmpfs(&place, OsStr::new(name), plain, "");
        let Some((first, further)) = kinds.split_first() else { continue };
        mount(none, &place, none, *first, none).unwrap();
        if !further.is_empty() {
            mount(Some(&place), &other, none, MsFlags::MS_BIND, none).unwrap();
        }
        for kind in further {
            mount(none, &other, none, *kind, none).unwrap();
        }
    }
    more_types(namespace);
}

/// File systems that print options of their own, as far as the kernel has them.
fn more_types(namespace: &PrivateNamespace) {
    let none = None::<&str>;
    for fstype in ["proc", "sysfs", "cgroup2", "devpts", "mqueue"] {
        let place = namespace.place(fstype);
        if let Err(errno) = mount(Some("kind"), &place, Some(fstype), MsFlags::empty(), none) {
            eprintln!("not compared: {fstype}: {errno}");
        }
    }
    let layers = namespace.place("layers");
    namespace.mount_tmpfs(&layers);
    for name in ["lower,with comma", "lower two", "upper", "work"] {
        std::fs::create_dir(layers.join(name)).unwrap();
    }
    let layers = layers.display();
    let options = format!(
        "lowerdir={layers}/lower\\,with comma:{layers}/lower two,upperdir={layers}/upper,workdir={layers}/work"
    );
    let overlay = namespace.place("overlay");
    if let Err(errno) = mount(Some("over lay"), &overlay, Some("overlay"), MsFlags::empty(), Some(&*options))
    {
        eprintln!("not compared: overlay: {errno}");
    }
    // A FUSE mount whose daemon never speaks still has its line.
    let Ok(device) = std::fs::File::options().read(true).write(true).open("/dev/fuse") else { return };
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&device);
    let options = format!("fd={descriptor},rootmode=40000,user_id=0,group_id=0,allow_other,subtype=od d.fs");
    let place = namespace.place("fuse");
    match mount(Some("user@host:/a b"), &place, Some("fuse"), MsFlags::empty(), Some(&*options)) {
        // The line stays after the connection ends with the descriptor.
        Ok(()) => drop(device),
        Err(errno) => eprintln!("not compared: fuse: {errno}"),
    }
}

#[test]
fn both_readers_give_the_same_lines_for_odd_mounts() {
    let Some(namespace) = PrivateNamespace::enter() else { return };
    let mut by_id = ById::new(Box::new(MountCalls::own()));
    if let Err(error @ (ByIdError::List(_) | ByIdError::Stat(_) | ByIdError::NoSources)) = by_id.read() {
        eprintln!("skipped: {error}");
        return;
    }
    odd_mounts(&namespace);
    by_id.read().unwrap();
    let listed = parse_table(&std::fs::read(&namespace.mountinfo).unwrap());
    assert_eq!(listed.bad_lines, 0);
    let told: Vec<Mount> =
        by_id.table().mounts().iter().map(|mount| Mount { unique: None, ..(**mount).clone() }).collect();
    for (told, listed) in told.iter().zip(&listed.mounts) {
        assert_eq!(told, listed);
    }
    assert_eq!(told.len(), listed.mounts.len());
    assert!(told.len() > 20);
    // The same as seen from outside, by the file of the namespace.
    let mut outside = ById::new(Box::new(MountCalls::of(&namespace.file).unwrap()));
    outside.read().unwrap();
    assert_eq!(outside.table(), by_id.table());
}
