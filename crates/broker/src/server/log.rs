//! The message log: a line for every write and every error, and for all that is watched.

use super::lane::{BATCH_RECORD, RECORD_WORDS};
use super::{Desk, Event, Lanes};
use crate::end::unix_now_ns;
use base::{DurNs, MonoNs, Utc};
use msg::{BODY_BYTES_MAX, Band, HEADER_WORDS, Header, Lines, Request, TEXT_BYTES_MAX};
use std::io::Write as _;
use sys::clock::mono_now;

/// Records taken from one band's log before the others have their turn, such turns before all else has its own, and bytes
/// that are written at once.
const LOG_TURN: usize = 64;
const LOG_TURNS: usize = 64;
pub(super) const LOG_BYTES: usize = 1 << 16;

/// Most words of a record behind its head: a name and a batch, or the texts of a request and its reply.
pub(super) const TEXTS_WORDS: usize = (TEXT_BYTES_MAX + BODY_BYTES_MAX) / 8 + 128;

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
    /// What a batch asks for; then it was only passed on by now.
    pub(super) parts: Option<String>,
    pub(super) unix_ns: u64,
}

impl Record {
    /// Reads what a lane wrote; `now` in both scales tells when that was.
    pub(super) fn read(words: &[u64], now: MonoNs, unix_now_ns: u64) -> Option<Self> {
        let (head, texts) = words.split_at_checked(RECORD_WORDS)?;
        let [since, until, lengths] = *head.first_chunk()?;
        let header: &[u64; HEADER_WORDS] = head[3..].first_chunk()?;
        let bytes: &[u8] = bytemuck::cast_slice(texts);
        let header = Header::from_words(header).ok()?;
        let unix_ns = unix_now_ns.saturating_sub(now.0.saturating_sub(since));
        if lengths & BATCH_RECORD != 0 {
            let (name, rest) = texts.split_at_checked(((lengths >> 32 & 0xffff) as usize).div_ceil(8))?;
            let name: &[u8] = bytemuck::cast_slice(name);
            let rest: &[u8] = bytemuck::cast_slice(rest);
            let (asked, body) = rest.split_at_checked(header.text_bytes.into())?;
            let body = body.get(..header.body_bytes as usize)?;
            let mut parts = String::with_capacity(body.len());
            for line in Lines::read(body).ok()? {
                parts.push(' ');
                parts += line.ok()?;
            }
            return Some(Self {
                header,
                took: DurNs::ZERO,
                asked: String::from_utf8_lossy(asked).into_owned(),
                reply: String::new(),
                name: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
                parts: Some(parts),
                unix_ns,
            });
        }
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
            parts: None,
            header,
            took: MonoNs(until) - MonoNs(since),
            unix_ns,
        })
    }

    /// Whether it belongs into the log: what only reads and works is there for those who watch.
    pub(super) fn is_wanted(&self) -> bool {
        let writes = Request::parse(&self.asked).map_or(true, |request| request.verb.writes());
        writes || !self.reply.starts_with("OK/")
    }

    /// As it is written; `host` is the name of the subject's, if it is another one.
    pub(super) fn line(&self, host: Option<&str>) -> String {
        let (subject, band, asked) = (self.header.subject, self.header.band, &self.asked);
        let host = host.map_or(String::new(), |host| format!(" host={host}"));
        let what = match &self.parts {
            Some(parts) => format!("{asked}:{parts}"),
            None => format!("{asked} -> {} {:.1}us", self.reply, self.took.0 as f64 / 1e3),
        };
        format!("{} {} uid={} pid={}{host} band={band} {what}", at(self.unix_ns), self.name, subject.uid, subject.pid)
    }
}

/// A line for records of a band that found no room.
pub(super) fn lost(band: Band, records: u64, unix_ns: u64) -> String {
    format!("{} message-log band={band} lost={records}: they came faster than they could be written\n", at(unix_ns))
}

/// When, as each line begins.
fn at(unix_ns: u64) -> String {
    let Utc { year, month, day, hour, minute, second } = Utc::of(unix_ns / 1_000_000_000);
    let micros = unix_ns % 1_000_000_000 / 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

impl Desk<'_> {
    /// Writes what the lanes logged, and tells those who watch: the most urgent band first, and again after each turn of
    /// another, so that none loses records by a flood on a less urgent one. Says whether there is more than it took.
    pub(super) fn write_log(&mut self) -> bool {
        let mut words = vec![0; RECORD_WORDS + TEXTS_WORDS];
        for _ in 0..LOG_TURNS {
            let Some(at) = (0..self.lanes.len()).rev().find(|at| !self.lanes[*at].log.is_empty()) else { break };
            self.log_turn(at, &mut words);
            if self.text.len() >= LOG_BYTES {
                self.flush_log();
            }
        }
        for at in 0..self.lanes.len() {
            let Lanes { band, log, lost: told, .. } = &mut self.lanes[at];
            let refused = log.stream().refused();
            if refused != *told {
                self.text += &lost(*band, refused - *told, unix_now_ns());
                *told = refused;
            }
        }
        self.flush_log();
        self.lanes.iter().any(|lane| !lane.log.is_empty())
    }

    /// Takes some records of a lane.
    fn log_turn(&mut self, at: usize, words: &mut [u64]) {
        let (now, unix_now) = (mono_now(), unix_now_ns());
        for _ in 0..LOG_TURN {
            let Ok(Some(length)) = self.lanes[at].log.pop(words) else { break };
            let Some(record) = Record::read(&words[..length], now, unix_now) else { continue };
            let line = record.line(self.tables.host(record.header.subject));
            if record.is_wanted() {
                self.text += &line;
                self.text.push('\n');
            }
            // Who watches is told of the batch when it has ended.
            if record.parts.is_none() {
                self.tell_watchers(&record, &line);
            }
        }
    }

    fn flush_log(&mut self) {
        if let Some(file) = self.log.as_mut().filter(|_| !self.text.is_empty())
            && let Err(error) = file.write_all(self.text.as_bytes())
        {
            (self.say)(Event::Trouble(format!("message log: {error}; it ends here")));
            self.log = None;
        }
        self.text.clear();
    }
}
