//! The child on a tree that looks like procfs: who is told, and who is not.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

const AGENT: u32 = 5;
const FUSE: &str = "[<0>] request_wait_answer+0x1/0x2\n";
const PIPE: &str = "[<0>] anon_pipe_read+0x1/0x2\n";
const READ: libc::c_long = libc::SYS_read;

/// A process that waits in a call with descriptor 3, which lies on the mount with the id 30, device 0:50.
struct Process {
    id: u32,
    parent: u32,
    flags: u64,
    call: libc::c_long,
    state: char,
    stack: &'static str,
}

impl Process {
    const fn new(id: u32) -> Self {
        Self { id, parent: 1, flags: 0, call: READ, state: 'S', stack: FUSE }
    }

    fn write(&self, root: &Path) {
        let Self { id, parent, flags, call, state, stack } = self;
        let directory = root.join(id.to_string());
        for folder in ["fd", "fdinfo", "ns"] {
            std::fs::create_dir_all(directory.join(folder)).unwrap();
        }
        let file = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
        let stat = format!("{id} (cat) {state} {parent} 0 0 0 0 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 99 0");
        file("stat", stat);
        file("syscall", format!("{call} 0x3 0x10 0x1 0x0 0x0 0x0 0x7ffd00000000 0x7f0000000000\n"));
        file("stack", (*stack).to_owned());
        file("fdinfo/3", "mnt_id:\t30\n".to_owned());
        file("mem", format!("{}name\0", "\0".repeat(0x10)));
        file("mountinfo", "30 1 0:50 / /mnt/a rw - fuse.x x rw\n".to_owned());
        file("status", "voluntary_ctxt_switches:\t6\n".to_owned());
        file("cgroup", "0::/a.slice\n".to_owned());
        symlink("/mnt/a/file", directory.join("fd/3")).unwrap();
        symlink("mnt:[4026531841]", directory.join("ns/mnt")).unwrap();
    }
}

fn reader(processes: &[Process]) -> (tempfile::TempDir, Reader) {
    let root = tempfile::tempdir().unwrap();
    processes.iter().for_each(|process| process.write(root.path()));
    std::fs::create_dir(root.path().join("a.slice")).unwrap();
    let roots = [root.path().join("unified"), root.path().to_owned()];
    let proc = Proc { root: root.path().to_owned() };
    (root, Reader { proc, agent: AGENT, roots })
}

fn answers(processes: &[Process], ask: &Ask) -> Vec<Answer> {
    let (_root, reader) = reader(processes);
    let mut out = Vec::new();
    reader.answer(ask, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| Answer::from_line(line).unwrap()).collect()
}

fn device() -> u32 {
    agent_core::id::SuperblockId { major: 0, minor: 50 }.to_kernel()
}

fn told(processes: &[Process], without: &[u32]) -> Vec<u32> {
    let ask = Ask::All(BTreeSet::from([device()]), without.iter().copied().collect());
    let pid = |answer: Answer| match answer {
        Answer::Task(record) => Some(record.who.pid),
        _ => None,
    };
    answers(processes, &ask).into_iter().filter_map(pid).collect()
}

#[test]
fn a_task_that_waits_on_a_tracked_volume_is_told_with_all_that_is_known() {
    let ask = Ask::All(BTreeSet::from([device()]), BTreeSet::new());
    let all = answers(&[Process::new(10)], &ask);
    let [Answer::At(10), Answer::Task(record), Answer::End { looked: 1, refused: 0, .. }] = all.as_slice()
    else {
        panic!("{all:?}")
    };
    assert_eq!((record.who.pid, record.who.tgid, record.who.mnt_ns), (10, 10, 4_026_531_841));
    assert!(record.who.comm.starts_with(b"cat\0") && record.who.cgroup != 0);
    assert_eq!((record.s_dev, record.state, record.started, record.switches), (device(), SLEEPS, 99, 6));
    assert_eq!((i64::from(record.syscall), record.arguments[..3].to_vec()), (READ, vec![3, 16, 1]));
}

#[test]
fn pipes_locks_kernel_threads_and_the_agents_own_are_not_told() {
    let processes = [
        Process { stack: PIPE, ..Process::new(10) },
        Process { call: libc::SYS_flock, ..Process::new(11) },
        Process { flags: 0x0020_0000, ..Process::new(12) },
        Process::new(AGENT),
        Process { parent: AGENT, ..Process::new(13) },
        Process { parent: 13, ..Process::new(14) },
        Process::new(15),
        Process::new(16),
    ];
    assert_eq!(told(&processes, &[16]), [15]);
}

#[test]
fn who_copies_to_what_is_no_file_waits_for_storage_where_signals_do_not_end_it() {
    // From descriptor 16, which is no file, to descriptor 3.
    let copies = |id, state| Process { call: libc::SYS_sendfile, state, ..Process::new(id) };
    assert_eq!(told(&[copies(10, 'S'), copies(11, 'D')], &[]), [11]);
}

#[test]
fn what_a_name_says_of_the_place_is_said_to_be_that() {
    let named = |call| {
        let ask = Ask::All(BTreeSet::from([device()]), BTreeSet::new());
        let all = answers(&[Process { call, ..Process::new(10) }], &ask);
        let [_, Answer::Task(record), _] = all.as_slice() else { panic!("{all:?}") };
        (record.s_dev, record.by_name)
    };
    assert_eq!(named(READ), (device(), 0));
    assert_eq!(named(libc::SYS_newfstatat), (device(), 1));
}

#[test]
fn what_is_left_out_and_still_there_is_said() {
    let ask = Ask::All(BTreeSet::from([device()]), BTreeSet::from([10, 99]));
    let all = answers(&[Process::new(10), Process::new(11)], &ask);
    let left: Vec<_> = all.iter().filter(|answer| matches!(answer, Answer::Left(_))).collect();
    assert_eq!((left, all.contains(&Answer::At(10))), (vec![&Answer::Left(10)], false));
}

#[test]
fn the_table_of_mounts_is_read_only_for_what_may_lie_on_one() {
    let (root, reader) = reader(&[Process::new(10), Process::new(11)]);
    let link = root.path().join("10/fd/3");
    std::fs::remove_file(&link).unwrap();
    symlink("socket:[5]", &link).unwrap();
    let tracked = BTreeSet::from([device()]);
    let mut round = Round { tracked: &tracked, mounts: BTreeMap::new(), looked: 0, refused: 0 };
    assert!(reader.look(10, 10, &mut round).is_none() && round.mounts.is_empty());
    assert!(reader.look(11, 11, &mut round).is_some() && round.mounts.len() == 1);
}

#[test]
fn what_lies_elsewhere_is_not_told() {
    let ask = Ask::All(BTreeSet::from([device() + 1]), BTreeSet::new());
    assert!(!answers(&[Process::new(10)], &ask).iter().any(|answer| matches!(answer, Answer::Task(_))));
}

#[test]
fn a_single_thread_is_placed_on_request() {
    let ask = Ask::Text(BTreeSet::from([device()]), BTreeSet::from([(7, 10), (8, 99)]));
    let all = answers(&[Process::new(10)], &ask);
    let expected = [Answer::At(7), Answer::Text(10, device()), Answer::At(8), Answer::Text(99, 0)];
    assert!(all.starts_with(&expected), "{all:?}");
}
