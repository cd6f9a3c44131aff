//! What one look proves: by how far it came, by what it read on the way, and by which mount it was about.

use super::{Case, EIO, EROFS, ESTALE, at, cannot_write, case, errors, failed, ok, span};
use crate::errno::Errno;
use crate::fstype::FsClass;
use crate::health::table::TableFacts;
use crate::observation::{Op, ProbeResult, ProbeStep};
use crate::verdict::{Reason, Verdict};

const EACCES: Errno = Errno(13);

#[test]
fn an_errno_that_says_nothing_certain_is_believed_only_of_a_root_that_answered_once_and_after_long() {
    let after = |good: bool, step, count: u32| {
        case(|case| {
            if good {
                case.probe(ok(false, false));
            }
            for _ in 0..count {
                case.probe(failed(step, Errno(22)));
            }
        })
        .verdict()
    };
    let (sick, suspect) = (Verdict::Sick(Reason::IoError), Verdict::Suspect(Reason::IoError));
    assert_eq!(after(true, ProbeStep::Root, 9), suspect);
    assert_eq!(after(true, ProbeStep::Root, 10), sick);
    assert_eq!(after(false, ProbeStep::Root, 100), suspect, "it may be the agent that asks for too much");
    assert_eq!(after(true, ProbeStep::Write, 100), suspect, "the root answers");
}

#[test]
fn a_volume_that_cannot_be_written_for_no_fault_of_its_own_is_judged_by_what_was_read() {
    for errno in [Errno(28), EROFS, EACCES] {
        let mut case = Case::new();
        if errno == EROFS {
            case.evidence.table = TableFacts { ro: true, ..TableFacts::default() };
        }
        case.probe(cannot_write(errno, true));
        // One bad file on a volume that reads well.
        case.many(EIO, Op::Read);
        assert_eq!(case.verdict(), Verdict::Suspect(Reason::IoError), "{errno:?}");
        case.probe(cannot_write(errno, true));
        assert_eq!(case.verdict(), Verdict::Healthy, "{errno:?}");
        case.kernel(Errno(108), Op::Filesystem, 0);
        case.probe(cannot_write(errno, true));
        assert_eq!(case.verdict(), Verdict::Healthy, "what is shut down reads no file");
    }
}

#[test]
fn looks_that_end_at_the_sentinel_answer_for_no_read() {
    let judged = |fault: ProbeResult| {
        case(|case| {
            case.probe(ok(true, false));
            case.probe(fault.clone());
            case.many(EIO, Op::Read);
            case.probe(fault);
        })
        .verdict()
    };
    let sick = Verdict::Sick(Reason::IoError);
    assert_eq!(judged(ProbeResult::SentinelMissing), sick);
    assert_eq!(judged(ProbeResult::SentinelUnusable), sick);
    let read = judged(ProbeResult::SentinelDiffers);
    assert_eq!(read, Verdict::Suspect(Reason::WrongMount), "other content was read past the cache");
    // The root has answered each time.
    let names = case(|case| {
        case.probe(ProbeResult::SentinelMissing);
        case.many(EIO, Op::Stat);
        case.many(ESTALE, Op::Read);
    });
    assert!(matches!(names.verdict(), Verdict::Suspect(_)));
}

#[test]
fn a_connection_that_ended_is_over_for_fuse_a_server_away_for_the_network_and_a_broken_disk() {
    use Reason::{Disconnected, HostDown, IoError};
    for (errno, said) in [
        (32, [HostDown, Disconnected, IoError, Disconnected]),
        (62, [HostDown, HostDown, IoError, HostDown]),
        (100, [HostDown, HostDown, IoError, HostDown]),
        (101, [HostDown, HostDown, IoError, HostDown]),
        (103, [HostDown, Disconnected, Disconnected, Disconnected]),
        (104, [HostDown, Disconnected, IoError, Disconnected]),
        (107, [HostDown, Disconnected, IoError, Disconnected]),
        (108, [HostDown, Disconnected, IoError, Disconnected]),
        (110, [HostDown, HostDown, IoError, HostDown]),
        (111, [HostDown, Disconnected, IoError, HostDown]),
        (112, [HostDown, HostDown, IoError, HostDown]),
        (113, [HostDown, HostDown, IoError, HostDown]),
    ] {
        let classes = [FsClass::Network, FsClass::Fuse, FsClass::Block, FsClass::Other];
        for (class, reason) in classes.into_iter().zip(said) {
            for step in [ProbeStep::Root, ProbeStep::Sentinel] {
                let mut case = Case::new();
                case.evidence.class = class;
                case.probe(failed(step, Errno(errno)));
                // A daemon that is gone stays gone; a server, and a disk, may stumble once.
                let once = match reason {
                    Disconnected => Verdict::Sick(reason),
                    _ => Verdict::Suspect(reason),
                };
                assert_eq!(case.verdict(), once, "{errno} {class:?}");
                case.probe(failed(step, Errno(errno)));
                assert_eq!(case.verdict(), Verdict::Sick(reason), "{errno} {class:?}");
            }
        }
    }
}

#[test]
fn errors_from_before_a_mount_are_not_its_own() {
    let mut case = Case::new();
    case.evidence.reset(at(case.now));
    for errno in [EIO, EROFS, Errno(28)] {
        assert!(!case.evidence.hint(&errors(errno, Op::Write, case.now - 1, 9), span(case.now)));
    }
    assert!(case.evidence.kernel.is_empty() && case.evidence.full.is_none());
    assert!(case.evidence.hint(&errors(EIO, Op::Write, case.now, 1), span(case.now)));
}
