//! Pages of the kernel's ring buffer, as read from `trace_pipe_raw`.

use crate::format::{Field, fields};
use base::MonoNs;

/// Flag in `commit`: events were lost before this page.
const LOST: u64 = 1 << 31;
/// Additional flag: their number follows the data.
const LOST_COUNTED: u64 = 1 << 30;
/// Mask of the length in `commit`.
const LENGTH: u64 = LOST_COUNTED - 1;

/// Types of records other than data.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Layout of a page's header (`events/header_page`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    timestamp: Field,
    commit: Field,
    data: usize,
}

/// Reason why bytes are not a valid page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// `header_page` is not supported.
    Layout,
    /// Shorter than the header, or than the length in it.
    Short,
    /// A record extends beyond the page.
    Record,
}

impl std::fmt::Display for PageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Layout => "events/header_page is not understood: expected the fields timestamp, commit and data",
            Self::Short => "a page of the ring buffer is shorter than its header states",
            Self::Record => "a record does not end within its page",
        })
    }
}

impl std::error::Error for PageError {}

impl Layout {
    /// Parses `events/header_page`.
    ///
    /// # Errors
    /// If the layout is not supported.
    pub fn parse(text: &str) -> Result<Self, PageError> {
        let spaced = text.replace("field: ", "field:");
        let fields = fields(&spaced).map_err(|_| PageError::Layout)?;
        let field = |name: &str| fields.iter().find(|(of, _)| of == name).map(|(_, field)| *field);
        let (timestamp, commit) = (field("timestamp"), field("commit"));
        match (timestamp, commit, field("data")) {
            (Some(timestamp), Some(commit), Some(data)) if timestamp.size == 8 && matches!(commit.size, 4 | 8) => {
                Ok(Self { timestamp, commit, data: data.offset })
            }
            _ => Err(PageError::Layout),
        }
    }

    /// Start time of a page, and the part of it that is used; `None` if it is not a page.
    #[must_use]
    pub fn used<'a>(&self, bytes: &'a [u8]) -> Option<(MonoNs, &'a [u8])> {
        let commit = number(bytes, self.commit)?;
        // The count of lost events may follow the data.
        let behind = if commit & LOST_COUNTED == 0 { 0 } else { 8 };
        let end = self.data.checked_add((commit & LENGTH) as usize)?.checked_add(behind)?;
        Some((MonoNs(number(bytes, self.timestamp)?), bytes.get(..end)?))
    }

    /// Starts reading a page.
    ///
    /// # Errors
    /// If it is shorter than the length in its header.
    pub fn page<'a>(&self, bytes: &'a [u8]) -> Result<Records<'a>, PageError> {
        let time = number(bytes, self.timestamp).ok_or(PageError::Short)?;
        let commit = number(bytes, self.commit).ok_or(PageError::Short)?;
        let data = bytes.get(self.data..).ok_or(PageError::Short)?;
        let length = (commit & LENGTH) as usize;
        let counted = || Some(u64::from_ne_bytes(data.get(length..length + 8)?.try_into().ok()?));
        let lost = match commit & (LOST | LOST_COUNTED) {
            0 => Some(0),
            both if both & LOST_COUNTED != 0 => counted(),
            _ => None,
        };
        Ok(Records { data: data.get(..length).ok_or(PageError::Short)?, at: 0, time, lost })
    }
}

/// Reads the number in `field` of a record.
pub(crate) fn number(record: &[u8], field: Field) -> Option<u64> {
    let bytes = record.get(field.offset..field.offset.checked_add(field.size)?)?;
    Some(match *bytes {
        [a] if field.signed => i64::from(a as i8) as u64,
        [a] => u64::from(a),
        [a, b] if field.signed => i64::from(i16::from_ne_bytes([a, b])) as u64,
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] if field.signed => i64::from(i32::from_ne_bytes([a, b, c, d])) as u64,
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time in the instance's clock (nanoseconds for `mono`).
    pub at: u64,
    /// Its bytes.
    pub data: &'a [u8],
}

/// The records of a page, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    at: usize,
    time: u64,
    lost: Option<u64>,
}

impl Records<'_> {
    /// Events lost before this page; `None` if some were lost but not counted.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        self.lost
    }

    /// Start time of the page.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.time
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.data.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.data.len() {
            // An error ends the page, because the position of the next record is unknown.
            let end = std::mem::replace(&mut self.at, usize::MAX);
            let step = |records: &mut Self| -> Option<Option<Record<'a>>> {
                let head = records.word(end)?;
                let (kind, delta) = (head & 31, u64::from(head >> 5));
                let extra = || records.word(end + 4).map(|word| word as usize);
                let (from, length, next) = match kind {
                    PADDING if delta == 0 => return Some(None),
                    PADDING => (end, 0, end.checked_add(4)?.checked_add(extra()?)?),
                    TIME_EXTEND | TIME_STAMP => (end, 0, end + 8),
                    0 => {
                        let length = extra()?.checked_sub(4)?;
                        (end + 8, length, (end + 8).checked_add(length)?.checked_next_multiple_of(4)?)
                    }
                    _ => (end + 4, kind as usize * 4, end + 4 + kind as usize * 4),
                };
                match kind {
                    TIME_EXTEND => records.time = records.time.wrapping_add(((extra()? as u64) << 27) + delta),
                    TIME_STAMP => records.time = ((extra()? as u64) << 27) + delta,
                    _ => records.time = records.time.wrapping_add(delta),
                }
                let data = records.data.get(from..from.checked_add(length)?)?;
                records.at = next;
                Some(Some(Record { at: records.time, data }))
            };
            match step(self) {
                None => return Some(Err(PageError::Record)),
                Some(None) => return None,
                Some(Some(record)) if record.data.is_empty() => {}
                Some(Some(record)) => return Some(Ok(record)),
            }
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    /// A page that starts at `time`, with these flags and data, followed by `behind`.
    fn page(time: u64, flags: u64, data: &[u8], behind: &[u8]) -> Vec<u8> {
        let commit = data.len() as u64 | flags;
        [&time.to_ne_bytes()[..], &commit.to_ne_bytes(), data, behind].concat()
    }

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        (kind | delta << 5).to_ne_bytes()
    }

    #[test]
    fn records_of_every_kind_are_read_with_their_time() {
        let data = [
            &head(2, 5)[..],
            b"12345678",
            &head(TIME_EXTEND, 1),
            &2u32.to_ne_bytes(),
            &head(PADDING, 1),
            &8u32.to_ne_bytes(),
            b"....",
            &head(0, 10),
            &9u32.to_ne_bytes(),
            b"abcde...",
            &head(TIME_STAMP, 7),
            &3u32.to_ne_bytes(),
            &head(1, 0),
            b"wxyz",
            &head(PADDING, 0),
            b"rest",
        ]
        .concat();
        let bytes = page(100, 0, &data, b"");
        let records = Layout::parse(HEADER).unwrap().page(&bytes).unwrap();
        assert_eq!((records.lost(), records.begin()), (Some(0), 100));
        let found: Vec<_> = records.map(Result::unwrap).collect();
        let expected = [
            Record { at: 105, data: b"12345678" },
            Record { at: 105 + 1 + (2 << 27) + 1 + 10, data: b"abcde" },
            Record { at: 7 + (3 << 27), data: b"wxyz" },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn lost_events_are_returned_with_their_number_if_it_is_recorded() {
        let layout = Layout::parse(HEADER).unwrap();
        let lost = |flags, behind: &[u8]| layout.page(&page(1, flags, b"", behind)).unwrap().lost();
        assert_eq!(lost(LOST | LOST_COUNTED, &77u64.to_ne_bytes()), Some(77));
        assert_eq!(lost(LOST, b""), None);
    }

    #[test]
    fn a_truncated_page_is_an_error_and_causes_no_panic() {
        let layout = Layout::parse(HEADER).unwrap();
        assert_eq!(layout.page(b"short").unwrap_err(), PageError::Short);
        assert_eq!(layout.page(&page(1, 8, b"", b"")).unwrap_err(), PageError::Short);
        let bytes = page(1, 0, &head(4, 0), b"");
        let found: Vec<_> = layout.page(&bytes).unwrap().collect();
        assert_eq!(found, [Err(PageError::Record)]);
        assert_eq!(Layout::parse("field: u64 timestamp;"), Err(PageError::Layout));
    }
}
