//! The protocol between page and server over the WebSocket.
//!
//! The page sends JSON objects: an [`Ask`], with an `id` if it wants an answer. The server sends JSON objects with one key for
//! their type (`hello`, `topic` with `data`, `beat`, `answer` with `ok` or `error`), and binary messages for frequent data. The
//! first byte of a binary message is its type:
//! - 1: a [`Tick`].
//! - 2: a picture of the oscilloscope (`scopes::picture`).
//! - 3: a part of a file of the oscilloscope. A byte that is 1 if more parts follow, 2 zero bytes, the capture's number `u32`,
//!   the part.
//! - 4 to 15: reserved for other panels.
//!
//! Binary messages of the page are parts of a file that it has announced ([`ScopeAct::Open`](crate::ScopeAct::Open)).

use crate::hub::Topic;
use serde::Deserialize;

/// Type of a binary message with samples of signals.
pub(crate) const TICK: u8 = 1;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// Subscribe to exactly these topics. Unknown words are ignored; some panels have no topic.
    Want {
        /// Names of the topics.
        topics: Vec<String>,
    },
    /// Set the maximum update rate, 1 to 60 Hz.
    Rate {
        /// The rate in Hz.
        hz: u8,
    },
    /// Act on a process; operators only.
    Process {
        /// The action.
        what: Act,
        /// Name of the process.
        name: String,
    },
    /// Subscribe to the samples of a signal.
    Subscribe {
        /// Number of the stream, chosen by the client.
        stream: u16,
        /// Name of the signal.
        name: String,
    },
    /// End a subscription.
    Unsubscribe {
        /// Number of the stream.
        stream: u16,
    },
    /// Search for names of signals.
    Search {
        /// Pattern with `*` and `?`.
        pattern: String,
    },
    /// Read units, limits and state names of a signal.
    Describe {
        /// Name of the signal.
        name: String,
    },
    /// Write a signal; operators only.
    Put {
        /// Name of the signal.
        name: String,
        /// The value as text.
        value: String,
    },
    /// Read an envelope and the gaps of a signal from the archive.
    History {
        /// Name of the signal.
        name: String,
        /// Duration in seconds.
        seconds: f64,
        /// End in seconds since 1970; default: now.
        until: Option<f64>,
        /// Number of intervals.
        points: u16,
    },
    /// Send a message such as `get/sr_mag_ps_b/current_adc`. Verbs that write are for operators only. A negative reply is also an
    /// answer.
    Message {
        /// The request line.
        line: String,
    },
    /// List the verbs of messages, and which of them change something.
    Verbs,
    /// Watch messages; replaces the previous watch.
    Watch {
        /// `VERB/OBJECT` or `OBJECT`, with `*` and `?`.
        pattern: String,
    },
    /// End the watch.
    Unwatch,
    /// Search for objects of messages, and list the clients of the message server.
    Objects {
        /// Pattern with `*` and `?`.
        pattern: String,
    },
    /// Act on alarms of the plant; operators only.
    Alarm {
        /// The action, in the form of the alarm server's protocol.
        act: alarm::Act,
    },
    /// Compute the figures of the alarm system for the last day.
    AlarmFigures,
    /// List, save, compare or restore settings. Saving and restoring are for operators only.
    Settings {
        /// The action.
        act: crate::settings::Act,
    },
    /// Read the newest log lines that pass a filter.
    Logs {
        /// The filter.
        filter: crate::logs::Filter,
    },
    /// Use the oscilloscope.
    Scope {
        /// The action.
        act: crate::scopes::Act,
    },
}

/// Action on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Stop and start it.
    Restart,
}

/// An [`Ask`] with an optional id.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Question {
    /// Id of the answer.
    pub(crate) id: Option<u32>,
    #[serde(flatten)]
    pub(crate) ask: Ask,
}

/// Parses the name of a topic.
pub(crate) fn topic(word: &str) -> Option<Topic> {
    serde_json::from_value(word.into()).ok()
}

/// Summary of a signal since the last tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// Number of the stream.
    pub stream: u16,
    /// Stamp of its last sample, nanoseconds since 1970.
    pub at_ns: i64,
    /// Minimum value.
    pub least: f64,
    /// Maximum value.
    pub most: f64,
    /// Last value.
    pub last: f64,
    /// Severity of the last sample, 0 to 3.
    pub severity: u8,
}

/// Encodes a binary message of samples, little-endian: type `u8`, 3 zero bytes, rows `u32`, base stamp in nanoseconds `u64`,
/// total number of samples replaced by newer ones `u64`. Then columns of `rows` entries: minimum, maximum and last value `f64`,
/// stamp relative to the base in microseconds `i32`, stream `u16`, severity `u8`. Each column is aligned for the browser's typed
/// arrays.
#[must_use]
pub fn tick(rows: &[Tick], left_out: u64) -> Vec<u8> {
    let base = rows.iter().map(|row| row.at_ns).max().unwrap_or(0).max(0);
    let mut out = Vec::with_capacity(24 + rows.len() * 31);
    out.extend([TICK, 0, 0, 0]);
    out.extend((rows.len() as u32).to_le_bytes());
    out.extend((base as u64).to_le_bytes());
    out.extend(left_out.to_le_bytes());
    for value in [|row: &Tick| row.least, |row: &Tick| row.most, |row: &Tick| row.last] {
        rows.iter().for_each(|row| out.extend(value(row).to_le_bytes()));
    }
    for row in rows {
        let behind = row.at_ns.saturating_sub(base) / 1000;
        out.extend((behind.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32).to_le_bytes());
    }
    rows.iter().for_each(|row| out.extend(row.stream.to_le_bytes()));
    out.extend(rows.iter().map(|row| row.severity));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_page_are_parsed_and_others_refused() {
        let said = |text: &str| serde_json::from_str::<Question>(text);
        let asked = said(r#"{"id":7,"do":"process","what":"stop","name":"loop"}"#).unwrap();
        assert_eq!((asked.id, asked.ask), (Some(7), Ask::Process { what: Act::Stop, name: "loop".into() }));
        assert_eq!(said(r#"{"do":"rate","hz":10}"#).unwrap(), Question { id: None, ask: Ask::Rate { hz: 10 } });
        let act = alarm::Act::Acknowledge { names: vec!["/ring/RF/X".into()] };
        let asked = said(r#"{"id":8,"do":"alarm","act":{"do":"acknowledge","names":["/ring/RF/X"]}}"#).unwrap();
        assert_eq!((asked.id, asked.ask), (Some(8), Ask::Alarm { act }));
        assert_eq!(said(r#"{"id":9,"do":"alarm-figures"}"#).unwrap().ask, Ask::AlarmFigures);
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"do":"shutdown"}"#,
            r#"{"do":"rate","hz":-1}"#,
            r#"{"do":"alarm","act":{"do":"list"}}"#,
            r#"{"do":"alarm","act":{"do":"acknowledge","names":["X"],"on_behalf_of":"alice"}}"#,
            r#"{"do":"subscribe","stream":70000,"name":"a"}"#,
        ] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
        assert_eq!((topic("plant"), topic("alarms"), topic("signal")), (Some(Topic::Plant), Some(Topic::Alarms), None));
    }

    #[test]
    fn a_request_with_any_byte_changed_is_parsed_or_refused() {
        let asks = [
            r#"{"id":7,"do":"process","what":"stop","name":"loop"}"#,
            r#"{"do":"subscribe","stream":7,"name":"RF:TEMP"}"#,
            r#"{"id":8,"do":"alarm","act":{"do":"acknowledge","names":["/ring/RF/X"]}}"#,
        ];
        for ask in asks {
            for at in 0..ask.len() {
                for byte in [0, b'"', b'{', b'[', b'9', b'-', 0x80, 0xff] {
                    let mut bytes = ask.as_bytes().to_vec();
                    bytes[at] = byte;
                    let _ = serde_json::from_slice::<Question>(&bytes);
                    let _ = serde_json::from_slice::<Question>(&bytes[..at]);
                }
            }
        }
        // Nesting up to the maximum message length: an error, not a stack overflow.
        assert!(serde_json::from_str::<Question>(&format!("{{\"do\":{}", "[".repeat(100_000))).is_err());
    }

    #[test]
    fn columns_of_a_tick_have_the_offsets_of_typed_arrays() {
        let row = |stream, at_ns| Tick { stream, at_ns, least: 1.0, most: 3.0, last: 2.0, severity: 1 };
        let bytes = tick(&[row(5, 2_000_000_000), row(6, 2_000_123_000)], 9);
        assert_eq!(bytes.len(), 24 + 2 * 31);
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((bytes[0], bytes[4], u64_at(8), u64_at(16)), (TICK, 2, 2_000_123_000, 9));
        assert_eq!(
            (f64::from_bits(u64_at(24)), f64::from_bits(u64_at(40)), f64::from_bits(u64_at(56))),
            (1.0, 3.0, 2.0)
        );
        assert_eq!(i32::from_le_bytes(bytes[72..76].try_into().unwrap()), -123);
        assert_eq!((&bytes[80..84], &bytes[84..]), (&[5, 0, 6, 0][..], &[1, 1][..]));
        assert_eq!(tick(&[], 0).len(), 24);
    }
}
