//! The bitmap, the verdict over programs, and that names are those of the object.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::Map;

use super::attacher::{changed, known_id, not_attached, settle, spared};
use super::*;
use crate::kernel::btf::modules::Module;

#[test]
fn the_bitmap_has_exactly_the_counted_errnos() {
    let words = bitmap(|_| true);
    for number in 0..192u16 {
        let bit = words[usize::from(number / 64)] >> (number % 64) & 1 == 1;
        assert_eq!(bit, COUNTED.iter().any(|row| row.errno.0 == number), "{number}");
    }
    assert!(COUNTED.iter().all(|row| row.errno.0 < 192), "a counted errno does not fit the bitmap");
    let hard = bitmap(|row| row.class != ErrnoClass::Refused);
    assert_eq!(hard[0] & (1 << 13), 0);
    assert_ne!(hard[1] & (1 << (107 - 64)), 0);
}

fn states(state: impl Fn(&ProgramRow) -> ProgramState) -> Vec<(&'static ProgramRow, ProgramState)> {
    PROGRAMS.iter().map(|row| (row, state(row))).collect()
}

#[test]
fn one_family_is_enough_and_a_part_is_degraded() {
    let failed = || ProgramState::Failed("refused".to_owned());
    let absent = || ProgramState::Absent("this kernel has no such hook".to_owned());
    let sys_exit = states(|row| match row.family {
        ProgramFamily::Fexit => failed(),
        // A kernel without the hooks of the extra ones is none the worse.
        ProgramFamily::Extra => absent(),
        ProgramFamily::Always | ProgramFamily::SysExit => ProgramState::Attached,
    });
    assert_eq!(judge(&sys_exit, Family::Auto).unwrap(), SourceState::Running);
    let part = states(|row| if row.name == "vfs_write" { failed() } else { ProgramState::Attached });
    let part: Vec<_> = part.into_iter().filter(|(row, _)| row.family != ProgramFamily::SysExit).collect();
    let Ok(SourceState::Degraded(reason)) = judge(&part, Family::Fexit) else { panic!("not degraded") };
    assert!(reason.contains("failed writes") && reason.contains("refused"), "{reason}");
    let none = states(|_| failed());
    assert!(matches!(judge(&none, Family::Auto), Err(LoadError::NothingAttached(_))));
}

#[test]
fn an_extra_program_that_is_refused_is_a_loss_also_when_its_module_comes_later() {
    let waits = || ProgramState::Waits("for module xfs".to_owned());
    let mut states = states(|row| match row.name {
        "xfs_force_shutdown" => waits(),
        _ if row.family == ProgramFamily::Fexit => {
            ProgramState::NotChosen("another family is used".to_owned())
        }
        _ => ProgramState::Attached,
    });
    assert_eq!(how_far(&states), SourceState::Running);
    for (row, state) in &mut states {
        if row.name == "xfs_force_shutdown" {
            *state = ProgramState::Failed("EACCES: the verifier".to_owned());
        }
    }
    let SourceState::Degraded(reason) = how_far(&states) else { panic!("not degraded") };
    assert!(reason.starts_with("without xfs_force_shutdown: "), "{reason}");
}

#[test]
fn a_call_that_the_kernel_lacks_of_the_family_in_use_is_a_loss() {
    let mut states = states(|row| match row.name {
        "vfs_read" => ProgramState::Absent("this kernel has no function vfs_read".to_owned()),
        _ => ProgramState::Attached,
    });
    states.retain(|(row, _)| row.family != ProgramFamily::SysExit);
    assert!(matches!(how_far(&states), SourceState::Degraded(_)));
}

#[test]
fn every_name_is_in_the_object() {
    if OBJECT.is_empty() {
        eprintln!("skipped: built without kernel programs");
        return;
    }
    let object = aya_names();
    let own = PROGRAMS
        .iter()
        .filter(|row| !matches!(row.attachment, Attachment::CallExit | Attachment::PlaceExit(_)));
    for name in own.map(|row| row.name).chain([
        names::PROGRAM_CALL_END,
        names::PROGRAM_CALL_FAILED,
        names::FAILED_CALLS,
        names::COUNTERS,
        names::TRACKED,
        names::ROOTS,
        names::NAMES,
        names::SYSCALLS,
        names::RECORDS,
        names::DROPPED,
        names::AGENT,
        names::WINDOW,
        names::IO_OPERATIONS,
        names::LOWER,
        names::MODULES,
        names::OFFSETS,
        names::FILTER,
    ]) {
        assert!(object.contains(name), "{name}");
    }
}

/// Both ways: a row without its program is never attached, a program without a row neither.
#[test]
fn every_program_has_a_row_and_every_row_its_program() {
    if OBJECT.is_empty() {
        eprintln!("skipped: built without kernel programs");
        return;
    }
    let object = aya_obj::Object::parse(OBJECT).unwrap();
    let mut left: BTreeSet<&str> = object.programs.keys().map(String::as_str).collect();
    let mut expected = BTreeSet::from([names::PROGRAM_CALL_END, names::PROGRAM_CALL_FAILED]);
    for row in PROGRAMS {
        match row.attachment {
            Attachment::CallExit => {}
            // One for each number of arguments and place among them.
            Attachment::PlaceExit(structure) => {
                let is_own = |name: &&str| {
                    let name = name.trim_end_matches("_pointer");
                    let rest = name.strip_prefix(structure).and_then(|rest| rest.strip_prefix('_'));
                    let rest = rest.map(|rest| rest.strip_suffix("_pointer").unwrap_or(rest));
                    rest.and_then(|rest| rest.split_once('_')).is_some_and(|(place, count)| {
                        place.parse::<u8>().ok().zip(count.parse::<u8>().ok()).is_some_and(|(p, c)| p < c)
                    })
                };
                let own: Vec<&str> =
                    object.programs.keys().map(String::as_str).filter(|name| is_own(name)).collect();
                assert!(!own.is_empty(), "no program for {structure}");
                expected.extend(own);
            }
            Attachment::RawTracepoint
            | Attachment::FunctionExit
            | Attachment::FunctionEntry
            | Attachment::RunOnce
            | Attachment::Iterator => drop(expected.insert(row.name)),
        }
    }
    let missing: Vec<_> = expected.iter().filter(|name| !left.remove(**name)).collect();
    assert!(missing.is_empty(), "rows without a program: {missing:?}");
    assert!(left.is_empty(), "programs without a row: {left:?}");
}

/// Every string of the object, as text.
fn aya_names() -> BTreeSet<String> {
    OBJECT
        .split(|byte| *byte == 0)
        .filter_map(|text| std::str::from_utf8(text).ok())
        .map(str::to_owned)
        .collect()
}

#[test]
fn turned_off_and_bad_types_are_reasons_not_failures() {
    let settings = |family, btf: &str| Settings { family, btf: btf.into(), host_mnt_ns: None };
    assert!(matches!(load(&settings(Family::Off, "/x"), 1), Err(LoadError::TurnedOff)));
    if !OBJECT.is_empty() {
        let error = load(&settings(Family::Auto, "/nonexistent/btf"), 1).unwrap_err();
        assert!(matches!(error, LoadError::Types(BtfError::Read { .. })), "{error}");
    }
}

#[test]
fn a_process_id_of_a_nested_namespace_is_not_believed() {
    assert_eq!(known_id(Some(4711), 1, Some(false)), Some(4711));
    assert_eq!(known_id(None, 4711, Some(true)), Some(4711));
    assert_eq!(known_id(None, 1, Some(false)), None);
    assert_eq!(known_id(None, 1, None), None);
}

#[test]
fn every_hash_is_preallocated() {
    if OBJECT.is_empty() || !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs kernel programs and root");
        return;
    }
    let ebpf = match EbpfLoader::new().btf(None).load(OBJECT) {
        Ok(ebpf) => ebpf,
        Err(error) => {
            eprintln!("skipped: the maps cannot be made here: {error}");
            return;
        }
    };
    for name in [names::COUNTERS, names::TRACKED, names::ROOTS, names::LOWER] {
        let data = match ebpf.map(name) {
            Some(Map::HashMap(data) | Map::PerCpuHashMap(data)) => data,
            _ => panic!("{name} is no hash"),
        };
        let number = data.fd().as_fd().as_raw_fd();
        let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let flags = facts.lines().find_map(|line| line.strip_prefix("map_flags:")).unwrap();
        assert_eq!(flags.trim(), "0x0", "{name}");
    }
}

#[test]
fn stand_ins_are_programs_and_come_after_what_they_stand_in_for() {
    for (at, row) in PROGRAMS.iter().enumerate() {
        for other in row.unless.iter().chain(&row.equal) {
            let place = PROGRAMS.iter().position(|row| row.name == *other);
            assert!(place.is_some_and(|place| place < at), "{} beside {other}", row.name);
        }
    }
}

fn row(name: &str) -> &'static ProgramRow {
    PROGRAMS.iter().find(|row| row.name == name).unwrap()
}

#[test]
fn only_an_equal_makes_up_for_what_a_kernel_does_not_have() {
    let failed = || ProgramState::Failed("this kernel has no such hook".to_owned());
    let attached = ["io_uring_complete", "block_rq_complete", "fuse_chan_abort", "ext4_error"];
    let mut states =
        states(|row| if attached.contains(&row.name) { ProgramState::Attached } else { failed() });
    settle(&mut states);
    let state = |name: &str| states.iter().find(|(row, _)| row.name == name).unwrap().1.clone();
    for (missing, equal) in [
        ("io_uring_entry", "io_uring_complete"),
        ("block_rq_error", "block_rq_complete"),
        ("fuse_abort_conn", "fuse_chan_abort"),
    ] {
        assert_eq!(state(missing), ProgramState::NotChosen(format!("{equal} sees the same")));
    }
    // What only one file system says is less than what all say.
    assert_eq!(state("fserror_report"), failed());
    assert_eq!(state("io_complete_rw"), failed());
}

#[test]
fn an_event_is_counted_by_one_program() {
    let states = states(|row| match row.name {
        "io_uring_entry" | "fserror_report" => ProgramState::Attached,
        _ => ProgramState::Failed("not yet tried".to_owned()),
    });
    let reason = |name| spared(row(name), &states);
    assert_eq!(reason("io_uring_complete").as_deref(), Some("io_uring_entry sees the same"));
    assert_eq!(reason("io_complete_rw").as_deref(), Some("io_uring_entry counts it already"));
    assert_eq!(reason("ext4_error").as_deref(), Some("fserror_report counts it already"));
    assert_eq!(reason("block_rq_error"), None);
}

#[test]
fn a_function_of_a_module_is_not_waited_for() {
    let state = |name, module| not_attached(row(name), "refused".to_owned().into(), Some(module));
    let refused = ProgramState::Failed("refused".to_owned());
    for module in [Module::Loaded, Module::Absent] {
        let ProgramState::Absent(reason) = state("fuse_abort_conn", module) else { panic!("waits") };
        assert_eq!(reason, "fuse is a module here; functions of modules cannot be hooked");
    }
    assert_eq!(state("fuse_abort_conn", Module::BuiltIn), refused);
    assert_eq!(state("fuse_request_end", Module::Absent), ProgramState::Waits("for module fuse".to_owned()));
    assert_eq!(state("fuse_request_end", Module::Loaded), refused);
}

#[test]
fn every_row_whose_state_has_changed_is_told() {
    let waits = || ProgramState::Waits("for module ext4".to_owned());
    let before: Vec<_> = PROGRAMS.iter().map(|row| status(row, waits())).collect();
    let after = PROGRAMS.iter().map(|row| match row.name {
        "ext4_error" => status(row, ProgramState::Attached),
        "ext4_shutdown" => status(row, ProgramState::NotChosen("another sees the same".to_owned())),
        _ => status(row, waits()),
    });
    let told: Vec<_> = changed(&before, after.collect()).into_iter().map(|row| row.program).collect();
    assert_eq!(told, ["ext4_error", "ext4_shutdown"]);
}
