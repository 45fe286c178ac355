//! What a site is asked, and what it answers.

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
    /// For spans of time: it never jumps.
    pub mono: MonoNs,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// To read; `HEAD`, too, whose answer the server sends without its body.
    Get,
    /// To change something, or to read with a body of its own.
    Post,
    /// Anything else.
    Other,
}

/// A request whose Host and Origin have been checked, with the whole of its body.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked for.
    pub method: Method,
    /// The path, as it came: escapes (`%2F`) are the site's to undo.
    pub path: String,
    /// What follows the `?`, as it came.
    pub query: Option<String>,
    /// The body, of at most [`Limits::body_bytes_max`](crate::Limits::body_bytes_max).
    pub body: Vec<u8>,
    /// The address that the request comes from.
    pub peer: SocketAddr,
    /// The owner of the connection.
    pub owner: Owner,
    /// Whether nobody in between can read it: it came by TLS.
    pub secure: bool,
    pub(crate) headers: hyper::HeaderMap,
}

impl Request {
    /// A request without headers or body, as tests need it; `target` is path and query.
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

    /// The same request with one more header. Names and values that no header can have are left out.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = value.parse() {
            self.headers.append(name, value);
        }
        self
    }

    /// A header's value where it is there and text; the first of several. Names are lower case.
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

/// The parts of a body that is made while it is sent: the next one is asked for when the client has room for it.
pub type Parts = Box<dyn Iterator<Item = io::Result<Vec<u8>>> + Send>;

/// The body of an answer.
pub enum Body {
    /// All of it.
    Whole(Cow<'static, [u8]>),
    /// In parts; after an error the connection is cut, so that nobody takes the rest for everything.
    Parts(Parts),
}

/// An answer.
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// Headers besides those that every answer gets.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Body,
}

impl Answer {
    /// An answer with its type, such as `text/csv`.
    #[must_use]
    pub fn new(status: u16, kind: &str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { status, headers: vec![("content-type", kind.to_owned())], body: Body::Whole(body.into()) }
    }

    /// A line for people.
    #[must_use]
    pub fn text(status: u16, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    /// An answer that is made while it is sent.
    #[must_use]
    pub fn parts(kind: &str, parts: Parts) -> Self {
        Self { status: 200, headers: vec![("content-type", kind.to_owned())], body: Body::Parts(parts) }
    }

    /// The same answer with one more header; it takes the place of one that every answer gets.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// What is behind an address. Called on threads that may wait for files, several at once.
pub trait Site: Send + Sync + 'static {
    /// The answer to a request.
    fn answer(&self, request: &Request, now: Now) -> Answer;

    /// Whether the answer may take long, as where a disk is asked: then it is made on threads that hold up none of the others. Must
    /// not wait itself.
    fn may_take_long(&self, request: &Request) -> bool {
        let _ = request;
        false
    }

    /// Whether a request for a WebSocket may have one of the seats that are kept free for when all others are taken. Called on
    /// threads that may wait.
    fn has_reserve(&self, request: &Request, now: Now) -> bool {
        let _ = (request, now);
        false
    }

    /// The conversation that a WebSocket becomes, or why there is none. A client that is no page needs no `Origin`, but then it has
    /// [a token](Request::bearer), which the site must check.
    ///
    /// # Errors
    /// The answer that refuses it.
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

/// What a conversation does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends text; it is asked again once the client's connection has taken it.
    Text(String),
    /// Sends bytes, likewise.
    Bytes(Vec<u8>),
    /// Has nothing to send; it is asked again after this time, or when a message has come.
    Wait(DurNs),
    /// Ends, and says why.
    Close(String),
}

/// One end of a WebSocket. What waits for a slow client is here, so that the newest can take the place of the old: the server
/// asks for a message when there is room for it. Must not wait: all clients share the thread that calls it.
pub trait Socket: Send {
    /// Takes a message of the client.
    fn receive(&mut self, message: Message<'_>, now: Now);
    /// What to do next.
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
