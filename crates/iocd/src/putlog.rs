//! The put log: who wrote what, from where, and what stood there before.
//!
//! The network's thread hands entries to a thread that writes them to a file. The queue between them holds
//! [`ENTRIES_MAX`]; what does not fit is counted, never waited for.

use base::{Scalar, Stamp, Value};
use ca::server::Peer;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Entries that may wait for the file.
const ENTRIES_MAX: usize = 1_000;

/// Which writes are logged (caPutLog's numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// None (−1).
    None,
    /// Those that change a value (0).
    Changes,
    /// All (1, 2).
    All,
}

impl Which {
    /// From caPutLog's number.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        match number {
            ..0 => Self::None,
            0 => Self::Changes,
            1.. => Self::All,
        }
    }
}

struct Entry {
    when: Stamp,
    host: String,
    user: String,
    channel: String,
    new: Option<Scalar>,
    old: Option<Scalar>,
}

/// What became of the entries.
#[derive(Debug, Default)]
pub struct Counts {
    /// Given to the file's thread.
    pub logged: AtomicU64,
    /// Lost because the queue was full.
    pub dropped: AtomicU64,
    /// Lost because the file could not be written.
    pub failed: AtomicU64,
}

/// The engine's end of the log.
pub struct PutLog {
    /// Which writes are logged.
    pub which: Which,
    /// What became of them.
    pub counts: Arc<Counts>,
    sender: SyncSender<Entry>,
}

impl PutLog {
    /// Opens a file to add to, and starts its thread, which ends with the log.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread not started.
    pub fn open(path: &str, which: Which) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (sender, entries) = sync_channel(ENTRIES_MAX);
        let counts = Arc::<Counts>::default();
        let (shared, path) = (Arc::clone(&counts), path.to_owned());
        std::thread::Builder::new().name("ioc-putlog".into()).spawn(move || write(file, &path, &entries, &shared))?;
        Ok(Self { which, counts, sender })
    }

    /// Logs a write. Allocates, does not block.
    pub fn log(&self, when: Stamp, peer: Peer<'_>, channel: String, old: Option<&Value>, new: Option<&Value>) {
        if self.which == Which::None || (self.which == Which::Changes && old.is_some() && old == new) {
            return;
        }
        let first = |value: Option<&Value>| value.and_then(|value| value.get(0));
        let (host, user) = (peer.host.to_owned(), peer.user.to_owned());
        let entry = Entry { when, host, user, channel, new: first(new), old: first(old) };
        match self.sender.try_send(entry) {
            Ok(()) => self.counts.logged.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Full(_)) => self.counts.dropped.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Disconnected(_)) => self.counts.failed.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// The thread of the file.
fn write(file: File, path: &str, entries: &Receiver<Entry>, counts: &Counts) {
    let mut out = BufWriter::new(file);
    let mut said = false;
    while let Ok(entry) = entries.recv() {
        let mut written = 0u64;
        let mut result = line(&mut out, &entry).inspect(|()| written += 1);
        while let Some(entry) = result.is_ok().then(|| entries.try_recv().ok()).flatten() {
            result = line(&mut out, &entry).inspect(|()| written += 1);
        }
        if let Err(error) = result.and_then(|()| out.flush()) {
            counts.failed.fetch_add(written.max(1), Ordering::Relaxed);
            if !said {
                eprintln!("put log {path}: {error}; entries are lost until it can be written again (counted)");
            }
            said = true;
        } else {
            said = false;
        }
    }
}

/// One line, in caPutLog's order: time (UTC), host, user, channel, new and old value.
fn line(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
    let text = |value: Option<Scalar>| match value {
        None => "?".to_owned(),
        Some(Scalar::String(text)) => format!("\"{}\"", text.bytes().escape_ascii()),
        Some(Scalar::F64(value)) => base::text::general(value, 6),
        Some(Scalar::F32(value)) => base::text::general(value.into(), 6),
        Some(other) => base::text::scalar(other, 0).to_string(),
    };
    let Entry { when, host, user, channel, new, old } = entry;
    // Names come from the client: no line breaks from there.
    let plain = |name: &str| name.as_bytes().escape_ascii().to_string();
    writeln!(out, "{when} {} {} {channel} new={} old={}", plain(host), plain(user), text(*new), text(*old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_host_user_channel_new_and_old() {
        let entry = Entry {
            when: Stamp::from_unix(1_800_000_000, 500_000_000),
            host: "desk\n".into(),
            user: "anna".into(),
            channel: "X:ao".into(),
            new: Some(Scalar::F64(2.5)),
            old: None,
        };
        let mut out = Vec::new();
        line(&mut out, &entry).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{} desk\\n anna X:ao new=2.5 old=?\n", entry.when));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (sender, entries) = sync_channel(1);
        let log = PutLog { which: Which::Changes, counts: Arc::default(), sender };
        let peer = Peer { user: "u", host: "h", address: "a" };
        let (one, two) = (Value::from(1.0), Value::from(2.0));
        log.log(Stamp::default(), peer, "X".into(), Some(&one), Some(&one));
        assert!(entries.try_recv().is_err(), "it changed nothing");
        log.log(Stamp::default(), peer, "X".into(), Some(&one), Some(&two));
        log.log(Stamp::default(), peer, "X".into(), Some(&two), Some(&one));
        let counts = (log.counts.logged.load(Ordering::Relaxed), log.counts.dropped.load(Ordering::Relaxed));
        assert_eq!(counts, (1, 1));
    }
}
