//! The bitmap, the verdict over programs, and that names are those of the object.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::Map;

use super::*;

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
    let sys_exit = states(|row| match row.family {
        ProgramFamily::Fexit => failed(),
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
fn every_name_is_in_the_object() {
    if OBJECT.is_empty() {
        eprintln!("skipped: built without kernel programs");
        return;
    }
    let object = aya_names();
    for name in PROGRAMS.iter().map(|row| row.name).chain([
        names::COUNTERS,
        names::TRACKED,
        names::NAMES,
        names::SYSCALLS,
        names::RECORDS,
        names::DROPPED,
        names::AGENT,
        names::OFFSETS,
        names::FILTER,
    ]) {
        assert!(object.contains(name), "{name}");
    }
}

/// Every string of the object, as text.
fn aya_names() -> std::collections::BTreeSet<String> {
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
    for name in [names::COUNTERS, names::TRACKED] {
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
