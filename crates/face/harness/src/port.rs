//! Ports of loopback that nobody else takes while the test runs.

use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;

/// What says to other tests, of this process or another, that a port is taken: a socket on this address of loopback,
/// where nothing else listens.
const CLAIMS: &str = "127.93.0.1";
/// Below the ports that the kernel hands out by itself, so that no client of another test has one by chance.
const FIRST: u16 = 12_000;
/// A server's port, its repeater's, and two more for a second one.
const STEP: u16 = 4;
const COUNT: u16 = 5_000;

/// A port that is free for circuits and datagrams, as are the three above it; it stays claimed until the process ends.
pub fn free_port() -> u16 {
    static CLAIMED: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());
    let start = (std::process::id() % u32::from(COUNT)) as u16;
    for nth in 0..COUNT {
        let port = FIRST + (start + nth) % COUNT * STEP;
        let Ok(claim) = TcpListener::bind((CLAIMS, port)) else { continue };
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("0.0.0.0", port)).is_ok();
        if (port..port + STEP).all(free) {
            CLAIMED.lock().unwrap().push(claim);
            return port;
        }
    }
    panic!("no free ports from {FIRST} up");
}
