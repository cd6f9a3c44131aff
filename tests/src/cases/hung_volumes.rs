//! Three of ten volumes do not answer: the agent neither grows nor slows down, and the other seven are looked
//! at as before.

use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{children, open_descriptors, status_number, timed};
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::{now, patiently, pause};

pub(crate) const CASES: &[Case] = &[Case {
    name: "ten_volumes_three_hung",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(240),
    run: three_hung,
}];

const VOLUMES: usize = 10;
const HUNG: usize = 3;
const INTERVAL: Duration = Duration::from_millis(200);
const INTERVALS: u32 = 200;

fn three_hung(bench: &mut Bench) -> Result<()> {
    let injectors: Vec<Injector> = (0..VOLUMES)
        .map(|number| Injector::start(bench, format!("v{number}"), "here"))
        .collect::<Result<_>>()?;
    let volumes = injectors.iter().enumerate().map(|(number, injector)| {
        let volume = Volume::at(&name(number), injector.mountpoint()).sentinel("here");
        volume.set("interval", "200ms").set("deadline", "1s").to_toml()
    });
    let mut agent = Agent::start(bench, &volumes.collect::<String>())?;
    for number in 0..VOLUMES {
        agent.wait_state(&name(number), "healthy")?;
    }
    let before = Size::of(&agent);
    for injector in injectors.iter().take(HUNG) {
        injector.set(&Mode::hang_all())?;
    }
    for number in 0..HUNG {
        agent.wait_degraded(&name(number), "hung")?;
    }

    let scrape_at_first = agent.scrape()?;
    let mut sizes = Vec::new();
    let begin = now();
    while now().saturating_sub(begin) < INTERVAL * INTERVALS {
        let (scrape, took) = timed(|| agent.scrape());
        ensure!(took < patiently(Duration::from_secs(1)), "a scrape took {took:?}");
        let abandoned = scrape?.value("mountie_probe_abandoned_workers", &[])?;
        ensure!(abandoned <= HUNG as f64, "{abandoned} abandoned workers for {HUNG} hung volumes");
        sizes.push(Size::of(&agent));
        pause(INTERVAL);
    }
    stays_flat(before, &sizes)?;
    rhythm_is_kept(&scrape_at_first, &agent.scrape()?)?;
    for number in 0..HUNG {
        let labels = [("volume", name(number))];
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
        ensure!(agent.scrape()?.value("mountie_probe_stuck_seconds", &labels)? > 30.0);
    }

    let status = agent.terminate(Duration::from_secs(5))?;
    ensure!(status.code() == Some(0), "ended with {status}");
    Ok(())
}

/// Workers come and go with the load, and descriptors with them, so the peaks of both halves are compared.
fn stays_flat(before: Size, sizes: &[Size]) -> Result<()> {
    let (first, last) = sizes.split_at(sizes.len() / 2);
    let peak = |half: &[Size]| Size {
        threads: half.iter().map(|size| size.threads).max().unwrap_or(0),
        descriptors: half.iter().map(|size| size.descriptors).max().unwrap_or(0),
        workers: half.iter().map(|size| size.workers).max().unwrap_or(0),
    };
    let (first, last) = (peak(first), peak(last));
    ensure!(last.threads <= before.threads + HUNG as u64, "threads: {before:?}, at last {last:?}");
    // Three descriptors belong to each worker; how many there are depends on the load, and a connection of a
    // scrape may still be open. A look that left one behind would leave hundreds in a half of the time.
    let more_workers = last.workers.saturating_sub(first.workers);
    let most = first.descriptors + VOLUMES + 3 * more_workers;
    ensure!(last.descriptors <= most, "descriptors: {first:?}, at last {last:?}");
    // One for each volume that is looked at, and one for each that hangs.
    ensure!(last.workers <= VOLUMES + HUNG, "workers: {before:?}, at last {last:?}");
    Ok(())
}

fn name(number: usize) -> String {
    format!("v{number}")
}

/// The seven were probed about once an interval. Half of that is let pass: the machine may be busy.
fn rhythm_is_kept(first: &Scrape, last: &Scrape) -> Result<()> {
    let due = f64::from(INTERVALS);
    for number in HUNG..VOLUMES {
        let volume = name(number);
        let good = |scrape: &Scrape| {
            scrape.value("mountie_probe_total", &[("volume", volume.as_str()), ("result", "ok")])
        };
        let made = good(last)? - good(first)?;
        ensure!(made >= due / 2.0 && made <= due * 1.5, "{volume}: {made} good probes in {due} intervals");
        let when = |scrape: &Scrape| {
            scrape.value("mountie_volume_last_ok_timestamp_seconds", &[("volume", volume.as_str())])
        };
        let passed = when(last)? - when(first)?;
        ensure!(
            passed > due * INTERVAL.as_secs_f64() - 5.0,
            "{volume}: the last good probe is old ({passed})"
        );
    }
    Ok(())
}

/// What must not grow.
#[derive(Clone, Copy, Debug)]
struct Size {
    threads: u64,
    descriptors: usize,
    workers: usize,
}

impl Size {
    fn of(agent: &Agent) -> Self {
        Self {
            threads: status_number(agent.id(), "Threads").unwrap_or(u64::MAX),
            descriptors: open_descriptors(agent.id()),
            workers: children(agent.id()).len(),
        }
    }
}
