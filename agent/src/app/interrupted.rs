//! What ends a command that goes on until somebody ends it: a signal, or that nobody reads any more.

use std::future::pending;
use std::io::stdout;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a command may take to end in order. It is past only where its output takes nothing more.
const IN_ORDER: Duration = Duration::from_secs(5);

/// Waits until the command shall end: what was begun on a terminal is put in order first.
pub(super) async fn interrupted() {
    tokio::select! {
        () = asked_to_end() => {}
        () = nobody_reads(stdout().as_fd().try_clone_to_owned().ok()) => {}
    }
}

/// Waits for a signal. It is listened for from the first poll on.
async fn asked_to_end() {
    let Some(mut signals) = Signals::new() else {
        // The kernel ends this process as it ends others.
        return pending().await;
    };
    let (listens, listening) = mpsc::channel();
    // Without it only one who reads on can let a command end whose output is full.
    let started = thread::Builder::new().name("end".to_owned()).spawn(move || end_at_last(listens));
    if started.is_ok() {
        // A moment: not one signal may be missed. One that cannot listen lets go.
        let _ = listening.recv();
    }
    signals.next().await;
}

/// Ends the process that was asked to end, and has not: its only thread waits for somebody who reads. At once when it is
/// asked again. Lets go of `listens` when it hears of every signal.
fn end_at_last(listens: mpsc::Sender<()>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let number = runtime.block_on(async {
        let mut signals = Signals::new()?;
        drop(listens);
        let first = signals.next().await;
        Some(timeout(IN_ORDER, signals.next()).await.unwrap_or(first))
    });
    if let Some(number) = number {
        // As shells say it of one that a signal has ended.
        std::process::exit(128 + number);
    }
}

/// The signals that ask to end.
struct Signals([(i32, Signal); 4]);

impl Signals {
    fn new() -> Option<Self> {
        let kinds =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        match kinds.map(|kind| (kind.as_raw_value(), signal(kind))) {
            [(a, Ok(interrupt)), (b, Ok(terminate)), (c, Ok(hang_up)), (d, Ok(quit))] => {
                Some(Self([(a, interrupt), (b, terminate), (c, hang_up), (d, quit)]))
            }
            _ => None,
        }
    }

    /// The number of the next one.
    async fn next(&mut self) -> i32 {
        let [(a, interrupt), (b, terminate), (c, hang_up), (d, quit)] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => *a,
            _ = terminate.recv() => *b,
            _ = hang_up.recv() => *c,
            _ = quit.recv() => *d,
        }
    }
}

/// Waits until all readers of a pipe have left, or the terminal is gone. Nobody leaves a file.
///
/// kernel: `pipe_poll`, fs/pipe.c: `EPOLLERR` for the writer when there are no readers, told whatever is asked for
/// (`do_pollfd`, fs/select.c), all versions.
async fn nobody_reads(out: Option<OwnedFd>) {
    let (tell, told) = oneshot::channel();
    // It ends with the process.
    let watching =
        out.map(|out| thread::Builder::new().name("reader".to_owned()).spawn(move || watch(&out, tell)));
    if !matches!(watching, Some(Ok(_))) || told.await.is_err() {
        pending::<()>().await;
    }
}

fn watch(out: &OwnedFd, tell: oneshot::Sender<()>) {
    let mut watched = [PollFd::new(out.as_fd(), PollFlags::empty())];
    loop {
        match poll(&mut watched, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            // What cannot be watched is noticed at the next write.
            Err(_) => return,
            Ok(_) => {
                // Whoever listened may have ended meanwhile.
                let _ = tell.send(());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;

    #[tokio::test]
    async fn a_reader_that_leaves_is_noticed_also_while_nothing_is_written() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        File::from(writer.try_clone().unwrap()).write_all(b"x").unwrap();
        let mut left = Box::pin(nobody_reads(Some(writer)));
        let early = tokio::select! {
            biased;
            () = &mut left => true,
            () = tokio::task::yield_now() => false,
        };
        assert!(!early, "somebody reads");
        drop(reader);
        timeout(Duration::from_secs(60), left).await.unwrap();
    }

    #[tokio::test]
    async fn nobody_leaves_a_file() {
        for out in [File::open("/dev/null").unwrap(), tempfile::tempfile().unwrap()] {
            let left = timeout(Duration::from_millis(10), nobody_reads(Some(out.into()))).await;
            assert!(left.is_err());
        }
    }
}
