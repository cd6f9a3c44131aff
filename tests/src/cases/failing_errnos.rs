//! Every error number that a file system may answer with: which of them are a fault, and which one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, has_reason};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::only_mount_at;
use integration_tests::harness::needs::Need;
use integration_tests::harness::words;
use nix::errno::Errno;

const TIMEOUT: Duration = Duration::from_secs(180);
const NEEDS: &[Need] = &[Need::Root, Need::Fuse];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "every_errno_of_dead_storage_degrades_for_its_own_reason_and_clears",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: dead,
    },
    Case {
        name: "errnos_that_say_try_again_or_no_room_degrade_nothing",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: harmless,
    },
    Case {
        name: "whatever_a_dead_mount_answers_the_repair_decides_by_the_table",
        needs: NEEDS,
        timeout: TIMEOUT,
        run: repaired,
    },
];

/// What the root answers, and what that is.
const DEAD: &[(Errno, &str)] = &[
    (Errno::ESTALE, "stale"),
    (Errno::EIO, "io_error"),
    (Errno::ENXIO, "io_error"),
    (Errno::ENODEV, "io_error"),
    (Errno::EUCLEAN, "io_error"),
    (Errno::EBADMSG, "io_error"),
    (Errno::EREMOTEIO, "io_error"),
    (Errno::ENOTCONN, "disconnected"),
    (Errno::ECONNABORTED, "disconnected"),
    (Errno::ESHUTDOWN, "disconnected"),
    (Errno::EHOSTDOWN, "host_down"),
    (Errno::ETIMEDOUT, "host_down"),
    (Errno::EHOSTUNREACH, "host_down"),
    (Errno::ENOKEY, "auth"),
    (Errno::EKEYEXPIRED, "auth"),
    (Errno::EKEYREVOKED, "auth"),
    (Errno::EKEYREJECTED, "auth"),
];

fn watched(name: &str, injector: &Injector) -> Volume {
    Volume::at(name, injector.mountpoint()).set("interval", "400ms").set("deadline", "4s")
}

/// A volume for each of them.
fn dead(bench: &mut Bench) -> Result<()> {
    let mut volumes = Vec::new();
    let mut body = String::new();
    for (errno, reason) in DEAD {
        let name = format!("{errno:?}");
        let injector = Injector::start(bench, &name, "here")?;
        body += &watched(&name, &injector).to_toml();
        volumes.push((name, injector, *errno, *reason));
    }
    let agent = Agent::start(bench, &body)?;
    for (name, ..) in &volumes {
        agent.wait_state(name, "healthy")?;
    }
    for (_, injector, errno, _) in &volumes {
        injector.set(&Mode::fail_all(*errno))?;
    }
    for (name, _, _, reason) in &volumes {
        let scrape = agent.wait_degraded(name, reason)?;
        let counted = scrape
            .sum("mountie_volume_errors_total", &[("volume", name), ("errno", name), ("source", "probe")]);
        ensure!(counted > 0.0, "{name} is not counted");
    }
    for (_, injector, ..) in &volumes {
        injector.set(&Mode::Ok)?;
    }
    for (name, ..) in &volumes {
        agent.wait_state(name, "healthy")?;
    }
    Ok(())
}

/// What is answered, and which operations answer it.
const HARMLESS: &[(&str, Errno, &[&str])] = &[
    ("again", Errno::EAGAIN, &["read"]),
    ("interrupted", Errno::EINTR, &["read"]),
    ("no-entry", Errno::ENOENT, &["open", "read"]),
    ("no-space", Errno::ENOSPC, &["write", "create", "fsync", "flush"]),
    ("no-quota", Errno::EDQUOT, &["write", "create", "fsync", "flush"]),
    ("refused", Errno::EACCES, &["open"]),
];

/// With one look in between that failed, so that a second would be one too many.
fn harmless(bench: &mut Bench) -> Result<()> {
    let mut volumes = Vec::new();
    let mut body = String::new();
    for (name, errno, operations) in HARMLESS {
        let injector = Injector::start(bench, name, "here")?;
        injector.set(&Mode::fail(*errno, operations))?;
        body += &watched(name, &injector)
            .set("source", "injector")
            .set("fstype", FSTYPE)
            .sentinel("here")
            .line(&format!("write_probe = {}", is_full(*errno)))
            .to_toml();
        volumes.push((*name, injector, *errno));
    }
    let agent = Agent::start(bench, &body)?;
    agent.wait_scrape("each was looked at often enough", |scrape| {
        let probes = |name: &&str| scrape.sum("mountie_probe_total", &[("volume", name)]);
        Ok(volumes.iter().all(|(name, ..)| probes(name) >= 8.0))
    })?;
    let scrape = agent.scrape()?;
    for (name, _, errno) in &volumes {
        words::was_never_sick(&agent, name).context(*name)?;
        ensure!(has_reason(&scrape, name, "full")? == is_full(*errno), "{name}: {}", scrape.summary());
    }
    for (name, injector, _) in &volumes {
        injector.set(&Mode::Ok)?;
        agent.wait_state(name, "healthy")?;
        agent.wait_scrape("there is room", |scrape| Ok(!has_reason(scrape, name, "full")?))?;
    }
    Ok(())
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::ENOSPC | Errno::EDQUOT)
}

/// The path of such a mount can be neither asked for nor made.
const PATH_ERRORS: [Errno; 5] = [Errno::EIO, Errno::ENODEV, Errno::ESTALE, Errno::ENOTCONN, Errno::EUCLEAN];

fn repaired(bench: &mut Bench) -> Result<()> {
    let mut volumes = Vec::new();
    let mut body = String::new();
    for errno in PATH_ERRORS {
        let name = format!("{errno:?}");
        let old = Injector::start(bench, &name, "here")?;
        let new = Injector::prepare(bench, format!("{name}.new"), "here")?;
        let mut command = new.command()?;
        command.push("{target}".to_owned());
        let volume = watched(&name, &old).set("source", &name).set("fstype", FSTYPE).sentinel("here");
        body += &volume.repaired_by(&command).to_toml();
        let before = only_mount_at(old.mountpoint())?;
        volumes.push((name, old, errno, before));
    }
    let agent = Agent::start(bench, &body)?;
    for (name, ..) in &volumes {
        agent.wait_state(name, "healthy")?;
    }
    for (_, old, errno, _) in &volumes {
        old.set(&Mode::fail_all(*errno))?;
    }
    for (name, old, _, before) in &volumes {
        agent.wait_scrape("it is repaired", |scrape| {
            Ok(words::repairs(scrape, name, "changed") == 1.0 && words::healthy(scrape, name)?)
        })?;
        let attempts = agent.scrape()?.sum("mountie_remediation_total", &[("volume", name)]);
        ensure!(attempts == 1.0, "{name}: {attempts} attempts");
        ensure!(only_mount_at(old.mountpoint())?.device != before.device, "{name}: the old one");
    }
    Ok(())
}
