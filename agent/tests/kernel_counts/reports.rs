//! What is reported from below or by the file system itself: FUSE requests, shutdowns, errors on disk.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent::sys::clock;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, gettid};

use crate::cases::{key, run};
use crate::completions::python;
use crate::harness::{Agent, Stage, Verdict, device, make_read_only};
use crate::patience::patiently;

const SHUT_DOWN: &str = include_str!("shut_down.py");

/// A daemon that is ended with this.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes everything below `lower` on; `None` where that cannot be done.
fn pass_on(lower: &Path, place: &Path) -> Option<Daemon> {
    std::fs::create_dir(place).unwrap();
    let before = device(place);
    let mut command = Command::new("bindfs");
    command.args(["-f", "-o", "attr_timeout=0,entry_timeout=0"]).arg(lower).arg(place);
    let mut daemon = Daemon(command.stderr(Stdio::null()).spawn().ok()?);
    let end = clock::now() + patiently(Duration::from_secs(10));
    while clock::now() < end {
        if device(place) != before {
            return Some(daemon);
        }
        if daemon.0.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::yield_now();
    }
    None
}

/// A failing request whose caller surely waits for the answer: the daemon stands still until it does.
fn waited_for(daemon: &Daemon, file: &File) {
    let daemon = Pid::from_raw(i32::try_from(daemon.0.id()).unwrap());
    kill(daemon, Signal::SIGSTOP).unwrap();
    assert!(matches!(waitpid(daemon, Some(WaitPidFlag::WUNTRACED)), Ok(WaitStatus::Stopped(..))));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || {
            sender.send(gettid()).unwrap();
            // By descriptor: one request, and none for a name before it.
            fchmod(file, Mode::S_IRUSR)
        });
        let thread = receiver.recv().unwrap();
        // The number of a call that a thread sleeps in; `running` for one that does not sleep.
        let doing = format!("/proc/self/task/{thread}/syscall");
        let end = clock::now() + Duration::from_secs(10);
        let sleeps = || {
            let text = std::fs::read_to_string(&doing).unwrap_or_default();
            text.split(' ').next().and_then(|number| number.parse().ok()) == Some(libc::SYS_fchmod)
        };
        let mut waits = sleeps();
        while !waits && clock::now() < end {
            std::thread::yield_now();
            waits = sleeps();
        }
        // In any case, so that the caller ends.
        kill(daemon, Signal::SIGCONT).unwrap();
        assert_eq!(caller.join().unwrap(), Err(Errno::EROFS));
        assert!(waits, "the caller never slept in its call");
    });
}

/// Requests of others count, those of the agent do not, and the end of the daemon is told with nobody asking.
pub(crate) fn user_space_requests(family: &str) -> Verdict {
    let stage = Stage::enter();
    let lower = stage.volume("lower", "size=64k");
    File::create(lower.join("file")).unwrap();
    make_read_only(&lower);
    let place = stage.root.join("passed");
    let Some(daemon) = pass_on(&lower, &place) else {
        return Verdict::Skipped("no bindfs".to_owned());
    };
    let mut agent = match Agent::start(&[], family) {
        Ok(agent) => agent,
        Err(reason) => return Verdict::Skipped(reason),
    };
    let state = agent.tell("state fuse_request_end");
    if state != "Attached" {
        return Verdict::Skipped(state);
    }
    let aborts = ["fuse_abort_conn", "fuse_chan_abort"];
    let tells_the_end = aborts.iter().any(|name| agent.tell(&format!("state {name}")) == "Attached");
    agent.track(&place);
    let requests = key(&place, "EROFS", "request");
    let ends = key(&place, "ENOTCONN", "request");
    let file = File::open(place.join("file")).unwrap();
    waited_for(&daemon, &file);
    let totals = agent.totals(&requests, 1);
    assert_eq!(totals.get(&requests), Some(&1), "{totals:?}");
    assert_eq!(agent.tell(&format!("own {}", place.display())), "done");
    // The second one is a fence: what the agent's ten calls would have added is there when it is.
    waited_for(&daemon, &file);
    let totals = agent.totals(&requests, 2);
    assert_eq!(totals.get(&requests), Some(&2), "{totals:?}");
    drop(file);
    drop(daemon);
    if tells_the_end {
        let totals = agent.totals(&ends, 1);
        assert_eq!(totals.get(&ends), Some(&1), "{totals:?}");
    }
    agent.finish();
    nix::mount::umount2(&place, nix::mount::MntFlags::MNT_DETACH).unwrap();
    Verdict::Passed
}

/// Makes a file system in a file and mounts it; the loop device goes when it is unmounted.
fn mount_image(images: &Path, fstype: &str, size: u64) -> Result<PathBuf, String> {
    let image = images.join(format!("{fstype}.image"));
    File::create(&image).unwrap().set_len(size).unwrap();
    let image = image.to_str().unwrap();
    run(&format!("mkfs.{fstype}"), &["-q", image]).ok_or_else(|| format!("no mkfs.{fstype}"))?;
    let device = run("losetup", &["--find", "--show", image]).ok_or("no loop devices")?;
    let place = images.with_file_name(fstype);
    std::fs::create_dir(&place).unwrap();
    let mounted = run("mount", &["-t", fstype, &device, place.to_str().unwrap()]);
    run("losetup", &["--detach", &device]).unwrap();
    mounted.map(|_| place).ok_or_else(|| format!("{fstype} cannot be mounted here"))
}

fn shut_down(family: &str, fstype: &str, size: u64, programs: &[&str]) -> Verdict {
    let stage = Stage::enter();
    let images = stage.volume("images", "size=400m");
    // Before the mount, which may be what loads the module.
    let mut agent = match Agent::start(&[], family) {
        Ok(agent) => agent,
        Err(reason) => return Verdict::Skipped(reason),
    };
    let place = match mount_image(&images, fstype, size) {
        Ok(place) => place,
        Err(reason) => return Verdict::Skipped(reason),
    };
    agent.track(&place);
    let states: Vec<String> = programs.iter().map(|name| agent.tell(&format!("state {name}"))).collect();
    let reports = key(&place, "ESHUTDOWN", "filesystem");
    if python(SHUT_DOWN, &[place.to_str().unwrap()]).is_none() {
        return Verdict::Skipped("no python3".to_owned());
    }
    if !states.iter().any(|state| state == "Attached") {
        nix::mount::umount(&place).unwrap();
        return Verdict::Skipped(states.join(", "));
    }
    let totals = agent.totals(&reports, 1);
    nix::mount::umount(&place).unwrap();
    assert_eq!(totals.get(&reports), Some(&1), "{totals:?}");
    agent.finish();
    Verdict::Passed
}

/// A shutdown is told once, also by a module that was loaded after the programs.
pub(crate) fn ext4_shutdown(family: &str) -> Verdict {
    shut_down(family, "ext4", 16 << 20, &["ext4_shutdown", "fserror_report"])
}

/// The same; nothing in the mount table ever shows it.
pub(crate) fn xfs_shutdown(family: &str) -> Verdict {
    shut_down(family, "xfs", 320 << 20, &["xfs_force_shutdown", "fserror_report"])
}

/// An error that ext4 finds in its own structures.
pub(crate) fn ext4_error(family: &str) -> Verdict {
    let stage = Stage::enter();
    let images = stage.volume("images", "size=100m");
    let mut agent = match Agent::start(&[], family) {
        Ok(agent) => agent,
        Err(reason) => return Verdict::Skipped(reason),
    };
    let place = match mount_image(&images, "ext4", 16 << 20) {
        Ok(place) => place,
        Err(reason) => return Verdict::Skipped(reason),
    };
    agent.track(&place);
    let (major, minor) = device(&place);
    let reports = key(&place, "EUCLEAN", "filesystem");
    let name = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    let trigger = Path::new("/sys/fs/ext4").join(name.file_name().unwrap()).join("trigger_fs_error");
    let triggered = std::fs::write(&trigger, "mountie\n");
    let totals = if triggered.is_ok() { agent.totals(&reports, 1) } else { Default::default() };
    nix::mount::umount(&place).unwrap();
    if let Err(error) = triggered {
        return Verdict::Skipped(format!("{}: {error}", trigger.display()));
    }
    assert_eq!(totals.get(&reports), Some(&1), "{totals:?}");
    agent.finish();
    Verdict::Passed
}
