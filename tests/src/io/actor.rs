//! The process that makes a row's calls: an application, as the agent sees it.
//!
//! It is told by lines on its input how many calls to make, and answers each line with one of its own: the
//! errors it met, 0 for none.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::process::{Background, this_program_as};
use nix::errno::Errno;

use super::marks;
use super::raw::sys;
use super::row::{Returned, Row};
use super::rows;
use super::scene::Scene;

/// The first argument that makes this program an actor.
pub(crate) const FLAG: &str = "--actor";

/// No row makes more calls than this.
pub(super) const MOST_CALLS: usize = 16;

/// The case's side.
pub(super) struct Actor {
    _process: Background,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts one and waits until it has prepared its row.
    pub(super) fn start(bench: &Bench, row: &Row, root: &std::path::Path) -> Result<Self> {
        let this_program = this_program_as(bench.directory(), "actor")?;
        let mut child = Command::new(this_program)
            .args([FLAG, row.name])
            .arg(root)
            .arg(bench.directory())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the actor")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut actor = Self { _process: Background(child), input, output };
        ensure!(actor.line()? == "ready", "the actor is not ready");
        Ok(actor)
    }

    /// Has it make calls, and returns what each of them met.
    pub(super) fn calls(&mut self, count: usize) -> Result<Vec<i32>> {
        self.ask(&format!("call {count}"))
    }

    /// Has it make one call that is no row's: a read of a file of its own.
    pub(super) fn mark(&mut self) -> Result<Vec<i32>> {
        self.ask("mark")
    }

    fn ask(&mut self, what: &str) -> Result<Vec<i32>> {
        writeln!(self.input, "{what}").context("the actor is gone")?;
        let line = self.line()?;
        line.split_whitespace().map(|word| word.parse().context("an odd answer")).collect()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("the actor does not answer")?;
        Ok(line.trim_end().to_owned())
    }
}

/// The command line behind [`FLAG`]: ROW ROOT OUTSIDE.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    match act(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("actor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &[OsString]) -> Result<()> {
    let [name, root, outside] = arguments else { bail!("ROW ROOT OUTSIDE") };
    let name = name.to_string_lossy();
    let row = rows::all().find(|row| row.name == name).with_context(|| format!("no row {name}"))?;
    let mut scene = Scene::new(PathBuf::from(root), PathBuf::from(outside));
    let mut marked = Scene::new(PathBuf::from(root), PathBuf::from(outside));
    marked.open(marks::FILE, libc::O_RDONLY)?;
    (row.prepare)(&mut scene).with_context(|| format!("cannot prepare {name}"))?;
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.context("cannot read the input")?;
        let count = match line.strip_prefix("call ") {
            Some(count) => count.parse::<usize>().context("not a number")?,
            None => 0,
        };
        let met: Vec<String> = match count {
            0 => vec![errno(sys!(SYS_pread64, marked.fd(0), &mut *marked.buffer, 16, 0))],
            count => (0..count)
                .map(|_| {
                    scene.next();
                    errno((row.call)(&mut scene))
                })
                .collect(),
        };
        println!("{}", met.join(" "));
    }
    // Nothing is closed by destructors: a failing `close` is not what the row is about.
    std::process::exit(0)
}

fn errno(returned: Returned) -> String {
    returned.map_or_else(|errno| errno as i32, |_| Errno::UnknownErrno as i32).to_string()
}
