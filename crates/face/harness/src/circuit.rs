//! A client that speaks Channel Access by hand.

use crate::PATIENCE;
use ca::wire::{Header, command, messages, padded};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A client's circuit.
pub struct Circuit {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Circuit {
    /// A circuit of the lowest priority to a server of this host.
    pub fn connect(port: u16) -> Self {
        Self::connect_as(port, 0)
    }

    /// A circuit of a priority, 0 to 99.
    pub fn connect_as(port: u16, priority: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut circuit = Self { stream, received: Vec::new() };
        circuit.send(Header::bare(command::VERSION, priority, 13, 0, 0), &[]);
        circuit
    }

    /// Sends a message, filled up as Channel Access wants it.
    pub fn send(&mut self, header: Header, payload: &[u8]) {
        let mut out = Vec::new();
        Header { size: padded(payload.len()) as u32, ..header }.write(&mut out);
        out.extend_from_slice(payload);
        out.resize(out.len() + padded(payload.len()) - payload.len(), 0);
        self.stream.write_all(&out).unwrap();
    }

    /// Sends messages in one piece.
    pub fn send_whole(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes as far as the server takes them now; the rest is thrown away. Then it reads no more for this circuit.
    pub fn send_some(&mut self, bytes: &[u8]) {
        self.stream.set_nonblocking(true).unwrap();
        // Full, or hung up by the server: both are what was wanted.
        let _ = self.stream.write(bytes);
        self.stream.set_nonblocking(false).unwrap();
    }

    /// The next message of a kind; others are passed over.
    pub fn receive(&mut self, command: u16) -> (Header, Vec<u8>) {
        loop {
            let found = messages(&self.received).next().map(|(header, payload)| (header, payload.to_vec()));
            if let Some((header, payload)) = found {
                self.received.drain(..if header.is_wide() { 24 } else { 16 } + payload.len());
                if header.command == command {
                    return (header, payload);
                }
                continue;
            }
            let mut bytes = [0; 65_536];
            let len = self.stream.read(&mut bytes).unwrap();
            assert!(len > 0, "the server hung up");
            self.received.extend_from_slice(&bytes[..len]);
        }
    }

    /// Makes a channel; its number at the server.
    pub fn create(&mut self, name: &str) -> u32 {
        self.send(Header::bare(command::CREATE_CHAN, 0, 0, 1, 13), format!("{name}\0").as_bytes());
        self.receive(command::CREATE_CHAN).0.p2
    }

    /// Asks for a double; `receive(READ_NOTIFY)` has it.
    pub fn ask(&mut self, sid: u32, id: u32) {
        self.send(Header::bare(command::READ_NOTIFY, 6, 1, sid, id), &[]);
    }
    /// Writes a double and asks for no answer.
    pub fn put(&mut self, sid: u32, value: f64) {
        self.send(Header::bare(command::WRITE, 6, 1, sid, 1), &value.to_be_bytes());
    }
    /// Asks for doubles whenever value or alarm change.
    pub fn subscribe(&mut self, sid: u32, id: u32) {
        let mut payload = [0; 16];
        payload[13] = 5;
        self.send(Header::bare(command::EVENT_ADD, 6, 1, sid, id), &payload);
    }
}

/// The double of a message.
pub fn double(payload: &[u8]) -> f64 {
    f64::from_be_bytes(payload[..8].try_into().unwrap())
}
