//! What ZeroMQ's end does to a client that does not keep to the rules. How it serves others is tried with pyzmq.

mod server;

use broker::zmq::{self, Event};
use server::server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What a hung machine is given before a test says so.
const PATIENCE: Duration = Duration::from_secs(60);

/// A DEALER that has introduced itself.
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

#[test]
fn who_reads_no_replies_is_cut_off_after_2s_and_nobody_else_notices() {
    let server = server();
    let (tell, events) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let (name, stopped) = (server.name.clone(), stop.clone());
    let listen = "127.0.0.1:0".parse().unwrap();
    let end =
        std::thread::spawn(move || zmq::serve(&name, listen, 1 << 20, &stopped, &mut |event| drop(tell.send(event))));
    let Event::Ready(address) = events.recv_timeout(PATIENCE).unwrap() else { panic!("it is not ready") };
    let (mut silent, mut other) = (dealer(address), dealer(address));
    // Each is answered at length, until the replies fill all that the kernel holds of them.
    let (nonsense, begun) = (request(&"x".repeat(1900)), Instant::now());
    while silent.write_all(&nonsense).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "nobody cuts it off");
    }
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let gone = silent.local_addr().unwrap();
    while !matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Left(who) | Event::CutOff(who, _) if who == gone) {}

    other.write_all(&request("ping/server")).unwrap();
    let (mut all, mut some) = (Vec::new(), [0; 1024]);
    let wanted = format!("OK/{}", server.name);
    while !all.windows(wanted.len()).any(|part| part == wanted.as_bytes()) {
        let length = other.read(&mut some).unwrap();
        assert!(length > 0, "cut off: {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&some[..length]);
    }
    stop.store(true, Ordering::Relaxed);
    end.join().unwrap().unwrap();
}
