//! Channel from the loop to loggers: a trail of readings in shared memory, whose descriptor is handed over at a socket.

use crate::failure::Failure;
use ring::Trail;
use std::os::fd::{AsFd as _, OwnedFd};
use sys::handover::{self, Counter};
use sys::shm::{ReadWords, SharedWords};

const WORDS: usize = 7;
/// Number of readings in the trail: 4 s at 1 kHz.
const READINGS: usize = 4096;

/// One reading; the loop publishes one in each cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) pulse: u64,
    /// Time of the measurement: `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) measured_ns: u64,
    /// Cavity voltage relative to its set-point.
    pub(super) amplitude: f64,
    pub(super) phase_deg: f64,
    pub(super) drive: f64,
    pub(super) drive_phase_deg: f64,
    pub(super) beam: bool,
}

impl Reading {
    pub(super) fn words(&self) -> [u64; WORDS] {
        [
            self.pulse,
            self.measured_ns,
            self.amplitude.to_bits(),
            self.phase_deg.to_bits(),
            self.drive.to_bits(),
            self.drive_phase_deg.to_bits(),
            u64::from(self.beam),
        ]
    }

    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        let number = |index: usize| f64::from_bits(words[index]);
        Self {
            pulse: words[0],
            measured_ns: words[1],
            amplitude: number(2),
            phase_deg: number(3),
            drive: number(4),
            drive_phase_deg: number(5),
            beam: words[6] != 0,
        }
    }
}

pub(super) type Readings<'a> = Trail<'a, WORDS>;

fn socket_name(channel: &str) -> String {
    format!("tahti-channel-{channel}")
}

/// The loop's side of the channel: hands out the memory and keeps track of its readers.
pub(super) struct Publisher {
    counter: Counter,
    readers: Vec<OwnedFd>,
}

impl Publisher {
    /// Creates the shared memory of the channel, with an empty trail.
    pub(super) fn memory() -> Result<SharedWords, Failure> {
        let words = SharedWords::create_for_readers("tahti-readings", Readings::words_for(READINGS))?;
        Readings::format(words.words())?;
        Ok(words)
    }

    pub(super) fn open(channel: &str) -> Result<Self, Failure> {
        let counter = Counter::open(&socket_name(channel))
            .map_err(|error| format!("{error}; another loop publishes there: give this one --channel NAME"))?;
        Ok(Self { counter, readers: Vec::new() })
    }

    /// Serves new readers and removes those that have disconnected.
    pub(super) fn serve(&mut self, memory: &SharedWords) -> Result<(), Failure> {
        self.readers.retain(|reader| handover::is_alive(reader.as_fd()));
        self.readers.extend(self.counter.serve(memory.fd())?);
        Ok(())
    }
}

/// The reader's side of the channel.
pub(super) struct Subscription {
    pub(super) memory: ReadWords,
    connection: OwnedFd,
}

impl Subscription {
    /// Connects to the loop of a channel. Fails if the loop does not run (yet).
    pub(super) fn ask(channel: &str) -> Result<Self, Failure> {
        let (fd, connection) = handover::ask(&socket_name(channel))?;
        let memory = SharedWords::attach_read_only(fd)?;
        Readings::attach(memory.words())?;
        Ok(Self { memory, connection })
    }

    /// Whether the loop's process is alive.
    pub(super) fn is_alive(&self) -> bool {
        handover::is_alive(self.connection.as_fd())
    }
}
