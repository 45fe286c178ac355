//! The interface of sites: requests and answers.

use crate::Owner;
use base::{DurNs, MonoNs};
use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;

/// The time of a request, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since 1970, UTC.
    pub wall_ns: i64,
    /// Monotonic time for durations.
    pub mono: MonoNs,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read. Also for `HEAD`, whose answer the server sends without its body.
    Get,
    /// Change something, or read with a request body.
    Post,
    /// Anything else.
    Other,
}

/// A request with checked Host and Origin and with its complete body.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path as received. The site must decode escapes (`%2F`).
    pub path: String,
    /// The part after the `?`, as received.
    pub query: Option<String>,
    /// The body, of at most [`Limits::body_bytes_max`](crate::Limits::body_bytes_max).
    pub body: Vec<u8>,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The owner of the connection.
    pub owner: Owner,
    /// The connection is encrypted (TLS).
    pub secure: bool,
    pub(crate) headers: hyper::HeaderMap,
}

impl Request {
    /// A request without headers or body, for tests. `target` is path and query.
    #[must_use]
    pub fn new(method: Method, target: &str) -> Self {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            method,
            path: path.to_owned(),
            query: query.map(str::to_owned),
            body: Vec::new(),
            peer: nobody,
            owner: Owner::address(nobody.ip()),
            secure: false,
            headers: hyper::HeaderMap::new(),
        }
    }

    /// Adds a header. Invalid names and values are ignored.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = value.parse() {
            self.headers.append(name, value);
        }
        self
    }

    /// The value of a header; the first of several. `None` if it is missing or not text. Names are lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The value of a cookie.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let lines = self.headers.get_all(hyper::header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    }

    /// The token of `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }
}

/// The parts of a body that is created while it is sent. The next part is requested when the client has room for it.
pub type Parts = Box<dyn Iterator<Item = io::Result<Vec<u8>>> + Send>;

/// The body of an answer.
pub enum Body {
    /// The complete body.
    Whole(Cow<'static, [u8]>),
    /// In parts. After an error the connection is closed, so that the client detects the incomplete body.
    Parts(Parts),
}

/// An answer.
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// Headers in addition to those of all answers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Body,
}

impl Answer {
    /// An answer with a content type, such as `text/csv`.
    #[must_use]
    pub fn new(status: u16, kind: &str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { status, headers: vec![("content-type", kind.to_owned())], body: Body::Whole(body.into()) }
    }

    /// An answer with a line of text for people.
    #[must_use]
    pub fn text(status: u16, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    /// An answer that is created while it is sent.
    #[must_use]
    pub fn parts(kind: &str, parts: Parts) -> Self {
        Self { status: 200, headers: vec![("content-type", kind.to_owned())], body: Body::Parts(parts) }
    }

    /// Adds a header. It replaces a header of all answers with the same name.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The content of a server. Called on several threads at once, which may wait for files.
pub trait Site: Send + Sync + 'static {
    /// The answer to a request.
    fn answer(&self, request: &Request, now: Now) -> Answer;

    /// Returns whether the answer may take long, for example because of disk access. It is then created on separate threads, which
    /// does not delay other answers. Must not block.
    fn may_take_long(&self, request: &Request) -> bool {
        let _ = request;
        false
    }

    /// Returns whether a request for a WebSocket may use one of the reserved seats when all others are in use. Called on threads
    /// that may wait.
    fn has_reserve(&self, request: &Request, now: Now) -> bool {
        let _ = (request, now);
        false
    }

    /// Accepts or refuses a WebSocket. A client without `Origin` (a program) has [a token](Request::bearer), which the site must
    /// check.
    ///
    /// # Errors
    /// The answer of the refusal.
    fn socket(&self, request: &Request, now: Now) -> Result<Box<dyn Socket>, Answer> {
        let _ = now;
        Err(Answer::text(404, &format!("{}: no WebSocket here", request.path)))
    }
}

/// A message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// The next action of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends text. `next` is called again when the client's connection has accepted it.
    Text(String),
    /// Sends bytes, in the same way.
    Bytes(Vec<u8>),
    /// Sends nothing. `next` is called again after this time, or when a message has arrived.
    Wait(DurNs),
    /// Ends the conversation with a reason.
    Close(String),
}

/// One end of a WebSocket. Pending data for a slow client stay here, so that newer data can replace older ones: the server calls
/// `next` when there is room for a message. Must not block, because all clients share the calling thread.
pub trait Socket: Send {
    /// Processes a message of the client.
    fn receive(&mut self, message: Message<'_>, now: Now);
    /// Returns the next action.
    fn next(&mut self, now: Now) -> Next;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_and_tokens_are_found_among_others() {
        let request = Request::new(Method::Get, "/ws?a=b%2Fc&d")
            .with_header("cookie", "other=1; tahti-8765=abc=")
            .with_header("cookie", "third=3")
            .with_header("authorization", "bearer  t0k3n");
        assert_eq!((request.path.as_str(), request.query.as_deref()), ("/ws", Some("a=b%2Fc&d")));
        assert_eq!((request.cookie("tahti-8765"), request.cookie("third")), (Some("abc="), Some("3")));
        assert_eq!((request.cookie("tahti"), request.bearer()), (None, Some("t0k3n")));
        assert_eq!(Request::new(Method::Get, "/").with_header("authorization", "Basic x").bearer(), None);
    }
}
