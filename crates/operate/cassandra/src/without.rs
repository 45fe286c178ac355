//! Replacements for reader and upload in builds without the driver. Opening either fails.

use crate::status::Status;
use base::Cluster;
use segment::Sample;
use segment::rows::{Gap, Signal};
use std::convert::Infallible;
use std::time::Duration;
use store::{Bin, Bins, Files, Position, Reader, SignalInfo, Span, StoreError, Stream};

fn missing(cluster: &Cluster) -> StoreError {
    let source = "this tahti was built without what speaks with Cassandra; build it with --features cassandra";
    StoreError::Database { place: cluster.to_string(), doing: "open it", source: source.into() }
}

/// An archive in a cluster. It cannot be opened.
pub struct Archive(Infallible);

impl Archive {
    /// Reports that the driver is missing.
    ///
    /// # Errors
    /// Always.
    pub fn open(cluster: Cluster) -> Result<Self, StoreError> {
        Err(missing(&cluster))
    }
}

impl Reader for Archive {
    fn names(&self) -> Result<Vec<String>, StoreError> {
        match self.0 {}
    }

    fn rows(&self, _: &str) -> Result<Vec<Signal>, StoreError> {
        match self.0 {}
    }

    fn about(&self, _: &str) -> Result<Option<SignalInfo>, StoreError> {
        match self.0 {}
    }

    fn samples<'a>(&'a self, _: &str, _: Span) -> Result<Stream<'a>, StoreError> {
        match self.0 {}
    }

    fn at(&self, _: &str, _: i64) -> Result<Option<Sample>, StoreError> {
        match self.0 {}
    }

    fn gaps(&self, _: &str, _: Span) -> Result<Vec<Gap>, StoreError> {
        match self.0 {}
    }

    fn bins(&self, _: &str, _: Bins) -> Result<Vec<Bin>, StoreError> {
        match self.0 {}
    }
}

/// An upload. It cannot be started.
pub struct Upload(Infallible);

impl Upload {
    /// Reports that the driver is missing.
    ///
    /// # Errors
    /// Always.
    pub fn start<F: Files>(_: F, cluster: Cluster) -> Result<Self, StoreError> {
        Err(missing(&cluster))
    }

    /// Sets the position up to which the log is on stable storage.
    pub fn safe_to(&self, _: Position) {
        match self.0 {}
    }

    /// Current state.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.0 {}
    }

    /// Ends.
    #[must_use]
    pub fn end(self, _: Duration) -> Status {
        match self.0 {}
    }

    /// Ends.
    #[must_use]
    pub fn end_while(self, _: Duration, _: impl FnMut(&Status) -> bool) -> Status {
        match self.0 {}
    }
}
