//! Messages without a protocol file: bytes to send, then a reading up to a terminator.

use crate::exchange::Exchange;
use base::{DurNs, MonoNs};

/// Maximum length of a message that is read.
pub const MESSAGE_MAX: usize = 1 << 16;

/// End of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// Terminator. If it is empty, the reading ends with the first bytes.
    pub terminator: Vec<u8>,
    /// Maximum number of bytes, at most [`MESSAGE_MAX`].
    pub max: usize,
    /// Maximum time.
    pub limit: DurNs,
}

/// Received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The bytes, without the terminator.
    pub bytes: Vec<u8>,
    /// Whether the terminator was received.
    pub terminated: bool,
}

/// The reason why there is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OctetFailure {
    /// The time limit passed. The bytes were received before.
    #[error("no answer in time")]
    Timeout(Vec<u8>),
    /// The line was closed or could not be opened.
    #[error("no connection: {0}")]
    Closed(String),
}

/// A write, a reading, or both, as an [`Exchange`].
#[derive(Clone, Debug)]
pub struct Octets {
    out: Option<Vec<u8>>,
    until: Option<Until>,
    deadline: Option<MonoNs>,
    bytes: Vec<u8>,
    result: Option<Result<Received, OctetFailure>>,
}

impl Octets {
    /// Sends bytes, if there are any, then reads if `until` is given.
    #[must_use]
    pub fn new(out: Vec<u8>, until: Option<Until>) -> Self {
        Self { out: Some(out), until, deadline: None, bytes: Vec::new(), result: None }
    }

    /// Adds bytes that were received before the exchange.
    pub fn prepend(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// The received bytes or the failure, once the exchange is over.
    #[must_use]
    pub fn result(&self) -> Option<Result<Received, OctetFailure>> {
        self.result.clone()
    }

    /// Bytes received after the message.
    #[must_use]
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Ends the reading if the bytes complete it.
    fn proceed(&mut self) {
        let (Some(until), None) = (&self.until, &self.result) else { return };
        let max = until.max.clamp(1, MESSAGE_MAX);
        let end = match until.terminator.as_slice() {
            [] => None,
            terminator => self.bytes.windows(terminator.len()).position(|window| window == terminator),
        };
        let (len, skip, terminated) = match end {
            Some(end) if end <= max => (end, until.terminator.len(), true),
            _ if self.bytes.len() >= max => (max, 0, false),
            _ if until.terminator.is_empty() && !self.bytes.is_empty() => (self.bytes.len(), 0, false),
            _ => return,
        };
        let rest = self.bytes.split_off(len + skip);
        let mut bytes = std::mem::replace(&mut self.bytes, rest);
        bytes.truncate(len);
        self.result = Some(Ok(Received { bytes, terminated }));
    }
}

impl Exchange for Octets {
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        let Some(bytes) = self.out.take() else { return };
        out.extend(bytes);
        match &self.until {
            Some(until) => self.deadline = Some(now + until.limit),
            None => self.result = Some(Ok(Received::default())),
        }
        self.proceed();
    }

    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
        // Limits the memory for any amount of input.
        for chunk in bytes.chunks(MESSAGE_MAX) {
            if self.result.is_some() && self.bytes.len() + chunk.len() > MESSAGE_MAX {
                return;
            }
            self.bytes.extend_from_slice(chunk);
            self.proceed();
        }
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        self.deadline.filter(|_| self.result.is_none())
    }

    fn handle_timeout(&mut self, now: MonoNs) {
        if self.result.is_none() && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.result = Some(Err(OctetFailure::Timeout(std::mem::take(&mut self.bytes))));
        }
    }

    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        self.result.get_or_insert_with(|| Err(OctetFailure::Closed(why.to_owned())));
    }

    fn is_over(&self) -> bool {
        self.result.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(terminator: &str, max: usize) -> Option<Until> {
        Some(Until { terminator: terminator.into(), max, limit: DurNs::from_secs(1) })
    }

    fn received(text: &str, terminated: bool) -> Option<Result<Received, OctetFailure>> {
        Some(Ok(Received { bytes: text.into(), terminated }))
    }

    #[test]
    fn a_reading_ends_at_its_terminator_and_keeps_the_rest() {
        let mut octets = Octets::new(b"*IDN?\n".to_vec(), until("\r\n", 40));
        let mut out = Vec::new();
        octets.poll_transmit(MonoNs(5), &mut out);
        assert_eq!((out.as_slice(), octets.poll_timeout()), (&b"*IDN?\n"[..], Some(MonoNs(5) + DurNs::from_secs(1))));
        for part in ["ACM", "E\r", "\nmore"] {
            assert!(!octets.is_over());
            octets.handle_bytes(MonoNs(6), part.as_bytes());
        }
        assert_eq!(octets.result(), received("ACME", true));
        assert_eq!(octets.take_rest(), b"more");
    }

    #[test]
    fn a_reading_without_a_terminator_takes_what_there_is() {
        let mut octets = Octets::new(Vec::new(), until("", 3));
        octets.prepend(b"abcd".to_vec());
        octets.poll_transmit(MonoNs(0), &mut Vec::new());
        assert_eq!(octets.result(), received("abc", false));
        assert_eq!(octets.take_rest(), b"d");
    }

    #[test]
    fn a_write_ends_at_once_and_a_late_answer_is_a_timeout_with_its_bytes() {
        let mut octets = Octets::new(b"x".to_vec(), None);
        octets.poll_transmit(MonoNs(0), &mut Vec::new());
        assert_eq!(octets.result(), received("", false));
        let mut octets = Octets::new(b"x".to_vec(), until("\n", 9));
        octets.poll_transmit(MonoNs(0), &mut Vec::new());
        octets.handle_bytes(MonoNs(1), b"ab");
        octets.handle_timeout(MonoNs(1));
        assert!(!octets.is_over());
        octets.handle_timeout(MonoNs(0) + DurNs::from_secs(1));
        assert_eq!(octets.result(), Some(Err(OctetFailure::Timeout(b"ab".to_vec()))));
    }

    #[test]
    fn input_without_end_uses_bounded_memory() {
        let mut octets = Octets::new(Vec::new(), until("\n", usize::MAX));
        octets.poll_transmit(MonoNs(0), &mut Vec::new());
        for _ in 0..100 {
            octets.handle_bytes(MonoNs(1), &[b'x'; 4096]);
        }
        assert!(octets.is_over() && octets.take_rest().len() <= MESSAGE_MAX);
    }
}
