//! The smallest HTTP client that can ask the agent and Prometheus, with a deadline on each step.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const WITHIN: Duration = Duration::from_secs(30);

/// The body and the content type of a page, asked for in HTTP/1.0, so that it ends with the connection.
///
/// # Errors
/// When nobody answers in time, or not with 200.
pub(super) fn get(server: SocketAddr, path: &str, accept: &str) -> Result<(String, String)> {
    let mut stream =
        TcpStream::connect_timeout(&server, WITHIN).with_context(|| format!("cannot reach {server}"))?;
    stream.set_read_timeout(Some(WITHIN)).context("cannot set a timeout")?;
    stream.set_write_timeout(Some(WITHIN)).context("cannot set a timeout")?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {server}\r\nAccept: {accept}\r\n\r\n")
        .context("cannot ask")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).with_context(|| format!("no whole answer to {path}"))?;
    let text = String::from_utf8(bytes).context("the answer is not text")?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no body")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        bail!("{path} answers {status}: {body}");
    }
    let kind = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-type").then_some(value)
    });
    Ok((body.to_owned(), kind.unwrap_or_default().to_owned()))
}

/// A text as it stands in a query.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_escaped() {
        assert_eq!(escaped("a{b=~\"c|d\"} > 1"), "a%7Bb%3D~%22c%7Cd%22%7D%20%3E%201");
    }
}
