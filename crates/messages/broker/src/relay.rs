//! Sends requests to the message server on behalf of others: processes of other hosts, and ZeroMQ clients.

use crate::client::{Client, Received, Sending};
use crate::end::{ClientError, Waker};
use crate::pool::POOL_BYTES_MAX;
use base::{DurNs, MonoNs};
use msg::{BODY_BYTES_MAX, Band, Code, Failure, Flags, Hop, Subject};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use sys::clock::mono_now;

/// Time between two checks of the thread whether it must end.
const LOOK: DurNs = DurNs::from_ms(100);
/// Capacity of the queue of requests to the message server.
pub const QUEUE_MAX: usize = 256;

/// A request on behalf of another process.
#[derive(Debug)]
pub struct Passed<T> {
    /// The request's line.
    pub line: String,
    /// Deadline for its execution.
    pub until: MonoNs,
    /// Its properties.
    pub flags: Flags,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// Its body.
    pub body: Vec<u8>,
    /// Maximum bytes of the answer's body.
    pub answer: u64,
    /// The sender of the request.
    pub subject: Subject,
    /// Passed back with the answer.
    pub token: T,
}

/// A thread that sends requests to the message server on one band and passes each answer once to a function. It ends
/// when this value is dropped. Requests outstanding then get no answer.
pub struct Relay<T> {
    queue: SyncSender<Passed<T>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

/// Receives an answer: the token of the request, and the reply.
pub trait Answering<T>: FnMut(T, Code, &str, &[u8]) + Send + 'static {}
impl<T, F: FnMut(T, Code, &str, &[u8]) + Send + 'static> Answering<T> for F {}

impl<T: Send + 'static> Relay<T> {
    /// Starts the thread. The message server `server` need not be running. `name` identifies the client to the server.
    /// `host` is the host whose processes it represents. `bodies` is the maximum size of a body in either direction, in
    /// bytes; above 16 KiB the client has a pool for two.
    pub fn start(server: &str, name: &str, band: Band, host: &str, bodies: u64, answer: impl Answering<T>) -> Self {
        let (queue, requests) = sync_channel(QUEUE_MAX);
        let waker = Arc::new(Mutex::new(None));
        let (server, name, host) = (server.to_owned(), name.to_owned(), host.to_owned());
        let (waking, pending) = (waker.clone(), HashMap::new());
        let passing = Passing { server, name, band, host, bodies, waker: waking, requests, pending, answer };
        std::thread::spawn(move || passing.run());
        Self { queue, waker }
    }

    /// Queues a request. Does not block.
    ///
    /// # Errors
    /// The queue is full. The request is returned.
    pub fn pass(&self, request: Passed<T>) -> Result<(), Passed<T>> {
        match self.queue.try_send(request) {
            Ok(()) => {
                self.wake();
                Ok(())
            }
            Err(TrySendError::Full(request) | TrySendError::Disconnected(request)) => Err(request),
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            waker.wake();
        }
    }
}

struct Passing<T, A> {
    server: String,
    name: String,
    band: Band,
    host: String,
    bodies: u64,
    waker: Arc<Mutex<Option<Waker>>>,
    requests: Receiver<Passed<T>>,
    pending: HashMap<u64, T>,
    answer: A,
}

/// The `Relay` was dropped.
struct Shutdown;

impl<T, A: FnMut(T, Code, &str, &[u8])> Passing<T, A> {
    fn run(mut self) {
        let mut client = None;
        let mut ended = Ok(());
        while ended.is_ok() {
            ended = match &mut client {
                Some(connected) => match self.round(connected) {
                    Ok(()) => Ok(()),
                    Err(None) => Err(Shutdown),
                    Err(Some(_)) => {
                        client = None;
                        self.lost();
                        Ok(())
                    }
                },
                None => match self.connect() {
                    Ok(connected) => {
                        client = Some(connected);
                        Ok(())
                    }
                    Err(error) => self.refuse_next(&error),
                },
            };
        }
    }

    /// Connects with a pool; without one if the server refuses it.
    fn connect(&self) -> Result<Client, ClientError> {
        let connect = |pool| Client::for_host(&self.server, &self.name, self.band, &self.host, pool);
        match self.bodies > BODY_BYTES_MAX as u64 {
            true => match connect(self.bodies.saturating_mul(2).min(POOL_BYTES_MAX)) {
                Err(ClientError::Refused(_)) => connect(0),
                connected => connected,
            },
            false => connect(0),
        }
    }

    /// Sends the queued requests, and processes at most one answer. The error `None` means that the `Relay` was
    /// dropped.
    fn round(&mut self, client: &mut Client) -> Result<(), Option<ClientError>> {
        self.show(client);
        loop {
            match self.requests.try_recv() {
                Ok(request) => self.pass(request, client),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(None),
            }
        }
        // The client may have reconnected.
        self.show(client);
        match client.next(LOOK).map_err(Some)? {
            Some(received) if !received.event => self.answer(&received),
            _ => {}
        }
        Ok(())
    }

    /// Publishes the waker of the current connection.
    fn show(&self, client: &Client) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = client.waker();
    }

    fn pass(&mut self, request: Passed<T>, client: &mut Client) {
        let Passed { line, until, flags, pulse, body, answer, subject, token } = request;
        let (limit, most) = (until - mono_now(), self.bodies.max(BODY_BYTES_MAX as u64));
        let answer = answer.min(most);
        if body.len() as u64 > most {
            let why = format!("a body of {} bytes, expected at most {most} here", body.len());
            return (self.answer)(token, Code::Malformed, &why, &[]);
        }
        match client.send(&line, &Sending { limit, flags, pulse, body: &body, answer, subject }) {
            Ok(id) => {
                self.pending.insert(id, token);
            }
            Err(error @ (ClientError::Full | ClientError::NoRoom(_))) => {
                (self.answer)(token, Code::Overload, &error.to_string(), &[])
            }
            Err(ClientError::Message(why)) => (self.answer)(token, Code::Malformed, &why, &[]),
            Err(error) => (self.answer)(token, Code::NoObject, &error.to_string(), &[]),
        }
    }

    fn answer(&mut self, received: &Received) {
        if let Some(token) = self.pending.remove(&received.id) {
            (self.answer)(token, received.code, &received.text, &received.body);
        }
    }

    /// Fails all pending requests after the server has gone.
    fn lost(&mut self) {
        for token in std::mem::take(&mut self.pending).into_values() {
            let died = Failure::Died { hop: Hop::Server, after: DurNs::ZERO };
            (self.answer)(token, died.code(), &died.to_string(), &[]);
        }
    }

    /// Without a server: answers the next request. It was not executed.
    fn refuse_next(&mut self, why: &ClientError) -> Result<(), Shutdown> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.requests.recv_timeout(std::time::Duration::from_nanos(LOOK.0.unsigned_abs())) {
            Ok(request) => (self.answer)(request.token, Code::NoObject, &why.to_string(), &[]),
            Err(Timeout) => {}
            Err(Disconnected) => return Err(Shutdown),
        }
        Ok(())
    }
}
