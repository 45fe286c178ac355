//! Parser for the records in `perf_event_open(2)` rings.

/// A record, limited to the types used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample of a thread.
    Sample(Sample<'a>),
    /// A file or anonymous memory was mapped as executable.
    Mapping {
        /// Its process id.
        pid: i32,
        /// Start address.
        start: u64,
        /// Size in bytes.
        bytes: u64,
        /// Offset in the file.
        offset: u64,
        /// Device (major, minor) and inode.
        file: (u32, u32, u64),
        /// Path as the process sees it, or a placeholder such as `[vdso]` or `//anon`.
        path: &'a [u8],
    },
    /// A thread was named.
    Name {
        /// Its process id.
        pid: i32,
        /// Its thread id.
        tid: i32,
        /// Whether the process executed a new program.
        exec: bool,
        /// The name.
        name: &'a [u8],
    },
    /// A thread was created.
    Fork {
        /// Its process id.
        pid: i32,
        /// Process id of its creator.
        parent: i32,
        /// Its thread id.
        tid: i32,
    },
    /// Number of records lost because the ring was full.
    Lost(u64),
    /// The kernel paused sampling because it took too much time.
    Throttled,
}

/// A sample of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Its process id.
    pub pid: i32,
    /// Its thread id.
    pub tid: i32,
    /// Its weight in nanoseconds or cycles.
    pub period: u64,
    /// Call chain with the kernel's context markers, eight bytes each, innermost first.
    pub chain: &'a [u8],
    /// User registers and stack, if copied.
    pub user: Option<User<'a>>,
}

/// User registers and stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// The requested registers, in the order of `asm/perf_regs.h`; the first `count` are valid.
    pub registers: [u64; 4],
    /// Stack contents from the stack pointer upwards.
    pub stack: &'a [u8],
}

const MAPPING: u32 = 10;
const LOST: u32 = 2;
const NAME: u32 = 3;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

/// Flag of a mapping: data, not executable.
const MISC_DATA: u16 = 1 << 13;
/// Flag of a name: caused by exec.
const MISC_EXEC: u16 = 1 << 13;
/// Size of thread id and time at the end of records other than samples, in bytes.
const TRAILER: usize = 16;

/// Reads numbers from a byte slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn word(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    fn half(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn id(&mut self) -> Option<i32> {
        self.half().map(|half| half as i32)
    }

    /// Text up to the terminating zero.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

/// Iterator over complete records with their times. Skips unused types. Ends at an invalid record.
pub struct Records<'a> {
    rest: &'a [u8],
    registers: Option<usize>,
}

impl<'a> Records<'a> {
    /// Parses `bytes`. `registers` is the number of registers per sample, or `None` if registers and stack are not copied.
    #[must_use]
    pub fn new(bytes: &'a [u8], registers: Option<usize>) -> Self {
        Self { rest: bytes, registers }
    }

    /// Bytes not parsed.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// A record with its time and its bytes.
#[derive(Clone, Debug)]
pub struct Timed<'a> {
    /// Monotonic time in nanoseconds.
    pub at: u64,
    /// Its bytes in the ring.
    pub bytes: &'a [u8],
    /// The parsed record.
    pub record: Record<'a>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Timed<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut head = Reader(self.rest);
            let (kind, sizes) = (head.half()?, head.half()?);
            let (misc, size) = (sizes as u16, (sizes >> 16) as usize);
            let whole = self.rest.get(..size)?;
            let body = whole.get(8..)?;
            self.rest = &self.rest[size..];
            let found = match kind {
                SAMPLE => sample(body, self.registers),
                _ => other(kind, misc, body),
            };
            if let Some((at, record)) = found {
                return Some(Timed { at, bytes: whole, record });
            }
        }
    }
}

fn sample(body: &[u8], registers: Option<usize>) -> Option<(u64, Record<'_>)> {
    let mut reader = Reader(body);
    let _instruction = reader.word()?;
    let (pid, tid) = (reader.id()?, reader.id()?);
    let (time, period) = (reader.word()?, reader.word()?);
    let length = usize::try_from(reader.word()?).ok()?.checked_mul(8)?;
    let chain = reader.take(length)?;
    let mut user = None;
    if let Some(count) = registers {
        let mut values = [0; 4];
        let has_registers = reader.word()? != 0;
        if has_registers {
            for at in 0..count {
                let value = reader.word()?;
                if let Some(place) = values.get_mut(at) {
                    *place = value;
                }
            }
        }
        let copied = usize::try_from(reader.word()?).ok()?;
        let stack = reader.take(copied)?;
        let filled = if copied > 0 { usize::try_from(reader.word()?).ok()? } else { 0 };
        user = has_registers.then(|| User { registers: values, stack: stack.get(..filled).unwrap_or(stack) });
    }
    Some((time, Record::Sample(Sample { pid, tid, period, chain, user })))
}

fn other(kind: u32, misc: u16, body: &[u8]) -> Option<(u64, Record<'_>)> {
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut behind = Reader(trailer);
    let (_, time) = (behind.word()?, behind.word()?);
    let mut reader = Reader(body);
    let record = match kind {
        MAPPING if misc & MISC_DATA == 0 => {
            let (pid, _tid) = (reader.id()?, reader.id()?);
            let (start, bytes, offset) = (reader.word()?, reader.word()?, reader.word()?);
            let file = (reader.half()?, reader.half()?, reader.word()?);
            let (_generation, _protection) = (reader.word()?, reader.word()?);
            Record::Mapping { pid, start, bytes, offset, file, path: reader.text() }
        }
        NAME => {
            let (pid, tid) = (reader.id()?, reader.id()?);
            Record::Name { pid, tid, exec: misc & MISC_EXEC != 0, name: reader.text() }
        }
        FORK => {
            let (pid, parent, tid) = (reader.id()?, reader.id()?, reader.id()?);
            Record::Fork { pid, parent, tid }
        }
        LOST => {
            let (_id, lost) = (reader.word()?, reader.word()?);
            Record::Lost(lost)
        }
        LOST_SAMPLES => Record::Lost(reader.word()?),
        THROTTLE => Record::Throttled,
        _ => return None,
    };
    Some((time, record))
}
