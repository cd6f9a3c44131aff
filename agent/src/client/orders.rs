//! `mountie pause`, `mountie resume` and `mountie state forget`: orders that are followed at once.

use std::path::Path;

use super::table::clean;
use super::{ClientError, Console, Output, http};
use crate::exit_code::ExitCode;
use crate::export::percent::PercentEncoded;
use crate::export::view::{OrderAnswer, PauseOrder};

/// Stops the repairs of a volume, or of all.
pub async fn pause(
    socket: &Path,
    volume: Option<&str>,
    order: &PauseOrder,
    output: Output,
    console: &mut Console<'_>,
) -> ExitCode {
    let result = give(socket, &path("pause", volume), order, output, console).await;
    console.end(result)
}

/// Lets the repairs of a volume, or of all, go on.
pub async fn resume(
    socket: &Path,
    volume: Option<&str>,
    output: Output,
    console: &mut Console<'_>,
) -> ExitCode {
    let result = give(socket, &path("resume", volume), &(), output, console).await;
    console.end(result)
}

/// Has the agent forget what it keeps of a volume.
pub async fn forget(socket: &Path, volume: &str, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = give(socket, &path("forget", Some(volume)), &(), output, console).await;
    console.end(result)
}

/// The path of an order about one volume, or about the node.
pub(super) fn path(word: &str, volume: Option<&str>) -> String {
    match volume {
        Some(volume) => format!("/api/v1/{word}/{}", PercentEncoded(volume)),
        None => format!("/api/v1/{word}"),
    }
}

async fn give(
    socket: &Path,
    path: &str,
    order: &impl serde::Serialize,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let answer: OrderAnswer = http::post_json(socket, path, order, http::WITHIN).await?;
    console.show(&answer, output, render)?;
    Ok(if answer.done { ExitCode::Ok } else { ExitCode::FoundSick })
}

fn render(answer: &OrderAnswer) -> String {
    let subject = answer.volume.as_deref().unwrap_or("all volumes");
    clean(&format!("{subject}: {}", answer.message)) + "\n"
}
