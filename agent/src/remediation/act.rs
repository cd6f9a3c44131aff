//! The child's side: `mountie act [--namespace PATH]`. Carries out one action and ends.
//!
//! Everything here may hang on a sick file system. That is why it runs in a process of its own, with one thread.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;

use agent_core::path::BytePath;
use agent_core::volume::{Identity, Sentinel};

use super::environment::EnvironmentFile;
use super::scene::{Scene, Stop, say};
use super::wire::{Line, Request, Step, WireAction};
use super::{abort, check, consumers, in_place, restart, source, stage, swap, unmount, verify};
use crate::exit_code::ExitCode;
use crate::sys::mount_table::Proc;
use crate::sys::{mount, out_of_memory, parent_death};

/// Why no action could be begun.
#[derive(Debug, thiserror::Error)]
enum ActError {
    /// Only the executor calls this command.
    #[error("this command is for mountie itself: act [--namespace PATH], with a request on standard input")]
    Usage,
    /// The request could not be read.
    #[error("failed to read the request")]
    Read(#[source] std::io::Error),
    /// The request could not be understood.
    #[error("failed to understand the request")]
    Decode(#[source] serde_json::Error),
    /// The executor is gone.
    #[error("the process that gave the order is gone")]
    Orphan,
}

/// Carries out the action that stands on standard input, and answers on standard output.
///
/// The process must have one thread: a mount namespace can be entered in no other way.
#[must_use]
pub fn run_act() -> ExitCode {
    let namespace = match parse_arguments(std::env::args_os().skip(1)) {
        Ok(namespace) => namespace,
        Err(error) => return fail(&error, ExitCode::Usage),
    };
    let request = match read_request() {
        Ok(request) => request,
        Err(error @ ActError::Orphan) => return fail(&error, ExitCode::Internal),
        Err(error) => return fail(&error, ExitCode::Usage),
    };
    match prepare(namespace.as_ref(), &request) {
        Ok((scene, variables)) => {
            let step = carry_out(&scene, request.action, variables).unwrap_or_else(Stop::into_step);
            tell(&Line::Done(Box::new(step.into())));
            // Only now, since this may let go of the last reference to a file system that never answers.
            drop(scene);
        }
        Err(stop) => tell(&Line::Done(Box::new(stop.into_step().into()))),
    }
    ExitCode::Ok
}

fn fail(error: &ActError, code: ExitCode) -> ExitCode {
    // Nobody is left to tell when standard error is gone too.
    let _ = writeln!(std::io::stderr(), "mountie act: {error}");
    code
}

fn parse_arguments(arguments: impl Iterator<Item = OsString>) -> Result<Option<BytePath>, ActError> {
    let mut arguments = arguments.skip_while(|argument| argument == "act");
    let namespace = match arguments.next() {
        None => None,
        Some(flag) if flag == "--namespace" => {
            Some(BytePath::new(arguments.next().ok_or(ActError::Usage)?.into_vec()))
        }
        Some(_) => return Err(ActError::Usage),
    };
    if arguments.next().is_some() { Err(ActError::Usage) } else { Ok(namespace) }
}

fn read_request() -> Result<Request, ActError> {
    let mut text = Vec::new();
    std::io::stdin().lock().read_to_end(&mut text).map_err(ActError::Read)?;
    let request: Request = serde_json::from_slice(&text).map_err(ActError::Decode)?;
    match parent_death::follow_with_group(request.parent) {
        Ok(true) => Ok(request),
        Ok(false) | Err(_) => Err(ActError::Orphan),
    }
}

/// One line to the executor. It may be gone; the kernel is about to end this process then.
pub(super) fn tell(line: &Line) {
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&text).and_then(|()| out.flush());
    }
}

fn prepare(
    namespace: Option<&BytePath>,
    request: &Request,
) -> Result<(Scene, Option<EnvironmentFile>), Stop> {
    // What a helper creates must not depend on the agent's own strictness.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Before another namespace is entered, whose procfs may be another: a daemon that a helper leaves behind is no watchdog.
    out_of_memory::take_no_precedence();
    let proc = Proc::open().map_err(|errno| Stop::call("open /proc", errno))?;
    // Like the configuration that names it, the file is the agent's, not the watched namespace's.
    let variables = request.action.environment_file().map(|path| EnvironmentFile::open(&path)).transpose()?;
    if let Some(namespace) = namespace {
        say(format!("enter the mount namespace {namespace}"));
        mount::enter_namespace(namespace)
            .map_err(|errno| Stop::call(format!("enter the mount namespace {namespace}"), errno))?;
    }
    if matches!(request.action, WireAction::Stage { .. }) {
        stage::make_root_directory(&BytePath::new(request.stage_root.clone()))?;
    }
    Ok((Scene::new(proc, request)?, variables))
}

fn carry_out(scene: &Scene, action: WireAction, variables: Option<EnvironmentFile>) -> Result<Step, Stop> {
    match action {
        WireAction::Stage { method, source, fstype, options, environment_file: _ } => {
            stage::stage(scene, stage::Order { method, source, fstype, options }, variables)
        }
        WireAction::CheckStaged { sentinel, uuid, fsid, source, fstype } => {
            let (sentinel, identity) = (sentinel.map(Sentinel::from), Identity { uuid, fsid });
            check::check_staged(scene, &check::Wanted { sentinel, identity, source, fstype })
        }
        WireAction::CheckSource { method, source, readonly, uuid, fsid } => source::check(
            scene,
            source::Wanted { method, source, readonly, identity: Identity { uuid, fsid } },
        ),
        WireAction::MountAgain => unmount::show_read_only(scene),
        WireAction::UnmountOld => unmount::unmount_old(scene),
        WireAction::Swap { readonly } => swap::swap(scene, readonly),
        WireAction::RunInPlace { argv, environment_file: _ } => in_place::run(scene, &argv, variables),
        WireAction::AbortConnection { daemon, is_proven } => abort::abort(scene, daemon, is_proven),
        WireAction::RestartUnit { unit, daemon } => restart::restart(scene, &unit, daemon),
        WireAction::Verify { sentinel, uuid, fsid, source, fstype } => {
            let (sentinel, identity) = (sentinel.map(Sentinel::from), Identity { uuid, fsid });
            verify::verify(scene, &check::Wanted { sentinel, identity, source, fstype })
        }
        WireAction::DetachTop => unmount::detach_top(scene),
        WireAction::Unstage => unmount::unstage(scene),
        WireAction::FindConsumers(wanted) => consumers::find(scene, &consumers::Order::new(scene, wanted)?),
        WireAction::FindShown(wanted) => consumers::find_shown(scene, &consumers::Order::new(scene, wanted)?),
        WireAction::MayCover(wanted) => consumers::may_cover(scene, &consumers::Order::new(scene, wanted)?),
        WireAction::CoverConsumers(wanted) => consumers::cover(scene, &consumers::Order::new(scene, wanted)?),
        WireAction::SwapConsumers(wanted) => consumers::swap(scene, &consumers::Order::new(scene, wanted)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Option<Option<BytePath>> {
        parse_arguments(arguments.iter().map(OsString::from)).ok()
    }

    #[test]
    fn the_namespace_is_optional_and_nothing_else_is_taken() {
        assert_eq!(parse(&["act"]), Some(None));
        assert_eq!(parse(&["act", "--namespace", "/proc/1/ns/mnt"]), Some(Some("/proc/1/ns/mnt".into())));
        assert_eq!(parse(&["act", "--namespace"]), None);
        assert_eq!(parse(&["act", "--namespace", "/x", "y"]), None);
        assert_eq!(parse(&["act", "y"]), None);
    }
}
