//! The logger: takes samples, signal by signal, and makes them safe on the disk.

mod disk;
mod missing;
mod room;
mod start;

use crate::account::{Account, Config, Newest, Pushed};
use crate::archive::{Archive, Span};
use crate::catalogue::Catalogue;
use crate::error::StoreError;
use crate::files::Files;
use crate::follow::Position;
use crate::manifest::{MANIFEST, Manifest};
use crate::part::{Numbers, UNFINISHED};
pub(crate) use disk::LOCK;
use disk::{Confirmed, Segment};
use segment::manifest::{Contents, Record};
use segment::rows::{self, About, Cause, Gap, Signal};
use segment::{Chunk, Full, Kind, Sample};
use start::StartState;
use std::collections::HashMap;
use std::io::ErrorKind;

/// Bytes of encoded samples at which a block is written without waiting for the next sync.
const BLOCK_ENOUGH: usize = 1 << 20;

/// Identifies a signal within a logger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignalId(u32);

/// Identity of a sample, for finding repetitions. Long values are represented by a fingerprint.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print {
    at: i64,
    kind: Kind,
    value: u64,
    alarm: u32,
    pulse: Option<u64>,
}

struct State {
    name: String,
    about: About,
    since: i64,
    kind: Option<Kind>,
    /// The segment that contains the signal's present row.
    row_in: u64,
    chunk: Chunk,
    last: Option<Print>,
    is_pending: bool,
}

impl State {
    /// The signal's present row; `None` before its first value.
    fn row(&self, id: u32) -> Option<Signal> {
        let (name, about) = (self.name.clone(), self.about.clone());
        Some(Signal { id, since: self.since, kind: self.kind?, name, about })
    }
}

/// Writes an archive. There is at most one logger per folder.
pub struct Logger<F: Files> {
    files: F,
    config: Config,
    /// `None` while the disk fails. No file is open then, so the disk can be unmounted, repaired and mounted again.
    lock: Option<F::Lock>,
    archive: Option<Archive<F>>,
    /// The archive must be opened again together with the lock.
    is_archive_away: bool,
    /// Samples may be older than the previous one without a gap for a clock set back.
    is_history: bool,
    signals: Vec<State>,
    by_name: HashMap<String, u32>,
    segment: Option<Segment<F::File>>,
    confirmed: Option<Confirmed>,
    /// A segment that another program changed, with the contents that were safe. Its lost samples are not counted yet.
    changed: Option<(Numbers, Contents)>,
    manifest: Manifest,
    /// Entries that are not in the manifest yet.
    records: Vec<Record>,
    /// Maximum so far of the archive's size plus free space, in bytes.
    reach: u64,
    next: u64,
    /// Encoded chunks of the next block, the number of samples in them, the base of their stamps, and their signals.
    samples: Vec<u8>,
    scratch: Vec<u8>,
    count: u64,
    base: i64,
    /// First and last stamp in the block.
    first: i64,
    last: i64,
    ids: Vec<u32>,
    pending: Vec<u32>,
    gaps: Vec<Gap>,
    /// Rows that were valid for samples of this block, before the signals changed.
    rows: Vec<Signal>,
    account: Account,
    /// Samples lost since the disk last worked.
    trouble: Option<Gap>,
    /// Samples whose sync failed. The next segment records them.
    unsure: Option<Gap>,
    /// Time at which the two gaps above are written even if there are no new samples.
    repeat_at: i64,
    now: i64,
    sync_at: i64,
    retry_at: i64,
    safe_at: Option<i64>,
    last_error: Option<String>,
    /// The last file that was removed before an upload had sent it.
    last_unsent: Option<String>,
    /// The manifest as of the last call of [`missing`](Self::missing).
    inspected: Option<Manifest>,
}

impl<F: Files> Logger<F> {
    /// Takes the archive's lock and starts logging. `now` is the monotonic clock in nanoseconds. Removes files that a crash left
    /// unfinished, and no others.
    ///
    /// # Errors
    /// [`StoreError::Taken`], or the operating system's error.
    pub fn open(files: F, config: Config, now: i64) -> Result<Self, StoreError> {
        let lock = files.lock(LOCK).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => StoreError::Taken,
            _ => StoreError::io(LOCK, "take it")(error),
        })?;
        let listed = files.list().map_err(StoreError::io("", "list"))?;
        let is_ours = |name: &str| name == MANIFEST || Numbers::of(name).is_some();
        let is_unfinished = |name: &str| name.strip_suffix(UNFINISHED).is_some_and(is_ours);
        for (name, _) in listed.iter().filter(|(name, _)| is_unfinished(name)) {
            files.remove(name).map_err(StoreError::io(name, "remove"))?;
        }
        let catalogue = Catalogue::read(&files)?;
        // An archive of a newer version fails here, before anything is changed.
        let archive = if catalogue.used.is_empty() { None } else { Some(Archive::open(files.clone())?) };
        let next = catalogue.next();
        let StartState { manifest, records, note } = start::start_state(&files, catalogue)?;
        let mut logger = Self {
            files,
            config,
            lock: Some(lock),
            archive,
            is_archive_away: false,
            is_history: false,
            signals: Vec::new(),
            by_name: HashMap::new(),
            segment: None,
            confirmed: None,
            changed: None,
            manifest,
            records,
            reach: 0,
            next,
            samples: Vec::new(),
            scratch: Vec::new(),
            count: 0,
            base: 0,
            first: i64::MAX,
            last: i64::MIN,
            ids: Vec::new(),
            pending: Vec::new(),
            gaps: Vec::new(),
            rows: Vec::new(),
            account: Account::default(),
            trouble: None,
            unsure: None,
            repeat_at: i64::MIN,
            now,
            sync_at: now.saturating_add(config.sync.0),
            retry_at: i64::MIN,
            safe_at: None,
            last_error: note.map(str::to_owned),
            last_unsent: None,
            inspected: None,
        };
        logger.account.failures += u64::from(note.is_some());
        logger.list();
        Ok(logger)
    }

    /// Registers a signal, or updates its description. `since` is the wall clock time (nanoseconds since 1970) from which `about`
    /// is valid. If `about` differs from the previous description, the log gets a new row. A sample that was logged with that
    /// same stamp keeps the old one.
    ///
    /// # Errors
    /// [`StoreError::Name`], or an error of reading the signal's last sample.
    pub fn signal(&mut self, name: &str, about: About, since: i64) -> Result<SignalId, StoreError> {
        if let Some(id) = self.by_name.get(name) {
            let id = *id;
            let state = &self.signals[id as usize];
            if state.about != about {
                let since = behind(state.last, since);
                self.changes(id, since);
                let state = &mut self.signals[id as usize];
                state.about = about;
                // Written now: the next sample may come much later.
                self.rows.extend(state.row(id));
            }
            return Ok(SignalId(id));
        }
        if name.is_empty() || name.len() > rows::NAME_MAX || name.chars().any(char::is_control) {
            return Err(StoreError::Name { found: name.len(), max: rows::NAME_MAX });
        }
        let before = match &self.archive {
            Some(archive) => archive.at(name, Span::ALL.to)?,
            None => None,
        };
        let last = before.as_ref().map(print);
        let since = self
            .archive
            .as_ref()
            .and_then(|archive| archive.rows(name).pop())
            .map_or(since, |row| if row.about == about { row.since } else { behind(last, since) });
        let id = self.signals.len() as u32;
        let kind = before.map(|sample| sample.datum.kind());
        let chunk = Chunk::new(kind.unwrap_or(Kind::Bool));
        self.signals.push(State {
            name: name.to_owned(),
            about,
            since,
            kind,
            row_in: 0,
            chunk,
            last,
            is_pending: false,
        });
        self.by_name.insert(name.to_owned(), id);
        Ok(SignalId(id))
    }

    /// From now on samples may be older than the previous one, as when importing history. No gap for a clock set back is
    /// recorded.
    pub const fn takes_history(&mut self) {
        self.is_history = true;
    }

    /// Finds a registered signal by name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<SignalId> {
        self.by_name.get(name).map(|id| SignalId(*id))
    }

    /// Newest sample of a signal, including samples of earlier runs.
    #[must_use]
    pub fn newest(&self, id: SignalId) -> Option<Newest> {
        let Print { at, pulse, kind, value, .. } = self.signals.get(id.0 as usize)?.last?;
        Some(Newest { at, pulse, kind, value })
    }

    /// Releases the memory of the archive's previous contents. Call this when all signals are registered.
    pub fn signals_are_known(&mut self) {
        self.archive = None;
        self.is_archive_away = false;
    }

    /// Takes a sample. Does not wait for the disk unless a block is full. Memory is bounded by one chunk per signal and one
    /// block.
    pub fn push(&mut self, id: SignalId, sample: &Sample) -> Pushed {
        let state = &mut self.signals[id.0 as usize];
        let this = print(sample);
        if state.last == Some(this) {
            self.account.repeated += 1;
            return Pushed::Repeated;
        }
        let kind = sample.datum.kind();
        if state.kind != Some(kind) {
            self.changes(id.0, sample.at);
            self.signals[id.0 as usize].kind = Some(kind);
        }
        let state = &mut self.signals[id.0 as usize];
        if let Some(last) = state.last.filter(|last| sample.at < last.at && !self.is_history) {
            self.gaps.push(Gap { id: Some(id.0), at: last.at, cause: Cause::ClockSetBack, lost: 0 });
        }
        if state.chunk.is_empty() {
            state.chunk.reset(kind);
        }
        let mut pushed = state.chunk.push(sample);
        if matches!(pushed, Err(Full::Count | Full::Kind | Full::Backwards | Full::Pulse)) {
            self.encode(id.0);
            let state = &mut self.signals[id.0 as usize];
            state.chunk.reset(kind);
            pushed = state.chunk.push(sample);
        }
        if pushed.is_err() {
            self.account.refused += 1;
            self.gaps.push(Gap { id: Some(id.0), at: sample.at, cause: Cause::Refused, lost: 1 });
            return Pushed::Refused;
        }
        let state = &mut self.signals[id.0 as usize];
        state.last = Some(this);
        if !state.is_pending {
            state.is_pending = true;
            self.pending.push(id.0);
        }
        self.account.taken += 1;
        if self.samples.len() >= BLOCK_ENOUGH {
            self.write();
        }
        Pushed::Taken
    }

    /// Records why there are no samples from an instant on, for one signal or for all (`None`).
    pub fn gap(&mut self, id: Option<SignalId>, at: i64, cause: Cause, lost: u64) {
        if matches!(cause, Cause::Overflow | Cause::Away) {
            self.account.overflowed += lost;
        }
        self.gaps.push(Gap { id: id.map(|id| id.0), at, cause, lost });
    }

    /// Monotonic time of the next sync; see [`tick`](Self::tick).
    #[must_use]
    pub const fn due(&self) -> i64 {
        self.sync_at
    }

    /// Syncs if the interval has passed. Call it at least once per sync interval. `now` is the monotonic clock in nanoseconds.
    pub fn tick(&mut self, now: i64) {
        if now >= self.sync_at {
            self.sync(now);
        }
    }

    /// Writes all samples and syncs them. [`Account::safe`] counts the samples for which that succeeded.
    pub fn sync(&mut self, now: i64) {
        self.now = now;
        self.sync_at = now.saturating_add(self.config.sync.0);
        self.check_place();
        for id in std::mem::take(&mut self.pending) {
            self.signals[id as usize].is_pending = false;
            self.encode(id);
            if self.samples.len() >= BLOCK_ENOUGH {
                self.write();
            }
        }
        self.write();
        self.make_safe();
        self.count_changed();
        let is_done = |segment: &Segment<_>| segment.len >= self.config.segment_size.0 || now >= segment.until;
        if self.segment.as_ref().is_some_and(is_done) {
            self.close_segment();
        }
        self.list();
    }

    /// Writes and syncs all samples and closes the segment.
    pub fn finish(&mut self, now: i64) {
        self.sync(now);
        self.close_segment();
        self.list();
    }

    /// Writes and syncs all samples, and records that none follow because the logger was stopped.
    pub fn close(mut self, now: i64, wall: i64) -> Account {
        self.gap(None, wall, Cause::Stopped, 0);
        self.retry_at = i64::MIN;
        self.finish(now);
        self.leave_changed();
        self.account
    }

    /// Number of registered signals.
    #[must_use]
    pub const fn signals(&self) -> usize {
        self.signals.len()
    }

    /// The counters.
    #[must_use]
    pub const fn account(&self) -> Account {
        self.account
    }

    /// The error of the last operation that failed.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The last file that was removed to make room before an upload had sent it; see [`Account::unsent`].
    #[must_use]
    pub fn last_unsent(&self) -> Option<&str> {
        self.last_unsent.as_deref()
    }

    /// Monotonic time of the last successful sync of new data.
    #[must_use]
    pub const fn safe_at(&self) -> Option<i64> {
        self.safe_at
    }

    /// Whether samples are being lost, or their state is unknown, because the disk is full or fails.
    #[must_use]
    pub const fn is_losing(&self) -> bool {
        self.trouble.is_some() || self.unsure.is_some()
    }

    /// Number of the first segment that is not closed. Segments below it may be packed.
    #[must_use]
    pub fn open_from(&self) -> u64 {
        self.segment.as_ref().map_or(self.next, |segment| segment.number)
    }

    /// Position up to which the log is safe on the disk; the limit for [`Follow`](crate::Follow).
    #[must_use]
    pub fn safe_to(&self) -> Position {
        let open = |segment: &Segment<_>| Position { segment: segment.number, offset: segment.safe_len };
        self.segment.as_ref().map_or(Position { segment: self.next, offset: 0 }, open)
    }

    /// Called before a signal's type or description changes. Its pending samples are encoded, and its previous row is written
    /// with them.
    fn changes(&mut self, id: u32, since: i64) {
        self.encode(id);
        let state = &mut self.signals[id as usize];
        if state.kind.is_some() {
            let written = self.segment.as_ref().is_some_and(|segment| segment.number == state.row_in);
            if !written {
                self.rows.extend(state.row(id));
            }
            state.since = since;
        }
        state.row_in = 0;
    }

    /// Adds a signal's chunk to the block.
    fn encode(&mut self, id: u32) {
        let state = &mut self.signals[id as usize];
        let Some(first) = state.chunk.stamps().first().copied() else { return };
        if self.samples.is_empty() {
            // Whole seconds, so that stamps with few significant digits stay short.
            self.base = first.div_euclid(1_000_000_000).saturating_mul(1_000_000_000);
        }
        self.scratch.clear();
        state.chunk.encode(self.base, &mut self.scratch);
        rows::put_chunk(&mut self.samples, id, &self.scratch);
        self.first = self.first.min(first);
        self.last = self.last.max(state.chunk.stamps().last().copied().unwrap_or(first));
        self.count += state.chunk.len() as u64;
        self.ids.push(id);
        state.chunk.reset(state.chunk.kind());
    }
}

/// Instant from which a change is valid: after the last sample if that has the same stamp.
fn behind(last: Option<Print>, since: i64) -> i64 {
    if last.is_some_and(|last| last.at == since) { since.saturating_add(1) } else { since }
}

/// Identity of a sample.
fn print(sample: &Sample) -> Print {
    let alarm = u32::from(sample.severity) << 16 | u32::from(sample.status);
    Print { at: sample.at, kind: sample.datum.kind(), value: sample.datum.print(), alarm, pulse: sample.pulse }
}
