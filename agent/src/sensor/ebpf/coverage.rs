//! The table of programs as people see it: what one family does is not lost without the other, but for what it alone
//! sees.

use super::programs::{ProgramFamily, ProgramRow};
use crate::sensor::{ProgramState, ProgramStatus};

/// One row as it stands.
pub(super) fn status(row: &ProgramRow, state: ProgramState) -> ProgramStatus {
    ProgramStatus {
        program: row.name,
        family: row.family.label(),
        hook: row.hook,
        lost_without: row.lost_without,
        fallback: row.fallback,
        state,
    }
}

/// The whole table. Where one family does its work, programs of the other one are not needed. A function that a
/// kernel does not have is none of a family's work there.
pub(super) fn statuses(states: &[(&ProgramRow, ProgramState)]) -> Vec<ProgramStatus> {
    let is_whole = |family: ProgramFamily| {
        let mut rows = states.iter().filter(|(row, _)| row.family == family).map(|(_, state)| state);
        rows.clone().any(|state| *state == ProgramState::Attached)
            && !rows.any(|state| matches!(state, ProgramState::Absent(_) | ProgramState::Failed(_)))
    };
    let settle = |(row, state): &(&ProgramRow, ProgramState)| {
        let covering = other(row.family).filter(|other| is_whole(*other));
        match (state, covering) {
            (ProgramState::NotChosen(_), Some(other)) if row.is_alone => {
                status(row, ProgramState::Forgone(format!("{} does not see it", other.label())))
            }
            (ProgramState::NotChosen(_) | ProgramState::Absent(_) | ProgramState::Failed(_), Some(other))
                if !row.is_alone =>
            {
                status(row, ProgramState::Covered(covering_label(row, other)))
            }
            (state, _) => status(row, state.clone()),
        }
    };
    states.iter().map(settle).collect()
}

/// How the other family does the work of a row.
const fn covering_label(row: &ProgramRow, other: ProgramFamily) -> &'static str {
    match other {
        ProgramFamily::SysExit if row.only_places => "sys_exit, by the names that calls are given",
        ProgramFamily::Always | ProgramFamily::Extra | ProgramFamily::Fexit | ProgramFamily::SysExit => {
            other.label()
        }
    }
}

/// The family that does the same work by other means.
const fn other(family: ProgramFamily) -> Option<ProgramFamily> {
    match family {
        ProgramFamily::Always | ProgramFamily::Extra => None,
        ProgramFamily::Fexit => Some(ProgramFamily::SysExit),
        ProgramFamily::SysExit => Some(ProgramFamily::Fexit),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::programs::PROGRAMS;
    use super::super::syscalls;
    use super::*;

    /// The table by name, for states by row.
    fn table(state: impl Fn(&ProgramRow) -> ProgramState) -> BTreeMap<&'static str, ProgramStatus> {
        let states: Vec<_> = PROGRAMS.iter().map(|row| (row, state(row))).collect();
        statuses(&states).into_iter().map(|status| (status.program, status)).collect()
    }

    fn not_chosen() -> ProgramState {
        ProgramState::NotChosen("another family is used".to_owned())
    }

    fn failed() -> ProgramState {
        ProgramState::Failed("refused".to_owned())
    }

    #[test]
    fn what_the_family_in_use_does_is_not_needed_elsewhere() {
        let table = table(|row| match row.family {
            ProgramFamily::Fexit => not_chosen(),
            _ => ProgramState::Attached,
        });
        assert_eq!(table["vfs_read"].state, ProgramState::Covered("sys_exit"));
        assert_eq!(table["sys_exit"].state, ProgramState::Attached);
    }

    #[test]
    fn what_only_the_other_family_sees_is_told_as_lost() {
        let table = table(|row| match row.family {
            ProgramFamily::Fexit => not_chosen(),
            _ => ProgramState::Attached,
        });
        for name in ["sys_msync", "vfs_fsync_range", "vfs_iter_read", "vfs_iter_write", "iterate_dir"] {
            let status = &table[name];
            assert_eq!(status.state, ProgramState::Forgone("sys_exit does not see it".to_owned()), "{name}");
            assert_ne!(status.fallback, "sys_exit", "{name}");
        }
        // Every row that sys_exit stands in for is a call that it knows, or the exact place of one.
        for row in PROGRAMS.iter().filter(|row| row.fallback == "sys_exit") {
            assert!(!row.is_alone, "{}", row.name);
        }
    }

    #[test]
    fn every_call_that_the_other_family_does_not_count_is_a_row_of_its_own_alone() {
        use agent_common::settings::kind;
        let noted = syscalls::rows().filter(|(_, row)| row.kind == kind::NOTED).map(|(number, _)| *number);
        assert_eq!(noted.collect::<Vec<_>>(), [libc::SYS_msync]);
        assert!(PROGRAMS.iter().any(|row| row.name == "sys_msync" && row.is_alone));
    }

    #[test]
    fn where_the_first_choice_is_refused_the_other_one_does_its_work() {
        let table = table(|row| match (row.family, row.name) {
            (ProgramFamily::SysExit, _) => failed(),
            (_, "vfs_statfs") => ProgramState::NotChosen("this kernel has no function vfs_statfs".to_owned()),
            _ => ProgramState::Attached,
        });
        assert_eq!(table["sys_exit"].state, ProgramState::Covered("fexit"));
    }

    #[test]
    fn a_family_in_part_covers_nothing() {
        let table = table(|row| match row.name {
            "vfs_write" => failed(),
            "sys_exit" => not_chosen(),
            _ => ProgramState::Attached,
        });
        assert_eq!(table["sys_exit"].state, not_chosen());
        assert_eq!(
            (&table["vfs_write"].state, table["vfs_write"].lost_without),
            (&failed(), "failed writes")
        );
    }

    #[test]
    fn where_everything_fails_everything_is_lost() {
        let table = table(|_| failed());
        assert!(table.values().all(|status| status.state == failed() && !status.lost_without.is_empty()));
        assert_eq!(table["sys_exit"].lost_without, "all failed system calls on files and names");
    }
}
