//! Frames on the machine: a [`Runner`] is the process behind a frame, a [`Member`] a thread that has joined one.
//!
//! The runner's dispatcher thread wakes at minor borders only. Within a minor each activity releases the next through a
//! futex word of the frame page. Priorities, all `fifo` on the frame's one CPU, from the one that the frame has:
//!
//! | priority | who |
//! |---|---|
//! | `P` | the dispatcher |
//! | `P - 1` | activities |
//! | `P - 2` | the caretaker: it runs when nobody above it does, and passes the turn of a blocked activity on |
//! | `P - 3` | parked: a call that went on beyond its minor, until its turn comes again |
//! | `P - 4` | background activities |

mod accounts;
mod callers;
mod caretaker;
mod cause;
mod dispatcher;
mod member;
mod runner;
mod shared;
mod ticker;
mod trigger;
mod verdicts;
mod watch;

pub use cause::Cause;
pub use member::{JoinError, Member, MinorTurn, hand_trigger, trigger};
pub use runner::{Report, RunError, Runner};
pub use watch::{Watcher, action_word, what_word};

use std::os::fd::OwnedFd;
use sys::Errno;

/// The environment variable that names the plant, so that frames of several plants keep apart.
pub const PLANT: &str = "TAHTI_PLANT";

/// The socket at which frame `frame` is joined: of the plant in [`PLANT`], unless the name says `PLANT/FRAME`.
#[must_use]
pub fn address(frame: &str) -> String {
    match (frame.split_once('/'), std::env::var(PLANT)) {
        (Some((plant, frame)), _) => format!("tahti-frame-{plant}-{frame}"),
        (None, Ok(plant)) => format!("tahti-frame-{plant}-{frame}"),
        (None, Err(_)) => format!("tahti-frame--{frame}"),
    }
}

/// Calls the process behind a frame.
fn call(frame: &str) -> Result<OwnedFd, JoinError> {
    sys::handover::connect(&address(frame)).map_err(|error| match error.errno {
        // Somebody else has its name.
        Errno::PERM => JoinError::Kernel(error.to_string()),
        _ => JoinError::NoFrame(frame.to_owned()),
    })
}

/// The kinds of events in a frame page.
pub(crate) mod event {
    pub(crate) const OVERRUN: u8 = 1;
    pub(crate) const UNDERRUN: u8 = 2;
    pub(crate) const ABSENT: u8 = 3;
    pub(crate) const LOST: u8 = 4;
    pub(crate) const MODE: u8 = 5;
    pub(crate) const TRIGGER_STOPPED: u8 = 6;
    pub(crate) const TRIGGER_EARLY: u8 = 7;
    pub(crate) const TRIGGER_LATE: u8 = 8;
    pub(crate) const TRIGGER_STEADY: u8 = 9;
}
