//! The oscilloscope's client.

use super::machine::{Cause, Phase};
use super::request::{Request, Setup};
use super::sampler::STOP;
use super::shared::{REQUEST_BYTES, address};
use crate::share::ShareError;
use crate::variables::Imports;
use base::DurNs;
use ring::{Captures, Division};
use std::os::fd::{AsFd as _, OwnedFd};
use sys::handover;
use sys::shm::{ReadWords, SharedWords};

/// Reason why the oscilloscope is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScopeError {
    /// The variables are unavailable.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// No thread samples them.
    #[error(
        "the variables of {name:?} have no oscilloscope ({error}); expected a loop or an activity of a frame that was given \
         them, or a program that ends its cycles by tahti_export_cycle()"
    )]
    NotSampled {
        /// The segment's name.
        name: String,
        /// The kernel's answer.
        error: sys::Error,
    },
    /// The loop's process refused, with its reason.
    #[error("{0}")]
    Refused(String),
    /// The loop's process has ended.
    #[error("the process that exported {0:?} has ended")]
    Ended(String),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    /// The memory does not have the expected layout.
    #[error(transparent)]
    Layout(#[from] ring::LayoutError),
}

/// State of the loop's sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Number of the setup in force.
    pub id: u64,
    /// Phase of sampling.
    pub phase: Phase,
    /// Number of complete captures.
    pub captures: u64,
    /// Triggers that were ignored: before enough rows were recorded, during a capture, or during the holdoff.
    pub ignored: u64,
    /// Whether the setup is in use. It is while sampling is active. It also is if the setup is detached and no client has
    /// stopped it, so that its captures can still be fetched.
    pub is_held: bool,
    epoch: u64,
}

/// Rows as written by the loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Words of a row: pulse number, `CLOCK_MONOTONIC` ns, marks, and the bits of each variable.
    pub row_words: usize,
    /// The words of all rows.
    pub words: Vec<u64>,
    /// Index of the trigger's row.
    pub trigger: Option<usize>,
    /// Cause of the trigger.
    pub cause: Option<Cause>,
    /// Indices of the variables.
    pub channels: Vec<usize>,
}

/// An oscilloscope on the variables of a process.
#[derive(Debug)]
pub struct Oscilloscope {
    name: String,
    variables: Imports,
    captures: Captures<ReadWords>,
    connection: OwnedFd,
}

/// The names under which variables are exported on this machine, and whether a loop samples them.
///
/// # Errors
/// The kernel's error, if `/proc/net/unix` cannot be read.
pub fn exported() -> std::io::Result<Vec<(String, bool)>> {
    const PREFIX: &str = "tahti-variables-";
    let sampled = handover::names(&address(""))?;
    let names = handover::names(PREFIX)?;
    let names = names.iter().filter_map(|name| name.strip_prefix(PREFIX));
    Ok(names.map(|name| (name.to_owned(), sampled.contains(&address(name)))).collect())
}

impl Oscilloscope {
    /// Opens the variables that are exported under a name. The loop's process creates the capture memory for the first
    /// client.
    ///
    /// # Errors
    /// If no process exports the name, no loop samples it, or the process refuses.
    pub fn open(name: &str) -> Result<Self, ScopeError> {
        let variables = Imports::open(name)?;
        let not_sampled = |error| ScopeError::NotSampled { name: name.to_owned(), error };
        let connection = handover::connect(&address(name)).map_err(not_sampled)?;
        let ended = || ScopeError::Ended(name.to_owned());
        let mut answer = [0; 512];
        let (length, fds) = handover::receive(connection.as_fd(), &mut answer)?.ok_or_else(ended)?;
        let refused = || ScopeError::Refused(said(&answer[..length]));
        let fd = fds.into_iter().next().ok_or_else(refused)?;
        let captures = Captures::attach(SharedWords::attach_read_only(fd)?)?;
        Ok(Self { name: name.to_owned(), variables, captures, connection })
    }

    /// The name of its variables.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variables.
    #[must_use]
    pub fn variables(&self) -> &Imports {
        &self.variables
    }

    /// Whether the loop's process is alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.variables.is_alive()
    }

    /// Requests a setup and returns its number. Unless it is detached, the setup ends with this oscilloscope or when another
    /// client requests a setup.
    ///
    /// # Errors
    /// The reason why the setup is refused.
    pub fn set_up(&self, request: &Request) -> Result<u64, ScopeError> {
        let answer = self.ask(&format!("setup\n{request}"))?;
        answer
            .parse()
            .map_err(|_| ScopeError::Refused(format!("the answer is {answer:?}; expected the number of a setup")))
    }

    /// Triggers a capture now.
    ///
    /// # Errors
    /// If the process refuses or has ended.
    pub fn force(&self, cause: Cause) -> Result<(), ScopeError> {
        self.ask(&format!("force\n{}", cause.word())).map(drop)
    }

    /// Ends sampling. Captures that are complete remain.
    ///
    /// # Errors
    /// If the process refuses or has ended.
    pub fn stop(&self) -> Result<(), ScopeError> {
        self.ask("stop\n").map(drop)
    }

    fn ask(&self, text: &str) -> Result<String, ScopeError> {
        if text.len() > REQUEST_BYTES {
            let found = text.len();
            return Err(ScopeError::Refused(format!("a request of {found} bytes; expected {REQUEST_BYTES} at most")));
        }
        let ended = || ScopeError::Ended(self.name.clone());
        if !handover::send(self.connection.as_fd(), text.as_bytes(), &[])? {
            return Err(ended());
        }
        let mut answer = [0; REQUEST_BYTES];
        let (length, _) = handover::receive(self.connection.as_fd(), &mut answer)?.ok_or_else(ended)?;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        match answer.strip_prefix("ok ") {
            Some(rest) => Ok(rest.to_owned()),
            None => Err(ScopeError::Refused(said(answer.as_bytes()))),
        }
    }

    /// State of the loop's sampling; `None` before it has applied a setup.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let [id, epoch, phase, captures, ignored, _] = self.captures.status()?;
        let phase = *Phase::ALL.get(usize::try_from(phase).ok()?)?;
        let setup = self.captures.setup().and_then(|(_, words)| Setup::of(&words)).filter(|setup| setup.id == id);
        let is_left_alone = setup.is_some_and(|setup| {
            let (word, what) = self.captures.commanded();
            setup.detached && (word == setup.commanded || what != STOP)
        });
        Some(Status { id, phase, captures, ignored, is_held: phase != Phase::Stopped || is_left_alone, epoch })
    }

    /// Waits until the loop has applied the setup `id` and returns its status. Returns `None` if it has not within the given
    /// time: the loop is not running, or another client has requested a setup.
    #[must_use]
    pub fn taken(&self, id: u64, within: DurNs) -> Option<Status> {
        let until = sys::clock::mono_now() + within;
        loop {
            match self.status() {
                Some(status) if status.id == id => return Some(status),
                _ if sys::clock::mono_now() >= until => return None,
                _ => sys::clock::sleep_until(sys::clock::mono_now() + DurNs::from_ms(1)),
            }
        }
    }

    /// The setup in force, and the division of the memory for it.
    fn in_force(&self) -> Option<(Status, Setup, Division)> {
        let status = self.status()?;
        let setup = Setup::of(&self.captures.setup()?.1).filter(|setup| setup.id == status.id)?;
        Some((status, setup, self.captures.divide(setup.count, setup.keep)?))
    }

    /// The complete captures that are still kept, from number `from` on, with their numbers. The first capture is 0.
    #[must_use]
    pub fn captured(&self, from: u64) -> Vec<(u64, Rows)> {
        let Some((status, setup, division)) = self.in_force() else { return Vec::new() };
        let oldest = status.captures.saturating_sub(setup.keep as u64).max(from);
        (oldest..status.captures)
            .filter_map(|number| Some((number, self.capture(&status, &setup, &division, number)?)))
            .collect()
    }

    fn capture(&self, status: &Status, setup: &Setup, division: &Division, number: u64) -> Option<Rows> {
        let index = (number % setup.keep.max(1) as u64) as usize;
        let seen = self.captures.segment(division, index)?;
        if seen.generation != status.epoch << 32 | number {
            return None;
        }
        let (trigger, end) = (seen.trigger?, seen.end?);
        let first = trigger.saturating_sub(setup.timing.pre);
        let count = usize::try_from(end.checked_sub(first)?).ok().filter(|count| *count <= division.rows)?;
        let mut words = vec![0; count * division.row_words()];
        let copied = self.captures.rows(division, index, &seen, first, &mut words)?;
        (copied == count).then(|| Rows {
            row_words: division.row_words(),
            words,
            trigger: usize::try_from(trigger - first).ok(),
            cause: Cause::of(seen.cause),
            channels: setup.channels[..setup.count].to_vec(),
        })
    }

    /// The newest rows, at most `count`, of the segment that is being written. They show the signal before a trigger; in
    /// mode roll they are the only data.
    #[must_use]
    pub fn latest(&self, count: usize) -> Option<Rows> {
        let (status, setup, division) = self.in_force()?;
        // A loop that is stopped remains in the segment of its last capture.
        let number = status.captures.saturating_sub(u64::from(status.phase == Phase::Stopped && status.captures > 0));
        let index = (number % setup.keep.max(1) as u64) as usize;
        let segment = self.captures.segment(&division, index)?;
        let seen = Some(segment).filter(|seen| seen.generation == status.epoch << 32 | number)?;
        // A margin for the rows that are written during the copy.
        let there = (division.rows as u64 * 7 / 8).min(seen.written).min(count as u64);
        let mut words = vec![0; there as usize * division.row_words()];
        let copied = self.captures.rows(&division, index, &seen, seen.written - there, &mut words)?;
        words.truncate(copied * division.row_words());
        let channels = setup.channels[..setup.count].to_vec();
        Some(Rows { row_words: division.row_words(), words, trigger: None, cause: None, channels })
    }
}

fn said(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.strip_prefix("no ").unwrap_or(&text).to_owned()
}
