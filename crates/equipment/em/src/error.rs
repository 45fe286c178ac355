//! Why an equipment manager does not run, or a table of current values cannot be read.

use std::io;
use std::path::PathBuf;

/// Why an equipment manager does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its file cannot be read.
    #[error("equipment file {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Its tables have errors: all findings, as people read them.
    #[error("{0}")]
    Tables(String),
    /// A device cannot be made: which one, found and expected.
    #[error(transparent)]
    Device(#[from] equipment::LaneError<Box<DeviceError>>),
    /// The memory of a table of current values cannot be had.
    #[error(transparent)]
    Values(rt::ShareError),
    /// The lane cannot be an activity of its frame.
    #[error("the lane cannot run as activity {activity:?} of frame {frame:?}: {source}")]
    Frame {
        /// The frame.
        frame: String,
        /// The activity.
        activity: String,
        /// What is in the way.
        source: rt::frames::JoinError,
    },
    /// The frame is over of which the lane was an activity.
    #[error("frame {frame:?}, of which the lane was activity {activity:?}, has ended")]
    FrameEnded {
        /// The frame.
        frame: String,
        /// The activity.
        activity: String,
    },
    /// The lane did not get what is required.
    #[error("--require-rt: {missing}")]
    RealTime {
        /// What, and how to get it.
        missing: String,
    },
    /// A thread cannot be started.
    #[error("a thread of the manager cannot be started: {0}")]
    Thread(io::Error),
    /// A thread has ended that should not: a fault of this program.
    #[error("a thread of the manager has ended by itself")]
    ThreadEnded,
    /// The message server gave no band.
    #[error("the message server gave no band")]
    NoBand,
    /// New tables change what only a restart takes over.
    #[error("{what} changed; restart the manager to apply the change")]
    Restart {
        /// What changed.
        what: &'static str,
    },
    /// Tables were read anew before those of before were taken over.
    #[error("earlier changes are not complete yet; try again")]
    Changing,
    /// The kernel refused something else.
    #[error(transparent)]
    System(#[from] sys::Error),
}

/// Why a device cannot be made: found and expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Its address is none.
    #[error(transparent)]
    Address(#[from] port::BadAddress),
    /// Its serial line cannot be so.
    #[error("{source}")]
    Serial {
        /// The key.
        option: &'static str,
        /// What is wrong.
        source: port::BadOption,
    },
    /// One of its points is none: what would have been right.
    #[error("{0}")]
    Point(String),
    /// Its protocol file cannot be read.
    #[error("protocol file {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Its protocol file, or a protocol in it, has an error.
    #[error(transparent)]
    Protocol(#[from] fieldbus::stream::Error),
    /// Its protocol is for records.
    #[error("protocol {protocol}: %({field}) names a field of a record, which an equipment manager does not have")]
    Field {
        /// The protocol.
        protocol: String,
        /// The field.
        field: String,
    },
    /// Its variables cannot be exported.
    #[error(transparent)]
    Export(#[from] rt::ShareError),
    /// It has no socket to ask by.
    #[error("Channel Access cannot be started: {0}")]
    ChannelAccess(io::Error),
    /// Nobody makes devices of its driver.
    #[error("this program has no driver {0:?}; run a program that has it")]
    Driver(String),
    /// The program that has its driver refuses it: in its words.
    #[error("{0}")]
    Refused(String),
}

/// Why a table of current values cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesError {
    /// Nobody shares variables under this name, or they cannot be read.
    #[error(transparent)]
    Variables(#[from] rt::ShareError),
    /// What is shared is no such table.
    #[error("{name:?} exports variables without a period; expected a [[poll]] of this name")]
    NoTable {
        /// The name.
        name: String,
    },
}
