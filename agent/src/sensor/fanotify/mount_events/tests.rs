//! Mount events of the kernel, in a private namespace. Skipped where the kernel has none.

use std::sync::atomic::{AtomicU32, Ordering};

use agent_core::id::UniqueMountId;
use rustix::fs::{AtFlags, StatxFlags};
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::sensor::private_namespace::PrivateNamespace;
use crate::sys::clock;

/// A namespace on a kernel with mount events; otherwise the reason is printed.
fn supported() -> Option<PrivateNamespace> {
    let namespace = PrivateNamespace::enter()?;
    if let Err(errno) = Group::for_mounts() {
        eprintln!("skipped: {}", reason(errno, SINCE));
        return None;
    }
    Some(namespace)
}

fn counter() -> (Arc<AtomicU32>, Box<dyn Fn() + Send>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    (
        calls,
        Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }),
    )
}

fn wait_until(condition: impl Fn() -> bool) {
    let started = clock::now();
    while !condition() {
        assert!(clock::now().since(started) < Duration::from_secs(10), "it happens in time");
        std::thread::yield_now();
    }
}

fn dropped(events: &mut Receiver<SensorEvent>) -> u64 {
    let mut total = 0;
    while let Ok(event) = events.try_recv() {
        if let SensorEvent::Dropped { mount_events, .. } = event {
            total += mount_events;
        }
    }
    total
}

#[test]
fn every_attach_and_detach_asks_for_a_scan() {
    let Some(namespace) = supported() else { return };
    let (calls, rescan) = counter();
    let (sender, mut events) = channel(8);
    let (running, state) = MountEvents::start(&namespace.file, rescan, sender);
    assert_eq!(state, SourceState::Running);
    let place = namespace.place("m");
    namespace.mount_tmpfs(&place);
    wait_until(|| calls.load(Ordering::SeqCst) == 1);
    namespace.unmount(&place);
    wait_until(|| calls.load(Ordering::SeqCst) == 2);
    running.unwrap().stop();
    assert_eq!(dropped(&mut events), 0);
}

#[test]
fn an_event_carries_the_unique_id_and_which_way_it_went() {
    let Some(namespace) = supported() else { return };
    let group = Group::for_mounts().unwrap();
    group.mark_namespace(File::open(&namespace.file).unwrap().as_fd()).unwrap();
    let place = namespace.place("m");
    namespace.mount_tmpfs(&place);
    // STATX_MNT_ID_UNIQUE, since 6.8.
    let unique = StatxFlags::from_bits_retain(0x4000);
    let id = rustix::fs::statx(rustix::fs::CWD, &place, AtFlags::empty(), unique).unwrap().stx_mnt_id;
    namespace.unmount(&place);
    let batch = group.read().unwrap();
    let masks: Vec<u64> = batch.events.iter().map(|event| event.mask).collect();
    assert_eq!(masks, [0x0100_0000, 0x0200_0000]);
    assert!(batch.events.iter().all(|event| event.mount == Some(UniqueMountId(id))));
    assert_eq!(batch.defect, None);
}

#[test]
fn lost_events_are_counted_and_ask_for_a_scan() {
    let Some(namespace) = supported() else { return };
    let group = Group::for_mounts().unwrap();
    group.mark_namespace(File::open(&namespace.file).unwrap().as_fd()).unwrap();
    let place = namespace.place("m");
    // The queue holds 16384 events; nobody reads meanwhile.
    for _ in 0..8_200 {
        namespace.mount_bind(&place);
        namespace.unmount(&place);
    }
    let (calls, rescan) = counter();
    let (sender, mut events) = channel(8);
    let wake = Arc::new(Wake::new().unwrap());
    let outbox = Outbox::new(sender, Arc::clone(&wake));
    let listener = Listener { group, rescan, outbox, wake };
    let mut lost = 0;
    for _ in 0..32 {
        listener.read_once().unwrap();
        lost += dropped(&mut events);
    }
    assert_eq!(lost, 1);
    assert!(calls.load(Ordering::SeqCst) >= 16_384 * 40 / (64 * 1024));
}

#[test]
fn a_namespace_that_cannot_be_opened_is_off_with_a_reason() {
    let (_, rescan) = counter();
    let (sender, _events) = channel(8);
    let (running, state) = MountEvents::start(Path::new("/proc/0/ns/mnt"), rescan, sender);
    assert!(running.is_none());
    assert!(matches!(state, SourceState::Off(reason) if !reason.is_empty()));
}

#[test]
fn a_file_that_is_no_namespace_is_refused() {
    let (_, rescan) = counter();
    let (sender, _events) = channel(8);
    let (running, state) = MountEvents::start(Path::new("/proc/self/ns/net"), rescan, sender);
    assert!(running.is_none());
    assert!(matches!(state, SourceState::Off(_)));
}
