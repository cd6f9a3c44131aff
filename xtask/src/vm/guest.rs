//! One guest, from boot to power-off: what it runs, and what came of it.

use std::fs::{self, create_dir_all};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::quietly::tail;

use super::cache::{self, clear};
use super::cpio::Archive;
use super::kernel::Kernel;
use super::qemu::{self, Files, Machine};

/// The folders of running guests, below the cache's.
const GUESTS: &str = "guests";

/// How much of the console is shown when a guest ended badly.
const CONSOLE_LINES: usize = 60;

/// What all guests of a run have in common.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The root disk.
    pub(crate) root: PathBuf,
    /// The program that is process 1.
    pub(crate) init: PathBuf,
    /// The folder shown as `/host`.
    pub(crate) share: PathBuf,
    /// The hardware.
    pub(crate) machine: Machine,
    /// Whether output is shown as it comes.
    pub(crate) live: bool,
}

/// What one guest does.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// For people.
    pub(crate) name: String,
    /// The command and its arguments.
    pub(crate) command: Vec<String>,
    /// Its environment, beside what every command has.
    pub(crate) environment: Vec<(String, String)>,
    /// Modules that are loaded before it.
    pub(crate) modules: Vec<String>,
    /// The guest is ended then.
    pub(crate) deadline: Duration,
    /// It is ended as well when for so long it neither printed anything nor added a row.
    pub(crate) silence: Duration,
}

/// How a guest ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The command ended with this code.
    Exited(i32),
    /// It was ended at its deadline; the end of its console.
    TimedOut(String),
    /// It was ended because nothing was heard of it; the end of its console.
    Silent(String),
    /// It ended without a word about the command; the end of its console.
    Died(String),
}

impl Ending {
    /// The end of its console, where the command did not end.
    pub(crate) fn console(&self) -> Option<&str> {
        match self {
            Self::Exited(_) => None,
            Self::TimedOut(console) | Self::Silent(console) | Self::Died(console) => Some(console),
        }
    }
}

/// What came of a job.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) ending: Ending,
    /// What the command printed.
    pub(crate) output: String,
    /// Rows for the table, one JSON object a line.
    pub(crate) rows: String,
    /// How long it took.
    pub(crate) took: Duration,
}

/// The file in the guest that cases add rows to.
pub(crate) const ROWS: &str = "/work/matrix.jsonl";

impl Bench {
    /// Boots a kernel, runs the job, and waits until the guest is gone.
    pub(crate) fn run(&self, kernel: &Kernel, job: &Job) -> Result<Outcome> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = cache::folder().join(GUESTS).join(format!("{}-{number}", std::process::id()));
        let outcome = self.run_in(&folder, kernel, job);
        clear(&folder)?;
        outcome
    }

    fn run_in(&self, folder: &Path, kernel: &Kernel, job: &Job) -> Result<Outcome> {
        let (work, console) = (folder.join("work"), folder.join("console"));
        create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
        write_request(&work, job)?;
        let initramfs = folder.join("initramfs");
        write(&initramfs, &archive(&self.init, &kernel.early()?)?)?;
        let files = Files {
            kernel: &kernel.image(),
            initramfs: &initramfs,
            root: &self.root,
            modules: &kernel.modules(),
            work: &work,
            share: &self.share,
            console: &console,
        };
        let begin = Instant::now();
        let mut command = qemu::command(&self.machine, &files);
        let rows = Path::new(ROWS).file_name().map(|name| work.join(name)).unwrap_or_default();
        let (end, output) = follow(&mut command, job, &rows, self.live)?;
        let read = |path: &Path| {
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        let console = || tail(&read(&console), CONSOLE_LINES);
        // A command that ended counts, also when the guest then does not manage to power off.
        let ending = match read(&work.join("exit")).trim().parse() {
            Ok(code) => Ending::Exited(code),
            Err(_) => match end {
                End::Gone => Ending::Died(console()),
                End::Late => Ending::TimedOut(console()),
                End::Silent => Ending::Silent(console()),
            },
        };
        Ok(Outcome { ending, output, rows: read(&rows), took: begin.elapsed() })
    }
}

/// The emulator; ended with its owner.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why the emulator is not followed any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It ended.
    Gone,
    /// The deadline came.
    Late,
    /// Nothing was heard of the guest for too long.
    Silent,
}

/// How often the file of rows is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Runs the emulator until it ends or takes too long. Why it is over, and what the guest's command printed.
fn follow(command: &mut Command, job: &Job, rows: &Path, live: bool) -> Result<(End, String)> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut emulator = Emulator(child.context("failed to start the emulator")?);
    // Held until the end; the emulator must not see the end of its input.
    let _input = emulator.0.stdin.take();
    let output = emulator.0.stdout.take().context("the emulator has no output")?;
    let pieces = read_in_background(output);
    let begin = Instant::now();
    let (mut heard, mut written) = (begin, 0);
    let mut printed = Vec::new();
    let end = loop {
        let left = job.deadline.saturating_sub(begin.elapsed());
        let quiet = job.silence.saturating_sub(heard.elapsed());
        if left.is_zero() || quiet.is_zero() {
            break if left.is_zero() { End::Late } else { End::Silent };
        }
        match pieces.recv_timeout(left.min(quiet).min(PERIOD)) {
            Ok(piece) => {
                if live {
                    let _ = std::io::stdout().write_all(&piece);
                    let _ = std::io::stdout().flush();
                }
                printed.extend_from_slice(&piece);
                heard = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {
                let length = fs::metadata(rows).map(|found| found.len()).unwrap_or(0);
                if length != written {
                    (heard, written) = (Instant::now(), length);
                }
            }
            // Only the emulator held the other end: it is gone, or about to be.
            Err(RecvTimeoutError::Disconnected) => break End::Gone,
        }
    };
    if end == End::Gone {
        emulator.0.wait().context("cannot wait for the emulator")?;
    }
    Ok((end, String::from_utf8_lossy(&printed).into_owned()))
}

fn read_in_background(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            let piece = buffer.get(..length).unwrap_or_default().to_vec();
            if sender.send(piece).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Leaves the request where process 1 finds it: strings that each end with a zero byte.
fn write_request(work: &Path, job: &Job) -> Result<()> {
    let pairs: Vec<String> = job.environment.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for (name, words) in [("arguments", &job.command), ("environment", &pairs), ("modules", &job.modules)] {
        let bytes: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        write(&work.join(name), &bytes)?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

fn archive(init: &Path, modules: &[PathBuf]) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut archive = Archive::default();
    let mut order = String::new();
    archive.directory("modules");
    for module in modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("modules/{name}"), &read(module)?);
        order.push_str(&name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes());
    archive.file("init", &read(init)?);
    Ok(archive.finish())
}

/// The folder of what this run shows to its guests: another run may build anew meanwhile.
pub(crate) fn binaries() -> PathBuf {
    cache::folder().join(GUESTS).join(format!("{}-binaries", std::process::id()))
}

/// Removes the folders of guests whose run was killed.
pub(crate) fn remove_leftovers() -> Result<()> {
    let Ok(entries) = fs::read_dir(cache::folder().join(GUESTS)) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).is_dir() {
            clear(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_followed_to_its_end_to_the_deadline_or_to_a_long_silence() {
        let rows = std::env::temp_dir().join(format!("mountie-vm-rows-{}", std::process::id()));
        let sh = |script: &str, deadline, silence| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]).arg(&rows);
            let (name, words) = (String::new(), Vec::new());
            let job = Job {
                name,
                command: words.clone(),
                environment: Vec::new(),
                modules: words,
                deadline,
                silence,
            };
            follow(&mut command, &job, &rows, false).unwrap()
        };
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(200));
        assert_eq!(sh("printf 'a\nb'", long, long), (End::Gone, "a\nb".to_owned()));
        let begin = Instant::now();
        assert_eq!(sh("printf a; exec sleep 60", short, long), (End::Late, "a".to_owned()));
        // Its input stays open: `cat` would end at the end of it.
        assert_eq!(sh("cat", long, short).0, End::Silent);
        assert!(begin.elapsed() < Duration::from_secs(30));
        // Rows are signs of life as well: it is silent for long only when there are no more.
        let begin = Instant::now();
        let script = "for i in 1 2 3; do sleep 1; echo x >> \"$1\"; done; exec sleep 60";
        assert_eq!(sh(script, long, Duration::from_secs(5)).0, End::Silent);
        assert!(begin.elapsed() >= Duration::from_secs(7));
        fs::remove_file(rows).unwrap();
    }
}
