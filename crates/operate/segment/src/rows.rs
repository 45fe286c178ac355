//! Rows of dictionaries, gaps and samples, and the head of a segment.

use crate::bytes::{Bad, Input, put_sized, put_varint, put_zigzag};
use crate::datum::Kind;
use std::fmt;

/// Maximum bytes of a signal's name.
pub const NAME_MAX: usize = 1_024;

/// Maximum state names of a signal.
pub const LABELS_MAX: usize = 4_096;

/// Description of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Start time: nanoseconds since 1970, UTC.
    pub begun: i64,
    /// Interval between syncs, in nanoseconds.
    pub sync_ns: u64,
    /// Range of segments merged into it; empty for segments of a logger.
    pub merged: Vec<u64>,
    /// The archive that it belongs to.
    pub archive: u64,
}

/// Metadata of a signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Units.
    pub units: String,
    /// Useful number of decimals.
    pub precision: Option<u16>,
    /// Names of states, by number.
    pub labels: Vec<String>,
}

/// A signal's description from an instant on.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Its number in this segment.
    pub id: u32,
    /// Start of its validity: nanoseconds since 1970, UTC.
    pub since: i64,
    /// Type of its values.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its metadata.
    pub about: About,
}

/// Cause of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The logger started; earlier samples are unknown.
    Started,
    /// The logger was stopped.
    Stopped,
    /// The source was unavailable.
    Disconnected,
    /// Samples arrived faster than they were read; the number lost is recorded.
    Overflow,
    /// Logging was paused.
    Paused,
    /// The disk was full.
    DiskFull,
    /// The disk failed.
    DiskFailed,
    /// A clock was set back: the next samples have older stamps.
    ClockSetBack,
    /// Values were refused (too long, or of an unsupported type).
    Refused,
    /// The source restarted: its counts since the last poll are lost.
    Restarted,
    /// No logger was connected, and samples were overwritten meanwhile.
    Away,
    /// Samples were written, but the sync failed: they may be missing.
    Unsure,
    /// Archived data are damaged or missing.
    Damaged,
    /// A cause of a later version.
    Other(u8),
}

const CAUSES: [(Cause, &str); 13] = [
    (Cause::Started, "logger started"),
    (Cause::Stopped, "logger stopped"),
    (Cause::Disconnected, "disconnected"),
    (Cause::Overflow, "overflow"),
    (Cause::Paused, "paused"),
    (Cause::DiskFull, "disk full"),
    (Cause::DiskFailed, "disk failed"),
    (Cause::ClockSetBack, "clock set back"),
    (Cause::Refused, "refused"),
    (Cause::Restarted, "source restarted"),
    (Cause::Away, "logger away"),
    (Cause::Unsure, "not confirmed by the disk"),
    (Cause::Damaged, "damaged"),
];

impl Cause {
    /// Code of the cause in files.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => CAUSES.iter().position(|(cause, _)| *cause == known).unwrap_or(0) as u8,
        }
    }

    /// Parses the displayed name of a cause.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let other = || name.strip_prefix("cause ")?.parse().ok().map(Self::from_code);
        CAUSES.iter().find(|(_, known)| *known == name).map(|(cause, _)| *cause).or_else(other)
    }

    /// The cause of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        CAUSES.get(usize::from(code)).map_or(Self::Other(code), |(cause, _)| *cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(code) => write!(f, "cause {code}"),
            known => f.write_str(CAUSES.iter().find(|(cause, _)| cause == known).map_or("", |(_, name)| *name)),
        }
    }
}

/// No samples from an instant on, until the next sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The signal; `None` for all.
    pub id: Option<u32>,
    /// Start: nanoseconds since 1970, UTC.
    pub at: i64,
    /// The cause.
    pub cause: Cause,
    /// Number of lost samples; 0 if unknown.
    pub lost: u64,
}

impl Head {
    /// Appends the row.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_zigzag(out, self.begun);
        put_varint(out, self.sync_ns);
        put_varint(out, self.merged.len() as u64);
        let mut before = 0;
        for segment in &self.merged {
            put_zigzag(out, segment.wrapping_sub(before) as i64);
            before = *segment;
        }
        out.extend_from_slice(&self.archive.to_le_bytes());
    }

    /// Parses the row. Ignores fields that a later version may append.
    ///
    /// # Errors
    /// If the bytes are not a valid row.
    pub fn read(payload: &[u8]) -> Result<Self, Bad> {
        let mut input = Input(payload);
        let (begun, sync_ns, count) = (input.zigzag()?, input.varint()?, input.varint()?);
        let max = payload.len() as u64;
        if count > max {
            return Err(Bad::Count { found: count, max });
        }
        let (mut merged, mut before) = (Vec::new(), 0u64);
        for _ in 0..count {
            before = before.wrapping_add(input.zigzag()? as u64);
            merged.push(before);
        }
        Ok(Self { begun, sync_ns, merged, archive: input.u64()? })
    }
}

impl Signal {
    /// Appends the row.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut row = Vec::new();
        put_varint(&mut row, self.id.into());
        put_zigzag(&mut row, self.since);
        row.push(self.kind.code());
        put_sized(&mut row, self.name.as_bytes());
        put_sized(&mut row, self.about.units.as_bytes());
        put_varint(&mut row, self.about.precision.map_or(0, |digits| u64::from(digits) + 1));
        put_varint(&mut row, self.about.labels.len() as u64);
        self.about.labels.iter().for_each(|label| put_sized(&mut row, label.as_bytes()));
        put_sized(out, &row);
    }

    fn read(row: &[u8]) -> Result<Self, Bad> {
        let mut input = Input(row);
        let id = u32::try_from(input.varint()?).map_err(|_| Bad::Number)?;
        let (since, kind) = (input.zigzag()?, Kind::from_code(input.u8()?)?);
        let name = input.text()?.to_owned();
        if name.len() > NAME_MAX {
            return Err(Bad::Count { found: name.len() as u64, max: NAME_MAX as u64 });
        }
        let units = input.text()?.to_owned();
        let precision = input.varint()?.checked_sub(1).and_then(|digits| u16::try_from(digits).ok());
        let count = input.varint()?;
        if count > LABELS_MAX as u64 {
            return Err(Bad::Count { found: count, max: LABELS_MAX as u64 });
        }
        let labels = (0..count).map(|_| input.text().map(str::to_owned)).collect::<Result<_, _>>()?;
        Ok(Self { id, since, kind, name, about: About { units, precision, labels } })
    }
}

impl Signal {
    /// The description valid at an instant, from rows ordered by time. Before the first row, the first row.
    #[must_use]
    pub fn at(rows: &[Self], at: i64) -> Option<&Self> {
        rows.iter().rev().find(|row| row.since <= at).or(rows.first())
    }
}

/// Parses a dictionary block. The iterator ends after the first invalid row.
pub fn signals(payload: &[u8]) -> impl Iterator<Item = Result<Signal, Bad>> {
    rows(payload, |input| Signal::read(input.sized()?))
}

impl Gap {
    /// Appends the row, with its stamp relative to the block's `base`.
    pub fn write(&self, base: i64, out: &mut Vec<u8>) {
        put_varint(out, self.id.map_or(0, |id| u64::from(id) + 1));
        put_zigzag(out, self.at.wrapping_sub(base));
        out.push(self.cause.code());
        put_varint(out, self.lost);
    }
}

/// Parses a block of gaps. The iterator ends after the first invalid row.
pub fn gaps(payload: &[u8], base: i64) -> impl Iterator<Item = Result<Gap, Bad>> {
    rows(payload, move |input| {
        let id = match input.varint()?.checked_sub(1) {
            None => None,
            Some(id) => Some(u32::try_from(id).map_err(|_| Bad::Number)?),
        };
        let at = base.wrapping_add(input.zigzag()?);
        Ok(Gap { id, at, cause: Cause::from_code(input.u8()?), lost: input.varint()? })
    })
}

/// Appends an encoded chunk with the number of its signal.
pub fn put_chunk(out: &mut Vec<u8>, id: u32, chunk: &[u8]) {
    put_varint(out, id.into());
    put_sized(out, chunk);
}

/// Parses a block of samples: number of the signal, offset of the chunk in the payload, its bytes.
pub fn chunks(payload: &[u8]) -> impl Iterator<Item = Result<(u32, usize, &[u8]), Bad>> {
    rows(payload, move |input| {
        let id = u32::try_from(input.varint()?).map_err(|_| Bad::Number)?;
        let bytes = input.sized()?;
        Ok((id, payload.len() - input.0.len() - bytes.len(), bytes))
    })
}

fn rows<'a, T>(
    payload: &'a [u8],
    mut read: impl FnMut(&mut Input<'a>) -> Result<T, Bad>,
) -> impl Iterator<Item = Result<T, Bad>> {
    let mut input = Input(payload);
    std::iter::from_fn(move || {
        if input.is_empty() {
            return None;
        }
        let row = read(&mut input);
        if row.is_err() {
            input = Input(&[]);
        }
        Some(row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::FieldType;
    use proptest::prelude::*;

    #[test]
    fn metadata_rows_survive_a_round_trip() {
        let about = About { units: "°C".into(), precision: Some(2), labels: vec!["off".into(), "on".into()] };
        let kind = Kind::Array(FieldType::String);
        let one = Signal { id: 0, since: -7, kind, name: "RF:TEMP".into(), about };
        let other = Signal { id: 9, about: About::default(), ..one.clone() };
        let mut out = Vec::new();
        one.write(&mut out);
        other.write(&mut out);
        assert_eq!(signals(&out).collect::<Result<Vec<_>, _>>(), Ok(vec![one, other]));

        let lost = Gap { id: Some(3), at: 50, cause: Cause::Overflow, lost: 17 };
        let all = Gap { id: None, at: i64::MIN, cause: Cause::Other(200), lost: 0 };
        let mut out = Vec::new();
        lost.write(1_000, &mut out);
        all.write(1_000, &mut out);
        assert_eq!(gaps(&out, 1_000).collect::<Result<Vec<_>, _>>(), Ok(vec![lost, all]));

        let head = Head { begun: 5, sync_ns: 200, merged: vec![7, 8, 3], archive: u64::MAX };
        let mut out = Vec::new();
        head.write(&mut out);
        assert_eq!(Head::read(&out), Ok(head));
    }

    #[test]
    fn each_cause_keeps_its_number_and_has_a_name() {
        for (code, (cause, name)) in CAUSES.iter().enumerate() {
            assert_eq!(
                (cause.code(), Cause::from_code(code as u8), cause.to_string(), Cause::named(name)),
                (code as u8, *cause, (*name).into(), Some(*cause))
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = signals(&bytes).count();
            let _ = gaps(&bytes, 0).count();
            let _ = chunks(&bytes).count();
            let _ = Head::read(&bytes);
        }
    }
}
