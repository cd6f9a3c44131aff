//! The way of a line to where the log goes: through a queue, and a thread that writes.
//!
//! Whoever reads the log may stop reading, and then a write waits for as long as that lasts. The agent must look at its
//! volumes meanwhile, so it only ever puts lines into the queue. What the queue has no room for is lost, and counted; the
//! count is told as a line as soon as lines are written again. At the end the queue is emptied, if that is quick.
//!
//! Own code: the queue of `tracing-appender` counts lines and not bytes, panics where no thread starts, and prints to
//! standard output when it cannot end, which is as blocked as the log where both are the journal.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// What waits to be written, at most: minutes of a log that is loud, and little of a node's memory.
const ROOM: usize = 1 << 20;
/// How long the end waits for the rest to be written. Whoever reads is quick, or does not read.
const END_WITHIN: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that found no room, and were not told of yet.
    lost: u64,
    /// Some are on their way out.
    is_writing: bool,
    /// What was lost is being told of: that line always finds room.
    is_telling: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for lines, and takes all of them.
    fn take(&self) -> VecDeque<Vec<u8>> {
        let state = self.lock();
        let waits = |state: &mut State| state.lines.is_empty();
        let mut state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.is_writing = true;
        std::mem::take(&mut state.lines)
    }

    /// A line was written, or could not be.
    fn written(&self, length: usize, is_lost: bool) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(length);
        state.lost += u64::from(is_lost);
    }

    /// All that was taken is written. How many lines were lost that nobody was told of, if somebody can be told.
    fn untold(&self, works: bool) -> u64 {
        let mut state = self.lock();
        state.is_telling = works && state.lost > 0;
        // Where writing fails, the line about that fails as well, and would be one more to tell of.
        if works { std::mem::take(&mut state.lost) } else { 0 }
    }

    /// Nothing is on its way out.
    fn rests(&self) {
        let mut state = self.lock();
        state.is_telling = false;
        state.is_writing = false;
        self.changed.notify_all();
    }
}

/// Where events are written to: the queue.
#[derive(Clone)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    room: usize,
}

/// One that holds it has what was logged written before the process ends.
#[must_use = "the last lines of the log are written when it is dropped"]
pub struct Rest {
    shared: Arc<Shared>,
    within: Duration,
}

impl Queue {
    /// Starts the thread. `tell` logs that so many lines were lost.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Rest)> {
        Self::with_room(ROOM, out, tell)
    }

    fn with_room(
        room: usize,
        mut out: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Rest)> {
        let shared = Arc::new(Shared::default());
        let queue = Self { shared: Arc::clone(&shared), room };
        let rest = Rest { shared: Arc::clone(&shared), within: END_WITHIN };
        // It ends with the process.
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            loop {
                let mut works = false;
                for line in shared.take() {
                    works = out.write_all(&line).and_then(|()| out.flush()).is_ok();
                    shared.written(line.len(), !works);
                }
                let lost = shared.untold(works);
                if lost > 0 {
                    tell(lost);
                }
                shared.rests();
            }
        })?;
        Ok((queue, rest))
    }
}

impl Write for Queue {
    /// Takes a whole line. Never waits, and never fails: there is nowhere to report to that reporting failed.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        if state.bytes.saturating_add(line.len()) > self.room && !state.is_telling {
            state.lost += 1;
        } else {
            state.bytes += line.len();
            state.lines.push_back(line.to_vec());
            self.shared.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let state = self.shared.lock();
        let waits = |state: &mut State| state.is_writing || !state.lines.is_empty();
        // Where nobody reads, the rest is lost: the process must end all the same.
        drop(self.shared.changed.wait_timeout_while(state, self.within, waits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{BufRead as _, BufReader};
    use std::sync::mpsc;

    /// Both ends of a pipe, and how many bytes fit into it.
    fn pipe() -> (File, File) {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        (reader.into(), writer.into())
    }

    #[test]
    fn a_log_that_nobody_reads_holds_up_nobody_and_what_was_lost_is_told_when_it_is_read_again() {
        let (reader, writer) = pipe();
        let (losses, lost) = mpsc::channel();
        let room = 64 << 10;
        let (mut queue, mut rest) =
            Queue::with_room(room, writer, move |count| losses.send(count).unwrap()).unwrap();
        // Far more than a pipe and the queue hold together. It would hang here if it were written.
        let count = 100_000_u64;
        for number in 0..count {
            queue.write_all(format!("{number:>99}\n").as_bytes()).unwrap();
        }
        assert!(queue.shared.lock().bytes <= room);
        // The end waits for a while, and not for ever.
        rest.within = Duration::from_millis(1);
        drop(rest);
        assert!(lost.try_recv().is_err(), "told while nothing is written");
        let reading = thread::spawn(move || {
            let mut lines = Vec::new();
            for line in BufReader::new(reader).lines() {
                let line = line.unwrap();
                if line == "the end" {
                    break;
                }
                lines.push(line.trim().parse::<u64>().unwrap());
            }
            lines
        });
        let told: u64 = lost.recv().unwrap();
        queue.write_all(b"the end\n").unwrap();
        let lines = reading.join().unwrap();
        let told = told + lost.try_iter().sum::<u64>();
        assert_eq!(u64::try_from(lines.len()).unwrap() + told, count);
        assert!(told > 0 && lines.is_sorted(), "{told}");
    }

    #[test]
    fn what_is_logged_is_written_before_the_end() {
        let (reader, writer) = pipe();
        let (mut queue, mut rest) = Queue::start(writer, |_| {}).unwrap();
        rest.within = Duration::from_secs(600);
        for number in 0..100 {
            queue.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        drop(rest);
        let mut reader = BufReader::new(reader);
        for number in 0..100 {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, format!("{number}\n"));
        }
    }

    /// Fails until it is mended.
    struct Broken(mpsc::Receiver<()>);

    impl Write for Broken {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            match self.0.try_recv() {
                Err(mpsc::TryRecvError::Empty) => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(line.len()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_told_of_when_one_can() {
        let (mend, broken) = mpsc::channel();
        let (losses, lost) = mpsc::channel();
        let (mut queue, mut rest) =
            Queue::start(Broken(broken), move |count| losses.send(count).unwrap()).unwrap();
        rest.within = Duration::from_secs(600);
        queue.write_all(b"one\n").unwrap();
        queue.write_all(b"two\n").unwrap();
        drop(rest);
        assert!(lost.try_recv().is_err(), "it would be told of for ever");
        drop(mend);
        queue.write_all(b"three\n").unwrap();
        assert_eq!(lost.recv().unwrap(), 2);
    }
}
