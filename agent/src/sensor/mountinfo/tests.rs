//! The watcher's thread: on doubles that count what is read, and on the kernel in a private namespace.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use agent_core::path::BytePath;
use agent_core::time::Monotonic;
use agent_core::topology::MountTable;
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::sensor::fanotify::MountEvents;
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
    drop(handle);
}

#[test]
fn a_storm_of_requests_keeps_its_share_and_serves_the_last_one() {
    let double = Double { cost: Duration::from_millis(4), ..Double::default() };
    double.set("1 1 0:1 / / rw - tmpfs t rw\n");
    let (sender, mut events) = channel(4096);
    let handle = start_with(double.clone(), 10, sender).unwrap();
    next_table(&mut events);
    let rescan = || handle.rescan();
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
    drop(handle);
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
    drop(handle);
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
    let shown = BytePath::from(place.to_str().unwrap());
    while clock::now().since(started) < Duration::from_secs(2) || tables <= 2 {
        namespace.mount_tmpfs(&place);
        // A mount that is gone at once may never be seen: the first ones stay until they are.
        if tables <= 2 {
            wait_for(&mut events, |event| match event {
                SensorEvent::Table(table) => table.top_at(&shown).map(|_| ()),
                _ => None,
            });
            tables += 1;
        }
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
    drop(handle);
}

/// A watcher with mount events in a private namespace; `None` where the kernel has no calls or no events.
struct WithEvents {
    namespace: PrivateNamespace,
    handle: Handle,
    events: Receiver<SensorEvent>,
    _listener: MountEvents,
}

impl WithEvents {
    fn start() -> Option<Self> {
        let namespace = PrivateNamespace::enter()?;
        let (sender, mut events) = channel(64);
        let handle = start(Settings::new(namespace.mountinfo.clone()), sender.clone()).unwrap();
        let state = wait_for(&mut events, |event| match event {
            SensorEvent::Source(SourceName::Listmount, state) => Some(state),
            _ => None,
        });
        next_table(&mut events);
        let (listener, has_events) = MountEvents::start(&namespace.file, Box::new(handle.changes()), sender);
        let (SourceState::Running, Some(listener)) = (&state, listener) else {
            eprintln!("skipped: {state:?}, {has_events:?}");
            return None;
        };
        handle.has_events();
        // The last scan without events, so that what follows is their work.
        next_scan(&mut events);
        Some(Self { namespace, handle, events, _listener: listener })
    }

    /// Waits for a table with exactly these paths below the directory of the test.
    fn expect(&mut self, wanted: &[&str]) -> MountTable {
        let directory = self.namespace.directory().to_owned();
        wait_for(&mut self.events, |event| {
            let SensorEvent::Table(table) = event else { return None };
            let below = |mount: &std::sync::Arc<agent_core::topology::Mount>| {
                let path = mount.mountpoint.to_string();
                Some(path.strip_prefix(directory.to_str()?)?.trim_start_matches('/').to_owned())
            };
            let mut paths: Vec<String> = table.mounts().iter().filter_map(below).collect();
            paths.sort();
            (paths == wanted).then_some(table)
        })
    }
}

#[test]
fn events_bring_moves_and_trees_with_all_that_is_below() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let Some(mut watcher) = WithEvents::start() else { return };
    let (a, x, y) =
        (watcher.namespace.place("a"), watcher.namespace.place("x"), watcher.namespace.place("y"));
    watcher.namespace.mount_tmpfs(&a);
    std::fs::create_dir(a.join("b")).unwrap();
    watcher.namespace.mount_tmpfs(&a.join("b"));
    let table = watcher.expect(&["a", "a/b"]);
    assert!(table.mounts().iter().all(|mount| mount.unique.is_some()));
    let none = None::<&str>;
    mount(Some(&a), &x, none, MsFlags::MS_MOVE, none).unwrap();
    watcher.expect(&["x", "x/b"]);
    mount(Some(&x), &y, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).unwrap();
    watcher.expect(&["x", "x/b", "y", "y/b"]);
    umount2(&x, MntFlags::MNT_DETACH).unwrap();
    watcher.expect(&["y", "y/b"]);
    drop(watcher.handle);
}

#[test]
fn a_remount_of_a_volume_sends_no_event_and_is_seen_all_the_same() {
    use nix::mount::{MsFlags, mount};
    let Some(mut watcher) = WithEvents::start() else { return };
    let place = watcher.namespace.place("v");
    watcher.namespace.mount_tmpfs(&place);
    let table = watcher.expect(&["v"]);
    let path = BytePath::from(place.to_str().unwrap());
    let volume = table.top_at(&path).unwrap().unique.unwrap();
    watcher.handle.watch([volume].into());
    let none = None::<&str>;
    mount(none, &place, none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, Some("size=128k")).unwrap();
    let table = watcher.expect(&["v"]);
    let mount = table.top_at(&path).unwrap();
    assert!(mount.super_options.has("ro") && mount.super_options.has("size=128k"));
    drop(watcher.handle);
}

#[test]
fn a_namespace_without_an_id_falls_back_to_the_text_and_says_so() {
    let (sender, mut events) = channel(64);
    let settings = Settings {
        namespace: Some(PathBuf::from("/proc/0/ns/mnt")),
        ..Settings::new(PathBuf::from("/proc/self/mountinfo"))
    };
    let handle = start(settings, sender).unwrap();
    let state = wait_for(&mut events, |event| match event {
        SensorEvent::Source(SourceName::Listmount, state) => Some(state),
        _ => None,
    });
    assert!(matches!(state, SourceState::Off(why) if why.contains("no id to ask for")));
    assert_eq!(next_state(&mut events), SourceState::Running);
    assert!(next_table(&mut events).mounts().iter().all(|mount| mount.unique.is_none()));
    drop(handle);
}

#[test]
fn a_remount_is_heard_half_a_second_after_the_last_refresh_however_dear_that_was() {
    let at = |millis: u64| Monotonic::from_nanos(millis * 1_000_000);
    assert_eq!(deaf_for(at(1000), at(1000)), REFRESH / 2);
    assert_eq!(deaf_for(at(1000), at(1400)), Duration::from_millis(100));
    assert_eq!(deaf_for(at(1000), at(1500)), Duration::ZERO);
    assert_eq!(deaf_for(at(1000), at(9000)), Duration::ZERO);
}
