//! A connection that reconnects, with one exchange at a time.

use crate::address::{Address, Com, Parity, Serial, Tcp, Udp};
use crate::pace::Pace;
use crate::telnet::Telnet;
use crate::trace::{self, Trace};
use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{ControlModes, InputModes, OptionalActions};
use rustix::time::Timespec;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use sys::clock::mono_now;
use sys::rounds::{ROUND_EVERY, Rounds};

/// Maximum time to open a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Minimum and maximum time between two attempts to connect.
const BACKOFF: (DurNs, DurNs) = (DurNs::from_ms(100), DurNs::from_secs(10));
/// Bytes of one read; for a datagram, its maximum size.
const READ_BYTES: usize = 4096;
const DATAGRAM_BYTES: usize = 65_535;

/// Counters and state of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// It is connected.
    pub connected: bool,
    /// Number of connects.
    pub connects: u64,
    /// Number of failed attempts to connect.
    pub refused: u64,
    /// The last attempt to connect failed.
    pub unreachable: bool,
    /// Number of exchanges over a connection.
    pub exchanges: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Cause of the last failure, while not connected.
    pub trouble: String,
}

/// The connection is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{trouble}")]
pub struct ConnectError {
    /// The address, and the error of the last attempt.
    pub trouble: String,
    /// Time of the next attempt.
    pub retry_at: MonoNs,
}

/// A connection that is opened on demand. Its methods block, so it needs its own thread.
#[derive(Debug)]
pub struct Connection {
    address: Address,
    link: Option<OwnedFd>,
    /// The connection to a terminal server.
    telnet: Option<Telnet>,
    /// Earliest time of the next attempt, and the pause after it if it fails.
    again: (MonoNs, DurNs),
    /// Time of the last connect.
    opened_at: MonoNs,
    /// Whether an exchange closed the connection on purpose.
    hung_up: bool,
    /// Number of connects, without those after an exchange closed the connection on purpose.
    pub(crate) meetings: u64,
    pace: Pace,
    tracer: Option<Tracer>,
    /// Number of rounds of its thread.
    pub(crate) rounds: Rounds,
    /// Counters and state.
    pub status: Status,
}

/// The trace of a connection.
#[derive(Debug)]
struct Tracer {
    trace: Arc<Trace>,
    /// Name of the port.
    port: String,
}

impl Tracer {
    fn bytes(&self, address: &Address, verb: &str, bytes: &[u8]) {
        self.trace.print(&self.port, format_args!("{address} {verb} {} bytes", bytes.len()), bytes);
    }

    fn traces_bytes(&self) -> bool {
        self.trace.traces(trace::DRIVER | trace::FILTER)
    }

    fn error(&self, what: &str) {
        if self.trace.traces(trace::ERROR) {
            self.trace.print(&self.port, format_args!("{what}"), &[]);
        }
    }
}

impl Connection {
    /// A connection that is not open yet.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            link: None,
            telnet: None,
            again: (MonoNs(0), BACKOFF.0),
            opened_at: MonoNs(0),
            hung_up: false,
            meetings: 0,
            pace: Pace::default(),
            tracer: None,
            rounds: Rounds::default(),
            status: Status::default(),
        }
    }

    /// Traces the connection under the name of a port.
    #[must_use]
    pub fn traced(mut self, port: &str, trace: Arc<Trace>) -> Self {
        self.tracer = Some(Tracer { trace, port: port.to_owned() });
        self
    }

    /// Runs an exchange to its end. Blocks as long as that takes, and for connecting, which is tried again only after
    /// a pause that doubles from 100 ms to 10 s.
    pub fn run(&mut self, exchange: &mut dyn Exchange) {
        self.run_heard(exchange, &mut |_, _| {});
    }

    /// As [`run`](Self::run); also passes all received bytes on.
    pub fn run_heard(&mut self, exchange: &mut dyn Exchange, heard: &mut dyn FnMut(MonoNs, &[u8])) {
        let mut out = Vec::new();
        match self.connect() {
            Ok(()) => self.status.exchanges += 1,
            Err(why) => exchange.handle_closed(mono_now(), &why.to_string()),
        }
        while !exchange.is_over() {
            self.rounds.count();
            let now = mono_now();
            let queued = out.len();
            exchange.poll_transmit(now, &mut out);
            if self.telnet.is_some() {
                let data = out.split_off(queued);
                Telnet::encode(&data, &mut out);
            }
            if exchange.is_over() {
                break;
            }
            match self.step(&mut out, exchange.poll_timeout()) {
                Ok(bytes) if bytes.is_empty() => exchange.handle_timeout(mono_now()),
                Ok(bytes) => {
                    let now = mono_now();
                    heard(now, &bytes);
                    exchange.handle_bytes(now, &bytes);
                    // A device that sends without end never lets `step` return without bytes.
                    let now = mono_now();
                    if !exchange.is_over() && exchange.poll_timeout().is_some_and(|at| at <= now) {
                        exchange.handle_timeout(now);
                    }
                }
                Err(error) => {
                    self.close(&error.to_string());
                    exchange.handle_closed(mono_now(), &error.to_string());
                }
            }
        }
        self.pace.processed(mono_now());
        // An exchange may end with unsent bytes. They are sent without waiting for an answer.
        if let Err(error) = self.send(&mut out, mono_now() + DurNs::from_secs(1)) {
            self.close(&error.to_string());
        }
        if exchange.spoils_line() {
            self.close("closed after a bad or late answer");
            self.hung_up = true;
        }
    }

    /// Opens the connection for listeners. A connection that an exchange closed on purpose stays closed until the next
    /// exchange. Returns whether it is open.
    pub(crate) fn reopen(&mut self) -> bool {
        self.link.is_some() || self.reopen_at().is_some_and(|at| at <= mono_now()) && self.connect().is_ok()
    }

    /// Time of the next attempt of [`reopen`](Self::reopen), if it makes one. A device that closes each connection is called
    /// after a pause.
    pub(crate) fn reopen_at(&self) -> Option<MonoNs> {
        let pause = if self.opened_at == MonoNs(0) { self.opened_at } else { self.opened_at + BACKOFF.0 };
        (self.link.is_none() && !self.hung_up).then(|| self.again.0.max(pause))
    }

    /// Opens the connection if it is closed and the pause is over.
    ///
    /// # Errors
    /// Why there is none.
    pub fn connect(&mut self) -> Result<(), ConnectError> {
        if self.link.is_some() {
            return Ok(());
        }
        let now = mono_now();
        if now < self.again.0 {
            return Err(ConnectError { trouble: self.status.trouble.clone(), retry_at: self.again.0 });
        }
        match open(&self.address) {
            Ok((link, telnet)) => {
                (self.link, self.telnet) = (Some(link), telnet);
                self.again.1 = BACKOFF.0;
                self.opened_at = mono_now();
                self.meetings += u64::from(!std::mem::take(&mut self.hung_up));
                self.status.connects += 1;
                (self.status.connected, self.status.unreachable) = (true, false);
                self.status.trouble.clear();
                Ok(())
            }
            Err(error) => {
                let wait = self.again.1;
                self.again = (mono_now() + wait, DurNs((wait.0 * 2).min(BACKOFF.1.0)));
                self.status.refused += 1;
                (self.status.unreachable, self.hung_up) = (true, false);
                let trouble = format!("{}: {error}", self.address);
                // The same failure is traced once.
                if let Some(tracer) = self.tracer.as_ref().filter(|_| trouble != self.status.trouble) {
                    tracer.error(&trouble);
                }
                self.status.trouble = trouble;
                Err(ConnectError { trouble: self.status.trouble.clone(), retry_at: self.again.0 })
            }
        }
    }

    /// Descriptor to poll for unsolicited bytes.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(OwnedFd::as_fd)
    }

    /// End of the pause in reading from a device that sends without end; `None` if it may be read.
    pub(crate) fn pause_until(&mut self, now: MonoNs) -> Option<MonoNs> {
        self.pace.pause_until(now)
    }

    /// Reads received bytes without waiting. Empty: no bytes, a pause, or the connection was closed.
    pub fn take(&mut self) -> Vec<u8> {
        let mut answers = Vec::new();
        let taken = self.step(&mut answers, Some(MonoNs(0)));
        // A terminal server that asks and does not read gets no answers.
        let sent = self.link.as_ref().map_or(Ok(0), |link| write_some(link, &mut answers));
        match taken.and_then(|bytes| sent.map(|_| bytes)) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.close(&error.to_string());
                Vec::new()
            }
        }
    }

    /// Closes the connection. The next attempt may follow at once.
    pub fn close(&mut self, why: &str) {
        self.link = None;
        self.status.connected = false;
        self.status.trouble = format!("{}: {why}", self.address);
        if let Some(tracer) = &self.tracer {
            tracer.error(&self.status.trouble);
        }
    }

    /// Sends all queued bytes within a time limit.
    fn send(&mut self, out: &mut Vec<u8>, until: MonoNs) -> io::Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        while !out.is_empty() {
            self.status.sent += write_traced(link, out, &self.address, self.tracer.as_ref())? as u64;
            let left = (until - mono_now()).0;
            if left <= 0 {
                break;
            }
            let timeout = Timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 };
            match poll(&mut [PollFd::new(link, PollFlags::OUT)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if out.is_empty() {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the device accepts no further bytes"))
        }
    }

    /// Sends as many queued bytes as the kernel accepts, and waits for received bytes until `until`. Empty: timeout.
    fn step(&mut self, out: &mut Vec<u8>, until: Option<MonoNs>) -> io::Result<Vec<u8>> {
        let Some(link) = &self.link else { return Err(io::ErrorKind::NotConnected.into()) };
        let datagrams = matches!(self.address, Address::Udp(..));
        loop {
            self.rounds.count();
            self.status.sent += write_traced(link, out, &self.address, self.tracer.as_ref())? as u64;
            let now = mono_now();
            let pause = self.pace.pause_until(now);
            if pause.is_none() {
                if let Some(bytes) = read_some(link, datagrams)? {
                    self.pace.read(now);
                    self.status.received += bytes.len() as u64;
                    if let Some(tracer) = self.tracer.as_ref().filter(|tracer| tracer.traces_bytes()) {
                        tracer.bytes(&self.address, "read", &bytes);
                    }
                    let bytes = match &mut self.telnet {
                        Some(telnet) => decoded(telnet, &bytes, out),
                        None => bytes,
                    };
                    if bytes.is_empty() {
                        continue;
                    }
                    return Ok(bytes);
                }
                self.pace.nothing_more();
            }
            if until.is_some_and(|until| until <= now) {
                return Ok(Vec::new());
            }
            let wake = until.into_iter().chain(pause).fold(now + ROUND_EVERY, MonoNs::min);
            let left = (wake - now).0;
            let timeout = Timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, pause.is_none());
            flags.set(PollFlags::OUT, !out.is_empty());
            // A closed connection would end each wait. In a pause it is noticed at the end.
            let polled = if flags.is_empty() { &mut [][..] } else { &mut [PollFd::new(link, flags)] };
            match poll(polled, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads the bytes that were received; `None` if there are none. An empty datagram is ignored.
fn read_some(link: &OwnedFd, datagrams: bool) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; if datagrams { DATAGRAM_BYTES } else { READ_BYTES }];
    loop {
        match rustix::io::read(link, &mut bytes) {
            Ok(0) if datagrams => {}
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the device closed the connection")),
            Ok(len) => {
                bytes.truncate(len);
                return Ok(Some(bytes));
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends as many bytes as the kernel accepts now, and returns their number.
fn write_some(link: &OwnedFd, out: &mut Vec<u8>) -> io::Result<usize> {
    if out.is_empty() {
        return Ok(0);
    }
    match rustix::io::write(link, out) {
        Ok(len) => {
            out.drain(..len);
            Ok(len)
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// As [`write_some`], and traces the bytes.
fn write_traced(link: &OwnedFd, out: &mut Vec<u8>, address: &Address, tracer: Option<&Tracer>) -> io::Result<usize> {
    let Some(tracer) = tracer.filter(|tracer| !out.is_empty() && tracer.traces_bytes()) else {
        return write_some(link, out);
    };
    let before = out.clone();
    let len = write_some(link, out)?;
    if len > 0 {
        tracer.bytes(address, "write", &before[..len]);
    }
    Ok(len)
}

fn open(address: &Address) -> io::Result<(OwnedFd, Option<Telnet>)> {
    let link = match address {
        Address::Tcp(tcp) => open_tcp(tcp)?,
        Address::Udp(udp) => open_udp(udp)?,
        Address::Serial(serial) => open_serial(serial)?,
        Address::Com(com) => return open_com(com).map(|(link, telnet)| (link, Some(telnet))),
    };
    Ok((link, None))
}

/// Connects to a terminal server, and waits until all settings of the line are in force.
fn open_com(Com { server, line }: &Com) -> io::Result<(OwnedFd, Telnet)> {
    let link = open_tcp(server)?;
    let mut out = Vec::new();
    let mut telnet = Telnet::begin(line, &mut out);
    write_some(&link, &mut out)?;
    let until = mono_now() + DurNs(CONNECT_MAX.as_nanos() as i64);
    while !telnet.is_set().map_err(io::Error::other)? {
        let left = until - mono_now();
        if left.0 <= 0 {
            let why = "the terminal server did not confirm the settings of the line (RFC 2217)";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        sys::poll::readable(&[link.as_fd()], left);
        if let Some(bytes) = read_some(&link, false)? {
            // Data from before the settings are in force are no device's message.
            decoded(&mut telnet, &bytes, &mut out);
            write_some(&link, &mut out)?;
        }
    }
    Ok((link, telnet))
}

/// The data in received bytes. Answers to the server's commands are appended to `out`.
fn decoded(telnet: &mut Telnet, bytes: &[u8], out: &mut Vec<u8>) -> Vec<u8> {
    let mut data = Vec::new();
    telnet.decode(bytes, &mut data, out);
    data
}

fn open_tcp(Tcp { host, port, local, dead_after }: &Tcp) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in (host.as_str(), *port).to_socket_addrs()? {
        let connected = match local {
            None => TcpStream::connect_timeout(&place, CONNECT_MAX),
            Some(local) => connect_from(*local, &place),
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                if let Some(within) = *dead_after {
                    sys::tcp::notice_death_within(&stream, within).map_err(|error| io::Error::from(error.errno))?;
                }
                return Ok(stream.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// All own addresses of the kind of `place`, with a port; 0: any.
fn own(place: &SocketAddr, port: u16) -> SocketAddr {
    if place.is_ipv4() { (Ipv4Addr::UNSPECIFIED, port).into() } else { (Ipv6Addr::UNSPECIFIED, port).into() }
}

/// As [`TcpStream::connect_timeout`], from a local port.
fn connect_from(local: u16, place: &SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // The port is used again at once after a connection has ended.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &own(place, local))?;
    match rustix::net::connect(&socket, place) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let timeout = Timespec { tv_sec: CONNECT_MAX.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timeout))? == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
    }
    sockopt::socket_error(&socket)??;
    Ok(socket.into())
}

/// A socket that receives only from that host and port.
fn open_udp(Udp { host, port, local }: &Udp) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in (host.as_str(), *port).to_socket_addrs()? {
        let socket = UdpSocket::bind(own(&place, local.unwrap_or(0)))?;
        match socket.connect(place) {
            Ok(()) => {
                socket.set_nonblocking(true)?;
                return Ok(socket.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn open_serial(serial: &Serial) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&serial.path, flags, Mode::empty())?;
    let mut line = rustix::termios::tcgetattr(&fd)?;
    line.make_raw();
    line.set_speed(serial.baud)?;
    let modes = &mut line.control_modes;
    modes.remove(ControlModes::CSIZE | ControlModes::PARENB | ControlModes::PARODD | ControlModes::CSTOPB);
    modes.remove(ControlModes::CRTSCTS);
    modes.insert(ControlModes::CREAD | ControlModes::CLOCAL);
    modes.insert(match serial.bits {
        5 => ControlModes::CS5,
        6 => ControlModes::CS6,
        7 => ControlModes::CS7,
        _ => ControlModes::CS8,
    });
    match serial.parity {
        Parity::None => {}
        Parity::Even => modes.insert(ControlModes::PARENB),
        Parity::Odd => modes.insert(ControlModes::PARENB | ControlModes::PARODD),
    }
    modes.set(ControlModes::CSTOPB, serial.stop == 2);
    modes.set(ControlModes::CRTSCTS, serial.crtscts);
    line.input_modes.set(InputModes::IXON | InputModes::IXOFF, serial.ixon);
    rustix::termios::tcsetattr(&fd, OptionalActions::Now, &line)?;
    rustix::termios::tcflush(&fd, rustix::termios::QueueSelector::IOFlush)?;
    Ok(fd)
}
