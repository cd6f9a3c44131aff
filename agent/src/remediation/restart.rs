//! Has systemd restart a unit, and measures how long the mount point showed nothing.
//!
//! systemctl(1) is asked in the watched namespace, where its manager is. It waits for the job, so the child's time is
//! the time of the restart; a job goes on in systemd when that is over.

use agent_core::remediation::Refusal;
use agent_core::remediation::unit::is_name;

use super::arguments::Invocation;
use super::helper::{self, NoWatch};
use super::in_place::{GapWatch, watched};
use super::redact::Secrets;
use super::scene::{Scene, Stop, say};
use super::wire::Step;

/// What is asked of a unit.
const PROPERTIES: &str = "--property=LoadState,ExecMainPID,Where";

pub(super) fn restart(scene: &Scene, unit: &str, daemon: Option<u32>) -> Result<Step, Stop> {
    may_restart(scene, unit, daemon)?;
    let mut watch = GapWatch::new(scene)?;
    let invocation = systemctl(&["restart", "--", unit]);
    watched(&invocation, &Secrets::default(), &mut watch)?;
    watch.wait_for_another();
    Ok(watch.into_step(format!("restarted {unit}")))
}

/// Refuses what is not the unit that mounts here.
pub(super) fn may_restart(scene: &Scene, unit: &str, daemon: Option<u32>) -> Result<(), Stop> {
    if !is_name(unit) {
        return Err(Stop::Refused(refusal(daemon), format!("{unit} is no name of a unit that mounts")));
    }
    ask(unit)?.check(unit, daemon, &scene.mountpoint.to_string())
}

/// What systemd says of a unit.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Asked {
    load_state: String,
    main_process: u32,
    place: String,
}

fn ask(unit: &str) -> Result<Asked, Stop> {
    let shown = format!("ask systemd about {unit}");
    say(shown.clone());
    let invocation = systemctl(&["show", PROPERTIES, "--", unit]);
    let ended = helper::run(&invocation, &Secrets::default(), &mut NoWatch)
        .map_err(|error| Stop::helper(&shown, &error))?;
    if ended.code == 0 { Ok(Asked::parse(&ended.output)) } else { Err(Stop::ended(&shown, &ended)) }
}

impl Asked {
    pub(super) fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(found, _)| *found == name).map_or("", |(_, value)| value.trim())
        };
        Self {
            load_state: value("LoadState").to_owned(),
            main_process: value("ExecMainPID").parse().unwrap_or(0),
            place: value("Where").to_owned(),
        }
    }

    /// Refuses a unit that is not there, and one that only happens to have the daemon in it: a job of cron, a shell of
    /// a login. Its main process is remembered after its end.
    ///
    /// systemd: ExecMainPID and Where, org.freedesktop.systemd1(5).
    fn check(&self, unit: &str, daemon: Option<u32>, mountpoint: &str) -> Result<(), Stop> {
        let refuse = |why: String| Err(Stop::Refused(refusal(daemon), why));
        if self.load_state != "loaded" {
            let state = if self.load_state.is_empty() { "unknown" } else { &self.load_state };
            return refuse(format!("systemd has no unit {unit} to restart (it is {state})"));
        }
        let Some(pid) = daemon else { return Ok(()) };
        let mounts_here = unit.ends_with(".mount") && self.place == mountpoint;
        if mounts_here || (self.main_process != 0 && self.main_process == pid) {
            return Ok(());
        }
        refuse(format!("process {pid} serves {mountpoint} and runs in {unit}, but is not what {unit} starts"))
    }
}

/// A unit that was only found is left for another way; one that the operator named is all there is.
const fn refusal(daemon: Option<u32>) -> Refusal {
    if daemon.is_some() { Refusal::OtherUnit } else { Refusal::NotPrepared }
}

fn systemctl(words: &[&str]) -> Invocation {
    let first = ["systemctl", "--no-ask-password", "--no-pager"];
    let argv = first.iter().chain(words).map(|word| word.as_bytes().to_vec()).collect();
    Invocation { argv, environment: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str, unit: &str, daemon: Option<u32>) -> Option<String> {
        match Asked::parse(text).check(unit, daemon, "/mnt/a") {
            Ok(()) => None,
            Err(Stop::Refused(found, why)) if found == super::refusal(daemon) => Some(why),
            Err(stop) => Some(format!("{stop:?}")),
        }
    }

    #[test]
    fn a_unit_that_is_not_there_is_refused() {
        for text in ["LoadState=not-found\n", "LoadState=masked\n", ""] {
            assert!(refusal(text, "a.service", None).unwrap().contains("no unit a.service"), "{text}");
        }
        assert_eq!(refusal("LoadState=loaded\n", "a.service", None), None);
    }

    #[test]
    fn a_daemon_must_be_what_its_unit_starts() {
        let text = "ExecMainPID=70\nLoadState=loaded\n";
        assert_eq!(refusal(text, "a.service", Some(70)), None);
        assert!(refusal(text, "a.service", Some(71)).unwrap().contains("is not what a.service starts"));
        let none = "ExecMainPID=0\nLoadState=loaded\n";
        assert!(refusal(none, "cron.service", Some(0)).is_some());
        let mount = "LoadState=loaded\nWhere=/mnt/a\n";
        assert_eq!(refusal(mount, "mnt-a.mount", Some(71)), None);
        assert!(refusal(mount, "a.service", Some(71)).is_some());
        assert!(refusal("LoadState=loaded\nWhere=/mnt/b\n", "mnt-b.mount", Some(71)).is_some());
    }
}
