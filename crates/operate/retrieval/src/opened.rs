//! Adapter from an archive to the interface of `appliance`.

use appliance::{Failed, Samples, Source, SourceError};
use segment::rows::{Gap, Signal};
use segment::{Sample, Summary};
use store::{Bins, Reader, Span};

/// An archive opened for a request.
pub struct Opened(pub Box<dyn Reader + Send>);

impl Opened {
    /// Passes the result of one of the Appliance's post-processors (such as `mean_60`) on a signal's samples within a span to `take`. `now` is
    /// the latest time for which bins are filled, in nanoseconds since 1970. Blocks on reading.
    ///
    /// # Errors
    /// The post-processor does not exist or does not fit the signal, or the archive cannot be read.
    pub fn processed(
        &self,
        name: &str,
        word: &str,
        span: Span,
        now: i64,
        take: impl FnMut(Sample),
    ) -> Result<(), Failed> {
        appliance::processed(self, (name, word), (span.from, span.to), now, take)
    }
}

impl Source for Opened {
    fn names(&self) -> Result<Vec<String>, SourceError> {
        Ok(self.0.names()?)
    }

    fn rows(&self, name: &str) -> Result<Vec<Signal>, SourceError> {
        Ok(self.0.rows(name)?)
    }

    fn span(&self, name: &str) -> Result<Option<(i64, i64)>, SourceError> {
        let found = self.0.about(name)?;
        Ok(found.and_then(|found| found.span).map(|span| (span.from, span.to)))
    }

    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, SourceError> {
        Ok(self.0.at(name, at)?)
    }

    fn samples(&self, name: &str, from: i64, to: i64) -> Result<Samples<'_>, SourceError> {
        let samples = self.0.samples(name, Span { from, to })?;
        Ok(Box::new(samples.map(|sample| sample.map_err(SourceError::from))))
    }

    fn bins(&self, name: &str, from: i64, width: i64, count: usize) -> Result<Vec<(i64, Summary)>, SourceError> {
        let whole = i128::from(width) * count as i128 - 1;
        let to = i64::try_from(i128::from(from) + whole).unwrap_or(i64::MAX);
        let bins = Bins::every(from, to, width).ok_or("more bins than are read at once")?;
        Ok(self.0.bins(name, bins)?.into_iter().map(|bin| (bin.at, bin.summary)).collect())
    }

    fn gaps(&self, name: &str, from: i64, to: i64) -> Result<Vec<Gap>, SourceError> {
        Ok(self.0.gaps(name, Span { from, to })?)
    }
}
