//! Messages in queues of words. Reading copies a message before validating it; writing does not allocate.

use msg::{BODY_BYTES_MAX, Conn, Frame, FrameError, HEADER_WORDS, Header, HeaderError, TEXT_BYTES_MAX};
use ring::{Damaged, StreamReader, StreamWriter, Words};

const REST_WORDS: usize = (TEXT_BYTES_MAX + BODY_BYTES_MAX).div_ceil(8);
/// Words before the header in messages between threads of the server: a connection, and an id chosen by the server.
pub(crate) const PREFIX_WORDS: usize = 2;

/// Buffer for one message.
pub(crate) struct MessageBuffer {
    words: Box<[u64]>,
    length: usize,
    prefix: usize,
}

impl MessageBuffer {
    pub(crate) fn new() -> Self {
        let words = vec![0; PREFIX_WORDS + HEADER_WORDS + REST_WORDS].into_boxed_slice();
        Self { words, length: 0, prefix: 0 }
    }

    /// Copies the next message from a queue. Returns whether there was one.
    pub(crate) fn take<W: AsRef<Words>>(&mut self, from: &mut StreamReader<W>) -> Result<bool, Damaged> {
        self.prefix = 0;
        Ok(from.pop(&mut self.words)?.map(|length| self.length = length).is_some())
    }

    /// Like [`take`](Self::take), for a queue within the server, whose messages have words before the header.
    pub(crate) fn take_prefixed<W: AsRef<Words>>(
        &mut self,
        from: &mut StreamReader<W>,
    ) -> Result<Option<(Conn, u64)>, Damaged> {
        let taken = self.take(from)?;
        self.prefix = PREFIX_WORDS;
        Ok(taken.then(|| (Conn { slot: (self.words[0] >> 32) as u32, turn: self.words[0] as u32 }, self.words[1])))
    }

    pub(crate) fn header(&self) -> Result<Header, FrameError> {
        let words = &self.words[self.prefix..self.length.max(self.prefix)];
        let short = FrameError::Length { found: words.len() * 8, expected: HEADER_WORDS * 8 };
        Ok(Header::from_words(words.first_chunk().ok_or(short)?)?)
    }

    /// The message. The header is parsed from the private copy.
    pub(crate) fn frame(&self) -> Result<Frame<'_>, FrameError> {
        let header = self.header()?;
        let bytes: &[u8] = bytemuck::cast_slice(self.rest());
        let length = usize::from(header.text_bytes) + header.body_bytes as usize;
        // The last word is padded.
        let rest = if length.div_ceil(8) * 8 == bytes.len() { &bytes[..length] } else { bytes };
        Frame::after(header, rest)
    }

    /// The words after the header, for use with another header.
    pub(crate) fn rest(&self) -> &[u64] {
        &self.words[self.prefix + HEADER_WORDS..self.length]
    }
}

/// Encodes the words before the header.
pub(crate) fn prefix(conn: Conn, id: u64) -> [u64; PREFIX_WORDS] {
    [u64::from(conn.slot) << 32 | u64::from(conn.turn), id]
}

/// Buffer that converts a text and a body to words.
pub(crate) struct Packing(Box<[u64]>);

impl Packing {
    pub(crate) fn new() -> Self {
        Self(vec![0; REST_WORDS].into_boxed_slice())
    }

    /// Encodes a message: its header with the lengths, and the words after it.
    pub(crate) fn pack(
        &mut self,
        header: Header,
        text: &str,
        body: &[u8],
    ) -> Result<([u64; HEADER_WORDS], &[u64]), FrameError> {
        let frame = Frame::new(header, text, body)?;
        let length = text.len() + body.len();
        let words = &mut self.0[..length.div_ceil(8)];
        if let Some(last) = words.last_mut() {
            *last = 0;
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[text.len()..length].copy_from_slice(body);
        Ok((frame.header.to_words(), &self.0[..length.div_ceil(8)]))
    }
}

impl Packing {
    /// Concatenates texts and converts them to words. Text beyond the buffer is cut.
    pub(crate) fn texts(&mut self, texts: [&str; 3]) -> &[u64] {
        let all: usize = texts.iter().map(|text| text.len()).sum();
        let words = all.min(self.0.len() * 8).div_ceil(8);
        if let Some(last) = self.0[..words].last_mut() {
            *last = 0;
        }
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut self.0[..words]);
        for text in texts {
            let (place, behind) = rest.split_at_mut(text.len().min(rest.len()));
            place.copy_from_slice(&text.as_bytes()[..place.len()]);
            rest = behind;
        }
        &self.0[..words]
    }
}

/// Puts a whole message into a queue. Returns `false` if the queue is full.
pub(crate) fn put<W: AsRef<Words>>(
    to: &mut StreamWriter<W>,
    packing: &mut Packing,
    header: Header,
    text: &str,
    body: &[u8],
) -> Result<bool, FrameError> {
    let (head, rest) = packing.pack(header, text, body)?;
    Ok(to.push_or_refuse(&[&head, rest]))
}

/// Reason to stop reading a peer's messages.
#[derive(Debug)]
pub(crate) enum Fault {
    Damaged,
    Header(HeaderError),
    Frame(FrameError),
    /// A body outside the sender's pool.
    Pool,
}

impl From<Damaged> for Fault {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Header(error) => Self::Header(error),
            other => Self::Frame(other),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged => Damaged.fmt(f),
            Self::Header(error) => error.fmt(f),
            Self::Frame(error) => error.fmt(f),
            Self::Pool => f.write_str("a body is outside its sender's pool"),
        }
    }
}
