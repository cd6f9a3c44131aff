//! Faults of block file systems that the mount table does not show, or shows only between the lines.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{mounts_at, only_mount_at, unmount};
use integration_tests::harness::needs::Need;

const TIMEOUT: Duration = Duration::from_secs(150);
const EXT4: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4"), Need::Tool("xfs_io")];
const XFS: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mkfs.xfs"), Need::Tool("xfs_io")];
const BTRFS: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mkfs.btrfs")];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "ext4_that_became_read_only_by_an_error_is_degraded",
        needs: EXT4,
        timeout: TIMEOUT,
        run: ext4_error,
    },
    Case {
        name: "ext4_that_became_read_only_by_an_error_is_mounted_anew_in_mode_act",
        needs: EXT4,
        timeout: TIMEOUT,
        run: ext4_error_repaired,
    },
    Case { name: "a_shut_down_ext4_is_degraded", needs: EXT4, timeout: TIMEOUT, run: ext4_shut_down },
    Case { name: "a_shut_down_xfs_is_degraded", needs: XFS, timeout: TIMEOUT, run: xfs_shut_down },
    Case {
        name: "storage_cut_off_under_ext4_is_noticed_past_the_cache",
        needs: EXT4,
        timeout: TIMEOUT,
        run: |bench| cut_off(bench, Kind::Ext4),
    },
    Case {
        name: "storage_cut_off_under_xfs_is_noticed_past_the_cache",
        needs: XFS,
        timeout: TIMEOUT,
        run: |bench| cut_off(bench, Kind::Xfs),
    },
    Case {
        name: "storage_cut_off_under_btrfs_is_noticed_past_the_cache",
        needs: BTRFS,
        timeout: TIMEOUT,
        run: |bench| cut_off(bench, Kind::Btrfs),
    },
];

fn mounted(bench: &Bench, kind: Kind, options: &str) -> Result<(LoopDevice, PathBuf)> {
    let (device, mountpoint) = LoopDevice::mounted(bench, kind, options)?;
    let mut sentinel = File::create(mountpoint.join(".mountie"))?;
    sentinel.write_all(b"here")?;
    LoopDevice::settle(&mountpoint)?;
    Ok((device, mountpoint))
}

fn watched(mountpoint: &Path) -> Volume {
    Volume::at("v", mountpoint).sentinel("here").set("interval", "1s").set("deadline", "2s")
}

fn ext4_error(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, Kind::Ext4, "errors=remount-ro")?;
    let agent = Agent::start(bench, &watched(&mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    device.trigger_error()?;
    agent.wait_degraded("v", "readonly")?;
    // It clears by itself when somebody repairs it.
    unmount(&mountpoint)?;
    device.mount(&mountpoint, "errors=remount-ro")?;
    agent.wait_state("v", "healthy")?;
    // The watch for errors is set again on the new superblock.
    device.trigger_error()?;
    agent.wait_degraded("v", "readonly").map(drop)
}

fn ext4_error_repaired(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, Kind::Ext4, "errors=remount-ro")?;
    let volume = watched(&mountpoint)
        .set("source", &device.device().display().to_string())
        .set("fstype", "ext4")
        .line("options = [\"errors=remount-ro\"]")
        .repaired_by_mount();
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    device.trigger_error()?;
    agent.wait_scrape("mounted anew", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &[("volume", "v"), ("outcome", "changed")]) >= 1.0)
    })?;
    agent.wait_state("v", "healthy")?;
    let line = only_mount_at(&mountpoint)?;
    ensure!(!line.super_options.split(',').any(|word| word == "emergency_ro"), "{line:?}");
    fs::write(mountpoint.join("new"), b"x")?;
    Ok(())
}

fn ext4_shut_down(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = mounted(bench, Kind::Ext4, "")?;
    let agent = Agent::start(bench, &watched(&mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    LoopDevice::shut_down(&mountpoint)?;
    agent.wait_degraded("v", "fs_shutdown").map(drop)
}

/// The table says nothing after an XFS shutdown; what a probe meets is EIO.
fn xfs_shut_down(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = mounted(bench, Kind::Xfs, "")?;
    let agent = Agent::start(bench, &watched(&mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    LoopDevice::shut_down(&mountpoint)?;
    let scrape = agent.wait_state("v", "degraded")?;
    let why = scrape.matching("mountie_volume_condition_reason", &[("volume", "v")]);
    let why: Vec<_> =
        why.filter(|(_, set)| *set > 0.0).filter_map(|(labels, _)| labels.get("reason")).collect();
    ensure!(why.iter().any(|reason| *reason == "io_error" || *reason == "fs_shutdown"), "{why:?}");
    Ok(())
}

fn cut_off(bench: &mut Bench, kind: Kind) -> Result<()> {
    let (device, mountpoint) = mounted(bench, kind, "")?;
    let agent = Agent::start(bench, &watched(&mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    ensure!(fs::read(mountpoint.join(".mountie"))? == b"here");
    let before = mounts_at(&mountpoint)?;
    device.cut_off()?;
    agent.wait_degraded("v", "io_error")?;
    ensure!(mounts_at(&mountpoint)?.len() == before.len());
    Ok(())
}
