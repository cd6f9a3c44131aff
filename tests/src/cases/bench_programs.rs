//! The stand-ins for applications count what they met, exactly; and the other helpers can fail.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::autofs::Trap;
use integration_tests::harness::bench::Bench;
use integration_tests::harness::bindfs::Bindfs;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::mnt_ns::{only_mount_at, unmount};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::Background;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use integration_tests::harness::watcher::Watcher;
use nix::errno::Errno;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "bench::the_reader_counts_every_call_that_failed",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(60),
        run: reader_counts,
    },
    Case {
        name: "bench::the_watcher_sees_a_bare_directory",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(60),
        run: watcher_sees,
    },
    Case {
        name: "bench::a_killed_bindfs_leaves_a_dead_mount",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: Duration::from_secs(60),
        run: bindfs,
    },
    Case {
        name: "bench::the_autofs_trap_tells_who_steps_on_it",
        needs: &[Need::Root, Need::FileSystem("autofs")],
        timeout: Duration::from_secs(60),
        run: trap,
    },
];

fn reader_counts(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "x")?;
    for (work, operation, injected) in
        [(Work::Read, "read", "read"), (Work::Write, "write", "write"), (Work::Stat, "stat", "getattr")]
    {
        let path = injector.data(1);
        let reader = Reader::start(bench, operation, work, &path, Duration::from_millis(2))?;
        let before = injector.answers()?.failed(injected, Errno::EIO);
        injector.set(&Mode::fail(Errno::EIO, &[injected]))?;
        wait_for_some("fifty calls failed", Duration::from_secs(20), || {
            Ok((reader.tally()?.failed(operation, Errno::EIO) >= 50).then_some(()))
        })?;
        injector.set(&Mode::Ok)?;
        let tally = reader.finish()?;
        let answered = injector.answers()?.failed(injected, Errno::EIO) - before;
        ensure!(tally.failed(operation, Errno::EIO) == answered, "{tally:?}, {answered} answered");
        ensure!(tally.all_failed() == answered && tally.good > 0, "{tally:?}");
    }
    Ok(())
}

fn watcher_sees(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "content")?;
    let watcher = Watcher::start(bench, injector.mountpoint(), ".mountie", "content")?;
    watcher.sees_more(100, Duration::from_secs(20))?;
    ensure!(watcher.tally()?.gaps == 0, "a gap where there was none");
    injector.kill()?;
    wait_for_some("the watcher sees the dead mount", Duration::from_secs(20), || {
        Ok((watcher.tally()?.failed("open", Errno::ENOTCONN) > 0).then_some(()))
    })?;
    ensure!(watcher.tally()?.gaps == 0, "a dead mount is not a bare directory");
    // A caller that is inside just now keeps the mount busy for a moment.
    wait_for_some("the dead mount can be unmounted", Duration::from_secs(20), || {
        unmount(injector.mountpoint()).map(Some)
    })?;
    wait_for_some("the watcher sees the bare directory", Duration::from_secs(20), || {
        Ok((watcher.tally()?.gaps > 0).then_some(()))
    })?;
    watcher.finish().map(drop)
}

fn bindfs(bench: &mut Bench) -> Result<()> {
    let source = bench.make_directory("source")?;
    bench.write("source/file", b"x")?;
    let mountpoint = bench.make_directory("volume")?;
    let served = Bindfs::mount(&source, &mountpoint)?;
    ensure!(only_mount_at(&mountpoint)?.fstype.starts_with("fuse"));
    ensure!(fs::read(mountpoint.join("file"))? == b"x");
    served.kill()?;
    // Opening needs the daemon; attributes may still be remembered by the kernel.
    let looked = fs::read(mountpoint.join("file"));
    let errno = looked.as_ref().err().and_then(std::io::Error::raw_os_error);
    ensure!(errno == Some(Errno::ENOTCONN as i32), "{looked:?}");
    Ok(())
}

fn trap(bench: &mut Bench) -> Result<()> {
    let mountpoint = bench.make_directory("trap")?;
    let mut trap = Trap::set(&mountpoint)?;
    let looks_only = Command::new("stat").arg(&mountpoint).process_group(0).stdout(Stdio::null()).status();
    ensure!(looks_only.context("cannot start stat")?.success());
    ensure!(!trap.was_triggered(), "looking at the attributes triggered it");
    let mut list = Command::new("ls");
    let child = list.arg(&mountpoint).process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _waits = Background(child.context("cannot start ls")?);
    wait_for_some("listing triggers it", Duration::from_secs(20), || Ok(trap.was_triggered().then_some(())))
}
