//! Rows about repairs: a fault ends, the agent repairs the volume, and a container that held it follows.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use integration_tests::harness::agent::{Volume, toml_string};
use integration_tests::harness::container::{Container, FILE, INNER};
use integration_tests::harness::needs::first_unmet;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::wait::{now, wait_for_some};
use integration_tests::harness::words;

use super::{Place, Watch, World, changes_to, fill, summary, tell, word};
use crate::faults::fault::{Fault, Repair};

/// From the fault until it is found, and until a repair waits for the server.
const FOUND: Duration = Duration::from_secs(20);
/// From the end of the fault until the volume is healthy: attempts that failed before hold the next one up.
const HEALED: Duration = Duration::from_secs(60);

/// What came of a row.
struct Healed {
    took: Duration,
    /// How long a path showed nothing; `None`: the volume came back without a repair.
    gap: Option<Duration>,
    detail: String,
}

impl Healed {
    fn word(&self) -> String {
        let took = self.took.as_millis();
        match self.gap {
            None => format!("back by itself in {took} ms"),
            Some(Duration::ZERO) => format!("healed in {took} ms, gap 0 ms"),
            Some(gap) => format!("healed in {took} ms, gap {:.3} ms", gap.as_secs_f64() * 1e3),
        }
    }
}

/// Where a row ended that did not come to its end.
enum Failed {
    /// The volume or the container could not be made, or was not healthy when it was sound.
    SetUp(Error),
    /// The fault could not be made, or was not found.
    Missed(Error),
    /// It did not become healthy again.
    Sick(Error),
    /// It did, and something is not as it should be.
    After(Healed, Error),
}

/// When the fault was found, and when it was over.
struct Times {
    fell: Duration,
    over: Duration,
}

impl Watch<'_> {
    /// Runs rows about repairs that share a world. A row that fails does not keep the next from running.
    pub(crate) fn repair<W: World>(&mut self, world: &mut W, repairs: &[Repair<W>]) -> Result<()> {
        for repair in repairs {
            if let Some(place) = self.place_for(repair.fault.row)? {
                self.repair_one(world, repair, &place)?;
            }
        }
        Ok(())
    }

    fn repair_one<W: World>(&mut self, world: &mut W, repair: &Repair<W>, place: &Place) -> Result<()> {
        let row = repair.fault.row;
        if let Some(reason) = first_unmet(repair.fault.needs) {
            return tell("repairs", row, &reason, "");
        }
        let (result, error, detail) = match self.heal(world, repair, place) {
            Ok(healed) => (healed.word(), None, healed.detail),
            Err(Failed::SetUp(error)) => ("not set up".to_owned(), Some(error), String::new()),
            Err(Failed::Missed(error)) => ("missed".to_owned(), Some(error), String::new()),
            Err(Failed::Sick(error)) => ("not healed".to_owned(), Some(error), String::new()),
            Err(Failed::After(healed, error)) => {
                (format!("{}, but {error}", healed.word()), Some(error), healed.detail)
            }
        };
        let detail = self.close(world, (row, place), error, detail);
        tell("repairs", row, &result, &detail)
    }

    /// The whole row, but for what must be cleared away. The container ends with it.
    fn heal<W>(&self, world: &mut W, repair: &Repair<W>, place: &Place) -> Result<Healed, Failed> {
        let container = self.hold(world, repair, place).map_err(Failed::SetUp)?;
        let before = self.agent.scrape().map_err(Failed::SetUp)?;
        let times = self.break_for_a_while(world, repair, place, &before).map_err(Failed::Missed)?;
        let healthy = self.wait_healed(place, times.fell).map_err(Failed::Sick)?;
        let healed = self.healed(place, healthy.saturating_sub(times.over), &before).map_err(Failed::Sick)?;
        match judge(repair, place, &container, &healed) {
            Ok(()) => Ok(healed),
            Err(error) => Err(Failed::After(healed, error)),
        }
    }

    /// Mounts the volume, starts the container, and lets the agent see both while all is sound.
    fn hold<W>(&self, world: &mut W, repair: &Repair<W>, place: &Place) -> Result<Container> {
        let (fault, volume) = (&repair.fault, &place.mountpoint);
        (fault.set_up)(world, place).context("cannot be set up")?;
        fs::create_dir_all(volume.join(INNER)).context("cannot make a directory on the volume")?;
        for file in [volume.join(FILE), volume.join(INNER).join(FILE)] {
            fs::write(&file, "old").with_context(|| format!("cannot write {}", file.display()))?;
        }
        fill(fault, place)?;
        let name = format!("{}-container", place.name);
        let container = Container::start(self.bench, &name, volume, repair.is_held)?;
        container.follows(volume)?;
        let (source, options) = (repair.what)(world, place)?;
        self.take(&acting(repair, place, &source, &options))?;
        self.wait_healthy(place)?;
        Ok(container)
    }

    /// Breaks it, waits until that is found, and ends the fault.
    fn break_for_a_while<W>(
        &self,
        world: &mut W,
        repair: &Repair<W>,
        place: &Place,
        before: &Scrape,
    ) -> Result<Times> {
        let fault = &repair.fault;
        let begin = now();
        (fault.break_it)(world, place).context("cannot be broken")?;
        let broken = now();
        let fell = self.wait_fallen(fault, place, begin)?;
        if repair.server_is_away {
            wait_for_some("a repair waits for the server", FOUND, || {
                let waits = held_up(&self.agent.scrape()?) > held_up(before);
                Ok(waits.then_some(()))
            })?;
        }
        let Some(end) = fault.repair else { return Ok(Times { fell, over: broken }) };
        end(world, place).context("the fault cannot be ended")?;
        Ok(Times { fell, over: now() })
    }

    /// Waits until the fault is found, and tells when. It may be repaired by then.
    fn wait_fallen<W>(&self, fault: &Fault<W>, place: &Place, begin: Duration) -> Result<Duration> {
        wait_for_some("the fault is found", FOUND, || {
            let view = self.view(place)?;
            let falls = changes_to(&view, "degraded", begin);
            let right = falls.iter().filter(|(_, reason)| fault.reasons.contains(reason));
            let first = right.map(|(at, _)| *at).min();
            first.map(Some).with_context(|| summary(&view))
        })
    }

    /// Waits until the volume is healthy, and tells since when.
    fn wait_healed(&self, place: &Place, fell: Duration) -> Result<Duration> {
        wait_for_some("the volume is healthy again", HEALED, || {
            let view = self.view(place)?;
            let since = changes_to(&view, "healthy", fell).first().map(|(at, _)| *at);
            let is_so = word(&view, "state") == "healthy";
            since.filter(|_| is_so).map(Some).with_context(|| summary(&view))
        })
    }

    fn healed(&self, place: &Place, took: Duration, before: &Scrape) -> Result<Healed> {
        let scrape = self.agent.scrape()?;
        let was_repaired = words::repairs(&scrape, &place.name, "changed") >= 1.0;
        let gap =
            Duration::try_from_secs_f64(gaps(&scrape)? - gaps(before)?).context("no gap is that long")?;
        let plans: Vec<String> = scrape
            .matching("mountie_remediation_total", &[("volume", place.name.as_str())])
            .filter(|(_, count)| *count > 0.0)
            .map(|(labels, count)| {
                format!("{count} {}", labels.get("outcome").map(String::as_str).unwrap_or_default())
            })
            .collect();
        Ok(Healed { took, gap: was_repaired.then_some(gap), detail: format!("plans: {}", plans.join(", ")) })
    }
}

/// The volume, repaired by mount(8).
fn acting<W>(repair: &Repair<W>, place: &Place, source: &str, options: &str) -> String {
    let options: Vec<String> = options.split(',').map(toml_string).collect();
    Volume::at(&place.name, &place.mountpoint)
        .set("source", source)
        .set("fstype", repair.fstype)
        .line(&format!("options = [{}]", options.join(", ")))
        .set("interval", "2s")
        .set("deadline", repair.fault.deadline)
        .sentinel("here")
        .repaired_by_mount()
        .to_toml()
}

/// How often a repair was put off because its server is away.
fn held_up(scrape: &Scrape) -> f64 {
    scrape.sum("mountie_remediation_suppressed_total", &[("cause", "server_unreachable")])
}

/// Seconds in which nothing of a volume stood at a path, over all repairs.
fn gaps(scrape: &Scrape) -> Result<f64> {
    scrape.value("mountie_remediation_gap_seconds_sum", &[])
}

/// Whether host and container are as they should be, and the gap is what the kernel lets it be.
fn judge<W>(repair: &Repair<W>, place: &Place, container: &Container, healed: &Healed) -> Result<()> {
    ensure!(healed.gap.is_some() || repair.may_recover, "nothing was repaired");
    container.follows(&place.mountpoint).context("the container does not follow")?;
    let text = format!("fresh on {}", place.name);
    container.shares(&place.mountpoint, &text).context("host and container do not show the same")?;
    let Some(gap) = healed.gap else { return Ok(()) };
    if repair.is_gapless && mounts_beneath()? {
        ensure!(gap.is_zero(), "there is a gap where the kernel mounts beneath");
    } else {
        ensure!(!gap.is_zero(), "no gap was told");
    }
    Ok(())
}

/// kernel: `do_move_mount` with MOVE_MOUNT_BENEATH, fs/namespace.c, since 6.5.
fn mounts_beneath() -> Result<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the release")?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("not the release of a kernel: {release}")
    };
    Ok((major, minor) >= (6, 5))
}
