//! What evidence counts, for how long, and what answers it.

use core::time::Duration;

use super::{
    Case, EIO, EROFS, ESTALE, WINDOW, at, cannot_write, case, errors, failed, identified, ok, report, span,
};
use crate::errno::{Errno, ErrnoClass};
use crate::fstype::FsClass;
use crate::health::evidence::{Look, SentinelFault, Told};
use crate::health::message::describe;
use crate::health::rules::judge;
use crate::health::table::TableFacts;
use crate::health::window::{Counted, Counter, Group, KernelWindow};
use crate::observation::{KernelErrors, NotRun, Op, ProbeOk, ProbeResult, ProbeStep, Source};
use crate::verdict::{Reason, Verdict};

const EACCES: Errno = Errno(13);
const CALL: Counted = Counted { counter: Counter::Calls, count: 1, process: None };

#[test]
fn the_strongest_reason_wins() {
    let case = case(|case| {
        case.many(EIO, Op::Read);
        case.evidence.table.shutdown = true;
        case.probe(failed(ProbeStep::Root, ESTALE));
        case.probe(failed(ProbeStep::Root, ESTALE));
    });
    assert_eq!(case.verdict(), Verdict::Sick(Reason::Stale));
}

#[test]
fn a_sentinel_alone_never_makes_a_volume_sick() {
    for fault in [ProbeResult::SentinelMissing, ProbeResult::SentinelDiffers, ProbeResult::SentinelUnusable] {
        let case = case(|case| {
            (0..9).for_each(|_| {
                case.probe(fault.clone());
            })
        });
        assert_eq!(case.verdict(), Verdict::Suspect(Reason::WrongMount));
        assert!(case.rule().is_some());
    }
    for stale in [failed(ProbeStep::Sentinel, ESTALE), cannot_write(ESTALE, true)] {
        let mut case = Case::new();
        for _ in 0..9 {
            case.probe(stale.clone());
            assert_eq!(case.verdict(), Verdict::Suspect(Reason::Stale), "{stale:?}");
        }
        case.kernel(ESTALE, Op::Read, 1);
        assert_eq!(
            case.verdict(),
            Verdict::Suspect(Reason::Stale),
            "one file of a program is no more than that"
        );
        assert!(!describe(&case.facts(), &judge(&case.facts())).contains("are proof"));
        case.probe(failed(ProbeStep::Root, ESTALE));
        assert_eq!(case.verdict(), Verdict::Sick(Reason::Stale), "that is the export");
        case.probe(stale.clone());
        case.many(ESTALE, Op::Read);
        assert_eq!(case.verdict(), Verdict::Sick(Reason::Stale), "programs meet many stale files beside it");
    }
}

#[test]
fn a_good_probe_answers_what_it_tried() {
    let attributes = case(|case| {
        case.kernel(EIO, Op::Stat, 9);
        case.kernel(EIO, Op::Read, 1);
        case.probe(ok(false, false));
    });
    assert_eq!(attributes.verdict(), Verdict::Suspect(Reason::IoError));
    let data = case(|case| {
        case.kernel(EIO, Op::Read, 9);
        case.probe(ok(true, false));
    });
    assert_eq!(data.verdict(), Verdict::Healthy);
    let writes = case(|case| {
        case.kernel(EIO, Op::Write, 9);
        case.probe(ok(true, false));
    });
    assert_eq!(writes.verdict(), Verdict::Suspect(Reason::IoError));
    let written = case(|case| {
        case.kernel(EIO, Op::Write, 9);
        case.probe(ok(true, true));
    });
    assert_eq!(written.verdict(), Verdict::Healthy);
}

#[test]
fn a_volume_that_refuses_every_open_is_sick_though_it_answers_for_attributes() {
    let shut_down = case(|case| {
        case.probe(ok(false, false));
        case.many(EIO, Op::Open);
    });
    assert_eq!(shut_down.verdict(), Verdict::Sick(Reason::IoError));
    let read_since = case(|case| {
        case.many(EIO, Op::Open);
        case.many(EIO, Op::List);
        case.probe(ok(true, false));
    });
    assert_eq!(read_since.verdict(), Verdict::Healthy);
}

#[test]
fn opens_of_sockets_and_device_nodes_do_not_condemn_a_volume() {
    for errno in [6, 19, 123] {
        let case = case(|case| {
            case.probe(ok(false, false));
            case.many(Errno(errno), Op::Open);
        });
        assert_eq!(case.verdict(), Verdict::Suspect(Reason::IoError));
    }
}

#[test]
fn a_probe_that_meets_a_bad_sector_has_met_a_storage_error() {
    let no_data = Errno(61);
    let case = case(|case| {
        case.probe(failed(ProbeStep::Device, no_data));
        case.probe(failed(ProbeStep::Device, no_data));
    });
    assert_eq!(case.verdict(), Verdict::Sick(Reason::IoError));
    let elsewhere = super::case(|case| {
        case.probe(failed(ProbeStep::Root, no_data));
        case.probe(failed(ProbeStep::Root, no_data));
    });
    assert_eq!(elsewhere.verdict(), Verdict::Suspect(Reason::IoError));
}

#[test]
fn errors_of_single_files_do_not_condemn_a_volume_that_reads() {
    let case = case(|case| {
        case.probe(ok(true, false));
        case.many(EIO, Op::Read);
    });
    assert_eq!(case.verdict(), Verdict::Suspect(Reason::IoError));
    for lost in [ProbeResult::NotRun(NotRun::WorkerLost), failed(ProbeStep::Root, Errno(12))] {
        let mut unable = super::case(|case| {
            case.probe(ok(true, false));
            case.many(EIO, Op::Read);
            case.probe(lost.clone());
        });
        assert_eq!(
            unable.verdict(),
            Verdict::Suspect(Reason::IoError),
            "one worker that died is none that looks"
        );
        unable.probe(lost);
        assert_eq!(unable.verdict(), Verdict::Sick(Reason::IoError), "nobody looks, so the errors decide");
        unable.probe(ok(true, false));
        unable.many(EIO, Op::Read);
        assert_eq!(unable.verdict(), Verdict::Suspect(Reason::IoError), "somebody looks again");
    }
}

#[test]
fn a_block_of_the_device_answers_for_no_file() {
    let device = || ProbeResult::Ok(ProbeOk { root_inode: 2, read_device: true, ..ProbeOk::default() });
    let before = case(|case| {
        case.probe(device());
        case.many(EIO, Op::Read);
        case.probe(device());
    });
    assert_eq!(before.verdict(), Verdict::Sick(Reason::IoError));
    let few = case(|case| {
        case.kernel(EIO, Op::Read, 4);
        case.probe(device());
    });
    assert_eq!(few.verdict(), Verdict::Suspect(Reason::IoError));
}

#[test]
fn another_identity_is_another_file_system_until_the_right_one_is_found() {
    let mut case = Case::new();
    case.identity.uuid = Some("7f3a-AB".into());
    case.probe(identified(Some("7F3A-ab"), Some("01")));
    assert_eq!(case.verdict(), Verdict::Healthy, "case is not told apart, and no fsid is configured");
    case.probe(identified(Some("0000-00"), None));
    assert_eq!((case.verdict(), case.rule()), (Verdict::Sick(Reason::WrongMount), Some("other-file-system")));
    let message = describe(&case.facts(), &judge(&case.facts()));
    assert!(
        message.starts_with("another file system is there: expected UUID 7f3a-AB, found 0000-00"),
        "{message}"
    );
    case.probe(identified(None, None));
    assert_eq!(case.verdict(), Verdict::Sick(Reason::WrongMount), "not known is no evidence");
    case.probe(identified(Some("7f3a-ab"), None));
    assert_eq!(case.verdict(), Verdict::Healthy);
    let mut unknown = Case::new();
    unknown.identity.uuid = Some("7f3a-AB".into());
    unknown.probe(identified(None, Some("01")));
    assert_eq!(unknown.verdict(), Verdict::Healthy);
}

#[test]
fn a_late_count_does_not_raise_what_was_answered() {
    let mut case = case(|case| {
        case.kernel(EIO, Op::Read, 0);
        case.probe(ok(true, false));
    });
    let late = errors(EIO, Op::Read, case.now - 5, 7);
    assert!(!case.evidence.hint(&late, span(case.now)));
    assert_eq!(case.verdict(), Verdict::Healthy);
}

#[test]
fn evidence_leaves_the_window() {
    let mut case = case(|case| {
        case.probe(ok(false, false));
        case.kernel(EIO, Op::Write, 9);
    });
    let end = case.evidence.kernel.next_expiry(WINDOW).unwrap();
    case.now += 29_999;
    assert_eq!(case.verdict(), Verdict::Suspect(Reason::IoError));
    case.now += 1;
    assert_eq!(end, at(case.now));
    assert_eq!(case.verdict(), Verdict::Healthy);
    assert!(!case.evidence.hint(&errors(EIO, Op::Write, case.now - 30_000, 1), span(case.now)), "too old");
}

#[test]
fn a_look_that_was_refused_is_news_only_after_one_that_was_allowed() {
    let never = case(|case| {
        assert_eq!(case.probe(failed(ProbeStep::Root, EACCES)), Told::Nothing);
        case.probe(failed(ProbeStep::Root, EACCES));
    });
    assert_eq!(never.verdict(), Verdict::Unknown);
    assert!(never.evidence.inaccessible && never.rule().is_none());
    let before = case(|case| {
        case.probe(ok(false, false));
        case.probe(failed(ProbeStep::Root, EACCES));
        case.probe(failed(ProbeStep::Root, EACCES));
    });
    assert_eq!(before.verdict(), Verdict::Sick(Reason::Auth));
}

#[test]
fn looks_that_were_not_possible_are_no_evidence() {
    for result in [
        ProbeResult::NotRun(NotRun::TooManyAbandoned),
        ProbeResult::NotRun(NotRun::Unreachable),
        failed(ProbeStep::Identity, Errno(2)),
        failed(ProbeStep::Device, Errno(2)),
        failed(ProbeStep::Device, EACCES),
        failed(ProbeStep::Root, Errno(12)),
    ] {
        let case = case(|case| (0..5).for_each(|_| assert_eq!(case.probe(result.clone()), Told::Nothing)));
        assert_eq!(case.verdict(), Verdict::Unknown, "{result:?}");
        assert!(case.rule().is_none());
    }
    let device = case(|case| {
        case.probe(ok(true, false));
        case.probe(failed(ProbeStep::Device, Errno(2)));
    });
    assert_eq!(device.verdict(), Verdict::Suspect(Reason::IoError));
}

#[test]
fn a_full_volume_is_not_sick() {
    let mut case = case(|case| {
        case.kernel(Errno(28), Op::Write, 3);
        case.probe(cannot_write(Errno(122), false));
    });
    assert_eq!(case.verdict(), Verdict::Healthy);
    assert!(case.evidence.full.is_some());
    case.probe(ok(true, true));
    assert!(case.evidence.full.is_none());
    let old = errors(Errno(28), Op::Write, case.now - 1, 1);
    case.evidence.hint(&old, span(case.now));
    assert!(case.evidence.full.is_none());
}

#[test]
fn refusals_to_write_count_only_where_writing_should_work() {
    let mut by_nature = Case::new();
    by_nature.evidence.table = TableFacts { ro: true, ..TableFacts::default() };
    assert!(!by_nature.kernel(EROFS, Op::Open, 9));
    by_nature.probe(cannot_write(EROFS, false));
    assert_eq!(by_nature.verdict(), Verdict::Healthy);
    let refused = case(|case| {
        for _ in 0..5 {
            case.probe(cannot_write(EACCES, false));
        }
    });
    assert_eq!(refused.verdict(), Verdict::Healthy);
    let no_longer = case(|case| {
        case.probe(ok(true, true));
        for _ in 0..5 {
            case.probe(cannot_write(EACCES, false));
        }
    });
    assert_eq!(no_longer.verdict(), Verdict::Sick(Reason::Auth));
}

#[test]
fn refusals_that_programs_meet_are_never_evidence() {
    let case = case(|case| {
        case.evidence.class = FsClass::Block;
        case.many(EACCES, Op::Open);
        assert!(!case.kernel(Errno(9999), Op::Read, 5));
        assert!(!case.kernel(Errno(126), Op::Sync, 5));
    });
    assert_eq!(case.verdict(), Verdict::Unknown);
}

#[test]
fn dirty_data_that_a_server_refuses_is_lost_like_any_other() {
    for (class, errno) in
        [(FsClass::Network, 13), (FsClass::Fuse, 1), (FsClass::Network, 127), (FsClass::Block, 126)]
    {
        let case = case(|case| {
            case.evidence.class = class;
            case.kernel(Errno(errno), Op::Writeback, 1);
            case.probe(ok(true, true));
        });
        assert_eq!(case.rule(), Some("write-back-failed"), "{errno} {class:?}");
        assert_eq!(case.verdict(), Verdict::Sick(Reason::WritebackLost));
    }
}

#[test]
fn a_good_probe_after_bad_ones_ends_the_incident() {
    let case = case(|case| {
        case.kernel(EIO, Op::Read, 9);
        case.kernel(EIO, Op::Write, 1);
        case.probe(failed(ProbeStep::Root, EIO));
        case.probe(ok(false, false));
    });
    assert!(
        case.evidence
            .kernel
            .tally(ErrnoClass::IoError, |group| group == Group::Data, span(case.now))
            .is_none()
    );
    assert!(
        case.evidence
            .kernel
            .tally(ErrnoClass::IoError, |group| group == Group::Writes, span(case.now))
            .is_some()
    );
}

#[test]
fn an_old_good_look_does_not_speak_for_ever() {
    let mut case = case(|case| {
        case.probe(ok(true, false));
    });
    case.now += 32_999;
    assert_eq!(case.verdict(), Verdict::Healthy);
    case.now += 1;
    assert_eq!(case.verdict(), Verdict::Unknown);
    assert!(case.rule().is_none());
}

#[test]
fn messages_name_what_was_seen() {
    let text = |case: &Case| describe(&case.facts(), &judge(&case.facts()));
    let stale = case(|case| {
        (0..3).for_each(|_| {
            case.probe(failed(ProbeStep::Root, ESTALE));
        })
    });
    let message = text(&stale);
    for part in ["ESTALE", "the root", "3 in a row", "probes-stale", "a good probe"] {
        assert!(message.contains(part), "{message}");
    }
    let one = text(&case(|case| {
        case.probe(failed(ProbeStep::Root, ESTALE));
    }));
    assert!(one.contains("1 in a row (2 are proof)"), "{one}");
    assert!(
        text(&case(|case| {
            case.kernel(EIO, Op::Read, 1);
        }))
        .contains("1 operation failed within 30 s")
    );
    assert!(
        text(&case(|case| {
            case.kernel(EIO, Op::Read, 7);
        }))
        .contains("7 operations")
    );
    assert!(
        text(&case(|case| {
            case.kernel(EIO, Op::Writeback, 7);
        }))
        .contains("EIO")
    );
    for (step, place) in
        [(ProbeStep::Device, "device"), (ProbeStep::Write, "writing"), (ProbeStep::Sentinel, "sentinel")]
    {
        assert!(
            text(&case(|case| {
                case.probe(failed(step, EIO));
            }))
            .contains(place)
        );
    }
    let hung = case(|case| {
        case.probe(ProbeResult::TimedOut { step: ProbeStep::Identity });
    });
    assert!(text(&hung).contains("no answer within the deadline while identifying the mount"));
}

#[test]
fn a_new_mount_keeps_only_whether_looking_was_allowed() {
    let mut case = case(|case| {
        case.probe(ok(true, false));
        case.many(EIO, Op::Writeback);
    });
    case.evidence.forget_looks(at(case.now));
    assert!(case.evidence.lost.is_some(), "no repair brings the data back");
    case.evidence.reset(at(case.now));
    assert!(case.evidence.was_readable && case.evidence.lost.is_none());
    assert_eq!(case.evidence.look, Look::None);
    case.evidence.hint(&errors(EIO, Op::Writeback, case.now - 1, 1), span(case.now));
    assert!(case.evidence.lost.is_none(), "that was the mount before");
    case.evidence.look = Look::Sentinel(SentinelFault::Differs);
    assert_eq!(case.verdict(), Verdict::Suspect(Reason::WrongMount));
}

#[test]
fn the_window_is_bounded() {
    let mut window = KernelWindow::default();
    for millis in 0..200_000 {
        window.add((ErrnoClass::IoError, Group::Data), at(millis), CALL, span(millis));
    }
    let tally = window.tally(ErrnoClass::IoError, |_| true, span(199_999)).unwrap();
    assert!(tally.count <= 31_000 && tally.count >= 29_000, "{tally:?}");
    assert!(tally.spread() <= Duration::from_secs(31));
    assert!(alloc::format!("{window:?}").matches("Cell {").count() <= 34);
    window.disprove(Group::Data, at(199_999));
    assert!(window.is_empty());
}

#[test]
fn reports_from_below_make_a_volume_suspect_and_a_good_look_answers_them() {
    for (errno, op) in [(EIO, Op::Device), (Errno(107), Op::Request)] {
        let mut case = case(|case| {
            case.probe(ok(false, false));
            case.many(errno, op);
        });
        assert!(matches!(case.verdict(), Verdict::Suspect(_)), "{op:?} alone degrades");
        case.probe(ok(false, false));
        assert_eq!(case.verdict(), Verdict::Healthy, "{op:?}");
        // Without any look, too, they are no proof.
        let unseen = super::case(|case| case.many(errno, op));
        assert!(matches!(unseen.verdict(), Verdict::Suspect(_)), "{op:?}");
    }
    // With a look that fails for the same cause, one is enough.
    let failing = case(|case| {
        case.kernel(EIO, Op::Device, 1);
        case.probe(failed(ProbeStep::Device, EIO));
    });
    assert_eq!(failing.rule(), Some("probe-and-kernel-io-error"));
}

#[test]
fn a_reported_shutdown_stays_until_another_mount_is_there() {
    let mut case = case(|case| {
        case.probe(ok(true, true));
        assert!(case.kernel(Errno(108), Op::Filesystem, 0), "a reason to look");
        // Caches, and the device under it, may still answer.
        case.probe(ProbeResult::Ok(ProbeOk { root_inode: 2, read_device: true, ..ProbeOk::default() }));
        assert!(!case.kernel(Errno(108), Op::Filesystem, 1), "known already");
    });
    assert_eq!(case.verdict(), Verdict::Sick(Reason::FsShutdown));
    case.evidence.reset(at(case.now + 1));
    let old = errors(Errno(108), Op::Filesystem, case.now, 1);
    assert!(!case.evidence.hint(&old, span(case.now + 2)), "it was about the mount before");
    assert_ne!(case.verdict(), Verdict::Sick(Reason::FsShutdown));
}

#[test]
fn a_reported_shutdown_ends_when_a_later_look_reads_or_writes_a_file() {
    for answer in [ok(true, false), ok(false, true)] {
        let mut case = case(|case| {
            case.probe(ok(true, true));
            case.kernel(Errno(108), Op::Filesystem, 0);
        });
        let reported = case.now;
        // It began before the report, and its answer comes after it.
        let early = report(answer.clone(), reported);
        case.evidence.look(&early, Duration::from_secs(1), at(reported + 5));
        assert_eq!(case.verdict(), Verdict::Sick(Reason::FsShutdown));
        case.probe(answer);
        assert_eq!(case.verdict(), Verdict::Healthy);
        assert!(case.evidence.claims.is_empty(), "nobody says it any more");
        // The counter comes after the record, about the same shutdown.
        let counted = errors(Errno(108), Op::Filesystem, reported, 1);
        assert!(!case.evidence.hint(&counted, span(case.now + 1)));
        assert_eq!(case.verdict(), Verdict::Healthy);
        assert!(case.kernel(Errno(108), Op::Filesystem, 1), "another one is news");
        assert_eq!(case.verdict(), Verdict::Sick(Reason::FsShutdown));
    }
}

#[test]
fn a_plan_that_did_its_work_lets_a_reported_shutdown_be_judged_anew() {
    let mut case = case(|case| {
        case.kernel(Errno(108), Op::Filesystem, 0);
    });
    case.evidence.forget_looks(at(case.now + 1));
    assert_eq!(case.verdict(), Verdict::Unknown);
    let counted = errors(Errno(108), Op::Filesystem, case.now, 1);
    assert!(!case.evidence.hint(&counted, span(case.now + 2)));
    case.now += 10;
    case.probe(ok(false, false));
    assert_eq!(case.verdict(), Verdict::Healthy);
}

#[test]
fn one_error_that_several_tell_of_is_counted_once() {
    let tell = |rounds: u64| {
        case(|case| {
            for _ in 0..rounds {
                let (fs, now) = (Op::Filesystem, case.now);
                let told = [
                    errors(EIO, Op::Read, now, 1),
                    errors(EIO, fs, now, 1),
                    errors(EIO, Op::Device, now, 1),
                    KernelErrors { source: Source::Fanotify, ..errors(EIO, fs, now, 1) },
                    KernelErrors { source: Source::Sysfs, ..errors(EIO, fs, now, 1) },
                ];
                for told in told {
                    assert!(case.evidence.hint(&told, span(now)));
                }
                case.now += 500;
            }
        })
    };
    assert_eq!(tell(4).rule(), Some("error-io-error"), "four of five that are enough");
    assert_eq!(tell(5).rule(), Some("errors-io-error"));
    let tally = tell(4).facts().tally(ErrnoClass::IoError, |_| true).unwrap();
    assert_eq!(tally.count, 4);
}
