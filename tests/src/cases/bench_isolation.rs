//! Whatever a case does, nothing of it is left when it is over.

use std::fs;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::runner::{Ending, expect_passed, run_isolated};
use integration_tests::harness::wait::wait_for_some;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mkfs.ext4")];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "bench::a_case_leaves_nothing_behind",
        needs: NEEDS,
        timeout: Duration::from_secs(120),
        run: leaves_nothing,
    },
    Case {
        name: "bench::a_case_that_hangs_is_ended_with_all_that_it_started",
        needs: NEEDS,
        timeout: Duration::from_secs(120),
        run: hangs,
    },
    Case {
        name: "bench::a_case_that_fails_is_told_apart_and_shows_what_it_printed",
        needs: &[Need::Root],
        timeout: Duration::from_secs(60),
        run: fails,
    },
];

/// Run only by the cases above.
pub(crate) const INNER: &[Case] = &[WRECK, HANG, FAILURE];

const WRECK: Case =
    Case { name: "inner_wreck", needs: NEEDS, timeout: Duration::from_secs(60), run: make_a_wreck };
const HANG: Case =
    Case { name: "inner_hang", needs: NEEDS, timeout: Duration::from_secs(5), run: hang_for_ever };
const FAILURE: Case = Case { name: "inner_failure", needs: &[], timeout: Duration::from_secs(30), run: fail };

fn leaves_nothing(bench: &mut Bench) -> Result<()> {
    let before = Surroundings::look(bench)?;
    expect_passed(run_isolated(&WRECK, bench.directory())?)?;
    before.must_be_restored(bench)
}

fn hangs(bench: &mut Bench) -> Result<()> {
    let before = Surroundings::look(bench)?;
    let ending = run_isolated(&HANG, bench.directory())?;
    ensure!(matches!(&ending, Ending::TimedOut(text) if text.contains("hanging now")), "{ending:?}");
    before.must_be_restored(bench)
}

fn fails(bench: &mut Bench) -> Result<()> {
    let ending = run_isolated(&FAILURE, bench.directory())?;
    let Ending::Failed(text) = &ending else { bail!("{ending:?}") };
    ensure!(text.contains("two and two") && text.contains("a line of a log"), "{text}");
    Ok(())
}

/// A block file system, a FUSE file system that answers nobody, and callers that no signal reaches.
fn make_a_wreck(bench: &mut Bench) -> Result<()> {
    let device = LoopDevice::make(bench, "disk", Kind::Ext4)?;
    let mountpoint = bench.make_directory("disk")?;
    device.mount(&mountpoint, "")?;
    fs::write(mountpoint.join("file"), b"content")?;
    let injector = Injector::start(bench, "volume", "x")?;
    let path = injector.data(0);
    let reader = Reader::start(bench, "reader", Work::Read, &path, Duration::from_millis(1))?;
    injector.set(&Mode::hang_all())?;
    wait_for_some("the reader hangs", Duration::from_secs(20), || {
        Ok((injector.held()?.get("read") == Some(&1)).then_some(()))
    })?;
    drop(reader);
    Ok(())
}

fn hang_for_ever(bench: &mut Bench) -> Result<()> {
    make_a_wreck(bench)?;
    println!("hanging now");
    let held = fs::read(bench.path("volume/.mountie"));
    bail!("a request came back: {held:?}")
}

fn fail(bench: &mut Bench) -> Result<()> {
    bench.write("some.log", b"a line of a log\n")?;
    ensure!(2 + 2 == 5, "two and two");
    Ok(())
}

/// What is around a case: loop devices and processes of the machine that this case can see, and its mounts.
#[derive(PartialEq, Eq, Debug)]
struct Surroundings {
    processes: usize,
    mounts: usize,
    files: Vec<String>,
}

impl Surroundings {
    fn look(bench: &Bench) -> Result<Self> {
        let running = process::all().into_iter().filter(|id| process::is_running(*id));
        let entries = fs::read_dir(bench.directory())?.flatten();
        let files = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        Ok(Self { processes: running.count(), mounts: mnt_ns::table()?.len(), files })
    }

    /// Loop devices are watched by the runner itself, which fails a case that leaves one.
    fn must_be_restored(&self, bench: &Bench) -> Result<()> {
        wait_for_some("all is as before", Duration::from_secs(20), || {
            let now = Self::look(bench)?;
            ensure!(*self == now, "before {self:?}, now {now:?}");
            Ok(Some(()))
        })
    }
}
