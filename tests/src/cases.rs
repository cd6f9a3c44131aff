//! The table of cases. One behaviour in each file; what they share is in the bench. The files whose names
//! begin with `bench_` show that the bench itself does what the others believe it does.

use integration_tests::harness::case::Case;

mod absent_volume;
mod advice_only;
mod agent_killed;
mod asked_while_hung;
mod bench_injector;
mod bench_isolation;
mod bench_loop;
mod bench_programs;
mod block_faults;
mod errors_on_names;
mod errors_on_reads;
mod full_state_dir;
mod hung_volumes;
mod killed_daemon;
mod lost_sources;
mod odd_mounts;
mod repair_limits;
mod sentinel_and_write;
mod slow_volume;
mod start_errors;
mod writeback_lost;

/// Every case, in the order in which they are shown.
pub(crate) fn table() -> Vec<Case> {
    [
        bench_injector::CASES,
        bench_isolation::CASES,
        bench_loop::CASES,
        bench_programs::CASES,
        start_errors::CASES,
        errors_on_reads::CASES,
        errors_on_names::CASES,
        absent_volume::CASES,
        advice_only::CASES,
        block_faults::CASES,
        hung_volumes::CASES,
        slow_volume::CASES,
        asked_while_hung::CASES,
        sentinel_and_write::CASES,
        killed_daemon::CASES,
        repair_limits::CASES,
        agent_killed::CASES,
        lost_sources::CASES,
        full_state_dir::CASES,
        writeback_lost::CASES,
        odd_mounts::CASES,
    ]
    .concat()
}

/// With those that only another case runs.
pub(crate) fn with_inner() -> Vec<Case> {
    [table(), bench_isolation::INNER.to_vec()].concat()
}
