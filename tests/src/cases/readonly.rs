//! Read-only by fault, by order, and by intent: the first two are told apart from the last, whatever shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, errors, toml_string};
use integration_tests::harness::bench::{Bench, in_memory};
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{
    bind, make_bind_readonly, only_mount_at, remount, unmount_when_free,
};
use integration_tests::harness::needs::Need;
use integration_tests::harness::words;
use nix::mount::MsFlags;

const TIMEOUT: Duration = Duration::from_secs(150);
const EXT4: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mkfs.ext4")];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_volume_that_should_be_writable_and_is_mounted_read_only_is_degraded",
        needs: EXT4,
        timeout: TIMEOUT,
        run: against_order,
    },
    Case { name: "what_is_read_only_on_purpose_is_healthy", needs: EXT4, timeout: TIMEOUT, run: on_purpose },
    Case {
        name: "a_remount_to_read_only_is_degraded_and_a_remount_to_writable_ends_it",
        needs: EXT4,
        timeout: TIMEOUT,
        run: remounted,
    },
    Case {
        name: "a_mount_that_alone_turned_read_only_is_degraded_and_its_siblings_are_not",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: one_mount,
    },
    Case {
        name: "ext4_that_is_read_only_by_an_error_stays_degraded_when_it_is_remounted_writable",
        needs: EXT4,
        timeout: TIMEOUT,
        run: not_healed_by_a_remount,
    },
    Case {
        name: "errors_that_ext4_goes_on_after_make_no_volume_sick",
        needs: EXT4,
        timeout: TIMEOUT,
        run: goes_on,
    },
    Case {
        name: "errors_that_a_file_system_remembers_do_not_condemn_it_after_its_repair_nor_after_a_restart",
        needs: EXT4,
        timeout: TIMEOUT,
        run: remembered,
    },
];

fn mounted(bench: &Bench, options: &str) -> Result<(LoopDevice, PathBuf)> {
    let mounted = LoopDevice::mounted(bench, Kind::Ext4, options)?;
    LoopDevice::settle(&mounted.1)?;
    Ok(mounted)
}

fn watched(name: &str, mountpoint: &Path) -> Volume {
    Volume::at(name, mountpoint).set("interval", "500ms").set("deadline", "2s")
}

fn has_word(options: &str, wanted: &str) -> bool {
    options.split(',').any(|word| word == wanted)
}

/// The table says it, so no probe is waited for.
fn against_order(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = mounted(bench, "ro,errors=remount-ro")?;
    let volume = Volume::at("v", &mountpoint).line("options = [\"errors=remount-ro\"]");
    let agent = Agent::start(bench, &volume.set("interval", "10m").to_toml())?;
    agent.wait_degraded("v", "readonly")?;
    remount(&mountpoint, MsFlags::empty())?;
    agent.wait_state("v", "healthy").map(drop)
}

fn on_purpose(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = mounted(bench, "ro")?;
    // Writable as a file system, and shown read-only at one place.
    let shared = bench.make_directory("shared")?;
    in_memory(&shared)?;
    let view = bench.make_directory("view")?;
    bind(&shared, &view)?;
    make_bind_readonly(&view)?;
    let found = bench.make_directory("found")?;
    bind(&mountpoint, &found)?;
    let volumes = [
        watched("ordered", &mountpoint).line("options = [\"ro\", \"errors=remount-ro\"]"),
        watched("view", &view).line("options = [\"bind\", \"ro\"]"),
        watched("shared", &shared).line("options = [\"rw\"]"),
        // Nobody says how it should be: it is as it is.
        watched("unsaid", &found),
    ];
    let agent = Agent::start(bench, &volumes.map(|volume| volume.to_toml()).concat())?;
    for volume in ["ordered", "view", "shared", "unsaid"] {
        agent.wait_state(volume, "healthy")?;
        // A program that writes there all the same meets its error, and that is all.
        for place in [&mountpoint, &view].into_iter().filter(|_| volume != "shared") {
            ensure!(fs::write(place.join("new"), b"x").is_err(), "{} can be written", place.display());
        }
        agent.wait_probes(volume, 2.0)?;
        words::was_never_sick(&agent, volume)?;
    }
    // The file system under a view turns read-only: the writable one is sick, the view is as it should be.
    remount(&shared, MsFlags::MS_RDONLY)?;
    agent.wait_degraded("shared", "readonly")?;
    let scrape = agent.wait_probes("view", 2.0)?;
    ensure!(words::healthy(&scrape, "view")?, "{}", scrape.summary());
    words::was_never_sick(&agent, "view")
}

fn remounted(bench: &mut Bench) -> Result<()> {
    let (_device, mountpoint) = mounted(bench, "errors=remount-ro")?;
    let pattern = toml_string(&mountpoint.display().to_string());
    let discovery = format!(
        "[defaults]\ninterval = \"10m\"\n[discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern} }}]\n"
    );
    let agent = Agent::start(bench, &discovery)?;
    let name = mountpoint.display().to_string();
    agent.wait_state(&name, "healthy")?;
    remount(&mountpoint, MsFlags::MS_RDONLY)?;
    agent.wait_degraded(&name, "readonly")?;
    remount(&mountpoint, MsFlags::empty())?;
    agent.wait_state(&name, "healthy")?;
    words::untouched(&agent.scrape()?)
}

/// The file system can be written all the while, at another place.
fn one_mount(bench: &mut Bench) -> Result<()> {
    let (place, sibling) = (bench.make_directory("volume")?, bench.make_directory("sibling")?);
    in_memory(&place)?;
    bind(&place, &sibling)?;
    let body = watched("v", &place).to_toml() + &watched("sibling", &sibling).to_toml();
    let agent = Agent::start(bench, &body)?;
    agent.wait_state("v", "healthy")?;
    agent.wait_state("sibling", "healthy")?;
    make_bind_readonly(&place)?;
    agent.wait_degraded("v", "readonly")?;
    ensure!(has_word(&only_mount_at(&place)?.super_options, "rw"), "the file system itself was changed");
    agent.wait_probes("sibling", 2.0)?;
    words::was_never_sick(&agent, "sibling")?;
    remount(&place, MsFlags::MS_BIND)?;
    agent.wait_state("v", "healthy")?;
    words::untouched(&agent.scrape()?)
}

fn not_healed_by_a_remount(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, "errors=remount-ro")?;
    let agent = Agent::start(bench, &watched("v", &mountpoint).to_toml())?;
    agent.wait_state("v", "healthy")?;
    words::was_never_sick(&agent, "v").context("an option that only looks like it")?;
    device.trigger_error()?;
    agent.wait_degraded("v", "readonly")?;
    // kernel: `__ext4_remount`, fs/ext4/super.c: before 6.12 the flag was cleared, since then this does nothing.
    if remount(&mountpoint, MsFlags::empty()).is_err() || fs::write(mountpoint.join("new"), b"x").is_ok() {
        return Err(Skip("this kernel refuses the remount, or heals by it".to_owned()).into());
    }
    let scrape = agent.wait_probes("v", 4.0)?;
    ensure!(words::sick(&scrape, "v", "readonly")?, "{}", scrape.summary());
    ensure!(!has_word(&only_mount_at(&mountpoint)?.super_options, "ro"), "the table would have said it");
    Ok(())
}

fn goes_on(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, "errors=continue")?;
    let agent = Agent::start(bench, &watched("v", &mountpoint).line("write_probe = true").to_toml())?;
    agent.wait_state("v", "healthy")?;
    device.trigger_error()?;
    agent.wait_scrape("the error is counted", |scrape| {
        Ok(errors(scrape, "v", "EUCLEAN", "filesystem", "sysfs") >= 1.0)
    })?;
    agent.wait_probes("v", 4.0)?;
    words::was_never_sick(&agent, "v")?;
    fs::write(mountpoint.join("new"), b"x").context("it goes on, and so must writing")
}

/// ext4 keeps its count of errors on disk until it is checked.
fn remembered(bench: &mut Bench) -> Result<()> {
    let (device, mountpoint) = mounted(bench, "errors=remount-ro")?;
    let setup = Setup::new(bench, &watched("v", &mountpoint).sentinel("here").to_toml())?;
    fs::write(mountpoint.join(".mountie"), "here")?;
    LoopDevice::settle(&mountpoint)?;
    let repair = || -> Result<()> {
        unmount_when_free(&mountpoint)?;
        device.mount(&mountpoint, "errors=remount-ro")
    };
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    device.trigger_error()?;
    agent.wait_degraded("v", "readonly")?;
    repair()?;
    ensure!(remembered_errors(&device)? > 0, "nothing is remembered, so nothing is shown here");
    agent.wait_state("v", "healthy")?;
    let counted = agent.scrape()?.sum("mountie_volume_errors_total", &[("volume", "v")]);
    ensure!(counted > 0.0, "the counters have forgotten");

    // The next agent finds a sound volume with old errors …
    agent.terminate(SOON)?;
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    agent.wait_probes("v", 3.0)?;
    words::was_never_sick(&agent, "v")?;
    // … one that is sick when it starts …
    device.trigger_error()?;
    agent.wait_degraded("v", "readonly")?;
    agent.terminate(SOON)?;
    let mut agent = Agent::start_with(bench, &setup)?;
    agent.wait_degraded("v", "readonly")?;
    // … and one that was repaired while nobody looked.
    agent.terminate(SOON)?;
    repair()?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    words::was_never_sick(&agent, "v")
}

/// kernel: `errors_count`, fs/ext4/sysfs.c, since 3.18.
fn remembered_errors(device: &LoopDevice) -> Result<u64> {
    let name = device.device().file_name().context("the device has no name")?;
    let text = fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("errors_count"))?;
    text.trim().parse().context("errors_count is no number")
}
