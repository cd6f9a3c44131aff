//! A hook that listens: the evidence is posted to it, the answer is the body of what comes back.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use agent_core::remediation::asking::NoAnswer;
use agent_core::volume::HookAddress;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::places::Place;
use super::{ANSWER_LIMIT, Failure};

const HTTP_PORT: u16 = 80;
/// With so many hooks that are still looked for, no other is.
const CONNECTING_MAX: usize = 8;

/// Posts. The caller limits the time; `connecting` counts the threads that look for a socket or a name.
pub(super) async fn ask(
    address: &HookAddress,
    evidence: Vec<u8>,
    connecting: &Arc<AtomicUsize>,
) -> Result<Vec<u8>, Failure> {
    let unreachable = |error: io::Error| {
        Failure::new(NoAnswer::Unreachable, format!("{}: {error}", super::listener(address)))
    };
    match address {
        HookAddress::Http { authority, path } => {
            let (host, port) = host_and_port(authority);
            let addresses = look_up(host, port, connecting).await.map_err(unreachable)?;
            let stream = TcpStream::connect(addresses.as_slice()).await.map_err(unreachable)?;
            exchange(stream, (authority, path), evidence).await
        }
        HookAddress::Unix(socket) => {
            let stream = connect(socket, connecting).await.map_err(unreachable)?;
            exchange(stream, ("mountie", "/"), evidence).await
        }
    }
}

/// Connects on a thread of its own: the kernel looks up the socket's path within the call, which hangs where the path
/// does. Such a thread stays until the kernel lets it go, whoever has given up meanwhile.
async fn connect(socket: &str, connecting: &Arc<AtomicUsize>) -> io::Result<UnixStream> {
    let place = Place::take(connecting, CONNECTING_MAX).ok_or_else(too_many)?;
    let (socket, runtime) = (socket.to_owned(), Handle::current());
    let connect = move || {
        let _place = place;
        runtime.block_on(UnixStream::connect(socket))
    };
    tokio::task::spawn_blocking(connect).await.map_err(io::Error::other)?
}

/// Looks a name up on a thread of its own, which stays as long as a service of names does not answer it.
async fn look_up(host: &str, port: u16, connecting: &Arc<AtomicUsize>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let place = Place::take(connecting, CONNECTING_MAX).ok_or_else(too_many)?;
    let host = host.to_owned();
    let look_up = move || {
        let _place = place;
        (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
    };
    tokio::task::spawn_blocking(look_up).await.map_err(io::Error::other)?
}

fn too_many() -> io::Error {
    io::Error::other(format!("{CONNECTING_MAX} attempts to find a hook do not end"))
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
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn no_more_hooks_are_looked_for_at_once_than_a_few() {
        let taken = Arc::default();
        let places: Vec<_> = std::iter::from_fn(|| Place::take(&taken, CONNECTING_MAX)).collect();
        assert_eq!((places.len(), taken.load(Ordering::Relaxed)), (CONNECTING_MAX, CONNECTING_MAX));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(connect("/nonexistent/ask.sock", &taken)).unwrap_err();
        assert!(refused.to_string().contains("do not end"), "{refused}");
        let unnamed = runtime.block_on(look_up("localhost", 80, &taken)).unwrap_err();
        assert!(unnamed.to_string().contains("do not end"), "{unnamed}");
        // What is no name needs no thread.
        let address = runtime.block_on(look_up("::1", 80, &taken)).unwrap();
        assert_eq!(address, ["[::1]:80".parse().unwrap()]);
        drop(places);
        assert!(!runtime.block_on(look_up("localhost", 80, &taken)).unwrap().is_empty());
        let missing = runtime.block_on(connect("/nonexistent/ask.sock", &taken)).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

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
