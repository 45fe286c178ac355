//! The message log: a line for every write and every error, and for all that is watched.

use super::lane::RECORD_WORDS;
use base::{DurNs, MonoNs, Utc};
use msg::{HEADER_WORDS, Header, Request};

/// What one request was, and how it ended.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) header: Header,
    /// How long the server had it.
    pub(super) took: DurNs,
    /// The request's line, cut to what was kept of it.
    pub(super) asked: String,
    /// The reply's line.
    pub(super) reply: String,
    /// What the client calls itself.
    pub(super) name: String,
    pub(super) unix_ns: u64,
}

impl Record {
    /// Reads what a lane wrote; `now` in both scales tells when that was.
    pub(super) fn read(words: &[u64], now: MonoNs, unix_now_ns: u64) -> Option<Self> {
        let (head, texts) = words.split_at_checked(RECORD_WORDS)?;
        let [since, until, lengths] = *head.first_chunk()?;
        let header: &[u64; HEADER_WORDS] = head[3..].first_chunk()?;
        let bytes: &[u8] = bytemuck::cast_slice(texts);
        let mut at = 0;
        let mut text = |length: u64| {
            let end = (at + (length & 0xffff) as usize).min(bytes.len());
            let text = String::from_utf8_lossy(&bytes[at..end]).into_owned();
            at = end;
            text
        };
        Some(Self {
            asked: text(lengths),
            reply: text(lengths >> 16),
            name: text(lengths >> 32),
            header: Header::from_words(header).ok()?,
            took: MonoNs(until) - MonoNs(since),
            unix_ns: unix_now_ns.saturating_sub(now.0.saturating_sub(since)),
        })
    }
}

impl Record {
    /// Whether it belongs into the log: what only reads and works is there for those who watch.
    pub(super) fn is_wanted(&self) -> bool {
        let writes = Request::parse(&self.asked).map_or(true, |request| request.verb.writes());
        writes || !self.reply.starts_with("OK/")
    }

    /// As it is written; `host` is the name of the subject's, if it is another one.
    pub(super) fn line(&self, host: Option<&str>) -> String {
        let Utc { year, month, day, hour, minute, second } = Utc::of(self.unix_ns / 1_000_000_000);
        let micros = self.unix_ns % 1_000_000_000 / 1_000;
        let (subject, band) = (self.header.subject, self.header.band);
        let host = host.map_or(String::new(), |host| format!(" host={host}"));
        let (asked, reply, took) = (&self.asked, &self.reply, self.took.0 as f64 / 1e3);
        format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z {} uid={} pid={}{host} band={band} \
             {asked} -> {reply} {took:.1}us",
            self.name, subject.uid, subject.pid
        )
    }
}
