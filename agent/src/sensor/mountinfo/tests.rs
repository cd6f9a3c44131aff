//! The watcher's thread: on doubles that count what is read, and on the kernel in a private namespace.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use agent_core::path::BytePath;
use agent_core::time::Monotonic;
use agent_core::topology::MountTable;
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::sensor::private_namespace::PrivateNamespace;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for an event that passes the test.
fn wait_for<T>(events: &mut Receiver<SensorEvent>, mut wanted: impl FnMut(SensorEvent) -> Option<T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(found) = wanted(events.recv().await.expect("the watcher lives")) {
                    return found;
                }
            }
        })
        .await
        .expect("the event comes in time")
    })
}

fn next_table(events: &mut Receiver<SensorEvent>) -> MountTable {
    wait_for(events, |event| match event {
        SensorEvent::Table(table) => Some(table),
        _ => None,
    })
}

fn next_scan(events: &mut Receiver<SensorEvent>) -> ScanStats {
    wait_for(events, |event| match event {
        SensorEvent::Scan(stats) => Some(stats),
        _ => None,
    })
}

fn next_state(events: &mut Receiver<SensorEvent>) -> SourceState {
    wait_for(events, |event| match event {
        SensorEvent::Source(SourceName::Mountinfo, state) => Some(state),
        _ => None,
    })
}

/// A table in memory; an error while `text` is empty. Reading it takes processor time as told.
#[derive(Clone, Default)]
struct Double {
    text: Arc<Mutex<Vec<u8>>>,
    readings: Arc<AtomicU32>,
    cost: Duration,
}

impl Double {
    fn set(&self, text: &str) {
        *self.text.lock().unwrap() = text.as_bytes().to_vec();
    }
}

impl TableSource for Double {
    fn read(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let used = clock::thread_processor_time();
        while clock::thread_processor_time().saturating_sub(used) < self.cost {}
        self.readings.fetch_add(1, Ordering::SeqCst);
        let text = self.text.lock().unwrap();
        if text.is_empty() {
            return Err(io::Error::from_raw_os_error(nix::errno::Errno::ENOMEM as i32));
        }
        piece(&text);
        Ok(())
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_scan_is_reported_also_when_nothing_changed() {
    let double = Double::default();
    double.set("1 1 0:1 / / rw - tmpfs t rw\nbroken\n");
    let (sender, mut events) = channel(64);
    let handle = start_with(double.clone(), 100, sender).unwrap();
    assert_eq!(next_state(&mut events), SourceState::Running);
    assert_eq!(next_table(&mut events).mounts().len(), 1);
    assert_eq!(next_scan(&mut events).bad_lines, 1);
    handle.rescan();
    let mut tables = 0;
    let stats = wait_for(&mut events, |event| match event {
        SensorEvent::Scan(stats) => Some(stats),
        SensorEvent::Table(_) => {
            tables += 1;
            None
        }
        _ => None,
    });
    assert_eq!((tables, stats.entries, stats.bad_lines), (0, 1, 1));
}

#[test]
fn a_table_that_cannot_be_read_is_off_once_and_comes_back() {
    let double = Double::default();
    let (sender, mut events) = channel(64);
    let handle = start_with(double.clone(), 10, sender).unwrap();
    let SourceState::Off(reason) = next_state(&mut events) else { panic!("it cannot run") };
    assert!(reason.starts_with("cannot read the mount table: "), "{reason}");
    handle.rescan();
    double.set("1 1 0:1 / / rw - tmpfs t rw\n");
    assert_eq!(next_state(&mut events), SourceState::Running);
    assert_eq!(next_table(&mut events).mounts().len(), 1);
    handle.stop();
}

#[test]
fn a_storm_of_requests_keeps_its_share_and_serves_the_last_one() {
    let double = Double { cost: Duration::from_millis(4), ..Double::default() };
    double.set("1 1 0:1 / / rw - tmpfs t rw\n");
    let (sender, mut events) = channel(4096);
    let handle = start_with(double.clone(), 10, sender).unwrap();
    next_table(&mut events);
    let rescan = handle.rescanner();
    let (started, first) = (clock::now(), double.readings.load(Ordering::SeqCst));
    let until = |end: Duration| clock::now().since(started) < end;
    while until(Duration::from_secs(1)) {
        rescan();
        std::thread::yield_now();
    }
    // 100 ms of a second at 4 ms each, and the one that the share allows in advance.
    let made = double.readings.load(Ordering::SeqCst) - first;
    assert!((1..=26).contains(&made), "{made}");
    double.set("1 1 0:1 / / rw - tmpfs t rw\n2 1 0:2 / /last rw - tmpfs t rw\n");
    rescan();
    assert!(next_table(&mut events).top_at(&BytePath::from("/last")).is_some());
}

#[test]
fn a_watcher_whose_listener_is_slow_ends_at_once() {
    let double = Double::default();
    double.set("1 1 0:1 / / rw - tmpfs t rw\n");
    let (sender, _events) = channel(1);
    let handle = start_with(double, 100, sender).unwrap();
    let started: Monotonic = clock::now();
    handle.stop();
    assert!(clock::now().since(started) < Duration::from_secs(1));
}

#[test]
fn mounts_and_unmounts_are_seen_by_themselves_and_odd_bytes_are_exact() {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let Some(namespace) = PrivateNamespace::enter() else { return };
    let (sender, mut events) = channel(64);
    let handle = start(Settings::new(namespace.mountinfo.clone()), sender).unwrap();
    let name = std::ffi::OsString::from_vec(b"caf\xe9 - #\\040\n,x".to_vec());
    let place = namespace.directory().join(&name);
    std::fs::create_dir(&place).unwrap();
    let path = BytePath::new(place.as_os_str().as_bytes());
    assert!(next_table(&mut events).top_at(&path).is_none());
    next_scan(&mut events);

    nix::mount::mount(Some(""), &place, Some("tmpfs"), nix::mount::MsFlags::MS_NOSUID, Some("size=64k"))
        .unwrap();
    let table = next_table(&mut events);
    let mount = table.top_at(&path).expect("the new mount is listed under its exact path");
    assert!(mount.fstype == "tmpfs" && mount.source.is_empty() && mount.options.has("nosuid"));
    assert!(mount.super_options.has("size=64k"));
    let stats = next_scan(&mut events);
    assert_eq!((stats.entries, stats.bad_lines), (table.mounts().len(), 0));

    namespace.unmount(&place);
    assert!(next_table(&mut events).top_at(&path).is_none());
    handle.stop();
}

#[test]
fn under_churn_no_standing_mount_is_ever_lost_and_the_last_change_is_seen() {
    let Some(namespace) = PrivateNamespace::enter() else { return };
    let standing: Vec<BytePath> = (0..200)
        .map(|number| {
            let place = namespace.place(&format!("standing{number}"));
            namespace.mount_tmpfs(&place);
            BytePath::from(place.to_str().unwrap())
        })
        .collect();
    let (sender, mut events) = channel(64);
    let handle = start(Settings::new(namespace.mountinfo.clone()), sender).unwrap();
    let place = namespace.place("churn");
    let started = clock::now();
    let mut tables = 0_u32;
    // At least two seconds of churn; on a busy machine as long as it takes to see some of it.
    let goes_on = |tables: u32| {
        let passed = clock::now().since(started);
        passed < Duration::from_secs(2) || tables <= 2 && passed < Duration::from_secs(60)
    };
    while goes_on(tables) {
        namespace.mount_tmpfs(&place);
        namespace.unmount(&place);
        while let Ok(event) = events.try_recv() {
            let SensorEvent::Table(table) = event else { continue };
            tables += 1;
            let paths: std::collections::BTreeSet<&BytePath> =
                table.mounts().iter().map(|mount| &mount.mountpoint).collect();
            assert!(standing.iter().all(|path| paths.contains(path)));
        }
    }
    assert!(tables > 2, "{tables}");
    namespace.mount_tmpfs(&namespace.place("last"));
    let last = BytePath::from(namespace.directory().join("last").to_str().unwrap());
    wait_for(&mut events, |event| match event {
        SensorEvent::Table(table) => table.top_at(&last).map(|_| ()),
        _ => None,
    });
    handle.stop();
}
