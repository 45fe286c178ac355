//! The put log: user, host, channel, new value and previous value of each write.
//!
//! The network thread sends entries to a thread that writes them to files and log servers. The queue between them holds
//! [`ENTRIES_MAX`] entries. The network thread never waits: entries that do not fit are dropped and counted.

mod burst;
mod json;
mod sink;

use crate::faults::Faults;
use base::{DurNs, Scalar, Stamp, Value};
use burst::{Bursts, LogLine};
use ca::server::Peer;
use sink::Sink;
pub use sink::Target;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::clock::mono_now;
use sys::rounds::{ROUND_EVERY, Rounds};

/// Default time without a write after which a burst ends.
pub const QUIET: DurNs = DurNs::from_secs(5);
/// Interval between two checks of the targets.
const CHECK_EVERY: DurNs = DurNs::from_secs(5);
/// Maximum number of entries waiting for the log thread.
const ENTRIES_MAX: usize = 1_000;
/// Name of the thread.
const NAME: &str = "ioc-putlog";

/// Writes to be logged (numbers of caPutLog).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutFilter {
    /// None (−1).
    None,
    /// Writes that change a value, with bursts in one line (0).
    Changes,
    /// All writes, with bursts in one line (1).
    All,
    /// All writes, one line each (2).
    Each,
}

impl PutFilter {
    /// Converts a number of caPutLog.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        match number {
            ..0 => Self::None,
            0 => Self::Changes,
            1 => Self::All,
            2.. => Self::Each,
        }
    }
}

/// Names and values added to each line of JSON.
pub type Metadata = Arc<Mutex<BTreeMap<String, String>>>;

/// Format of the lines.
#[derive(Clone, Debug)]
pub enum Form {
    /// Format of caPutLog.
    Plain,
    /// Format of caPutJsonLog.
    Json(Metadata),
}

/// A logged write.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// Whether it may be merged into a burst.
    joins: bool,
    when: Stamp,
    host: String,
    user: String,
    channel: String,
    new: Option<Logged>,
    old: Option<Logged>,
}

/// A logged value: the first elements of an array.
#[derive(Clone, Debug, PartialEq)]
struct Logged {
    elements: Vec<Scalar>,
    /// Number of elements in the value.
    len: usize,
    array: bool,
}

impl Logged {
    fn new(value: &Value, form: &Form) -> Self {
        let most = match form {
            Form::Json(_) => json::elements_max(value.kind()),
            Form::Plain => 1,
        };
        let len = value.len();
        let elements = (0..len.min(most)).filter_map(|at| value.get(at)).collect();
        Self { elements, len, array: matches!(value, Value::Array(_)) }
    }

    fn first(&self) -> Option<Scalar> {
        self.elements.first().copied()
    }
}

impl Entry {
    /// Whether both writes are by the same user to the same field.
    fn is_of_one_with(&self, other: &Self) -> bool {
        (&self.host, &self.user, &self.channel) == (&other.host, &other.user, &other.channel)
    }
}

/// Counters of log entries.
#[derive(Debug, Default)]
pub struct Counts {
    /// Entries sent to the log thread.
    pub logged: AtomicU64,
    /// Entries lost because the queue was full.
    pub dropped: AtomicU64,
    /// Lines lost because a target could not be written, and entries lost because the thread has ended.
    pub failed: AtomicU64,
}

/// The engine's side of the log. Dropping it writes the remaining entries and ends the thread. A server that does not answer
/// delays that by some seconds.
pub struct PutLog {
    /// Writes to be logged.
    pub which: PutFilter,
    /// Counters of log entries.
    pub counts: Arc<Counts>,
    form: Form,
    quiet: Quiet,
    /// `None` when the thread is about to end.
    sender: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<()>>,
}

impl PutLog {
    /// Opens files for appending, and starts the thread that writes to them and to servers. A target that cannot be written is
    /// one of the `faults`.
    ///
    /// # Errors
    /// If a file cannot be opened or the thread cannot be started.
    pub fn open(targets: Vec<Target>, which: PutFilter, form: Form, quiet: DurNs, faults: Faults) -> io::Result<Self> {
        let open = |target: Target| {
            let name = target.to_string();
            Sink::new(target).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
        };
        let mut sinks = targets.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let (sender, entries) = sync_channel(ENTRIES_MAX);
        let counts = Arc::<Counts>::default();
        let shared = Arc::clone(&counts);
        let quiet = Arc::new(AtomicI64::new(quiet.0));
        let log = Writer { counts: shared, form: form.clone(), quiet: Arc::clone(&quiet), faults };
        let rounds = Rounds::watch(NAME, crate::SLOW_HANGS_AFTER);
        let run = move || log.write(&mut sinks, &entries, &rounds);
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(run)?;
        Ok(Self { which, counts, form, quiet, sender: Some(sender), thread: Some(thread) })
    }

    /// Sets the time without a write after which a burst ends, for current and later bursts.
    pub fn set_quiet(&self, quiet: DurNs) {
        self.quiet.store(quiet.0, Ordering::Relaxed);
    }

    /// Whether the lines are JSON.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        matches!(self.form, Form::Json(_))
    }

    /// Logs a write. Allocates, does not block.
    pub fn log(&self, when: Stamp, peer: Peer<'_>, channel: String, old: Option<&Value>, new: Option<&Value>) {
        if self.which == PutFilter::None || (self.which == PutFilter::Changes && old.is_some() && old == new) {
            return;
        }
        let logged = |value: Option<&Value>| value.map(|value| Logged::new(value, &self.form));
        let (host, user) = (peer.host.to_owned(), peer.user.to_owned());
        let joins = self.which != PutFilter::Each;
        let entry = Entry { joins, when, host, user, channel, new: logged(new), old: logged(old) };
        let Some(sender) = &self.sender else { return };
        match sender.try_send(entry) {
            Ok(()) => self.counts.logged.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Full(_)) => self.counts.dropped.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Disconnected(_)) => self.counts.failed.fetch_add(1, Ordering::Relaxed),
        };
    }
}

impl Drop for PutLog {
    fn drop(&mut self) {
        self.sender = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("put log: its thread panicked; entries may be lost");
        }
    }
}

/// Time in nanoseconds after which a burst ends.
type Quiet = Arc<AtomicI64>;

/// State of the log thread.
struct Writer {
    counts: Arc<Counts>,
    form: Form,
    quiet: Quiet,
    faults: Faults,
}

impl Writer {
    /// Main loop of the log thread. All entries that arrived meanwhile are written at once.
    fn write(&self, sinks: &mut [Sink], entries: &Receiver<Entry>, rounds: &Rounds) {
        let mut bursts = Bursts::default();
        let mut check_at = mono_now();
        loop {
            rounds.count();
            if check_at <= mono_now() {
                sinks.iter_mut().for_each(Sink::check);
                self.note_faults(sinks);
                check_at = mono_now() + CHECK_EVERY;
            }
            let until = bursts.until().map_or(check_at, |until| until.min(check_at)).min(mono_now() + ROUND_EVERY);
            let wait = u64::try_from((until - mono_now()).0).unwrap_or(0);
            let waited = entries.recv_timeout(Duration::from_nanos(wait));
            let ended = waited == Err(RecvTimeoutError::Disconnected);
            let quiet = DurNs(self.quiet.load(Ordering::Relaxed));
            let mut lines = Vec::new();
            match waited {
                Ok(entry) => {
                    for entry in std::iter::once(entry).chain(entries.try_iter().take(ENTRIES_MAX)) {
                        lines.extend(bursts.take(entry, mono_now(), quiet).into_iter().flatten());
                    }
                }
                Err(_) if ended || bursts.until().is_some_and(|until| until <= mono_now()) => {
                    lines.extend(bursts.end());
                }
                Err(_) => {}
            }
            let text: String = lines.iter().map(|line| self.text(line)).collect();
            if !text.is_empty() {
                let failed =
                    sinks.iter_mut().map(|sink| sink.write(text.as_bytes())).filter(|written| !written).count();
                self.counts.failed.fetch_add((lines.len() * failed) as u64, Ordering::Relaxed);
                self.note_faults(sinks);
            }
            if ended {
                return;
            }
        }
    }

    /// Reports targets that cannot be written, and entries that found the queue full.
    fn note_faults(&self, sinks: &[Sink]) {
        self.faults.set("put log", sinks.iter().find_map(|sink| sink.fault.clone()));
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            self.faults.lack("put log", format!("put log lost {dropped} entries: the queue was full"));
        }
    }

    fn text(&self, line: &LogLine) -> String {
        match &self.form {
            Form::Plain => text(line),
            Form::Json(metadata) => json::text(line, metadata),
        }
    }
}

/// Formats one line, in the order of caPutLog: time (UTC), host, user, channel, new and old value, and the range of a burst.
fn text(line: &LogLine) -> String {
    let text = |value: Option<Scalar>| match value {
        None => "?".to_owned(),
        Some(Scalar::String(text)) => format!("\"{}\"", text.bytes().escape_ascii()),
        Some(Scalar::F64(value)) => base::text::general(value, 6),
        Some(Scalar::F32(value)) => base::text::general(value.into(), 6),
        Some(other) => base::text::scalar(other, 0).to_string(),
    };
    let Entry { when, host, user, channel, new, old, joins: _ } = &line.entry;
    // Names come from the client, so line breaks in them are escaped.
    let plain = |name: &str| name.as_bytes().escape_ascii().to_string();
    let range = line.range.map(|(least, greatest)| format!(" min={} max={}", text(Some(least)), text(Some(greatest))));
    let (host, user, range) = (plain(host), plain(user), range.unwrap_or_default());
    let [new, old] = [new, old].map(|value| text(value.as_ref().and_then(Logged::first)));
    format!("{when} {host} {user} {channel} new={new} old={old}{range}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn entry(channel: &str, old: f64, new: f64) -> Entry {
        Entry {
            joins: true,
            when: Stamp::from_unix(1_800_000_000, 500_000_000),
            host: "desk\n".into(),
            user: "anna".into(),
            channel: channel.into(),
            new: Some(Logged::new(&new.into(), &Form::Plain)),
            old: Some(Logged::new(&old.into(), &Form::Plain)),
        }
    }

    #[test]
    fn a_line_has_time_host_user_channel_new_old_and_a_bursts_range() {
        let entry = Entry { old: None, ..entry("X:ao", 0.0, 2.5) };
        let when = entry.when;
        let mut line = LogLine { entry, range: None, further: 0 };
        assert_eq!(text(&line), format!("{when} desk\\n anna X:ao new=2.5 old=?\n"));
        line.range = Some((Scalar::F64(-1.0), Scalar::F64(7.5)));
        assert_eq!(text(&line), format!("{when} desk\\n anna X:ao new=2.5 old=? min=-1 max=7.5\n"));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (sender, entries) = sync_channel(1);
        let (form, quiet) = (Form::Plain, Quiet::default());
        let log = PutLog {
            which: PutFilter::Changes,
            counts: Arc::default(),
            form,
            quiet,
            sender: Some(sender),
            thread: None,
        };
        let peer = Peer { user: "u", host: "h", address: "a" };
        let (one, two) = (Value::from(1.0), Value::from(2.0));
        log.log(Stamp::default(), peer, "X".into(), Some(&one), Some(&one));
        assert!(entries.try_recv().is_err(), "no change");
        log.log(Stamp::default(), peer, "X".into(), Some(&one), Some(&two));
        log.log(Stamp::default(), peer, "X".into(), Some(&two), Some(&one));
        let counts = (log.counts.logged.load(Ordering::Relaxed), log.counts.dropped.load(Ordering::Relaxed));
        assert_eq!(counts, (1, 1));
    }

    #[test]
    fn a_pending_burst_is_written_when_the_log_ends() {
        let path = std::env::temp_dir().join(format!("tahti-putlog-{}", std::process::id()));
        let target = Target::File(path.to_str().unwrap().into());
        let log = PutLog::open(vec![target], PutFilter::All, Form::Plain, QUIET, Faults::default()).unwrap();
        let peer = Peer { user: "u", host: "h", address: "a" };
        for new in [3.0, 1.0, 2.0] {
            log.log(Stamp::default(), peer, "X".into(), Some(&Value::from(0.0)), Some(&Value::from(new)));
        }
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.ends_with(" h u X new=2 old=0 min=1 max=3\n") && text.lines().count() == 1, "{text}");
    }
}
