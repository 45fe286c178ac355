//! Errors of an equipment manager and of tables of current values.

use std::io;
use std::path::PathBuf;

/// The reason why an equipment manager does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The equipment file cannot be read.
    #[error("equipment file {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
    /// The tables have errors: all errors and warnings as text.
    #[error("{0}")]
    Tables(String),
    /// A device cannot be created: which one, found and expected.
    #[error(transparent)]
    Device(#[from] equipment::LaneError<Box<DeviceError>>),
    /// The shared memory of a table of current values is unavailable.
    #[error(transparent)]
    Values(rt::ShareError),
    /// The lane cannot be an activity of its frame.
    #[error("the lane cannot run as activity {activity:?} of frame {frame:?}: {source}")]
    Frame {
        /// The frame.
        frame: String,
        /// The activity.
        activity: String,
        /// The reason.
        source: rt::frames::JoinError,
    },
    /// The frame of the lane has ended.
    #[error("frame {frame:?}, of which the lane was activity {activity:?}, has ended")]
    FrameEnded {
        /// The frame.
        frame: String,
        /// The activity.
        activity: String,
    },
    /// The lane did not obtain a required resource.
    #[error("--require-rt: {missing}")]
    RealTime {
        /// The missing resource, and how to obtain it.
        missing: String,
    },
    /// A thread cannot be started.
    #[error("a thread of the manager cannot be started: {0}")]
    Thread(io::Error),
    /// A thread has ended unexpectedly: an error in this program.
    #[error("a thread of the manager has ended unexpectedly")]
    ThreadEnded,
    /// The message server assigned no band.
    #[error("the message server gave no band")]
    NoBand,
    /// The new tables have a change that needs a restart.
    #[error("{what} changed; restart the manager to apply the change")]
    Restart {
        /// The part that changed.
        what: &'static str,
    },
    /// The tables were reloaded again before the previous change was applied.
    #[error("earlier changes are not complete yet; try again")]
    Changing,
    /// Any other error from the kernel.
    #[error(transparent)]
    System(#[from] sys::Error),
}

/// The reason why a device cannot be created: found and expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] port::BadAddress),
    /// An option of the serial line is invalid.
    #[error("{source}")]
    Serial {
        /// The key.
        option: &'static str,
        /// The error in the option.
        source: port::BadOption,
    },
    /// A point is invalid: the expected syntax.
    #[error(transparent)]
    Point(equipment::ExpectedPoint),
    /// The protocol file cannot be read.
    #[error("protocol file {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error from the kernel.
        source: io::Error,
    },
    /// The protocol file, or a protocol in it, has an error.
    #[error(transparent)]
    Protocol(#[from] fieldbus::stream::Error),
    /// The protocol uses a field of a record.
    #[error("protocol {protocol}: %({field}) names a field of a record, which an equipment manager does not have")]
    Field {
        /// The protocol.
        protocol: String,
        /// The field.
        field: String,
    },
    /// The variables cannot be exported.
    #[error(transparent)]
    Export(#[from] rt::ShareError),
    /// The socket for Channel Access cannot be opened.
    #[error("Channel Access cannot be started: {0}")]
    ChannelAccess(io::Error),
    /// The program does not have the driver.
    #[error("this program has no driver {0:?}; run a program that has it")]
    Driver(String),
    /// The program with the driver refuses the device: its reason.
    #[error("{0}")]
    Refused(String),
}

/// The reason why a table of current values cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesError {
    /// No process shares variables under this name, or they cannot be read.
    #[error(transparent)]
    Variables(#[from] rt::ShareError),
    /// The shared variables are not a table of current values.
    #[error("{name:?} exports variables without a period; expected a [[poll]] of this name")]
    NoTable {
        /// The name.
        name: String,
    },
}
