use super::*;
use base::{DurNs, Scalar, Value};
use ca::encode::Needs;
use ca::server::{Backend, CircuitId, Get, Limits, Opened, Peer, PutOutcome, Server, Token, Write};
use host::plant::archive::Policy;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use store::{Archive, Config, Span};

/// The variable `x`, and the right to read it.
struct Variable {
    is_readable: bool,
}

impl Variable {
    const fn rights(&self) -> Access {
        Access { read: self.is_readable, write: false }
    }
}

impl Backend for Variable {
    fn exists(&mut self, name: &[u8]) -> bool {
        name == b"x"
    }
    fn open(&mut self, _: &[u8], _: Peer<'_>) -> Option<Opened> {
        let access = self.rights();
        Some(Opened { handle: 0, watch: 0, native: Basic::Double, count: 1, access, posted: true, lane: 0 })
    }
    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        self.rights()
    }
    fn record_name(&self, _: u64) -> &str {
        "x"
    }
    fn close(&mut self, _: u64) {}
    fn read(&mut self, _: u64, _: Needs, reading: &mut Reading, _: Option<Token>) -> Result<Get, Eca> {
        reading.value = Value::from(1.5);
        reading.meta.units = base::Str40::from("mm");
        Ok(Get::Done)
    }
    fn write(&mut self, _: u64, _: Peer<'_>, _: Write, _: Token, _: bool) -> PutOutcome {
        PutOutcome::Failed
    }
    fn forget(&mut self, _: Token) {}
    fn watch(&mut self, _: u64) -> bool {
        true
    }
    fn unwatch(&mut self, _: u64) {}
}

/// A server on the loopback, and the archive of its variable.
struct Site {
    listener: TcpListener,
    server: Server,
    variable: Variable,
    circuits: Vec<(CircuitId, TcpStream)>,
    channels: Channels,
    folder: harness::Folder,
    logger: Logger<Folder>,
    log: Vec<String>,
}

impl Site {
    fn new(is_readable: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Server::new(Limits::default());
        server.tcp_port = address.port();
        let get = |name: &str| match name {
            "EPICS_CA_NAME_SERVERS" => Some(address.to_string()),
            "EPICS_CA_AUTO_ADDR_LIST" => Some("NO".into()),
            _ => None,
        };
        let policy = Policy::Monitor { deadband: 0.0 };
        let wanted = [Signal { source: Source::ChannelAccess, name: "x".into(), policy }];
        let channels = Channels::open(&wanted, get, 0, &mut |_| ()).unwrap().unwrap();
        let folder = harness::Folder::new();
        let logger = Logger::open(Folder::new(&folder.0), Config::default(), 0).unwrap();
        let variable = Variable { is_readable };
        Self { listener, server, variable, circuits: Vec::new(), channels, folder, logger, log: Vec::new() }
    }

    /// Transfers what has arrived.
    fn step(&mut self) {
        let now = Session::now();
        if let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            self.circuits.push((self.server.accept("127.0.0.1"), stream));
        }
        let mut bytes = [0; 4096];
        for (id, stream) in &mut self.circuits {
            match stream.read(&mut bytes) {
                Ok(len) => self.server.handle_bytes(now, *id, &bytes[..len], &mut self.variable),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            let out = self.server.output(*id).to_vec();
            stream.write_all(&out).unwrap();
            self.server.sent(now, *id, out.len(), &mut self.variable);
        }
        let log = &mut self.log;
        let until = Session::now() + DurNs::from_ms(1);
        self.channels.step(until, &mut self.logger, &mut |line| log.push(line.to_owned())).unwrap();
    }

    fn set_readable(&mut self, is_readable: bool) {
        self.variable.is_readable = is_readable;
        self.server.refresh_access(&mut self.variable);
    }

    /// Number of archived samples, and the causes of the gaps.
    fn kept(&mut self) -> (usize, Vec<String>) {
        self.logger.sync(0);
        let archive = Archive::open(Folder::new(&self.folder.0)).unwrap();
        let samples = archive.samples("x", Span::ALL).map_or(0, Iterator::count);
        (samples, archive.gaps("x", Span::ALL).iter().map(|gap| gap.cause.to_string()).collect())
    }
}

#[test]
fn a_second_server_of_a_variable_is_reported_unless_it_may_be_another_address_of_the_first() {
    let mut site = Site::new(true);
    let channel = *site.channels.by_id.keys().next().unwrap();
    let at = |ip: [u8; 4], port| Address { ip: u32::from_be_bytes(ip), port };
    for other in [at([10, 0, 0, 1], 5064), at([127, 0, 0, 1], 5065)] {
        let event = Event::Duplicate { channel, used: at([127, 0, 0, 1], 5064), other };
        let log = &mut site.log;
        site.channels.event(event, &mut site.logger, &mut |line| log.push(line.to_owned())).unwrap();
    }
    assert_eq!(site.log, ["two servers have x: 127.0.0.1:5064, and 127.0.0.1:5065, which is not used"]);
}

const NOT_READABLE: &str = "1 of 1 variables not readable: x";

#[test]
fn a_variable_that_may_not_be_read_from_the_start_is_a_gap_and_reported_and_is_archived_once_it_may() {
    let mut site = Site::new(false);
    harness::eventually("the refusal", || {
        site.step();
        site.kept() == (0, vec!["refused".to_owned()])
    });
    assert_eq!(site.channels.unusable(), NOT_READABLE);
    let reason = "x: its server sends no value: Read access denied; check the server's access rules";
    assert!(site.log.iter().any(|line| line == reason), "{:?}", site.log);
    site.set_readable(true);
    harness::eventually("the value", || {
        site.step();
        site.kept().0 >= 1
    });
    assert_eq!(site.channels.unusable(), "");
}

#[test]
fn a_variable_whose_rights_are_withdrawn_is_a_gap_and_reported() {
    let mut site = Site::new(true);
    harness::eventually("the value", || {
        site.step();
        site.kept().0 == 1
    });
    assert_eq!(site.channels.unusable(), "");
    site.set_readable(false);
    harness::eventually("the refusal", || {
        site.step();
        site.kept() == (1, vec!["refused".to_owned()])
    });
    assert_eq!(site.channels.unusable(), NOT_READABLE);
}

#[test]
fn a_precision_of_0_is_kept_and_integers_have_no_precision() {
    let of = |scalar: Scalar, digits: i16| {
        let mut reading = Reading { value: Value::Scalar(scalar), ..Reading::default() };
        reading.meta.precision = digits;
        about(&reading).precision
    };
    assert_eq!([of(Scalar::F64(1.0), 0), of(Scalar::F32(1.0), 3), of(Scalar::F64(1.0), -1)], [Some(0), Some(3), None]);
    assert_eq!(of(Scalar::I32(1), 0), None);
}
