//! `mountie remount VOLUME [--dry-run]`: the plan step by step, and what came of it.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::orders::path;
use super::table::clean;
use super::{ClientError, Console, Output, age, http};
use crate::exit_code::ExitCode;
use crate::export::percent::PercentEncoded;
use crate::export::view::{OrderAnswer, PlanPreview, RepairView, StepView, VolumeAnswer};

/// The pause between two questions how far it is.
const PAUSE: Duration = Duration::from_millis(200);
/// How long beyond the plan's own time its end is waited for.
const GRACE: Duration = Duration::from_secs(30);

/// A remount that has ended, for programs.
#[derive(Serialize, Deserialize)]
struct Report {
    plan: PlanPreview,
    outcome: RepairView,
}

/// Shows what a remount would do. Ends with 1 when it could not begin now.
pub async fn preview(socket: &Path, volume: &str, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = ask_and_show(socket, volume, output, console).await;
    console.end(result)
}

async fn ask_and_show(
    socket: &Path,
    volume: &str,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let path = format!("/api/v1/plan/{}", PercentEncoded(volume));
    let (_, plan): (_, PlanPreview) = http::get_json(socket, &path, (http::WITHIN, &[])).await?;
    console.show(&plan, output, |plan| {
        let mut text = steps(plan);
        if let Some(why) = &plan.hindered {
            text.push_str(&line(&format!("it would not be begun now: {why}")));
        }
        text + &line("nothing was done")
    })?;
    Ok(if plan.hindered.is_some() { ExitCode::FoundSick } else { ExitCode::Ok })
}

/// Has a volume mounted anew and waits for the end. Ends with 1 when it did not succeed.
pub async fn remount(socket: &Path, volume: &str, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = order_and_follow(socket, volume, output, console).await;
    console.end(result)
}

async fn order_and_follow(
    socket: &Path,
    volume: &str,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let answer: OrderAnswer =
        http::post_json(socket, &path("remount", Some(volume)), &(), http::WITHIN).await?;
    let Some(plan) = answer.plan else { return Ok(ExitCode::Internal) };
    let is_text = matches!(output, Output::Table | Output::Wide);
    if is_text {
        console.print(&steps(&plan))?;
    }
    let outcome = follow(socket, &plan, is_text, console).await?;
    let is_done = matches!(outcome.outcome.as_str(), "changed" | "already_so");
    let report = Report { plan, outcome };
    console.show(&report, output, |report| {
        let took = age::span_of_seconds(report.outcome.took_seconds);
        line(&format!("{}: {}, after {took}", report.plan.volume, report.outcome.detail))
    })?;
    Ok(if is_done { ExitCode::Ok } else { ExitCode::FoundSick })
}

/// Waits for the end of a plan, and tells each step as it ends.
async fn follow(
    socket: &Path,
    plan: &PlanPreview,
    is_told: bool,
    console: &mut Console<'_>,
) -> Result<RepairView, ClientError> {
    let path = format!("/api/v1/volumes/{}", PercentEncoded(&plan.volume));
    let patience = Duration::try_from_secs_f64(plan.timeout_seconds).unwrap_or_default() + GRACE;
    let end = Instant::now() + patience;
    let mut told = 0;
    loop {
        let (_, answer): (_, VolumeAnswer) = http::get_json(socket, &path, (http::WITHIN, &[])).await?;
        let running = answer.volume.plan.filter(|running| running.id == plan.id);
        let last = answer.volume.last_repair.filter(|last| last.id == plan.id);
        let done = match (&running, &last) {
            (_, Some(last)) => last.steps.as_slice(),
            (Some(running), None) => running.done.as_slice(),
            (None, None) => &[],
        };
        for step in done.iter().skip(told).filter(|_| is_told) {
            console.print(&line(&format!("  done  {step}")))?;
        }
        told = told.max(done.len());
        if let Some(last) = last {
            return Ok(last);
        }
        if Instant::now() >= end {
            let seconds = patience.as_secs();
            return Err(ClientError::TimedOut { socket: socket.to_owned(), seconds });
        }
        sleep(PAUSE).await;
    }
}

fn line(text: &str) -> String {
    clean(text) + "\n"
}

/// The plan, one step after the other.
fn steps(plan: &PlanPreview) -> String {
    let reason = plan
        .reason
        .as_deref()
        .map_or_else(|| "it is not sick".to_owned(), |reason| format!("it is {reason}"));
    let old = plan.old.as_deref().map_or_else(|| "nothing".to_owned(), |old| format!("superblock {old}"));
    let mut text = line(&format!(
        "plan {} for {} at {}, by {} ({reason}; {old} is mounted there)",
        plan.id, plan.volume, plan.mountpoint, plan.method
    ));
    let list = |steps: &[StepView]| -> String {
        let step = |(number, step): (usize, &StepView)| {
            line(&format!("  {number}. {}", step.what)) + &line(&format!("       touches: {}", step.touches))
        };
        (1..).zip(steps).map(step).collect()
    };
    text.push_str(&list(&plan.steps));
    if !plan.undo.is_empty() {
        text.push_str("after a failure:\n");
        text.push_str(&list(&plan.undo));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample::mount_plan;

    #[test]
    fn a_plan_is_told_step_by_step_with_what_each_touches() {
        let text = steps(&PlanPreview::new(&mount_plan("models")));
        let expected = "\
plan 7 for models at /mnt/models, by mount (it is stale; superblock 0:77 is mounted there)
  1. mount filer1:/export/models (type nfs4) at /run/mountie/stage/7
       touches: makes a new mount at the private place /run/mountie/stage/7 and asks what is behind filer1:/export/models; /mnt/models stays as it is
  2. check that it answers, is new, and is the same volume
       touches: reads the new mount at /run/mountie/stage/7; changes nothing
  3. show it at /mnt/models, then detach the old one
       touches: /mnt/models shows the new mount instead of superblock 0:77; open files stay on the old one
  4. verify what /mnt/models shows now
       touches: reads /mnt/models; changes nothing
  5. clear /run/mountie/stage/7
       touches: the private place /run/mountie/stage/7: unmounts what is left there, removes the empty directory
after a failure:
  1. clear /run/mountie/stage/7
       touches: the private place /run/mountie/stage/7: unmounts what is left there, removes the empty directory
";
        assert_eq!(text, expected);
    }
}
