//! The logging loop: moves samples from all sources to the archive.

use crate::channels::Channels;
use crate::clock::Clock;
use crate::exported::Page;
use crate::origin::{Follower, SourcePoll};
use crate::status::{self, Status, StatusServer};
use crate::troubles::{RateLimit, Troubles, UnsentReports};
use crate::unconnected::Unconnected;
use base::MonoNs;
use canet::session::Session;
use cassandra::{News, Upload};
use host::plant::archive::Archive;
use segment::rows::Cause;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use store::{Account, Config, Files as _, Folder, Logger, PACK, Packed, StoreError, WhenFull, due, pack, written_to};
use sys::notify::Supervisor;
use sys::signal::{SignalFd, end_signals};

/// Maximum interval between checks for the end signals.
const LOOK_NS: u64 = 200_000_000;
/// Polling interval of exported variables. Each ring has 256 samples, which is 25 ms of a 10 kHz loop.
const LOOK_AT_VARIABLES_NS: u64 = 20_000_000;
/// Time that shutdown waits for unsent samples; the rest is sent after the next start.
const SEND_NS: u64 = 2_000_000_000;
/// Averaging of the sample rate: length of a step, number of steps.
const RATE_NS: (i64, usize) = (1_000_000_000, 10);

/// Reason why the collector ended.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Error of the archive.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of the folder.
    #[error("{0}: {1}")]
    Folder(String, std::io::Error),
    /// Error of the network.
    #[error("Channel Access: {0}")]
    Network(std::io::Error),
    /// Error of the kernel.
    #[error("{0}")]
    Kernel(sys::Error),
    /// A thread could not be started.
    #[error("failed to start a thread: {0}")]
    Thread(std::io::Error),
}

/// Interval between checks whether the archive's files still exist.
const INSPECT_NS: i64 = 2_000_000_000;

struct Collector<'a> {
    /// Time of the next check of the files, and the last result.
    inspect_at: i64,
    missing: Option<String>,
    /// `None` if no Channel Access variables are configured.
    channels: Option<Channels>,
    pages: Vec<Page>,
    followed: Vec<Follower>,
    clock: Clock,
    logger: Logger<Folder>,
    folder: Folder,
    /// Number of names and patterns in the configuration file.
    configured: usize,
    /// Start time, by the wall clock.
    since: i64,
    /// Path of the folder.
    place: PathBuf,
    /// `None` while the status socket is unavailable.
    status_server: Option<StatusServer>,
    /// Time and total of accepted samples, once per second.
    accepted_totals: VecDeque<(i64, u64)>,
    /// Time of the next scan.
    scan_at: i64,
    /// Time of the next poll of exported variables.
    look_at: i64,
    /// Result of the last poll of the sources.
    last_poll: SourcePoll,
    packing: Option<JoinHandle<Result<Option<Packed>, StoreError>>>,
    /// Rate limit for reports of failed packing, and the last damaged file.
    pack_failed: RateLimit,
    damaged: Option<String>,
    /// First open segment at the last check for packing.
    first_open: u64,
    troubles: Troubles,
    unsent: UnsentReports,
    /// Upload to a cluster; `None` if samples stay in the folder.
    upload: Option<(Upload, News)>,
    /// Time of the next update of the upload's limit.
    send_at: i64,
    tell: &'a mut dyn FnMut(&str),
    /// Receives the present disk error, and the variables that are not connected.
    supervisor: Supervisor,
}

/// Archives until SIGINT, SIGTERM or SIGHUP. Then everything is synced, and a gap records the stop. `tell` receives log lines.
///
/// # Errors
/// If the archive or the network cannot be used.
pub fn serve(archive: &Archive, tell: &mut dyn FnMut(&str)) -> Result<(), CollectError> {
    let ended = SignalFd::new(&end_signals()).map_err(CollectError::Kernel)?;
    let shown = archive.folder.display().to_string();
    let folder = Folder::make(&archive.folder).map_err(|error| CollectError::Folder(shown.clone(), error))?;
    let now = mono();
    let mut logger = Logger::open(folder.clone(), config(archive), now)?;
    logger.gap(None, wall(), Cause::Started, 0);
    let upload = archive.cluster.clone().map(|cluster| Upload::start(folder.clone(), cluster)).transpose()?;
    let channels =
        Channels::open(&archive.signals, |name| std::env::var(name).ok(), now, tell).map_err(CollectError::Network)?;
    let pages = Page::all(&archive.signals);
    let followed = Follower::all(&archive.signals).map_err(CollectError::Thread)?;
    let count = archive.signals.len();
    let status_server = StatusServer::listen(&archive.folder);
    if let Err(error) = &status_server {
        tell(&format!("the status is unavailable: {error}"));
    }
    let then = archive.cluster.as_ref().map_or_else(String::new, |cluster| format!(", then sent to {cluster}"));
    tell(&format!("logs {count} variables or patterns to {shown}, safe within {}{then}", archive.sync));
    let (first_open, troubles) = (0, Troubles::default());
    let mut collector = Collector {
        inspect_at: now,
        missing: None,
        channels,
        pages,
        followed,
        clock: Clock::new(),
        logger,
        folder,
        configured: count,
        since: wall(),
        place: archive.folder.clone(),
        status_server: status_server.ok(),
        accepted_totals: VecDeque::new(),
        scan_at: now,
        look_at: now,
        last_poll: SourcePoll { has_data: true, due: i64::MAX },
        packing: None,
        pack_failed: RateLimit::default(),
        damaged: None,
        first_open,
        troubles,
        unsent: UnsentReports::default(),
        upload: upload.map(|upload| (upload, News::default())),
        send_at: now,
        tell,
        supervisor: Supervisor::from_env(),
    };
    while ended.read().map_err(CollectError::Kernel)?.is_none() {
        collector.step()?;
    }
    collector.end();
    Ok(())
}

/// Settings for the logger.
const fn config(archive: &Archive) -> Config {
    Config {
        sync: archive.sync,
        segment_size: archive.segment_size,
        segment_age: archive.segment_age,
        total_max: archive.total_max,
        keep_free: archive.keep_free,
        when_full: if archive.stops_when_full { WhenFull::Stop } else { WhenFull::RemoveOldest },
    }
}

impl Collector<'_> {
    /// Waits for the next event and does everything that is due.
    fn step(&mut self) -> Result<(), CollectError> {
        let now = Session::now();
        let due = self.scan_at.min(self.logger.due()).min(self.last_poll.due).max(0) as u64;
        // Items of other sources queue until they are polled. Poll often while they arrive.
        let is_often = !self.pages.is_empty() || (self.last_poll.has_data && !self.followed.is_empty());
        let look = if is_often { LOOK_AT_VARIABLES_NS } else { LOOK_NS };
        let until = MonoNs(due.min(now.0 + look));
        let is_new = match &mut self.channels {
            Some(channels) => channels.step(until, &mut self.logger, self.tell)?,
            None => {
                sys::clock::sleep_until(until);
                false
            }
        };
        if is_new {
            self.tell_known();
        }
        let now = mono();
        self.look_at_variables(now)?;
        self.last_poll = SourcePoll { has_data: false, due: i64::MAX };
        for followed in &mut self.followed {
            let looked = followed.look(now, &mut self.logger, self.tell)?;
            self.last_poll.has_data |= looked.has_data;
            self.last_poll.due = self.last_poll.due.min(looked.due);
        }
        if now >= self.scan_at {
            let pages = self.pages.iter_mut().filter_map(|page| page.scan(now, &mut self.logger)).min();
            let channels = self.channels.as_mut().and_then(|channels| channels.scan(now, &mut self.logger));
            self.scan_at = pages.into_iter().chain(channels).min().unwrap_or(i64::MAX);
        }
        self.logger.tick(now);
        self.tell_state(now);
        self.tell_failures(now);
        self.send(now);
        self.pack(now);
        Ok(())
    }

    /// Updates the sample rate and answers status requests.
    fn tell_state(&mut self, now: i64) {
        let account = self.logger.account();
        if self.accepted_totals.back().is_none_or(|(at, _)| now - at >= RATE_NS.0) {
            self.accepted_totals.push_back((now, account.taken));
            while self.accepted_totals.len() > RATE_NS.1 + 1 {
                self.accepted_totals.pop_front();
            }
            // The previous owner of the socket's name may have ended.
            self.status_server = self.status_server.take().or_else(|| StatusServer::listen(&self.place).ok());
        }
        if let Some(server) = &self.status_server {
            server.answer(|| self.status(now));
        }
    }

    fn status(&self, now: i64) -> Status {
        let account = self.logger.account();
        let (first, taken) = self.accepted_totals.front().copied().unwrap_or((now, account.taken));
        let secs = (now - first).max(RATE_NS.0) as f64 / 1e9;
        let (channels, connected) = self.channels.as_ref().map_or((0, 0), Channels::count);
        let (named, known) = (self.configured, self.logger.signals());
        let cluster = self.upload.as_ref().map(|(upload, _)| status::Cluster::from(upload.status()));
        Status {
            since: self.since,
            signals: status::Signals { named, known, channels, connected },
            samples_per_s: (account.taken - taken) as f64 / secs,
            samples: status::Samples {
                taken: account.taken,
                safe: account.safe,
                lost_on_disk: account.lost,
                unsure: account.unsure,
                lost_by_overflow: account.overflowed,
                refused: account.refused,
                repeated: account.repeated,
            },
            last_sync: self.logger.safe_at().map(|at| now.saturating_sub(at)),
            last_error: self.logger.last_error().map(status::clipped),
            disk: self.disk(&account),
            cluster,
        }
    }

    /// State of the folder. If it cannot be read, the counts are 0; `last_error` reports the cause.
    fn disk(&self, account: &Account) -> status::Disk {
        let files = self.folder.list().unwrap_or_default();
        let count = |ending: &str| files.iter().filter(|(name, _)| name.ends_with(ending)).count();
        let bytes = files.iter().map(|(_, len)| len).sum();
        let (segments, packs) = (count(".segment"), count(PACK));
        let (removed, unsent) = (account.removed, account.unsent);
        status::Disk { segments, packs, bytes, free: self.folder.free().unwrap_or_default(), removed, unsent }
    }

    /// Polls exported variables, if due.
    fn look_at_variables(&mut self, now: i64) -> Result<(), CollectError> {
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now.saturating_add(LOOK_AT_VARIABLES_NS as i64);
        let mut connected = false;
        for page in &mut self.pages {
            connected |= page.look(now, &mut self.clock, &mut self.logger, self.tell)?;
        }
        if connected {
            // New variables may have scans.
            self.scan_at = now;
            self.tell_known();
        }
        Ok(())
    }

    /// When all signals are registered, the logger can release the archive's previous contents.
    fn tell_known(&mut self) {
        if self.channels.as_ref().is_none_or(Channels::are_known)
            && self.pages.iter().all(Page::is_connected)
            && self.followed.is_empty()
        {
            self.logger.signals_are_known();
        }
    }

    /// Logs disk failures, and their end.
    fn tell_failures(&mut self, now: i64) {
        let why = self.logger.last_error().unwrap_or_default();
        if let Some(news) = self.troubles.news(&self.logger.account(), why, now) {
            (self.tell)(&news);
        }
        if let Some(news) = self.unsent.news(&self.logger.account(), self.logger.last_unsent(), now) {
            (self.tell)(&news);
        }
        self.inspect(now);
        let at = Session::now();
        self.supervisor.works(at, self.troubles.stands().or(self.missing.as_deref()));
        self.supervisor.status(at, || {
            let mut list = Unconnected::default();
            self.pages.iter().for_each(|page| page.add_to(&mut list));
            self.followed.iter().for_each(|followed| followed.add_to(&mut list));
            let texts = [self.channels.as_ref().map_or_else(String::new, Channels::unusable), list.text()];
            texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
        });
    }

    /// Checks whether the archive's files still exist.
    fn inspect(&mut self, now: i64) {
        if now < self.inspect_at {
            return;
        }
        let found = match self.logger.missing() {
            Ok(missing) => missing.first().map(|first| {
                let files = if missing.len() == 1 { "1 file".to_owned() } else { format!("{} files", missing.len()) };
                format!("{files} of the archive removed by another program, first {first}; restore them from a copy")
            }),
            Err(error) => Some(format!("the files of the archive cannot be checked: {error}")),
        };
        if let Some(found) = found.as_deref().filter(|_| self.missing.is_none()) {
            (self.tell)(found);
        }
        self.missing = found;
        // Listing a large folder takes long: limit it to 0.1 % of the time.
        self.inspect_at = now.saturating_add(INSPECT_NS.max((mono() - now).saturating_mul(1_000)));
    }

    /// Allows the upload of synced samples, and logs its state.
    fn send(&mut self, now: i64) {
        let Some((upload, news)) = self.upload.as_mut().filter(|_| now >= self.send_at) else { return };
        self.send_at = now.saturating_add(LOOK_NS as i64);
        upload.safe_to(self.logger.safe_to());
        let status = upload.status();
        if news.is_due(&status, MonoNs(now.max(0) as u64)) {
            (self.tell)(&status.to_string());
        }
    }

    /// Logs failed packing, at most once a minute. A damaged file is excluded, and the others are packed without delay.
    fn is_not_packed(&mut self, error: &StoreError, now: i64) {
        if let StoreError::Damaged { name, .. } = error
            && self.damaged.as_ref() != Some(name)
        {
            self.damaged = Some(name.clone());
            self.first_open = 0;
        }
        if self.pack_failed.is_due(now) {
            (self.tell)(&format!("failed to pack: {error}"));
        }
    }

    /// Packs closed segments in a background thread, one at a time.
    fn pack(&mut self, now: i64) {
        if let Some(packing) = self.packing.take_if(|packing| packing.is_finished()) {
            match packing.join() {
                Ok(Ok(None)) => {}
                // More files may be due.
                Ok(Ok(Some(_))) => self.first_open = 0,
                Ok(Err(error)) => self.is_not_packed(&error, now),
                Err(_) => (self.tell)("failed to pack: its thread ended"),
            }
        }
        let open = self.logger.open_from();
        if self.packing.is_none() && open != self.first_open {
            self.first_open = open;
            let folder = self.folder.clone();
            let work = move || due(&folder, open, false)?.map(|(first, last)| pack(&folder, first, last)).transpose();
            match std::thread::Builder::new().name("pack".into()).spawn(work) {
                Ok(packing) => self.packing = Some(packing),
                Err(error) => (self.tell)(&format!("failed to pack: {error}")),
            }
        }
    }

    fn end(mut self) {
        if let Some(packing) = self.packing.take() {
            // The pack is on the disk, or its files are unchanged.
            let _ = packing.join();
        }
        // Report faults that the last samples reveal.
        self.logger.sync(mono());
        self.tell_failures(mono());
        let account = self.logger.close(mono(), wall());
        let lost = account.lost + account.unsure + account.refused;
        (self.tell)(&format!("{} samples safe, {lost} lost, {} repeated", account.safe, account.repeated));
        let Some((upload, _)) = self.upload else { return };
        match written_to(&self.folder) {
            Ok(position) => upload.safe_to(position),
            Err(error) => (self.tell)(&format!("{error}; the rest is sent after the next start")),
        }
        let status = upload.end(Duration::from_nanos(SEND_NS));
        (self.tell)(&format!("{} samples sent; {status}", status.samples));
    }
}

pub(crate) fn wall() -> i64 {
    i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX)
}

pub(crate) fn mono() -> i64 {
    i64::try_from(sys::clock::mono_now().0).unwrap_or(i64::MAX)
}
