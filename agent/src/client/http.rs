//! Asks the agent: one request, one connection, a deadline for the whole.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::ClientError;
use crate::export::view::ErrorBody;

/// The agent answers from memory; more than this is a fault.
pub(super) const WITHIN: Duration = Duration::from_secs(10);
/// A probe has a deadline of its own, which the agent keeps; this lies beyond the longest.
pub(super) const WITHIN_PROBE: Duration = Duration::from_secs(60);
/// Beyond any sensible answer: ten thousand volumes with their histories.
const LARGEST: usize = 256 << 20;

/// The agent sends something at least every 15 seconds to those who follow.
const SILENCE: Duration = Duration::from_secs(45);
/// Beyond any event: an incident of ten thousand volumes.
const LONGEST_LINE: usize = 16 << 20;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Sends JSON to a path and reads the JSON that comes back.
pub(crate) async fn post_json<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    body: &impl Serialize,
    within: Duration,
) -> Result<T, ClientError> {
    let not_understood = |source| ClientError::NotUnderstood { socket: socket.to_owned(), source };
    let body = serde_json::to_vec(body).map_err(not_understood)?;
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    let answer = ask(socket, (request, body.into()), within).await?;
    read_json(socket, &answer, &[]).map(|(_, value)| value)
}

/// Asks for a path, whatever the status.
#[cfg(test)]
pub(crate) async fn get(socket: &Path, path: &str, within: Duration) -> Result<Answer, ClientError> {
    ask(socket, (Request::get(path), Bytes::new()), within).await
}

async fn ask(
    socket: &Path,
    (request, body): (Builder, Bytes),
    within: Duration,
) -> Result<Answer, ClientError> {
    match timeout(within, exchange(socket, request, body)).await {
        Ok(answer) => answer,
        Err(_) => Err(ClientError::TimedOut { socket: socket.to_owned(), seconds: within.as_secs() }),
    }
}

/// Asks for a path and reads its JSON. Statuses in `also` count as answers, others are what the agent refuses.
pub(super) async fn get_json<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    limits: (Duration, &[StatusCode]),
) -> Result<(StatusCode, T), ClientError> {
    ask_json(socket, (Method::GET, path), limits).await
}

/// The same with another method: what changes something.
pub(super) async fn ask_json<T: DeserializeOwned>(
    socket: &Path,
    (method, path): (Method, &str),
    (within, also): (Duration, &[StatusCode]),
) -> Result<(StatusCode, T), ClientError> {
    let request = Request::builder().method(method).uri(path);
    read_json(socket, &ask(socket, (request, Bytes::new()), within).await?, also)
}

fn read_json<T: DeserializeOwned>(
    socket: &Path,
    answer: &Answer,
    also: &[StatusCode],
) -> Result<(StatusCode, T), ClientError> {
    let not_understood = |source| ClientError::NotUnderstood { socket: socket.to_owned(), source };
    if answer.status.is_success() || also.contains(&answer.status) {
        let value = serde_json::from_slice(&answer.body).map_err(not_understood)?;
        return Ok((answer.status, value));
    }
    Err(refusal(socket, answer))
}

/// What the agent says instead of an answer.
fn refusal(socket: &Path, answer: &Answer) -> ClientError {
    match serde_json::from_slice::<ErrorBody>(&answer.body) {
        Ok(ErrorBody { error, known }) => {
            ClientError::Refused { status: answer.status.as_u16(), error, known }
        }
        Err(source) => ClientError::NotUnderstood { socket: socket.to_owned(), source },
    }
}

async fn exchange(socket: &Path, request: Builder, body: Bytes) -> Result<Answer, ClientError> {
    let stream = UnixStream::connect(socket).await.map_err(|source| unreachable_agent(socket, source))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|source| broken(socket, source))?;
    let request = request
        .header(header::HOST, "mountie")
        .body(Full::new(body))
        .map_err(|source| broken(socket, source))?;
    let ask = async {
        let response = sender.send_request(request).await.map_err(|source| broken(socket, source))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|source| broken(socket, source))?.to_bytes();
        Ok(Answer { status, body })
    };
    // The connection does the work, the question waits for it; when the question is answered both end.
    tokio::pin!(ask, connection);
    tokio::select! {
        answer = &mut ask => answer,
        // The connection may end while the last of the answer waits to be picked up.
        _ = &mut connection => ask.await,
    }
}

/// An answer that comes line by line, for as long as it lasts.
pub(super) struct Lines {
    socket: PathBuf,
    body: Incoming,
    /// What has come and is no whole line yet.
    rest: Vec<u8>,
    connection: JoinHandle<()>,
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Asks for an answer that comes line by line.
pub(super) async fn lines(socket: &Path, path: &str) -> Result<Lines, ClientError> {
    match timeout(WITHIN, begin_lines(socket, path)).await {
        Ok(begun) => begun,
        Err(_) => Err(ClientError::TimedOut { socket: socket.to_owned(), seconds: WITHIN.as_secs() }),
    }
}

async fn begin_lines(socket: &Path, path: &str) -> Result<Lines, ClientError> {
    let stream = UnixStream::connect(socket).await.map_err(|source| unreachable_agent(socket, source))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|source| broken(socket, source))?;
    let connection = tokio::spawn(async move {
        // That it broke is seen by whoever reads the body.
        let _ = connection.await;
    });
    let request = Request::get(path)
        .header(header::HOST, "mountie")
        .header(header::ACCEPT, "application/x-ndjson")
        .body(Full::new(Bytes::new()))
        .map_err(|source| broken(socket, source))?;
    let response = sender.send_request(request).await.map_err(|source| broken(socket, source))?;
    let status = response.status();
    let lines = Lines { socket: socket.to_owned(), body: response.into_body(), rest: Vec::new(), connection };
    if status.is_success() { Ok(lines) } else { Err(lines.refusal(status).await) }
}

fn broken(socket: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Broken { socket: socket.to_owned(), source: source.into() }
}

impl Lines {
    /// The next line; `None` at a proper end.
    pub(super) async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if self.rest.len() > LONGEST_LINE {
                return Err(broken(&self.socket, "a line has no end"));
            }
            match timeout(SILENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.rest.extend(frame.into_data().unwrap_or_default()),
                Ok(Some(Err(source))) => return Err(broken(&self.socket, source)),
                Ok(None) => return Ok(None),
                Err(_) => {
                    let (socket, seconds) = (self.socket.clone(), SILENCE.as_secs());
                    return Err(ClientError::TimedOut { socket, seconds });
                }
            }
        }
    }

    async fn refusal(mut self, status: StatusCode) -> ClientError {
        match Limited::new(&mut self.body, LONGEST_LINE).collect().await {
            Ok(body) => refusal(&self.socket, &Answer { status, body: body.to_bytes() }),
            Err(source) => broken(&self.socket, source),
        }
    }
}

fn unreachable_agent(socket: &Path, source: std::io::Error) -> ClientError {
    let socket = socket.to_owned();
    match source.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoAgent { socket },
        ErrorKind::PermissionDenied => ClientError::NotPermitted { socket },
        _ => ClientError::Connect { socket, source },
    }
}
