//! A port: a connection with its thread and its queue of exchanges.

use crate::address::Address;
use crate::connection::{Connection, Status};
use crate::trace::Trace;
use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::clock::mono_now;
use sys::rounds::{ROUND_EVERY, Rounds};

/// A thread that finishes no round of its loop for longer than this hangs. To look up the name of a host may take half a minute.
const HANGS_AFTER: DurNs = DurNs::from_secs(60);

/// An exchange with its completion.
pub trait Job: Send {
    /// The exchange.
    fn exchange(&mut self) -> &mut dyn Exchange;

    /// Latest start; after it the exchange is not run.
    fn latest(&self) -> Option<MonoNs> {
        None
    }

    /// Called before it is run, on the port's thread: it may prepare data, during which the port waits.
    fn begin(&mut self) {}

    /// The exchange is over. On the port's thread.
    fn done(self: Box<Self>);

    /// It was not run: it waited too long, or the port is closed. On the port's thread.
    fn missed(self: Box<Self>, why: &str);
}

/// Receives all bytes of the connection, also answers to exchanges. Called on the port's thread.
pub trait Listener: Send {
    /// The connection was opened, or [`Port::greet_again`] was called. The returned exchange runs soon, alternating with those
    /// that wait.
    fn handle_connected(&mut self) -> Option<Box<dyn Job>> {
        None
    }

    /// Whether the port may drop it.
    fn is_over(&self) -> bool {
        false
    }

    /// Received bytes.
    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]);

    /// Time of its next call if no bytes are received.
    fn poll_timeout(&self) -> Option<MonoNs>;

    /// The time from the previous method has passed.
    fn handle_timeout(&mut self, now: MonoNs);

    /// The connection was closed; `why` is a readable text.
    fn handle_closed(&mut self, now: MonoNs, why: &str);
}

/// A listener, after the number of the connection that it was called for; 0: none.
type ListenerEntry = (u64, Box<dyn Listener>);

struct Inside {
    waiting: VecDeque<Box<dyn Job>>,
    listeners: Vec<ListenerEntry>,
    /// Whether all listeners are to be called as for a new connection.
    greets_again: bool,
    status: Status,
    refused: u64,
    closed: bool,
}

struct Shared {
    name: String,
    address: Address,
    bound: usize,
    inside: Mutex<Inside>,
    bell: OwnedFd,
    /// Number of handles. The thread ends with the last.
    handles: Mutex<usize>,
}

/// A connection with its thread. Clones are handles to the same; the thread ends with the last of them.
pub struct Port {
    shared: Arc<Shared>,
}

impl Clone for Port {
    fn clone(&self) -> Self {
        *lock(&self.shared.handles) += 1;
        Self { shared: self.shared.clone() }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut handles = lock(&self.shared.handles);
        *handles -= 1;
        if *handles == 0 {
            lock(&self.shared.inside).closed = true;
            self.shared.ring();
        }
    }
}

/// The data behind these locks are consistent also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn ring(&self) {
        // A full counter is read soon anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Port {
    /// Starts the thread of a port. At most `bound` exchanges may wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(name: &str, address: Address, bound: usize) -> io::Result<Self> {
        Self::open_traced(name, address, bound, Arc::default())
    }

    /// As [`open`](Self::open), with a trace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_traced(name: &str, address: Address, bound: usize, trace: Arc<Trace>) -> io::Result<Self> {
        let inside = Inside {
            waiting: VecDeque::new(),
            listeners: Vec::new(),
            greets_again: false,
            status: Status::default(),
            refused: 0,
            closed: false,
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared {
            name: name.to_owned(),
            address: address.clone(),
            bound,
            inside: Mutex::new(inside),
            bell,
            handles: Mutex::new(1),
        };
        let port = Self { shared: Arc::new(shared) };
        let mine = port.shared.clone();
        let thread = format!("port-{name}");
        let mut line = Connection::new(address).traced(name, trace);
        line.rounds = Rounds::watch(&thread, HANGS_AFTER);
        let builder = std::thread::Builder::new().name(thread).stack_size(256 << 10);
        builder.spawn(move || serve(&mine, line))?;
        Ok(port)
    }

    /// The port's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Queues an exchange. If the queue is full, returns it and counts the refusal.
    ///
    /// # Errors
    /// The exchange.
    pub fn submit_or_refuse(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        let mut inside = lock(&self.shared.inside);
        if inside.waiting.len() >= self.shared.bound {
            inside.refused += 1;
            return Err(job);
        }
        inside.waiting.push_back(job);
        drop(inside);
        self.shared.ring();
        Ok(())
    }

    /// Adds a listener for all received bytes. The port then stays connected.
    pub fn listen(&self, listener: Box<dyn Listener>) {
        lock(&self.shared.inside).listeners.push((0, listener));
        self.shared.ring();
    }

    /// Calls [`Listener::handle_connected`] of all listeners again, now or once the port is connected.
    pub fn greet_again(&self) {
        lock(&self.shared.inside).greets_again = true;
        self.shared.ring();
    }

    /// Counters and state of the connection.
    #[must_use]
    pub fn status(&self) -> Status {
        lock(&self.shared.inside).status.clone()
    }

    /// Exchanges refused because the queue was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        lock(&self.shared.inside).refused
    }
}

/// The port's thread.
fn serve(shared: &Shared, mut line: Connection) {
    let mut listeners: Vec<ListenerEntry> = Vec::new();
    loop {
        line.rounds.count();
        let closed = {
            let mut inside = lock(&shared.inside);
            listeners.append(&mut inside.listeners);
            if std::mem::take(&mut inside.greets_again) {
                listeners.iter_mut().for_each(|(greeted, _)| *greeted = 0);
            }
            inside.closed
        };
        if closed {
            let rest = std::mem::take(&mut lock(&shared.inside).waiting);
            rest.into_iter().for_each(|job| job.missed("the port is closed"));
            return;
        }
        listeners.retain(|(_, listener)| !listener.is_over());
        let greeted = greet(&mut line, &mut listeners);
        let job = {
            let mut inside = lock(&shared.inside);
            inside.status.clone_from(&line.status);
            inside.waiting.pop_front()
        };
        match job {
            Some(job) => run(&mut line, job, &mut listeners),
            None if greeted => {}
            None => idle(shared, &mut line, &mut listeners),
        }
    }
}

/// Keeps the port connected for its listeners, tries again after a failed attempt, and calls the listeners that were not
/// called since it was connected, until one has an exchange: a silent device delays those that wait by one exchange at a
/// time. Returns whether one had.
fn greet(line: &mut Connection, listeners: &mut [ListenerEntry]) -> bool {
    if !connects(line, listeners) || !line.reopen() {
        return false;
    }
    let connection = line.meetings;
    for at in 0..listeners.len() {
        if std::mem::replace(&mut listeners[at].0, connection) == connection {
            continue;
        }
        if let Some(job) = listeners[at].1.handle_connected() {
            run(line, job, listeners);
            return true;
        }
    }
    false
}

/// Whether the port connects without an exchange.
fn connects(line: &Connection, listeners: &[ListenerEntry]) -> bool {
    !listeners.is_empty() || line.status.unreachable
}

fn run(line: &mut Connection, mut job: Box<dyn Job>, listeners: &mut [ListenerEntry]) {
    let now = mono_now();
    if job.latest().is_some_and(|latest| latest < now) {
        job.missed("the port was busy too long");
        return;
    }
    job.begin();
    // Bytes received before the request are not its answer.
    if line.fd().is_some() {
        hear(line, listeners);
    }
    line.run_heard(job.exchange(), &mut |now, bytes| {
        listeners.iter_mut().for_each(|(_, listener)| listener.handle_bytes(now, bytes));
    });
    job.done();
}

/// Waits for unsolicited bytes while the queue is empty.
fn idle(shared: &Shared, line: &mut Connection, listeners: &mut [ListenerEntry]) {
    let now = mono_now();
    let retry = line.reopen_at().filter(|_| connects(line, listeners));
    let until = listeners.iter().filter_map(|(_, listener)| listener.poll_timeout()).chain(retry).min();
    let pause = line.pause_until(now);
    let until = until.into_iter().chain(pause).min();
    let limit = until.map_or(ROUND_EVERY, |until| DurNs((until - now).0.max(0)).min(ROUND_EVERY));
    let ready = match line.fd().filter(|_| pause.is_none()) {
        Some(fd) => sys::poll::readable(&[shared.bell.as_fd(), fd], limit),
        None => sys::poll::readable(&[shared.bell.as_fd()], limit),
    };
    if ready[0] {
        let _ = rustix::io::read(&shared.bell, &mut [0; 8]);
    }
    if ready.get(1) == Some(&true) {
        hear(line, listeners);
    }
    let now = mono_now();
    for (_, listener) in listeners {
        if listener.poll_timeout().is_some_and(|at| at <= now) {
            listener.handle_timeout(now);
        }
    }
}

/// Passes received bytes to the listeners, until there are none or the connection pauses.
fn hear(line: &mut Connection, listeners: &mut [ListenerEntry]) {
    loop {
        let bytes = line.take();
        let now = mono_now();
        if bytes.is_empty() {
            if line.fd().is_none() {
                listeners.iter_mut().for_each(|(_, listener)| listener.handle_closed(now, &line.status.trouble));
            }
            return;
        }
        listeners.iter_mut().for_each(|(_, listener)| listener.handle_bytes(now, &bytes));
    }
}
