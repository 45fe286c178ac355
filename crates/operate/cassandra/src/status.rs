//! The state of an upload, for who looks at it.

/// The state of the upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether the cluster takes what is sent.
    pub is_connected: bool,
    /// Samples that the cluster has acknowledged since the start.
    pub samples: u64,
    /// Bytes of the log that wait.
    pub waiting: u64,
    /// Requests that failed and were sent again.
    pub again: u64,
    /// Requests under way at most, now: halved by each failure.
    pub at_once: usize,
    /// Samples whose value is longer than nodes take; a gap is kept for each.
    pub refused: u64,
    /// Segments that were removed, for want of room, before they were sent.
    pub missed: u64,
    /// Why the last request failed that did, or the last look into the log.
    pub error: Option<String>,
}
