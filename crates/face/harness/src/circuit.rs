//! A Channel Access client for hand-written messages.

use crate::PATIENCE;
use ca::wire::{Header, command, messages, padded};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A circuit of the client.
pub struct Circuit {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Circuit {
    /// Connects to a server on this host with the lowest priority.
    pub fn connect(port: u16) -> Self {
        Self::connect_as(port, 0)
    }

    /// Connects with a priority from 0 to 99.
    pub fn connect_as(port: u16, priority: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut circuit = Self { stream, received: Vec::new() };
        circuit.send(Header::bare(command::VERSION, priority, 13, 0, 0), &[]);
        circuit
    }

    /// Sends a message, padded as Channel Access requires.
    pub fn send(&mut self, header: Header, payload: &[u8]) {
        let mut out = Vec::new();
        Header { size: padded(payload.len()) as u32, ..header }.write(&mut out);
        out.extend_from_slice(payload);
        out.resize(out.len() + padded(payload.len()) - payload.len(), 0);
        self.stream.write_all(&out).unwrap();
    }

    /// Sends raw bytes.
    pub fn send_whole(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends as many bytes as the server accepts at once, and discards the rest. A message may be cut, so no response can be expected
    /// afterwards.
    pub fn send_some(&mut self, bytes: &[u8]) {
        self.stream.set_nonblocking(true).unwrap();
        // The connection may be full or closed by the server. Both are acceptable.
        let _ = self.stream.write(bytes);
        self.stream.set_nonblocking(false).unwrap();
    }

    /// Receives the next message with this command and skips all others.
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

    /// Creates a channel and returns its id at the server.
    pub fn create(&mut self, name: &str) -> u32 {
        self.send(Header::bare(command::CREATE_CHAN, 0, 0, 1, 13), format!("{name}\0").as_bytes());
        self.receive(command::CREATE_CHAN).0.p2
    }

    /// Requests a double. `receive(READ_NOTIFY)` returns the response.
    pub fn ask(&mut self, sid: u32, id: u32) {
        self.send(Header::bare(command::READ_NOTIFY, 6, 1, sid, id), &[]);
    }
    /// Writes a double without requesting a response.
    pub fn put(&mut self, sid: u32, value: f64) {
        self.send(Header::bare(command::WRITE, 6, 1, sid, 1), &value.to_be_bytes());
    }
    /// Subscribes to a double, for changes of value and alarm.
    pub fn subscribe(&mut self, sid: u32, id: u32) {
        let mut payload = [0; 16];
        payload[13] = 5;
        self.send(Header::bare(command::EVENT_ADD, 6, 1, sid, id), &payload);
    }
}

/// The double in a payload.
pub fn double(payload: &[u8]) -> f64 {
    f64::from_be_bytes(payload[..8].try_into().unwrap())
}
