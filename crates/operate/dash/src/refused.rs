//! Reasons why a request of a client fails.

use crate::alarms::AlarmsError;
use crate::scopes::{FILE_BYTES_MAX, ForcingError, OPENED_MAX, VALUES_MAX};
use msg::Verb;
use std::io;

/// The reason. The client receives its text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{whose} have {most} of {all} {what} already, as many as they may; {remedy}")]
    UsedUp { whose: String, most: usize, all: usize, what: &'static str, remedy: &'static str },
    #[error("the logs cannot be read: {0}")]
    Logs(io::Error),
    /// The line is no request.
    #[error("{0}")]
    Line(String),
    #[error("{0}: the field \"Watch\" of the console watches")]
    Watch(Verb),
    #[error("no thread for it: {0}")]
    Thread(io::Error),
    #[error("/proc/net/unix: {0}")]
    Sockets(io::Error),
    #[error("{0:?}; expected a name that ends in .csv, .npy or .json")]
    FileName(String),
    #[error("a file of {0} bytes; expected 1 to {FILE_BYTES_MAX}")]
    FileBytes(usize),
    #[error("bytes came; expected `open` before them")]
    NotOpened,
    #[error("{0}: {1}")]
    File(String, scope::FileError),
    #[error("{OPENED_MAX} files are open already; take one from the list")]
    OpenFiles,
    #[error("{name}: {values} values; expected {} at most", VALUES_MAX / 2)]
    Values { name: String, values: usize },
    #[error("a file is still on its way; try again")]
    FileInTransit,
    #[error("capture {0} is no longer available")]
    Capture(u32),
    #[error("mode {0:?}; expected single, normal, auto or roll")]
    Mode(String),
    #[error("expected 0 to 100 % before the trigger, 2 rows or more, and a row in each 1 or more cycles")]
    Setup,
    #[error(transparent)]
    Trigger(#[from] scope::TriggerError),
    #[error(transparent)]
    Alarms(#[from] AlarmsError),
    #[error(transparent)]
    Forcing(#[from] ForcingError),
    #[error(transparent)]
    Loop(#[from] rt::scope::ScopeError),
    #[error("no oscilloscope")]
    NoScope,
    #[error("no loop is selected; arm one")]
    NothingToForce,
    #[error("no loop is selected")]
    NothingToStop,
    #[error("the oscilloscope of {0:?} is not set up")]
    Idle(String),
    #[error("the process that exported {0:?} has ended")]
    Ended(String),
    #[error("another client has set the oscilloscope up: this session ended")]
    Replaced,
    #[error("the loop of {0:?} is not running, or another client has set it up meanwhile")]
    NotTaken(String),
    #[error(
        "another client has set up the oscilloscope of {0:?}, and a loop samples for one at a time; look at those captures, or have \
         an operator take it over"
    )]
    Held(String),
    #[error("{count} channels made of others; expected {most} at most")]
    Channels { count: usize, most: usize },
    /// The expected operations.
    #[error("{0}")]
    Operation(&'static str),
    #[error("window {0:?}; expected rectangle, hann or flat-top")]
    Window(String),
    #[error(transparent)]
    Supervisor(io::Error),
    /// The supervisor refuses, in its words.
    #[error("{0}")]
    BySupervisor(String),
    #[error("{0} is no status")]
    NoStatus(String),
}

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        refused.to_string()
    }
}
