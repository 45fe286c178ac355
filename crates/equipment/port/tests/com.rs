//! A serial line behind a terminal server (RFC 2217).

use base::MonoNs;
use fieldbus::Exchange;
use port::{Address, Connection};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

const IAC: u8 = 255;
const COM_PORT: u8 = 44;

/// Sends two bytes, and keeps the answer of two bytes.
#[derive(Default)]
struct Pair {
    is_sent: bool,
    answer: Vec<u8>,
    error: Option<String>,
}

impl Exchange for Pair {
    fn poll_transmit(&mut self, _: MonoNs, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_sent, true) {
            out.extend([b'a', IAC]);
        }
    }
    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
        self.answer.extend_from_slice(bytes);
    }
    fn poll_timeout(&self) -> Option<MonoNs> {
        Some(MonoNs(u64::MAX >> 1))
    }
    fn handle_timeout(&mut self, _: MonoNs) {}
    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        self.error = Some(why.to_owned());
    }
    fn is_over(&self) -> bool {
        self.answer.len() >= 2 || self.error.is_some()
    }
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// A terminal server that sets `baud`, whatever is asked for, and then answers one request.
fn serve(baud: u32) -> (Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut address: Address = format!("{} COM", listener.local_addr().unwrap()).parse().unwrap();
    address.set("baud", "19200").unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Two options in both directions, and the COM port.
        assert!(read(&mut stream, 15).ends_with(&[IAC, 251, COM_PORT]));
        stream.write_all(&[IAC, 253, COM_PORT, IAC, 253, 0]).unwrap();
        let settings = read(&mut stream, 10 + 4 * 7);
        let expected = [IAC, 250, COM_PORT, 1, 0, 0, 0x4b, 0, IAC, 240];
        assert_eq!(settings[..10], expected);
        let mut confirmed = settings;
        for code in [3, 13, 20, 27, 34] {
            confirmed[code] += 100;
        }
        confirmed[4..8].copy_from_slice(&baud.to_be_bytes());
        stream.write_all(&confirmed).unwrap();
        if baud == 19_200 {
            assert_eq!(read(&mut stream, 3), [b'a', IAC, IAC]);
            stream.write_all(&[b'b', IAC, IAC]).unwrap();
        }
    });
    (address, server)
}

#[test]
fn a_line_is_set_when_it_is_opened_and_its_bytes_pass_unchanged() {
    let (address, server) = serve(19_200);
    let mut exchange = Pair::default();
    Connection::new(address).run(&mut exchange);
    assert_eq!((exchange.answer, exchange.error), (vec![b'b', IAC], None));
    server.join().unwrap();
}

#[test]
fn a_server_that_sets_another_speed_is_not_used_and_the_reason_is_reported() {
    let (address, server) = serve(9_600);
    let mut exchange = Pair::default();
    let mut connection = Connection::new(address);
    connection.run(&mut exchange);
    let why = exchange.error.unwrap();
    assert!(why.ends_with("the server has set baud to 9600; expected 19200 (RFC 2217)"), "{why}");
    assert!(!connection.status.connected);
    server.join().unwrap();
}
