//! Ports of the loopback interface, reserved while the test runs.

use std::net::{TcpListener, UdpSocket};
use std::sync::Mutex;

/// Address of the sockets that reserve ports among tests of all processes. No other program listens on this address of the loopback interface.
const CLAIMS: &str = "127.93.0.1";
/// Below the kernel's range of ephemeral ports, so that clients of other tests do not get one by chance.
const FIRST: u16 = 12_000;
/// Ports per reservation: a server, its repeater, two more for a second server, and two for PVAccess.
const STEP: u16 = 6;
const COUNT: u16 = 3_400;

/// The first of six consecutive ports that are free for TCP and UDP. Reserved until the process ends.
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
