//! Runs the table of cases: each in a fresh child with a process namespace and a mount namespace of its own, so
//! that daemons, agents, mounts and loop devices are gone when the child is gone, whatever it did.
//!
//! On a machine that belongs to the tests a case may run among the machine's own processes instead; then a process
//! of the runner's stands in for the end of the namespace.
//!
//! The child tells by its exit code how it went. What it printed is shown when it failed. A case that cannot
//! run here is skipped with a reason and counts as ignored; under `CI=true` only the skips on the list may be.

mod reaper;
mod skips;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};

use self::reaper::END;
pub use self::reaper::run_reaper;
use self::skips::AllowedSkips;
use super::bench::Bench;
use super::case::{Case, Skip};
use super::needs::{Need, first_unmet};
use super::process::{descendants, send};
use super::wait::{now, patiently, pause, wait_for};

/// The case ended and everything held.
const PASSED: i32 = 0;
/// Something did not hold.
const FAILED: i32 = 1;
/// The case found that it cannot run here; the reason is the last line it printed.
const SKIPPED: i32 = 4;

/// Set: nothing is hidden or removed after a case. Its directory stays, and is printed.
pub const KEEP_WRECK: &str = "MOUNTIE_KEEP_WRECK";

/// The first argument that makes this program process 1 of a case: NAME DIRECTORY.
pub const INIT: &str = "--init";

/// The first argument that makes this program take the place of process 1 of a case: NAME DIRECTORY.
pub const REAPER: &str = "--reaper";

/// The first argument that makes this program a case: NAME DIRECTORY.
pub const CASE: &str = "--case";

/// The first argument that makes this program show something: NAME.
pub const SHOW: &str = "--show";

/// The argument that chooses the cases for guests instead of the table: `--vm`, or `--vm=PART,PART`.
pub const VM: &str = "--vm";

/// The argument that shows what the chosen cases for guests are, instead of running them.
pub const PLAN: &str = "--plan";

/// Names the directories of all cases, so that a run can remove what a dead run left.
const PREFIX: &str = "mountie-case-";

/// Among which processes a case runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processes {
    /// In a namespace of its own.
    Own,
    /// With all of the machine, in the first namespace: as the agent is deployed.
    Machine,
}

/// How long the devices of a case may stay behind it.
const GONE: Duration = Duration::from_secs(20);

/// How one isolated run of a case ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything held.
    Passed,
    /// It cannot run here, for this reason.
    Skipped(String),
    /// It failed: what it printed.
    Failed(String),
    /// It was ended at its timeout: what it printed until then.
    TimedOut(String),
}

/// The parent's side: shows and runs the table.
pub fn run_table(cases: Vec<Case>, processes: Processes, arguments: &[String]) -> ExitCode {
    let (allowed, rest) = match AllowedSkips::from_arguments(arguments) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(64);
        }
    };
    let mut options = Arguments::from_iter(rest);
    // Cases wait more than they compute, but they measure what they wait for.
    options.test_threads.get_or_insert(2);
    remove_what_a_dead_run_left();
    let allowed = Arc::new(allowed);
    let trials = cases.into_iter().map(|case| {
        let allowed = Arc::clone(&allowed);
        Trial::ignorable_test(case.name, move || trial(&case, processes, &allowed))
    });
    libtest_mimic::run(&options, trials.collect()).exit_code()
}

/// Takes the choice of the cases for guests out of the arguments: whether there is one, and of which parts.
#[must_use]
pub fn vm_parts(arguments: Vec<String>) -> (Option<Option<String>>, Vec<String>) {
    let mut chosen = None;
    let rest = arguments.into_iter().filter(|word| match word.strip_prefix(VM) {
        Some("") => {
            chosen = Some(None);
            false
        }
        Some(parts) if parts.starts_with('=') => {
            chosen = Some(parts.strip_prefix('=').map(str::to_owned));
            false
        }
        _ => true,
    });
    let rest = rest.collect();
    (chosen, rest)
}

/// Held by every case while it runs; in full by one that must be alone.
static RUNNING: RwLock<()> = RwLock::new(());

fn trial(case: &Case, processes: Processes, allowed: &AllowedSkips) -> Result<Completion, Failed> {
    let alone = case.needs.contains(&Need::Alone);
    // A lock that somebody died with is as good as any: it protects no data.
    let _alone = alone.then(|| RUNNING.write());
    let _beside = (!alone).then(|| RUNNING.read());
    let ending = match first_unmet(case.needs) {
        Some(reason) => Ending::Skipped(reason),
        None => {
            let ending = run_among(processes, case, &std::env::temp_dir());
            ending.map_err(|error| Failed::from(format!("{error:#}")))?
        }
    };
    match ending {
        Ending::Passed => Ok(Completion::Completed),
        Ending::Failed(output) => Err(Failed::from(output)),
        Ending::TimedOut(output) => {
            Err(Failed::from(format!("{output}\nnot done after {:?}; ended", patiently(case.timeout))))
        }
        Ending::Skipped(reason) => {
            println!("skipped: {}: {reason}", case.name);
            if allowed.permits(case.name) {
                Ok(Completion::ignored_with(reason))
            } else {
                Err(Failed::from(format!("skipped, and not on the list of allowed skips: {reason}")))
            }
        }
    }
}

/// Runs one case in namespaces of its own, with a directory below `base`, and waits until they are gone.
///
/// # Errors
/// When the child cannot be started, or when something of it outlives it.
pub fn run_isolated(case: &Case, base: &Path) -> Result<Ending> {
    run_among(Processes::Own, case, base)
}

/// Runs one case in a mount namespace of its own, among the processes that are asked for.
///
/// # Errors
/// When the child cannot be started, or when something of it outlives it.
pub fn run_among(processes: Processes, case: &Case, base: &Path) -> Result<Ending> {
    let directory = make_directory(base)?;
    let printed_to = directory.with_extension("output");
    let output =
        File::create(&printed_to).with_context(|| format!("cannot create {}", printed_to.display()))?;
    let mut child = isolated(processes, case.name, &directory)?
        .stdin(Stdio::null())
        .stderr(output.try_clone().context("cannot duplicate the output file")?)
        .stdout(output)
        .spawn()
        .context("cannot start `unshare`")?;
    let status = ended_within(&mut child, patiently(case.timeout))?;
    if status.is_none() {
        end(&mut child, processes)?;
    }
    let printed = String::from_utf8_lossy(&fs::read(&printed_to).unwrap_or_default()).into_owned();
    let _ = fs::remove_file(&printed_to);
    clear_away(&directory)?;
    Ok(match status.map(|status| (status.code(), status.signal())) {
        None => Ending::TimedOut(printed),
        Some((Some(PASSED), _)) => Ending::Passed,
        Some((Some(SKIPPED), _)) => Ending::Skipped(printed.lines().last().unwrap_or_default().to_owned()),
        Some((Some(FAILED), _)) => Ending::Failed(printed),
        Some((code, signal)) => {
            Ending::Failed(format!("{printed}\nended with code {code:?}, signal {signal:?}"))
        }
    })
}

/// After this long a case has ended, also one that hangs, and nothing of it is left.
#[must_use]
pub fn ended_after(case: &Case) -> Duration {
    patiently(case.timeout + END + GONE)
}

/// How a child ended, if it did in time.
fn ended_within(child: &mut Child, within: Duration) -> Result<Option<ExitStatus>> {
    let begin = now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the case")? {
            return Ok(Some(status));
        }
        if now().saturating_sub(begin) > within {
            return Ok(None);
        }
        pause(Duration::from_millis(10));
    }
}

/// Ends a case that takes too long, with all that it started.
fn end(child: &mut Child, processes: Processes) -> Result<()> {
    if processes == Processes::Machine {
        send(child.id(), Signal::SIGTERM)?;
        if ended_within(child, patiently(END))?.is_some() {
            return Ok(());
        }
        for id in descendants(child.id()) {
            // One that has just ended is no failure.
            let _ = send(id, Signal::SIGKILL);
        }
    }
    // Where the case has its own processes: the signal at its parent's death ends process 1 of the namespace, and
    // that ends all the others.
    child.kill().context("cannot end the case")?;
    child.wait().context("cannot wait for the case").map(drop)
}

/// Runs one show: like a case, in the open, with this terminal.
pub fn run_shown(shows: &[Case], name: &str) -> ExitCode {
    let Some(show) = shows.iter().find(|show| show.name == name) else {
        let known: Vec<&str> = shows.iter().map(|show| show.name).collect();
        eprintln!("there is no show {name}; there are {}", known.join(", "));
        return ExitCode::from(64);
    };
    if let Some(reason) = first_unmet(show.needs) {
        eprintln!("cannot run here: {reason}");
        return ExitCode::FAILURE;
    }
    let shown = make_directory(&std::env::temp_dir()).and_then(|directory| {
        let status =
            isolated(Processes::Own, show.name, &directory)?.status().context("cannot start `unshare`")?;
        clear_away(&directory)?;
        Ok(status.success())
    });
    match shown {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn isolated(processes: Processes, case: &str, directory: &Path) -> Result<Command> {
    let (flags, role): (&[&str], _) = match processes {
        Processes::Own => (&["--pid", "--fork", "--kill-child=KILL", "--mount-proc"], INIT),
        Processes::Machine => (&[], REAPER),
    };
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private"])
        .args(flags)
        .arg(std::env::current_exe().context("cannot find this program")?)
        .args([role, case])
        .arg(directory);
    Ok(command)
}

/// Starts the case itself; its process id.
fn start_case(name: &OsStr, directory: &OsStr) -> Result<i32> {
    let this_program = std::env::current_exe().context("cannot find this program")?;
    let child = Command::new(this_program).arg(CASE).arg(name).arg(directory).spawn();
    i32::try_from(child.context("cannot start the case")?.id()).context("not a process id")
}

/// Process 1 of the namespaces: starts the case, and buries what others leave. The case is not process 1 itself,
/// because process 1 must be able to die at once: only then are all others killed, and only the death of a FUSE
/// daemon frees a caller that hangs in its mount.
///
/// kernel: `zap_pid_ns_processes`, kernel/pid_namespace.c, since 2.6.24.
pub fn run_init(name: &OsStr, directory: &OsStr) -> ExitCode {
    let case = match start_case(name, directory) {
        Ok(case) => case,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    loop {
        match wait() {
            Ok(WaitStatus::Exited(id, code)) if id.as_raw() == case => std::process::exit(code),
            Ok(WaitStatus::Signaled(id, signal, _)) if id.as_raw() == case => {
                eprintln!("the case was ended by {signal}");
                return ExitCode::FAILURE;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                eprintln!("cannot wait for the case: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// The child's side: the case itself.
pub fn run_case(cases: &[Case], name: &str, directory: &Path) -> ExitCode {
    let Some(case) = cases.iter().find(|case| case.name == name) else {
        eprintln!("there is no case {name}");
        return ExitCode::from(64);
    };
    let keep = std::env::var_os(KEEP_WRECK).is_some();
    let done = Bench::enter(directory, keep).and_then(|mut bench| {
        let done = (case.run)(&mut bench);
        if done.as_ref().is_err_and(|error| !error.is::<Skip>()) {
            bench.print_logs();
        }
        done
    });
    let code = match &done {
        Ok(()) => PASSED,
        Err(error) => match error.downcast_ref::<Skip>() {
            Some(skip) => {
                println!("{}", skip.0);
                SKIPPED
            }
            None => {
                eprintln!("failed: {error:#}");
                FAILED
            }
        },
    };
    // Not a return: what is still mounted or running is for the end of the namespaces, not for destructors.
    std::process::exit(code)
}

fn make_directory(base: &Path) -> Result<PathBuf> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{}-{number}", std::process::id());
    let directory = base.join(name);
    fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// Removes the case's directory, which is empty on this side, and makes sure that nothing is left.
fn clear_away(directory: &Path) -> Result<()> {
    if std::env::var_os(KEEP_WRECK).is_some() {
        eprintln!("kept: {}", directory.display());
        return Ok(());
    }
    wait_for("the loop devices of the case are gone", GONE, || loop_devices_in(directory).is_empty())?;
    fs::remove_dir(directory).with_context(|| format!("the case left something in {}", directory.display()))
}

/// The loop devices of this machine whose image is in a directory.
///
/// kernel: `loop_attr_backing_file_show`, drivers/block/loop.c, since 2.6.37.
#[must_use]
pub fn loop_devices_in(directory: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    devices
        .flatten()
        .filter(|device| {
            let image = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
            Path::new(image.trim_end()).starts_with(directory)
        })
        .map(|device| device.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Empty directories of processes that no longer run. What is not empty was kept on purpose.
fn remove_what_a_dead_run_left() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else { continue };
        if fs::metadata(format!("/proc/{owner}")).is_err() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// An error where a case asked for an ending that it did not get.
///
/// # Errors
/// When the endings differ.
pub fn expect_passed(ending: Ending) -> Result<()> {
    match ending {
        Ending::Passed => Ok(()),
        Ending::Skipped(reason) => Err(Skip(reason).into()),
        other => bail!("the inner case did not pass: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::vm_parts;

    #[test]
    fn the_cases_for_guests_are_chosen_by_a_flag_with_or_without_parts() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let (chosen, rest) = vm_parts(words(&["cases", "--vm=io,faults", "--list"]));
        assert_eq!((chosen, rest), (Some(Some("io,faults".to_owned())), words(&["cases", "--list"])));
        assert_eq!(vm_parts(words(&["--vm"])), (Some(None), Vec::new()));
        assert_eq!(vm_parts(words(&["--vmx", "a"])), (None, words(&["--vmx", "a"])));
    }
}
