//! The ZeroMQ interface and clients that break the rules. Normal clients are tested with pyzmq.

mod server;

use broker::zmq::{self, Event};
use server::server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Timeout. Only a hung machine reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A DEALER after its handshake.
fn dealer(address: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&msg::zmtp::GREETING).unwrap();
    stream.write_all(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER").unwrap();
    stream
}

/// An empty frame and a line.
fn request(line: &str) -> Vec<u8> {
    let mut bytes = b"\x01\x00\x02".to_vec();
    bytes.extend_from_slice(&(line.len() as u64).to_be_bytes());
    bytes.extend_from_slice(line.as_bytes());
    bytes
}

/// The ZeroMQ interface of a message server, with its reports.
struct Serving {
    _server: server::Server,
    name: String,
    address: std::net::SocketAddr,
    events: Receiver<Event>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start() -> Self {
        let server = server();
        let (tell, events) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (name, stopped) = (server.name.clone(), stop.clone());
        let listen = "127.0.0.1:0".parse().unwrap();
        let serve = move || zmq::serve(&name, listen, 1 << 20, &stopped, &mut |event| drop(tell.send(event))).unwrap();
        let thread = Some(std::thread::spawn(serve));
        let Event::Ready(address) = events.recv_timeout(PATIENCE).unwrap() else { panic!("it is not ready") };
        Self { name: server.name.clone(), _server: server, address, events, stop, thread }
    }

    /// Sends a request and reads until the reply has arrived.
    fn is_answered(&self, client: &mut TcpStream) {
        client.write_all(&request("ping/server")).unwrap();
        let (mut all, mut some) = (Vec::new(), [0; 1024]);
        let wanted = format!("OK/{}", self.name);
        while !all.windows(wanted.len()).any(|part| part == wanted.as_bytes()) {
            let length = client.read(&mut some).unwrap();
            assert!(length > 0, "disconnected: {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&some[..length]);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn silent_zmq_connections_do_not_keep_clients_out() {
    let serving = Serving::start();
    let connect = || TcpStream::connect(serving.address).unwrap();
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    serving.is_answered(&mut dealer(serving.address));
    // The oldest client was disconnected in favour of the newest. It sees the end of its connection.
    let mut oldest = &silent[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    oldest.read_to_end(&mut Vec::new()).unwrap();
    let first = oldest.local_addr().unwrap();
    let reason = loop {
        match serving.events.recv_timeout(PATIENCE).unwrap() {
            Event::CutOff(who, why) if who == first => break why,
            _ => {}
        }
    };
    assert!(reason.contains("had not introduced itself"), "{reason}");
}

#[test]
fn a_client_that_reads_no_replies_is_disconnected_after_2s_and_others_are_served() {
    let serving = Serving::start();
    let (address, events) = (serving.address, &serving.events);
    let (mut silent, mut other) = (dealer(address), dealer(address));
    // Each request gets a long reply, until the replies fill the kernel's buffers.
    let (nonsense, begun) = (request(&"x".repeat(1900)), Instant::now());
    while silent.write_all(&nonsense).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the connection is not closed");
    }
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let gone = silent.local_addr().unwrap();
    while !matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Left(who) | Event::CutOff(who, _) if who == gone) {}

    serving.is_answered(&mut other);
}
