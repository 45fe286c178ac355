//! Client of the alarm server.

use alarm::Act;
use alarm::wire::{Look, Reply};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Timeout of an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Maximum size of an answer in bytes.
const REPLY_BYTES_MAX: u64 = 64 << 20;

const PREFIX: &str = "tahti-alarms-";

/// Socket name of the alarm server `name`.
#[must_use]
pub fn socket(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// A connection to an alarm server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects, and checks that the server's user is trusted.
    ///
    /// # Errors
    /// If no server is running, or its user is not root, the own user or a user in `TAHTI_PEERS`.
    pub fn connect(name: &str) -> io::Result<Self> {
        let socket = socket(name);
        Ok(Self { stream: BufReader::new(sys::handover::connect_stream(&socket)?) })
    }

    /// As [`connect`](Self::connect). If `name` is the default name and no server has it, but exactly one other runs in this run
    /// folder, connects to that one: by default, a plant's alarm server has the plant's name.
    ///
    /// # Errors
    /// As `connect`, or if several servers are running.
    pub fn find(name: &str) -> io::Result<Self> {
        let refused = match Self::connect(name) {
            Err(error) if name == alarm::DEFAULT_NAME && error.kind() == io::ErrorKind::ConnectionRefused => error,
            found => return found,
        };
        let names = sys::handover::names_here(PREFIX);
        let names = names.iter().filter_map(|name| name.strip_prefix(PREFIX));
        let mut found: Vec<(&str, Self)> = names.filter_map(|name| Some((name, Self::connect(name).ok()?))).collect();
        match (found.pop(), found.len()) {
            (None, _) => Err(refused),
            (Some((_, only)), 0) => Ok(only),
            (Some((last, _)), _) => {
                let names: Vec<&str> = found.iter().map(|(name, _)| *name).chain([last]).collect();
                let why = format!("several sets of alarms are running: {}; choose one with --server", names.join(", "));
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
        }
    }

    /// A second handle of the connection. Shutting it down ends a blocked [`hear`](Self::hear).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn breaker(&self) -> io::Result<UnixStream> {
        self.stream.get_ref().try_clone()
    }

    /// Sends a query.
    ///
    /// # Errors
    /// If the connection breaks or the answer cannot be parsed; `TimedOut` if none arrives within 5 s.
    pub fn look(&mut self, look: &Look) -> io::Result<Reply> {
        self.ask(serde_json::to_value(look)?)
    }

    /// Requests an action. `on_behalf_of` is an unverified name of the person, or empty.
    ///
    /// # Errors
    /// If the connection breaks or the answer cannot be parsed; `TimedOut` if none arrives within 5 s.
    pub fn act(&mut self, act: &Act, on_behalf_of: &str) -> io::Result<Reply> {
        let mut request = serde_json::to_value(act)?;
        if !on_behalf_of.is_empty() {
            request["on_behalf_of"] = on_behalf_of.into();
        }
        self.ask(request)
    }

    fn ask(&mut self, request: serde_json::Value) -> io::Result<Reply> {
        self.limit(Some(ANSWER_WITHIN))?;
        let reply =
            self.answer(&request).map_err(|error| sys::peer::explained(self.stream.get_ref().as_fd(), error))?;
        self.limit(None)?;
        Ok(reply)
    }

    /// Sets the timeout of the connection.
    fn limit(&self, within: Option<Duration>) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(within)?;
        self.stream.get_ref().set_write_timeout(within)
    }

    fn answer(&mut self, request: &serde_json::Value) -> io::Result<Reply> {
        match self.stream.get_mut().write_all(format!("{request}\n").as_bytes()) {
            // A client that was refused on connecting can still read the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return self.hear()?.ok_or(error),
            written => written?,
        }
        self.hear()?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the alarm server closed the connection"))
    }

    /// The next line; `None` if the connection was closed.
    ///
    /// # Errors
    /// If the connection breaks or the line cannot be parsed.
    pub fn hear(&mut self) -> io::Result<Option<Reply>> {
        let mut line = Vec::new();
        self.stream.by_ref().take(REPLY_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
    }
}
