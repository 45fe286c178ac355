//! Sockets and clients.

use crate::body::{Outgoing, Turns};
use crate::check::check;
use crate::identity::{Identity, IdentityError, IdentityFiles};
use crate::seats::{Full, Owner, Seat, Seats};
use crate::site::{Answer, Method, Now, Request, Site};
use crate::slow::{SLOW_THREADS, Slow, Turn};
use crate::socket::talk;
use crate::timed::Timed;
use base::DurNs;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::task::spawn_blocking;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Limits for clients. The defaults suit a page with a few viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of clients. A further connection gets one short answer, or a WebSocket if the site has a
    /// [reserve](Site::has_reserve) for it.
    pub clients_max: usize,
    /// Maximum number of clients of one local user or one remote address.
    pub clients_of_one_max: usize,
    /// Maximum size in bytes of the request line and headers.
    pub header_bytes_max: usize,
    /// Maximum size in bytes of a request body.
    pub body_bytes_max: usize,
    /// Maximum time to receive the headers of a request, and to receive its body. Also applies between requests of a connection.
    pub request_within: DurNs,
    /// Maximum time without progress when sending to a client.
    pub stalled_max: DurNs,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients_max: 64,
            clients_of_one_max: 32,
            header_bytes_max: 16 << 10,
            body_bytes_max: 1 << 20,
            request_within: DurNs::from_secs(10),
            stalled_max: DurNs::from_secs(10),
        }
    }
}

/// Number of threads for short waits: owners of connections, logins, files of a page.
const WAITING_THREADS: usize = 4;
/// Maximum number of unsent bytes in the kernel per client. Bytes there cannot be replaced by newer data.
const UNSENT_MAX: u32 = 16 << 10;
/// Number of connections in addition to [`Limits::clients_max`], and of one owner among them: a browser opens six at once.
/// Further ones are refused immediately.
const RESERVE_MAX: usize = 32;
const RESERVE_OF_ONE_MAX: usize = 8;
/// Maximum time for each of them, except a WebSocket with a reserved seat.
const RESERVE_WITHIN: Duration = Duration::from_secs(30);
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Maximum interval between two rounds of the accepting thread.
const ROUND: Duration = Duration::from_millis(500);
/// Maximum time to finish work after the end.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Headers of all answers: other pages cannot embed or read them, the browser does not guess types, and caches store nothing.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A listening server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    names: Vec<String>,
    limits: Limits,
    identity: Option<Identity>,
    each_round: Box<dyn FnMut() + Send>,
}

/// Explains why an ordinary user cannot have a port.
fn with_remedy(error: io::Error, address: SocketAddr) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let remedy =
        "a port below 1024 needs root, the capability net_bind_service or a lower net.ipv4.ip_unprivileged_port_start";
    io::Error::new(error.kind(), format!("{error}; {remedy}, port {} was given", address.port()))
}

impl Server {
    /// Listens. `names` are further names of this machine, in addition to its addresses (and `localhost` on loopback).
    ///
    /// # Errors
    /// An error from the kernel: the address is in use or not local.
    pub fn bind(address: SocketAddr, names: Vec<String>, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address).map_err(|error| with_remedy(error, address))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, names, limits, identity: None, each_round: Box::new(|| {}) })
    }

    /// Serves only TLS if there is a certificate, which is read again when its files change.
    ///
    /// # Errors
    /// A file cannot be read or used, or the build has no TLS.
    pub fn with_identity(mut self, files: Option<IdentityFiles>) -> Result<Self, IdentityError> {
        self.identity = files.map(Identity::open).transpose()?;
        Ok(self)
    }

    /// Calls `each_round` on the thread of all connections, at least every half second. It must not block.
    #[must_use]
    pub fn with_rounds(mut self, each_round: impl FnMut() + Send + 'static) -> Self {
        self.each_round = Box::new(each_round);
        self
    }

    /// The URL for a browser, such as `http://127.0.0.1:8765`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", if self.identity.is_some() { "https" } else { "http" }, self.address)
    }

    /// The address. If port 0 was requested, it contains the chosen port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is readable: a non-blocking pipe, socket or signalfd. Blocks; starts only a few threads.
    ///
    /// # Errors
    /// An error from the kernel at the start.
    pub fn run(self, site: Arc<dyn Site>, stop: OwnedFd) -> io::Result<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_io().enable_time().max_blocking_threads(WAITING_THREADS + SLOW_THREADS).thread_name("web-files");
        let runtime = runtime.build()?;
        let ended = runtime.block_on(self.accept(site, stop));
        runtime.shutdown_timeout(END_WITHIN);
        ended
    }

    async fn accept(mut self, site: Arc<dyn Site>, stop: OwnedFd) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        // Any pollable file descriptor is possible; it is never read.
        let stop = pipe::Receiver::from_file_unchecked(stop.into())?;
        let (site, names, limits, identity) = (site, self.names, self.limits, self.identity);
        let seats = Seats::new(limits.clients_of_one_max, limits.clients_max);
        let reserve = Seats::new(RESERVE_OF_ONE_MAX, RESERVE_MAX);
        let shared = Arc::new(Shared { site, names, limits, identity, seats, reserve, slow: Slow::default() });
        loop {
            (self.each_round)();
            let (stopped, arrives) = (pin!(stop.readable()), pin!(listener.accept()));
            let accepted = match tokio::time::timeout(ROUND, select(stopped, arrives)).await {
                Ok(Either::Left((ended, _))) => return ended,
                Ok(Either::Right((accepted, _))) => accepted,
                Err(_) => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Connections are accepted one after the other, so excess connections wait in the listen queue.
                    let Ok(local) = stream.local_addr() else { continue };
                    let owner = owner(peer, local).await;
                    match shared.seat(owner) {
                        Ok(seat) => {
                            let place = Place { peer, local, owner, seat };
                            drop(tokio::spawn(client(stream, place, shared.clone())));
                        }
                        Err(full) => turn_away(&stream, &refusal(full, owner, limits)),
                    }
                }
                // Probably out of file descriptors, which may become available again.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// The data shared by all clients.
struct Shared {
    site: Arc<dyn Site>,
    names: Vec<String>,
    limits: Limits,
    identity: Option<Identity>,
    seats: Seats,
    reserve: Seats,
    slow: Slow,
}

impl Shared {
    /// Takes an ordinary seat, or one of the reserve with the reason why there is no ordinary one.
    fn seat(&self, owner: Owner) -> Result<(Seat, Option<Full>), Full> {
        match self.seats.take(owner) {
            Ok(seat) => Ok((seat, None)),
            Err(full) => self.reserve.take(owner).map(|seat| (seat, Some(full))).map_err(|_| full),
        }
    }
}

/// The addresses, owner and seat of a connection.
struct Place {
    peer: SocketAddr,
    local: SocketAddr,
    owner: Owner,
    /// The seat; for one of the reserve, the reason why there is no ordinary one.
    seat: (Seat, Option<Full>),
}

/// A connection.
struct Connection {
    shared: Arc<Shared>,
    place: Place,
}

impl Connection {
    /// The reason why the connection has only a seat of the reserve; `None` for an ordinary seat.
    fn short_of_seats(&self) -> Option<String> {
        self.place.seat.1.map(|full| refusal(full, self.place.owner, self.shared.limits))
    }

    /// The turns for slow work of this connection.
    fn turns(&self) -> Turns {
        Turns { slow: self.shared.slow.clone(), owner: self.place.owner }
    }
}

/// The text for a missing seat.
fn refusal(full: Full, owner: Owner, limits: Limits) -> String {
    match full {
        Full::Owner => {
            let most = limits.clients_of_one_max;
            format!("{owner} has {most} connections already; close another one and try again")
        }
        Full::All => {
            let most = limits.clients_max;
            format!("all {most} connections are taken; close another one and try again")
        }
    }
}

/// The current time on both clocks.
pub(crate) fn now() -> Now {
    Now { wall_ns: i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX), mono: sys::clock::mono_now() }
}

/// Refuses an excess client. The part of the answer that the socket does not accept immediately is dropped.
fn turn_away(stream: &TcpStream, text: &str) {
    // Unread input would make the kernel discard the answer.
    let _ = stream.try_read(&mut [0; 4096]);
    let text = format!("{text}\n");
    let length = text.len();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Type: text/plain\r\n";
    let _ = stream.try_write(format!("{head}Content-Length: {length}\r\n\r\n{text}").as_bytes());
}

/// The owner of a connection.
async fn owner(peer: SocketAddr, local: SocketAddr) -> Owner {
    match peer.ip().to_canonical().is_loopback() {
        // The kernel's table may be long.
        true => {
            let found = spawn_blocking(move || Owner::of(peer, local)).await;
            found.unwrap_or_else(|_| Owner::address(peer.ip()))
        }
        false => Owner::address(peer.ip()),
    }
}

async fn client(stream: TcpStream, place: Place, shared: Arc<Shared>) {
    // Sends small messages without delay. A failure only makes them slower.
    let _ = stream.set_nodelay(true);
    // If the kernel does not support it, slow clients receive new data later.
    let _ = sys::tcp::keep_unsent_below(&stream, UNSENT_MAX);
    match &shared.identity {
        None => talk_http(stream, place, shared).await,
        Some(identity) => {
            let accepted = tokio::time::timeout(shared.limits.request_within.to_std(), identity.accept(stream)).await;
            // After a failed handshake the client knows the reason from the TLS alert.
            if let Ok(Some(stream)) = accepted {
                talk_http(stream, place, shared).await;
            }
        }
    }
}

async fn talk_http<S>(stream: S, place: Place, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = shared.limits;
    let io = TokioIo::new(Timed::new(stream, limits.stalled_max.to_std()));
    let is_reserve = place.seat.1.is_some();
    let connection = Arc::new(Connection { shared, place });
    let service = service_fn(move |request| serve(request, connection.clone()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.request_within.to_std());
    http.max_buf_size(limits.header_bytes_max.max(8 << 10)).max_headers(HEADERS_MAX);
    let serving = http.serve_connection(io, service).with_upgrades();
    // A disconnected client or invalid HTTP is answered if possible, and does not affect other clients.
    if is_reserve {
        // Limits the time of the connection. A WebSocket continues separately.
        let _ = tokio::time::timeout(RESERVE_WITHIN, serving).await;
    } else {
        let _ = serving.await;
    }
}

async fn serve(
    mut incoming: hyper::Request<Incoming>,
    connection: Arc<Connection>,
) -> Result<hyper::Response<Outgoing>, Infallible> {
    let key = websocket_key(incoming.headers());
    let turns = connection.turns();
    let respond = |answer| respond(answer, &turns);
    let what = (incoming.method(), incoming.uri(), incoming.headers());
    if let Err(refusal) = check(what, connection.place.local, &connection.shared.names, key.is_some()) {
        return Ok(respond(Answer::text(refusal.status(), &refusal.to_string())));
    }
    if let Some(key) = key {
        let upgrade = hyper::upgrade::on(&mut incoming);
        return Ok(websocket(incoming, key, upgrade, connection).await);
    }
    let (parts, body) = incoming.into_parts();
    let limits = connection.shared.limits;
    let body = Limited::new(body, limits.body_bytes_max).collect();
    let body = match tokio::time::timeout(limits.request_within.to_std(), body).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let text = format!("the body is too long; expected at most {} bytes", limits.body_bytes_max);
            return Ok(respond(Answer::text(413, &text).with_header("connection", "close")));
        }
        Ok(Err(error)) => return Ok(respond(Answer::text(400, &format!("the body breaks off: {error}")))),
        Err(_) => {
            let text = format!("the body did not arrive within {}", limits.request_within);
            return Ok(respond(Answer::text(408, &text).with_header("connection", "close")));
        }
    };
    let request = request(parts, body, &connection);
    let takes_long = connection.shared.site.may_take_long(&request);
    let refused = connection.short_of_seats();
    // A connection without an ordinary seat gets one short answer.
    let respond = |answer: Answer| match refused {
        None => respond(answer),
        Some(_) => respond(answer.with_header("connection", "close")),
    };
    if let (true, Some(why)) = (takes_long, &refused) {
        return Ok(respond(Answer::text(503, why).with_header("retry-after", "5")));
    }
    let turn = match takes_long {
        false => Turn::not_needed(),
        true => match tokio::time::timeout(limits.request_within.to_std(), turns.slow.turn(turns.owner)).await {
            Ok(turn) => turn,
            Err(_) => {
                let text = format!("others have been read for all of {}; try again later", limits.request_within);
                return Ok(respond(Answer::text(503, &text).with_header("retry-after", "10")));
            }
        },
    };
    let answer = turn.run(move || connection.shared.site.answer(&request, now())).await;
    Ok(respond(answer.unwrap_or_else(|_| Answer::text(500, "a fault in the server; see its log"))))
}

fn request(parts: hyper::http::request::Parts, body: Vec<u8>, connection: &Connection) -> Request {
    Request {
        method: match parts.method {
            hyper::Method::GET | hyper::Method::HEAD => Method::Get,
            hyper::Method::POST => Method::Post,
            _ => Method::Other,
        },
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        body,
        peer: connection.place.peer,
        owner: connection.place.owner,
        secure: connection.shared.identity.is_some(),
        headers: parts.headers,
    }
}

/// The key of a request for a WebSocket (RFC 6455, 4.2.1).
fn websocket_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    (has(header::UPGRADE, "websocket") && has(header::CONNECTION, "upgrade"))
        .then(|| headers.get(header::SEC_WEBSOCKET_KEY).cloned().unwrap_or(HeaderValue::from_static("")))
}

/// Checks the form of a key: 16 bytes in base64, which are 22 characters and `==`.
fn is_key(key: &HeaderValue) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    matches!(key.as_bytes().strip_suffix(b"=="), Some(letters) if letters.len() == 22 && letters.iter().all(is_letter))
}

async fn websocket(
    incoming: hyper::Request<Incoming>,
    key: HeaderValue,
    upgrade: hyper::upgrade::OnUpgrade,
    connection: Arc<Connection>,
) -> hyper::Response<Outgoing> {
    let turns = connection.turns();
    let respond = |answer| respond(answer, &turns);
    if incoming.method() != hyper::Method::GET || incoming.version() != hyper::Version::HTTP_11 || !is_key(&key) {
        let what = "no WebSocket handshake; expected GET of HTTP/1.1 with a Sec-WebSocket-Key of 16 bytes in base64";
        return respond(Answer::text(400, what).with_header("connection", "close"));
    }
    if incoming.headers().get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let answer = Answer::text(426, "unknown version of the WebSocket protocol; expected 13");
        return respond(answer.with_header("sec-websocket-version", "13"));
    }
    let request = request(incoming.into_parts().0, Vec::new(), &connection);
    let site = connection.clone();
    let refused = connection.short_of_seats();
    let socket = spawn_blocking(move || match refused {
        Some(why) if !site.shared.site.has_reserve(&request, now()) => {
            let answer = Answer::text(503, &why).with_header("retry-after", "5");
            Err(answer.with_header("connection", "close"))
        }
        _ => site.shared.site.socket(&request, now()),
    });
    let socket = match socket.await {
        Ok(Ok(socket)) => socket,
        Ok(Err(answer)) => return respond(answer),
        Err(_) => return respond(Answer::text(500, "a fault in the server; see its log")),
    };
    tokio::spawn(async move {
        // Keeps the seat until the end of the conversation.
        let _connection = connection;
        if let Ok(upgraded) = upgrade.await {
            talk(upgraded, socket).await;
        }
    });
    let answer = Answer { status: 101, headers: Vec::new(), body: crate::Body::Whole(Vec::new().into()) };
    let answer = answer.with_header("connection", "upgrade").with_header("upgrade", "websocket");
    respond(answer.with_header("sec-websocket-accept", derive_accept_key(key.as_bytes())))
}

/// The answer for hyper, with the headers of all answers.
fn respond(answer: Answer, turns: &Turns) -> hyper::Response<Outgoing> {
    let mut response = hyper::Response::new(Outgoing::new(answer.body, turns));
    let status = hyper::StatusCode::from_u16(answer.status);
    *response.status_mut() = status.unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in answer.headers {
        match HeaderValue::from_str(&value) {
            Ok(value) if name == "set-cookie" => drop(headers.append(name, value)),
            Ok(value) => drop(headers.insert(name, value)),
            // Drops text that is invalid in a header.
            Err(_) => {}
        }
    }
    response
}
