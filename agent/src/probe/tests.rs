//! The pool with the real worker on real mounts, and with workers that misbehave.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::engine::ProbeOrder;
use agent_core::id::{Generation, MountId, ProbeId, SuperblockId, VolumeId};
use agent_core::observation::{NotRun, ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use agent_core::volume::ProbeUser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::lab::{HungFuse, in_private_namespace, mount_tmpfs, request_for};
use super::worker::WorkerArgs;
use super::*;
use crate::sys::clock;

/// Long enough for a busy machine; only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test: what `real-worker.sh` runs. Without the variable nothing happens.
#[test]
fn worker_process() {
    let Ok(line) = std::env::var("MOUNTIE_TEST_WORKER") else { return };
    let words: Vec<&str> = line.split(' ').collect();
    assert!(matches!(words[..], ["worker", "--parent", _] | ["worker", "--parent", _, "--namespace", _]));
    let args = WorkerArgs { parent: words[2].parse().unwrap(), namespace: words.get(4).map(PathBuf::from) };
    // The test harness has a thread more than the real worker, which shares the working directory.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
    std::process::exit(worker::run(&args) as i32);
}

fn settings(script: &str) -> Settings {
    let exe = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/probe/tests").join(script);
    Settings { exe, ..Settings::default() }
}

fn order(id: u64, mountpoint: &Path, deadline: Duration) -> ProbeOrder {
    let request = request_for(mountpoint);
    ProbeOrder {
        id: ProbeId(id),
        volume: VolumeId::new(format!("v{id}")),
        generation: Generation(1),
        mountpoint: request.mountpoint,
        superblock: request.superblock,
        mount_id: request.mount_id,
        root: request.root,
        fstype: request.fstype,
        sentinel: None,
        write: false,
        user: None,
        is_automount: false,
        deadline,
    }
}

/// An order that no real worker can carry out; for workers that do not try.
fn any_order(id: u64, deadline: Duration) -> ProbeOrder {
    ProbeOrder {
        id: ProbeId(id),
        volume: VolumeId::new("v"),
        generation: Generation(1),
        mountpoint: BytePath::from("/proc/no/such/place"),
        superblock: SuperblockId { major: 0, minor: 1 },
        mount_id: MountId(1),
        root: BytePath::from("/"),
        fstype: String::from("nfs4"),
        sentinel: None,
        write: false,
        user: None,
        is_automount: false,
        deadline,
    }
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

struct Bench {
    pool: Pool,
    events: mpsc::Receiver<ProbeEvent>,
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let (sender, events) = mpsc::channel(256);
        Self { pool: Pool::new(settings, sender), events }
    }

    async fn event(&mut self) -> ProbeEvent {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("no event").expect("pool ended")
    }

    async fn report(&mut self) -> ProbeReport {
        match self.event().await {
            ProbeEvent::Report(report) => report,
            other => panic!("{other:?}"),
        }
    }

    async fn settled(&mut self, done: impl Fn(&Stats) -> bool) -> Stats {
        let wait = self.pool.stats.wait_for(done);
        tokio::time::timeout(PATIENCE, wait).await.expect("numbers do not settle").unwrap().clone()
    }
}

/// The worker processes of this thread.
fn children() -> Vec<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}

/// How many descriptors of a process lead below a place.
fn descriptors_at(place: &Path, pid: Pid) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(place)).count()
}

/// Runs the body of the named test in a process of its own, where nobody else opens descriptors.
fn in_own_process(test: &str, body: impl FnOnce()) {
    const ALONE: &str = "MOUNTIE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args(["--exact", &format!("probe::tests::{test}"), "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Descriptors and threads of this process.
fn held() -> (usize, usize) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    (count("fd"), count("task"))
}

#[test]
fn one_worker_serves_many_probes_and_pins_nothing() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        std::fs::write(place.join(steps::DEFAULT_SENTINEL), "here").unwrap();
        run(async {
            let mut bench = Bench::new(settings("real-worker.sh"));
            for id in 0..50 {
                bench.pool.start(order(id, &place, PATIENCE));
                let report = bench.report().await;
                assert!(matches!(&report.result, ProbeResult::Ok(ok) if ok.read_data), "{report:?}");
                assert_eq!((report.id, report.generation), (ProbeId(id), Generation(1)));
            }
            let stats = bench.settled(|stats| stats.inflight == 0).await;
            assert_eq!((stats.started_total, stats.workers, stats.abandoned), (1, 1, 0));
            assert_eq!(stats.start_error, None);
            let [worker] = children()[..] else { panic!("{:?}", children()) };
            assert_eq!(descriptors_at(lab, worker), 0);
            // It was started with another: what it writes can be read by all. Here its thread has one of its own.
            let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
            let status =
                |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap();
            let statuses: Vec<String> = tasks.map(|task| status(task.unwrap())).collect();
            let is_open = |status: &String| status.lines().any(|line| line == "Umask:\t0022");
            assert!(statuses.iter().any(is_open), "{statuses:?}");
            // Neither a descriptor nor a working directory is left on it.
            nix::mount::umount(&place).unwrap();
            bench.pool.shutdown().await;
        });
    });
}

#[test]
fn a_worker_has_little_to_lose() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        run(async {
            let mut bench = Bench::new(settings("real-worker.sh"));
            bench.pool.start(order(1, &place, PATIENCE));
            bench.report().await;
            let worker = children()[0];
            let tasks = std::fs::read_dir(format!("/proc/{worker}/task")).unwrap();
            let status = tasks
                .map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())
                .find(|status| status.starts_with("Name:\tmountie-probe\n"))
                .unwrap();
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            // Bit 2: DAC_READ_SEARCH; in reserve DAC_OVERRIDE, SETGID, SETUID.
            assert_eq!(field("CapEff:"), "0000000000000004");
            assert_eq!(field("CapPrm:"), "00000000000000c6");
            assert_eq!(field("NoNewPrivs:"), "1");
            let open = std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap().count();
            assert_eq!(open, 5, "the three standard ones, and the socket and the progress file once more");
            let environment = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
            assert!(!String::from_utf8_lossy(&environment).contains("CARGO"));
            bench.pool.shutdown().await;
        });
    });
}

#[test]
fn a_worker_that_was_killed_while_idle_costs_nobody_an_answer() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        run(async {
            let mut bench = Bench::new(settings("real-worker.sh"));
            bench.pool.start(order(1, &place, PATIENCE));
            bench.report().await;
            kill(children()[0], Signal::SIGKILL).unwrap();
            bench.pool.start(order(2, &place, PATIENCE));
            assert!(matches!(bench.report().await.result, ProbeResult::Ok(_)));
            let stats = bench.settled(|stats| stats.inflight == 0).await;
            assert_eq!((stats.started_total, stats.workers, stats.abandoned), (2, 1, 0));
        });
    });
}

#[test]
fn a_silent_worker_is_late_at_the_deadline_and_ends_when_it_is_let_go() {
    run(async {
        let mut bench = Bench::new(settings("begun-worker.sh"));
        let deadline = Duration::from_secs(1);
        bench.pool.start(any_order(7, deadline));
        let report = bench.report().await;
        assert_eq!(report.result, ProbeResult::TimedOut { step: ProbeStep::Identity });
        assert!(report.took >= deadline);
        assert_eq!((children().len(), bench.pool.stats().abandoned), (1, 1), "it may answer yet");
        bench.pool.let_go(ProbeId(7));
        assert_eq!(bench.event().await, ProbeEvent::Returned(ProbeId(7)));
        bench.settled(|stats| stats.abandoned == 0 && stats.workers == 0).await;
        assert_eq!(children(), [], "a zombie stays");
    });
}

#[test]
fn a_worker_that_has_not_begun_by_the_deadline_says_nothing_about_the_volume() {
    run(async {
        let mut bench = Bench::new(settings("silent-worker.sh"));
        bench.pool.start(any_order(7, Duration::from_millis(50)));
        assert_eq!(bench.report().await.result, ProbeResult::NotRun(NotRun::WorkerLost));
        bench.settled(|stats| stats.abandoned == 0 && stats.workers == 0).await;
        assert_eq!(children(), [], "a zombie stays");
    });
}

#[test]
fn an_answer_that_comes_after_the_deadline_is_told_as_late() {
    in_private_namespace(|lab| {
        let fuse = HungFuse::mount(lab.join("a"));
        run(async {
            let mut bench = Bench::new(settings("real-worker.sh"));
            bench.pool.start(order(1, &fuse.mountpoint, Duration::from_millis(200)));
            assert_eq!(bench.report().await.result, ProbeResult::TimedOut { step: ProbeStep::Root });
            // Its end is an error for whoever waits.
            drop(fuse);
            match bench.event().await {
                ProbeEvent::Late(report) => {
                    assert_eq!(report.id, ProbeId(1));
                    assert!(
                        matches!(report.result, ProbeResult::Failed { step: ProbeStep::Root, .. }),
                        "{report:?}"
                    );
                    assert!(report.took >= Duration::from_millis(200));
                }
                other => panic!("{other:?}"),
            }
            bench.settled(|stats| stats.abandoned == 0).await;
        });
    });
}

#[test]
fn a_worker_that_dies_or_raves_is_lost_and_is_no_evidence() {
    run(async {
        for script in ["dying-worker.sh", "raving-worker.sh"] {
            let mut bench = Bench::new(settings(script));
            for id in 0..3 {
                bench.pool.start(any_order(id, PATIENCE));
                let report = bench.report().await;
                assert_eq!(report.result, ProbeResult::NotRun(NotRun::WorkerLost), "{script}");
            }
            let stats = bench.settled(|stats| stats.abandoned == 0 && stats.workers == 0).await;
            assert_eq!(stats.started_total, 3, "{script}");
            assert!(bench.events.try_recv().is_err(), "Returned is for time-outs alone");
        }
    });
}

#[test]
fn a_pool_that_cannot_start_workers_says_why() {
    run(async {
        let absent = Settings { exe: PathBuf::from("/proc/no/such/program"), ..Settings::default() };
        assert!(matches!(Pool::check(&absent).await, Err(StartError::Spawn(_))));
        let mut bench = Bench::new(absent);
        bench.pool.start(any_order(1, PATIENCE));
        assert_eq!(bench.report().await.result, ProbeResult::NotRun(NotRun::WorkerLost));
        let stats = bench.settled(|stats| stats.start_error.is_some()).await;
        assert!(stats.start_error.is_some_and(|error| error.contains("cannot start a probe worker")));

        let namespace = Some(PathBuf::from("/proc/no/such/namespace"));
        let elsewhere = Settings { namespace, ..settings("real-worker.sh") };
        match Pool::check(&elsewhere).await {
            Err(StartError::Refused(reason)) => {
                assert!(reason.contains("/proc/no/such/namespace"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
        let mut bench = Bench::new(elsewhere);
        bench.pool.start(any_order(1, PATIENCE));
        assert_eq!(bench.report().await.result, ProbeResult::NotRun(NotRun::Unreachable));
        assert!(Pool::check(&settings("real-worker.sh")).await.is_ok());
    });
}

#[test]
fn workers_look_in_the_namespace_they_are_told() {
    in_private_namespace(|lab| {
        let place = mount_tmpfs(lab.join("a"));
        let order = order(1, &place, PATIENCE);
        let namespace =
            PathBuf::from(format!("/proc/{}/task/{}/ns/mnt", std::process::id(), nix::unistd::gettid()));
        // A thread of its own still sees this namespace; it leaves it for one without the mount.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                nix::mount::umount(&place).unwrap();
                run(async {
                    let mut here = Bench::new(settings("real-worker.sh"));
                    here.pool.start(order.clone());
                    assert!(matches!(here.report().await.result, ProbeResult::WrongMount { .. }));
                    let there = Settings { namespace: Some(namespace), ..settings("real-worker.sh") };
                    let mut there = Bench::new(there);
                    there.pool.start(order.clone());
                    assert!(matches!(there.report().await.result, ProbeResult::Ok(_)));
                });
            });
        });
    });
}

/// Looks at every place once, and collects what else comes in.
async fn serve_all(bench: &mut Bench, round: u64, places: &[PathBuf]) -> Vec<ProbeReport> {
    for (index, place) in (0..).zip(places) {
        bench.pool.start(order(round * 100 + index, place, PATIENCE));
    }
    let (mut served, mut others) = (0, Vec::new());
    while served < places.len() {
        let report = bench.report().await;
        match report.result {
            ProbeResult::Ok(_) => served += 1,
            _ => others.push(report),
        }
    }
    others
}

#[test]
fn three_hung_volumes_cost_three_workers_and_nothing_else() {
    let name = "three_hung_volumes_cost_three_workers_and_nothing_else";
    in_own_process(name, || in_private_namespace(|lab| run(watch_three_hung_volumes(lab))));
}

async fn watch_three_hung_volumes(lab: &Path) {
    let healthy: Vec<PathBuf> = (0..7).map(|index| mount_tmpfs(lab.join(format!("ok{index}")))).collect();
    let hung: Vec<HungFuse> = (0..3).map(|index| HungFuse::mount(lab.join(format!("hung{index}")))).collect();
    let mut bench = Bench::new(settings("real-worker.sh"));
    let (descriptors, threads) = held();
    for (id, fuse) in (0..).zip(&hung) {
        bench.pool.start(order(id, &fuse.mountpoint, Duration::from_millis(200)));
    }
    let mut late = Vec::new();
    for round in 1..=500 {
        late.extend(serve_all(&mut bench, round, &healthy).await);
        assert!(bench.pool.stats().abandoned <= 3);
    }
    while late.len() < 3 {
        late.push(bench.report().await);
    }
    // The identity never asks the daemon.
    let expected = ProbeResult::TimedOut { step: ProbeStep::Root };
    assert!(late.len() == 3 && late.iter().all(|report| report.result == expected), "{late:?}");

    // Killed, and still there: the kernel lets nobody out of such a call.
    (0..3).for_each(|id| bench.pool.let_go(ProbeId(id)));
    let stats = bench.settled(|stats| stats.inflight == 0).await;
    assert_eq!(stats.abandoned, 3);
    assert!(stats.started_total <= 11, "{stats:?}");
    // A live worker has a socket, a progress file and a pidfd here; of one that was let go only the last stays.
    let held_by_them = descriptors + 3 * stats.workers + stats.abandoned;
    let is_so = || held() == (held_by_them, threads);
    let begin = clock::now();
    while !is_so() && clock::now().since(begin) < PATIENCE {
        tokio::task::yield_now().await;
    }
    assert!(is_so(), "{:?}, and not {:?}", held(), (held_by_them, threads));
    assert!(bench.events.try_recv().is_err());

    drop(hung);
    let mut returned = [bench.event().await, bench.event().await, bench.event().await];
    returned.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(returned, [0, 1, 2].map(|id| ProbeEvent::Returned(ProbeId(id))));
    let stats = bench.settled(|stats| stats.abandoned == 0).await;
    // The three daemons have closed their own.
    assert_eq!(held().0, descriptors + 3 * stats.workers - 3);
}

#[test]
fn many_volumes_that_hang_at_once_do_not_keep_a_healthy_one_waiting() {
    in_private_namespace(|lab| {
        let healthy = mount_tmpfs(lab.join("ok"));
        let hung: Vec<HungFuse> =
            (0..12).map(|index| HungFuse::mount(lab.join(format!("hung{index}")))).collect();
        run(async {
            let settings = Settings { workers: 2, ..settings("real-worker.sh") };
            let mut bench = Bench::new(settings);
            for (id, fuse) in (0..).zip(&hung) {
                bench.pool.start(order(id, &fuse.mountpoint, Duration::from_secs(20)));
            }
            bench.pool.start(order(99, &healthy, PATIENCE));
            // Before the first deadline of those in front of it, which two places would serve one by one.
            let report = bench.report().await;
            assert!(report.id == ProbeId(99) && matches!(report.result, ProbeResult::Ok(_)), "{report:?}");
            bench.pool.shutdown().await;
            drop(hung);
        });
    });
}

#[test]
fn a_private_fuse_mount_lets_its_owner_in() {
    in_private_namespace(|lab| {
        let fuse = HungFuse::mount_of(1000, lab.join("a"));
        run(async {
            let mut bench = Bench::new(settings("real-worker.sh"));
            let order =
                |id, user| ProbeOrder { user, ..order(id, &fuse.mountpoint, Duration::from_millis(300)) };
            // Whoever is refused is told at once; whoever is let in waits for the daemon, which never answers.
            let refused = ProbeResult::Failed { step: ProbeStep::Root, errno: agent_core::errno::Errno(13) };
            let user = |uid, gid| Some(ProbeUser { uid, gid, groups: Vec::new() });
            bench.pool.start(order(1, None));
            assert_eq!(bench.report().await.result, refused);
            bench.pool.start(order(2, user(1000, 1000)));
            assert_eq!(bench.report().await.result, refused, "the group counts as well");
            bench.pool.start(order(3, user(1000, 0)));
            assert_eq!(bench.report().await.result, ProbeResult::TimedOut { step: ProbeStep::Root });
            assert_eq!(bench.pool.stats().started_total, 1, "the worker came back as itself each time");
            drop(fuse);
            assert!(matches!(bench.event().await, ProbeEvent::Late(report) if report.id == ProbeId(3)));
            bench.pool.shutdown().await;
        });
    });
}

#[test]
fn above_the_cap_nothing_is_started() {
    in_private_namespace(|lab| {
        let hung: Vec<HungFuse> =
            (0..2).map(|index| HungFuse::mount(lab.join(format!("hung{index}")))).collect();
        run(async {
            let mut bench = Bench::new(Settings { abandoned_max: 2, ..settings("real-worker.sh") });
            for (id, fuse) in (0..).zip(&hung) {
                bench.pool.start(order(id, &fuse.mountpoint, Duration::from_millis(100)));
            }
            for _ in 0..2 {
                assert_eq!(bench.report().await.result, ProbeResult::TimedOut { step: ProbeStep::Root });
            }
            bench.pool.start(any_order(9, PATIENCE));
            let report = bench.report().await;
            assert_eq!(
                (report.id, report.result),
                (ProbeId(9), ProbeResult::NotRun(NotRun::TooManyAbandoned))
            );
            let stats = bench.settled(|stats| stats.is_at_cap).await;
            assert_eq!((stats.started_total, stats.abandoned), (2, 2));

            drop(hung);
            for _ in 0..2 {
                assert!(matches!(bench.event().await, ProbeEvent::Late(_) | ProbeEvent::Returned(_)));
            }
            bench.settled(|stats| !stats.is_at_cap).await;
            bench.pool.start(any_order(10, PATIENCE));
            assert_eq!(bench.report().await.result, ProbeResult::NotRun(NotRun::Unreachable));
        });
    });
}

#[test]
fn at_the_cap_the_oldest_makes_room_where_a_signal_ends_its_wait() {
    run(async {
        let mut bench = Bench::new(Settings { abandoned_max: 2, ..settings("begun-worker.sh") });
        let deadline = Duration::from_secs(1);
        for id in 1..=2 {
            bench.pool.start(any_order(id, deadline));
            assert!(matches!(bench.report().await.result, ProbeResult::TimedOut { .. }));
        }
        bench.pool.start(any_order(3, deadline));
        assert_eq!(bench.report().await.result, ProbeResult::NotRun(NotRun::TooManyAbandoned));
        assert_eq!(bench.event().await, ProbeEvent::Returned(ProbeId(1)));
        bench.pool.start(any_order(4, deadline));
        assert!(matches!(bench.report().await.result, ProbeResult::TimedOut { .. }), "there is room again");
        bench.pool.shutdown().await;
    });
}

#[test]
fn shutting_down_kills_every_worker_and_waits_for_no_reader() {
    run(async {
        let (sender, events) = mpsc::channel(1);
        let pool = Pool::new(settings("silent-worker.sh"), sender);
        for id in 0..6 {
            pool.start(any_order(id, if id < 4 { Duration::from_millis(1) } else { PATIENCE }));
        }
        // Nobody reads, so the pool soon waits for room.
        while events.is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(PATIENCE, pool.shutdown()).await.expect("shutdown hangs");
        let gone = async {
            while !children().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("a worker lives on, or a zombie stays");
    });
}
