//! The smallest HTTP client that can ask the agent something, with a deadline on each step.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::wait::patiently;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Asks for a path. HTTP/1.0, so that the body ends with the connection.
///
/// # Errors
/// When nobody answers in time, or not in HTTP and UTF-8.
pub fn get(server: SocketAddr, path: &str, within: Duration) -> Result<Response> {
    let within = patiently(within);
    let mut stream =
        TcpStream::connect_timeout(&server, within).with_context(|| format!("cannot reach {server}"))?;
    stream.set_read_timeout(Some(within)).context("cannot set a timeout")?;
    stream.set_write_timeout(Some(within)).context("cannot set a timeout")?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    parse(&exchange(&mut stream, &request)?)
}

/// Posts to a path of a server that listens on a unix socket.
///
/// # Errors
/// As for [`get`].
pub fn post(socket: &Path, path: &str, body: &str, within: Duration) -> Result<Response> {
    let within = patiently(within);
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot reach {}", socket.display()))?;
    stream.set_read_timeout(Some(within)).context("cannot set a timeout")?;
    let length = body.len();
    let request = format!("POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    parse(&exchange(&mut stream, &request)?)
}

/// Sends a request as it stands, and reads all that is answered, head and body.
///
/// # Errors
/// When the connection breaks, or the answer is not UTF-8.
pub fn exchange(stream: &mut (impl Read + Write), request: &str) -> Result<String> {
    stream.write_all(request.as_bytes()).context("cannot ask")?;
    let mut bytes = Vec::new();
    let first = request.lines().next().unwrap_or_default();
    stream.read_to_end(&mut bytes).with_context(|| format!("no whole answer to {first}"))?;
    String::from_utf8(bytes).context("the answer is not text")
}

fn parse(text: &str) -> Result<Response> {
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no body")?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok(Response { status: status.context("the answer has no status")?, body: body.to_owned() })
}
