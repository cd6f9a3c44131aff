//! A thousand volumes for the price of one process: many FUSE mounts, each a file system of its own, of which the
//! first so many can be made to hang.
//!
//! `CASES --fuse-fleet DIR COUNT` mounts at DIR/0, DIR/1, … and says `ready`. Told a number it answers nothing more on
//! the first so many; told 0 it answers again, also what it has held back. It ends with its input.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, INodeNo, ReplyAttr, ReplyEntry, ReplyStatfs,
    Request, Session, SessionACL,
};
use nix::mount::{MsFlags, mount};

/// The first argument that makes this program a fleet.
pub const FLAG: &str = "--fuse-fleet";

/// The type that the table shows.
const FSTYPE: &str = "fuse.fleet";

/// Names and attributes are asked for anew each time.
const TTL: Duration = Duration::ZERO;

/// A fleet that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Fleet {
    process: Child,
    orders: ChildStdin,
    directory: PathBuf,
}

impl Fleet {
    /// Mounts so many volumes below a directory and waits until all are served.
    ///
    /// # Errors
    /// When one cannot be mounted.
    pub fn start(directory: &Path, count: usize) -> Result<Self> {
        let this_program = std::env::current_exe().context("cannot find this program")?;
        let mut process = Command::new(this_program)
            .arg(FLAG)
            .arg(directory)
            .arg(count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the fleet")?;
        let orders = process.stdin.take().context("no pipe to the fleet")?;
        let mut answer = String::new();
        BufReader::new(process.stdout.take().context("no pipe from the fleet")?)
            .read_line(&mut answer)
            .context("the fleet says nothing")?;
        if answer.trim() != "ready" {
            bail!("the fleet ended: {:?}", process.wait());
        }
        Ok(Self { process, orders, directory: directory.to_owned() })
    }

    /// Where one of the volumes is mounted.
    #[must_use]
    pub fn mountpoint(&self, number: usize) -> PathBuf {
        self.directory.join(number.to_string())
    }

    /// The first so many answer nothing from now on; with 0 all answer again.
    ///
    /// # Errors
    /// When the fleet is gone.
    pub fn hang(&mut self, first: usize) -> Result<()> {
        writeln!(self.orders, "{first}").and_then(|()| self.orders.flush()).context("the fleet is gone")
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How many of the first hang, and the answers that are held back.
#[derive(Default)]
struct Harbour {
    hanging: AtomicUsize,
    held: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Harbour {
    fn answer(&self, number: usize, answer: impl FnOnce() + Send + 'static) {
        if number < self.hanging.load(Ordering::SeqCst) {
            locked(&self.held).push(Box::new(answer));
        } else {
            answer();
        }
    }

    fn set(&self, first: usize) {
        self.hanging.store(first, Ordering::SeqCst);
        if first == 0 {
            let held = std::mem::take(&mut *locked(&self.held));
            held.into_iter().for_each(|answer| answer());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One volume: an empty directory.
struct Ship {
    number: usize,
    harbour: Arc<Harbour>,
}

impl Filesystem for Ship {
    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.harbour.answer(self.number, move || reply.attr(&TTL, &directory(inode)));
    }

    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        self.harbour.answer(self.number, move || reply.error(Errno::ENOENT));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.harbour.answer(self.number, move || {
            reply.statfs(1 << 20, 1 << 19, 1 << 19, 1000, 900, 4096, 255, 4096);
        });
    }
}

fn directory(inode: INodeNo) -> FileAttr {
    FileAttr {
        ino: inode,
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The command line behind [`FLAG`].
pub fn main(arguments: &[OsString]) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[OsString]) -> Result<()> {
    let [base, count] = arguments else { bail!("{FLAG} DIR COUNT") };
    let count: usize = count.to_str().and_then(|count| count.parse().ok()).context("COUNT is no number")?;
    let harbour = Arc::new(Harbour::default());
    for number in 0..count {
        launch(&Path::new(base).join(number.to_string()), number, &harbour)?;
    }
    println!("ready");
    for order in std::io::stdin().lock().lines() {
        let order = order.context("cannot read orders")?;
        harbour.set(order.trim().parse().with_context(|| format!("{order} is no order"))?);
    }
    Ok(())
}

/// Mounts one volume and serves it on a thread.
///
/// kernel: `fuse_parse_param`, fs/fuse/inode.c: `fd`, `rootmode`, `user_id` and `group_id` are required, since
/// 2.6.14.
fn launch(place: &Path, number: usize, harbour: &Arc<Harbour>) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let device =
        OpenOptions::new().read(true).write(true).open("/dev/fuse").context("cannot open /dev/fuse")?;
    let options = format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("fleet"), place, Some(FSTYPE), flags, Some(options.as_str()))
        .with_context(|| format!("cannot mount on {}", place.display()))?;
    let ship = Ship { number, harbour: Arc::clone(harbour) };
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(1);
    let session = Session::from_fd(ship, OwnedFd::from(device), SessionACL::All, config)
        .context("the kernel did not greet")?;
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(move || session.run())
        .context("no thread for a volume")
        .map(drop)
}
