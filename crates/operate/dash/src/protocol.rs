//! What page and server say to each other over the WebSocket.
//!
//! The page sends JSON objects: an [`Ask`], with an `id` where it wants an answer. The server sends JSON objects with one key that
//! says what they are (`hello`, `topic` with `data`, `beat`, `answer` with `ok` or `error`), and binary messages for what comes
//! often. A binary message begins with its kind, a byte: 1 is a [`Tick`]; 2 a picture of the oscilloscope (`scopes::picture`), 3 a
//! part of a file of it (a byte that is 1 where more parts follow, 2 bytes of zero, the capture's number `u32`, the part); 4 to 15 are for other panels. Binary messages of the page are
//! parts of a file that it has announced ([`ScopeAct::Open`](crate::ScopeAct::Open)).

use crate::hub::Topic;
use serde::Deserialize;

/// The kind of a binary message that holds samples of signals.
pub(crate) const TICK: u8 = 1;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// From now on these topics, as they change. Words that are no topic are those of panels without one.
    Want {
        /// Their words.
        topics: Vec<String>,
    },
    /// Samples at most so often a second, 1 to 60.
    Rate {
        /// How often.
        hz: u8,
    },
    /// Acts on a process; for operators.
    Process {
        /// What.
        what: Act,
        /// Its name.
        name: String,
    },
    /// From now on the samples of a signal.
    Subscribe {
        /// The number under which they come.
        stream: u16,
        /// Its name.
        name: String,
    },
    /// No more of them.
    Unsubscribe {
        /// The number.
        stream: u16,
    },
    /// Names of signals like this one.
    Search {
        /// With `*` and `?`.
        pattern: String,
    },
    /// Units, limits, state names of a signal.
    Describe {
        /// Its name.
        name: String,
    },
    /// Writes a signal; for operators.
    Put {
        /// Its name.
        name: String,
        /// The value as text.
        value: String,
    },
    /// What the archive has of a signal, as an envelope, and why there are no samples.
    History {
        /// Its name.
        name: String,
        /// How much, in seconds.
        seconds: f64,
        /// Until when, in seconds since 1970; without it, now.
        until: Option<f64>,
        /// In so many spans.
        points: u16,
    },
    /// A message: `get/sr_mag_ps_b/current_adc`. What writes is for operators. A reply that says no is an answer, too.
    Message {
        /// The line.
        line: String,
    },
    /// The verbs of messages, and which of them change something.
    Verbs,
    /// From now on the messages that pass, in place of those before.
    Watch {
        /// `VERB/OBJECT` or `OBJECT`, with `*` and `?`.
        pattern: String,
    },
    /// No more of them.
    Unwatch,
    /// Objects of messages like this one, and who is connected to the message server.
    Objects {
        /// With `*` and `?`.
        pattern: String,
    },
    /// Acts on alarms of the plant; for operators.
    Alarm {
        /// What, in the form that the alarms' own socket takes.
        act: alarm::Act,
    },
    /// Settings: list, save, compare, restore; saving and restoring are for operators.
    Settings {
        /// What.
        act: crate::settings::Act,
    },
    /// Something of the oscilloscope.
    Scope {
        /// What.
        act: crate::scopes::Act,
    },
}

/// What can be done to a process.
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

/// An [`Ask`] that may want an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Asked {
    /// The answer's number.
    pub(crate) id: Option<u32>,
    #[serde(flatten)]
    pub(crate) ask: Ask,
}

/// The topic that a word means.
pub(crate) fn topic(word: &str) -> Option<Topic> {
    serde_json::from_value(word.into()).ok()
}

/// What one signal did since the last tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// The client's number of it.
    pub stream: u16,
    /// Stamp of its last sample, nanoseconds since 1970.
    pub at_ns: i64,
    /// The least of its values.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// The last.
    pub last: f64,
    /// The severity of the last: 0 to 3.
    pub severity: u8,
}

/// A binary message of samples, little endian: kind `u8`, 3 bytes of zero, rows `u32`, base stamp in nanoseconds `u64`, samples
/// left out for newer ones so far `u64`; then columns, each of `rows`: least, most and last value `f64`, stamp behind the base in
/// microseconds `i32`, stream `u16`, severity `u8`. Each column begins where a typed array of the browser can look at it.
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
    fn what_the_page_says_is_understood_and_nothing_else() {
        let said = |text: &str| serde_json::from_str::<Asked>(text);
        let asked = said(r#"{"id":7,"do":"process","what":"stop","name":"loop"}"#).unwrap();
        assert_eq!((asked.id, asked.ask), (Some(7), Ask::Process { what: Act::Stop, name: "loop".into() }));
        assert_eq!(said(r#"{"do":"rate","hz":10}"#).unwrap(), Asked { id: None, ask: Ask::Rate { hz: 10 } });
        let act = alarm::Act::Acknowledge { names: vec!["/ring/RF/X".into()] };
        let asked = said(r#"{"id":8,"do":"alarm","act":{"do":"acknowledge","names":["/ring/RF/X"]}}"#).unwrap();
        assert_eq!((asked.id, asked.ask), (Some(8), Ask::Alarm { act }));
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
    fn what_a_page_says_with_any_byte_changed_is_understood_or_refused() {
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
                    let _ = serde_json::from_slice::<Asked>(&bytes);
                    let _ = serde_json::from_slice::<Asked>(&bytes[..at]);
                }
            }
        }
        // As deep as a message may be long: an error, not the stack's end.
        assert!(serde_json::from_str::<Asked>(&format!("{{\"do\":{}", "[".repeat(100_000))).is_err());
    }

    #[test]
    fn columns_of_a_tick_stand_where_typed_arrays_look() {
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
