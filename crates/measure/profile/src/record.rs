//! Records of `perf_event_open(2)` as they stand in its rings.

/// One record, as far as it is used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Where a thread was.
    Sample(Sample<'a>),
    /// A file, or memory of no file, was mapped to be executed.
    Mapping {
        /// Whose memory.
        pid: i32,
        /// Where.
        start: u64,
        /// How many bytes.
        bytes: u64,
        /// From where in the file.
        offset: u64,
        /// Its device (major, minor) and number there.
        file: (u32, u32, u64),
        /// Its path, as that process sees it; `[vdso]`, `//anon` and the like where it is no file.
        path: &'a [u8],
    },
    /// A thread has a name.
    Name {
        /// Its process.
        pid: i32,
        /// The thread.
        tid: i32,
        /// Whether its process has begun another program.
        exec: bool,
        /// The name.
        name: &'a [u8],
    },
    /// A thread began.
    Fork {
        /// Its process.
        pid: i32,
        /// The process that began it.
        parent: i32,
        /// The thread.
        tid: i32,
    },
    /// So many records found no room in the ring.
    Lost(u64),
    /// The kernel stopped sampling for a while, because it took too much time.
    Throttled,
}

/// Where a thread was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// What it stands for: nanoseconds or cycles.
    pub period: u64,
    /// Addresses with the kernel's marks between, eight bytes each, the innermost first.
    pub chain: &'a [u8],
    /// Registers and stack of user mode, where copied.
    pub user: Option<User<'a>>,
}

/// Registers and stack of user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User<'a> {
    /// In the order of `asm/perf_regs.h`, those that were asked for; the first `count` are there.
    pub registers: [u64; 4],
    /// The stack from its pointer upwards.
    pub stack: &'a [u8],
}

const MAPPING: u32 = 10;
const LOST: u32 = 2;
const NAME: u32 = 3;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

/// Of a mapping: data only, nothing to execute.
const MISC_DATA: u16 = 1 << 13;
/// Of a name: by exec.
const MISC_EXEC: u16 = 1 << 13;
/// Thread and time behind each record that is no sample.
const TRAILER: usize = 16;

/// Numbers from the front of bytes.
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

    /// Text up to its zero.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

/// Reads whole records; each with its time. What is not of use here is passed over, what is broken ends it.
pub struct Records<'a> {
    rest: &'a [u8],
    registers: Option<usize>,
}

impl<'a> Records<'a> {
    /// Reads `bytes`; `registers`: how many are copied with each sample, `None` where neither they nor the stack are.
    #[must_use]
    pub fn new(bytes: &'a [u8], registers: Option<usize>) -> Self {
        Self { rest: bytes, registers }
    }

    /// Bytes that were not understood.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// A record with its time and its bytes.
#[derive(Clone, Debug)]
pub struct Timed<'a> {
    /// Nanoseconds of the monotonic clock.
    pub at: u64,
    /// As it stood in the ring.
    pub bytes: &'a [u8],
    /// What it says.
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
