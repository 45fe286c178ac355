//! Upload of the log to the cluster, portion by portion. The log is the queue. A portion is planned on the disk before it is sent, and repeated
//! unchanged until all of it is acknowledged. Memory: one portion (about 120 bytes per sample of slow signals, which are chunks of one in the
//! log), and the extents of open buckets.

use crate::buckets::{Buckets, Job};
use crate::client::{Failure, Sink, Writer};
use crate::put::{Put, Puts};
use crate::status::Status;
use base::Cluster;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{Files, Follow, Mark, Position, StoreError, Window};
use tokio::task::JoinSet;

/// Name of the mark.
const MARK: &str = "cassandra";

/// Lock of the process that writes the mark.
const LOCK: &str = "cassandra.lock";

/// Minimum and maximum size of a portion that is sent without waiting, in bytes of the log.
const PORTION: (u64, u64) = (1 << 20, 16 << 20);

/// Bytes of the log per signal of a portion: about ten samples of a slow signal. A portion costs a statement per signal, however few samples
/// it has.
const SIGNAL: u64 = 200;

/// Minimum and maximum time for which samples are collected otherwise. A row costs less in a larger batch.
const PACE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// Polling interval.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum concurrent requests per node.
const FLYING_MAX: usize = 64;

/// Successful requests after which the limit of concurrent requests grows by one.
const CALM: usize = 16;

/// Initial and maximum pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

#[derive(Default)]
struct Shared {
    limit: Mutex<Position>,
    status: Mutex<Status>,
    ends: AtomicBool,
    is_abandoned: AtomicBool,
}

/// An upload in a separate thread. It ends on drop. Unsent samples are sent after the next start.
pub struct Upload {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Upload {
    /// Continues where the last upload ended; the first upload begins with the oldest file. From now on, no segment is packed before it
    /// has been sent. The archive's limits of size remove unsent segments nevertheless: they are counted ([`Status::missed`],
    /// [`store::Account::unsent`]).
    ///
    /// # Errors
    /// Another upload of this log is running, its mark cannot be read or written, or the thread cannot be started.
    pub fn start<F>(files: F, cluster: Cluster) -> Result<Self, StoreError>
    where
        F: Files<File: Send, Lock: Send> + Send + 'static,
    {
        let place = cluster.to_string();
        let failed = |doing: &'static str, why: Failure| StoreError::Database { place, doing, source: why };
        let lock = match files.lock(LOCK) {
            Ok(lock) => lock,
            Err(error) => {
                let is_taken = error.kind() == ErrorKind::WouldBlock;
                let taken =
                    || format!("another process sends this log ({LOCK} is taken); expected one: stop the other");
                return Err(failed("send the log", if is_taken { taken().into() } else { error.into() }));
            }
        };
        let mark = match Mark::read(&files, MARK)? {
            Some(mark) => mark,
            None => {
                let log = sys::clock::wall_ns() as i64;
                let begin = store::begin(&files)?;
                let mark = Mark { log, done: begin, planned: begin };
                mark.write(&files, MARK)?;
                mark
            }
        };
        let shared = Arc::new(Shared::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let work = Work::new(files, mark, cluster, shared.clone());
        let spawned = runtime.and_then(|runtime| {
            std::thread::Builder::new().name("upload".into()).spawn(move || {
                let _lock = lock;
                runtime.block_on(work.run());
                // Does not wait for a pending name lookup.
                runtime.shutdown_background();
            })
        });
        let thread = spawned.map_err(|error| failed("start a thread", error.into()))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the position up to which the log is on stable storage ([`store::Logger::safe_to`]). Does not block.
    pub fn safe_to(&self, limit: Position) {
        *locked(&self.shared.limit) = limit;
    }

    /// Current state.
    #[must_use]
    pub fn status(&self) -> Status {
        locked(&self.shared.status).clone()
    }

    /// Sends the rest of the log, for at most `patience`, and ends.
    #[must_use]
    pub fn end(self, patience: Duration) -> Status {
        self.end_while(patience, |_| true)
    }

    /// As [`end`](Self::end), as long as `goes_on` returns true. It is called with the state about every 10 ms. Unsent samples are sent after
    /// the next start.
    #[must_use]
    pub fn end_while(mut self, patience: Duration, mut goes_on: impl FnMut(&Status) -> bool) -> Status {
        self.shared.ends.store(true, Ordering::Release);
        let until = Instant::now() + patience;
        let thread = self.thread.take();
        let mut is_due = || Instant::now() < until && goes_on(&locked(&self.shared.status).clone());
        while thread.as_ref().is_some_and(|thread| !thread.is_finished()) && is_due() {
            std::thread::sleep(LOOK / 10);
        }
        self.shared.is_abandoned.store(true, Ordering::Release);
        if let Some(thread) = thread {
            // The progress of the thread is on the disk.
            let _ = thread.join();
        }
        self.status()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.shared.is_abandoned.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The upload was asked to end.
struct Abandoned;

/// Condition for sending a portion: its size in bytes, or the time since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    bytes: u64,
    pace: Duration,
}

impl Size {
    /// Size for a log with `signals` signals per portion.
    fn of(signals: usize) -> Self {
        let bytes = (signals as u64).saturating_mul(SIGNAL).clamp(PORTION.0, PORTION.1);
        let times = u32::try_from(bytes / PORTION.0).unwrap_or(1);
        Self { bytes, pace: PACE.0.saturating_mul(times).min(PACE.1) }
    }
}

struct Work<F: Files> {
    files: F,
    follow: Follow<F>,
    mark: Mark,
    cluster: Cluster,
    shared: Arc<Shared>,
    buckets: Buckets,
    /// Limits for the next portion.
    size: Size,
    at_once: usize,
    calm: usize,
    /// A request has failed since the last pause.
    has_failed: bool,
    pause: Duration,
}

impl<F: Files> Work<F> {
    fn new(files: F, mark: Mark, cluster: Cluster, shared: Arc<Shared>) -> Self {
        let follow = Follow::new(files.clone(), mark.done);
        let buckets = Buckets::default();
        let size = Size::of(0);
        Self {
            files,
            follow,
            mark,
            cluster,
            shared,
            buckets,
            size,
            at_once: 1,
            calm: 0,
            has_failed: false,
            pause: PAUSE.0,
        }
    }

    async fn run(mut self) {
        if let Ok(writer) = self.connect().await {
            self.take(Arc::new(writer)).await;
        }
    }

    /// Sends portion after portion. The mark advances after all of a portion is acknowledged.
    async fn take(mut self, writer: Arc<impl Sink>) {
        match store::manifest_damage(&self.files) {
            Ok(found) => locked(&self.shared.status).manifest = found.map(|problem| problem.to_string()),
            Err(error) => self.say(error.to_string()),
        }
        let mut last = Instant::now();
        while !self.is_abandoned() {
            let limit = *locked(&self.shared.limit);
            let ends = self.shared.ends.load(Ordering::Acquire);
            let is_due = ends
                || last.elapsed() >= self.size.pace
                || self.mark.planned > self.mark.done
                || self.has_portion(limit);
            let portion = if is_due { self.portion(limit) } else { Ok(None) };
            match portion {
                Ok(Some(window)) => {
                    if self.send(&writer, &window).await.is_err() {
                        return;
                    }
                    self.mark.done = window.to;
                    if let Err(error) = self.mark.write(&self.files, MARK) {
                        self.say(error.to_string());
                    }
                    self.look(limit);
                    // After a full portion, another may be due at once.
                    if !self.has_portion(limit) {
                        last = Instant::now();
                    }
                }
                Ok(None) if ends => {
                    self.look(limit);
                    return;
                }
                Ok(None) => {
                    if is_due {
                        last = Instant::now();
                    }
                    self.look(limit);
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => {
                    self.say(error.to_string());
                    if self.wait().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Retries until a session is established.
    async fn connect(&mut self) -> Result<Writer, Abandoned> {
        loop {
            match self.unless_abandoned(Writer::open(&self.cluster)).await? {
                Ok(writer) => {
                    locked(&self.shared.status).is_connected = true;
                    self.pause = PAUSE.0;
                    return Ok(writer);
                }
                Err(error) => {
                    self.look(*locked(&self.shared.limit));
                    self.say(error.to_string());
                    self.wait().await?;
                }
            }
        }
    }

    /// Next portion to send: the planned one, or a new one, whose end is written to the disk first.
    fn portion(&mut self, limit: Position) -> Result<Option<Window>, StoreError> {
        if self.mark.planned > self.mark.done {
            if let Some(window) = self.follow.window(self.mark.planned, None)? {
                return Ok(Some(window));
            }
            // The portion was removed for lack of space.
            self.mark.done = self.mark.planned.max(self.follow.position());
            self.mark.planned = self.mark.done;
        }
        let Some(window) = self.follow.window(limit, Some(self.size.bytes))? else { return Ok(None) };
        self.mark.planned = window.to;
        if let Err(error) = self.mark.write(&self.files, MARK) {
            // The portion is read again when it can be planned.
            self.mark.planned = self.mark.done;
            self.follow = Follow::new(self.files.clone(), self.mark.done);
            return Err(error);
        }
        Ok(Some(window))
    }

    /// Sends all of a portion, then begins its new buckets, by which readers find it, and ends old ones.
    async fn send(&mut self, writer: &Arc<impl Sink>, window: &Window) -> Result<(), Abandoned> {
        let mut puts = Puts::new(window);
        let mut flying: JoinSet<Result<(), (Put, Failure)>> = JoinSet::new();
        let mut again: Vec<Put> = Vec::new();
        // Set if a task panicked. Its statement is then unknown, and the whole portion is sent again.
        let mut is_unknown = false;
        loop {
            if flying.is_empty() {
                self.pause_if_failed().await?;
            }
            while !self.has_failed && flying.len() < self.at_once {
                let Some(put) = again.pop().or_else(|| puts.next()) else { break };
                let writer = writer.clone();
                flying.spawn(async move { writer.put(&put).await.map_err(|error| (put, error)) });
            }
            match self.unless_abandoned(flying.join_next()).await? {
                None if self.has_failed => {}
                None if std::mem::take(&mut is_unknown) => puts = Puts::new(window),
                None => break,
                Some(Ok(Ok(()))) => self.went_well(&**writer),
                Some(Ok(Err((put, error)))) => {
                    again.push(put);
                    self.failed(&error);
                }
                Some(Err(error)) => {
                    is_unknown = true;
                    self.failed(&error.into());
                }
            }
        }
        let (extents, refused) = (std::mem::take(&mut puts.extents), puts.refused);
        let gaps = window.gaps.iter().filter(|(_, _, gap)| gap.cause == segment::rows::Cause::Damaged).count() as u64;
        let damaged = gaps + puts.damaged;
        let samples: i64 = extents.values().map(|extent| extent.count).sum();
        self.size = Size::of(extents.len());
        let begun = self.buckets.count(extents);
        self.run_jobs(writer, begun).await?;
        let ended = self.buckets.ended();
        self.run_jobs(writer, ended).await?;
        let mut status = locked(&self.shared.status);
        status.samples += samples as u64;
        status.refused += refused;
        status.missed += window.missed;
        status.damaged += damaged;
        Ok(())
    }

    /// Does jobs of buckets until each has succeeded.
    async fn run_jobs(&mut self, writer: &Arc<impl Sink>, jobs: Vec<Job>) -> Result<(), Abandoned> {
        let mut left = jobs.clone();
        // Set if a task panicked. All jobs are then done again; each can be repeated.
        let mut is_unknown = false;
        let mut flying = JoinSet::new();
        loop {
            if flying.is_empty() {
                self.pause_if_failed().await?;
            }
            while !self.has_failed && flying.len() < self.at_once {
                let Some(job) = left.pop() else { break };
                let writer = writer.clone();
                flying.spawn(async move { job.run(&*writer).await.map_err(|error| (job, error)) });
            }
            match self.unless_abandoned(flying.join_next()).await? {
                None if self.has_failed => {}
                None if std::mem::take(&mut is_unknown) => left.clone_from(&jobs),
                None => return Ok(()),
                Some(Ok(Ok(begun))) => {
                    begun.into_iter().for_each(|(bucket, extent)| self.buckets.begun(bucket, extent));
                    self.went_well(&**writer);
                }
                Some(Ok(Err((job, error)))) => {
                    left.push(job);
                    self.failed(&error);
                }
                Some(Err(error)) => {
                    is_unknown = true;
                    self.failed(&error.into());
                }
            }
        }
    }

    fn went_well(&mut self, writer: &impl Sink) {
        if self.has_failed {
            // The success of a request sent before the failure does not lift the pause.
            return;
        }
        self.pause = PAUSE.0;
        self.calm += 1;
        if self.calm >= CALM && self.at_once < FLYING_MAX * writer.nodes().max(1) {
            self.calm = 0;
            self.at_once += 1;
        }
        let mut status = locked(&self.shared.status);
        status.is_connected = true;
        status.at_once = self.at_once;
    }

    /// Stops sending until all running requests have ended.
    fn failed(&mut self, error: &Failure) {
        self.has_failed = true;
        self.say(error.to_string());
        let mut status = locked(&self.shared.status);
        status.again += 1;
    }

    /// Halves the number of concurrent requests, after a pause.
    async fn pause_if_failed(&mut self) -> Result<(), Abandoned> {
        if !std::mem::take(&mut self.has_failed) {
            return Ok(());
        }
        self.at_once = (self.at_once / 2).max(1);
        self.calm = 0;
        locked(&self.shared.status).at_once = self.at_once;
        self.look(*locked(&self.shared.limit));
        self.wait().await
    }

    /// Waits. The time doubles with each call, up to the maximum.
    async fn wait(&mut self) -> Result<(), Abandoned> {
        let until = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
        while Instant::now() < until {
            if self.is_abandoned() {
                return Err(Abandoned);
            }
            tokio::time::sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
        if self.is_abandoned() { Err(Abandoned) } else { Ok(()) }
    }

    /// Waits for a future that may block on the network, unless the upload is abandoned.
    async fn unless_abandoned<T>(&self, what: impl Future<Output = T>) -> Result<T, Abandoned> {
        let mut what = pin!(what);
        loop {
            match tokio::time::timeout(LOOK, &mut what).await {
                Ok(done) => return Ok(done),
                Err(_) if self.is_abandoned() => return Err(Abandoned),
                Err(_) => {}
            }
        }
    }

    fn is_abandoned(&self) -> bool {
        self.shared.is_abandoned.load(Ordering::Acquire)
    }

    fn has_portion(&self, limit: Position) -> bool {
        let position = self.follow.position();
        position.segment < limit.segment || limit.offset.saturating_sub(position.offset) >= self.size.bytes
    }

    /// Updates the number of waiting bytes.
    fn look(&self, limit: Position) {
        match store::behind(&self.files, self.mark.done, limit) {
            Ok(bytes) => locked(&self.shared.status).waiting = bytes,
            Err(error) => self.say(error.to_string()),
        }
    }

    fn say(&self, error: String) {
        let mut status = locked(&self.shared.status);
        status.is_connected = false;
        status.error = Some(error);
    }
}

#[cfg(test)]
#[path = "upload_tests.rs"]
mod tests;
