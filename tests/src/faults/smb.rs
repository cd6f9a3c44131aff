//! SMB mounts of the kernel's client whose server freezes or dies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process::{Background, wait_gone};
use nix::sys::signal::Signal;

use super::fault::{Fault, Place, Repair, World, names, repaired};
use super::tools::{daemon, detach_all, mount, signal_all, text, wait_listening};
use super::user::User;
use super::watch::Watch;

pub(super) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Module("cifs"),
    Need::Tool("smbd"),
    Need::Tool("smbpasswd"),
    Need::Tool("mount.cifs"),
];

const SHARE: &str = "//127.0.0.1/share";

/// The server of all rows.
#[derive(Debug)]
struct Samba {
    directory: PathBuf,
    config: PathBuf,
    /// Name and password, for those who mount.
    credentials: PathBuf,
    server: Option<Background>,
}

impl Samba {
    fn prepare(directory: &Path) -> Result<Self> {
        let own = directory.join("samba");
        let share = directory.join("share");
        for place in [&own, &share] {
            fs::create_dir(place).context("cannot make a directory")?;
        }
        fs::set_permissions(&share, fs::Permissions::from_mode(0o777)).context("cannot open the share")?;
        let mut config = String::from(
            "[global]\ninterfaces = lo\nbind interfaces only = yes\ndisable netbios = yes\nsmb ports = 445\n\
             load printers = no\nserver role = standalone server\n",
        );
        // Nothing outside of the case's directory: what is there belongs to another server, or is not there.
        for kind in ["private dir", "ncalrpc dir", "state directory", "lock directory", "cache directory"] {
            let place = own.join(kind.split(' ').next().unwrap_or_default());
            fs::create_dir(&place).context("cannot make a directory")?;
            config += &format!("{kind} = {}\n", text(&place)?);
        }
        let log = directory.join("samba.log");
        config += &format!("pid directory = {}\nlog file = {}\n", text(&own)?, text(&log)?);
        config += &format!("[share]\npath = {}\nread only = no\n", text(&share)?);
        let path = own.join("smb.conf");
        fs::write(&path, config).context("cannot write the configuration")?;
        let credentials = own.join("credentials");
        fs::write(&credentials, "username=root\npassword=pw\n").context("cannot write the credentials")?;
        fs::set_permissions(&credentials, fs::Permissions::from_mode(0o600))
            .context("cannot protect the credentials")?;
        let mut samba = Self { directory: directory.to_owned(), config: path, credentials, server: None };
        samba.add_user()?;
        samba.serve()?;
        Ok(samba)
    }

    fn add_user(&self) -> Result<()> {
        use std::io::Write;
        let mut child = Command::new("smbpasswd")
            .args(["-c", text(&self.config)?, "-s", "-a", "root"])
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start smbpasswd")?;
        child.stdin.take().context("no input")?.write_all(b"pw\npw\n").context("cannot tell the password")?;
        let status = child.wait().context("cannot wait for smbpasswd")?;
        ensure!(status.success(), "smbpasswd: {status}");
        Ok(())
    }

    fn serve(&mut self) -> Result<()> {
        let words = ["--foreground", "--no-process-group", "-s", text(&self.config)?];
        self.server = Some(daemon(&self.directory, "smbd", &words)?);
        wait_listening(445)
    }

    /// Each mount has a connection of its own. The server is asked every second whether it is alive.
    fn options(&self, more: &str) -> Result<String> {
        let credentials = text(&self.credentials)?;
        Ok(format!("credentials={credentials},vers=3.1.1,echo_interval=1,nosharesock,{more}"))
    }

    fn mount_share(&self, place: &Place, more: &str) -> Result<()> {
        mount("cifs", SHARE, &place.mountpoint, &self.options(more)?)
    }

    fn kill(&mut self) -> Result<()> {
        let servers = signal_all("smbd", Signal::SIGKILL)?;
        self.server = None;
        wait_gone(&servers)
    }
}

impl World for Samba {
    fn clear(&mut self, place: &Place) -> Result<()> {
        if self.server.is_none() {
            self.serve()?;
        }
        signal_all("smbd", Signal::SIGCONT)?;
        detach_all(&place.mountpoint)
    }
}

const FROZEN: Fault<Samba> = Fault {
    row: "SMB hard, server frozen",
    reasons: &["hung"],
    needs: &[],
    user: User::Nobody,
    sentinel: false,
    data: 64 << 10,
    deadline: "1s",
    set_up: |world, place| world.mount_share(place, "hard"),
    break_it: |_, _| signal_all("smbd", Signal::SIGSTOP).map(drop),
    repair: Some(|_, _| signal_all("smbd", Signal::SIGCONT).map(drop)),
    beside: None,
};

const KILLED: Fault<Samba> = Fault {
    row: "SMB soft, server killed",
    reasons: &["host_down", "hung", "disconnected"],
    set_up: |world, place| world.mount_share(place, "soft"),
    break_it: |world, _| world.kill(),
    repair: Some(|world, _| world.serve()),
    ..FROZEN
};

const FAULTS: &[Fault<Samba>] = &[
    FROZEN,
    Fault { user: User::Reads, ..FROZEN },
    Fault {
        row: "SMB soft, server frozen",
        reasons: &["hung", "host_down"],
        set_up: |world, place| world.mount_share(place, "soft"),
        ..FROZEN
    },
    KILLED,
    Fault { user: User::Reads, ..KILLED },
    Fault {
        row: "SMB hard, server killed",
        set_up: |world, place| world.mount_share(place, "hard"),
        ..KILLED
    },
];

/// It is started again once the repair waits for it. The client connects again by itself, if nobody is quicker.
const RESTARTED: Repair<Samba> = Repair {
    fault: Fault { row: "SMB soft, server restarted", sentinel: true, ..KILLED },
    fstype: "cifs",
    what: |world, _| Ok((SHARE.to_owned(), world.options("soft")?)),
    server_is_away: true,
    may_recover: true,
    is_held: true,
    is_gapless: true,
};

const REPAIRS: &[Repair<Samba>] = &[
    RESTARTED,
    Repair {
        fault: Fault {
            row: "SMB hard, server restarted",
            set_up: |world, place| world.mount_share(place, "hard"),
            ..RESTARTED.fault
        },
        what: |world, _| Ok((SHARE.to_owned(), world.options("hard")?)),
        ..RESTARTED
    },
];

/// The names of the rows about repairs.
pub(super) fn repairs() -> Vec<String> {
    repaired(REPAIRS)
}

/// Runs those.
pub(super) fn run_repairs(watch: &mut Watch<'_>) -> Result<()> {
    watch.repair(&mut Samba::prepare(watch.directory())?, REPAIRS)
}

/// The names of the rows.
pub(super) fn rows() -> Vec<String> {
    names(FAULTS)
}

/// Runs them.
pub(super) fn run(watch: &mut Watch<'_>) -> Result<()> {
    watch.run(&mut Samba::prepare(watch.directory())?, FAULTS)
}
