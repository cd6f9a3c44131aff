//! Ends of real processes, seen through a stand-in for their directories in procfs.

use std::process::{Command, Stdio};

use super::*;

/// A stand-in for `/proc` with one process in it that holds the device for one connection. The number is that of a
/// real process, so that its end is a real one.
fn proc_with(process: u32, connection: Option<u32>) -> tempfile::TempDir {
    let proc = tempfile::tempdir().unwrap();
    let directory = proc.path().join(process.to_string());
    for folder in ["fd", "fdinfo"] {
        std::fs::create_dir_all(directory.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("/dev/fuse", directory.join("fd/5")).unwrap();
    let line = connection.map(|number| format!("fuse_connection:\t{number}\n")).unwrap_or_default();
    std::fs::write(directory.join("fdinfo/5"), format!("pos:\t0\n{line}")).unwrap();
    proc
}

#[test]
fn the_unit_of_a_daemon_is_told_and_kept_unless_it_is_the_agents_own() {
    let mut daemon = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let proc = proc_with(daemon.id(), Some(39));
    let cgroup = proc.path().join(daemon.id().to_string()).join("cgroup");
    std::fs::create_dir(proc.path().join("self")).unwrap();
    std::fs::write(proc.path().join("self/cgroup"), "0::/system.slice/mountie.service\n").unwrap();
    let tracked = BTreeSet::from([superblock(39)]);
    for (unit, told) in [("sshfs.service", Some("sshfs.service")), ("mountie.service", None)] {
        std::fs::write(&cgroup, format!("0::/system.slice/{unit}\n")).unwrap();
        let mut holders = Holders::new(proc.path().to_owned());
        holders.look().unwrap();
        let found = |holders: &Holders| holders.daemons(&tracked)[&superblock(39)].unit.clone();
        assert_eq!(found(&holders).as_deref(), told);
        // A dying process is in no unit any more; what it was in is what counts.
        std::fs::write(&cgroup, "0::/\n").unwrap();
        holders.look().unwrap();
        assert_eq!(found(&holders).as_deref(), told);
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

fn superblock(minor: u32) -> SuperblockId {
    SuperblockId { major: 0, minor }
}

fn next_look(received: &mut tokio::sync::mpsc::Receiver<SensorEvent>) -> Option<SuperblockId> {
    while let Some(event) = received.blocking_recv() {
        if let SensorEvent::Look(superblocks) = event {
            return superblocks.first().copied();
        }
    }
    None
}

fn after_a_kill(connection: Option<u32>, tracked: &[u32]) -> SuperblockId {
    let mut daemon = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let proc = proc_with(daemon.id(), connection);
    let (events, mut received) = tokio::sync::mpsc::channel(16);
    let (running, state) = FuseDaemons::start(proc.path().to_owned(), events);
    assert_eq!(state, SourceState::Running);
    running.as_ref().unwrap().track(tracked.iter().copied().map(superblock).collect());
    // Dead before or after it was seen: a process that is not buried yet is found by its number either way.
    daemon.kill().unwrap();
    let look = next_look(&mut received).unwrap();
    daemon.wait().unwrap();
    look
}

#[test]
fn a_killed_daemon_asks_for_a_look_at_its_file_system() {
    assert_eq!(after_a_kill(Some(39), &[39, 40]), superblock(39));
}

#[test]
fn without_names_a_killed_daemon_asks_for_a_look_at_each() {
    assert_eq!(after_a_kill(None, &[41]), superblock(41));
}

#[test]
fn a_daemon_that_is_not_seen_is_said() {
    let proc = tempfile::tempdir().unwrap();
    let (events, mut received) = tokio::sync::mpsc::channel(16);
    let (running, _) = FuseDaemons::start(proc.path().to_owned(), events);
    running.as_ref().unwrap().track(BTreeSet::from([superblock(39)]));
    let Some(SensorEvent::Source(SourceName::FuseDaemons, SourceState::Degraded(reason))) =
        received.blocking_recv()
    else {
        panic!("nothing was said");
    };
    assert!(reason.contains("1 file systems"), "{reason}");
    // The last one goes: nothing is missed any more.
    running.as_ref().unwrap().track(BTreeSet::new());
    let said = received.blocking_recv();
    assert!(
        matches!(said, Some(SensorEvent::Source(SourceName::FuseDaemons, SourceState::Running))),
        "{said:?}"
    );
}

#[test]
fn a_daemon_that_cannot_be_waited_for_costs_no_other_and_is_tried_again() {
    let mut daemon = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let proc = proc_with(daemon.id(), Some(39));
    let (events, _received) = tokio::sync::mpsc::channel(16);
    let wake = Arc::new(Wake::new().unwrap());
    let mut watcher = Watcher {
        holders: Holders::new(proc.path().to_owned()),
        ends: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap(),
        outbox: Outbox::new(events, Arc::clone(&wake)),
        wake,
        wanted: Arc::default(),
        tracked: BTreeSet::from([superblock(39)]),
        told: BTreeMap::new(),
        served: BTreeSet::new(),
        due: None,
        not_before: Monotonic::default(),
        state: SourceState::Running,
    };
    watcher.holders.look().unwrap();
    let good = watcher.holders.take_new().remove(0);
    // A regular file is nothing that can be waited for.
    let refused = || NewHolder { id: good.id, end: Arc::new(tempfile::tempfile().unwrap().into()) };
    let other = NewHolder { id: good.id + 1, end: Arc::clone(&good.end) };
    assert_eq!(watcher.watch(vec![refused(), other]), Some(Errno::EPERM));
    daemon.kill().unwrap();
    let mut ended = [EpollEvent::empty(); 2];
    assert_eq!(watcher.ends.wait(&mut ended, EpollTimeout::NONE), Ok(1));
    assert_eq!(ended[0].data(), good.id + 1);
    watcher.holders.look().unwrap();
    let again: Vec<u64> = watcher.holders.take_new().iter().map(|holder| holder.id).collect();
    assert_eq!(again, [good.id]);
    daemon.wait().unwrap();
}

#[test]
fn without_processes_the_source_is_off() {
    let (events, _received) = tokio::sync::mpsc::channel(16);
    let (running, state) = FuseDaemons::start("/nonexistent/proc".into(), events);
    assert!(
        running.is_none()
            && matches!(state, SourceState::Off(reason) if reason.contains("/nonexistent/proc"))
    );
}
