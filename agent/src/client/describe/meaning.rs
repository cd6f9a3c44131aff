//! What the words mean to a person on call, and what to look at first. Matched by the words of the API, so that
//! a word of a newer agent is shown without a meaning rather than not at all.

use agent_core::verdict::{Advice, Reason};

/// What a reason means.
pub(super) fn of_reason(word: &str) -> Option<&'static str> {
    let reason = Reason::ALL.into_iter().find(|reason| reason.label() == word)?;
    Some(match reason {
        Reason::Missing => {
            "Nothing is mounted here: what is written now lands in the directory below, on the host's own disk."
        }
        Reason::WrongMount => "Another file system than the configured one is mounted here.",
        Reason::Covered => {
            "Something is mounted over the volume; those who open files by path see that instead."
        }
        Reason::Disconnected => {
            "The FUSE daemon or session behind the mount is gone; this mount does not come back by itself."
        }
        Reason::Stale => "The server no longer knows this file system by its handle; only a new mount helps.",
        Reason::FsShutdown => {
            "The file system has shut itself down after a fault. Look at the kernel log and the disk first."
        }
        Reason::IoError => "Storage answers with errors. Look at the kernel log and the storage first.",
        Reason::Readonly => {
            "Writing is refused by the file system, although it should be writable; the data may need a check."
        }
        Reason::HostDown => "The server cannot be reached. A hard mount continues by itself when it is back.",
        Reason::Auth => "A key or permission that worked before is refused, or has expired.",
        Reason::Hung => {
            "Accesses do not return; processes that use it are stuck too. Unmounting lazily would leave them stuck."
        }
        Reason::WritebackLost => {
            "Data that programs had written did not reach storage; they may not know. Once you do: mountie ack."
        }
        Reason::ConsumerStale => "The host's mount is good, but containers still sit on the old one.",
    })
}

/// What an advice means.
pub(super) fn of_advice(word: &str) -> &'static str {
    match Advice::ALL.into_iter().find(|advice| advice.label() == word) {
        Some(Advice::Full) => "no space or quota is left; storage works, mounting again would not help.",
        Some(Advice::Inaccessible) => {
            "the agent itself may not look; set a uid for its probes, or ignore it."
        }
        Some(Advice::Slow) => "it answers, but late.",
        Some(Advice::Flapping) => {
            "it falls and recovers again and again; repairs and belief wait longer each time, looking does not."
        }
        Some(Advice::Damaged) => {
            "the file system found damage in itself: have it checked (fsck, or a scrub), then mountie ack."
        }
        Some(Advice::Idle) => "an automount trap with nothing mounted; not a fault.",
        None => "see the documentation.",
    }
}

/// What a mode lets the agent do.
pub(super) fn of_mode(word: &str) -> &'static str {
    match word {
        "off" => "neither probed nor judged",
        "observe" => "watched and reported, never touched",
        "dry-run" => "plans are made and reported, not carried out",
        "act" => "watched and repaired",
        _ => "see the documentation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_meaning_and_an_unknown_one_has_none() {
        assert!(Reason::ALL.iter().all(|reason| of_reason(reason.label()).is_some()));
        assert_eq!(of_reason("new_in_version_9"), None);
    }
}
