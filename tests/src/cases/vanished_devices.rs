//! A device that is gone behind its caches, and a device whose name alone is gone.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{bind, make_bind_readonly, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::words;
use nix::sys::stat::{Mode, SFlag, mknod};

const TIMEOUT: Duration = Duration::from_secs(150);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "storage_that_is_cut_off_is_noticed_without_a_sentinel_and_through_a_bind",
        needs: &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: cut_off,
    },
    Case {
        name: "a_device_whose_name_is_gone_is_no_fault",
        needs: &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4")],
        timeout: TIMEOUT,
        run: nameless,
    },
];

fn cut_off(bench: &mut Bench) -> Result<()> {
    let device = LoopDevice::make(bench, "disk", Kind::Ext4)?;
    let place = bench.make_directory("plain")?;
    device.mount(&place, "")?;
    fs::create_dir(place.join("part"))?;
    fs::write(place.join("part/.mountie"), "here")?;
    LoopDevice::settle(&place)?;
    let part = bench.make_directory("part")?;
    bind(&place.join("part"), &part)?;
    make_bind_readonly(&part)?;
    let fast = |volume: Volume| volume.set("interval", "500ms").set("deadline", "2s").to_toml();
    let bound = Volume::at("part", &part).sentinel("here").line("options = [\"bind\", \"ro\"]");
    let body = fast(Volume::at("plain", &place)) + &fast(bound);
    let agent = Agent::start(bench, &body)?;
    agent.wait_state("plain", "healthy")?;
    agent.wait_state("part", "healthy")?;
    let before = [only_mount_at(&place)?, only_mount_at(&part)?];
    // What was read just now is in the cache when the device goes.
    ensure!(fs::read(part.join(".mountie"))? == b"here");
    device.cut_off()?;
    agent.wait_degraded("part", "io_error")?;
    agent.wait_degraded("plain", "io_error")?;
    ensure!([only_mount_at(&place)?, only_mount_at(&part)?] == before, "the table would have said it");
    Ok(())
}

/// As after a rename of the device, or in a container whose `/dev` has other names.
fn nameless(bench: &mut Bench) -> Result<()> {
    let device = LoopDevice::make(bench, "disk", Kind::Ext4)?;
    let number = fs::metadata(device.device()).context("no device")?;
    ensure!(number.file_type().is_block_device());
    let name = bench.path("other-name");
    mknod(&name, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, number.rdev())
        .context("cannot make a node")?;
    let place = bench.make_directory("volume")?;
    let words_of = ["-t".as_ref(), "ext4".as_ref(), name.as_os_str(), place.as_os_str()];
    integration_tests::harness::process::run("mount", &words_of)?;
    LoopDevice::settle(&place)?;
    ensure!(only_mount_at(&place)?.source == name.as_os_str(), "{:?}", only_mount_at(&place)?);
    fs::remove_file(&name)?;
    let volume = Volume::at("v", &place).set("interval", "300ms").set("deadline", "2s");
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    agent.wait_probes("v", 4.0)?;
    words::was_never_sick(&agent, "v")
}
