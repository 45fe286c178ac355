//! A port: a line with its thread and the exchanges that wait for it.

use crate::address::Address;
use crate::connection::{Connection, Status};
use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::clock::mono_now;

/// An exchange with what is to be done when it is over.
pub trait Job: Send {
    /// The exchange.
    fn exchange(&mut self) -> &mut dyn Exchange;

    /// The instant after which it shall not begin any more.
    fn latest(&self) -> Option<MonoNs> {
        None
    }

    /// Its turn has come: what it needs may be fetched now, which holds up the port. On the port's thread.
    fn begin(&mut self) {}

    /// The exchange is over. On the port's thread.
    fn done(self: Box<Self>);

    /// It was not run: it waited too long, or the port is closed. On the port's thread.
    fn missed(self: Box<Self>, why: &str);
}

/// Takes all bytes that come, those that an exchange asked for too: it may be anybody's line. On the port's thread.
pub trait Listener: Send {
    /// Bytes came.
    fn handle_bytes(&mut self, now: MonoNs, bytes: &[u8]);

    /// When it wants to be woken if nothing comes.
    fn poll_timeout(&self) -> Option<MonoNs>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: MonoNs);

    /// The line was closed; `why` is for people.
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
    /// How many handles there are; the thread ends with the last.
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

/// A panic elsewhere leaves nothing half done in what these locks hold.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn ring(&self) {
        // The counter can only be full when it is read soon anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Port {
    /// Starts the thread of a port. At most `bound` exchanges may wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(name: &str, address: Address, bound: usize) -> io::Result<Self> {
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
        builder.spawn(move || serve(&mine, Connection::new(address)))?;
        Ok(port)
    }

    /// The port's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Queues an exchange, or gives it back where as many wait as may; that is counted.
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

    /// Has all bytes that come given to this listener too; the port then stays connected.
    pub fn listen(&self, listener: Box<dyn Listener>) {
        lock(&self.shared.inside).listeners.push(listener);
        self.shared.ring();
    }

    /// How the line does.
    #[must_use]
    pub fn status(&self) -> Status {
        lock(&self.shared.inside).status.clone()
    }

    /// Exchanges that were refused because too many waited.
    #[must_use]
    pub fn refused(&self) -> u64 {
        lock(&self.shared.inside).refused
    }
}

/// The pause of a port whose device sends without end: bytes that no exchange asked for take a quarter of a CPU at most. The
/// kernel's buffer fills meanwhile, and holds the device up where it can be held up.
#[derive(Debug, Default)]
struct Pause {
    until: Option<MonoNs>,
}

/// A pause lasts so many times as long as the pass before it, and never longer than [`PAUSE_MAX`].
const PAUSE_FACTOR: i64 = 3;
const PAUSE_MAX: DurNs = DurNs::from_ms(50);
/// Times that bytes are taken in one pass.
const READS_MAX: usize = 16;

impl Pause {
    /// A pass of listening has ended, and there may be `more`.
    fn after_pass(&mut self, began: MonoNs, ended: MonoNs, more: bool) {
        let long = DurNs(((ended - began).0.max(0) * PAUSE_FACTOR).min(PAUSE_MAX.0));
        self.until = more.then_some(ended + long);
    }

    /// How much is left of it.
    fn left(&self, now: MonoNs) -> Option<DurNs> {
        self.until.map(|until| until - now).filter(|left| left.0 > 0)
    }
}

/// The port's thread.
fn serve(shared: &Shared, mut line: Connection) {
    let mut listeners: Vec<Box<dyn Listener>> = Vec::new();
    let mut pause = Pause::default();
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
            None => idle(shared, &mut line, &mut listeners, &mut pause),
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
    // What came before the request is no answer to it.
    if line.fd().is_some() {
        hear(line, listeners);
    }
    line.run_heard(job.exchange(), &mut |now, bytes| {
        listeners.iter_mut().for_each(|listener| listener.handle_bytes(now, bytes));
    });
    job.done();
}

/// Nothing to do but to listen.
fn idle(shared: &Shared, line: &mut Connection, listeners: &mut [Box<dyn Listener>], pause: &mut Pause) {
    if !listeners.is_empty() && line.retry_at().is_some_and(|at| at <= mono_now()) {
        let _ = line.connect();
    }
    let now = mono_now();
    let retry = line.retry_at().filter(|_| !listeners.is_empty());
    let until = listeners.iter().filter_map(|listener| listener.poll_timeout()).chain(retry).min();
    let limit = until.map_or(DurNs::from_secs(3600), |until| DurNs((until - now).0.max(0)));
    let left = pause.left(now);
    let limit = left.map_or(limit, |left| left.min(limit));
    let ready = match line.fd().filter(|_| left.is_none()) {
        Some(fd) => sys::poll::readable(&[shared.bell.as_fd(), fd], limit),
        None => sys::poll::readable(&[shared.bell.as_fd()], limit),
    };
    if ready[0] {
        let _ = rustix::io::read(&shared.bell, &mut [0; 8]);
    }
    if ready.get(1) == Some(&true) {
        let began = mono_now();
        let more = hear(line, listeners);
        pause.after_pass(began, mono_now(), more);
    }
    let now = mono_now();
    for listener in listeners {
        if listener.poll_timeout().is_some_and(|at| at <= now) {
            listener.handle_timeout(now);
        }
    }
}

/// Hands bytes that have come to the listeners, a bounded number; whether there may be more.
fn hear(line: &mut Connection, listeners: &mut [Box<dyn Listener>]) -> bool {
    for _ in 0..READS_MAX {
        let bytes = line.take();
        let now = mono_now();
        if bytes.is_empty() {
            if line.fd().is_none() {
                listeners.iter_mut().for_each(|listener| listener.handle_closed(now, &line.status.trouble));
            }
            return false;
        }
        listeners.iter_mut().for_each(|listener| listener.handle_bytes(now, &bytes));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_hears_without_end_pauses_three_times_as_long_as_it_listened() {
        let ms = |ms: u64| MonoNs(ms * 1_000_000);
        let mut pause = Pause::default();
        assert_eq!(pause.left(ms(0)), None);
        pause.after_pass(ms(10), ms(12), true);
        assert_eq!(
            [ms(12), ms(17), ms(18)].map(|now| pause.left(now)),
            [Some(DurNs::from_ms(6)), Some(DurNs::from_ms(1)), None]
        );
        pause.after_pass(ms(20), ms(120), true);
        assert_eq!(pause.left(ms(120)), Some(PAUSE_MAX));
        pause.after_pass(ms(200), ms(201), false);
        assert_eq!(pause.left(ms(201)), None, "nothing more has come");
    }
}
