//! `mountie doctor`: what works on this host, what does not, and what is lost with it.

use std::path::Path;

use super::table::Table;
use super::{ClientError, Console, Output, http, status};
use crate::exit_code::ExitCode;
use crate::export::view::doctor::{DoctorReport, ProgramView, ProgramWord, SourceWord};

/// Asks the agent and prints. Ends with 69 when no source works.
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
    let text = match output {
        Output::Json => status::json(report),
        Output::Table | Output::Wide => render(report),
    };
    console.print(&text)?;
    Ok(if report.has_a_source() { ExitCode::Ok } else { ExitCode::Unavailable })
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
    text.push('\n');

    if !host.privileges.is_empty() {
        let mut table = Table::new(&["PRIVILEGE", "HELD", "NEEDED FOR"]);
        for privilege in &host.privileges {
            let held = if privilege.held { "yes" } else { "no" };
            table.row([privilege.name.clone(), held.to_owned(), privilege.needed_for.clone()]);
        }
        text.push_str(&table.render());
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

fn programs(programs: &[ProgramView]) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["PROGRAM", "FAMILY", "HOOK", "STATE", "WHY", "LOST WITHOUT IT"]);
    for program in programs {
        let (state, lost) = match program.state {
            ProgramWord::Attached => ("attached", ""),
            // Another program of the other family sees the same, so nothing is lost.
            ProgramWord::NotChosen => ("not chosen", ""),
            ProgramWord::Failed => ("failed", program.lost_without.as_str()),
        };
        table.row([
            program.program.clone(),
            program.family.clone(),
            program.hook.clone(),
            state.to_owned(),
            program.reason.clone().unwrap_or_default(),
            lost.to_owned(),
        ]);
    }
    format!("\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample::{sample_host, sample_snapshot};

    #[test]
    fn everything_that_does_not_work_has_a_reason() {
        let report = DoctorReport::of_agent(&sample_host(), &sample_snapshot());
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "\
mountie {version} on kernel 6.12.0-test (x86_64), as the running agent has it

PRIVILEGE      HELD  NEEDED FOR
CAP_BPF        yes   kernel programs
CAP_SYS_ADMIN  no    fanotify and repairs

SOURCE        STATE     WHY
bpf           degraded  fexit is refused, continuing with sys_exit
fanotify_fs   running   -
fanotify_mnt  off       the kernel is older than 6.15
mountinfo     running   -

PROGRAM           FAMILY    HOOK    STATE       WHY            LOST WITHOUT IT
sys_exit          sys_exit  a hook  attached    -              -
vfs_read          fexit     a hook  failed      load: EPERM    some errors
fuse_request_end  always    a hook  not chosen  family is off  -
"
        );
        assert_eq!(render(&report), expected);
    }

    #[test]
    fn a_host_without_any_source_is_told_so() {
        let report = DoctorReport::new(&sample_host(), &std::collections::BTreeMap::new(), &[]);
        let text = render(&report);
        assert!(text.contains("no agent is running"));
        assert!(text.ends_with("No source works: only probes can find a fault.\n"));
    }
}
