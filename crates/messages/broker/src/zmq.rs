//! ZeroMQ endpoint of the message server: a ROUTER socket on TCP, in a separate process.
//!
//! The kernel cannot identify the user of a TCP client. Access rules treat all of them as coming from another host,
//! also over loopback.

mod places;

pub use crate::error::{AddressError, ListenError};

use crate::relay::{Passed, QUEUE_MAX, Relay};
use base::{DurNs, MonoNs};
use msg::zmtp::{GREETING, Incoming, Message, Peer, message};
use msg::{Code, Request, Subject, TextBuffer, TextError};
use places::{Place, Places};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::clock::mono_now;

/// Host name of all ZeroMQ clients in access rules.
pub const HOST: &str = "zmq";
/// User id of ZeroMQ clients: `nobody`, because the kernel does not identify them.
pub const USER: u32 = 65534;
/// Maximum number of clients. Each has one thread, and one more for each band that it uses.
const PEERS_MAX: usize = 32;
/// Time limit for a client's greeting, and the maximum number of clients without one. A further client replaces a
/// silent one.
const GREETING_WITHIN: DurNs = DurNs::from_secs(5);
const GREETINGS_MAX: usize = 32;
/// Maximum number of closed connections whose threads still run. Further connections wait in the kernel.
const ENDING_MAX: usize = 64;
/// A client whose host does not respond for this time is disconnected.
const DEAD_AFTER: DurNs = DurNs::from_secs(30);
/// Time between two checks of a thread whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// A client that does not read its replies for this time is disconnected.
const WRITE_WITHIN: Duration = Duration::from_secs(2);
/// Default time limit of a request.
const WITHIN: DurNs = DurNs::from_secs(5);

/// Event of the ZeroMQ endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Clients may connect here.
    Ready(SocketAddr),
    /// A client has connected.
    Joined(SocketAddr),
    /// A client has disconnected.
    Left(SocketAddr),
    /// A client was disconnected, with the reason.
    CutOff(SocketAddr, String),
    /// A fault. The endpoint retries.
    Trouble(String),
}

/// Parses an address in ZeroMQ's form: `tcp://127.0.0.1:5555`. Port 0 selects any free port.
///
/// # Errors
/// The text is not such an address.
pub fn address(text: &str) -> Result<SocketAddr, AddressError> {
    let address = text.strip_prefix("tcp://").and_then(|rest| rest.parse().ok());
    address.ok_or_else(|| AddressError { found: text.to_owned() })
}

/// Default maximum bytes of a body in either direction.
pub const BODIES: u64 = 4 << 20;

/// Serves clients on `listen` for the message server `server` until `stop` is set, with bodies of up to `bodies` bytes.
///
/// # Errors
/// The address is unavailable.
pub fn serve(
    server: &str,
    listen: SocketAddr,
    bodies: u64,
    stop: &Arc<AtomicBool>,
    say: &mut dyn FnMut(Event),
) -> Result<(), ListenError> {
    let failed = |source: std::io::Error| ListenError { address: listen, source };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    say(Event::Ready(listener.local_addr().map_err(failed)?));
    let (tell, told) = channel();
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let places = Arc::<Places>::default();
    while !stop.load(Ordering::Relaxed) {
        told.try_iter().for_each(&mut *say);
        threads.retain(|thread| !thread.is_finished());
        sys::poll::is_readable(listener.as_fd(), DurNs::from_ms(100));
        if threads.len() >= PEERS_MAX + GREETINGS_MAX + ENDING_MAX {
            std::thread::sleep(LOOK);
            continue;
        }
        match listener.accept() {
            Ok((stream, from)) => {
                say(Event::Joined(from));
                let place = match places.enter(&stream, from) {
                    Ok(place) => place,
                    Err(error) => {
                        say(Event::CutOff(from, error.to_string()));
                        continue;
                    }
                };
                let (server, stop, tell) = (server.to_owned(), stop.clone(), tell.clone());
                threads.push(std::thread::spawn(move || hear(&server, stream, place, bodies, &stop, &tell)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                say(Event::Trouble(format!("accept at tcp://{listen}: {error}")));
                std::thread::sleep(LOOK);
            }
        }
    }
    for thread in threads {
        // A thread that panicked has already printed so to stderr.
        let _ = thread.join();
    }
    Ok(())
}

/// Serves one client until it disconnects.
fn hear(server: &str, stream: TcpStream, place: Place, bodies: u64, stop: &AtomicBool, tell: &Sender<Event>) {
    let from = place.from;
    let end = Caller::new(server, stream, place, bodies).and_then(|mut caller| caller.run(stop));
    // The receiver exists until all threads have ended.
    let _ = tell.send(match end {
        Ok(()) => Event::Left(from),
        Err(why) => Event::CutOff(from, why.to_string()),
    });
}

/// Reason to disconnect a client.
#[derive(Debug, thiserror::Error)]
enum CutOff {
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    #[error(transparent)]
    Peer(#[from] msg::zmtp::Fault),
    #[error("it has not introduced itself within {GREETING_WITHIN}")]
    Silent,
    #[error("{PEERS_MAX} clients are connected already; end one of them")]
    Full,
    #[error("it had not introduced itself when {GREETINGS_MAX} others were connecting")]
    Displaced,
}

/// Stream for the replies.
type ReplyStream = Arc<Mutex<TcpStream>>;

struct Caller {
    server: String,
    place: Place,
    bodies: u64,
    stream: TcpStream,
    out: ReplyStream,
    peer: Peer,
    bands: HashMap<u8, Relay<Vec<Vec<u8>>>>,
}

impl Caller {
    fn new(server: &str, stream: TcpStream, place: Place, bodies: u64) -> Result<Self, CutOff> {
        let set = || {
            stream.set_nonblocking(false)?;
            sys::tcp::notice_death_within(&stream, DEAD_AFTER).map_err(|error| std::io::Error::from(error.errno))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(WRITE_WITHIN))?;
            stream.try_clone()
        };
        let out = Arc::new(Mutex::new(set()?));
        let (server, peer) = (server.to_owned(), Peer::new(bodies as usize));
        Ok(Self { server, place, bodies, stream, out, peer, bands: HashMap::new() })
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<(), CutOff> {
        let (began, mut introduced) = (mono_now(), false);
        let mut bytes = vec![0; 16 << 10];
        let mut came = Vec::new();
        write(&self.out, &GREETING);
        while !stop.load(Ordering::Relaxed) {
            let length = match self.stream.read(&mut bytes) {
                Ok(0) => return if self.place.is_displaced() { Err(CutOff::Displaced) } else { Ok(()) },
                Ok(length) => length,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
                {
                    0
                }
                // The client has gone, or it did not read its replies.
                Err(_) => return Ok(()),
            };
            let fed = self.peer.feed(&bytes[..length], &mut came);
            if !introduced && self.peer.is_ready() {
                introduced = self.place.introduce();
                if !introduced {
                    return Err(if self.place.is_displaced() { CutOff::Displaced } else { CutOff::Full });
                }
            }
            for incoming in came.drain(..) {
                match incoming {
                    Incoming::Send(bytes) => write(&self.out, &bytes),
                    Incoming::Message(message) => self.request(message),
                }
            }
            fed?;
            if !introduced && mono_now() - began > GREETING_WITHIN {
                return Err(CutOff::Silent);
            }
        }
        Ok(())
    }

    fn request(&mut self, mut message: Message) {
        let Self { server, place: Place { from, .. }, bodies, out, bands, .. } = self;
        let (line, options, body) = match allowed(&message) {
            Ok((line, options, body)) => (line.to_owned(), options, body.to_vec()),
            Err((code, why)) => return reply(out, message.envelope().0, code, &why, &[]),
        };
        message.frames.truncate(message.envelope().0.len());
        let subject = Subject { uid: USER, pid: from.port().into(), host: 0 };
        let until = MonoNs(mono_now().0.saturating_add(options.within.unwrap_or(WITHIN).0.unsigned_abs()));
        let relay = bands.entry(options.band.number()).or_insert_with(|| {
            let out = out.clone();
            let answer = move |envelope: Vec<Vec<u8>>, code: Code, text: &str, body: &[u8]| {
                reply(&out, &envelope, code, text, body);
            };
            Relay::start(server, &format!("zmq:{from}"), options.band, HOST, *bodies, answer)
        });
        let msg::Options { flags, pulse, answer, .. } = options;
        let passed = Passed { line, until, flags, pulse, body, answer, subject, token: message.frames };
        if let Err(refused) = relay.pass(passed) {
            let why = format!("{QUEUE_MAX} requests of this client and band wait already; take replies first");
            reply(out, &refused.token, Code::Overload, &why, &[]);
        }
    }
}

/// Parses a message and checks that its verb is permitted over ZeroMQ.
fn allowed(message: &Message) -> Result<(&str, msg::Options, &[u8]), (Code, String)> {
    let (line, options, body) = message.request().map_err(|why| (Code::Malformed, why.to_string()))?;
    match Request::parse(line) {
        Ok(Request { verb, .. }) if verb.is_servers() => {
            Err((Code::NoVerb, format!("{verb} does not reach over ZeroMQ; use a client on the host itself")))
        }
        Ok(_) => Ok((line, options, body)),
        Err(error @ TextError::Verb { .. }) => Err((Code::NoVerb, error.to_string())),
        Err(error) => Err((Code::Malformed, error.to_string())),
    }
}

fn reply(out: &ReplyStream, envelope: &[Vec<u8>], code: Code, text: &str, body: &[u8]) {
    let mut line = TextBuffer::new();
    line.reply(code, text);
    let frames = envelope.iter().map(Vec::as_slice).chain([line.text().as_bytes()]);
    match body {
        [] => write(out, &message(frames)),
        // The frame of options stays empty.
        body => write(out, &message(frames.chain([&[][..], body]))),
    }
}

/// Sends bytes to a client. If that fails or times out, closes the connection; the reading thread notices it.
fn write(out: &ReplyStream, bytes: &[u8]) {
    let mut stream = out.lock().unwrap_or_else(PoisonError::into_inner);
    if stream.write_all(bytes).is_err() {
        // Fails only if the connection has already gone.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
