//! Runs a program that repairs the mount point itself, and measures how long it showed nothing.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use agent_core::id::{MountId, SuperblockId};
use agent_core::remediation::Outcome;
use agent_core::time::Monotonic;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::arguments::{self, Invocation, Places};
use super::environment::EnvironmentFile;
use super::helper::{self, Watch};
use super::redact::Secrets;
use super::scene::{Scene, Stop, say};
use super::stage::{ANSWER, SETTLE, equip, show};
use super::wire::Step;
use crate::sys::clock;

pub(super) fn run(scene: &Scene, argv: &[String], file: Option<EnvironmentFile>) -> Result<Step, Stop> {
    let source = scene.stack(&scene.mountpoint)?.last().map(|mount| mount.source.clone()).unwrap_or_default();
    let places = Places { target: None, mountpoint: &scene.mountpoint, source: &source };
    let invocation = arguments::command(argv, places).map_err(Stop::arguments)?;
    let secrets = Secrets::learn(argv.iter().map(String::as_str));
    let (invocation, secrets) = equip(invocation, secrets, file)?;
    let shown = show(&invocation, &secrets);
    let mut watch = GapWatch::new(scene)?;
    watched(&invocation, &secrets, &mut watch)?;
    Ok(watch.into_step(shown))
}

/// Runs a helper that works on the mount point itself.
pub(super) fn watched(
    invocation: &Invocation,
    secrets: &Secrets,
    watch: &mut GapWatch<'_>,
) -> Result<(), Stop> {
    let shown = show(invocation, secrets);
    say(shown.clone());
    let ended = helper::run(invocation, secrets, watch).map_err(|error| Stop::helper(&shown, &error))?;
    if ended.code == 0 { Ok(()) } else { Err(Stop::ended(&shown, &ended)) }
}

/// Sums up the time in which nothing was mounted at the mount point, from the events of the mount table. A gap
/// that begins and ends between two looks is not seen: the total is then `None`, not zero.
pub(super) struct GapWatch<'a> {
    scene: &'a Scene,
    table: File,
    empty_since: Option<Monotonic>,
    total: Option<Duration>,
    /// What was on top when it began.
    first: Option<(MountId, SuperblockId)>,
    /// Something else is on top, or was for a moment.
    has_changed: bool,
}

impl<'a> GapWatch<'a> {
    pub(super) fn new(scene: &'a Scene) -> Result<Self, Stop> {
        let table = scene.proc.open_table().map_err(|errno| Stop::call("open the mount table", errno))?;
        let (empty_since, total, first, has_changed) = (None, None, None, false);
        let mut watch = Self { scene, table, empty_since, total, first, has_changed };
        watch.first = watch.top();
        watch.look();
        Ok(watch)
    }

    fn top(&self) -> Option<(MountId, SuperblockId)> {
        let stack = self.scene.stack(&self.scene.mountpoint).unwrap_or_default();
        stack.last().map(|top| (top.id, top.superblock))
    }

    /// Waits until something else is mounted than when it began. Some programs are started first and mount then.
    pub(super) fn wait_for_another(&mut self) {
        let begun = clock::now();
        let patience = SETTLE.min(self.scene.deadline.since(begun).saturating_sub(ANSWER));
        loop {
            self.look();
            let left = patience.saturating_sub(clock::now().since(begun));
            if left.is_zero() || (self.has_changed && self.empty_since.is_none()) {
                return;
            }
            let mut files = [PollFd::new(self.table.as_fd(), PollFlags::POLLPRI)];
            let limit = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::ZERO);
            // A signal only means another round.
            let _ = poll(&mut files, limit);
        }
    }

    pub(super) fn into_step(self, shown: String) -> Step {
        let mut step = Step::new(Outcome::Changed, shown);
        step.gap = self.total;
        // The very same superblock may have been healed: from here on its answers count, not its number.
        step.number_proves_nothing = true;
        step
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
        let top = table.top_at(&self.scene.mountpoint).map(|top| (top.id, top.superblock));
        self.has_changed |= top != self.first;
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
