//! HTTP client.

use crate::PATIENCE;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Host and port of the first address in a server's output.
///
/// # Panics
/// The output has no address.
pub fn address_in(said: &str) -> &str {
    let address = said.split_whitespace().find_map(|word| word.strip_prefix("http://")).expect("an address");
    address.split('/').next().expect("a first part")
}

/// A complete response: header, and body with chunked encoding removed.
pub fn ask(address: &str, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (first, body) = request.split_once('\n').unwrap_or((request, ""));
    let length = body.len();
    let text =
        format!("{first} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
    let mut rest = &all[end..];
    if !head.contains("transfer-encoding: chunked") {
        return (head, rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if len == 0 {
            return (head, body);
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + len]);
        rest = &rest[line + 4 + len..];
    }
}

/// Body of a successful response, as JSON.
pub fn json(address: &str, request: &str) -> serde_json::Value {
    let (head, body) = ask(address, request);
    assert!(head.starts_with("http/1.1 200"), "{head}{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}
