//! `mountie ack VOLUME`: a person knows of the data that a volume has lost.

use std::path::Path;

use hyper::{Method, StatusCode};

use super::table::clean;
use super::{ClientError, Console, Output, http};
use crate::exit_code::ExitCode;
use crate::export::percent::PercentEncoded;
use crate::export::view::AckAnswer;

/// Acknowledges and prints. Ends with 1 when there was nothing to acknowledge.
pub async fn ack(socket: &Path, volume: &str, output: Output, console: &mut Console<'_>) -> ExitCode {
    let result = ask_and_print(socket, volume, output, console).await;
    console.end(result)
}

async fn ask_and_print(
    socket: &Path,
    volume: &str,
    output: Output,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let path = format!("/api/v1/ack/{}", PercentEncoded(volume));
    let limits = (http::WITHIN, [StatusCode::CONFLICT].as_slice());
    let (_, answer): (_, AckAnswer) = http::ask_json(socket, (Method::POST, &path), limits).await?;
    let text = |answer: &AckAnswer| format!("{}\n", clean(&format!("{}: {}", answer.volume, answer.message)));
    console.show(&answer, output, text)?;
    Ok(if answer.acknowledged { ExitCode::Ok } else { ExitCode::FoundSick })
}
