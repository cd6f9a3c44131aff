//! What the agent and the child that reads procfs say to each other, one line each time.
//!
//! The agent asks, with the tracked superblocks and some process ids (`PROCESS/THREAD` for threads), separated by
//! commas (`-` for none):
//! ```text
//! all <superblocks> <processes to leave out>
//! text <superblocks> <threads whose names are to be placed>
//! ```
//! The child answers with any number of these, and then `end`:
//! ```text
//! at <process that is looked at from here on; for `all` in ascending order>
//! left <process that is left out, and still there>
//! task <fields of a record, numbers; the name of the thread in hexadecimal>
//! text <thread> <superblock, or 0>
//! end <threads that were looked at> <threads that may not be looked at> <microseconds of processor time>
//! ```

use std::collections::BTreeSet;

use agent_common::record::{BlockedRecord, Who};

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// Everything that waits, but in these processes.
    All(BTreeSet<u32>, BTreeSet<u32>),
    /// Where the names of these threads lead, each with its process.
    Text(BTreeSet<u32>, BTreeSet<(u32, u32)>),
}

impl Ask {
    pub(crate) fn to_line(&self) -> String {
        let joined = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join(",") };
        let list = |numbers: &BTreeSet<u32>| joined(numbers.iter().map(ToString::to_string).collect());
        match self {
            Self::All(tracked, without) => format!("all {} {}\n", list(tracked), list(without)),
            Self::Text(tracked, threads) => {
                let threads = threads.iter().map(|(process, thread)| format!("{process}/{thread}"));
                format!("text {} {}\n", list(tracked), joined(threads.collect()))
            }
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["all", tracked, without] => Some(Self::All(list(tracked)?, list(without)?)),
            ["text", tracked, threads] => Some(Self::Text(list(tracked)?, pairs(threads)?)),
            _ => None,
        }
    }
}

fn items(word: &str) -> impl Iterator<Item = &str> {
    word.split(',').filter(move |_| word != "-")
}

fn list(word: &str) -> Option<BTreeSet<u32>> {
    items(word).map(|number| number.parse().ok()).collect()
}

fn pairs(word: &str) -> Option<BTreeSet<(u32, u32)>> {
    let pair = |item: &str| {
        let (process, thread) = item.split_once('/')?;
        Some((process.parse().ok()?, thread.parse().ok()?))
    };
    items(word).map(pair).collect()
}

/// One line of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    At(u32),
    Left(u32),
    Task(BlockedRecord),
    Text(u32, u32),
    End { looked: u64, refused: u64, micros: u64 },
}

impl Answer {
    pub(crate) fn to_line(self) -> String {
        match self {
            Self::At(process) => format!("at {process}\n"),
            Self::Left(process) => format!("left {process}\n"),
            Self::Text(thread, s_dev) => format!("text {thread} {s_dev}\n"),
            Self::End { looked, refused, micros } => format!("end {looked} {refused} {micros}\n"),
            Self::Task(record) => {
                let who = &record.who;
                let [a, b, c, d, e, f] = record.arguments;
                let numbers = [
                    u64::from(who.pid),
                    u64::from(who.tgid),
                    who.cgroup,
                    u64::from(who.mnt_ns),
                    a,
                    b,
                    c,
                    d,
                    e,
                    f,
                    record.started,
                    record.switches,
                    record.calls,
                    u64::from(record.s_dev),
                    u64::from(record.syscall),
                    u64::from(record.state),
                    u64::from(record.by_name),
                ];
                let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                format!("task {} {:032x}\n", words.join(" "), u128::from_be_bytes(who.comm))
            }
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["at", process] => Some(Self::At(process.parse().ok()?)),
            ["left", process] => Some(Self::Left(process.parse().ok()?)),
            ["text", thread, s_dev] => Some(Self::Text(thread.parse().ok()?, s_dev.parse().ok()?)),
            ["end", looked, refused, micros] => Some(Self::End {
                looked: looked.parse().ok()?,
                refused: refused.parse().ok()?,
                micros: micros.parse().ok()?,
            }),
            ["task", numbers @ .., comm] => task(numbers, comm).map(Self::Task),
            _ => None,
        }
    }
}

fn task(words: &[&str], comm: &str) -> Option<BlockedRecord> {
    let numbers: Vec<u64> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[pid, tgid, cgroup, mnt_ns, a, b, c, d, e, f, started, switches, calls, ref rest @ ..] =
        numbers.as_slice()
    else {
        return None;
    };
    let [s_dev, syscall, state, by_name] = *rest else { return None };
    let small = |number: u64| u32::try_from(number).ok();
    let who = Who {
        cgroup,
        pid: small(pid)?,
        tgid: small(tgid)?,
        mnt_ns: small(mnt_ns)?,
        reserved: 0,
        comm: u128::from_str_radix(comm, 16).ok()?.to_be_bytes(),
    };
    Some(BlockedRecord {
        who,
        arguments: [a, b, c, d, e, f],
        started,
        switches,
        calls,
        s_dev: small(s_dev)?,
        syscall: small(syscall)?,
        state: small(state)?,
        by_name: small(by_name)?,
        ..BlockedRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_survive_the_pipe() {
        let some = BTreeSet::from([1, u32::MAX]);
        let threads = BTreeSet::from([(1, 2), (1, u32::MAX)]);
        for ask in [
            Ask::All(some.clone(), BTreeSet::new()),
            Ask::Text(BTreeSet::new(), threads),
            Ask::Text(some, BTreeSet::new()),
        ] {
            assert_eq!(Ask::from_line(&ask.to_line()), Some(ask));
        }
        let who = Who { pid: 3, tgid: 2, cgroup: u64::MAX, mnt_ns: 9, reserved: 0, comm: [0xe9; 16] };
        let record = BlockedRecord {
            who,
            arguments: [u64::MAX; 6],
            started: 4,
            switches: 5,
            calls: 6,
            s_dev: 7,
            syscall: 8,
            state: 1,
            by_name: 1,
            ..BlockedRecord::default()
        };
        let answers = [
            Answer::At(1),
            Answer::Left(2),
            Answer::Task(record),
            Answer::Text(7, 0),
            Answer::End { looked: 9, refused: 1, micros: 2 },
        ];
        for answer in answers {
            assert_eq!(Answer::from_line(&answer.to_line()), Some(answer));
        }
        for nonsense in
            ["", "task", "task 1 2", "end", "all 1", "at x", "all 1,x -", "text - 2", "text 1 2/", "left"]
        {
            assert_eq!((Ask::from_line(nonsense), Answer::from_line(nonsense)), (None, None), "{nonsense}");
        }
    }
}
