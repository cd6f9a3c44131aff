//! Mount events of the kernel, in a private namespace. Skipped where the kernel has none.

use std::sync::Mutex;

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

/// `STATX_MNT_ID_UNIQUE`, since 6.8.
fn unique_id(place: &Path) -> u64 {
    let unique = StatxFlags::from_bits_retain(0x4000);
    rustix::fs::statx(rustix::fs::CWD, place, AtFlags::empty(), unique).unwrap().stx_mnt_id
}

type Told = Arc<Mutex<Vec<MountChange>>>;

/// Keeps what is told.
fn keeper() -> (Told, Box<dyn Fn(MountChange) + Send>) {
    let told = Told::default();
    let kept = Arc::clone(&told);
    (told, Box::new(move |change| kept.lock().unwrap().push(change)))
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
        if let SensorEvent::MountEventsDropped(count) = event {
            total += count;
        }
    }
    total
}

#[test]
fn every_attach_and_detach_names_the_mount() {
    let Some(namespace) = supported() else { return };
    let (told, tell) = keeper();
    let (sender, mut events) = channel(8);
    let (running, state) = MountEvents::start(&namespace.file, tell, sender);
    assert_eq!(state, SourceState::Running);
    let place = namespace.place("m");
    namespace.mount_tmpfs(&place);
    let id = unique_id(&place);
    wait_until(|| told.lock().unwrap().len() == 1);
    namespace.unmount(&place);
    wait_until(|| told.lock().unwrap().len() == 2);
    let change = MountChange::Mounts(vec![UniqueMountId(id)]);
    assert_eq!(*told.lock().unwrap(), [change.clone(), change]);
    drop(running.unwrap());
    assert_eq!(dropped(&mut events), 0);
}

#[test]
fn an_event_carries_the_unique_id_and_which_way_it_went() {
    let Some(namespace) = supported() else { return };
    let group = Group::for_mounts().unwrap();
    group.mark_namespace(File::open(&namespace.file).unwrap().as_fd()).unwrap();
    let place = namespace.place("m");
    namespace.mount_tmpfs(&place);
    let id = unique_id(&place);
    namespace.unmount(&place);
    let batch = group.read().unwrap();
    let masks: Vec<u64> = batch.events.iter().map(|event| event.mask).collect();
    assert_eq!(masks, [0x0100_0000, 0x0200_0000]);
    assert!(batch.events.iter().all(|event| event.mount == Some(UniqueMountId(id))));
    assert_eq!(batch.defect, None);
}

#[test]
fn lost_events_are_counted_and_told_as_lost() {
    let Some(namespace) = supported() else { return };
    let group = Group::for_mounts().unwrap();
    group.mark_namespace(File::open(&namespace.file).unwrap().as_fd()).unwrap();
    let place = namespace.place("m");
    // The queue holds 16384 events; nobody reads meanwhile.
    for _ in 0..8_200 {
        namespace.mount_bind(&place);
        namespace.unmount(&place);
    }
    let (told, tell) = keeper();
    let (sender, mut events) = channel(8);
    let wake = Arc::new(Wake::new().unwrap());
    let outbox = Outbox::new(sender, Arc::clone(&wake));
    let listener = Listener { group, tell, outbox, wake };
    let mut lost = 0;
    for _ in 0..32 {
        listener.read_once().unwrap();
        lost += dropped(&mut events);
    }
    assert_eq!(lost, 1);
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|change| **change == MountChange::Lost).count(), 1);
    assert!(told.len() >= 16_384 * 40 / (64 * 1024));
}

#[test]
fn a_namespace_that_cannot_be_opened_is_off_with_a_reason() {
    let (_, tell) = keeper();
    let (sender, _events) = channel(8);
    let (running, state) = MountEvents::start(Path::new("/proc/0/ns/mnt"), tell, sender);
    assert!(running.is_none());
    assert!(matches!(state, SourceState::Off(reason) if !reason.is_empty()));
}

#[test]
fn a_file_that_is_no_namespace_is_refused() {
    let (_, tell) = keeper();
    let (sender, _events) = channel(8);
    let (running, state) = MountEvents::start(Path::new("/proc/self/ns/net"), tell, sender);
    assert!(running.is_none());
    assert!(matches!(state, SourceState::Off(_)));
}
