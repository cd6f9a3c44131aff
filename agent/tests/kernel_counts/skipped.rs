//! Two tasks that fail on one processor, as fast as they can: the kernel may skip a program for one of them while the
//! other is stopped in it. What is not counted is told.

use std::fs::OpenOptions;
use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::cases::key;
use crate::harness::{Stage, Verdict, agent_or_skip, make_read_only};

/// Failing calls of each task: seconds of work on an emulated machine, so that they take turns often.
const CALLS: u64 = 30_000;

pub(crate) fn one_processor(family: &str) -> Verdict {
    let stage = Stage::enter();
    let volume = stage.volume("volume", "size=64k");
    make_read_only(&volume);
    let mut agent = agent_or_skip!(&[], family);
    agent.track(&volume);
    let processor = first_processor();
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let file = volume.join(name);
            scope.spawn(move || {
                sched_setaffinity(Pid::from_raw(0), &processor).unwrap();
                fail(&file);
            });
        }
    });
    let (made, key) = (2 * CALLS, key(&volume, "EROFS", "open"));
    let totals = agent.totals(&key, made);
    let counted = totals.get(&key).copied().unwrap_or(0);
    let skipped = totals.get("skipped").copied().unwrap_or(0);
    println!("{counted} of {made} calls counted, {skipped} runs skipped ({})", agent.family);
    assert!(counted <= made, "{counted} counted, {made} made");
    if agent.family == "sys_exit" {
        // Its program is never stopped in the middle.
        assert_eq!(counted, made);
    }
    if counted < made {
        assert!(counted + skipped >= made, "{counted} counted, {skipped} told, {made} made");
        let state = agent.tell("source");
        assert!(state.contains("skips a program"), "{state}");
    }
    agent.finish();
    Verdict::Passed
}

fn fail(file: &Path) {
    for _ in 0..CALLS {
        let error = OpenOptions::new().write(true).create(true).truncate(true).open(file).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EROFS as i32));
    }
}

/// The first one that this process may use, alone.
fn first_processor() -> CpuSet {
    let own = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|number| own.is_set(*number).unwrap()).unwrap();
    let mut set = CpuSet::new();
    set.set(first).unwrap();
    set
}
