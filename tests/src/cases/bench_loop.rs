//! Block file systems break as asked. What the kernel then shows is pinned here, since cases rest on it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{only_mount_at, unmount};
use integration_tests::harness::needs::Need;
use nix::errno::Errno;
use nix::fcntl::OFlag;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    Need::Tool("mkfs.btrfs"),
    Need::Tool("xfs_io"),
    Need::FileSystem("ext4"),
    Need::FileSystem("xfs"),
    Need::FileSystem("btrfs"),
];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "bench::an_ext4_error_refuses_writes_and_a_new_mount_heals_it",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: ext4_error,
    },
    Case {
        name: "bench::a_shut_down_file_system_answers_reads_with_eio",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: shut_down,
    },
    Case {
        name: "bench::a_cut_off_image_fails_only_reads_past_the_cache",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: cut_off,
    },
    Case {
        name: "bench::a_device_without_room_below_it_loses_what_was_written",
        needs: NEEDS,
        timeout: Duration::from_secs(60),
        run: no_room_below,
    },
];

fn no_room_below(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = LoopDevice::without_room(bench)?;
    let mut file = fs::File::create(mountpoint.join("big"))?;
    for _ in 0..24 {
        file.write_all(&vec![b'x'; 1 << 20]).context("a write itself failed")?;
    }
    let synced = file.sync_all();
    ensure!(synced.is_err(), "the storage took it all");
    fs::write(mountpoint.join("small"), b"x").context("the file system refuses writes")
}

fn ext4_error(bench: &mut Bench) -> Result<()> {
    let device = LoopDevice::make(bench, "disk", Kind::Ext4)?;
    let mountpoint = bench.make_directory("disk")?;
    device.mount(&mountpoint, "errors=remount-ro")?;
    fs::write(mountpoint.join("before"), b"x")?;
    LoopDevice::settle(&mountpoint)?;
    device.trigger_error()?;
    let written = fs::write(mountpoint.join("after"), b"x");
    // Read-only by then, or in the middle of becoming so: a journal that aborts answers its own error first.
    let refused = [Errno::EROFS as i32, Errno::EIO as i32];
    ensure!(errno_of(&written).is_some_and(|errno| refused.contains(&errno)), "{written:?}");
    ensure!(fs::read(mountpoint.join("before"))? == b"x");
    unmount(&mountpoint)?;
    device.mount(&mountpoint, "errors=remount-ro").context("the device went away")?;
    fs::write(mountpoint.join("after"), b"x").context("a new mount does not heal")?;
    Ok(())
}

fn shut_down(bench: &mut Bench) -> Result<()> {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let device = LoopDevice::make(bench, kind.fstype(), kind)?;
        let mountpoint = bench.make_directory(kind.fstype())?;
        device.mount(&mountpoint, "")?;
        fs::write(mountpoint.join("file"), b"x")?;
        LoopDevice::shut_down(&mountpoint)?;
        let read = fs::read(mountpoint.join("file"));
        ensure!(errno_of(&read) == Some(Errno::EIO as i32), "{}: {read:?}", kind.fstype());
    }
    Ok(())
}

fn cut_off(bench: &mut Bench) -> Result<()> {
    for kind in [Kind::Ext4, Kind::Xfs, Kind::Btrfs] {
        let device = LoopDevice::make(bench, kind.fstype(), kind)?;
        let mountpoint = bench.make_directory(kind.fstype())?;
        device.mount(&mountpoint, "")?;
        let file = mountpoint.join("file");
        fs::File::create(&file)?.write_all(&[b'x'; 8192])?;
        fs::File::open(&file)?.sync_all()?;
        ensure!(fs::read(&file)?.len() == 8192);
        device.cut_off()?;
        ensure!(fs::read(&file)?.len() == 8192, "{}: not in the cache", kind.fstype());
        let direct = read_directly(&file);
        ensure!(errno_of(&direct) == Some(Errno::EIO as i32), "{}: {direct:?}", kind.fstype());
        ensure!(only_mount_at(&mountpoint)?.fstype == kind.fstype());
    }
    Ok(())
}

/// Past the page cache. The buffer of a `Vec` this large is page-aligned in practice; direct reads need that.
fn read_directly(path: &Path) -> io::Result<usize> {
    let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(path)?;
    let mut room = vec![0; 3 * 4096];
    let aligned = room.as_ptr().align_offset(4096);
    let buffer = room.get_mut(aligned..aligned + 8192).ok_or_else(|| io::Error::other("no room"))?;
    file.read(buffer)
}

fn errno_of<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}
