//! Places, mounts and plans for the tests.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::remediation::{Control, Executor, Settings};
use agent::sys::statmount::MountCalls;
use agent::sys::{clock, mount_table::Proc};
use agent_core::id::{PlanId, SuperblockId, VolumeId};
use agent_core::observation::PlanReport;
use agent_core::path::BytePath;
use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Action, Marks, Plan};
use agent_core::topology::{Mount, MountTable};
use agent_core::verdict::Reason;
use agent_core::volume::{Identity, Method, Sentinel};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::patience::patiently;

/// Everything lies here, on a tmpfs that only this namespace has.
const BASE: &str = "/mnt";

/// To be called before there are threads.
pub(crate) fn enter_own_namespace() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("lab"), BASE, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    // Files of the node that helpers read: this namespace has its own.
    std::fs::write("/mnt/fstab", "# of the tests\n").unwrap();
    mount(Some("/mnt/fstab"), FSTAB, none, MsFlags::MS_BIND, none).unwrap();
    std::fs::create_dir_all(UNITS).unwrap();
    mount(Some("lab"), PROGRAMS, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    let systemctl = Path::new(PROGRAMS).join("systemctl");
    std::fs::write(&systemctl, SYSTEMCTL).unwrap();
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The program `apart DIRECTORY PROGRAM…`: takes the mounts of all tests but the one of this directory out of its
/// namespace, and becomes that program.
pub(crate) fn apart() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let (own, base) = (bytes(Path::new(&words[0])), bytes(Path::new(BASE)));
    let table = table();
    let places = table.mounts().iter().map(|mount| &mount.mountpoint);
    let others = places.filter(|path| **path != base && path.is_within(&base) && !path.is_within(&own));
    for path in others {
        // What lay below another one is gone with it.
        let _ = nix::mount::umount2(path.as_bytes(), nix::mount::MntFlags::MNT_DETACH);
    }
    let error = Command::new(&words[1]).args(&words[2..]).exec();
    panic!("{}: {error}", words[1]);
}

const FSTAB: &str = "/etc/fstab";
/// The first place where helpers' programs are looked for.
const PROGRAMS: &str = "/usr/local/sbin";
const UNITS: &str = "/mnt/units";

/// Stands for systemctl(1), where no systemd runs: it shows a unit's properties from a file, and restarts it by a
/// script. Asked in any other way than the agent asks, it fails.
const SYSTEMCTL: &str = r#"#!/bin/sh
test "$1 $2" = "--no-ask-password --no-pager" || exit 90
case "$3 $4" in
"show --property=LoadState,ExecMainPID,Where")
    test "$5" = -- || exit 91
    cat "/mnt/units/$6.show" 2>/dev/null || echo LoadState=not-found ;;
"restart --") exec sh "/mnt/units/$5.restart" ;;
*) exit 92 ;;
esac
"#;

/// A unit that the stand-in of systemctl knows.
pub(crate) fn add_unit(name: &str, properties: &str, restart: &str) {
    std::fs::write(Path::new(UNITS).join(format!("{name}.show")), properties).unwrap();
    std::fs::write(Path::new(UNITS).join(format!("{name}.restart")), restart).unwrap();
}

/// A line of this namespace's `/etc/fstab`.
pub(crate) fn add_to_fstab(line: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(FSTAB).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The places of one test.
pub(crate) struct Lab {
    pub(crate) name: &'static str,
    pub(crate) directory: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) executor: Executor,
    runtime: tokio::runtime::Runtime,
}

impl Lab {
    pub(crate) fn new(name: &'static str) -> Self {
        Self::with_exe(name, std::env::current_exe().unwrap(), None)
    }

    pub(crate) fn with_exe(name: &'static str, exe: PathBuf, namespace: Option<PathBuf>) -> Self {
        let directory = Path::new(BASE).join(name);
        let mountpoint = directory.join("volume");
        std::fs::create_dir_all(&mountpoint).unwrap();
        let stage_root = BytePath::from("/mnt/run/stage");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            name,
            directory,
            mountpoint,
            executor: Executor::new(Settings { exe, namespace, stage_root }),
            runtime,
        }
    }

    /// A directory of this test.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn plan(&self, actions: Vec<Action>) -> Plan {
        let old = self.top().map(|mount| mount.superblock);
        Plan {
            marks: old.and_then(|old| self.marks(old)),
            id: PlanId(1),
            volume: VolumeId::new(self.name),
            server: None,
            dead: None,
            reason: Some(Reason::Disconnected),
            mountpoint: bytes(&self.mountpoint),
            stage: BytePath::from(format!("/mnt/run/stage/{}", self.name).as_str()),
            old,
            actions,
            undo: vec![Action::DetachTop, Action::Unstage],
            timeout: Duration::from_secs(30),
            helper_timeout: Duration::from_secs(30),
        }
    }

    /// With the source as the table of the namespace shows it: until 6.12 no call tells it by an id.
    fn marks(&self, old: SuperblockId) -> Option<Marks> {
        let marks = Marks::of(&table_by_id(), &bytes(&self.mountpoint), old)?;
        Some(Marks { holding: Holding::of(&self.top()?), ..marks })
    }

    pub(crate) fn execute(&self, plan: Plan) -> PlanReport {
        self.runtime.block_on(self.executor.execute(plan))
    }

    /// Begins a plan, and gives it up when the condition holds, as an agent that is told to end.
    pub(crate) fn give_up_when(&self, plan: Plan, condition: impl Fn() -> bool) {
        self.runtime.block_on(async {
            let mut plan = std::pin::pin!(self.executor.execute(plan));
            while !condition() {
                let end = tokio::time::timeout(Duration::from_millis(20), &mut plan).await;
                assert!(end.is_err(), "{end:#?}");
            }
        });
    }

    /// Begins a plan, and tells it to stop when the condition holds.
    pub(crate) fn stop_when(&self, plan: Plan, condition: impl Fn() -> bool) -> PlanReport {
        let (stop, control) = Control::new(tokio::sync::mpsc::unbounded_channel().0);
        self.runtime.block_on(async {
            let mut plan = std::pin::pin!(self.executor.execute_under(plan, control));
            while !condition() {
                let end = tokio::time::timeout(Duration::from_millis(20), &mut plan).await;
                assert!(end.is_err(), "{end:#?}");
            }
            stop.stop();
            plan.await
        })
    }

    /// Three plans at once, as the agent runs them.
    pub(crate) fn execute_together(
        &self,
        [first, second, third]: [Plan; 3],
    ) -> (PlanReport, PlanReport, PlanReport) {
        self.runtime.block_on(async {
            tokio::join!(
                self.executor.execute(first),
                self.executor.execute(second),
                self.executor.execute(third)
            )
        })
    }

    /// Lets background tasks of the executor run.
    pub(crate) fn idle(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    pub(crate) fn stack(&self) -> Vec<Mount> {
        table().stack_at(&bytes(&self.mountpoint)).into_iter().cloned().collect()
    }

    pub(crate) fn top(&self) -> Option<Mount> {
        self.stack().pop()
    }

    /// Nothing of the test's plans is left at its private place.
    pub(crate) fn assert_unstaged(&self) {
        let place = BytePath::from(format!("/mnt/run/stage/{}", self.name).as_str());
        assert!(table().top_at(&place).is_none(), "{place} is still mounted");
        let directory = Path::new("/mnt/run/stage").join(self.name);
        assert!(directory.symlink_metadata().is_err(), "{} is still there", directory.display());
    }

    /// The mount point shows one mount, of another superblock than before.
    pub(crate) fn assert_replaced(&self, old: SuperblockId, report: &PlanReport) {
        assert!(report.outcome.is_success(), "{report:#?}");
        let stack = self.stack();
        assert_eq!(stack.len(), 1, "{stack:#?} {report:#?}");
        assert_ne!(stack[0].superblock, old, "{report:#?}");
        self.assert_unstaged();
    }

    /// A tmpfs with a file of this content at the mount point.
    pub(crate) fn mount_tmpfs(&self, content: &str) -> SuperblockId {
        run(&["mount", "-t", "tmpfs", "old", text(&self.mountpoint)]);
        std::fs::write(self.mountpoint.join("file"), content).unwrap();
        self.top().unwrap().superblock
    }
}

/// Whether this kernel can mount beneath (6.5 and later).
pub(crate) fn has_beneath() -> bool {
    is_linux((6, 5))
}

/// Whether this is a kernel of that version or a later one.
pub(crate) fn is_linux(version: (u32, u32)) -> bool {
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(version.0), Some(version.1))
}

/// None with beneath, a short one before.
pub(crate) fn assert_gap(report: &PlanReport) {
    let gap = report.gap.unwrap_or_else(|| panic!("{report:#?}"));
    assert_eq!(gap.is_zero(), has_beneath(), "{report:#?}");
    assert!(gap < patiently(Duration::from_secs(1)), "{report:#?}");
}

pub(crate) fn bytes(path: &Path) -> BytePath {
    BytePath::from(text(path))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn table() -> MountTable {
    Proc::open().unwrap().table().unwrap()
}

/// The same with the ids that are never used again, where the kernel tells them.
pub(crate) fn table_by_id() -> MountTable {
    let mut calls = MountCalls::own();
    let Ok(ids) = calls.list() else { return table() };
    MountTable::new(ids.into_iter().filter_map(|id| calls.mount(id).unwrap()).collect())
}

/// Runs a program that must succeed, and gives what it said.
pub(crate) fn run(argv: &[&str]) -> String {
    let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{argv:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Unmounts, as soon as the last child of an executor has let go of it: they answer before they end.
pub(crate) fn unmount(path: &Path) {
    let free = || {
        Command::new("umount").arg(path).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    wait_for("it can be unmounted", free);
}

/// Waits until the condition holds.
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let begun = clock::now();
    while !condition() {
        assert!(clock::now().since(begun) < patiently(Duration::from_secs(20)), "never: {what}");
        std::thread::yield_now();
    }
}

/// The usual plan, with this action as its first.
pub(crate) fn swap_after(stage: Action, readonly: bool, sentinel: Option<Sentinel>) -> Vec<Action> {
    vec![
        stage,
        Action::CheckStaged {
            sentinel: sentinel.clone(),
            identity: Identity::default(),
            source: None,
            fstype: None,
        },
        Action::Swap { readonly },
        verify(sentinel),
        Action::Unstage,
    ]
}

/// A last look that knows no more of the volume than its sentinel.
pub(crate) fn verify(sentinel: Option<Sentinel>) -> Action {
    Action::Verify { sentinel, identity: Identity::default(), source: None, fstype: None }
}

pub(crate) fn stage_by_mount(source: &str, fstype: &str, options: &[&str]) -> Action {
    Action::Stage {
        method: Method::Mount,
        source: source.as_bytes().to_vec(),
        fstype: fstype.to_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        environment_file: None,
    }
}

pub(crate) fn stage_by_command(argv: &[&str]) -> Action {
    Action::Stage {
        method: Method::Command(argv.iter().map(|argument| (*argument).to_owned()).collect()),
        source: b"x".to_vec(),
        fstype: "tmpfs".to_owned(),
        options: Vec::new(),
        environment_file: None,
    }
}

/// A tmpfs with a file, made by a command.
pub(crate) fn stage_tmpfs(content: &str) -> Action {
    let script = format!("mount -t tmpfs new \"$0\" && echo {content} > \"$0/file\"");
    stage_by_command(&["sh", "-c", &script, "{target}"])
}

pub(crate) fn run_in_place(argv: &[&str]) -> Action {
    let argv = argv.iter().map(|argument| (*argument).to_owned()).collect();
    Action::RunInPlace { argv, environment_file: None }
}

/// A process that ends with the test, however that ends.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(argv: &[&str]) -> Self {
        Self(Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// It is nothing but a zombie that this process has yet to reap.
    pub(crate) fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit(')').next().unwrap().starts_with(" Z")
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A bindfs of `source` at the place, run by a process that can be killed or stopped.
pub(crate) fn start_bindfs(source: &Path, place: &Path) -> Process {
    let daemon = Process::start(&["bindfs", "-f", text(source), text(place)]);
    wait_for("bindfs is mounted", || {
        let table = table();
        let top = table.top_at(&bytes(place));
        top.is_some_and(|mount| mount.fstype == "fuse" || mount.fstype.starts_with("fuse."))
    });
    daemon
}

/// Taken by whoever makes another mount namespace: it is a copy, and holds what every other test has mounted.
static NAMESPACES: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, only this test makes namespaces.
pub(crate) struct Alone {
    _turn: MutexGuard<'static, ()>,
}

impl Alone {
    pub(crate) fn begin() -> Self {
        let guard = NAMESPACES.lock().unwrap_or_else(PoisonError::into_inner);
        IS_ALONE.set(true);
        Self { _turn: guard }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
    }
}

/// Of a process that holds a namespace, in seconds: longer than any test. One whose test was killed ends then.
fn its_life() -> String {
    patiently(Duration::from_mins(10)).as_secs().to_string()
}

/// Another mount namespace, held open by a process.
pub(crate) struct Namespace(Process);

impl Namespace {
    pub(crate) fn new(propagation: &str) -> Self {
        Self::start(&["unshare", "-m", "--propagation", propagation, "sleep", &its_life()])
    }

    /// One that a user made who is nobody outside of it, and in which a script was run. It has the mounts of this test
    /// and of no other: nobody can take them away from it, so that the others' volumes would be held.
    pub(crate) fn of_a_user(lab: &Lab, script: &str) -> Self {
        let exe = std::env::current_exe().unwrap();
        let apart = ["unshare", "-m", "--propagation", "private", text(&exe), "apart", text(&lab.directory)];
        let user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"];
        let script = format!("{script} && exec sleep {}", its_life());
        Self::start(&[&apart[..], &user, &["unshare", "-U", "-r", "-m", "sh", "-c", &script]].concat())
    }

    fn start(argv: &[&str]) -> Self {
        let _turn = (!IS_ALONE.get()).then(Alone::begin);
        let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
        let holder = Process::start(argv);
        let link = format!("/proc/{}/ns/mnt", holder.id());
        let comm = format!("/proc/{}/comm", holder.id());
        // The program becomes sleep only when the namespace is complete.
        wait_for("the second namespace", || {
            std::fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")
                && std::fs::read_link(&link).is_ok_and(|other| other != own)
        });
        Self(holder)
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/mnt", self.0.id()))
    }

    /// A program that runs in it.
    pub(crate) fn command(&self, argv: &[&str]) -> Vec<String> {
        let enter = ["nsenter".to_owned(), format!("--mount={}", text(&self.path()))];
        enter.into_iter().chain(argv.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Runs a program in it that must succeed, and gives what it said.
    pub(crate) fn run(&self, argv: &[&str]) -> String {
        let command = self.command(argv);
        run(&command.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The mounts at the path, in the order of the table.
    pub(crate) fn stack_at(&self, path: &Path) -> Vec<Mount> {
        let table = std::fs::read(format!("/proc/{}/mountinfo", self.0.id())).unwrap();
        let table = MountTable::new(agent::sys::mountinfo::parse_table(&table).mounts);
        table.stack_at(&bytes(path)).into_iter().cloned().collect()
    }

    /// The device numbers at the path, in the order of the table.
    pub(crate) fn superblocks_at(&self, path: &Path) -> Vec<String> {
        let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.0.id())).unwrap();
        let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.filter(|fields| fields[4] == text(path)).map(|fields| fields[2].to_owned()).collect()
    }
}
