//! What a logger is told, and what it tells of what it did.

use base::{DurNs, Size};
use segment::{Datum, Kind};

/// How an archive is written.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Within what time samples are safe on the disk: what a power cut costs at most.
    pub sync: DurNs,
    /// Bytes from which on a segment is closed.
    pub segment_size: Size,
    /// Time after which a segment is closed.
    pub segment_age: DurNs,
    /// Most bytes of all files; `None` for as many as the disk has.
    pub total_max: Option<Size>,
    /// Bytes of the disk that are left free.
    pub keep_free: Size,
    /// What is done when there is no room.
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

/// What is done when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The oldest file is removed, and counted.
    RemoveOldest,
    /// Nothing is written until there is room again; samples are counted as lost, and a gap tells of them.
    Stop,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is on its way to the disk.
    Taken,
    /// It is the one before once more, by stamp, value, alarm: it is not kept twice.
    Repeated,
    /// Its value is too long.
    Refused,
}

/// What was done so far; the counts are of samples, unless they say something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Taken.
    pub taken: u64,
    /// Of those, safe on the disk.
    pub safe: u64,
    /// Of those, lost because the disk was full or failed.
    pub lost: u64,
    /// Of those, in files that could not be made safe: they may be there.
    pub unsure: u64,
    /// Not taken because they were there already.
    pub repeated: u64,
    /// Not taken because their value was too long.
    pub refused: u64,
    /// Not taken because newer ones were in their place before they came.
    pub overflowed: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Files removed for want of room.
    pub removed: u64,
    /// Operations on files that failed.
    pub failures: u64,
}

/// The newest sample of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its stamp.
    pub at: i64,
    /// The pulse that it belongs to, where there is one.
    pub pulse: Option<u64>,
    pub(crate) kind: Kind,
    pub(crate) value: u64,
}

impl Newest {
    /// Whether its value is this one; of long values by a fingerprint.
    #[must_use]
    pub fn has(&self, datum: &Datum) -> bool {
        (self.kind, self.value) == (datum.kind(), datum.print())
    }
}
