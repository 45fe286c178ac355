//! Client of a dashboard: requests, and the WebSocket of its page.

use crate::PATIENCE;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request and returns the complete response.
pub fn http(port: u16, head: &str, body: &str) -> String {
    let mut stream = connect(port);
    let length = body.len();
    let text =
        format!("{head}\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The token in an address.
pub fn token(address: &str) -> String {
    address.trim().rsplit_once("#token=").unwrap_or_else(|| panic!("{address:?} has a token")).1.to_owned()
}

/// A message of the dashboard.
#[derive(Clone, Debug, PartialEq)]
pub enum PageMessage {
    /// JSON.
    Text(serde_json::Value),
    /// Binary data, for frequent updates.
    Bytes(Vec<u8>),
}

/// A WebSocket.
pub struct Socket(TcpStream);

impl Socket {
    /// Connects with a token.
    pub fn open(port: u16, token: &str) -> Self {
        let mut stream = connect(port);
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        Self(stream)
    }

    /// Sends a text message.
    pub fn say(&mut self, text: &str) {
        let mut bytes = vec![0x81];
        match text.len() {
            length @ ..126 => bytes.push(0x80 | length as u8),
            length => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
        }
        // A mask of zeros leaves the text unchanged.
        bytes.extend([0; 4]);
        bytes.extend(text.as_bytes());
        self.0.write_all(&bytes).unwrap();
    }

    /// Receives the next message.
    pub fn message(&mut self) -> PageMessage {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).unwrap();
            let length = match head[1] {
                126 => {
                    let mut more = [0; 2];
                    self.0.read_exact(&mut more).unwrap();
                    u64::from(u16::from_be_bytes(more))
                }
                127 => {
                    let mut more = [0; 8];
                    self.0.read_exact(&mut more).unwrap();
                    u64::from_be_bytes(more)
                }
                length => length.into(),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).unwrap();
            match head[0] {
                0x81 => return PageMessage::Text(serde_json::from_slice(&payload).unwrap()),
                0x82 => return PageMessage::Bytes(payload),
                _ => {}
            }
        }
    }

    /// Receives the next text message.
    fn hear(&mut self) -> serde_json::Value {
        loop {
            if let PageMessage::Text(text) = self.message() {
                return text;
            }
        }
    }

    /// Receives messages until the function returns a value.
    pub fn until<T>(&mut self, mut is_it: impl FnMut(&serde_json::Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let message = self.hear();
            if let Some(found) = is_it(&message) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "what was wanted is not said in {PATIENCE:?}; last: {message}");
        }
    }

    /// The answer to the request with this id.
    pub fn answer(&mut self, id: u64) -> serde_json::Value {
        self.until(|message| (message["answer"] == id).then(|| message.clone()))
    }
}
