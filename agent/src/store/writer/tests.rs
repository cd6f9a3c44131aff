//! What is handed over gets to the disk, the newest of each volume, and failures are counted and made good.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use agent_core::path::BytePath;

use super::*;
use crate::store::disk::Disk;

fn memory(volume: &str, failed: u32) -> Memory {
    Memory {
        volume: VolumeId::new(volume),
        mountpoint: BytePath::from("/mnt/v"),
        named: true,
        known: None,
        learnt: None,
        trouble: None,
        falls: Vec::new(),
        attempts: Vec::new(),
        failed,
        ended: None,
        not_before: None,
        asked: None,
        asked_of_consumers: None,
        was_readable: true,
        was_written: true,
        sentinel_read: Some(BytePath::from(".mountie")),
        put_back: true,
        left: Vec::new(),
        mount: None,
    }
}

fn start(dir: &Path) -> (Writer, Arc<AtomicU64>) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).expect("mode");
    let failures = Arc::new(AtomicU64::new(0));
    let (writer, shelves) = Writer::new(Arc::clone(&failures));
    shelves.send(Shelf::open(&Disk::default(), dir, false).0).expect("a writer");
    (writer, failures)
}

fn failed(dir: &Path) -> Vec<u32> {
    Shelf::open(&Disk::default(), dir, false).1.iter().map(|memory| memory.failed).collect()
}

#[tokio::test]
async fn the_newest_of_each_volume_is_on_disk_when_that_is_said() {
    let dir = tempfile::tempdir().expect("directory");
    let (writer, failures) = start(dir.path());
    for number in 0..500 {
        writer.put(VolumeId::new("a"), Some(memory("a", number)));
    }
    writer.put(VolumeId::new("b"), Some(memory("b", 7)));
    assert!(writer.done().await);
    assert_eq!(failed(dir.path()), [499, 7]);
    writer.put(VolumeId::new("a"), None);
    assert!(writer.done().await);
    assert_eq!((failed(dir.path()), failures.load(Ordering::Relaxed)), (vec![7], 0));
}

#[tokio::test]
async fn what_could_not_be_written_is_counted_kept_in_memory_and_written_later() {
    let dir = tempfile::tempdir().expect("directory");
    let folder = dir.path().join("volumes");
    let (writer, failures) = start(dir.path());
    // Something else is in the way, as on a disk that went away.
    fs::remove_dir(&folder).expect("remove");
    fs::write(&folder, "").expect("write");
    writer.put(VolumeId::new("a"), Some(memory("a", 1)));
    assert!(!writer.done().await);
    assert!(failures.load(Ordering::Relaxed) > 0);
    fs::remove_file(&folder).expect("remove");
    // Nothing new is handed over: asking is enough.
    assert!(writer.done().await);
    assert_eq!(failed(dir.path()), [1]);
}

#[tokio::test]
async fn without_a_shelf_nobody_waits_for_ever() {
    let (writer, shelves) = Writer::new(Arc::default());
    drop(shelves);
    writer.put(VolumeId::new("a"), Some(memory("a", 1)));
    assert!(!writer.done().await);
}
