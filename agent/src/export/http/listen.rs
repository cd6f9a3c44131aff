//! Binds the addresses and serves connections, so that no client can hold up others.
//!
//! A connection answers one request and ends: the head must come within `Limits::head`, and the whole must be
//! done within `Limits::whole`, also when the client reads slowly or not at all. Who reads metrics or asks for liveness
//! has room of its own and `Limits::brief`; who follows events may stay. `guests.rs` says who goes when there are too
//! many. Trade-off: a scraper connects anew each time, which costs it a handshake on loopback and us nothing.
//!
//! Over TCP everything is only read. The unix sockets answer root and the agent's own user alone, whatever has become
//! of their modes.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::time::Monotonic;
use axum::Router;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::failure;
use crate::sys::clock;
use crate::sys::peer::own_uid;
use guests::{Origin, Rooms, Stay};

pub(super) use guests::{Guest, Limits};

mod guests;

const LIMITS: Limits = Limits {
    head: Duration::from_secs(5),
    whole: Duration::from_secs(60),
    brief: Duration::from_secs(10),
    takes: Duration::from_secs(20),
    pulse: Duration::from_secs(15),
    silent: 64,
    scrapers: 64,
    readers: READERS,
    followers: 32,
};
/// The daemon of containers asks one thing after the other.
const FEW: Limits = Limits { silent: 8, scrapers: 1, readers: 16, followers: 0, ..LIMITS };
/// Readers' places of one listener.
pub(super) const READERS: usize = 64;
/// A head is a line and some fields. The same bounds what is written ahead of a reader.
const LARGEST_HEAD: usize = 16 << 10;
/// Fields of a head.
const MOST_FIELDS: usize = 64;
/// What is answered however many others read: what tells that the agent lives, and what it knows.
pub(super) const ALWAYS: [&str; 3] = ["/metrics", "/healthz", "/readyz"];
/// `?check=true` waits no longer, so that its answer still fits into the connection.
pub(super) const LONGEST_CHECK: Duration = Duration::from_secs(45);
/// The pause after a failed accept. It fails when descriptors run out, and would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For so long none must have failed before it is said that connections are accepted again.
const ACCEPT_QUIET: Duration = Duration::from_secs(60);
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
    #[error("another process answers at {}; stop it, or configure another path under [agent]", path.display())]
    SocketInUse {
        /// The path.
        path: PathBuf,
    },
    /// Something that must not be removed is at the path.
    #[error("{} exists and is not a socket; move it away, or configure another path under [agent]", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Anything else about the socket.
    #[error("failed to {operation} {}; check the path under [agent]", path.display())]
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

/// A socket of this agent in its place.
#[derive(Debug)]
pub struct Placed {
    path: PathBuf,
    inode: u64,
}

impl Placed {
    /// What was just bound; nothing when somebody has taken it away since.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let inode = fs::symlink_metadata(path).ok()?.ino();
        Some(Self { path: path.to_owned(), inode })
    }

    /// Takes it away when the agent ends, unless another one has its place: who finds a socket takes it for an agent
    /// that only does not answer. A daemon of containers tries it again and again.
    pub fn clear(self) {
        if Self::at(&self.path).is_some_and(|there| there.inode == self.inode) {
            // Best effort: the next agent replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
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

/// Serves on the socket of the volume plugin, as above, where few ask.
pub async fn serve_plugin(listener: UnixListener, router: Router) -> Infallible {
    serve(listener, router, FEW).await
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Peer {
    /// Anybody, over TCP, from this address; or a process that cannot be told.
    Remote(Option<IpAddr>),
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
    /// From where it comes, as others may come.
    fn origin(self) -> Origin {
        match self {
            Self::Remote(Some(address)) => Origin::Address(address),
            Self::Remote(None) => Origin::Process(0),
            Self::Local { pid, .. } => Origin::Process(pid),
        }
    }

    /// Whether it may have something changed: root, or the user as whom the agent itself runs, who could do all that
    /// the agent does.
    pub(super) fn may_change(self, own: u32) -> bool {
        match self {
            Self::Remote(_) => false,
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
        self.accept().await.map(|(stream, from)| (stream, Peer::Remote(Some(from.ip()))))
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.accept().await?;
        // Who cannot be told may read, and change nothing.
        let peer = stream.peer_cred().map_or(Peer::Remote(None), |found| {
            let pid = found.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
            Peer::Local { uid: found.uid(), pid }
        });
        Ok((stream, peer))
    }
}

pub(super) async fn serve(listener: impl Accept, router: Router, limits: Limits) -> Infallible {
    let rooms = Arc::new(Rooms::new(limits));
    let mut connections = JoinSet::new();
    let mut trouble = Trouble::default();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.next().await {
            Ok((stream, peer)) => {
                if let Some(failed) = trouble.is_over(clock::now()) {
                    info!(failed, "Connections are accepted again");
                }
                let guest = Guest::new(&rooms, peer.origin());
                rooms.silent.enter(&guest);
                connections.spawn(host(stream, peer, guest, router.clone(), limits));
            }
            Err(error) => {
                if trouble.begins(clock::now()) {
                    warn!(%error, "Accepting a connection failed, trying again");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
        // Who has just come asks before more are let in: a flood shows out none who has asked.
        yield_now().await;
    }
}

/// Connections that could not be accepted. Told once for as long as descriptors are short, which lets one connection in and
/// the next not, ten times a second.
#[derive(Default)]
struct Trouble {
    failed: u64,
    last: Option<Monotonic>,
}

impl Trouble {
    /// Accepting failed. Whether that is news.
    fn begins(&mut self, now: Monotonic) -> bool {
        self.failed += 1;
        self.last.replace(now).is_none()
    }

    /// Accepting worked. How often it had failed, when that was long enough ago.
    fn is_over(&mut self, now: Monotonic) -> Option<u64> {
        self.last.take_if(|last| now.since(*last) >= ACCEPT_QUIET)?;
        Some(std::mem::take(&mut self.failed))
    }
}

/// Serves a guest until it has its answer, its time is up, or another one needs the room.
async fn host<S>(stream: S, peer: Peer, guest: Arc<Guest>, router: Router, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let served = serve_connection((stream, peer), Arc::clone(&guest), router, limits);
    tokio::select! {
        () = guest.shown_out.notified() => {}
        () = served => {}
    }
    guest.is_gone();
}

async fn serve_connection<S>((stream, peer): (S, Peer), guest: Arc<Guest>, router: Router, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let routes = TowerToHyperService::new(router);
    let asking = Arc::clone(&guest);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let refused = refuse(peer, request.method()).or_else(|| asking.seat(request.uri().path()));
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&asking));
        let answer = refused.map_or_else(|| Ok(routes.call(request)), |refusal| Err(Box::new(refusal)));
        async move {
            match answer {
                Ok(answer) => answer.await,
                Err(refusal) => Ok(*refusal),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(LARGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // How a client leaves is its own affair.
    if timeout(limits.brief, &mut connection).await.is_ok() {
        return;
    }
    if guest.stay() == Stay::Whole
        && timeout(limits.whole.saturating_sub(limits.brief), &mut connection).await.is_ok()
    {
        return;
    }
    // Also one that has become a follower meanwhile.
    if guest.stay() == Stay::UntilOver {
        tokio::select! {
            _ = &mut connection => return,
            () = guest.until_over() => {}
        }
        let _ = timeout(limits.brief, connection).await;
    }
}

/// Why a request is not even looked at.
fn refuse(peer: Peer, method: &Method) -> Option<Response> {
    match peer {
        Peer::Remote(_) if ![Method::GET, Method::HEAD].contains(method) => {
            let error = format!(
                "{method} is not offered over TCP, where everything is read with GET; changes are made through the \
                 agent's unix socket, by the commands of mountie on the node"
            );
            let mut refusal = failure(StatusCode::METHOD_NOT_ALLOWED, error, Vec::new());
            refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            Some(refusal)
        }
        Peer::Local { uid, .. } if !peer.may_change(own_uid()) => {
            let error = format!(
                "only root and the agent's own user may use the agent's unix socket, and uid {uid} asked; try again \
                 as root, or read over TCP"
            );
            Some(failure(StatusCode::FORBIDDEN, error, Vec::new()))
        }
        Peer::Remote(_) | Peer::Local { .. } => None,
    }
}

impl Guest {
    /// Gives the guest the room that its question has; the answer, where there is none.
    fn seat(self: &Arc<Self>, path: &str) -> Option<Response> {
        let rooms = self.rooms();
        let may_stay = if ALWAYS.contains(&path) {
            rooms.scrapers.enter(self);
            true
        } else {
            self.read()
        };
        if may_stay {
            rooms.silent.leave(self);
            return None;
        }
        let error = "too many others are reading answers of the agent; try again".to_owned();
        Some(try_again(error))
    }
}

/// What one too many is told.
pub(super) fn try_again(error: String) -> Response {
    let mut busy = failure(StatusCode::SERVICE_UNAVAILABLE, error, Vec::new());
    busy.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    busy
}

#[cfg(test)]
mod trouble {
    use super::*;

    #[test]
    fn connections_that_fail_again_and_again_are_told_of_once_and_their_end_when_it_lasts() {
        let at = |tenths: u64| Monotonic::from_nanos(tenths * 100_000_000);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.is_over(at(0)), None);
        let told = (0..100)
            .filter(|tenth| trouble.begins(at(2 * tenth)) | trouble.is_over(at(2 * tenth + 1)).is_some());
        assert_eq!(told.count(), 1);
        assert_eq!(trouble.is_over(at(200 + 600)), Some(100));
        assert_eq!(trouble.is_over(at(900)), None);
        assert!(trouble.begins(at(1000)), "it is news again");
    }
}
