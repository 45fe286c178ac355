//! Frames: a [`Runner`] is the process of a frame, a [`Member`] is a thread that has joined one.
//!
//! The runner's dispatcher thread wakes only at borders between minors. Within a minor each activity releases the next
//! through a futex word of the frame page. All threads are `fifo` on the frame's CPU. Their priorities, relative to the
//! frame's priority `P`:
//!
//! | priority | threads |
//! |---|---|
//! | `P` | the dispatcher |
//! | `P - 1` | activities |
//! | `P - 2` | the caretaker, which runs when no thread above it does, and passes on the turn of a blocked activity |
//! | `P - 3` | parked calls, which continued beyond their minor, until their turn comes again |
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

/// Environment variable with the name of the plant, which keeps frames of several plants apart.
pub const PLANT: &str = "TAHTI_PLANT";

/// Address of the socket for joining `frame`. The plant is that in [`PLANT`], unless the name is `PLANT/FRAME`.
#[must_use]
pub fn address(frame: &str) -> String {
    match (frame.split_once('/'), std::env::var(PLANT)) {
        (Some((plant, frame)), _) => format!("tahti-frame-{plant}-{frame}"),
        (None, Ok(plant)) => format!("tahti-frame-{plant}-{frame}"),
        (None, Err(_)) => format!("tahti-frame--{frame}"),
    }
}

/// Connects to the process of a frame.
fn call(frame: &str) -> Result<OwnedFd, JoinError> {
    sys::handover::connect(&address(frame)).map_err(|error| match error.errno {
        // Another process uses its name.
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
