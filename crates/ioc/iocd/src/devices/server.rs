//! A connection to a message server, with its thread. Each request of a record gets exactly one outcome.

use base::{DurNs, MonoNs};
use broker::{Client, ClientError, Sending, Waker};
use msg::{Band, Code};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::bell::Bell;
use sys::clock::mono_now;
use sys::rounds::{ROUND_EVERY, Rounds};

/// Maximum number of waiting requests. A record has at most one, plus one for polling.
const WAITING_MAX: usize = 16_384;
/// Maximum number of requests at the server, which accepts 256 per client and band.
const OUTSTANDING_MAX: usize = 256;
/// Retry period while the server is unavailable.
const AGAIN: DurNs = DurNs::from_ms(200);
/// Maximum time the thread waits before it checks for new requests and timeouts.
const PAUSE: DurNs = DurNs::from_ms(100);
/// Extra time after a request's deadline, because the server answers at the deadline.
const GRACE: DurNs = DurNs::from_ms(500);

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestOutcome {
    /// The reply, with the number of the pulse to which it belongs.
    Reply(Code, String, u64),
    /// The server did not answer at all, or the request waited too long to be sent.
    Timeout,
    /// The server is unavailable.
    Lost,
}

/// A request, and the function for its outcome, which is called on the connection's thread.
pub(super) struct PendingRequest {
    pub(super) line: String,
    /// Deadline for the execution.
    pub(super) latest: MonoNs,
    pub(super) then: Box<dyn FnOnce(RequestOutcome) + Send>,
}

#[derive(Default)]
struct Inside {
    waiting: VecDeque<PendingRequest>,
    /// Wakes the thread while it waits for the server's answers.
    waker: Option<Waker>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    /// Wakes the thread while the server is unavailable.
    bell: Bell,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic while the lock is held cannot leave the data inconsistent.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.bell.ring();
        let waker = self.lock().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A connection. Dropping it ends the connection.
pub(super) struct ServerConnection(Arc<Shared>);

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake();
    }
}

impl ServerConnection {
    /// Starts the thread. The server may be unavailable at that time.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open(server: &str, band: Band) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (mine, server) = (shared.clone(), server.to_owned());
        let name = format!("messages-{band}");
        let rounds = Rounds::watch(&name, crate::SLOW_HANGS_AFTER);
        let builder = std::thread::Builder::new().name(name).stack_size(256 << 10);
        builder.spawn(move || {
            Thread { shared: mine, server, band, waiting: VecDeque::new(), asked: HashMap::new(), rounds }.run()
        })?;
        Ok(Self(shared))
    }

    /// Queues a request, or returns it if the queue is full.
    pub(super) fn send_or_refuse(&self, pending: PendingRequest) -> Result<(), PendingRequest> {
        let mut inside = self.0.lock();
        if inside.waiting.len() >= WAITING_MAX {
            return Err(pending);
        }
        inside.waiting.push_back(pending);
        drop(inside);
        self.0.wake();
        Ok(())
    }
}

struct Thread {
    shared: Arc<Shared>,
    server: String,
    band: Band,
    waiting: VecDeque<PendingRequest>,
    /// Requests at the server, by id.
    asked: HashMap<u64, PendingRequest>,
    rounds: Rounds,
}

impl Thread {
    fn run(mut self) {
        let mut client: Option<Client> = None;
        let mut again = mono_now();
        loop {
            self.rounds.count();
            {
                let mut inside = self.shared.lock();
                if inside.closed {
                    break;
                }
                self.waiting.append(&mut inside.waiting);
                inside.waker = client.as_ref().and_then(Client::waker);
            }
            self.expire(mono_now());
            if client.is_none() && !self.waiting.is_empty() && mono_now() >= again {
                client = Client::connect(&self.server, "ioc", self.band).ok();
                again = mono_now() + AGAIN;
                // The waker is set first, so that requests queued from now on wake the thread.
                continue;
            }
            let Some(present) = &mut client else {
                self.waiting.drain(..).for_each(|pending| (pending.then)(RequestOutcome::Lost));
                self.shared.bell.wait(Some(mono_now() + ROUND_EVERY));
                continue;
            };
            if self.exchange(present).is_err() {
                client = None;
                again = mono_now() + AGAIN;
                self.asked.drain().for_each(|(_, pending)| (pending.then)(RequestOutcome::Lost));
            }
        }
        let rest = self.waiting.into_iter().chain(self.asked.into_values());
        rest.for_each(|pending| (pending.then)(RequestOutcome::Lost));
    }

    /// Sends requests within the limit, and handles received replies.
    fn exchange(&mut self, client: &mut Client) -> Result<(), ClientError> {
        while self.asked.len() < OUTSTANDING_MAX
            && let Some(pending) = self.waiting.pop_front()
        {
            let limit = pending.latest - mono_now();
            match client.send(&pending.line, &Sending { limit, ..Sending::default() }) {
                Ok(id) => drop(self.asked.insert(id, pending)),
                Err(ClientError::Message(why)) => (pending.then)(RequestOutcome::Reply(Code::Malformed, why, 0)),
                Err(error) => {
                    self.waiting.push_front(pending);
                    if error == ClientError::Full {
                        break;
                    }
                    return Err(error);
                }
            }
        }
        // Received replies are handled without waiting in between.
        let mut next = client.next(PAUSE)?;
        while let Some(received) = next {
            if let Some(pending) = self.asked.remove(&received.id) {
                (pending.then)(RequestOutcome::Reply(received.code, received.text, received.pulse));
            }
            next = if self.asked.is_empty() { None } else { client.next(DurNs::ZERO)? };
        }
        Ok(())
    }

    /// Ends requests that have waited too long.
    fn expire(&mut self, now: MonoNs) {
        let late = |pending: &PendingRequest, grace: DurNs| now >= pending.latest + grace;
        for _ in 0..self.waiting.len() {
            match self.waiting.pop_front() {
                Some(pending) if late(&pending, DurNs::ZERO) => (pending.then)(RequestOutcome::Timeout),
                Some(pending) => self.waiting.push_back(pending),
                None => {}
            }
        }
        let over: Vec<u64> = self.asked.iter().filter(|(_, pending)| late(pending, GRACE)).map(|(id, _)| *id).collect();
        for id in over {
            if let Some(pending) = self.asked.remove(&id) {
                (pending.then)(RequestOutcome::Timeout);
            }
        }
    }
}
