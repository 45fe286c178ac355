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
    /// Received bytes.
    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]);

    /// Time of its next call if no bytes are received.
    fn poll_timeout(&self) -> Option<MonoNs>;

    /// The time from the previous method has passed.
    fn handle_timeout(&mut self, now: MonoNs);

    /// The connection was closed; `why` is a readable text.
    fn handle_closed(&mut self, now: MonoNs, why: &str);
}

struct Inside {
    waiting: VecDeque<Box<dyn Job>>,
    listeners: Vec<Box<dyn Listener>>,
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
        let builder = std::thread::Builder::new().name(format!("port-{name}")).stack_size(256 << 10);
        let line = Connection::new(address).traced(name, trace);
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
        lock(&self.shared.inside).listeners.push(listener);
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
    let mut listeners: Vec<Box<dyn Listener>> = Vec::new();
    loop {
        let (job, closed) = {
            let mut inside = lock(&shared.inside);
            inside.status.clone_from(&line.status);
            listeners.append(&mut inside.listeners);
            (inside.waiting.pop_front(), inside.closed)
        };
        if closed {
            job.into_iter().for_each(|job| job.missed("the port is closed"));
            let rest = std::mem::take(&mut lock(&shared.inside).waiting);
            rest.into_iter().for_each(|job| job.missed("the port is closed"));
            return;
        }
        match job {
            Some(job) => run(&mut line, job, &mut listeners),
            None => idle(shared, &mut line, &mut listeners),
        }
    }
}

fn run(line: &mut Connection, mut job: Box<dyn Job>, listeners: &mut [Box<dyn Listener>]) {
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
        listeners.iter_mut().for_each(|listener| listener.handle_bytes(now, bytes));
    });
    job.done();
}

/// Waits for unsolicited bytes while the queue is empty.
fn idle(shared: &Shared, line: &mut Connection, listeners: &mut [Box<dyn Listener>]) {
    if !listeners.is_empty() && line.retry_at().is_some_and(|at| at <= mono_now()) {
        let _ = line.connect();
    }
    let now = mono_now();
    let retry = line.retry_at().filter(|_| !listeners.is_empty());
    let until = listeners.iter().filter_map(|listener| listener.poll_timeout()).chain(retry).min();
    let pause = line.pause_until(now);
    let until = until.into_iter().chain(pause).min();
    let limit = until.map_or(DurNs::from_secs(3600), |until| DurNs((until - now).0.max(0)));
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
    for listener in listeners {
        if listener.poll_timeout().is_some_and(|at| at <= now) {
            listener.handle_timeout(now);
        }
    }
}

/// Passes received bytes to the listeners, until there are none or the connection pauses.
fn hear(line: &mut Connection, listeners: &mut [Box<dyn Listener>]) {
    loop {
        let bytes = line.take();
        let now = mono_now();
        if bytes.is_empty() {
            if line.fd().is_none() {
                listeners.iter_mut().for_each(|listener| listener.handle_closed(now, &line.status.trouble));
            }
            return;
        }
        listeners.iter_mut().for_each(|listener| listener.handle_bytes(now, &bytes));
    }
}
