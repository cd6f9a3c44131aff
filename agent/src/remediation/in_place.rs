//! Runs a command that repairs the mount point itself, and measures how long it showed nothing.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use agent_core::remediation::Outcome;
use agent_core::time::Monotonic;

use super::arguments::{self, Places};
use super::helper::{self, Watch};
use super::redact::Secrets;
use super::scene::{Scene, Stop, say};
use super::stage::show;
use super::wire::Step;
use crate::sys::clock;

pub(super) fn run(scene: &Scene, argv: &[String]) -> Result<Step, Stop> {
    let source = scene.stack(&scene.mountpoint)?.last().map(|mount| mount.source.clone()).unwrap_or_default();
    let places = Places { target: None, mountpoint: &scene.mountpoint, source: &source };
    let invocation = arguments::command(argv, places).map_err(Stop::arguments)?;
    let secrets = Secrets::learn(argv.iter().map(String::as_str));
    let shown = show(&invocation, &secrets);
    say(shown.clone());
    let mut watch = GapWatch::new(scene)?;
    let ended =
        helper::run(&invocation, &secrets, &mut watch).map_err(|error| Stop::helper(&shown, &error))?;
    if ended.code != 0 {
        return Err(Stop::ended(&shown, &ended));
    }
    let mut step = Step::new(Outcome::Changed, shown);
    step.gap = watch.total;
    // The command may have healed the very same superblock: from here on its answers count, not its number.
    step.number_proves_nothing = true;
    Ok(step)
}

/// Sums up the time in which nothing was mounted at the mount point, from the events of the mount table. A gap
/// that begins and ends between two looks is not seen: the total is then `None`, not zero.
struct GapWatch<'a> {
    scene: &'a Scene,
    table: File,
    empty_since: Option<Monotonic>,
    total: Option<Duration>,
}

impl<'a> GapWatch<'a> {
    fn new(scene: &'a Scene) -> Result<Self, Stop> {
        let table = scene.proc.open_table().map_err(|errno| Stop::call("open the mount table", errno))?;
        let mut watch = Self { scene, table, empty_since: None, total: None };
        watch.look();
        Ok(watch)
    }
}

impl Watch for GapWatch<'_> {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.table.as_fd())
    }

    fn look(&mut self) {
        let now = clock::now();
        // A failed reading says nothing; the next event brings another.
        let Ok(table) = self.scene.proc.table() else { return };
        match (table.top_at(&self.scene.mountpoint), self.empty_since) {
            (None, None) => self.empty_since = Some(now),
            (Some(_), Some(since)) => {
                self.total = Some(self.total.unwrap_or_default() + clock::now().since(since));
                self.empty_since = None;
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
    }
}
