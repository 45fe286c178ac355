//! Configuration and counters of a logger.

use base::{DurNs, Size};
use segment::{Datum, Kind};

/// Settings of a logger.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Interval between syncs: samples younger than this are lost in a power cut.
    pub sync: DurNs,
    /// Size in bytes at which a segment is closed.
    pub segment_size: Size,
    /// Age at which a segment is closed.
    pub segment_age: DurNs,
    /// Maximum total size of the files; `None`: limited only by the disk.
    pub total_max: Option<Size>,
    /// Free space to keep on the disk.
    pub keep_free: Size,
    /// Action when there is no room.
    pub when_full: WhenFull,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sync: DurNs::from_ms(200),
            segment_size: Size(16 << 20),
            segment_age: DurNs::from_secs(3_600),
            total_max: None,
            keep_free: Size(0),
            when_full: WhenFull::RemoveOldest,
        }
    }
}

/// Action when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Remove the oldest file and count it.
    RemoveOldest,
    /// Write nothing until there is room again. Samples are counted as lost, and a gap records them.
    Stop,
}

/// Result of pushing a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Accepted; the next sync writes it to the disk.
    Taken,
    /// Ignored: stamp, value and alarm equal those of the signal's previous sample.
    Repeated,
    /// Refused: the value is too long.
    Refused,
}

/// Counters of a logger. They count samples unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Accepted.
    pub taken: u64,
    /// Accepted and safe on the disk.
    pub safe: u64,
    /// Accepted, but lost because the disk was full or failed.
    pub lost: u64,
    /// Accepted, but in files whose sync failed, or that another program took away before the logger ended: they may or may not
    /// be on the disk.
    pub unsure: u64,
    /// Ignored because they repeated the previous sample.
    pub repeated: u64,
    /// Refused because the value was too long.
    pub refused: u64,
    /// Lost because newer ones replaced them before they were received.
    pub overflowed: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Files removed to make room.
    pub removed: u64,
    /// Segments in them that an upload had not sent completely.
    pub unsent: u64,
    /// Failed file operations.
    pub failures: u64,
}

/// The newest sample of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its stamp.
    pub at: i64,
    /// The pulse that it belongs to, if any.
    pub pulse: Option<u64>,
    pub(crate) kind: Kind,
    pub(crate) value: u64,
}

impl Newest {
    /// Compares the value with `datum`. Long values are compared by a fingerprint.
    #[must_use]
    pub fn has(&self, datum: &Datum) -> bool {
        (self.kind, self.value) == (datum.kind(), datum.print())
    }
}
