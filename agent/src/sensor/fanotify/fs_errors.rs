//! Errors that file systems report about themselves, also those that no program ever sees.
//!
//! One group for all superblocks, read by one thread. A mark is set by a disposable child, because that resolves
//! a path on the watched mount and may block; at most one child a superblock and [`CHILDREN_MAX`] in all can be
//! out at a time, more wait for their turn. A child that misses its deadline is killed as far as the kernel
//! allows, and keeps its slot until it is gone. Once all slots are kept that way, no mark is set any more.
//!
//! A mark dies with its superblock. Whoever sees a new mount sets a new mark.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::id::SuperblockId;
use agent_core::observation::{KernelErrors, Op, Source};
use agent_core::topology::Mount;
use nix::errno::Errno;
use nix::poll::PollFlags;
use tokio::io::AsyncReadExt;
use tokio::process::Child;
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::decode::{Event, Fsid};
use super::group::{Group, reason};
use super::ledger::{Claimed, Errors, Ledger};
use super::mark::{Answer, MarkRefused, Request, mark_command};
use crate::sensor::wake::{Outbox, Running, Wake, Woken, no_thread};
use crate::sensor::{LossCause, SensorEvent, SourceName, SourceState, lock};
use crate::sys::clock;

/// Children that may be out at one time, stuck ones included.
pub const CHILDREN_MAX: usize = 16;

/// The longest answer that is read.
const ANSWER_MAX: u64 = 4096;

/// Without any event the thread looks this often, for no other purpose than to be robust.
const IDLE: Duration = Duration::from_secs(60);

/// After a batch of events the thread rests, and the kernel merges what comes meanwhile: a file system that fails
/// in a loop costs fifty wake-ups a second and not one an error. The first event after the rest is not delayed.
const REST: Duration = Duration::from_millis(20);

const SINCE: &str = "error events need Linux 5.16 (or a distribution kernel that has them)";

/// How the child is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The agent's executable and the hidden subcommand ([`super::MARK_SUBCOMMAND`]).
    pub program: Vec<OsString>,
    /// The mount namespace that the child enters; `None` to stay.
    pub enter: Option<PathBuf>,
}

/// The running sensor. Clones are the same sensor; it ends with the last of them.
#[derive(Clone, Debug)]
pub struct FsErrors {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    settings: Settings,
    /// Kept for its end alone.
    _thread: Running,
}

/// What the thread and the tasks that set marks have in common.
#[derive(Debug)]
struct Shared {
    group: Group,
    events: Sender<SensorEvent>,
    ledger: Mutex<Ledger>,
    /// Superblocks for which a child is out, or waits for its turn.
    marking: Mutex<BTreeSet<SuperblockId>>,
    /// One permit for each child that may be out.
    turns: Arc<Semaphore>,
    /// Children that have missed their deadline and are not gone. Each holds a permit.
    stuck: AtomicUsize,
}

impl FsErrors {
    /// Starts to listen. No superblock is marked yet.
    #[must_use]
    pub fn start(settings: Settings, events: Sender<SensorEvent>) -> (Option<Self>, SourceState) {
        match Self::try_start(settings, events) {
            Ok(running) => (Some(running), SourceState::Running),
            Err(why) => (None, SourceState::Off(why)),
        }
    }

    fn try_start(settings: Settings, events: Sender<SensorEvent>) -> Result<Self, String> {
        let group = Group::for_errors().map_err(|errno| reason(errno, SINCE))?;
        group.can_mark_errors().map_err(|errno| reason(errno, SINCE))?;
        let wake = Wake::for_thread()?;
        let outbox = Outbox::new(events.clone(), Arc::clone(&wake));
        let shared = Arc::new(Shared {
            group,
            events,
            ledger: Mutex::default(),
            marking: Mutex::default(),
            turns: Arc::new(Semaphore::new(CHILDREN_MAX)),
            stuck: AtomicUsize::new(0),
        });
        let listener =
            Listener { shared: Arc::clone(&shared), outbox: outbox.clone(), wake: Arc::clone(&wake) };
        let thread = Running::start("fs-errors", SourceName::FanotifyFs, &outbox, move || listener.run())
            .map_err(no_thread)?;
        let inner = Inner { shared, settings, _thread: thread };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sets the mark on the superblock of this mount, and again after every remount. Never blocks the caller's
    /// thread; needs a running tokio runtime. Waits for its turn; the deadline counts from then on, and the work
    /// goes on when the future is dropped. An automount is walked to only while the table of mounts has it.
    pub async fn mark(
        &self,
        mount: &Mount,
        is_automount: bool,
        deadline: Duration,
    ) -> Result<(), MarkRefused> {
        let slot = Slot::take(&self.inner.shared, mount.superblock, deadline).await?;
        let child = self.inner.spawn(mount, is_automount)?;
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(supervise(child, deadline, slot, sender));
        // The task always answers, except when the runtime ends.
        receiver.await.unwrap_or(Err(MarkRefused::NoAnswer))
    }

    /// Errors are no longer reported for this superblock: it is gone, or no longer watched.
    pub fn forget(&self, superblock: SuperblockId) {
        lock(&self.inner.shared.ledger).forget(superblock);
    }
}

impl Inner {
    fn spawn(&self, mount: &Mount, is_automount: bool) -> Result<Child, MarkRefused> {
        let group = self.shared.group.as_fd().try_clone_to_owned().map_err(MarkRefused::Start)?;
        let request = Request::of(mount, is_automount, self.settings.enter.as_deref());
        mark_command(&self.settings.program, group, &request)
            .and_then(|mut command| command.spawn())
            .map_err(MarkRefused::Start)
    }
}

/// The right to have a child out for a superblock.
#[derive(Debug)]
struct Slot {
    shared: Arc<Shared>,
    superblock: SuperblockId,
    /// Absent only while it waits for its turn.
    turn: Option<OwnedSemaphorePermit>,
}

impl Slot {
    /// Whoever has a turn gives it back within `deadline` or is stuck. So this waits only as long as somebody
    /// who is not stuck has one.
    async fn take(
        shared: &Arc<Shared>,
        superblock: SuperblockId,
        deadline: Duration,
    ) -> Result<Self, MarkRefused> {
        if !lock(&shared.marking).insert(superblock) {
            return Err(MarkRefused::Busy);
        }
        // From here on dropping it takes the superblock out again.
        let mut slot = Self { shared: Arc::clone(shared), superblock, turn: None };
        while slot.turn.is_none() {
            if shared.stuck.load(Ordering::Relaxed) >= CHILDREN_MAX {
                return Err(MarkRefused::TooMany);
            }
            let turn = tokio::time::timeout(deadline, Arc::clone(&shared.turns).acquire_owned()).await;
            // The semaphore is never closed; a wait that was too long is another look.
            slot.turn = turn.ok().and_then(Result::ok);
        }
        Ok(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.shared.marking).remove(&self.superblock);
    }
}

/// Stays with the child until it is gone, however long that takes.
async fn supervise(
    mut child: Child,
    deadline: Duration,
    slot: Slot,
    answer: oneshot::Sender<Result<(), MarkRefused>>,
) {
    match tokio::time::timeout(deadline, answer_of(&mut child)).await {
        Ok(Some(Answer::Set(fsid))) => {
            let Claimed { held, lost } = lock(&slot.shared.ledger).claim(fsid, slot.superblock, clock::now());
            let (superblock, events) = (slot.superblock, slot.shared.events.clone());
            // The slot is free before the caller hears of the success: it may mark again at once.
            drop(slot);
            let _ = answer.send(Ok(()));
            let lost = (lost > 0).then_some(SensorEvent::Dropped(LossCause::Fanotify, lost));
            for event in held.into_iter().map(|errors| observed(superblock, errors)).chain(lost) {
                // Fails only when nobody listens any more.
                let _ = events.send(event).await;
            }
        }
        Ok(Some(Answer::Other(found))) => {
            drop(slot);
            let _ = answer.send(Err(MarkRefused::OtherMount { found }));
        }
        Ok(Some(Answer::Refused(step, errno))) => {
            drop(slot);
            let _ = answer.send(Err(MarkRefused::Refused { step, errno }));
        }
        Ok(None) => {
            drop(slot);
            let _ = answer.send(Err(MarkRefused::NoAnswer));
        }
        Err(_) => {
            let _ = child.start_kill();
            slot.shared.stuck.fetch_add(1, Ordering::Relaxed);
            let _ = answer.send(Err(MarkRefused::TimedOut));
            let _ = child.wait().await;
            slot.shared.stuck.fetch_sub(1, Ordering::Relaxed);
            drop(slot);
        }
    }
}

/// Reads what the child has to say and waits for its end.
async fn answer_of(child: &mut Child) -> Option<Answer> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // What was read before an error is judged like a whole answer.
        let _ = stdout.take(ANSWER_MAX).read_to_end(&mut output).await;
    }
    let _ = child.wait().await;
    Answer::from_output(&output)
}

struct Listener {
    shared: Arc<Shared>,
    outbox: Outbox,
    wake: Arc<Wake>,
}

impl Listener {
    fn run(self) {
        while !self.wake.is_stopping() {
            let group = self.shared.group.as_fd();
            if self.wake.wait(Some((group, PollFlags::POLLIN)), IDLE) != Woken::Ready {
                continue;
            }
            if let Err(errno) = self.read_once() {
                let state = SourceState::Off(format!("reading error events failed: {errno}"));
                self.outbox.send(SensorEvent::Source(SourceName::FanotifyFs, state));
                return;
            }
            // Ends early only when the thread has to end.
            self.wake.wait(None, REST);
        }
    }

    fn read_once(&self) -> Result<(), Errno> {
        let batch = self.shared.group.read()?;
        let at = clock::now();
        // What could not be decoded is as good as lost.
        let mut lost = u64::from(batch.defect.is_some());
        // Whose errors were lost is not known then: every file system with a mark may have had some.
        let is_anyones = lost > 0 || batch.events.iter().any(Event::is_overflow);
        for event in batch.events {
            lost += self.handle(&event, at);
        }
        if lost > 0 {
            self.outbox.send(SensorEvent::Dropped(LossCause::Fanotify, lost));
        }
        let marked = if is_anyones { lock(&self.shared.ledger).all() } else { BTreeSet::new() };
        if !marked.is_empty() {
            self.outbox.send(SensorEvent::Look(marked));
        }
        Ok(())
    }

    /// Returns how many events were lost.
    fn handle(&self, event: &Event, at: agent_core::time::Monotonic) -> u64 {
        let named: Option<(Fsid, Errors)> =
            event.fsid.zip(event.error).map(|(fsid, error)| (fsid, Errors { error, at }));
        let Some((fsid, errors)) = named else {
            return 1;
        };
        let (owners, lost) = lock(&self.shared.ledger).attribute(fsid, errors);
        for superblock in owners {
            self.outbox.send(observed(superblock, errors));
        }
        lost
    }
}

fn observed(superblock: SuperblockId, errors: Errors) -> SensorEvent {
    SensorEvent::Kernel(KernelErrors {
        source: Source::Fanotify,
        superblock,
        root_inode: None,
        errno: errors.error.errno,
        op: Op::Filesystem,
        count: u64::from(errors.error.count),
        at: errors.at,
        after: None,
        task: None,
    })
}

#[cfg(test)]
mod tests;
