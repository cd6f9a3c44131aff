//! Whose failed calls are: one superblock with several volumes, overlays, subvolumes, and the process that met
//! the first of them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::loop_dev::{Kind, LoopDevice};
use integration_tests::harness::matrix;
use integration_tests::harness::mnt_ns::bind;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::run;
use integration_tests::harness::reader::{Reader, Work};
use integration_tests::harness::wait::wait_for_some;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::judge::OTHER_SIDES;
use super::marks::{self, Counts, Marks, TRIES, counts, difference, has_skipped_since, key, runs_skipped};
use super::{links, two_files};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Bpf];

/// The rows of the table of kernels that cases here are.
const TWO_ROOTS: &str = "two roots of one superblock";
const OVERLAY: &str = "read through an overlay";
const SUBVOLUMES: &str = "calls on one of two btrfs subvolumes";
const TWO_FILES: &str = "calls on two files, of which one fails";
const LINK: &str = "openat through a symbolic link on another volume";
const BOUND: &str = "read through a bind of a subdirectory of one of two volumes";

/// The row that a case is, if it is one.
pub(super) fn row_of(case: &Case) -> Option<&'static str> {
    let rows = [
        ("io::two_roots_of_one_superblock_are_told_apart", TWO_ROOTS),
        ("io::a_failure_below_an_overlay_is_counted_once_for_each_volume", OVERLAY),
        ("io::errors_of_one_btrfs_subvolume_are_counted_for_that_one", SUBVOLUMES),
        ("io::who_fails_on_two_files_condemns_neither_volume", TWO_FILES),
        ("io::who_fails_behind_a_link_does_not_condemn_the_volume_of_the_link", LINK),
        ("io::a_bind_from_inside_one_of_two_volumes_counts_for_that_one", BOUND),
    ];
    rows.into_iter().find(|(name, _)| *name == case.name).map(|(_, row)| row)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "io::two_roots_of_one_superblock_are_told_apart",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| judged(TWO_ROOTS, two_roots(bench)),
    },
    Case {
        name: "io::a_failure_below_an_overlay_is_counted_once_for_each_volume",
        needs: &[Need::Root, Need::Fuse, Need::Bpf, Need::FileSystem("overlay")],
        timeout: Duration::from_secs(150),
        run: |bench| judged(OVERLAY, overlay(bench)),
    },
    Case {
        name: "io::errors_of_one_btrfs_subvolume_are_counted_for_that_one",
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::Loop,
            Need::Bpf,
            Need::FileSystem("btrfs"),
            Need::Tool("mkfs.btrfs"),
            Need::Tool("btrfs"),
        ],
        timeout: Duration::from_secs(150),
        run: |bench| judged(SUBVOLUMES, subvolumes(bench)),
    },
    Case {
        name: "io::who_fails_on_two_files_condemns_neither_volume",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| judged(TWO_FILES, two_files::case(bench)),
    },
    Case {
        name: "io::who_fails_behind_a_link_does_not_condemn_the_volume_of_the_link",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| judged(LINK, links::case(bench)),
    },
    Case {
        name: "io::a_bind_from_inside_one_of_two_volumes_counts_for_that_one",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: |bench| judged(BOUND, bound(bench)),
    },
    Case {
        name: "io::the_first_process_that_met_an_error_is_described",
        needs: NEEDS,
        timeout: Duration::from_secs(150),
        run: described,
    },
];

/// How often each failing call is made.
pub(super) const CALLS: u64 = 5;

/// Starts an agent with the family of hooks that the caller asks for, and waits until it counts.
pub(super) fn agent_with(bench: &Bench, volumes: &[Volume]) -> Result<Agent> {
    let volumes: String = volumes.iter().map(Volume::to_toml).collect();
    let kernel = format!("[kernel]\nfamily = \"{}\"\n", matrix::family());
    let agent = Agent::start_with(bench, &Setup::new(bench, &(kernel + &volumes))?)?;
    agent.wait_scrape("the kernel programs are attached", |scrape| {
        Ok(scrape.value("mountie_source_up", &[("source", "bpf")])? > 0.0)
    })?;
    Ok(agent)
}

/// Reads the first byte of an open file; 0 or the error's number.
pub(super) fn read_byte(file: &File) -> i32 {
    file.read_at(&mut [0], 0).err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

/// One volume of an agent, and the file whose marks are counted for it.
pub(super) struct Counted<'a> {
    injector: &'a Injector,
    agent: &'a Agent,
    marked: (&'a str, File),
    marks: Marks,
}

impl<'a> Counted<'a> {
    pub(super) fn new(injector: &'a Injector, agent: &'a Agent, marked: &'a str) -> Result<Self> {
        let file = File::open(injector.mountpoint().join(marks::FILE)).context("cannot open a file")?;
        Ok(Self { injector, agent, marked: (marked, file), marks: Marks::new() })
    }

    /// What rises for some volumes while `work` goes on must be right. It is done again where it is not and the kernel
    /// skipped runs of programs meanwhile.
    pub(super) fn must_rise(
        &mut self,
        volumes: &[&str],
        work: impl Fn() -> Result<()>,
        is_right: impl Fn(&[Counts]) -> bool,
    ) -> Result<Vec<Counts>> {
        let mut tries = 1;
        loop {
            let skipped = runs_skipped(&self.agent.scrape()?);
            let rises = self.rises(volumes, &work)?;
            if is_right(&rises) {
                return Ok(rises);
            }
            ensure!(tries < TRIES && has_skipped_since(self.agent, skipped), "{volumes:?}: {rises:?}");
            tries += 1;
        }
    }

    /// What rises for some volumes while `work` goes on, without the marks.
    fn rises(&mut self, volumes: &[&str], work: impl FnOnce() -> Result<()>) -> Result<Vec<Counts>> {
        let before = self.all(volumes)?;
        work()?;
        self.injector.set(&Mode::Ok)?;
        let (volume, file) = &self.marked;
        let marks = self.marks.settle(self.injector, (self.agent, volume), || Ok(vec![read_byte(file)]))?;
        let after = self.all(volumes)?;
        let mut rises: Vec<Counts> =
            before.iter().zip(&after).map(|(before, after)| difference(before, after)).collect();
        for rise in &mut rises {
            rise.retain(|found, _| {
                !marks.iter().any(|mark| *found == key(*mark, "read"))
                    && !OTHER_SIDES.contains(&found.1.as_str())
            });
        }
        Ok(rises)
    }

    fn all(&self, volumes: &[&str]) -> Result<Vec<Counts>> {
        let scrape = self.agent.scrape()?;
        Ok(volumes.iter().map(|volume| counts(&scrape, volume)).collect())
    }
}

pub(super) fn only(errno: Errno, op: &str) -> Counts {
    Counts::from([(key(errno, op), CALLS)])
}

/// Whether all that rose is the failed calls on one of the volumes.
fn is_only(rises: &[Counts], owner: usize, errno: Errno, op: &str) -> bool {
    rises.iter().enumerate().all(|(index, rise)| match index == owner {
        true => *rise == only(errno, op),
        false => rise.is_empty(),
    })
}

fn two_roots(bench: &mut Bench) -> Result<&'static str> {
    let injector = Injector::start(bench, "volume", "here")?;
    let part = bench.make_directory("part")?;
    bind(&injector.mountpoint().join("sub"), &part)?;
    let volumes = [Volume::at("whole", injector.mountpoint()), Volume::at("part", &part)];
    let agent = agent_with(bench, &volumes)?;
    for volume in ["whole", "part"] {
        agent.wait_state(volume, "healthy")?;
    }
    let mut counted = Counted::new(&injector, &agent, "whole")?;
    let names = ["whole", "part"];

    for (path, owner) in [(injector.data(0), 0), (part.join("inner"), 1)] {
        let file = File::open(&path)?;
        let read = || {
            injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
            for _ in 0..CALLS {
                ensure!(read_byte(&file) == Errno::EIO as i32);
            }
            Ok(())
        };
        counted.must_rise(&names, read, |rises| is_only(rises, owner, Errno::EIO, "read"))?;
        let open = || {
            injector.set(&Mode::fail(Errno::ENXIO, &["open"]))?;
            for _ in 0..CALLS {
                let opened = File::open(&path).err().and_then(|error| error.raw_os_error());
                ensure!(opened == Some(Errno::ENXIO as i32), "{opened:?}");
            }
            Ok(())
        };
        counted.must_rise(&names, open, |rises| is_only(rises, owner, Errno::ENXIO, "open"))?;
    }
    Ok("counted")
}

/// A pod's subPath: the root of its mount is the root of no volume, and lies inside one.
fn bound(bench: &mut Bench) -> Result<&'static str> {
    let injector = Injector::start(bench, "volume", "here")?;
    let place = |name: &str| injector.mountpoint().join(name);
    for (directory, file) in [("a/1/2", "a/1/2/inner"), ("b/1", "b/1/inner")] {
        fs::create_dir_all(place(directory)).context("cannot make a directory")?;
        fs::write(place(file), b"x").context("cannot make a file")?;
    }
    let names = ["a", "b"];
    let mut volumes = Vec::new();
    for name in names {
        let at = bench.make_directory(name)?;
        bind(&place(name), &at)?;
        volumes.push(Volume::at(name, &at));
    }
    let inside = [("a/1/2", 0), ("b/1", 1)].map(|(directory, owner)| (place(directory), owner));
    let marked = File::open(place(marks::FILE)).is_ok();
    ensure!(marked, "no file for marks");
    let agent = agent_with(bench, &[volumes, vec![Volume::at("whole", injector.mountpoint())]].concat())?;
    for volume in ["a", "b", "whole"] {
        agent.wait_state(volume, "healthy")?;
    }
    let mut counted = Counted::new(&injector, &agent, "whole")?;
    for (number, (directory, owner)) in inside.into_iter().enumerate() {
        let at = bench.make_directory(format!("inside{number}"))?;
        bind(&directory, &at)?;
        let file = File::open(at.join("inner")).context("cannot open a file")?;
        let read = || {
            injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
            for _ in 0..CALLS {
                ensure!(read_byte(&file) == Errno::EIO as i32);
            }
            Ok(())
        };
        let all = ["a", "b", "whole"];
        counted.must_rise(&all, read, |rises| is_only(rises, owner, Errno::EIO, "read"))?;
    }
    Ok("counted for that one")
}

fn overlay(bench: &mut Bench) -> Result<&'static str> {
    let injector = Injector::start(bench, "volume", "here")?;
    let (other, merged) = (bench.make_directory("other")?, bench.make_directory("merged")?);
    let options = format!("lowerdir={}:{}", injector.mountpoint().display(), other.display());
    mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .context("cannot mount an overlay")?;
    let agent =
        agent_with(bench, &[Volume::at("lower", injector.mountpoint()), Volume::at("merged", &merged)])?;
    for volume in ["lower", "merged"] {
        agent.wait_state(volume, "healthy")?;
    }
    let file = File::open(merged.join("data0"))?;
    let mut counted = Counted::new(&injector, &agent, "lower")?;
    let read = || {
        injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
        for _ in 0..CALLS {
            ensure!(read_byte(&file) == Errno::EIO as i32);
        }
        Ok(())
    };
    let all = only(Errno::EIO, "read");
    // The overlay reads the lower file by a call inside the kernel, which ends no system call: seen by some
    // programs only, and then once for each.
    let rises = counted.must_rise(
        &["merged", "lower"],
        read,
        |rises| matches!(rises, [merged, lower] if *merged == all && (lower.is_empty() || *lower == all)),
    )?;
    let below = rises.get(1).context("no second volume")?;
    Ok(if below.is_empty() { "counted for the overlay" } else { "counted for both" })
}

/// The roots of all subvolumes have one inode number, and one superblock: they are told apart by their names. The top
/// of the file system, which has that number as well, is a third volume.
fn subvolumes(bench: &mut Bench) -> Result<&'static str> {
    // Marks need a volume whose calls can be made to fail.
    let injector = Injector::start(bench, "marks", "here")?;
    let device = LoopDevice::make(bench, "disk", Kind::Btrfs)?;
    let top = bench.make_directory("top")?;
    device.mount(&top, "")?;
    let names = ["one", "two", "top"];
    for name in ["one", "two"] {
        btrfs(&["subvolume", "create"], &top.join(name))?;
        fs::write(top.join(name).join("file"), b"x").context("cannot write")?;
        btrfs(&["property", "set", "-ts"], &top.join(name)).context("cannot set read-only")?;
    }
    let (one, two) = (bench.make_directory("one")?, bench.make_directory("two")?);
    device.mount(&one, "subvol=one")?;
    device.mount(&two, "subvol=two")?;
    let volumes = [Volume::at("one", &one), Volume::at("two", &two), Volume::at("top", &top)];
    let marks = Volume::at("marks", injector.mountpoint());
    let agent = agent_with(bench, &volumes.into_iter().chain([marks]).collect::<Vec<_>>())?;
    for volume in names.into_iter().chain(["marks"]) {
        agent.wait_state(volume, "healthy")?;
    }
    let mut counted = Counted::new(&injector, &agent, "marks")?;
    for (owner, path) in [one.join("file"), two.join("file"), top.join("one/file")].iter().enumerate() {
        let file = File::open(path)?;
        let by_name = || OpenOptions::new().write(true).open(path).map(drop);
        // Through the descriptor the place is told by the kernel's side alone.
        let by_descriptor = || file.set_permissions(Permissions::from_mode(0o600));
        let calls: [(&str, &dyn Fn() -> std::io::Result<()>); 2] =
            [("open", &by_name), ("change", &by_descriptor)];
        for (op, call) in calls {
            let refused = || {
                for _ in 0..CALLS {
                    let errno = call().err().and_then(|error| error.raw_os_error());
                    ensure!(errno == Some(Errno::EROFS as i32), "a read-only subvolume gave {errno:?}");
                }
                Ok(())
            };
            let is_right = |rises: &[Counts]| is_only(rises, owner, Errno::EROFS, op);
            counted
                .must_rise(&names, refused, is_right)
                .with_context(|| format!("{op} on {}", path.display()))?;
        }
    }
    Ok("counted for that one")
}

fn btrfs(words: &[&str], path: &Path) -> Result<()> {
    let more: &[&str] = if words.contains(&"property") { &["ro", "true"] } else { &[] };
    let words = words.iter().map(|word| word.as_ref());
    let arguments: Vec<_> =
        words.chain([path.as_os_str()]).chain(more.iter().map(|word| word.as_ref())).collect();
    run("btrfs", &arguments).map(drop)
}

fn described(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let agent = agent_with(bench, &[Volume::at("v", injector.mountpoint()).sentinel("here")])?;
    agent.wait_state("v", "healthy")?;
    let path = injector.data(0);
    let reader = Reader::start(bench, "reader", Work::Read, &path, Duration::from_millis(10))?;
    injector.set(&Mode::fail(Errno::EIO, &["read"]))?;
    agent.wait_degraded("v", "io_error")?;
    // The request below the read may have been met before it.
    let text = wait_for_some("the reader's failed read is described", SOON, || {
        let shown = agent.command(&["describe", "v"])?;
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let is_met = |line: &str| line.contains("reader (process ") && line.contains("EIO on read");
        Ok(text.lines().any(is_met).then_some(text))
    })?;
    injector.set(&Mode::Ok)?;
    reader.finish()?;

    // The reader has the case's own mount namespace.
    let link = fs::read_link("/proc/self/ns/mnt").context("cannot read the namespace's number")?;
    let number = link.to_string_lossy().replace("mnt:[", "mount namespace ").replace(']', "");
    ensure!(text.contains(&number), "not {number}: {text}");
    if let Some(cgroup) = own_cgroup() {
        ensure!(text.contains(&format!("in cgroup {cgroup},")), "not cgroup {cgroup}: {text}");
    }
    Ok(())
}

/// The path of this process's cgroup, where version 2 is mounted at the usual place.
fn own_cgroup() -> Option<String> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let directory = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    directory.join("cgroup.procs").is_file().then(|| path.to_owned())
}

/// Adds the row, however the case went.
fn judged(row: &str, result: Result<&'static str>) -> Result<()> {
    let detail = result.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
    let word = *result.as_ref().unwrap_or(&"wrong");
    matrix::add(&matrix::Row { table: "io", row, result: word, detail: &detail })?;
    result.map(drop)
}
