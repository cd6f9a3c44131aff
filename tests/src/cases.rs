//! The table of cases. One behaviour in each file; what they share is in the bench. The files whose names
//! begin with `bench_` show that the bench itself does what the others believe it does.

use anyhow::{Context, Result};
use integration_tests::harness::case::Case;
use integration_tests::harness::runner;
use serde_json::json;

use crate::{faults, io, refusals};

mod absent_volume;
mod across_restarts;
mod advice_only;
mod agent_killed;
mod asked_first;
mod asked_while_hung;
mod automounts;
mod bench_injector;
mod bench_isolation;
mod bench_loop;
mod bench_programs;
mod block_faults;
mod blocked_tasks;
mod containers;
mod controls;
mod crowded_http;
mod damaged_state;
mod docker_plugin;
mod errors_on_names;
mod errors_on_reads;
mod event_stream;
mod failing_errnos;
mod full_state_dir;
mod full_storage;
mod host_view;
mod hung_volumes;
mod incidents;
pub(crate) mod kernel_programs;
mod killed_daemon;
mod lasting_faults;
mod look_alike;
mod lost_sources;
mod missing_privileges;
mod mount_events;
mod mount_helpers;
mod odd_mounts;
mod operator_terminal;
mod other_healers;
mod probe_users;
mod quiet_faults;
mod quiet_log;
mod readonly;
mod repair_limits;
mod repair_methods;
mod secrets;
mod sentinel_and_write;
mod sentinel_init;
mod servers_away;
mod slow_volume;
mod stacked_mounts;
mod start_errors;
mod status_page;
mod storms;
mod stuck_programs;
mod table_bytes;
mod two_superblocks;
mod vanished_devices;
mod writeback_lost;

/// Those that show that the bench does what the others believe it does.
const OF_THE_BENCH: [&[Case]; 4] =
    [bench_injector::CASES, bench_isolation::CASES, bench_loop::CASES, bench_programs::CASES];

/// Every case, in the order in which they are shown.
pub(crate) fn table() -> Vec<Case> {
    [
        &OF_THE_BENCH.concat(),
        start_errors::CASES,
        errors_on_reads::CASES,
        errors_on_names::CASES,
        absent_volume::CASES,
        advice_only::CASES,
        block_faults::CASES,
        hung_volumes::CASES,
        blocked_tasks::CASES,
        containers::CASES,
        slow_volume::CASES,
        asked_while_hung::CASES,
        sentinel_and_write::CASES,
        killed_daemon::CASES,
        repair_limits::CASES,
        repair_methods::CASES,
        agent_killed::CASES,
        across_restarts::CASES,
        controls::CASES,
        incidents::CASES,
        lost_sources::CASES,
        missing_privileges::CASES,
        full_state_dir::CASES,
        writeback_lost::CASES,
        storms::CASES,
        odd_mounts::CASES,
        automounts::CASES,
        host_view::CASES,
        probe_users::CASES,
        sentinel_init::CASES,
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
        two_superblocks::CASES,
        table_bytes::CASES,
        stacked_mounts::CASES,
        readonly::CASES,
        look_alike::CASES,
        asked_first::CASES,
        servers_away::CASES,
        other_healers::CASES,
        event_stream::CASES,
        operator_terminal::CASES,
        quiet_log::CASES,
        status_page::CASES,
        crowded_http::CASES,
        docker_plugin::CASES,
    ]
    .concat()
}

/// A part of the table of kernels.
struct Part {
    name: &'static str,
    cases: fn() -> Vec<Case>,
    /// The rows that one of its cases adds.
    rows: fn(&Case) -> Result<Vec<String>>,
}

/// The parts of the table of kernels. They run in guests, where every fault may be made.
const VM_PARTS: &[Part] = &[
    Part { name: "programs", cases: || kernel_programs::CASES.to_vec(), rows: |_| kernel_programs::rows() },
    Part { name: "io", cases: io::cases_for_vms, rows: |case| Ok(io::rows_of(case)) },
    Part { name: "faults", cases: || faults::CASES.to_vec(), rows: |case| Ok(faults::rows_of(case)) },
    Part { name: "refusals", cases: || refusals::CASES.to_vec(), rows: |case| Ok(refusals::rows_of(case)) },
    Part { name: "repairs", cases: || faults::REPAIRS.to_vec(), rows: |case| Ok(faults::rows_of(case)) },
];

/// The parts with these names, or all. A name that no part has is an error.
fn vm_parts(names: Option<&str>) -> Result<Vec<&'static Part>> {
    let Some(names) = names else { return Ok(VM_PARTS.iter().collect()) };
    let find = |name| {
        let part = VM_PARTS.iter().find(|part| part.name == name);
        part.with_context(|| format!("there is no part {name} of the cases for guests"))
    };
    names.split(',').map(find).collect()
}

/// The cases for guests: those of the named parts, or of all.
pub(crate) fn vm_table(parts: Option<&str>) -> Result<Vec<Case>> {
    Ok(vm_parts(parts)?.into_iter().flat_map(|part| (part.cases)()).collect())
}

/// What whoever starts guests must know beforehand of the cases for guests: of each its name, the seconds after which
/// it has ended, and the rows that it adds. One JSON object a line.
pub(crate) fn vm_plan(parts: Option<&str>) -> Result<String> {
    let mut lines = String::new();
    for part in vm_parts(parts)? {
        for case in (part.cases)() {
            let rows = (part.rows)(&case).with_context(|| format!("no rows of {}", case.name))?;
            let seconds = runner::ended_after(&case).as_secs();
            let line = json!({ "case": case.name, "seconds": seconds, "table": part.name, "rows": rows });
            lines.push_str(&format!("{line}\n"));
        }
    }
    Ok(lines)
}

/// With those that only another case or only a guest runs.
pub(crate) fn with_inner() -> Vec<Case> {
    let only_in_guests =
        [kernel_programs::CASES, faults::CASES, faults::REPAIRS, refusals::CASES, &io::cases_for_vms()]
            .concat();
    [table(), bench_isolation::INNER.to_vec(), only_in_guests].concat()
}
