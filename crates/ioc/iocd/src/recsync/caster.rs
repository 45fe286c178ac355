//! State machine of the client: search, hold-off, upload, answers to pings. Time, bytes and chance are arguments.

use super::wire::{self, Announcement, Message, Messages};
use base::{DurNs, MonoNs};
use canet::streams::Protocol;
use std::net::{Ipv4Addr, SocketAddr};

/// Unsent bytes above which no further records are requested.
const UNSENT_MAX: usize = 64 << 10;
/// Pause after an error; it grows with each further one.
const PAUSE: DurNs = DurNs::from_secs(5);
const PAUSES_MAX: i64 = 10;
/// An idle connection may be silent for this many timeouts.
const IDLE_TIMEOUTS: i64 = 4;

/// RecCeivers that may receive the list of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    ThisHost,
    Listed(Vec<Ipv4Addr>),
    Any,
}

impl Servers {
    fn contain(&self, address: Ipv4Addr) -> bool {
        match self {
            Self::ThisHost => address.is_loopback(),
            Self::Listed(list) => list.contains(&address),
            Self::Any => true,
        }
    }
}

/// Settings of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) servers: Servers,
    /// UDP port of announcements.
    pub(crate) port: u16,
    /// Maximum silence of the server during the upload.
    pub(crate) timeout: DurNs,
    /// Maximum of the random time between an announcement and the connection.
    pub(crate) holdoff_max: DurNs,
}

/// State of the client, with C's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Init = 0,
    Listening = 1,
    Connecting = 2,
    Uploading = 3,
    Done = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// After errors.
    Pausing(MonoNs),
    Searching,
    HoldingOff(MonoNs),
    /// A connection must be opened.
    Found,
    Opening,
    /// The greeting is awaited. A RecCeiver with many clients sends it late.
    Greeting(MonoNs),
    Uploading(MonoNs),
    Done(MonoNs),
    /// The connection must be closed.
    Failed,
}

/// The client. Its connections are numbered.
pub(super) struct Caster {
    settings: Settings,
    phase: Phase,
    server: Option<Announcement>,
    errors: i64,
    connection: u32,
    messages: Messages,
    out: Vec<u8>,
    /// Whether the connection needs service.
    touched: bool,
    now: MonoNs,
    /// As in C, it stays until the next phase.
    state: State,
    message: String,
}

impl Caster {
    pub(super) fn new(settings: Settings, now: MonoNs) -> Self {
        let mut new = Self {
            settings,
            phase: Phase::Searching,
            server: None,
            errors: 0,
            connection: 0,
            messages: Messages::default(),
            out: Vec::new(),
            touched: false,
            now,
            state: State::Init,
            message: "Starting".into(),
        };
        new.search();
        new
    }

    pub(super) fn status(&self) -> (State, &str) {
        (self.state, &self.message)
    }

    /// Whether announcements are awaited.
    pub(super) fn searches(&self) -> bool {
        self.phase == Phase::Searching
    }

    /// Whether it waits after an error.
    pub(super) fn is_pausing(&self) -> bool {
        matches!(self.phase, Phase::Pausing(_))
    }

    /// Whether further records can be uploaded.
    pub(super) fn wants_records(&self) -> bool {
        matches!(self.phase, Phase::Uploading(_)) && self.out.len() < UNSENT_MAX
    }

    fn search(&mut self) {
        (self.phase, self.server) = (Phase::Searching, None);
        self.report(State::Listening, "Searching".into());
    }

    fn report(&mut self, state: State, message: String) {
        (self.state, self.message) = (state, message);
    }

    /// The socket of announcements cannot be opened.
    pub(super) fn search_failed(&mut self, now: MonoNs, error: &str) {
        self.pause(now, format!("UDP port {}: {error}", self.settings.port));
    }

    fn pause(&mut self, now: MonoNs, message: String) {
        self.errors = (self.errors + 1).min(PAUSES_MAX);
        self.phase = Phase::Pausing(now + DurNs(PAUSE.0 * self.errors));
        self.report(State::Listening, message);
    }

    /// A datagram. `chance` is a random number from 0 to 1, for the hold-off.
    pub(super) fn handle_datagram(&mut self, now: MonoNs, from: Ipv4Addr, bytes: &[u8], chance: f64) {
        let servers = &self.settings.servers;
        let allowed = |found: &Announcement| servers.contain(from) && servers.contain(*found.server.ip());
        let Some(found) = Announcement::parse(bytes, from).filter(allowed).filter(|_| self.searches()) else { return };
        let holdoff = DurNs((self.settings.holdoff_max.0 as f64 * chance.clamp(0.0, 1.0)) as i64);
        (self.server, self.phase) = (Some(found), Phase::HoldingOff(now + holdoff));
        self.report(State::Listening, "Found server".into());
    }

    /// Time of the next call of [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Option<MonoNs> {
        match self.phase {
            Phase::Pausing(until)
            | Phase::HoldingOff(until)
            | Phase::Greeting(until)
            | Phase::Uploading(until)
            | Phase::Done(until) => Some(until),
            Phase::Searching | Phase::Found | Phase::Opening | Phase::Failed => None,
        }
    }

    pub(super) fn handle_timeout(&mut self, now: MonoNs) {
        self.now = now;
        if self.poll_timeout().is_none_or(|until| now < until) {
            return;
        }
        match self.phase {
            Phase::Pausing(_) => self.search(),
            Phase::HoldingOff(_) => {
                self.phase = Phase::Found;
                self.report(State::Connecting, self.of_server("Connecting to"));
            }
            _ => self.fail("RecCaster server timeout"),
        }
    }

    /// Uploads messages about records; the `last` ones end the list.
    pub(super) fn upload(&mut self, now: MonoNs, messages: &[u8], last: bool) {
        self.out.extend(messages);
        self.touched = true;
        if last {
            wire::done(&mut self.out);
            self.phase = Phase::Done(now + self.idle());
            self.report(State::Done, "Synchronized".into());
        }
    }

    fn idle(&self) -> DurNs {
        DurNs(self.settings.timeout.0 * IDLE_TIMEOUTS)
    }

    fn of_server(&self, what: &str) -> String {
        self.server.map_or_else(|| what.to_owned(), |found| format!("{what}: {}", found.server))
    }

    /// Ends the connection because of an error.
    fn fail(&mut self, why: &str) {
        (self.phase, self.touched) = (Phase::Failed, true);
        why.clone_into(&mut self.message);
    }

    fn handle(&mut self, now: MonoNs, message: Message) {
        match (self.phase, message) {
            (Phase::Greeting(_), Message::Greeting) => {
                self.phase = Phase::Uploading(now + self.settings.timeout);
                self.report(State::Uploading, "Connected".into());
            }
            (Phase::Greeting(_), _) => self.fail("First message not a greeting"),
            (Phase::Done(_), message) => {
                self.phase = Phase::Done(now + self.idle());
                if let Message::Ping(nonce) = message {
                    self.pong(nonce);
                }
            }
            (_, Message::Ping(nonce)) => self.pong(nonce),
            _ => {}
        }
    }

    /// Answers a ping. A server that does not read the answers gets no further ones.
    fn pong(&mut self, nonce: u32) {
        if self.out.len() < 2 * UNSENT_MAX {
            wire::pong(&mut self.out, nonce);
            self.touched = true;
        }
    }
}

impl Protocol for Caster {
    type Id = u32;

    fn poll_connect(&mut self) -> Option<(u32, SocketAddr)> {
        let found = self.server.filter(|_| self.phase == Phase::Found)?;
        self.phase = Phase::Opening;
        self.connection = self.connection.wrapping_add(1);
        Some((self.connection, found.server.into()))
    }

    fn poll_touched(&mut self) -> Option<u32> {
        std::mem::take(&mut self.touched).then_some(self.connection)
    }

    fn output(&self, _: u32) -> &[u8] {
        &self.out
    }

    fn sent(&mut self, _: u32, len: usize) {
        self.out.drain(..len);
        if let Phase::Uploading(until) = &mut self.phase {
            *until = self.now + self.settings.timeout;
        }
    }

    fn is_closing(&self, _: u32) -> bool {
        self.phase == Phase::Failed
    }

    fn connected_to(&mut self, now: MonoNs, _: u32) {
        self.phase = Phase::Greeting(now + self.settings.timeout);
        wire::greeting(&mut self.out, self.server.map_or(0, |found| found.key));
        self.touched = true;
    }

    fn closed(&mut self, now: MonoNs, _: u32) {
        self.out.clear();
        self.messages = Messages::default();
        match self.phase {
            // The server has ended, so its announcements are awaited immediately.
            Phase::Done(_) => {
                self.errors = 0;
                self.search();
            }
            Phase::Failed => self.pause(now, self.message.clone()),
            Phase::Opening => self.pause(now, self.of_server("Failed to connect")),
            _ => self.pause(now, self.of_server("Lost server")),
        }
    }

    fn handle_bytes(&mut self, now: MonoNs, _: u32, mut bytes: &[u8]) {
        while self.phase != Phase::Failed {
            match self.messages.take(&mut bytes) {
                Ok(Some(message)) => self.handle(now, message),
                Ok(None) => return,
                Err(wire::Garbled) => self.fail("Missing ping header"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

    fn at(seconds: f64) -> MonoNs {
        MonoNs((seconds * 1e9) as u64)
    }

    fn settings(servers: Servers) -> Settings {
        Settings { servers, port: 5049, timeout: DurNs::from_secs(20), holdoff_max: DurNs::from_secs(10) }
    }

    fn announcement(of: Ipv4Addr) -> Vec<u8> {
        [b"RC\0\0", &of.octets()[..], b"\x12\x34\0\0\0\0\0\x09"].concat()
    }

    /// A client whose server was found at once and has sent its greeting.
    fn uploading() -> Caster {
        let mut caster = Caster::new(settings(Servers::ThisHost), at(0.0));
        caster.handle_datagram(at(0.0), HERE, &announcement(Ipv4Addr::BROADCAST), 0.0);
        caster.handle_timeout(at(0.0));
        let (id, server) = caster.poll_connect().unwrap();
        assert_eq!((id, server), (1, SocketAddr::from((HERE, 0x1234))));
        caster.connected_to(at(0.0), 1);
        assert_eq!(caster.output(1), b"RC\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x09");
        caster.sent(1, 16);
        caster.handle_bytes(at(1.0), 1, b"RC\x80\x01\0\0\0\x01\0");
        assert_eq!(caster.status(), (State::Uploading, "Connected"));
        caster
    }

    #[test]
    fn announcements_of_other_hosts_are_ignored_unless_they_are_listed() {
        let found = |servers: Servers, from: Ipv4Addr, of: Ipv4Addr| {
            let mut caster = Caster::new(settings(servers), at(0.0));
            caster.handle_datagram(at(0.0), from, &announcement(of), 0.0);
            !caster.searches()
        };
        let listed = || Servers::Listed(vec![THERE]);
        assert!(found(Servers::ThisHost, HERE, Ipv4Addr::BROADCAST));
        assert!(!found(Servers::ThisHost, THERE, Ipv4Addr::BROADCAST) && !found(Servers::ThisHost, HERE, THERE));
        assert!(found(listed(), THERE, Ipv4Addr::BROADCAST) && found(listed(), THERE, THERE));
        assert!(!found(listed(), HERE, Ipv4Addr::BROADCAST) && !found(listed(), THERE, HERE));
        assert!(found(Servers::Any, THERE, HERE));
    }

    #[test]
    fn a_connection_is_opened_after_a_random_part_of_the_hold_off() {
        let mut caster = Caster::new(settings(Servers::ThisHost), at(0.0));
        caster.handle_datagram(at(1.0), HERE, &announcement(Ipv4Addr::BROADCAST), 0.25);
        assert_eq!(caster.poll_timeout(), Some(at(3.5)));
        caster.handle_timeout(at(3.4));
        assert!(caster.poll_connect().is_none());
        caster.handle_timeout(at(3.5));
        assert_eq!(caster.status(), (State::Connecting, "Connecting to: 127.0.0.1:4660"));
        assert!(caster.poll_connect().is_some() && caster.poll_connect().is_none());
    }

    #[test]
    fn records_are_uploaded_in_parts_that_the_server_takes() {
        let mut caster = uploading();
        assert!(caster.wants_records());
        caster.upload(at(1.0), &[7; UNSENT_MAX], false);
        assert!(!caster.wants_records());
        // Each sent part extends the time limit.
        caster.handle_timeout(at(20.0));
        caster.sent(1, 10);
        assert!(caster.wants_records());
        assert_eq!(caster.poll_timeout(), Some(at(40.0)));
        caster.upload(at(21.0), b"last", true);
        assert!(caster.output(1).ends_with(b"lastRC\0\x05\0\0\0\x04\0\0\0\0"));
        assert_eq!(caster.status(), (State::Done, "Synchronized"));
    }

    #[test]
    fn pings_are_answered_and_silence_ends_the_connection() {
        let mut caster = uploading();
        caster.upload(at(1.0), b"", true);
        caster.sent(1, caster.output(1).len());
        caster.handle_bytes(at(50.0), 1, b"RC\x80\x02\0\0\0\x04\x01\x02\x03\x04");
        assert_eq!(caster.output(1), b"RC\0\x02\0\0\0\x04\x01\x02\x03\x04");
        caster.handle_timeout(at(129.9));
        assert!(!caster.is_closing(1));
        caster.handle_timeout(at(130.0));
        assert!(caster.is_closing(1));
        caster.closed(at(130.0), 1);
        assert_eq!(caster.status(), (State::Listening, "RecCaster server timeout"));
        assert_eq!(caster.poll_timeout(), Some(at(135.0)));
    }

    #[test]
    fn a_server_that_ends_is_searched_again_at_once_and_gets_the_whole_list() {
        let mut caster = uploading();
        caster.upload(at(1.0), b"", true);
        caster.closed(at(9.0), 1);
        assert!(caster.searches() && caster.output(1).is_empty());
        caster.handle_datagram(at(9.0), HERE, &announcement(Ipv4Addr::BROADCAST), 0.0);
        caster.handle_timeout(at(9.0));
        assert_eq!(caster.poll_connect().unwrap().0, 2);
    }

    #[test]
    fn repeated_errors_make_the_pause_longer_up_to_a_limit() {
        let mut caster = Caster::new(settings(Servers::ThisHost), at(0.0));
        let mut pauses = Vec::new();
        for _ in 0..12 {
            caster.handle_datagram(at(0.0), HERE, &announcement(Ipv4Addr::BROADCAST), 0.0);
            caster.handle_timeout(at(0.0));
            let (id, _) = caster.poll_connect().unwrap();
            caster.closed(at(0.0), id);
            let until = caster.poll_timeout().unwrap();
            pauses.push(until.0 / 1_000_000_000);
            caster.handle_timeout(until);
        }
        assert_eq!(pauses, [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 50, 50]);
    }

    #[test]
    fn a_server_of_another_protocol_is_left() {
        let mut caster = uploading();
        caster.handle_bytes(at(1.0), 1, b"HTTP/1.1 400 Bad Request");
        assert!(caster.is_closing(1));
    }

    #[test]
    fn a_server_that_only_pings_cannot_fill_the_memory() {
        let mut caster = uploading();
        let pings = b"RC\x80\x02\0\0\0\x04\x01\x02\x03\x04".repeat(50_000);
        caster.handle_bytes(at(1.0), 1, &pings);
        assert!(caster.output(1).len() <= 2 * UNSENT_MAX + 12, "{}", caster.output(1).len());
    }
}
