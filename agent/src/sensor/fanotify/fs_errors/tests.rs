//! Error events of real ext4 file systems in private namespaces, and children that misbehave.

use std::path::Path;

use agent_core::errno::Errno as CoreErrno;
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::sensor::fanotify::mark::MarkStep;
use crate::sensor::fanotify::{may_report, run_mark_child};
use crate::sensor::private_namespace::{Ext4, PrivateNamespace, mount_image, run};

const EUCLEAN: CoreErrno = CoreErrno(117);
const PATIENCE: Duration = Duration::from_secs(20);
const CHILD: &str = "sensor::fanotify::fs_errors::tests::the_marking_child";

/// Not a test of its own: this test binary started again stands in for the agent's hidden subcommand.
#[test]
fn the_marking_child() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let own = arguments.iter().position(|argument| argument == CHILD).and_then(|at| arguments.get(at + 1..));
    if let Some(request) = own.filter(|request| request.len() == 4) {
        assert_eq!(run_mark_child(request), crate::exit_code::ExitCode::Ok);
    }
}

fn program(words: &[&str]) -> Settings {
    Settings { program: words.iter().map(OsString::from).collect(), enter: None }
}

fn this_program() -> Settings {
    let executable = std::env::current_exe().unwrap();
    program(&[executable.to_str().unwrap(), "--exact", CHILD])
}

fn started(settings: Settings) -> (FsErrors, Receiver<SensorEvent>) {
    let (sender, events) = channel(64);
    let (running, state) = FsErrors::start(settings, sender);
    assert_eq!(state, SourceState::Running);
    (running.unwrap(), events)
}

/// A namespace on a kernel with error events; otherwise the reason is printed.
fn supported() -> Option<PrivateNamespace> {
    let namespace = PrivateNamespace::enter()?;
    if let Err(errno) = Group::for_errors().and_then(|group| group.can_mark_errors()) {
        eprintln!("skipped: {}", reason(errno, SINCE));
        return None;
    }
    Some(namespace)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Children that set marks and have not returned, stuck ones and those that wait for their turn included.
fn children(sensor: &FsErrors) -> usize {
    lock(&sensor.inner.shared.marking).len()
}

/// The errno, where the kernel gave one.
fn errno_of(refused: &MarkRefused) -> Option<CoreErrno> {
    match refused {
        MarkRefused::Refused { errno, .. } => Some(*errno),
        _ => None,
    }
}

/// Adds up the counts of one superblock until there are enough.
async fn counted(events: &mut Receiver<SensorEvent>, superblock: SuperblockId, enough: u64) -> u64 {
    let mut total = 0;
    while total < enough {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await.expect("an event comes in time");
        let Some(SensorEvent::Kernel(errors)) = event else { panic!("{event:?}") };
        assert_eq!((errors.superblock, errors.errno, errors.source), (superblock, EUCLEAN, Source::Fanotify));
        assert_eq!((errors.op, errors.root_inode), (Op::Filesystem, None));
        total += errors.count;
    }
    total
}

#[test]
fn errors_of_ext4_reach_their_superblock_with_their_count() {
    let Some(namespace) = supported() else { return };
    let (sick, well) = (Ext4::mount(&namespace, "sick"), Ext4::mount(&namespace, "well"));
    let (sensor, mut events) = started(this_program());
    block_on(async {
        let mount = namespace.mount_at(&sick.place);
        sensor.mark(&mount, false, PATIENCE).await.unwrap();
        sensor.mark(&namespace.mount_at(&well.place), false, PATIENCE).await.unwrap();
        for _ in 0..3 {
            sick.report_error();
        }
        assert_eq!(counted(&mut events, mount.superblock, 3).await, 3);
        // No descriptor pins the mount.
        sick.unmount();
    });
    assert_eq!(children(&sensor), 0);
    drop(sensor);
}

#[test]
fn the_kernel_merges_errors_until_they_are_read() {
    let Some(namespace) = supported() else { return };
    let ext4 = Ext4::mount(&namespace, "merged");
    let group = Group::for_errors().unwrap();
    group.mark_errors(nix::fcntl::AT_FDCWD, &ext4.place).unwrap();
    for _ in 0..3 {
        ext4.report_error();
    }
    let batch = group.read().unwrap();
    let errors: Vec<_> = batch.events.iter().map(|event| (event.mask, event.error)).collect();
    assert_eq!(errors, [(0x8000, Some(super::super::decode::FsError { errno: EUCLEAN, count: 3 }))]);
    assert!(batch.events[0].fsid.is_some());
}

#[test]
fn a_mark_dies_with_the_superblock_and_is_set_again() {
    let Some(namespace) = supported() else { return };
    let mut ext4 = Ext4::mount(&namespace, "again");
    let (sensor, mut events) = started(this_program());
    block_on(async {
        sensor.mark(&namespace.mount_at(&ext4.place), false, PATIENCE).await.unwrap();
        ext4.unmount();
        ext4.mount_again(&namespace);
        // Nobody hears this one; otherwise two errors would be counted below.
        ext4.report_error();
        let mount = namespace.mount_at(&ext4.place);
        sensor.mark(&mount, false, PATIENCE).await.unwrap();
        ext4.report_error();
        assert_eq!(counted(&mut events, mount.superblock, 1).await, 1);
    });
}

#[test]
fn an_error_before_the_answer_of_the_child_is_not_lost() {
    let Some(namespace) = supported() else { return };
    let ext4 = Ext4::mount(&namespace, "early");
    let (sensor, mut events) = started(this_program());
    block_on(async {
        // What the child does, without its answer.
        sensor.inner.shared.group.mark_errors(nix::fcntl::AT_FDCWD, &ext4.place).unwrap();
        ext4.report_error();
        let mount = namespace.mount_at(&ext4.place);
        sensor.mark(&mount, false, PATIENCE).await.unwrap();
        assert_eq!(counted(&mut events, mount.superblock, 1).await, 1);
    });
}

#[test]
fn the_child_enters_the_namespace_it_is_told() {
    let Some(outer) = supported() else { return };
    let (ready, inner_is_ready) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let inner = std::thread::spawn(move || {
        let namespace = PrivateNamespace::enter().unwrap();
        let ext4 = Ext4::mount(&namespace, "inner");
        ready.send((namespace.file.clone(), namespace.mount_at(&ext4.place))).unwrap();
        ended.recv().unwrap_or_default();
    });
    let (file, mount) = inner_is_ready.recv().unwrap();
    block_on(async {
        let (outside, _events) = started(this_program());
        let refused = outside.mark(&mount, false, PATIENCE).await.unwrap_err();
        assert!(matches!(refused, MarkRefused::OtherMount { .. }), "only a directory is here: {refused}");
        let (sensor, _events) = started(Settings { enter: Some(file), ..this_program() });
        sensor.mark(&mount, false, PATIENCE).await.unwrap();
        let (nowhere, _events) =
            started(Settings { enter: Some(outer.directory().join("none")), ..this_program() });
        let refused = nowhere.mark(&mount, false, PATIENCE).await.unwrap_err();
        let expected = (MarkStep::Enter, CoreErrno(2));
        assert!(
            matches!(refused, MarkRefused::Refused { step, errno } if (step, errno) == expected),
            "{refused}"
        );
    });
    drop(end);
    inner.join().unwrap();
}

#[test]
fn a_refusal_concerns_one_volume_and_has_a_reason() {
    let Some(namespace) = supported() else { return };
    let (sensor, _events) = started(this_program());
    block_on(async {
        let proc = namespace.mount_at(Path::new("/proc"));
        let refused = sensor.mark(&proc, false, PATIENCE).await.unwrap_err();
        assert_eq!(errno_of(&refused), Some(CoreErrno(95)), "{refused}");

        let place = namespace.place("covered");
        namespace.mount_tmpfs(&place);
        let below = namespace.mount_at(&place);
        sensor.mark(&below, false, PATIENCE).await.unwrap();
        namespace.mount_tmpfs(&place);
        let above = namespace.mount_at(&place);
        match sensor.mark(&below, false, PATIENCE).await {
            Err(MarkRefused::OtherMount { found }) => assert_eq!(found, u64::from(above.id.0)),
            other => panic!("{other:?}"),
        }
        namespace.unmount(&place);
        namespace.unmount(&place);
        // Nobody walks to where an automount was, not even to learn what is there now.
        let gone = (MarkStep::Identity, CoreErrno(2));
        match sensor.mark(&below, true, PATIENCE).await {
            Err(MarkRefused::Refused { step, errno }) => assert_eq!((step, errno), gone),
            other => panic!("{other:?}"),
        }
        std::fs::remove_dir(&place).unwrap();
        let refused = sensor.mark(&below, false, PATIENCE).await.unwrap_err();
        assert_eq!(errno_of(&refused), Some(CoreErrno(2)), "{refused}");
        assert_eq!(children(&sensor), 0);
    });
}

#[test]
fn file_systems_answer_as_the_table_of_types_says() {
    let Some(namespace) = supported() else { return };
    let (sensor, _events) = started(this_program());
    block_on(async {
        let answer = async |place: &Path| {
            let mount = namespace.mount_at(place);
            let answer = sensor.mark(&mount, false, PATIENCE).await.map_err(|refused| errno_of(&refused));
            // Whoever accepts must not be on the list of types that are never asked, except for what cannot fail.
            assert!(answer.is_err() || mount.fstype == "tmpfs" || may_report(&mount.fstype));
            answer
        };
        let (lower, merged) = (namespace.place("lower"), namespace.place("merged"));
        namespace.mount_tmpfs(&lower);
        assert_eq!(answer(&lower).await, Ok(()));
        for layer in ["a", "b"] {
            std::fs::create_dir(lower.join(layer)).unwrap();
        }
        let layers = format!("lowerdir={0}/a:{0}/b", lower.display());
        let words = ["-t", "overlay", "overlay", "-o", &layers, merged.to_str().unwrap()];
        run("mount", &words.map(std::ffi::OsStr::new));
        // ENODEV where its layers have no id either, EOPNOTSUPP where they have.
        assert!(matches!(answer(&merged).await, Err(Some(CoreErrno(19 | 95)))));
        if let Some(xfs) = mount_image(&namespace, "xfs", 320, "nouuid") {
            assert_eq!(answer(&xfs).await, Ok(()));
        }
        if let Some(btrfs) = mount_image(&namespace, "btrfs", 128, "subvolid=5") {
            assert_eq!(answer(&btrfs).await, Ok(()));
            let (subvolume, place) = (btrfs.join("s"), namespace.place("subvolume"));
            run("btrfs", &["subvolume".as_ref(), "create".as_ref(), subvolume.as_os_str()]);
            let device = String::from_utf8(namespace.mount_at(&btrfs).source).unwrap();
            let words = ["-o", "subvol=s", &device, place.to_str().unwrap()];
            run("mount", &words.map(std::ffi::OsStr::new));
            assert_eq!(answer(&place).await, Err(Some(CoreErrno(18))));
        }
    });
}

#[test]
fn a_child_that_hangs_is_given_up_and_keeps_its_slot_until_it_is_gone() {
    let Some(namespace) = supported() else { return };
    let mount = namespace.mount_at(Path::new("/proc"));
    let (sensor, _events) = started(program(&["/bin/sh", "-c", "exec sleep 1000"]));
    block_on(async {
        let (first, second) = tokio::join!(
            sensor.mark(&mount, false, Duration::from_millis(300)),
            sensor.mark(&mount, false, Duration::from_millis(300)),
        );
        assert!(matches!(first, Err(MarkRefused::TimedOut)));
        assert!(matches!(second, Err(MarkRefused::Busy)));
        while children(&sensor) > 0 {
            tokio::task::yield_now().await;
        }
    });
}

/// Mounts that differ in their superblock alone.
fn mounts(namespace: &PrivateNamespace, count: usize) -> Vec<Mount> {
    let mount = namespace.mount_at(Path::new("/proc"));
    let superblock = |minor| SuperblockId { major: 4000, minor };
    (0..u32::try_from(count).unwrap())
        .map(|minor| Mount { superblock: superblock(minor), ..mount.clone() })
        .collect()
}

#[test]
fn more_marks_than_children_wait_for_their_turn() {
    let Some(namespace) = supported() else { return };
    let (sensor, _events) = started(program(&["/bin/true"]));
    let mut tasks = tokio::task::JoinSet::new();
    block_on(async {
        for mount in mounts(&namespace, 3 * CHILDREN_MAX) {
            let sensor = sensor.clone();
            tasks.spawn(async move { sensor.mark(&mount, false, PATIENCE).await });
        }
        while let Some(result) = tasks.join_next().await {
            // It was asked; that it has nothing to say is another matter.
            assert!(matches!(result.unwrap(), Err(MarkRefused::NoAnswer)));
        }
        assert_eq!(children(&sensor), 0);
    });
}

#[test]
fn nobody_waits_for_children_that_are_all_stuck() {
    let Some(namespace) = supported() else { return };
    let (sensor, _events) = started(program(&["/bin/true"]));
    sensor.inner.shared.stuck.store(CHILDREN_MAX, Ordering::Relaxed);
    let mount = namespace.mount_at(Path::new("/proc"));
    let refused = block_on(sensor.mark(&mount, false, PATIENCE));
    assert!(matches!(refused, Err(MarkRefused::TooMany)), "{refused:?}");
    assert_eq!(children(&sensor), 0);
}

#[test]
fn a_child_that_cannot_start_or_says_nothing_is_an_error() {
    let Some(namespace) = supported() else { return };
    let mount = namespace.mount_at(Path::new("/proc"));
    block_on(async {
        let (silent, _events) = started(program(&["/bin/true"]));
        assert!(matches!(silent.mark(&mount, false, PATIENCE).await, Err(MarkRefused::NoAnswer)));
        let (absent, _events) = started(program(&["/nonexistent/mountie"]));
        assert!(matches!(absent.mark(&mount, false, PATIENCE).await, Err(MarkRefused::Start(_))));
        assert_eq!(children(&absent), 0);
    });
}
