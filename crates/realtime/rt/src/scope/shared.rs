//! State shared by the loop and the server of an oscilloscope, and the server's thread.

use super::machine::Cause;
use super::request::{Request, RequestError, Setup};
use super::sampler::STOP;
use crate::share::ShareError;
use base::DurNs;
use ring::{Captures, Variables};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use sys::handover::{self, Counter};
use sys::shm::SharedWords;

/// Size of the capture memory: 4 MiB, enough for 75,000 rows of four variables.
const MEMORY_WORDS: usize = 1 << 19;
/// Maximum number of connections at a time.
const CALLERS_MAX: usize = 32;
/// Maximum size of a request in bytes, enough for sixteen names and all other lines.
pub(super) const REQUEST_BYTES: usize = 4096;

pub(super) fn address(name: &str) -> String {
    format!("tahti-scope-{name}")
}

/// State shared by the loop and the server's thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) variables: Arc<SharedWords>,
    /// Created for the first client and never freed, because unmapping would interrupt the loop's CPU.
    pub(super) memory: OnceLock<Captures<SharedWords>>,
    /// Whether a loop samples.
    pub(super) taken: AtomicBool,
    /// Number of times that a setup was applied.
    pub(super) epochs: AtomicU64,
}

impl Shared {
    /// Opens the oscilloscope of a segment of variables. A separate non-real-time thread serves it.
    pub(crate) fn open(name: &str, variables: Arc<SharedWords>) -> Result<Arc<Self>, ShareError> {
        let refused = |error| ShareError::Export { name: name.to_owned(), error };
        let counter = Counter::open(&address(name)).map_err(refused)?;
        let (taken, epochs) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Self { variables, memory: OnceLock::new(), taken, epochs });
        let server = Server { shared: shared.clone(), counter, callers: Vec::new(), ids: 0 };
        let builder = std::thread::Builder::new().name("tahti-scope".to_owned()).stack_size(128 << 10);
        let started = builder.spawn(move || server.serve());
        started.map_err(|error| refused(sys::Error::of("start a thread", &error)))?;
        Ok(shared)
    }
}

/// A connected client.
struct Caller {
    connection: OwnedFd,
    /// The setup that ends with this connection.
    holds: Option<u64>,
}

/// The server of an oscilloscope.
struct Server {
    shared: Arc<Shared>,
    counter: Counter,
    callers: Vec<Caller>,
    /// Number of setups so far.
    ids: u64,
}

impl Server {
    fn serve(mut self) {
        // The kernel only refuses this if the thread is time-sharing already.
        let _ =
            sys::sched::set_scheduling(0, sys::sched::Scheduling { policy: base::Policy::OTHER, reset_on_fork: false });
        loop {
            let callers = self.callers.iter().map(|caller| caller.connection.as_fd());
            let fds: Vec<BorrowedFd<'_>> = std::iter::once(self.counter.as_fd()).chain(callers).collect();
            let ready = sys::poll::readable(&fds, DurNs::from_secs(3600));
            for index in (0..self.callers.len()).rev() {
                if ready[index + 1] && !self.request(index) {
                    let gone = self.callers.swap_remove(index);
                    self.release(&gone);
                }
            }
            // A connection that fails in `accept` does not end the server.
            if ready[0]
                && let Ok(Some(caller)) = self.counter.accept()
                && self.callers.len() < CALLERS_MAX
            {
                self.welcome(caller.connection);
            }
        }
    }

    /// Sends the memory to a new client.
    fn welcome(&mut self, connection: OwnedFd) {
        let sent = match self.memory() {
            Ok(memory) => handover::send_now(connection.as_fd(), b"ok", &[memory.memory().fd()]),
            Err(error) => handover::send_now(connection.as_fd(), format!("no {error}").as_bytes(), &[]),
        };
        if matches!(sent, Ok(true)) {
            self.callers.push(Caller { connection, holds: None });
        }
    }

    /// The capture memory, which is created for the first client.
    fn memory(&self) -> Result<&Captures<SharedWords>, ShareError> {
        if let Some(memory) = self.shared.memory.get() {
            return Ok(memory);
        }
        let words = SharedWords::create_for_readers("tahti-scope", MEMORY_WORDS)?;
        // Touched here, so that the loop causes no page faults.
        words.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let captures = Captures::format(words)?;
        Ok(self.shared.memory.get_or_init(|| captures))
    }

    /// Serves a request of a client. Returns `false` if the client is gone or does not read its answers.
    fn request(&mut self, index: usize) -> bool {
        let mut bytes = [0u8; REQUEST_BYTES];
        let received = handover::receive(self.callers[index].connection.as_fd(), &mut bytes);
        let Ok(Some((length, _))) = received else { return false };
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let answer = match text.split_once('\n') {
            Some(("setup", request)) => match request.parse().and_then(|request| self.set_up(&request, index)) {
                Ok(id) => format!("ok {id}"),
                Err(why) => why.line(),
            },
            Some(("force", cause)) => match Cause::ALL[2..].iter().find(|known| known.word() == cause.trim()) {
                Some(cause) => self.command(cause.code()),
                None => format!("no {cause:?} is no cause; expected forced, alarm or message"),
            },
            Some(("stop", _)) => self.command(STOP),
            _ => "no such request; expected setup, force or stop".to_owned(),
        };
        matches!(handover::send_now(self.callers[index].connection.as_fd(), answer.as_bytes(), &[]), Ok(true))
    }

    fn command(&self, what: u8) -> String {
        match self.memory() {
            Ok(memory) => {
                memory.command(what);
                "ok 0".to_owned()
            }
            Err(error) => format!("no {error}"),
        }
    }

    /// Checks a request and publishes it as the setup. Returns its number.
    fn set_up(&mut self, request: &Request, index: usize) -> Result<u64, RequestError> {
        let damaged = || RequestError::Line { found: String::new(), expected: "undamaged memory" };
        let id = self.ids + 1;
        let memory = self.memory().map_err(|_| damaged())?;
        let variables = Variables::attach(self.shared.variables.words()).map_err(|_| damaged())?;
        // The row after the newest one may be half written.
        let most = |channels, keep| Some(memory.divide(channels, keep)?.rows as u64 - 1);
        let setup = Setup { commanded: memory.commanded().0, ..request.settle(id, &variables, most)? };
        memory.set_setup(setup.words());
        self.ids = id;
        self.callers[index].holds = (!request.detached).then_some(id);
        Ok(id)
    }

    /// Ends the setup of a client that has disconnected, unless it was detached or replaced.
    fn release(&self, gone: &Caller) {
        if gone.holds == Some(self.ids)
            && let Some(memory) = self.shared.memory.get()
        {
            memory.command(STOP);
        }
    }
}
