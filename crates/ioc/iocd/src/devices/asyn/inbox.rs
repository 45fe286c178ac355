//! Bytes that a port received outside of exchanges, and exchanges of messages that use them.

use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use fieldbus::octet::{MESSAGE_MAX, OctetFailure, Octets, Received, Until};
use port::{Job, Listener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a port that were not read yet. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Mutex<Unread>>);

#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
    /// An exchange of messages is in progress and takes the bytes itself.
    taken: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        // A panic while the lock is held cannot leave the bytes inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards the bytes.
    pub(crate) fn flush(&self) {
        self.lock().bytes.clear();
    }
}

impl Listener for Inbox {
    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
        let mut unread = self.lock();
        if unread.taken {
            return;
        }
        unread.bytes.extend_from_slice(bytes);
        // The oldest bytes are discarded.
        let surplus = unread.bytes.len().saturating_sub(MESSAGE_MAX);
        unread.bytes.drain(..surplus);
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        None
    }

    fn handle_timeout(&mut self, _: MonoNs) {}

    fn handle_closed(&mut self, _: MonoNs, _: &str) {
        self.flush();
    }
}

/// A message to be sent, and how to read the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) out: Vec<u8>,
    pub(crate) until: Option<Until>,
    /// Unread bytes are discarded first.
    pub(crate) flush: bool,
}

/// Result of an exchange.
pub(crate) type Answer = Result<Received, OctetFailure>;

/// An exchange of messages, queued at a port.
pub(crate) struct Talk {
    octets: Octets,
    inbox: Inbox,
    flush: bool,
    begun: bool,
    latest: MonoNs,
    /// Prepares the message, on the thread of the port.
    prepare: Option<Box<dyn FnOnce() -> Option<Message> + Send>>,
    then: Box<dyn FnOnce(Answer) + Send>,
}

impl Talk {
    /// An exchange of a message. It may wait for others until `latest`.
    pub(crate) fn new(
        message: Message,
        inbox: Inbox,
        latest: MonoNs,
        then: impl FnOnce(Answer) + Send + 'static,
    ) -> Self {
        let Message { out, until, flush } = message;
        Self {
            octets: Octets::new(out, until),
            inbox,
            flush,
            begun: false,
            latest,
            prepare: None,
            then: Box::new(then),
        }
    }

    /// An exchange whose message is prepared on the thread of the port, when it begins.
    pub(crate) fn prepared(
        prepare: impl FnOnce() -> Option<Message> + Send + 'static,
        inbox: Inbox,
        latest: MonoNs,
        then: impl FnOnce(Answer) + Send + 'static,
    ) -> Self {
        Self { prepare: Some(Box::new(prepare)), ..Self::new(Message::default(), inbox, latest, then) }
    }
}

/// Maximum time that an exchange waits for others, in multiples of its own time limit.
pub(crate) fn latest(now: MonoNs, limit: DurNs) -> MonoNs {
    now + DurNs(limit.0.saturating_mul(10))
}

impl Exchange for Talk {
    fn poll_transmit(&mut self, now: MonoNs, out: &mut Vec<u8>) {
        // The port passed earlier bytes to the inbox just before.
        if !std::mem::replace(&mut self.begun, true) {
            let mut unread = self.inbox.lock();
            unread.taken = true;
            let bytes = std::mem::take(&mut unread.bytes);
            if !self.flush {
                self.octets.prepend(bytes);
            }
        }
        self.octets.poll_transmit(now, out);
    }

    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]) {
        self.octets.handle_bytes(now, bytes);
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        self.octets.poll_timeout()
    }

    fn handle_timeout(&mut self, now: MonoNs) {
        self.octets.handle_timeout(now);
    }

    fn handle_closed(&mut self, now: MonoNs, why: &str) {
        self.octets.handle_closed(now, why);
    }

    fn is_over(&self) -> bool {
        self.octets.is_over()
    }
}

impl Job for Talk {
    fn exchange(&mut self) -> &mut dyn Exchange {
        self
    }

    fn latest(&self) -> Option<MonoNs> {
        Some(self.latest)
    }

    fn begin(&mut self) {
        if let Some(prepare) = self.prepare.take() {
            match prepare() {
                Some(Message { out, until, flush }) => {
                    self.octets = Octets::new(out, until);
                    self.flush = flush;
                }
                // Without a message there is nothing to exchange.
                None => self.octets.handle_closed(crate::engine::now().mono, "no command to send"),
            }
        }
    }

    fn done(mut self: Box<Self>) {
        if self.begun {
            let rest = self.octets.take_rest();
            let mut unread = self.inbox.lock();
            unread.taken = false;
            unread.bytes = rest;
        }
        let answer = self.octets.result().unwrap_or_else(|| Err(OctetFailure::Timeout(Vec::new())));
        (self.then)(answer);
    }

    fn missed(self: Box<Self>, _: &str) {
        (self.then)(Err(OctetFailure::Timeout(Vec::new())));
    }
}
