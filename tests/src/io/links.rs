//! A link on one volume that leads to another, which fails. The text of the name speaks of the first one.

use std::fs::OpenOptions;
use std::io::Error;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::Volume;
use integration_tests::harness::bench::Bench;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use nix::errno::Errno;

use super::attribution::{CALLS, Counted, agent_with, only};
use super::marks::{Counts, counts_of, difference};

/// The case. Neither volume has a sentinel, so that nothing but the errors could condemn one.
pub(super) fn case(bench: &mut Bench) -> Result<&'static str> {
    let sound = Injector::start(bench, "sound", "here")?;
    let sick = Injector::start(bench, "sick", "here")?;
    let link = sound.mountpoint().join("link");
    std::os::unix::fs::symlink(sick.data(0), &link).context("cannot make a link")?;
    let volumes = [Volume::at("sound", sound.mountpoint()), Volume::at("sick", sick.mountpoint())];
    let mut agent = agent_with(bench, &volumes)?;
    for volume in ["sound", "sick"] {
        agent.wait_state(volume, "healthy")?;
    }
    let exact = |volume: &str| -> Result<Counts> { Ok(counts_of(&agent.scrape()?, volume, "bpf")) };
    let before = exact("sound")?;
    let mut counted = Counted::new(&sound, &agent, "sound")?;
    let open = || {
        sick.set(&Mode::fail(Errno::EIO, &["open"]))?;
        let met: Vec<Option<i32>> = (0..CALLS)
            .map(|_| OpenOptions::new().read(true).open(&link).err().as_ref().and_then(Error::raw_os_error))
            .collect();
        sick.set(&Mode::Ok)?;
        ensure!(met.iter().all(|errno| *errno == Some(Errno::EIO as i32)), "the calls met {met:?}");
        Ok(())
    };
    let all = only(Errno::EIO, "open");
    // Seen by the functions inside the call, or by the text of the name alone.
    let rises = counted.must_rise(&["sound", "sick"], open, |rises| {
        matches!(rises, [sound, sick] if (sound.is_empty() && *sick == all) || (*sound == all && sick.is_empty()))
    })?;
    let is_exact = rises.first().is_some_and(Counts::is_empty);
    let wrong = difference(&before, &exact("sound")?).into_iter().find(|((_, op), _)| op == "open");
    ensure!(wrong.is_none(), "counted for the volume of the link: {wrong:?}");
    ensure!(
        agent.scrape()?.value("mountie_volume_state", &[("volume", "sound"), ("state", "degraded")])? == 0.0
    );
    agent.must_run()?;
    Ok(if is_exact { "counted" } else { "a hint" })
}
