//! What outlives the agent: the journal of plans, and what is known of each volume.
//!
//! An intent is on disk before the plan acts, its outcome after. What has an intent and no outcome when the
//! agent starts was cut off, and is settled before anything else is done to that volume.
//!
//! The disk under the state may be full, read-only or hung. Nothing waits for it longer than a deadline, and
//! nothing stops because of it: the agent goes on from memory, counts the failure and says so.
//!
//! Plan ids are never used twice, since private places are named after them. Where a journal is there and was not
//! read whole, its ids are not known: those of this run then begin at the clock's seconds.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_core::id::{PlanId, VolumeId};
use agent_core::memory::Memory;
use agent_core::observation::Unfinished;
use agent_core::remediation::{Outcome, Plan};
use tokio::sync::oneshot;

pub(crate) mod journal;
pub(crate) mod memory;
mod pins;
pub(crate) mod record;
pub(crate) mod shelf;
mod writer;

pub use journal::StoreError;
use journal::{Journal, Replay};
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
    record: Record,
    done: oneshot::Sender<Result<(), StoreError>>,
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
        Ok(Err(_)) => Found::default(),
        Err(_) => {
            defects.push(StoreError::Slow { dir: state_dir.to_path_buf(), patience: PATIENCE });
            Found { replay: Replay::unknown(), ..Found::default() }
        }
    };
    defects.extend(found.defects);
    failures.fetch_add(defects.len() as u64, Ordering::Relaxed);
    let store = Store { jobs, dir: state_dir.to_path_buf(), failures, writer, is_ours };
    let Replay { unfinished, next_plan } = found.replay;
    Opened { store, unfinished, next_plan, memories: found.memories, defects }
}

/// What was in the state directory.
#[derive(Debug, Default)]
struct Found {
    replay: Replay,
    memories: Vec<Memory>,
    defects: Vec<StoreError>,
}

fn serve(
    (dir, is_ours): (&Path, &OnceLock<bool>),
    opened: oneshot::Sender<Found>,
    queue: &mpsc::Receiver<Job>,
    shelves: oneshot::Sender<Shelf>,
) {
    let (mut journal, replay, mut defects) = Journal::open(dir);
    // Nobody else sets it.
    let _ = is_ours.set(!journal.is_held_by_another());
    let (shelf, memories, more) = Shelf::open(dir, journal.is_held_by_another());
    defects.extend(more);
    // The receiver may have given up waiting; what comes is still written. What is known was not told then, so it must
    // not be written over by an agent that knows nothing.
    if opened.send(Found { replay, memories, defects }).is_ok() {
        let _ = shelves.send(shelf);
    }
    while let Ok(job) = queue.recv() {
        let _ = job.done.send(journal.append(&job.record));
    }
}

impl Store {
    /// Writes the intent of a plan and waits until it is on disk.
    ///
    /// # Errors
    /// The record could not be written. The store has counted it; the caller says so and goes on.
    pub async fn intent(&self, plan: &Plan) -> Result<(), StoreError> {
        self.write(Record::intent(plan)).await
    }

    /// Writes what became of a plan.
    ///
    /// # Errors
    /// As for [`Store::intent`].
    pub async fn outcome(&self, plan: PlanId, outcome: &Outcome) -> Result<(), StoreError> {
        self.write(Record::outcome(plan, outcome)).await
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

    async fn write(&self, record: Record) -> Result<(), StoreError> {
        let result = self.try_to_write(record).await;
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    async fn try_to_write(&self, record: Record) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.jobs.send(Job { record, done }).map_err(|_| StoreError::Gone)?;
        in_time(&self.dir, answer).await?
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
