//! Asking the message server in the name of others: for links to other hosts, and for ZeroMQ's clients.

use crate::client::{Client, ClientError, Received, Sending, Waker};
use base::{DurNs, MonoNs};
use msg::{Band, Code, Failure, Flags, Hop, Subject};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use sys::clock::mono_now;

/// How often the thread looks whether it is still wanted.
const LOOK: DurNs = DurNs::from_ms(100);
/// Requests that may wait to be given to the message server.
pub const QUEUE_MAX: usize = 256;

/// A request of somebody else's.
#[derive(Debug)]
pub struct Passed<T> {
    /// Its line.
    pub line: String,
    /// Until when it is worth executing.
    pub until: MonoNs,
    /// Its properties.
    pub flags: Flags,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// Its body.
    pub body: Vec<u8>,
    /// Who asks.
    pub subject: Subject,
    /// What the answer needs.
    pub token: T,
}

/// A thread that asks the message server on one band and answers each request once, by a function that it is given. It ends
/// with this value; what is outstanding then gets no answer.
pub struct Relay<T> {
    queue: SyncSender<Passed<T>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

/// What is answered: the token of the request, and its reply.
pub trait Answering<T>: FnMut(T, Code, &str, &[u8]) + Send + 'static {}
impl<T, F: FnMut(T, Code, &str, &[u8]) + Send + 'static> Answering<T> for F {}

impl<T: Send + 'static> Relay<T> {
    /// Begins, whether the message server `server` is there or not. `name` is how it is called there, `host` the name of
    /// the host for whose processes it speaks.
    pub fn start(server: &str, name: &str, band: Band, host: &str, answer: impl Answering<T>) -> Self {
        let (queue, requests) = sync_channel(QUEUE_MAX);
        let waker = Arc::new(Mutex::new(None));
        let (server, name, host) = (server.to_owned(), name.to_owned(), host.to_owned());
        let passing =
            Passing { server, name, band, host, waker: waker.clone(), requests, pending: HashMap::new(), answer };
        std::thread::spawn(move || passing.run());
        Self { queue, waker }
    }

    /// Asks. Does not block.
    ///
    /// # Errors
    /// Too many wait already: the request comes back.
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
    waker: Arc<Mutex<Option<Waker>>>,
    requests: Receiver<Passed<T>>,
    pending: HashMap<u64, T>,
    answer: A,
}

/// Nobody asks any more.
struct Ended;

impl<T, A: FnMut(T, Code, &str, &[u8])> Passing<T, A> {
    fn run(mut self) {
        let mut client = None;
        let mut ended = Ok(());
        while ended.is_ok() {
            ended = match &mut client {
                Some(connected) => match self.round(connected) {
                    Ok(()) => Ok(()),
                    Err(None) => Err(Ended),
                    Err(Some(_)) => {
                        client = None;
                        self.lost();
                        Ok(())
                    }
                },
                None => match Client::for_host(&self.server, &self.name, self.band, &self.host) {
                    Ok(connected) => {
                        client = Some(connected);
                        Ok(())
                    }
                    Err(error) => self.refuse_next(&error),
                },
            };
        }
    }

    /// Gives the server what came, and hears one answer. `None` as error: nobody asks any more.
    fn round(&mut self, client: &mut Client) -> Result<(), Option<ClientError>> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = client.waker();
        loop {
            match self.requests.try_recv() {
                Ok(request) => self.pass(request, client),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(None),
            }
        }
        match client.next(LOOK).map_err(Some)? {
            Some(received) if !received.event => self.answer(&received),
            _ => {}
        }
        Ok(())
    }

    fn pass(&mut self, request: Passed<T>, client: &mut Client) {
        let Passed { line, until, flags, pulse, body, subject, token } = request;
        match client.send(&line, &Sending { limit: until - mono_now(), flags, pulse, body: &body, subject }) {
            Ok(id) => {
                self.pending.insert(id, token);
            }
            Err(error @ ClientError::Full) => (self.answer)(token, Code::Overload, &error.to_string(), &[]),
            Err(ClientError::Message(why)) => (self.answer)(token, Code::Malformed, &why, &[]),
            Err(error) => (self.answer)(token, Code::NoObject, &error.to_string(), &[]),
        }
    }

    fn answer(&mut self, received: &Received) {
        if let Some(token) = self.pending.remove(&received.id) {
            (self.answer)(token, received.code, &received.text, &received.body);
        }
    }

    /// The server is gone with what it was given.
    fn lost(&mut self) {
        for token in std::mem::take(&mut self.pending).into_values() {
            let died = Failure::Died { hop: Hop::Server, after: DurNs::ZERO };
            (self.answer)(token, died.code(), &died.to_string(), &[]);
        }
    }

    /// No server: what waits is told, nothing was executed.
    fn refuse_next(&mut self, why: &ClientError) -> Result<(), Ended> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.requests.recv_timeout(std::time::Duration::from_nanos(LOOK.0.unsigned_abs())) {
            Ok(request) => (self.answer)(request.token, Code::NoObject, &why.to_string(), &[]),
            Err(Timeout) => {}
            Err(Disconnected) => return Err(Ended),
        }
        Ok(())
    }
}
