//! Binds the addresses and serves connections, so that no client can hold up others.
//!
//! A connection answers one request and ends: the head must come within `Limits::head`, and the whole must be
//! done within `Limits::whole`, also when the client reads slowly or not at all. At most
//! `Limits::connections` are open on a listener; the next ones wait in the kernel's backlog. Only `Limits::readers` of
//! them read anything but metrics and liveness; all others end within `Limits::brief`. So who reads slowly keeps a
//! scraper out for that long and no longer, however many of them there are. Trade-off: a scraper connects anew each
//! time, which costs it a handshake on loopback and us nothing.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::failure;

/// What clients may use up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The head of a request must be there by then.
    pub(super) head: Duration,
    /// A connection ends by then.
    pub(super) whole: Duration,
    /// One without a reader's place ends by then: a scrape, a question about liveness, one that asks for nothing.
    pub(super) brief: Duration,
    /// Connections that are open on one listener.
    pub(super) connections: usize,
    /// Those of them that may read anything but [`ALWAYS`].
    pub(super) readers: usize,
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(5),
    whole: Duration::from_secs(60),
    brief: Duration::from_secs(10),
    connections: 128,
    readers: READERS,
};
/// Readers' places of one listener.
pub(super) const READERS: usize = 96;
/// What is answered however many others read: what tells that the agent lives, and what it knows.
const ALWAYS: [&str; 3] = ["/metrics", "/healthz", "/readyz"];
/// `?check=true` waits no longer, so that its answer still fits into the connection.
pub(super) const LONGEST_CHECK: Duration = Duration::from_secs(45);
/// The pause after a failed accept. It fails when descriptors run out, and would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// An agent that is alive accepts within this time; a socket that does not is still somebody's.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Why an address cannot be served.
#[derive(thiserror::Error, Debug)]
pub enum ListenError {
    /// Somebody has the port.
    #[error(
        "{address} is in use by another process; set [agent] listen to another address, or to \"\" to go without TCP"
    )]
    AddressInUse {
        /// The address.
        address: String,
    },
    /// The address is another host's.
    #[error("{address} is not an address of this host; set [agent] listen to one that is")]
    AddressNotHere {
        /// The address.
        address: String,
    },
    /// A port below 1024 without the privilege.
    #[error("listening on {address} is not permitted; set [agent] listen to a port above 1023")]
    AddressRefused {
        /// The address.
        address: String,
    },
    /// Anything else about TCP.
    #[error("failed to listen on {address}; check [agent] listen")]
    Address {
        /// The address.
        address: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An agent is alive at the socket.
    #[error("another process answers at {}; stop it, or set [agent] socket to another path", path.display())]
    SocketInUse {
        /// The path.
        path: PathBuf,
    },
    /// Something that must not be removed is at the path.
    #[error("{} exists and is not a socket; move it away, or set [agent] socket to another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Anything else about the socket.
    #[error("failed to {operation} {}; check [agent] socket", path.display())]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// With which path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Listens on a TCP address, `host:port`.
///
/// # Errors
/// When the address cannot be used; the text names the remedy.
pub async fn bind_tcp(address: &str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| {
        let address = address.to_owned();
        match source.kind() {
            ErrorKind::AddrInUse => ListenError::AddressInUse { address },
            ErrorKind::AddrNotAvailable => ListenError::AddressNotHere { address },
            ErrorKind::PermissionDenied => ListenError::AddressRefused { address },
            _ => ListenError::Address { address, source },
        }
    })
}

/// Listens on a unix socket that only its owner may use. A socket that a dead agent left is replaced; one that
/// somebody answers on, or a file of another kind, is not.
///
/// # Errors
/// When the path cannot be used; the text names the remedy.
pub async fn bind_unix(path: &Path) -> Result<UnixListener, ListenError> {
    let failed =
        |operation, path: &Path, source| ListenError::Socket { operation, path: path.to_owned(), source };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
        made.map_err(|source| failed("create the directory", parent, source))?;
    }
    refuse_if_taken(path).await?;
    // Made under another name and renamed when its mode is right: at no moment can others connect, and at no
    // moment is the path without a socket.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(name);
    match fs::remove_file(&fresh) {
        Err(source) if source.kind() != ErrorKind::NotFound => return Err(failed("replace", &fresh, source)),
        _ => {}
    }
    let listener =
        UnixListener::bind(&fresh).map_err(|source| failed("create the socket", &fresh, source))?;
    let placed = fs::set_permissions(&fresh, Permissions::from_mode(0o600))
        .map_err(|source| failed("restrict", &fresh, source))
        .and_then(|()| {
            fs::rename(&fresh, path).map_err(|source| failed("place the socket at", path, source))
        });
    if let Err(error) = placed {
        // Best effort: the error that is returned says more than a leftover would.
        let _ = fs::remove_file(&fresh);
        return Err(error);
    }
    Ok(listener)
}

async fn refuse_if_taken(path: &Path) -> Result<(), ListenError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(source) if source.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(ListenError::Socket { operation: "look at", path: path.to_owned(), source });
        }
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    }
    match timeout(ANSWER_WITHIN, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        // It vanished in between.
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Answered, too busy to answer, or not ours to ask: in every case it may be alive.
        _ => Err(ListenError::SocketInUse { path: path.to_owned() }),
    }
}

/// Serves on TCP until it is dropped; open connections end with it.
pub async fn serve_tcp(listener: TcpListener, router: Router) -> Infallible {
    serve(listener, router, LIMITS).await
}

/// Serves on the unix socket until it is dropped; open connections end with it.
pub async fn serve_unix(listener: UnixListener, router: Router) -> Infallible {
    serve(listener, router, LIMITS).await
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Peer {
    /// Anybody, over TCP.
    Remote,
    /// A process of this node, as the kernel knows it since it connected.
    ///
    /// kernel: `SO_PEERCRED`, `unix_stream_connect`, net/unix/af_unix.c: taken at the connect, all versions.
    Local {
        /// Its effective user id.
        uid: u32,
        /// Its process id; 0 where it is in another id namespace.
        pid: u32,
    },
}

impl Peer {
    /// Whether it may have something changed: root, or the user as whom the agent itself runs, who could do all that
    /// the agent does.
    pub(super) fn may_change(self, own: u32) -> bool {
        match self {
            Self::Remote => false,
            Self::Local { uid, .. } => uid == 0 || uid == own,
        }
    }
}

/// What the two kinds of listener have in common.
pub(super) trait Accept {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        self.accept().await.map(|(stream, _)| (stream, Peer::Remote))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.accept().await?;
        // Who cannot be told may read, and change nothing.
        let peer = stream.peer_cred().map_or(Peer::Remote, |found| {
            let pid = found.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
            Peer::Local { uid: found.uid(), pid }
        });
        Ok((stream, peer))
    }
}

pub(super) async fn serve(listener: impl Accept, router: Router, limits: Limits) -> Infallible {
    let free = Arc::new(Semaphore::new(limits.connections));
    let readers = Arc::new(Semaphore::new(limits.readers));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // The semaphore is never closed, so this is always a permit.
        let permit = Arc::clone(&free).acquire_owned().await;
        match listener.next().await {
            Ok((stream, peer)) => {
                let (router, readers) = (router.clone(), Arc::clone(&readers));
                connections.spawn(async move {
                    let _permit = permit;
                    serve_connection((stream, peer), router, readers, limits).await;
                });
            }
            Err(error) => {
                warn!(%error, "Accepting a connection failed, trying again");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection<S>(
    (stream, peer): (S, Peer),
    router: Router,
    readers: Arc<Semaphore>,
    limits: Limits,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let routes = TowerToHyperService::new(router);
    // Held until the connection ends: the answer is made long before a slow client has read it.
    let place = Arc::new(OnceLock::new());
    let taken = Arc::clone(&place);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        // One connection has one request, so its place is free to be set.
        let take_place = || Arc::clone(&readers).try_acquire_owned().map(|permit| taken.set(permit)).is_ok();
        let may_read = ALWAYS.contains(&request.uri().path()) || take_place();
        let answer = may_read.then(|| routes.call(request));
        async move {
            match answer {
                Some(answer) => answer.await,
                None => Ok(too_many_readers()),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // How a client leaves is its own affair.
    if timeout(limits.brief, &mut connection).await.is_err() && place.get().is_some() {
        let _ = timeout(limits.whole.saturating_sub(limits.brief), connection).await;
    }
}

fn too_many_readers() -> Response {
    let error = "too many others are reading answers of the agent; try again".to_owned();
    failure(StatusCode::SERVICE_UNAVAILABLE, error, Vec::new())
}
