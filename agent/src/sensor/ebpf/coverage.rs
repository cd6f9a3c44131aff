//! The table of programs as people see it: what one family does is not lost without the other.

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
            && !rows.any(|state| matches!(state, ProgramState::Failed(_)))
    };
    let settle = |(row, state): &(&ProgramRow, ProgramState)| {
        let covering = other(row.family).filter(|other| is_whole(*other));
        match (state, covering) {
            (ProgramState::NotChosen(_) | ProgramState::Failed(_), Some(other)) => {
                status(row, ProgramState::Covered(other.label()))
            }
            (state, _) => status(row, state.clone()),
        }
    };
    states.iter().map(settle).collect()
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
