//! An HTTP POST (RFC 9110, 9112). Follows no redirect, uses no proxy.

use super::clipped;
use super::connection::Stream;
use alarm::notify::Delivery;
use base::DurNs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Maximum bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 4096;
/// Maximum bytes of a file with a token.
const TOKEN_BYTES_MAX: u64 = 4096;

/// A request.
pub(super) struct Request<'a> {
    /// The server as in the URL.
    pub(super) authority: &'a str,
    /// Path and query.
    pub(super) path: &'a str,
    /// Token for `Authorization`.
    pub(super) token: Option<&'a str>,
    /// The same for each try.
    pub(super) id: i64,
    /// JSON.
    pub(super) body: &'a str,
}

/// The first line of a file that no other user may read.
pub(super) fn token(path: &Path) -> Result<String, String> {
    let failed = |error| format!("`token_file` {}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    let (mode, user) = (facts.mode() & 0o7777, facts.uid());
    if mode & 0o077 != 0 || !sys::peer::is_ours(user) {
        let path = path.display();
        return Err(format!(
            "`token_file` {path} has mode {mode:04o} and user {user}; expected mode 0600 and our own user or root: chmod 600"
        ));
    }
    let mut text = String::new();
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let token = text.lines().next().unwrap_or_default().trim().to_owned();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "the first line of `token_file` {} is no token; expected ASCII without blanks",
            path.display()
        ));
    }
    Ok(token)
}

/// Sends the request and reads the status.
pub(super) fn post(stream: &mut dyn Stream, request: &Request<'_>) -> Delivery {
    let Request { authority, path, token, id, body } = request;
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: tahti\r\nContent-Type: application/json\r\n{token}\
         Webhook-Id: {id}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let failed = |error: std::io::Error| Delivery::Failed(clipped(&format!("{authority}: {error}")), None);
    // A server that refuses early answers before it has read everything, which ends our writing.
    let written = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    match (head(stream), written) {
        (Ok(head), _) if !head.is_empty() => result(authority, &head),
        (_, Err(error)) | (Err(error), _) => failed(error),
        (Ok(_), Ok(())) => Delivery::Failed(format!("{authority} closed the connection without an answer"), None),
    }
}

/// Reads up to the end of the headers.
fn head(stream: &mut dyn Stream) -> std::io::Result<String> {
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    while bytes.len() < ANSWER_BYTES_MAX && !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) if !bytes.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(ANSWER_BYTES_MAX);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The meaning of an answer.
fn result(authority: &str, head: &str) -> Delivery {
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
    let after = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let seconds = name.eq_ignore_ascii_case("retry-after").then(|| value.trim().parse::<u32>().ok())?;
        seconds.map(|seconds| DurNs::from_secs(seconds.into()))
    });
    let why = clipped(&format!("{authority} answers {line:?}"));
    match status {
        Some(200..=299) => Delivery::Delivered(None),
        Some(300..=399) => Delivery::Refused(format!("{why}; redirects are not followed: write the final address")),
        Some(408 | 425 | 429 | 500..=599) => Delivery::Failed(why, after),
        Some(_) => Delivery::Refused(why),
        None => Delivery::Failed(format!("{why}; expected HTTP/1.1"), None),
    }
}
