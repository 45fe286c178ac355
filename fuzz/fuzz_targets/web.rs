//! Arbitrary requests and WebSocket bytes from the network: whatever a client sends, the server answers the next
//! client.
#![no_main]

use base::DurNs;
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use web::{Answer, Limits, Message, Method, Next, Now, Request, Server, Site, Socket};

/// If no answer arrives for this long, the server is waiting for more bytes.
const PATIENCE: Duration = Duration::from_millis(5);
/// Longer than any exchange of this target takes.
const WATCHDOG: Duration = Duration::from_secs(20);
const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nAuthorization: Bearer 1\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// Answers with the contents of the request.
struct Echo;

impl Site for Echo {
    fn may_take_long(&self, request: &Request) -> bool {
        request.path.starts_with("/slow")
    }

    fn answer(&self, request: &Request, _: Now) -> Answer {
        let held = [request.cookie("tahti-1"), request.bearer()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        match request.method {
            Method::Post => Answer::new(200, "text/plain", request.body.clone()),
            _ => Answer::text(200, &format!("{} {held}", request.path)),
        }
    }

    fn socket(&self, _: &Request, _: Now) -> Result<Box<dyn Socket>, Answer> {
        Ok(Box::new(Script(VecDeque::new())))
    }
}

/// Received texts and bytes, to be sent back.
struct Script(VecDeque<Next>);

impl Socket for Script {
    fn receive(&mut self, message: Message<'_>, _: Now) {
        self.0.push_back(match message {
            Message::Text("end") => Next::Close("as you like".to_owned()),
            Message::Text(text) => Next::Text(text.to_owned()),
            Message::Bytes(bytes) => Next::Bytes(bytes.to_vec()),
        });
    }

    fn next(&mut self, _: Now) -> Next {
        self.0.pop_front().unwrap_or(Next::Wait(DurNs::from_secs(1)))
    }
}

/// Starts the server at the first call; it runs until this process ends. A panic in any of its threads ends the
/// process.
fn server() -> SocketAddr {
    static SERVER: OnceLock<(SocketAddr, UnixStream)> = OnceLock::new();
    let (address, _) = SERVER.get_or_init(|| {
        let server = Server::bind(([127, 0, 0, 1], 0).into(), Vec::new(), Limits::default()).expect("a port is free");
        let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
        stopped.set_nonblocking(true).expect("a socket");
        let address = server.address();
        std::thread::spawn(move || server.run(Arc::new(Echo), stopped.into()));
        (address, stop)
    });
    *address
}

/// Sends the parts. Returns all bytes that the server sends until it closes the connection or waits for more.
fn said(parts: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server()).expect("the server accepts");
    stream.set_write_timeout(Some(WATCHDOG)).expect("a socket");
    // The server may close the connection of a refused client before all parts are written.
    let _ = parts.iter().try_for_each(|part| stream.write_all(part));
    let mut answer = Vec::new();
    for patience in [PATIENCE, WATCHDOG] {
        stream.set_read_timeout(Some(patience)).expect("a socket");
        match stream.read_to_end(&mut answer) {
            Ok(_) => return answer,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return answer,
            Err(error) if patience == WATCHDOG => panic!("the server neither answers nor closes: {error}"),
            // Ends the input, so that the server stops waiting.
            Err(_) => drop(stream.shutdown(Shutdown::Write)),
        }
    }
    unreachable!("the second time is the last")
}

fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let answer = if how & 1 == 0 { said(&[bytes]) } else { said(&[UPGRADE, bytes]) };
    // Each answer is HTTP.
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&answer));
    // If the server has no free place at once, it must have one within the watchdog's time.
    let mut next = Vec::new();
    let begin = std::time::Instant::now();
    while next.is_empty() && begin.elapsed() < WATCHDOG {
        next = said(&[b"GET /here HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]);
    }
    assert!(next.starts_with(b"HTTP/1.1 200") && next.ends_with(b"/here \n"), "{:?}", String::from_utf8_lossy(&next));
});
