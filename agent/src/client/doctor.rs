//! `mountie doctor`: what works on this host, what does not, and what is lost with it.

use std::path::Path;

use super::table::Table;
use super::{ClientError, Console, Output, http};
use crate::exit_code::ExitCode;
use crate::export::view::doctor::{DoctorReport, ProgramView, ProgramWord, SourceWord};

/// Asks the agent and prints. Ends with 69 when no source works, with 77 when a privilege is missed.
pub async fn doctor(socket: &Path, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = match http::get_json(socket, "/api/v1/doctor", (http::WITHIN, &[])).await {
        Ok((_, report)) => show(&report, output, console),
        Err(error) => Err(error),
    };
    console.end(result)
}

/// Prints a report that the caller made without an agent.
pub fn show_local(report: &DoctorReport, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = show(report, output, console);
    console.end(result)
}

fn show(report: &DoctorReport, output: Output, console: &mut Console<'_>) -> Result<ExitCode, ClientError> {
    console.show(report, output, render)?;
    Ok(code(report))
}

/// No source is worse than a privilege that is missed: with privileges alone it may not be healed.
fn code(report: &DoctorReport) -> ExitCode {
    if !report.has_a_source() {
        ExitCode::Unavailable
    } else if report.missed_privileges().next().is_some() {
        ExitCode::NoPermission
    } else {
        ExitCode::Ok
    }
}

/// The report as text.
#[must_use]
pub fn render(report: &DoctorReport) -> String {
    let host = &report.host;
    let who = if report.agent_running {
        "as the running agent has it"
    } else {
        "tried out now; no agent is running"
    };
    let mut text = format!(
        "mountie {} on kernel {} ({}), {who}\n",
        report.version, host.kernel_release, host.architecture
    );
    for note in &host.notes {
        text.push_str(&format!("  {note}\n"));
    }
    text.push_str(&many_mounts(report));
    text.push('\n');

    if !host.privileges.is_empty() {
        let mut table = Table::new(&["PRIVILEGE", "HELD", "NEEDED FOR"]);
        for privilege in &host.privileges {
            let held = match (privilege.held, privilege.missed) {
                (true, _) => "yes",
                (false, true) => "no",
                (false, false) => "no (not needed here)",
            };
            table.row([privilege.name.clone(), held.to_owned(), privilege.needed_for.clone()]);
        }
        text.push_str(&table.render());
        text.push_str(&remedy(report));
        text.push('\n');
    }

    let mut table = Table::new(&["SOURCE", "STATE", "WHY"]);
    for source in &report.sources {
        let state = match source.state {
            SourceWord::Running => "running",
            SourceWord::Degraded => "degraded",
            SourceWord::Off => "off",
        };
        table.row([source.name.clone(), state.to_owned(), source.reason.clone().unwrap_or_default()]);
    }
    text.push_str(&table.render());
    if !report.has_a_source() {
        text.push_str("\nNo source works: only probes can find a fault.\n");
    }
    text.push_str(&programs(&report.programs));
    text
}

/// Says when the watched mount namespace is nearly full.
fn many_mounts(report: &DoctorReport) -> String {
    let Some((mounts, limit)) = report.mounts.and_then(|mounts| Some((mounts, mounts.close_to()?))) else {
        return String::new();
    };
    format!(
        "  {} of at most {limit} mounts: at the limit every further mount fails with ENOSPC, of containers and of \
         repairs too; find what mounts again and again, or raise the sysctl fs.mount-max\n",
        mounts.count
    )
}

/// What to do about privileges that are missed.
fn remedy(report: &DoctorReport) -> String {
    let names: Vec<&str> = report.missed_privileges().map(|privilege| privilege.name.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "To grant what is missing: in a systemd unit CapabilityBoundingSet= and AmbientCapabilities= with {}; in a \
         container the same under securityContext.capabilities.add, without CAP_.\n",
        names.join(" ")
    )
}

/// So many rows that say the same are one line. JSON has each of them.
const CROWD: usize = 8;

fn programs(programs: &[ProgramView]) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["PROGRAM", "FAMILY", "HOOK", "STATE", "WHY", "LOST WITHOUT IT"]);
    for alike in programs.chunk_by(say_the_same) {
        let (Some(first), Some(last)) = (alike.first(), alike.last()) else { continue };
        if alike.len() < CROWD {
            for program in alike {
                table.row(row(program.program.clone(), program.hook.clone(), program));
            }
        } else {
            let name = format!("{} programs", alike.len());
            table.row(row(name, format!("{} … {}", first.hook, last.hook), first));
        }
    }
    format!("\n{}", table.render())
}

fn say_the_same(one: &ProgramView, other: &ProgramView) -> bool {
    !is_lost(one)
        && !is_lost(other)
        && (&one.family, one.state, &one.reason) == (&other.family, other.state, &other.reason)
}

fn is_lost(program: &ProgramView) -> bool {
    program.is_lost || program.state == ProgramWord::Failed
}

fn row(name: String, hook: String, program: &ProgramView) -> [String; 6] {
    let state = match program.state {
        ProgramWord::Attached => "attached",
        ProgramWord::NotChosen => "not chosen",
        ProgramWord::Waits => "waits",
        ProgramWord::NotNeeded => "not needed",
        ProgramWord::Failed => "failed",
    };
    // Of a module that waits nothing is used, so nothing can be lost.
    let lost = if is_lost(program) { lost(program) } else { String::new() };
    let why = program.reason.clone().unwrap_or_default();
    [name, program.family.clone(), hook, state.to_owned(), why, lost]
}

/// What is lost without a program, and what is left. An older agent does not say what is.
fn lost(program: &ProgramView) -> String {
    match program.fallback.as_str() {
        "" => program.lost_without.clone(),
        fallback => format!("{} (left: {fallback})", program.lost_without),
    }
}

#[cfg(test)]
mod tests;
