//! Makes the new mount at the private place, with the help of mount(8) or the operator's command.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use agent_core::path::{BytePath, escape};
use agent_core::remediation::{Outcome, Refusal};
use agent_core::topology::Propagation;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{FlockOperation, Mode, flock, mkdir};
use rustix::io::Errno;

use super::arguments::{self, ArgumentError, Invocation, Places};
use super::environment::{EnvironmentFile, Variables};
use super::fstab;
use super::helper::{self, NoWatch};
use super::redact::Secrets;
use super::scene::{STACK_LIMIT, Scene, Stop, say};
use super::wire::{Step, WireMethod};
use crate::sys::{clock, look, mount};

/// How long a mount may take to appear after its helper has ended well. Some FUSE programs go into the
/// background first and mount then.
pub(super) const SETTLE: Duration = Duration::from_secs(5);
/// What is left of the child's time then, so that its answer is heard.
pub(super) const ANSWER: Duration = Duration::from_millis(300);

/// What is to be mounted.
pub(super) struct Order {
    pub(super) method: WireMethod,
    pub(super) source: Vec<u8>,
    pub(super) fstype: String,
    pub(super) options: Vec<String>,
}

pub(super) fn stage(scene: &Scene, order: Order, file: Option<EnvironmentFile>) -> Result<Step, Stop> {
    let order = completed(scene, order)?;
    expect_directory(scene, &order.options)?;
    let invocation = build(scene, &order).map_err(Stop::arguments)?;
    prepare_root(scene)?;
    prepare_place(scene)?;
    let source = escape(&order.source);
    let command: &[String] = if let WireMethod::Command(argv) = &order.method { argv } else { &[] };
    let texts = order.options.iter().chain(command).map(String::as_str);
    let secrets = Secrets::learn(texts.chain([source.as_str()]));
    let (invocation, secrets) = equip(invocation, secrets, file)?;
    let shown = show(&invocation, &secrets);
    say(shown.clone());
    let ended =
        helper::run(&invocation, &secrets, &mut NoWatch).map_err(|error| Stop::helper(&shown, &error))?;
    if ended.code != 0 {
        // mount(8) prints the text of ENOSPC; from mount(2) it never means the disk's space.
        if command.is_empty() && ended.output.contains("No space left on device") {
            let text = format!("{shown}: the kernel's limit on mounts is reached");
            return Err(Stop::Refused(Refusal::MountLimit, text));
        }
        return Err(Stop::ended(&shown, &ended));
    }
    wait_for_mount(scene, &shown)?;
    Ok(Step::new(Outcome::Changed, shown))
}

/// Where nothing is mounted the directory may be gone as well: after a boot what lay in memory, or after somebody's
/// `rmdir`. It is made only where the options say so, as mount(8) makes it: its absence may as well mean that what it
/// lies on is not mounted yet.
fn expect_directory(scene: &Scene, options: &[String]) -> Result<(), Stop> {
    let place = &scene.mountpoint;
    if !scene.stack(place)?.is_empty() || look::hold(place).err() != Some(Errno::NOENT) {
        return Ok(());
    }
    let says_so = |option: &String| {
        let name = option.split('=').next().unwrap_or_default();
        name.eq_ignore_ascii_case("x-mount.mkdir")
    };
    if !options.iter().any(says_so) {
        let text = format!(
            "the directory {place} is not there; make it, or add x-mount.mkdir to the options of the volume"
        );
        return Err(Stop::Refused(Refusal::NotPrepared, text));
    }
    say(format!("make the directory {place}"));
    make_directory(as_path(place), 0o755)
}

/// With all that leads to it.
fn make_directory(path: &Path, mode: u32) -> Result<(), Stop> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Stop::call(format!("make the directory {}", path.display()), errno)
    })
}

fn as_path(path: &BytePath) -> &Path {
    Path::new(OsStr::from_bytes(path.as_bytes()))
}

/// With what `/etc/fstab` says, where the mount is to be made by that.
pub(super) fn completed(scene: &Scene, order: Order) -> Result<Order, Stop> {
    if order.method != WireMethod::Fstab {
        return Ok(order);
    }
    say(format!("read {}", fstab::FILE));
    let text = std::fs::read(fstab::FILE).map_err(|error| {
        Stop::Refused(Refusal::NotPrepared, format!("{} cannot be read: {error}", fstab::FILE))
    })?;
    let entry = fstab::find(&text, &[&scene.given, &scene.mountpoint])
        .map_err(|error| Stop::Refused(Refusal::NotPrepared, error.to_string()))?;
    let fstab::Entry { source, fstype, options } = entry;
    Ok(Order { method: WireMethod::Mount, source, fstype, options })
}

/// The helper with its variables, none of whose values is ever shown.
pub(super) fn equip(
    invocation: Invocation,
    secrets: Secrets,
    file: Option<EnvironmentFile>,
) -> Result<(Invocation, Secrets), Stop> {
    let variables: Variables = file.map(EnvironmentFile::read).transpose()?.unwrap_or_default();
    let values = variables.iter().map(|(_, value)| escape(value.as_bytes()));
    let secrets = secrets.and(values.collect::<Vec<_>>());
    Ok((invocation.with(variables), secrets))
}

fn build(scene: &Scene, order: &Order) -> Result<Invocation, ArgumentError> {
    match &order.method {
        WireMethod::Systemd(_) => Err(ArgumentError::Unit),
        WireMethod::Command(argv) => {
            let places =
                Places { target: Some(&scene.stage), mountpoint: &scene.mountpoint, source: &order.source };
            arguments::command(argv, places)
        }
        WireMethod::Mount | WireMethod::Fstab if scene.wants_own_superblock() => {
            let options = arguments::with_own_superblock(&order.fstype, &order.options);
            arguments::mount(&order.fstype, &options, &order.source, &scene.stage)
        }
        WireMethod::Mount | WireMethod::Fstab => {
            arguments::mount(&order.fstype, &order.options, &order.source, &scene.stage)
        }
    }
}

/// A command as people may see it.
pub(super) fn show(invocation: &Invocation, secrets: &Secrets) -> String {
    let words: Vec<String> = invocation.argv.iter().map(|argument| escape(argument)).collect();
    secrets.hide(&words.join(" "))
}

/// The directory under which all private places lie.
pub(super) fn make_root_directory(root: &BytePath) -> Result<(), Stop> {
    let path = as_path(root);
    path.parent().map_or(Ok(()), |parent| make_directory(parent, 0o755))?;
    make_directory(path, 0o700)
}

/// A small private mount covers the root, so that no mount made below it shows up in other namespaces, and
/// only the super-user can enter. Made once; several plans may come here at the same time.
pub(super) fn prepare_root(scene: &Scene) -> Result<(), Stop> {
    let root = &scene.stage_root;
    let _lock = lock_parent(root)?;
    match scene.stack(root)?.last() {
        Some(top) if top.propagation == Propagation::default() => return Ok(()),
        // An earlier agent died between the two steps below.
        Some(_) => {}
        None => mount::mount_private_tmpfs(root)
            .map_err(|errno| Stop::call(format!("mount a tmpfs at {root}"), errno))?,
    }
    mount::make_private(root).map_err(|errno| Stop::call(format!("make {root} private"), errno))
}

fn lock_parent(root: &BytePath) -> Result<OwnedFd, Stop> {
    let slash = root.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let parent = BytePath::new(root.as_bytes().get(..slash.max(1)).unwrap_or(b"/"));
    say(format!("wait for other plans that prepare {root}"));
    look::open_directory(&parent)
        .and_then(|directory| flock(&directory, FlockOperation::LockExclusive).map(|()| directory))
        .map_err(|errno| Stop::call(format!("lock {parent}"), errno))
}

/// An empty directory with nothing mounted on it.
pub(super) fn prepare_place(scene: &Scene) -> Result<(), Stop> {
    clear_place(scene)?;
    match mkdir(scene.stage.as_bytes(), Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Stop::call(format!("make the directory {}", scene.stage), errno)),
    }
}

/// Detaches whatever is mounted at the private place. True when there was something.
pub(super) fn clear_place(scene: &Scene) -> Result<bool, Stop> {
    let mut has_changed = false;
    for _ in 0..STACK_LIMIT {
        if scene.stack(&scene.stage)?.is_empty() {
            break;
        }
        scene.detach_any(&scene.stage)?;
        has_changed = true;
    }
    Ok(has_changed)
}

fn wait_for_mount(scene: &Scene, shown: &str) -> Result<(), Stop> {
    let begun = clock::now();
    let patience = SETTLE.min(scene.deadline.since(begun).saturating_sub(ANSWER));
    loop {
        // Opened before looking, so that a mount made in between wakes the poll.
        let file = scene.proc.open_table().map_err(|errno| Stop::call("open the mount table", errno))?;
        if !scene.stack(&scene.stage)?.is_empty() {
            return Ok(());
        }
        let left = patience.saturating_sub(clock::now().since(begun));
        if left.is_zero() {
            let text = format!("{shown}: the helper ended with 0 and mounted nothing at {}", scene.stage);
            return Err(Stop::Refused(Refusal::NotAMountPoint, text));
        }
        let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        let limit = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::ZERO);
        // A signal only means another round.
        let _ = poll(&mut files, limit);
    }
}
