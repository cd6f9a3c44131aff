//! What every sensor thread needs: a way to be woken, a way to be stopped, and a way to send without being
//! stuck on a full channel when it is told to stop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::sensor::{SensorEvent, SourceName, SourceState};
use crate::sys::clock;

/// How long a sender waits before it tries a full channel again.
const FULL_CHANNEL_PAUSE: Duration = Duration::from_millis(5);

/// How long the end of a thread is waited for.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How often a thread that should end is looked at.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Waits for a thread that was told to stop, at most for a second. A thread that the kernel keeps longer is left
/// behind: it ends when it comes back, and the agent's own end is not held up by it.
fn wait_for_end(thread: JoinHandle<()>) {
    let started = clock::now();
    while !thread.is_finished() {
        if clock::now().since(started) >= END_PATIENCE {
            return;
        }
        std::thread::park_timeout(END_PAUSE);
    }
    // A thread that panicked has ended as well.
    let _ = thread.join();
}

/// Wakes one thread that waits in `poll`.
#[derive(Debug)]
pub(super) struct Wake {
    /// Written by others, polled by the thread. Its value has no meaning; the flags have.
    bell: EventFd,
    /// Set once. The thread ends at its next look.
    stopping: AtomicBool,
    /// Set by others, taken by the thread.
    requested: AtomicBool,
}

/// A sensor's thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a thread that ends when the bell of `outbox` tells it to. Should it panic, its source is off.
    pub(super) fn start(
        name: &str,
        source: SourceName,
        outbox: &Outbox,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let last_words = LastWords::new(source, outbox.events.clone());
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _last_words = last_words;
            body();
        })?;
        Ok(Self { wake: Arc::clone(&outbox.wake), thread: Some(thread) })
    }
}

/// Held by a sensor's thread: says that its source is off when the thread panics. Nothing else would, and a source
/// that says nothing is taken for one that has nothing to say.
#[derive(Debug)]
pub(super) struct LastWords {
    source: SourceName,
    events: Sender<SensorEvent>,
}

impl LastWords {
    /// For the thread of this source.
    pub(super) const fn new(source: SourceName, events: Sender<SensorEvent>) -> Self {
        Self { source, events }
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        tracing::error!(source = self.source.label(), "Thread of a source has ended by a fault of its own");
        let state = SourceState::Off("its thread has ended by a fault of its own".to_owned());
        let mut event = SensorEvent::Source(self.source, state);
        while let Err(TrySendError::Full(returned)) = self.events.try_send(event) {
            event = returned;
            std::thread::park_timeout(FULL_CHANNEL_PAUSE);
        }
    }
}

/// Why a sensor does not run.
pub(super) fn no_thread(error: io::Error) -> String {
    format!("no thread: {error}")
}

impl Drop for Running {
    /// Waits for its end, at most for a second.
    fn drop(&mut self) {
        self.wake.stop();
        if let Some(thread) = self.thread.take() {
            wait_for_end(thread);
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Woken {
    /// The time was up, or a signal arrived.
    Timeout,
    /// Somebody rang.
    Bell,
    /// The other descriptor has something; so may the bell.
    Ready,
}

impl Wake {
    /// Fails only when descriptors run out.
    pub(super) fn new() -> Result<Self, Errno> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { bell, stopping: AtomicBool::new(false), requested: AtomicBool::new(false) })
    }

    /// One for a sensor's thread, or why there is none.
    pub(super) fn for_thread() -> Result<Arc<Self>, String> {
        Self::new().map(Arc::new).map_err(|errno| format!("no descriptor for the thread: {errno}"))
    }

    /// Asks the thread for its work.
    pub(super) fn request(&self) {
        if !self.requested.swap(true, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Whether the work was asked for since the last call.
    pub(super) fn take_request(&self) -> bool {
        self.requested.swap(false, Ordering::AcqRel)
    }

    /// Tells the thread to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the thread has to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits for the bell, or for `flags` on `other`, at most for `timeout`.
    pub(super) fn wait(&self, other: Option<(BorrowedFd<'_>, PollFlags)>, timeout: Duration) -> Woken {
        // Rounded up: a wait of half a millisecond must not become a busy loop.
        let millis = timeout.as_millis().saturating_add(1).min(60_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO);
        let mut descriptors = vec![PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        descriptors.extend(other.map(|(descriptor, flags)| PollFd::new(descriptor, flags)));
        if !matches!(poll(&mut descriptors, timeout), Ok(count) if count > 0) {
            return Woken::Timeout;
        }
        let fired = |index: usize| {
            descriptors
                .get(index)
                .and_then(PollFd::revents)
                .is_some_and(|revents| revents != PollFlags::empty())
        };
        if fired(0) {
            // Only resets the bell; a failure means that it was reset already.
            let _ = self.bell.read();
        }
        if fired(1) { Woken::Ready } else { Woken::Bell }
    }

    fn ring(&self) {
        // The counter of the bell is full only when it is ringing already.
        let _ = self.bell.write(1);
    }
}

/// The sending end of a sensor thread.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    events: Sender<SensorEvent>,
    wake: Arc<Wake>,
}

impl Outbox {
    /// Sends for the thread that waits on `wake`.
    pub(super) fn new(events: Sender<SensorEvent>, wake: Arc<Wake>) -> Self {
        Self { events, wake }
    }

    /// Sends, waiting while the channel is full. `false`: nobody listens any more, or the thread has to end.
    pub(super) fn send(&self, event: SensorEvent) -> bool {
        let mut event = event;
        loop {
            if self.wake.is_stopping() {
                return false;
            }
            match self.events.try_send(event) {
                Ok(()) => return true,
                Err(TrySendError::Closed(_)) => return false,
                Err(TrySendError::Full(returned)) => event = returned,
            }
            // Requests stay in their flag, so a bell heard here is not lost.
            self.wake.wait(None, FULL_CHANNEL_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_channel_does_not_keep_a_thread_from_ending() {
        let wake = Arc::new(Wake::new().unwrap());
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        let outbox = Outbox::new(sender, Arc::clone(&wake));
        let dropped = || SensorEvent::MountEventsDropped(1);
        assert!(outbox.send(dropped()));
        let thread = std::thread::spawn(move || outbox.send(dropped()));
        let started = clock::now();
        wake.stop();
        assert!(!thread.join().unwrap());
        assert!(clock::now().since(started) < Duration::from_secs(1));
    }

    #[test]
    fn a_thread_ends_with_what_holds_it() {
        let wake = Wake::for_thread().unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        let waiter = Arc::clone(&wake);
        let (sender, _events) = tokio::sync::mpsc::channel(1);
        let outbox = Outbox::new(sender, wake);
        let running = Running::start("waits", SourceName::Sysfs, &outbox, move || {
            while !waiter.is_stopping() {
                waiter.wait(None, Duration::from_secs(60));
            }
            ended.send(()).unwrap_or_default();
        });
        drop(running.unwrap());
        assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(()));
    }

    #[test]
    fn a_thread_that_the_kernel_keeps_is_left_behind() {
        let (release, kept) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || kept.recv().unwrap_or_default());
        let started = clock::now();
        wait_for_end(thread);
        let waited = clock::now().since(started);
        assert!(waited >= END_PATIENCE && waited < 5 * END_PATIENCE, "{waited:?}");
        drop(release);
    }

    #[test]
    fn a_thread_that_panics_says_that_its_source_is_off_also_when_the_channel_is_full() {
        let wake = Wake::for_thread().unwrap();
        let (sender, mut events) = tokio::sync::mpsc::channel(1);
        let outbox = Outbox::new(sender, wake);
        assert!(outbox.send(SensorEvent::MountEventsDropped(1)));
        let running = Running::start("faulty", SourceName::Census, &outbox, || panic!("on purpose")).unwrap();
        let told: Vec<_> = std::iter::from_fn(|| events.blocking_recv()).take(2).collect();
        assert!(
            matches!(
                told.as_slice(),
                [
                    SensorEvent::MountEventsDropped(1),
                    SensorEvent::Source(SourceName::Census, SourceState::Off(reason)),
                ] if reason.contains("fault")
            ),
            "{told:?}"
        );
        drop(running);
    }

    #[test]
    fn a_request_is_taken_once_and_survives_a_wait() {
        let wake = Wake::new().unwrap();
        wake.request();
        wake.request();
        assert_eq!(wake.wait(None, Duration::from_secs(30)), Woken::Bell);
        assert_eq!(wake.wait(None, Duration::ZERO), Woken::Timeout);
        assert!(wake.take_request());
        assert!(!wake.take_request());
    }
}
