//! The injector's process: mounts through `/dev/fuse` itself, without a helper, and serves until it is killed.
//!
//! Started plainly it starts itself once more as the daemon and returns when that one serves, like every
//! FUSE helper does. The daemon has a session of its own and holds none of the caller's descriptors.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fuser::{Config, Session, SessionACL};
use nix::mount::{MsFlags, mount};

use super::FSTYPE;
use super::filesystem::InjectorFs;
use super::gate::Gate;
use super::tree::Tree;
use crate::harness::process;
use crate::harness::wait::{is_there, wait_for_some};

/// The first argument that makes this program an injector.
pub const FLAG: &str = "--fuse-injector";

/// The daemon's own flag.
const SERVE: &str = "--serve";

/// The threads that take requests. A held request never keeps one.
const THREADS: usize = 4;

struct Arguments {
    serve: bool,
    control: PathBuf,
    target: PathBuf,
    /// Mounted for this user alone (without `allow_other`), as sshfs does.
    private_to: Option<u32>,
}

/// The command line behind [`FLAG`].
pub fn main(arguments: &[OsString]) -> ExitCode {
    let done = parse(arguments).and_then(|parsed| match parsed.serve {
        true => serve(&parsed),
        false => start(arguments, &parsed),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("injector: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[OsString]) -> Result<Arguments> {
    let (mut serve, mut control, mut target, mut private_to) = (false, None, None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some(SERVE) => serve = true,
            Some("--control") => control = rest.next().map(PathBuf::from),
            Some("--private-to") => {
                let user =
                    rest.next().and_then(|user| user.to_str()).context("--private-to needs a user id")?;
                private_to = Some(user.parse().with_context(|| format!("{user} is not a user id"))?);
            }
            _ => target = Some(PathBuf::from(argument)),
        }
    }
    let control = control.context("--control DIR is missing")?;
    Ok(Arguments { serve, control, target: target.context("the target is missing")?, private_to })
}

/// Starts the daemon and waits until it serves.
fn start(arguments: &[OsString], parsed: &Arguments) -> Result<()> {
    let log_file = parsed.control.join("injector.log");
    let log = OpenOptions::new().create(true).append(true).open(&log_file).context("cannot open the log")?;
    let this_program = std::env::current_exe().context("cannot find this program")?;
    let mut daemon = Command::new(this_program)
        .args([FLAG, SERVE])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start the daemon")?;
    let ready = ready_file(&parsed.control, daemon.id());
    let ended = wait_for_some("the injector serves", Duration::from_secs(20), || {
        if let Some(status) = daemon.try_wait().context("cannot wait for the daemon")? {
            return Ok(Some(Some(status)));
        }
        Ok(is_there(&ready).then_some(None))
    })?;
    if let Some(status) = ended {
        bail!("the daemon ended with {status}: {}", fs::read_to_string(&log_file).unwrap_or_default());
    }
    Ok(())
}

fn ready_file(control: &Path, daemon: u32) -> PathBuf {
    control.join(format!("{daemon}.ready"))
}

/// Mounts and serves.
///
/// kernel: `fuse_parse_param`, fs/fuse/inode.c: `fd`, `rootmode`, `user_id` and `group_id` are required, since
/// 2.6.14.
fn serve(parsed: &Arguments) -> Result<()> {
    nix::unistd::setsid().context("cannot start a session")?;
    let device =
        OpenOptions::new().read(true).write(true).open("/dev/fuse").context("cannot open /dev/fuse")?;
    let owner = parsed.private_to.unwrap_or(0);
    let everybody = if parsed.private_to.is_some() { "" } else { ",allow_other" };
    let options =
        format!("fd={},rootmode=40755,user_id={owner},group_id={owner}{everybody}", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("injector"), &parsed.target, Some(FSTYPE), flags, Some(options.as_str()))
        .with_context(|| format!("cannot mount on {}", parsed.target.display()))?;

    let sentinel = fs::read(parsed.control.join("sentinel")).context("cannot read the sentinel")?;
    let gate = Gate::new(&parsed.control);
    let filesystem = InjectorFs::new(gate.clone(), Tree::new(sentinel, owner));
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    let session = Session::from_fd(filesystem, OwnedFd::from(device), SessionACL::All, config)
        .context("the kernel did not greet")?;
    gate.watch();
    File::create(ready_file(&parsed.control, std::process::id())).context("cannot say that it serves")?;
    session.run().context("the session ended")
}

/// The daemons that run under a control directory, in the case's process namespace.
pub(super) fn running(control: &Path) -> Vec<u32> {
    let named = control.as_os_str().as_encoded_bytes();
    let is_one = |arguments: Vec<Vec<u8>>| {
        arguments.iter().any(|word| word == SERVE.as_bytes()) && arguments.iter().any(|word| word == named)
    };
    process::all().into_iter().filter(|id| is_one(process::arguments(*id))).collect()
}
