//! What outlives the agent: the journal of plans, what is known of each volume, and what people have paused.
//!
//! An intent is on disk before the plan acts, its outcome after. What has an intent and no outcome when the
//! agent starts was cut off, and is settled before anything else is done to that volume.
//!
//! The disk under the state may be full, read-only or hung. Nothing waits for it longer than a deadline, and
//! nothing stops because of it: the agent goes on from memory, counts the failure and says so.
//!
//! Plan ids are never used twice, since private places are named after them. Where a journal is there and was not
//! read whole, its ids are not known: those of this run then begin at the clock's seconds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_core::id::{MountId, PlanId, VolumeId};
use agent_core::memory::Memory;
use agent_core::observation::Unfinished;
use agent_core::pause::Pauses;
use agent_core::remediation::{Outcome, Plan};
use tokio::sync::oneshot;

mod disk;
mod form;
pub(crate) mod journal;
pub(crate) mod memory;
mod pauses;
mod pins;
pub(crate) mod place;
#[cfg(test)]
mod power_loss;
pub mod reading;
pub(crate) mod record;
pub(crate) mod shelf;
mod writer;

use disk::Disk;
pub use journal::StoreError;
use journal::{Journal, Replay};
use pauses::PauseFile;
pub use pins::{Pin, PinFile, Pinned};
use record::Record;
use shelf::Shelf;
use writer::Writer;

/// How long the agent waits for the disk under its state.
const PATIENCE: Duration = Duration::from_secs(3);

/// The writing side. Writes happen on a thread of their own, in order.
#[derive(Debug)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    /// The state directory, for messages.
    dir: PathBuf,
    /// What could not be read or written since the start.
    failures: Arc<AtomicU64>,
    /// What is known of volumes, on its way to the disk.
    writer: Writer,
    /// Whether the state directory is this agent's alone, once that is known.
    is_ours: Arc<OnceLock<bool>>,
}

struct Job {
    what: What,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// What is to be written at once, in this order.
enum What {
    Record(Record),
    Pauses(Pauses),
}

/// What was found when the store was opened.
#[derive(Debug)]
pub struct Opened {
    /// The writing side.
    pub store: Store,
    /// Plans that were cut off.
    pub unfinished: Vec<Unfinished>,
    /// The first plan id that was never used.
    pub next_plan: PlanId,
    /// What an earlier run knew of volumes.
    pub memories: Vec<Memory>,
    /// What people have paused.
    pub pauses: Pauses,
    /// What is wrong with the state, for the log. The agent goes on in every case.
    pub defects: Vec<StoreError>,
}

/// Opens the journal in `state_dir`, or goes on without it.
pub async fn open(state_dir: &Path) -> Opened {
    let (jobs, queue) = mpsc::channel::<Job>();
    let (opened_tx, opened) = oneshot::channel();
    let dir = state_dir.to_path_buf();
    let failures = Arc::new(AtomicU64::new(0));
    let (writer, shelves) = Writer::new(Arc::clone(&failures));
    let is_ours = Arc::new(OnceLock::new());
    let told = Arc::clone(&is_ours);
    let spawned = std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || serve((&dir, &told), opened_tx, &queue, shelves));
    let mut defects = Vec::new();
    if let Err(source) = spawned {
        defects.push(StoreError::Thread { source });
    }
    let found = match tokio::time::timeout(PATIENCE, opened).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => Found { pauses: pauses::all_paused(), ..Found::default() },
        Err(_) => {
            let slow = || StoreError::Slow { dir: state_dir.to_path_buf(), patience: PATIENCE };
            defects.extend([slow(), StoreError::PausesUnknown { source: Box::new(slow()) }]);
            Found { replay: Replay::unknown(), pauses: pauses::all_paused(), ..Found::default() }
        }
    };
    defects.extend(found.defects);
    failures.fetch_add(defects.len() as u64, Ordering::Relaxed);
    let store = Store { jobs, dir: state_dir.to_path_buf(), failures, writer, is_ours };
    let Replay { unfinished, next_plan } = found.replay;
    Opened { store, unfinished, next_plan, memories: found.memories, pauses: found.pauses, defects }
}

/// What was in the state directory.
#[derive(Debug, Default)]
struct Found {
    replay: Replay,
    memories: Vec<Memory>,
    pauses: Pauses,
    defects: Vec<StoreError>,
}

fn serve(
    (dir, is_ours): (&Path, &OnceLock<bool>),
    opened: oneshot::Sender<Found>,
    queue: &mpsc::Receiver<Job>,
    shelves: oneshot::Sender<Shelf>,
) {
    let disk = Disk::default();
    let (mut journal, replay, mut defects) = Journal::open(&disk, dir);
    // Nobody else sets it.
    let _ = is_ours.set(!journal.is_held_by_another());
    let (shelf, memories, more) = Shelf::open(&disk, dir, journal.is_held_by_another());
    defects.extend(more);
    let (mut pause_file, pauses, more) = PauseFile::open(&disk, dir, journal.is_held_by_another());
    defects.extend(more);
    // The receiver may have given up waiting; what comes is still written. What is known was not told then, so it must
    // not be written over by an agent that knows nothing.
    if opened.send(Found { replay, memories, pauses, defects }).is_ok() {
        let _ = shelves.send(shelf);
    } else {
        pause_file.leave_alone();
    }
    while let Ok(job) = queue.recv() {
        let _ = job.done.send(match &job.what {
            What::Record(record) => journal.append(record),
            What::Pauses(pauses) => pause_file.write(pauses),
        });
    }
}

impl Store {
    /// Writes the intent of a plan and waits until it is on disk.
    ///
    /// # Errors
    /// The record could not be written. The store has counted it; the caller says so and goes on.
    pub async fn intent(&self, plan: &Plan, holders: BTreeSet<MountId>) -> Result<(), StoreError> {
        self.write(What::Record(Record::intent(plan, &holders))).await
    }

    /// Writes what became of a plan.
    ///
    /// # Errors
    /// As for [`Store::intent`].
    pub async fn outcome(&self, plan: PlanId, outcome: &Outcome) -> Result<(), StoreError> {
        self.write(What::Record(Record::outcome(plan, outcome))).await
    }

    /// Keeps what people have paused, in the place of what was kept of it.
    ///
    /// # Errors
    /// As for [`Store::intent`].
    /// Handed over when it is called, so that the last call is what stays.
    pub fn pauses(self: &Arc<Self>, pauses: Pauses) -> impl Future<Output = Result<(), StoreError>> + use<> {
        let (this, answer) = (Arc::clone(self), self.hand_over(What::Pauses(pauses)));
        async move { this.counted(answer).await }
    }

    /// Keeps what is known of a volume, in the place of what was kept of it. Written soon, and not for each call.
    pub fn remember(&self, memory: Memory) {
        self.writer.put(memory.volume.clone(), Some(memory));
    }

    /// Keeps nothing of this volume any more.
    pub fn forget(&self, volume: VolumeId) {
        self.writer.put(volume, None);
    }

    /// Waits until all that was to be kept is on disk. `false`: some of it is not, and stays in memory.
    pub async fn is_kept(&self) -> bool {
        tokio::time::timeout(PATIENCE, self.writer.done()).await.unwrap_or_default()
    }

    /// Reads what was pinned, or goes on without.
    pub async fn open_pins(&self) -> Pinned {
        pins::open(&self.dir, Arc::clone(&self.is_ours)).await
    }

    /// What could not be read or written since the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Something else of the state could not be read or written.
    pub fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    async fn write(&self, what: What) -> Result<(), StoreError> {
        let answer = self.hand_over(what);
        self.counted(answer).await
    }

    fn hand_over(&self, what: What) -> oneshot::Receiver<Result<(), StoreError>> {
        let (done, answer) = oneshot::channel();
        // Where nobody takes it, the answer never comes.
        let _ = self.jobs.send(Job { what, done });
        answer
    }

    async fn counted(&self, answer: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), StoreError> {
        let result = in_time(&self.dir, answer).await.flatten();
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

/// What work on the state directory came to, unless its thread has ended or the disk takes too long.
async fn in_time<T, E>(dir: &Path, work: impl Future<Output = Result<T, E>>) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(StoreError::Gone),
        Err(_) => Err(StoreError::Slow { dir: dir.to_path_buf(), patience: PATIENCE }),
    }
}
