//! The table of cases. One behaviour in each file; what they share is in the bench. The files whose names
//! begin with `bench_` show that the bench itself does what the others believe it does.

use integration_tests::harness::case::Case;

use crate::{faults, io};

mod absent_volume;
mod advice_only;
mod agent_killed;
mod asked_while_hung;
mod bench_injector;
mod bench_isolation;
mod bench_loop;
mod bench_programs;
mod block_faults;
mod blocked_tasks;
mod errors_on_names;
mod errors_on_reads;
mod full_state_dir;
mod hung_volumes;
mod kernel_programs;
mod killed_daemon;
mod lost_sources;
mod missing_privileges;
mod odd_mounts;
mod quiet_faults;
mod repair_limits;
mod sentinel_and_write;
mod slow_volume;
mod start_errors;
mod storms;
mod look_alike;
mod readonly;
mod stacked_mounts;
mod table_bytes;
mod two_superblocks;
mod automounts;
mod secrets;
mod mount_helpers;
mod failing_errnos;
mod full_storage;
mod mount_events;
mod damaged_state;
mod vanished_devices;
mod lasting_faults;
mod stuck_programs;
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
        blocked_tasks::CASES,
        slow_volume::CASES,
        asked_while_hung::CASES,
        sentinel_and_write::CASES,
        killed_daemon::CASES,
        repair_limits::CASES,
        agent_killed::CASES,
        lost_sources::CASES,
        missing_privileges::CASES,
        full_state_dir::CASES,
        writeback_lost::CASES,
        storms::CASES,
        odd_mounts::CASES,
        &io::cases(),
        quiet_faults::CASES,
        stuck_programs::CASES,
        lasting_faults::CASES,
        vanished_devices::CASES,
        damaged_state::CASES,
        mount_events::CASES,
        full_storage::CASES,
        failing_errnos::CASES,
        mount_helpers::CASES,
        secrets::CASES,
        automounts::CASES,
        two_superblocks::CASES,
        table_bytes::CASES,
        stacked_mounts::CASES,
        readonly::CASES,
        look_alike::CASES,
    ]
    .concat()
}

/// A part of the table of kernels, and its cases.
type Part = (&'static str, fn() -> Vec<Case>);

/// The parts of the table of kernels. They run in guests, where every fault may be made.
const VM_PARTS: &[Part] = &[
    ("programs", || kernel_programs::CASES.to_vec()),
    ("io", io::cases_for_vms),
    ("faults", || faults::CASES.to_vec()),
];

/// The cases for guests: those of the named parts, or of all. The first name that no part has is the error.
pub(crate) fn vm_table(parts: Option<&str>) -> Result<Vec<Case>, String> {
    let Some(parts) = parts else {
        return Ok(VM_PARTS.iter().flat_map(|(_, cases)| cases()).collect());
    };
    let mut chosen = Vec::new();
    for name in parts.split(',') {
        let part = VM_PARTS.iter().find(|(known, _)| *known == name);
        let (_, cases) = part.ok_or_else(|| format!("there is no part {name} of the cases for guests"))?;
        chosen.extend(cases());
    }
    Ok(chosen)
}

/// With those that only another case or only a guest runs.
pub(crate) fn with_inner() -> Vec<Case> {
    let only_in_guests = [kernel_programs::CASES, faults::CASES, &io::cases_for_vms()].concat();
    [table(), bench_isolation::INNER.to_vec(), only_in_guests].concat()
}
