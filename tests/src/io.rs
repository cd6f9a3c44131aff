//! The table of kinds of I/O: every way a program can ask a file system for something, and what the agent makes
//! of it when that fails. A row is data; a process of its own makes the calls; each row is judged on its own.

use std::time::Duration;

use integration_tests::harness::case::Case;
use integration_tests::harness::needs::Need;

mod actor;
mod attribution;
pub(crate) mod expiry;
mod judge;
mod links;
mod mapping;
mod marks;
mod raw;
mod ring;
mod row;
mod rows;
mod scene;
mod storm;
mod two_files;

pub(crate) use self::actor::{FLAG, main};
pub(crate) use self::scene::{TOUCH, touch};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Bpf];

/// Programs at the same event share one place for the lock of a process's mappings: two agents would miss faults.
///
/// kernel: `mmap_unlock_work`, kernel/bpf/mmap_unlock_work.h, since 5.17: one for each processor.
const ALONE: &[Need] = &[Need::Root, Need::Fuse, Need::Bpf, Need::Alone];

macro_rules! groups {
    ($($name:literal $needs:ident $rows:expr;)*) => {
        &[$(Case { name: $name, needs: $needs, timeout: Duration::from_secs(300), run: |bench| judge::group(bench, $rows) },)*]
    };
}

/// Every case of this table.
pub(crate) fn cases() -> Vec<Case> {
    [GROUPS, attribution::CASES, storm::CASES].concat()
}

/// For machines on which everything takes long and which have patience: every row with one agent, and no storms.
pub(crate) fn cases_for_vms() -> Vec<Case> {
    let every_row = Case {
        name: EVERY_ROW,
        needs: NEEDS,
        timeout: Duration::from_secs(400),
        run: |bench| judge::all(bench, rows::all()),
    };
    let others = attribution::CASES.iter().map(|case| Case { timeout: Duration::from_secs(100), ..*case });
    [every_row].into_iter().chain(others).collect()
}

/// The rows of one of the cases for such machines.
pub(crate) fn rows_of(case: &Case) -> Vec<String> {
    if case.name == EVERY_ROW {
        return rows::all().map(|row| row.name.to_owned()).collect();
    }
    attribution::row_of(case).map(str::to_owned).into_iter().collect()
}

const EVERY_ROW: &str = "io::every_kind_of_failed_call_is_counted_exactly";

/// One case for each group of rows.
const GROUPS: &[Case] = groups! {
    "io::failed_reads_are_counted_exactly" NEEDS rows::READS;
    "io::failed_writes_are_counted_exactly" NEEDS rows::WRITES;
    "io::failed_transfers_are_counted_exactly" NEEDS rows::TRANSFERS;
    "io::failed_syncs_are_counted_exactly" NEEDS rows::SYNCS;
    "io::failed_opens_are_counted_exactly" NEEDS rows::OPENS;
    "io::failed_looks_at_attributes_are_counted_exactly" NEEDS rows::LOOKS;
    "io::failed_changes_of_names_are_counted_exactly" NEEDS rows::NAMES;
    "io::failed_changes_of_attributes_are_counted_exactly" NEEDS rows::CHANGES;
    "io::failed_page_faults_are_counted_exactly" ALONE rows::FAULTS;
    "io::failed_completions_of_rings_are_counted_exactly" NEEDS rows::RINGS;
    "io::answers_that_are_no_faults_are_not_counted" NEEDS rows::HARMLESS;
    "io::failed_calls_are_counted_from_wherever_the_volume_is_seen" NEEDS rows::PLACES;
};
