//! A hook that listens: the evidence is posted to it, the answer is the body of what comes back.

use std::io;

use agent_core::remediation::asking::NoAnswer;
use agent_core::volume::HookAddress;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::{ANSWER_LIMIT, Failure};

const HTTP_PORT: u16 = 80;

/// Posts. The caller limits the time.
pub(super) async fn ask(address: &HookAddress, evidence: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let unreachable = |error: io::Error| {
        Failure::new(NoAnswer::Unreachable, format!("{}: {error}", super::listener(address)))
    };
    match address {
        HookAddress::Http { authority, path } => {
            let (host, port) = host_and_port(authority);
            let stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
            exchange(stream, (authority, path), evidence).await
        }
        HookAddress::Unix(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
            exchange(stream, ("mountie", "/"), evidence).await
        }
    }
}

/// The brackets of an IPv6 address belong to the text, not to the address.
fn host_and_port(authority: &str) -> (&str, u16) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(HTTP_PORT)),
        Some(_) | None => (authority, HTTP_PORT),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    (host, path): (&str, &str),
    evidence: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(NoAnswer::Failed, error.to_string());
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(&error))?;
    let request = Request::post(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("mountie/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(evidence)))
        .map_err(|error| failed(&error))?;
    let ask = async {
        let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        if !status.is_success() {
            return Err(Failure::new(NoAnswer::Failed, format!("it answers with status {status}")));
        }
        let body = body.map_err(|error| Failure::new(NoAnswer::Bad, error.to_string()))?;
        Ok(body.to_bytes().to_vec())
    };
    // The connection does the work, the question waits for it; when the question is answered both end.
    tokio::pin!(ask, connection);
    tokio::select! {
        answer = &mut ask => answer,
        // The connection may end while the last of the answer waits to be picked up.
        _ = &mut connection => ask.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_ports() {
        for (authority, expected) in [
            ("127.0.0.1:8080", ("127.0.0.1", 8080)),
            ("host", ("host", 80)),
            ("[::1]:81", ("::1", 81)),
            ("[::1]", ("::1", 80)),
        ] {
            assert_eq!(host_and_port(authority), expected);
        }
    }
}
