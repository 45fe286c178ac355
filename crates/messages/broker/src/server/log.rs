//! The message log: one line for every write and every error; many refused requests of one user are summarised ([`super::refusals`]).
//! Watches are served from the same records.

use super::lane::{BATCH_RECORD, RECORD_WORDS, WITHHELD_RECORD};
use super::log_file::LogNotice;
use super::refusals::Withheld;
use super::{Control, Event, Lanes};
use base::{DurNs, MonoNs, Utc};
use msg::{BODY_BYTES_MAX, Band, HEADER_WORDS, Header, Lines, TEXT_BYTES_MAX, Verb};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;
use sys::clock::{mono_now, wall_ns};

/// Records taken from one band's log per turn, turns per round of the control thread, and bytes after which text is
/// written to the file.
const LOG_TURN: usize = 64;
const LOG_TURNS: usize = 64;
pub(super) const LOG_BYTES: usize = 1 << 16;

/// Maximum words of a record after its head: a name and a batch, or the texts of a request and its reply.
pub(super) const TEXTS_WORDS: usize = (TEXT_BYTES_MAX + BODY_BYTES_MAX) / 8 + 128;

/// A request and its result.
#[derive(Debug)]
pub(super) struct Record<'w> {
    pub(super) header: Header,
    /// Time between arrival and reply.
    took: DurNs,
    /// The request's line, possibly truncated.
    pub(super) asked: Cow<'w, str>,
    /// The reply's line.
    reply: Cow<'w, str>,
    /// The client's name.
    name: Cow<'w, str>,
    /// The requests of a batch. Such a record is written when the batch is forwarded, before its reply.
    parts: Option<String>,
    unix_ns: u64,
}

impl<'w> Record<'w> {
    /// Decodes a record. `now` and `unix_now_ns` are the same instant on both clocks and convert its time.
    fn read(words: &'w [u64], now: MonoNs, unix_now_ns: u64) -> Option<Self> {
        let (head, texts) = words.split_at_checked(RECORD_WORDS)?;
        let [since, until, lengths] = *head.first_chunk()?;
        let header: &[u64; HEADER_WORDS] = head[3..].first_chunk()?;
        let bytes: &[u8] = bytemuck::cast_slice(texts);
        let header = Header::from_words(header).ok()?;
        let unix_ns = unix_now_ns.saturating_sub(now.0.saturating_sub(since));
        if lengths & BATCH_RECORD != 0 {
            let length = (lengths >> 32 & 0xffff) as usize;
            let (name, rest) = texts.split_at_checked(length.div_ceil(8))?;
            let [name, rest]: [&[u8]; 2] = [name, rest].map(bytemuck::cast_slice);
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
                asked: String::from_utf8_lossy(asked),
                reply: Cow::Borrowed(""),
                name: String::from_utf8_lossy(&name[..length]),
                parts: Some(parts),
                unix_ns,
            });
        }
        let mut at = 0;
        let mut text = |length: u64| {
            let end = (at + (length & 0xffff) as usize).min(bytes.len());
            let text = &bytes[at..end];
            at = end;
            // Nearly always valid UTF-8, and this check is the faster one.
            str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed)
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

    /// Whether the record is logged. Reads that succeed are recorded only for watches.
    fn is_wanted(&self) -> bool {
        let verb = || self.asked.split('/').next().and_then(|word| word.parse::<Verb>().ok());
        let writes = || verb().is_none_or(Verb::writes);
        !self.reply.starts_with("OK/") || writes()
    }

    /// Writes the log line. `host` is the name of the subject's host, if it is a remote one. Control characters are
    /// escaped, so that text from outside cannot start a new line.
    fn write(&self, clock: &mut Clock, host: Option<&str>, to: &mut String) -> fmt::Result {
        let Self { header, took, asked, reply, name, parts, unix_ns } = self;
        clock.write(*unix_ns, to);
        [" ", name, " uid="].iter().for_each(|text| to.push_str(text));
        number(header.subject.uid.into(), 1, to);
        to.push_str(" pid=");
        number(header.subject.pid.into(), 1, to);
        if let Some(host) = host {
            [" host=", host].iter().for_each(|text| to.push_str(text));
        }
        to.push_str(" band=");
        number(header.band.number().into(), 1, to);
        to.push(' ');
        if asked.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            to.push_str(asked);
        } else {
            escaped(asked, to)?;
        }
        match parts {
            Some(parts) => [":", parts].iter().for_each(|text| to.push_str(text)),
            None => {
                let tenths = (took.0.max(0) as u64 + 50) / 100;
                [" -> ", reply, " "].iter().for_each(|text| to.push_str(text));
                number(tenths / 10, 1, to);
                to.push('.');
                number(tenths % 10, 1, to);
                to.push_str("us");
            }
        }
        Ok(())
    }
}

/// Decodes a record about withheld records; `None` if it is another kind.
fn withheld(words: &[u64]) -> Option<(Header, Withheld)> {
    let (head, texts) = words.split_at_checked(RECORD_WORDS)?;
    let [_, within, records] = *head.first_chunk()?;
    if records & (BATCH_RECORD | WITHHELD_RECORD) != WITHHELD_RECORD || !texts.is_empty() {
        return None;
    }
    let header = Header::from_words(head[3..].first_chunk::<HEADER_WORDS>()?).ok()?;
    let user = (header.subject.uid != u32::MAX).then_some((header.subject.uid, header.subject.host));
    Some((header, Withheld { user, records: records & !WITHHELD_RECORD, within: DurNs(within as i64) }))
}

/// Writes the line about withheld records. `host` is the name of the user's host, if it is a remote one.
fn tell_withheld(
    withheld: &Withheld,
    band: Band,
    host: Option<&str>,
    clock: &mut Clock,
    to: &mut String,
) -> fmt::Result {
    let Withheld { user, records, within } = withheld;
    let within = DurNs(within.0 / 1_000_000 * 1_000_000);
    clock.write(wall_ns(), to);
    write!(to, " message-log band={band} ")?;
    match user {
        Some((uid, _)) => write!(to, "uid={uid}")?,
        None => to.push_str("uid=other"),
    }
    if let Some(host) = host {
        write!(to, " host={host}")?;
    }
    writeln!(
        to,
        " refused={records}: as many further requests were refused within {within}, and are not listed one by one"
    )
}

/// Writes a number with at least `digits` digits. `write!` would take a third of the cost of a record.
fn number(value: u64, digits: usize, to: &mut String) {
    let (mut text, mut at, mut rest) = ([b'0'; 20], 20, value);
    while at > 0 && (rest > 0 || 20 - at < digits) {
        at -= 1;
        text[at] += (rest % 10) as u8;
        rest /= 10;
    }
    to.push_str(str::from_utf8(&text[at..]).unwrap_or_default());
}

/// Writes a text with its control characters percent-encoded.
fn escaped(text: &str, to: &mut String) -> fmt::Result {
    for part in text.split_inclusive(char::is_control) {
        match part.char_indices().next_back().filter(|(_, last)| last.is_control()) {
            Some((at, last)) => write!(to, "{}%{:02X}", &part[..at], u32::from(last))?,
            None => to.push_str(part),
        }
    }
    Ok(())
}

/// Writes the line about records that did not fit into a band's log queue.
fn lost(band: Band, records: u64, clock: &mut Clock, to: &mut String) -> fmt::Result {
    clock.write(wall_ns(), to);
    writeln!(to, " message-log band={band} lost={records}: they arrived faster than the log could be written")
}

/// Timestamp at the start of each line. The text of the second is cached.
#[derive(Default)]
pub(super) struct Clock {
    second: u64,
    text: String,
}

impl Clock {
    pub(super) fn write(&mut self, unix_ns: u64, to: &mut String) {
        let second = unix_ns / 1_000_000_000;
        if self.second != second || self.text.is_empty() {
            let Utc { year, month, day, hour, minute, second: s } = Utc::of(second);
            self.text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{s:02}.");
            self.second = second;
        }
        to.push_str(&self.text);
        number(unix_ns % 1_000_000_000 / 1_000, 6, to);
        to.push('Z');
    }
}

impl Control<'_> {
    /// Writes the lanes' records to the log and sends events for watches. The most urgent band comes first, and again
    /// after each turn of another one, so that a flood on a less urgent band costs it no records. Returns whether more
    /// are waiting.
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
                // Writing into a `String` cannot fail.
                let _ = lost(*band, refused - *told, &mut self.clock, &mut self.text);
                *told = refused;
            }
        }
        self.flush_log();
        self.lanes.iter().any(|lane| !lane.log.is_empty())
    }

    /// Takes up to `LOG_TURN` records of a lane.
    fn log_turn(&mut self, at: usize, words: &mut [u64]) {
        let (now, unix_now) = (mono_now(), wall_ns());
        for _ in 0..LOG_TURN {
            let Ok(Some(length)) = self.lanes[at].log.pop(words) else { break };
            if self.log.is_none() && self.watchers.is_empty() {
                continue;
            }
            let Self { tables, clock, text, .. } = self;
            if let Some((header, withheld)) = withheld(&words[..length]) {
                // Writing into a `String` cannot fail.
                let _ = tell_withheld(&withheld, header.band, tables.host(header.subject), clock, text);
                self.unseen_events += if self.watchers.is_empty() { 0 } else { withheld.records };
                continue;
            }
            let Some(record) = Record::read(&words[..length], now, unix_now) else { continue };
            let from = text.len();
            // Writing into a `String` cannot fail.
            let _ = record.write(clock, tables.host(record.header.subject), text);
            // For a batch, the event is sent when it has ended.
            if !self.watchers.is_empty() && record.parts.is_none() {
                let line = self.text[from..].to_owned();
                self.tell_watchers(&record, &line);
            }
            match record.is_wanted() {
                true => self.text.push('\n'),
                false => self.text.truncate(from),
            }
        }
    }

    fn flush_log(&mut self) {
        let Self { log, say, text, reopen_log, .. } = self;
        if let Some(file) = log {
            if reopen_log.swap(false, Ordering::Relaxed) {
                file.reopen();
            }
            file.write(mono_now(), wall_ns(), text, &mut |told| {
                say(match told {
                    LogNotice::Trouble(what) => Event::Trouble(what),
                    LogNotice::Mended(what) => Event::Mended(what),
                });
            });
        }
        text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_padded_as_by_format_and_control_characters_are_escaped() {
        let mut text = String::new();
        for (value, digits) in [(0, 1), (7, 1), (1_794_000_000, 1), (42, 6), (0, 6), (u64::MAX, 1)] {
            text.clear();
            number(value, digits, &mut text);
            assert_eq!(text, format!("{value:0digits$}"));
        }
        text.clear();
        escaped("put/a\n/ü\u{85}b\u{7f}", &mut text).unwrap();
        assert_eq!(text, "put/a%0A/ü%85b%7F");
    }
}
