//! Disks that fail below every layer of software: a SCSI disk with a bad spot, one that is pulled out, and a
//! network disk whose server dies.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{Background, wait_gone};
use integration_tests::harness::wait::wait_for;
use nix::sys::signal::Signal;

use super::fault::{Fault, Place, World, names};
use super::tools::{TOOL_TIME, daemon, detach_all, mount, signal_all, switch, text, tool, wait_listening};
use super::user::{DATA, User};
use super::watch::Watch;

const SCSI: &[Need] =
    &[Need::Module("sd_mod"), Need::Module("scsi_debug"), Need::Tool("mkfs.ext4"), Need::Tool("filefrag")];
const NBD: &[Need] = &[Need::Module("nbd"), Need::Tool("nbd-server"), Need::Tool("nbd-client")];

/// Where the simulated SCSI host shows its disks.
const HOST: &str = "/sys/bus/pseudo/drivers/scsi_debug";
/// Bit 1 of its options: reads meet a bad spot of ten sectors, where the parameter says.
///
/// kernel: `SDEBUG_OPT_MEDIUM_ERR`, drivers/scsi/scsi_debug.c, since 2.6.4; the parameter since 4.20.
const MEDIUM_ERROR: &str = "2";
const BAD_SECTOR: &str = "/sys/module/scsi_debug/parameters/medium_error_start";

/// How many devices the driver makes.
///
/// kernel: `nbds_max`, drivers/block/nbd.c, since 2.6.
const NBD_DEVICES: usize = 16;

/// The disk of the row that is running.
#[derive(Debug)]
struct Disks {
    directory: PathBuf,
    server: Option<Background>,
    /// Network disks so far. Each row has a device of its own: what the last one left may still use the one before.
    network: usize,
}

impl Disks {
    fn network_disk(&self) -> String {
        format!("/dev/nbd{}", self.network % NBD_DEVICES)
    }

    fn scsi(&mut self, place: &Place) -> Result<()> {
        // The last user of the row before may not have closed its file yet.
        wait_for("the simulated disk is free", TOOL_TIME, || tool("rmmod", &["scsi_debug"]).is_ok())?;
        tool("modprobe", &["scsi_debug", "dev_size_mb=64", "delay=0"])?;
        wait_for("the SCSI disk is there", TOOL_TIME, || scsi_disk().is_some())?;
        let device = Path::new("/dev").join(scsi_disk().context("no SCSI disk")?);
        make_ext4(text(&device)?)?;
        mount("ext4", text(&device)?, &place.mountpoint, "")
    }

    fn nbd(&mut self, place: &Place) -> Result<()> {
        self.network += 1;
        let device = self.network_disk();
        let image = self.directory.join(format!("{}.img", place.name));
        fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).context("cannot make an image")?;
        // Not through the server: a machine that is slow would take the time limit of a request for an error.
        make_ext4(text(&image)?)?;
        let config = self.directory.join("nbd.conf");
        let export = format!("[generic]\nlistenaddr = 127.0.0.1\n[disk]\nexportname = {}\n", text(&image)?);
        fs::write(&config, export).context("cannot write the configuration")?;
        self.server = Some(daemon(&self.directory, "nbd-server", &["-d", "-C", text(&config)?])?);
        wait_listening(10809)?;
        tool("nbd-client", &["-N", "disk", "127.0.0.1", &device, "-timeout", "30"])?;
        mount("ext4", &device, &place.mountpoint, "")
    }
}

impl World for Disks {
    fn clear(&mut self, place: &Place) -> Result<()> {
        let _ = switch(Path::new(HOST).join("opts"), "0");
        detach_all(&place.mountpoint)?;
        if self.server.take().is_some() {
            let _ = signal_all("nbd-server", Signal::SIGKILL);
            let _ = tool("nbd-client", &["-d", &self.network_disk()]);
            let _ = fs::remove_file(self.directory.join(format!("{}.img", place.name)));
        }
        Ok(())
    }
}

const BAD_SPOT: Fault<Disks> = Fault {
    row: "ext4, SCSI medium error",
    reasons: &["io_error"],
    needs: SCSI,
    user: User::Reads,
    sentinel: false,
    data: 64 << 10,
    deadline: "2s",
    set_up: |world, place| world.scsi(place),
    break_it: |_, place| {
        switch(BAD_SECTOR, &first_sector(&place.mountpoint.join(DATA))?.to_string())?;
        switch(Path::new(HOST).join("opts"), MEDIUM_ERROR)
    },
    repair: Some(|_, _| switch(Path::new(HOST).join("opts"), "0")),
    beside: None,
};

const PULLED_OUT: Fault<Disks> = Fault {
    row: "ext4, SCSI disk pulled out",
    reasons: &["io_error", "fs_shutdown", "readonly", "writeback_lost"],
    user: User::Nobody,
    break_it: |_, _| {
        let disk = scsi_disk().context("no SCSI disk")?;
        switch(Path::new("/sys/block").join(disk).join("device/delete"), "1")
    },
    repair: None,
    ..BAD_SPOT
};

const SERVER_KILLED: Fault<Disks> = Fault {
    row: "ext4, nbd server killed",
    needs: NBD,
    set_up: |world, place| world.nbd(place),
    break_it: |_, _| signal_all("nbd-server", Signal::SIGKILL).and_then(|servers| wait_gone(&servers)),
    ..PULLED_OUT
};

const FAULTS: &[Fault<Disks>] = &[
    BAD_SPOT,
    PULLED_OUT,
    Fault { user: User::Reads, ..PULLED_OUT },
    SERVER_KILLED,
    Fault { user: User::Reads, ..SERVER_KILLED },
];

/// The names of the rows.
pub(super) fn rows() -> Vec<String> {
    names(FAULTS)
}

/// Runs them.
pub(super) fn run(watch: &mut Watch<'_>) -> Result<()> {
    let mut world = Disks { directory: watch.directory().to_owned(), server: None, network: 0 };
    watch.run(&mut world, FAULTS)?;
    let _ = tool("rmmod", &["scsi_debug"]);
    Ok(())
}

fn make_ext4(device: &str) -> Result<()> {
    let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    tool("mkfs.ext4", &["-q", "-F", "-E", options, device]).map(drop)
}

/// Where on its device a file begins: `0: 0.. 127: FIRST.. LAST: 128: …`.
fn first_sector(file: &Path) -> Result<u64> {
    let printed = tool("filefrag", &["-e", "-b512", text(file)?])?;
    let extent = printed.lines().find(|line| line.trim_start().starts_with("0:"));
    let physical = extent.and_then(|line| line.split(':').nth(2)?.split("..").next());
    physical.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no extent: {printed}"))
}

/// The name of the simulated disk: `adapter0/hostN/targetN:0:0/N:0:0:0/block/NAME`.
fn scsi_disk() -> Option<PathBuf> {
    let mut here = Path::new(HOST).join("adapter0");
    for start in ["host", "target", ""] {
        here = fs::read_dir(&here).ok()?.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if start.is_empty() { name.matches(':').count() == 3 } else { name.starts_with(start) }
        })?;
    }
    fs::read_dir(here.join("block")).ok()?.flatten().next().map(|entry| PathBuf::from(entry.file_name()))
}
