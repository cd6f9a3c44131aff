//! Many mounts, many changes, lost events: whatever else happens to the table, what happens to a volume is seen.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, errors};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::{Case, Skip};
use integration_tests::harness::fuse_fs::Injector;
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::mnt_ns::{
    detach, mount_from, mounts_at, move_mount, table, unmount_when_free,
};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{Background, run, status_number};
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "after_more_mount_events_than_the_kernel_keeps_the_table_is_read_and_the_loss_is_counted",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: overflow,
    },
    Case {
        name: "among_thousands_of_mounts_that_change_all_the_time_no_change_of_a_volume_is_lost",
        needs: &[Need::Root],
        timeout: TIMEOUT,
        run: |bench| churn(bench, false),
    },
    Case {
        name: "without_mount_events_no_change_of_a_volume_is_lost_among_thousands_either",
        needs: &[Need::Root, Need::Tool("setpriv")],
        timeout: TIMEOUT,
        run: |bench| churn(bench, true),
    },
    Case {
        name: "a_file_system_that_refuses_error_events_costs_no_other_its_own",
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::Loop,
            Need::Tool("mkfs.ext4"),
            Need::Tool("mkfs.btrfs"),
            Need::Tool("btrfs"),
        ],
        timeout: TIMEOUT,
        run: refused_marks,
    },
];

/// More than two events each for the 16384 that the kernel keeps.
///
/// kernel: `FANOTIFY_DEFAULT_MAX_EVENTS`, fs/notify/fanotify/fanotify_user.c, since 2.6.37.
const PAIRS: usize = 9_000;

fn watched(name: &str, place: &Path) -> Volume {
    Volume::at(name, place).set("interval", "10m").set("deadline", "2s")
}

/// The agent is stopped meanwhile, as on a node that has no time for it.
fn overflow(bench: &mut Bench) -> Result<()> {
    let (kept, gone, back) =
        (bench.make_directory("kept")?, bench.make_directory("gone")?, bench.make_directory("back")?);
    for place in [&kept, &gone, &back] {
        mount_tmpfs(place, "size=64k")?;
    }
    let body = [("kept", &kept), ("gone", &gone), ("back", &back)]
        .map(|(name, place)| watched(name, place).to_toml());
    let mut agent = Agent::start(bench, &body.concat())?;
    for name in ["kept", "gone", "back"] {
        agent.wait_state(name, "healthy")?;
    }
    let scrape = agent.scrape()?;
    if !words::source_is_up(&scrape, "fanotify_mnt")? {
        return Err(Skip("needs mount events".to_owned()).into());
    }
    let old = words::device(&scrape, "back")?;
    let place = bench.make_directory("place")?;
    agent.freeze(true)?;
    for _ in 0..PAIRS {
        mount_from("x".as_ref(), &place, "tmpfs")?;
        detach(&place)?;
    }
    // After the last event that is kept.
    unmount_when_free(&gone)?;
    unmount_when_free(&back)?;
    mount_tmpfs(&back, "size=64k")?;
    agent.freeze(false)?;
    agent.wait_degraded("gone", "missing")?;
    let scrape = agent.wait_scrape("the loss is counted", |scrape| {
        Ok(scrape.value("mountie_mount_events_dropped_total", &[])? >= 1.0)
    })?;
    ensure!(words::source_is_up(&scrape, "fanotify_mnt")?, "the source is lost");
    agent.wait_scrape("the other one has its new superblock", |scrape| {
        Ok(words::device(scrape, "back")? != old && words::healthy(scrape, "back")?)
    })?;
    words::was_never_sick(&agent, "kept")?;
    // And events work on.
    unmount_when_free(&kept)?;
    agent.wait_degraded("kept", "missing")?;
    agent.must_run()
}

/// Mounts that stand while others come and go, and processes that mount and unmount all the time.
const STANDING: usize = 2_000;
const CHURNERS: usize = 3;

const CHURN: &str = "i=0; while :; do i=$(( (i * 7 + 3) % 40 )); p=\"$1/$i\"; mount -t tmpfs -o size=64k churn \"$p\"; \
                     mount --bind \"$p\" \"$1/b\"; umount \"$1/b\"; umount \"$p\"; done";

/// Many mounts that stay; some on each other, so that order alone tells nothing.
fn stand(bench: &Bench) -> Result<()> {
    let standing = bench.make_directory("standing")?;
    for number in 0..STANDING {
        let place = standing.join(number.to_string());
        fs::create_dir(&place)?;
        for _ in 0..=number % 2 {
            mount_from("standing".as_ref(), &place, "tmpfs")?;
        }
    }
    Ok(())
}

fn churn(bench: &mut Bench, polled: bool) -> Result<()> {
    stand(bench)?;
    let name = |number: usize| format!("v{number}");
    let mut places = Vec::new();
    let mut body = String::new();
    for number in 0..3 {
        let place = bench.make_directory(name(number))?;
        mount_tmpfs(&place, "size=64k")?;
        body += &watched(&name(number), &place).to_toml();
        places.push(place);
    }
    let mut setup = Setup::new(bench, &body)?;
    if polled {
        let without = "-sys_admin,-bpf,-perfmon";
        setup.wrapper = ["setpriv", &format!("--bounding-set={without}"), &format!("--inh-caps={without}")]
            .map(str::to_owned)
            .to_vec();
    }
    let mut agent = Agent::start_with(bench, &setup)?;
    let scrape = agent.wait_state("v0", "healthy")?;
    ensure!(!polled || !words::source_is_up(&scrape, "fanotify_mnt")?, "mount events are delivered");
    let churners: Vec<Background> =
        (0..CHURNERS).map(|number| churner(bench, number)).collect::<Result<_>>()?;
    let memory = status_number(agent.id(), "VmRSS").context("no memory")?;
    let elsewhere = bench.make_directory("elsewhere")?;
    for round in 0..3 {
        for (number, place) in places.iter().enumerate() {
            let change = Change::ALL.into_iter().cycle().nth(round + number).context("no changes")?;
            change
                .is_seen(&agent, &name(number), (place, &elsewhere))
                .with_context(|| format!("{change:?}"))?;
        }
    }
    drop(churners);
    let scrape = agent.wait_scrape("the table is as it is", |scrape| {
        Ok(scrape.value("mountie_mount_table_entries", &[])? == table()?.len() as f64)
    })?;
    ensure!(words::bad_lines(&scrape)? == 0.0);
    let grown = status_number(agent.id(), "VmRSS").context("no memory")?.saturating_sub(memory);
    ensure!(grown < 64 << 10, "the agent has grown by {grown} KiB");
    agent.must_run()
}

/// What happens to a volume in the middle of it, and is undone again.
#[derive(Clone, Copy, Debug)]
enum Change {
    Unmounted,
    MovedAway,
    Covered,
}

impl Change {
    const ALL: [Self; 3] = [Self::Unmounted, Self::MovedAway, Self::Covered];

    fn is_seen(self, agent: &Agent, name: &str, (place, elsewhere): (&Path, &Path)) -> Result<()> {
        match self {
            Self::Unmounted => {
                unmount_when_free(place)?;
                agent.wait_degraded(name, "missing")?;
                mount_tmpfs(place, "size=64k")?;
            }
            Self::MovedAway => {
                move_mount(place, elsewhere)?;
                agent.wait_degraded(name, "missing")?;
                move_mount(elsewhere, place)?;
            }
            Self::Covered => {
                mount_from("x".as_ref(), place, "ramfs")?;
                agent.wait_scrape("it is covered", |scrape| Ok(words::stack_depth(scrape, name)? == 2.0))?;
                detach(place)?;
            }
        }
        let device = mounts_at(place)?.pop().map(|line| line.device).unwrap_or_default();
        agent.wait_scrape("what is there now is known and answers", |scrape| {
            let is_known = words::device(scrape, name)? == device && words::stack_depth(scrape, name)? == 1.0;
            Ok(is_known && !words::is_sick(scrape, name)?)
        })?;
        Ok(())
    }
}

fn churner(bench: &Bench, number: usize) -> Result<Background> {
    let directory = bench.make_directory(format!("churn{number}"))?;
    fs::create_dir(directory.join("b"))?;
    for place in 0..40 {
        fs::create_dir(directory.join(place.to_string()))?;
    }
    let child = Command::new("sh").args(["-c", CHURN, "sh"]).arg(&directory).stdin(Stdio::null()).spawn();
    child.map(Background).context("cannot start a shell")
}

/// A file system on a disk of its own.
fn disk(bench: &Bench, name: &str, kind: Kind, options: &str) -> Result<(LoopDevice, PathBuf)> {
    let device = LoopDevice::make(bench, &format!("{name}-disk"), kind)?;
    let place = bench.make_directory(name)?;
    device.mount(&place, options)?;
    Ok((device, place))
}

/// An overlay of directories in another volume.
fn overlay(bench: &Bench, memory: &Path) -> Result<PathBuf> {
    let merged = bench.make_directory("merged")?;
    for name in ["lower", "upper", "work"] {
        fs::create_dir(memory.join(name))?;
    }
    let base = memory.display();
    let options = format!("lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work");
    let words: [&OsStr; 5] =
        ["-t".as_ref(), "overlay".as_ref(), "-o".as_ref(), options.as_ref(), "over".as_ref()];
    run("mount", &[words.as_slice(), &[merged.as_os_str()]].concat())?;
    Ok(merged)
}

/// A volume of each type. Which of them take a mark depends on the kernel; ext4 does wherever there are marks.
fn refused_marks(bench: &mut Bench) -> Result<()> {
    let (ext4, place) = disk(bench, "ext4", Kind::Ext4, "errors=continue")?;
    let (btrfs, top) = disk(bench, "btrfs", Kind::Btrfs, "")?;
    run("btrfs", &["subvolume".as_ref(), "create".as_ref(), top.join("sub").as_os_str()])?;
    let subvolume = bench.make_directory("subvolume")?;
    btrfs.mount(&subvolume, "subvol=sub")?;
    let memory = bench.make_directory("memory")?;
    mount_tmpfs(&memory, "size=1m")?;
    let fuse = Injector::start(bench, "fuse", "here")?;
    let merged = overlay(bench, &memory)?;
    let places: [(&str, &Path); 6] = [
        ("ext4", &place),
        ("btrfs", &top),
        ("subvolume", &subvolume),
        ("memory", &memory),
        ("fuse", fuse.mountpoint()),
        ("overlay", &merged),
    ];
    let body = places.map(|(name, place)| watched(name, place).to_toml()).concat();
    let mut agent = Agent::start(bench, &body)?;
    for (name, _) in places {
        agent.wait_state(name, "healthy").context(name)?;
    }
    if !words::source_is_up(&agent.scrape()?, "fanotify_fs")? {
        return Err(Skip("needs error events of fanotify".to_owned()).into());
    }
    let reported = |scrape: &_| errors(scrape, "ext4", "EUCLEAN", "filesystem", "fanotify");
    let more_than = |before: f64| {
        agent.wait_scrape("an ext4 error is reported", |scrape| {
            // Until the mark is set errors are reported to nobody, so there is one more with each look.
            ext4.trigger_error()?;
            Ok(reported(scrape) > before)
        })
    };
    more_than(0.0)?;
    // The mark ends with the superblock, and is set on the next.
    unmount_when_free(&place)?;
    agent.wait_degraded("ext4", "missing")?;
    ext4.mount(&place, "errors=continue")?;
    let before = reported(&agent.scrape()?);
    let scrape = more_than(before)?;
    for (name, _) in places.iter().filter(|(name, _)| *name != "ext4") {
        let counted = scrape.sum("mountie_volume_errors_total", &[("volume", name)]);
        ensure!(counted == 0.0 && words::healthy(&scrape, name)?, "{name}: {counted} errors");
    }
    agent.must_run()
}
