//! The smallest HTTP client that can ask the agent something, with a deadline on each step.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n").context("cannot ask")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).with_context(|| format!("no whole answer to {path}"))?;
    parse(&String::from_utf8(bytes).context("the answer is not text")?)
}

fn parse(text: &str) -> Result<Response> {
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no body")?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok(Response { status: status.context("the answer has no status")?, body: body.to_owned() })
}
