//! The server with well-behaved clients and with others.

use base::DurNs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use web::{Answer, Limits, Message, Method, Next, Now, Request, Server, Site, Socket};

/// Longer than any test takes. A hanging test fails.
const WATCHDOG: Duration = Duration::from_secs(60);

/// The site that the tests serve.
#[derive(Default)]
struct Test {
    /// Number of parts of a long body that were made.
    made: Arc<AtomicUsize>,
    /// Number of sockets that have ended.
    ended: Arc<AtomicUsize>,
    /// Reads of a disk that hangs.
    held: Arc<Held>,
}

/// Reads that block until they are released, and the number of begun reads.
#[derive(Default)]
struct Held {
    released: Mutex<bool>,
    changed: Condvar,
    begun: AtomicUsize,
}

impl Held {
    fn read(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let released = self.released.lock().unwrap();
        drop(self.changed.wait_while(released, |released| !*released).unwrap());
    }

    fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Site for Test {
    fn may_take_long(&self, request: &Request) -> bool {
        request.path == "/held"
    }

    fn answer(&self, request: &Request, _: Now) -> Answer {
        match (request.method, request.path.as_str()) {
            (Method::Get, "/") => Answer::text(200, "here"),
            (Method::Post, "/echo") => Answer::new(200, "text/plain", request.body.clone()),
            (Method::Get, "/long") => {
                let made = self.made.clone();
                let parts = (0..10_000).map(move |_| {
                    made.fetch_add(1, Ordering::SeqCst);
                    Ok(vec![b'x'; 10_000])
                });
                Answer::parts("text/plain", Box::new(parts))
            }
            (Method::Get, "/held") => {
                self.held.read();
                Answer::text(200, "read")
            }
            (Method::Get, "/held-parts") => {
                let held = self.held.clone();
                let parts = std::iter::once_with(move || {
                    held.read();
                    Ok(b"read".to_vec())
                });
                Answer::parts("text/plain", Box::new(parts))
            }
            (Method::Get, "/broken") => {
                let parts = [Ok(b"half".to_vec()), Err(std::io::Error::other("the disk failed"))];
                Answer::parts("text/plain", Box::new(parts.into_iter()))
            }
            _ => Answer::text(404, "not here"),
        }
    }

    fn has_reserve(&self, request: &Request, _: Now) -> bool {
        request.bearer() == Some("operator")
    }

    fn socket(&self, request: &Request, _: Now) -> Result<Box<dyn Socket>, Answer> {
        if request.path != "/ws" {
            return Err(Answer::text(404, "not here"));
        }
        Ok(Box::new(Echo { waits: Vec::new(), floods: false, ended: self.ended.clone() }))
    }
}

/// Echoes. After the message `flood`, sends as much as the client accepts.
struct Echo {
    waits: Vec<String>,
    floods: bool,
    ended: Arc<AtomicUsize>,
}

impl Socket for Echo {
    fn receive(&mut self, message: Message<'_>, _: Now) {
        match message {
            Message::Text("flood") => self.floods = true,
            Message::Text(text) => self.waits.push(text.to_owned()),
            Message::Bytes(bytes) => self.waits.push(format!("{} bytes", bytes.len())),
        }
    }

    fn next(&mut self, _: Now) -> Next {
        match self.waits.pop() {
            Some(text) if text == "end" => Next::Close("as you like".to_owned()),
            Some(text) => Next::Text(text),
            None if self.floods => Next::Bytes(vec![0; 60_000]),
            None => Next::Wait(DurNs::from_secs(1)),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// A server that runs until it is dropped.
struct Running {
    address: SocketAddr,
    made: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    held: Arc<Held>,
    stop: Option<UnixStream>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(limits: Limits) -> Self {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Vec::new(), limits).unwrap();
        let (address, site) = (server.address(), Test::default());
        let (made, ended, held) = (site.made.clone(), site.ended.clone(), site.held.clone());
        let (stop, stopped) = UnixStream::pair().unwrap();
        stopped.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || server.run(Arc::new(site), stopped.into()).unwrap());
        Self { address, made, ended, held, stop: Some(stop), thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream.set_write_timeout(Some(WATCHDOG)).unwrap();
        stream
    }

    /// Sends `text` and returns everything up to the end of the connection.
    fn say(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        read(&mut stream)
    }

    /// A client whose read has begun. If its request is too slow on a busy machine, another one is sent.
    fn reader(&self, request: &str) -> TcpStream {
        let begun = || self.held.begun.load(Ordering::SeqCst);
        let before = begun();
        loop {
            let mut stream = self.connect();
            stream.write_all(request.as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            let waits = || stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            until("its read begins or is refused", || begun() > before || !waits());
            stream.set_nonblocking(false).unwrap();
            if begun() > before {
                return stream;
            }
        }
    }

    fn socket(&self, headers: &str) -> (TcpStream, String) {
        let mut stream = self.connect();
        let head = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
        stream.write_all(format!("{head}{headers}\r\n").as_bytes()).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
            answer.push(byte[0]);
        }
        (stream, String::from_utf8(answer).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.held.release();
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a condition.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < WATCHDOG, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// The next short frame from the server, except pings.
fn heard(stream: &mut TcpStream) -> Vec<u8> {
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; head[1].into()];
        stream.read_exact(&mut payload).unwrap();
        if head[0] != 0x89 {
            return [&head[..], &payload].concat();
        }
    }
}

/// A client's frame, masked with zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

const HERE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const ORIGIN: &str = "Origin: http://localhost\r\n";

#[test]
fn every_answer_has_headers_that_forbid_other_origins_to_use_it() {
    let server = Running::start(Limits::default());
    let answer = server.say(HERE).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200") && answer.ends_with("here\n"), "{answer}");
    for header in [
        "content-security-policy: default-src 'self'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(answer.contains(header), "{header}: {answer}");
    }
    assert!(!answer.contains("access-control-"), "{answer}");
}

#[test]
fn a_rebound_name_and_another_site_are_refused_before_the_site_sees_them() {
    let server = Running::start(Limits::default());
    let answer = server.say("GET / HTTP/1.1\r\nHost: evil.example:8765\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 421") && answer.contains("expected localhost"), "{answer}");
    let post = "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n";
    let answer = server.say(&format!("{post}Origin: http://evil.example\r\n\r\nhi"));
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let answer = server.say(&format!("{post}{ORIGIN}\r\nhi"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hi"), "{answer}");
    assert!(server.socket("Origin: http://evil.example\r\n").1.starts_with("HTTP/1.1 403"));
    assert!(server.socket("").1.starts_with("HTTP/1.1 403"));
}

#[test]
fn oversized_and_malformed_requests_are_refused_and_others_are_served() {
    let limits = Limits { body_bytes_max: 100, ..Limits::default() };
    let server = Running::start(limits);
    let long =
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(limits.header_bytes_max + 1000));
    let answer = server.say(&long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert!(server.say(&many).starts_with("HTTP/1.1 431"));
    let body = "a".repeat(101);
    let answer = server.say(&format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 101\r\n\r\n{body}"));
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("at most 100 bytes"), "{answer}");
    assert!(server.say("\0\x01\x02 nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(server.say(HERE).contains("here"));
}

#[test]
fn headers_and_bodies_that_arrive_too_slowly_end_the_connection() {
    let server = Running::start(Limits { request_within: DurNs::from_ms(100), ..Limits::default() });
    // The client sends a part of its request, but never all.
    let answer = server.say("GET / HTTP/1.1\r\nHost: loc");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    // On a busy machine even its headers may be too slow.
    let half = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123";
    until("its body is too slow", || server.say(half).starts_with("HTTP/1.1 408"));
    // A client that sends nothing, and one that sends nothing after its first request.
    assert_eq!(server.say(""), "");
    until("it is served", || server.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("here"));
}

#[test]
fn a_client_beyond_the_limit_gets_short_answers_but_no_websocket() {
    let server = Running::start(Limits { clients_max: 2, ..Limits::default() });
    let (first, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 101") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    let (_second, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let (mut third, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(read(&mut third), "all 2 connections are taken; close another one and try again\n");
    // A page and a login are short, and an operator must reach them. The connection ends after the answer.
    let kept_open = server.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(kept_open.starts_with("HTTP/1.1 200") && kept_open.contains("connection: close"), "{kept_open}");
    let long = server.say("GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(long.starts_with("HTTP/1.1 503"), "{long}");
    drop(first);
    until("its socket has ended", || server.ended.load(Ordering::SeqCst) == 1);
    // Its seat is released a moment after its end.
    until("its seat is free", || server.socket(ORIGIN).1.starts_with("HTTP/1.1 101"));
}

#[test]
fn an_operator_gets_a_websocket_although_viewers_have_taken_all_seats() {
    for limits in
        [Limits { clients_max: 2, ..Limits::default() }, Limits { clients_of_one_max: 2, ..Limits::default() }]
    {
        let server = Running::start(limits);
        let taken: Vec<_> = (0..2).map(|_| server.socket(ORIGIN)).collect();
        assert!(taken.iter().all(|(_, answer)| answer.starts_with("HTTP/1.1 101")));
        assert!(server.socket(ORIGIN).1.starts_with("HTTP/1.1 503"));
        let (mut socket, answer) = server.socket("Authorization: Bearer operator\r\n");
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        socket.write_all(&frame(1, b"hello")).unwrap();
        assert_eq!(heard(&mut socket), b"\x81\x05hello");
    }
}

#[test]
fn connections_beyond_the_limit_are_bounded() {
    let server = Running::start(Limits { clients_max: 1, ..Limits::default() });
    let (_first, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let _silent: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    let refused = read(&mut server.connect());
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("all 1 connections are taken"), "{refused}");
}

#[test]
fn one_user_gets_at_most_half_of_the_seats() {
    let server = Running::start(Limits { clients_max: 4, clients_of_one_max: 2, ..Limits::default() });
    let (first, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let (_second, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let (mut third, answer) = server.socket(ORIGIN);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let refused = read(&mut third);
    assert!(
        refused.starts_with("user ") && refused.contains("has 2 connections already; close another one"),
        "{refused}"
    );
    drop(first);
    // Its seat is released a moment after its end.
    until("its seat is free", || server.socket(ORIGIN).1.starts_with("HTTP/1.1 101"));
}

#[test]
fn a_long_body_is_produced_only_as_fast_as_it_is_read() {
    let server = Running::start(Limits { stalled_max: DurNs::from_ms(300), ..Limits::default() });
    let mut stream = server.connect();
    stream.write_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // The client does not read: sockets fill up, then the server aborts, long before all parts are made. The body holds an `Arc`.
    let made = || server.made.load(Ordering::SeqCst);
    until("it is aborted", || made() > 0 && Arc::strong_count(&server.made) == 2);
    assert!(made() < 10_000, "{}", made());
    let text = read(&mut stream);
    assert!(text.len() < 100_000_000 && !text.ends_with("0\r\n\r\n"), "{}", text.len());
}

#[test]
fn a_body_that_fails_half_way_has_no_end_marker() {
    let server = Running::start(Limits::default());
    let answer = server.say("GET /broken HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    // Unsent data may be missing. The end marker of a whole body always is.
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
fn a_websocket_transfers_both_ways_and_ends_with_a_reason() {
    let server = Running::start(Limits::default());
    let (mut stream, _) = server.socket(ORIGIN);
    stream.write_all(&frame(1, b"hello")).unwrap();
    assert_eq!(heard(&mut stream), b"\x81\x05hello");
    stream.write_all(&frame(1, b"end")).unwrap();
    let text = read(&mut stream);
    assert!(text.contains("as you like"), "{text:?}");
}

#[test]
fn a_websocket_with_endless_output_still_reads() {
    let server = Running::start(Limits::default());
    let (mut stream, _) = server.socket(ORIGIN);
    stream.write_all(&frame(1, b"flood")).unwrap();
    let mut some = vec![0; 200_000];
    stream.read_exact(&mut some).unwrap();
    stream.write_all(&frame(1, b"end")).unwrap();
    // It ends because of the message, not because of a timeout.
    let mut all = Vec::new();
    while stream.read(&mut some).is_ok_and(|read| {
        all.extend_from_slice(&some[..read]);
        read > 0
    }) {}
    let end = &all[all.len().saturating_sub(40)..];
    assert!(end.windows(11).any(|text| text == b"as you like"), "{end:?}");
}

#[test]
fn websockets_that_send_too_much_or_never_read_are_disconnected() {
    let server = Running::start(Limits { stalled_max: DurNs::from_ms(300), ..Limits::default() });
    let (mut long, _) = server.socket(ORIGIN);
    // A header that announces 1 GiB is enough.
    long.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    read(&mut long);
    let (mut unmasked, _) = server.socket(ORIGIN);
    unmasked.write_all(b"\x81\x02hi").unwrap();
    read(&mut unmasked);
    let (mut deaf, _) = server.socket(ORIGIN);
    deaf.write_all(&frame(1, b"flood")).unwrap();
    until("all three are disconnected", || server.ended.load(Ordering::SeqCst) == 3);
    assert!(server.say(HERE).contains("here"));
}

#[test]
fn a_malformed_request_for_a_websocket_is_answered() {
    let server = Running::start(Limits::default());
    const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";
    let upgrade = "Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    for (first, headers, expected) in [
        ("GET /ws HTTP/1.1", VERSION.to_owned(), "400"),
        ("GET /ws HTTP/1.1", format!("{VERSION}Sec-WebSocket-Key: x\r\n"), "400"),
        ("GET /ws HTTP/1.1", format!("{VERSION}Sec-WebSocket-Key: \r\n"), "400"),
        ("GET /ws HTTP/1.0", format!("{VERSION}{KEY}"), "400"),
        ("POST /ws HTTP/1.1", format!("{VERSION}{KEY}Content-Length: 0\r\n"), "400"),
        ("GET /ws HTTP/1.1", KEY.to_owned(), "426"),
        ("GET /ws HTTP/1.1", format!("{KEY}Sec-WebSocket-Version: 8\r\n"), "426"),
        ("GET /other HTTP/1.1", format!("{VERSION}{KEY}"), "404"),
        ("GET /ws HTTP/1.1", format!("{VERSION}{KEY}broken header\r\n"), "400"),
    ] {
        let mut stream = server.connect();
        stream.write_all(format!("{first}\r\n{upgrade}{ORIGIN}{headers}\r\n").as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap_or_else(|error| panic!("{first} {headers}: {error}"));
        assert_eq!(&status[9..], expected.as_bytes(), "{first} {headers}");
    }
}

#[test]
fn a_malformed_frame_is_answered_with_the_reason() {
    let server = Running::start(Limits::default());
    let long = [0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0];
    for (bytes, code) in
        [(&b"\x81\x02hi"[..], 1002_u16), (&long, 1009), (&frame(1, &[0xff])[..], 1007), (&frame(3, b"")[..], 1002)]
    {
        let (mut stream, _) = server.socket(ORIGIN);
        stream.write_all(bytes).unwrap();
        let answer = heard(&mut stream);
        assert_eq!((answer[0], &answer[2..4]), (0x88, &code.to_be_bytes()[..]), "{bytes:?}: {answer:?}");
        assert!(answer.len() > 10, "with a reason: {answer:?}");
    }
}

#[test]
fn blocked_reads_do_not_delay_other_requests() {
    for path in ["/held", "/held-parts"] {
        let server = Running::start(Limits::default());
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut readers: Vec<TcpStream> = (0..12).map(|_| server.connect()).collect();
        readers.iter_mut().for_each(|reader| reader.write_all(head.as_bytes()).unwrap());
        // One user may have two of the four reads.
        until("two reads have begun", || server.held.begun.load(Ordering::SeqCst) == 2);
        assert!(server.say(HERE).contains("here"), "the page");
        let (_socket, answer) = server.socket(ORIGIN);
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        assert_eq!(server.held.begun.load(Ordering::SeqCst), 2, "the others wait for their turn");
        server.held.release();
        for reader in &mut readers {
            let answer = read(reader);
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("read"), "{path}: {answer}");
        }
    }
}

#[test]
fn a_read_that_waits_too_long_for_its_turn_is_answered_with_503() {
    let server = Running::start(Limits { request_within: DurNs::from_ms(200), ..Limits::default() });
    let head = "GET /held HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut readers: Vec<TcpStream> = (0..2).map(|_| server.reader(head)).collect();
    let told = ["http/1.1 503", "retry-after: 10", "try again later"];
    until("it receives the refusal", || {
        let answer = server.say(head).to_ascii_lowercase();
        told.iter().all(|part| answer.contains(part))
    });
    server.held.release();
    assert!(readers.iter_mut().all(|reader| read(reader).contains("read")));
    until("turns are returned", || server.say(head).contains("read"));
}

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// Changes, removes, inserts or doubles some bytes.
    fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(6) {
            let (at, to) = (self.below(bytes.len()), self.below(bytes.len()));
            match self.below(4) {
                0 => bytes[at] = self.below(256) as u8,
                1 => drop(bytes.drain(at.min(to)..at.max(to).min(at.min(to) + 8))),
                2 => bytes.insert(at, self.below(256) as u8),
                _ => bytes.extend_from_within(at.min(to)..at.max(to)),
            }
            bytes.push(b'\n');
        }
        bytes
    }
}

#[test]
fn damaged_requests_and_frames_end_only_their_connection() {
    let limits = Limits { body_bytes_max: 1_000, ..Limits::default() };
    let server = Running::start(limits);
    let mut numbers = Numbers(0x7461_6874_6921);
    let (mut witness, _) = server.socket(ORIGIN);
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    let post = format!(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\n{ORIGIN}Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
    );
    let frames = [frame(1, b"hello"), frame(2, &[7; 300]), frame(9, b"ping"), frame(8, b"\x03\xe8end")].concat();
    for _ in 0..200 {
        // The witness answers no pings meanwhile, so it sends a sign of life.
        witness.write_all(&frame(10, b"")).unwrap();
        let requests = [get.as_bytes(), post.as_bytes()].map(|request| numbers.damage(request));
        for bytes in requests {
            let mut stream = server.connect();
            // The server may refuse the request before it has read all of it.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            read(&mut stream);
        }
        let (mut stream, _) = server.socket(ORIGIN);
        let _ = stream.write_all(&numbers.damage(&frames));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read(&mut stream);
    }
    // The old connection is still served, and so is a new one.
    witness.write_all(&frame(1, b"still")).unwrap();
    assert_eq!(heard(&mut witness), b"\x81\x05still");
    let answer = server.say(HERE);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
