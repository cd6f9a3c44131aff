//! The fault injector does what the cases believe it does.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::{mounts_at, only_mount_at, unmount};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{timed, wait_gone};
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "bench::the_injector_serves_a_sound_file_system",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: serves,
    },
    Case {
        name: "bench::the_injector_answers_every_errno_asked_for",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: answers_every_errno,
    },
    Case {
        name: "bench::the_injector_holds_requests_and_lets_them_go",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: holds,
    },
    Case {
        name: "bench::a_dead_injector_leaves_a_dead_mount_and_a_new_one_can_follow",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: dies,
    },
];

fn serves(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here I am")?;
    let root = injector.mountpoint();
    ensure!(only_mount_at(root)?.fstype == FSTYPE);
    ensure!(fs::read(root.join(".mountie"))? == b"here I am");
    ensure!(fs::read(injector.data(7))?.iter().all(|byte| *byte == b'7'));
    ensure!(fs::read(root.join("sub/inner"))? == b"inner");
    let names: Vec<_> = fs::read_dir(root)?.collect::<io::Result<Vec<_>>>()?;
    ensure!(names.len() == 12, "{names:?}");
    // The entries keep the directory open.
    drop(names);
    fs::write(root.join("new"), b"written")?;
    ensure!(fs::read(root.join("new"))? == b"written");
    fs::remove_file(root.join("new"))?;
    ensure!(errno_of(&fs::read(root.join("new"))) == Some(Errno::ENOENT as i32));
    let before = injector.answers()?.total();
    fs::metadata(injector.data(0))?;
    ensure!(injector.answers()?.total() > before, "the kernel answered from a cache");
    ensure!(injector.answers()?.failed.is_empty(), "{:?}", injector.answers()?);
    unmount(root)
}

/// kernel: `fuse_dev_do_write`, fs/fuse/dev.c: numbers from 1 to 511 pass unchanged, since 2.6.14.
fn answers_every_errno(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "x")?;
    let kept = fs::File::open(injector.data(0))?;
    for number in [
        1, 5, 6, 13, 19, 28, 30, 67, 74, 103, 107, 108, 110, 112, 113, 116, 117, 121, 122, 123, 126, 127,
        128, 129,
    ] {
        let errno = Errno::from_raw(number);
        injector.set(&Mode::fail(errno, &["read"]))?;
        let before = injector.answers()?.failed("read", errno);
        let mut byte = [0];
        let read = std::os::unix::fs::FileExt::read_at(&kept, &mut byte, 0);
        ensure!(errno_of(&read) == Some(number), "read gave {read:?}, not {number}");
        ensure!(injector.answers()?.failed("read", errno) == before + 1, "{errno} was not counted once");
        ensure!(fs::metadata(injector.data(0)).is_ok(), "an operation failed that was not named");
        injector.set(&Mode::fail(errno, &["getattr", "lookup"]))?;
        let stat = fs::metadata(injector.data(0));
        ensure!(errno_of(&stat) == Some(number), "stat gave {stat:?}, not {number}");
        ensure!(std::os::unix::fs::FileExt::read_at(&kept, &mut byte, 0).is_ok());
    }
    injector.set(&Mode::fail(Errno::EIO, &["read:data3"]))?;
    ensure!(errno_of(&fs::read(injector.data(3))) == Some(Errno::EIO as i32));
    ensure!(fs::read(injector.data(4)).is_ok(), "a file failed that was not named");
    injector.set(&Mode::Ok)?;
    ensure!(fs::read(injector.mountpoint().join(".mountie"))? == b"x", "it does not heal");
    Ok(())
}

fn holds(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "x")?;
    // More readers than the daemon has threads.
    let paths: Vec<_> = (0..8).map(|number| injector.data(number)).collect();
    let readers = paths.iter().enumerate().map(|(number, path)| {
        Reader::start(bench, &format!("reader{number}"), Work::Read, path, Duration::from_millis(1))
    });
    let readers = readers.collect::<Result<Vec<_>>>()?;
    injector.set(&Mode::Hang(vec!["read".to_owned()]))?;
    wait_for_some("all readers are held", Duration::from_secs(20), || {
        Ok((injector.held()?.get("read") == Some(&8)).then_some(()))
    })?;
    ensure!(fs::metadata(injector.data(9)).is_ok(), "an operation hangs that was not named");
    injector.set(&Mode::Ok)?;
    for reader in readers {
        let tally = reader.finish().context("a reader is still held")?;
        ensure!(tally.all_failed() == 0, "a held read failed: {tally:?}");
    }
    injector.set(&Mode::Slow(Duration::from_millis(300), vec!["read".to_owned()]))?;
    let (content, took) = timed(|| fs::read(injector.mountpoint().join("sub/inner")));
    ensure!(content? == b"inner" && took >= Duration::from_millis(300), "not slow: {took:?}");
    Ok(())
}

fn dies(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "x")?;
    let first = only_mount_at(injector.mountpoint())?;
    let daemons = injector.daemons();
    ensure!(daemons.len() == 1, "{daemons:?}");
    injector.set(&Mode::Die)?;
    // Without being asked anything.
    wait_gone(&daemons)?;
    dead(injector.mountpoint())?;
    ensure!(mounts_at(injector.mountpoint())?.len() == 1, "the dead mount is not listed");
    unmount(injector.mountpoint())?;
    injector.set(&Mode::Ok)?;
    injector.mount(&[])?;
    ensure!(only_mount_at(injector.mountpoint())?.id != first.id || fs::read(injector.data(0)).is_ok());
    injector.kill()?;
    dead(injector.mountpoint())
}

fn dead(path: &Path) -> Result<()> {
    let looked = fs::metadata(path);
    ensure!(errno_of(&looked) == Some(Errno::ENOTCONN as i32), "the mount is not dead: {looked:?}");
    Ok(())
}

fn errno_of<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}
