//! The ways in which a volume is repaired that are not mount(8) with the words of the configuration: `/etc/fstab`, the
//! unit of a daemon, the end of a connection that hangs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, STAGE, Setup, Volume, run_binary};
use integration_tests::harness::bench::{Bench, in_memory, write_program};
use integration_tests::harness::bindfs::{self, Bindfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector, Mode};
use integration_tests::harness::mnt_ns::{MountLine, bind, mounts_below, only_mount_at};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{self, Background};
use integration_tests::harness::wait::{is_there, wait_for, wait_for_some};
use nix::sys::signal::Signal;

const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "an_entry_of_fstab_repairs_a_volume_whose_daemon_was_killed",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: TIMEOUT,
        run: by_fstab,
    },
    Case {
        name: "a_hung_fuse_volume_is_replaced_by_a_new_daemon",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: nobody_waits,
    },
    Case {
        name: "programs_that_hang_in_a_fuse_volume_get_an_error_when_it_is_repaired",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: callers_are_freed,
    },
    Case {
        name: "a_volume_whose_daemon_is_frozen_is_repaired_although_a_signal_ends_every_wait_there",
        needs: &[Need::Root, Need::Fuse, Need::Tool("bindfs")],
        timeout: TIMEOUT,
        run: by_mount_while_frozen,
    },
    Case {
        name: "a_daemon_of_a_unit_comes_back_by_its_unit",
        needs: &[Need::Root, Need::Fuse],
        timeout: TIMEOUT,
        run: by_unit,
    },
];

const SENTINEL: &str = "models-7f3a";

/// Covers `/etc/fstab` with this text.
fn write_fstab(bench: &Bench, text: &str) -> Result<PathBuf> {
    let file = bench.write("fstab", text.as_bytes())?;
    bind(&file, Path::new("/etc/fstab"))?;
    Ok(file)
}

fn by_fstab(bench: &mut Bench) -> Result<()> {
    let source = bench.make_directory("source")?;
    bench.write("source/.mountie", SENTINEL.as_bytes())?;
    let mountpoint = bench.make_directory("volume")?;
    let options = "no-allow-other,nosuid,noauto,nofail,_netdev,x-systemd.automount";
    let fstype = bindfs::FSTYPE;
    let fstab = write_fstab(
        bench,
        &format!("# of this case\n{} {} {fstype} {options} 0 0\n", source.display(), mountpoint.display()),
    )?;
    let served = Bindfs::mount(&source, &mountpoint)?;
    let volume = Volume::at("v", &mountpoint)
        .sentinel(SENTINEL)
        .set("interval", "1s")
        .set("deadline", "2s")
        .repaired(&[("method", "fstab")]);
    let setup = Setup::new(bench, &volume.to_toml())?;
    let agent = Agent::start_with(bench, &setup)?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(&mountpoint)?;
    served.kill()?;
    let labels = [("volume", "v"), ("method", "fstab"), ("outcome", "changed")];
    agent.wait_scrape("repaired by fstab", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &labels) >= 1.0)
    })?;
    agent.wait_state("v", "healthy")?;
    let after = only_mount_at(&mountpoint)?;
    ensure!(after.device != before.device, "the same superblock: {after:?}");
    ensure!(fs::read(mountpoint.join(".mountie"))? == SENTINEL.as_bytes());
    ensure!(mounts_below(STAGE.as_ref())?.is_empty(), "something is left at the stage");

    // What is checked before the start is what would be refused: the same file, with and without the entry.
    let config = bench.path("agent.toml").display().to_string();
    let checked = run_binary(&["check-config", &config])?;
    ensure!(checked.status.code() == Some(0), "{checked:?}");
    OpenOptions::new().write(true).truncate(true).open(&fstab)?.write_all(b"# nothing\n")?;
    let checked = run_binary(&["check-config", &config])?;
    let told = String::from_utf8_lossy(&checked.stderr).into_owned();
    ensure!(checked.status.code() == Some(64), "{checked:?}");
    ensure!(told.contains("/etc/fstab has no entry for") && told.contains("volume \"v\""), "{told}");
    served.kill()?;
    agent.wait_scrape("it is refused", |scrape| {
        let labels = [("volume", "v"), ("outcome", "not_prepared")];
        Ok(scrape.sum("mountie_remediation_total", &labels) >= 1.0)
    })?;
    let described = agent.command(&["describe", "v"])?;
    let text = String::from_utf8_lossy(&described.stdout).into_owned();
    ensure!(text.contains("/etc/fstab has no entry for"), "{text}");
    Ok(())
}

/// A volume whose daemon takes requests and answers none.
struct Hung {
    old: Injector,
    new: Injector,
    agent: Agent,
    before: MountLine,
}

impl Hung {
    fn start(bench: &Bench) -> Result<Self> {
        let old = Injector::start(bench, "volume", SENTINEL)?;
        let new = Injector::prepare(bench, "successor", SENTINEL)?;
        let mut command = new.command()?;
        command.push("{target}".to_owned());
        let volume = Volume::at("v", old.mountpoint())
            .sentinel(SENTINEL)
            .set("source", "injector")
            .set("fstype", FSTYPE)
            .set("interval", "1s")
            .set("deadline", "2s")
            .repaired_by(&command);
        let agent = Agent::start(bench, &volume.to_toml())?;
        agent.wait_state("v", "healthy")?;
        let before = only_mount_at(old.mountpoint())?;
        old.set(&Mode::hang_all())?;
        Ok(Self { old, new, agent, before })
    }

    fn wait_repaired(&self) -> Result<()> {
        let labels = [("volume", "v"), ("method", "command"), ("outcome", "changed")];
        self.agent
            .wait_scrape("repaired", |scrape| Ok(scrape.sum("mountie_remediation_total", &labels) >= 1.0))?;
        self.agent.wait_state("v", "healthy")?;
        let after = only_mount_at(self.old.mountpoint())?;
        ensure!(self.before.device != after.device, "the same superblock: {after:?}");
        ensure!(self.new.answers()?.total() > 0, "the new daemon was never asked");
        ensure!(mounts_below(STAGE.as_ref())?.is_empty(), "something is left at the stage");
        Ok(())
    }
}

fn nobody_waits(bench: &mut Bench) -> Result<()> {
    Hung::start(bench)?.wait_repaired()
}

/// The daemon has taken their requests: no signal reaches whoever waits for the answer.
fn callers_are_freed(bench: &mut Bench) -> Result<()> {
    let hung = Hung::start(bench)?;
    let mut cat = Command::new("cat");
    cat.arg(hung.old.data(0)).stdin(Stdio::null()).stdout(Stdio::null());
    let mut caller = Background(cat.spawn()?);
    wait_for("the daemon holds a request", SOON, || hung.old.held().is_ok_and(|held| !held.is_empty()))?;
    hung.wait_repaired()?;
    let status = caller.ended_within(SOON).context("the caller still hangs")?;
    ensure!(status.code() == Some(1), "{status}");
    let described = hung.agent.command(&["describe", "v"])?;
    let text = String::from_utf8_lossy(&described.stdout).into_owned();
    ensure!(text.contains("ended the FUSE connection") && text.contains("a fresh mount answers"), "{text}");
    Ok(())
}

/// Requests that no daemon has taken are given up at a signal, as all of NFS and SMB are: the end of a look says
/// nothing there.
fn by_mount_while_frozen(bench: &mut Bench) -> Result<()> {
    let source = bench.make_directory("source")?;
    bench.write("source/.mountie", SENTINEL.as_bytes())?;
    let mountpoint = bench.make_directory("volume")?;
    let served = Bindfs::mount(&source, &mountpoint)?;
    let volume = Volume::at("v", &mountpoint)
        .sentinel(SENTINEL)
        .set("source", &source.display().to_string())
        .set("fstype", bindfs::FSTYPE)
        .set("interval", "1s")
        .set("deadline", "1s")
        .repaired_by_mount();
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    let before = only_mount_at(&mountpoint)?;
    process::send(served.daemon()?, Signal::SIGSTOP)?;
    agent.wait_scrape("repaired", |scrape| {
        let labels = [("volume", "v"), ("method", "mount"), ("outcome", "changed")];
        Ok(scrape.sum("mountie_remediation_total", &labels) >= 1.0)
    })?;
    agent.wait_state("v", "healthy")?;
    let after = only_mount_at(&mountpoint)?;
    ensure!(after.device != before.device, "the same superblock: {after:?}");
    ensure!(fs::read(mountpoint.join(".mountie"))? == SENTINEL.as_bytes());
    agent.wait_scrape("no worker is left behind", |scrape| {
        Ok(scrape.value("mountie_probe_abandoned_workers", &[])? == 0.0)
    })?;
    Ok(())
}

/// A cgroup of the machine by whose name systemd would know a unit. Removed with its owner, who must have ended what
/// runs in it.
struct UnitCgroup(PathBuf);

impl UnitCgroup {
    /// In the hierarchy that the agent asks: the named one of version 1 where that is mounted.
    fn make(unit: &str) -> Result<Self> {
        let roots = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let is_root = |root: &&str| is_there(&Path::new(root).join("cgroup.procs"));
        let root = roots.into_iter().find(is_root).context("no cgroups are mounted")?;
        let slice = Path::new(root).join(format!("case{}.slice", std::process::id()));
        fs::create_dir(&slice).with_context(|| format!("cannot make {}", slice.display()))?;
        let this = Self(slice.join(unit));
        fs::create_dir(&this.0).context("cannot make the cgroup of the unit")?;
        Ok(this)
    }

    fn take(&self, process: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).context("cannot move a process")
    }

    fn members(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for UnitCgroup {
    fn drop(&mut self) {
        let members = self.members();
        for member in &members {
            let _ = process::send(*member, Signal::SIGKILL);
        }
        let _ = process::wait_gone(&members);
        let _ = fs::remove_dir(&self.0);
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

/// Stands for systemctl(1): no systemd runs among the processes of a case.
const SYSTEMCTL: &str = r#"#!/bin/sh
test "$1 $2" = "--no-ask-password --no-pager" || exit 90
case "$3 $4" in
"show --property=LoadState,ExecMainPID,Where") printf 'LoadState=loaded\nExecMainPID=%s\n' "$(cat DIRECTORY/main)" ;;
"restart --") echo "$5" >> DIRECTORY/restarted; umount -l MOUNTPOINT; exec START MOUNTPOINT ;;
*) exit 92 ;;
esac
"#;

fn by_unit(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", SENTINEL)?;
    let unit = UnitCgroup::make("injector.service")?;
    let daemon = *injector.daemons().first().context("no daemon runs")?;
    unit.take(daemon)?;
    bench.write("main", daemon.to_string().as_bytes())?;
    in_memory(Path::new("/usr/local/sbin"))?;
    let script = SYSTEMCTL
        .replace("DIRECTORY", &bench.directory().display().to_string())
        .replace("MOUNTPOINT", &injector.mountpoint().display().to_string())
        .replace("START", &injector.command()?.join(" "));
    write_program(Path::new("/usr/local/sbin/systemctl"), &script)?;
    let volume = Volume::at("v", injector.mountpoint())
        .sentinel(SENTINEL)
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "1s")
        .set("deadline", "2s")
        .repaired_by_mount();
    let agent = Agent::start(bench, &volume.to_toml())?;
    agent.wait_state("v", "healthy")?;
    wait_for_some("the agent has seen the daemon", SOON, || {
        let seen = fs::read_dir(format!("/proc/{}/fdinfo", agent.id()))?.flatten().any(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            text.lines()
                .any(|line| line.strip_prefix("Pid:").is_some_and(|pid| pid.trim() == daemon.to_string()))
        });
        Ok(seen.then_some(()))
    })?;
    injector.kill()?;
    let labels = [("volume", "v"), ("method", "systemd"), ("outcome", "changed")];
    agent.wait_scrape("repaired by its unit", |scrape| {
        Ok(scrape.sum("mountie_remediation_total", &labels) >= 1.0)
    })?;
    let scrape = agent.wait_state("v", "healthy")?;
    ensure!(fs::read_to_string(bench.path("restarted"))? == "injector.service\n");
    ensure!(scrape.sum("mountie_remediation_gap_seconds_count", &[]) >= 1.0, "no gap was told");
    // The kernel may give the new mount the numbers of the old one; a process id is not given again so soon.
    let serving = injector.daemons();
    ensure!(!serving.is_empty() && !serving.contains(&daemon), "{serving:?} after {daemon}");
    only_mount_at(injector.mountpoint())?;
    ensure!(fs::read(injector.mountpoint().join(".mountie"))? == SENTINEL.as_bytes());
    Ok(())
}
