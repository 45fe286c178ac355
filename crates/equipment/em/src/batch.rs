//! Collects the answers of a batch, and writes the bodies of replies.

use crate::job::{JobResult, Slip};
use broker::Replies;
use msg::{Answer, BATCH_LINES_MAX, BODY_BYTES_MAX, Code, Escaped, Ticket};
use std::fmt::{self, Write as _};

/// Maximum number of batches of one band in progress.
const BATCHES_MAX: usize = 2;
/// The answer to a line of a batch for which the reply has no room.
const NO_ROOM: &str = "UNKNOWN/the reply of the batch is full; ask with get";

/// The body of a reply: a MessagePack array of texts.
struct Body<'a>(&'a mut Vec<u8>);

impl fmt::Write for Body<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > BODY_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<'a> Body<'a> {
    /// Begins a body with the given number of texts, at most [`BATCH_LINES_MAX`].
    fn of(bytes: &'a mut Vec<u8>, lines: usize) -> Self {
        bytes.clear();
        bytes.push(0xdc);
        bytes.extend_from_slice(&(lines as u16).to_be_bytes());
        Self(bytes)
    }

    /// Adds a text, and leaves at least `spare` bytes free behind it. Returns whether it fits.
    fn text(&mut self, spare: usize, write: impl FnOnce(&mut Self) -> fmt::Result) -> bool {
        let from = self.0.len();
        self.0.extend_from_slice(&[0xda, 0, 0]);
        let fits = write(self).is_ok() && self.0.len() + spare <= BODY_BYTES_MAX;
        let length = self.0.len() - from - 3;
        match fits {
            true => self.0[from + 1..from + 3].copy_from_slice(&(length as u16).to_be_bytes()),
            false => self.0.truncate(from),
        }
        fits
    }
}

/// A batch in progress.
struct Batch {
    ticket: Option<Ticket>,
    left: usize,
    lines: Vec<Option<JobResult>>,
}

/// The batches of a band and the buffer of a reply body. Allocated once, so that requests do not allocate.
pub(crate) struct Batches {
    all: [Batch; BATCHES_MAX],
    body: Vec<u8>,
}

impl Batches {
    pub(crate) fn new() -> Self {
        let batch = || Batch { ticket: None, left: 0, lines: Vec::with_capacity(BATCH_LINES_MAX) };
        Self { all: std::array::from_fn(|_| batch()), body: Vec::with_capacity(BODY_BYTES_MAX + 3) }
    }

    /// Reserves room for the results of a batch with the given number of lines. Returns whether there was room.
    pub(crate) fn begin(&mut self, ticket: Ticket, lines: usize) -> bool {
        let Some(batch) = self.all.iter_mut().find(|batch| batch.ticket.is_none()) else { return false };
        batch.lines.clear();
        batch.lines.resize(lines.min(BATCH_LINES_MAX), None);
        (batch.ticket, batch.left) = (Some(ticket), batch.lines.len());
        true
    }

    /// Answers a request. The answer to a line of a batch is kept until all lines have answers.
    ///
    /// Real-time: neither allocates nor locks. The cost of a batch is proportional to the length of its lines.
    pub(crate) fn answer(&mut self, done: JobResult, replies: &mut Replies<'_>) {
        let Slip { ticket, line } = done.slip;
        let Some(line) = line else {
            // This fails only if the server is gone. Then no client waits for the answer.
            let _ = replies.answer(ticket, &Answer { code: done.code, complement: done.text.as_str(), body: &[] });
            return;
        };
        let Self { all, body } = self;
        let Some(batch) = all.iter_mut().find(|batch| batch.ticket == Some(ticket)) else { return };
        let Some(place) = batch.lines.get_mut(usize::from(line)).filter(|place| place.is_none()) else { return };
        *place = Some(done);
        batch.left -= 1;
        if batch.left > 0 {
            return;
        }
        batch.ticket = None;
        let count = batch.lines.len();
        let mut out = Body::of(body, count);
        for (at, done) in batch.lines.iter().flatten().enumerate() {
            let spare = (count - at - 1) * (NO_ROOM.len() + 3);
            let line = |out: &mut Body<'_>| write!(out, "{}/{}", done.code, Escaped(done.text.as_str()));
            if !out.text(spare, line) {
                // The room for this text is reserved.
                out.text(0, |out| out.write_str(NO_ROOM));
            }
        }
        let _ = replies.answer(ticket, &Answer { code: Code::Ok, complement: "", body });
    }

    /// Answers `list` with names: one per line. If there are more names than lines in a reply, each line has several names
    /// separated by blanks.
    pub(crate) fn list<'n>(
        &mut self,
        ticket: Ticket,
        names: impl Iterator<Item = &'n str> + Clone,
        replies: &mut Replies<'_>,
    ) {
        let count = names.clone().count();
        let each = count.div_ceil(BATCH_LINES_MAX).max(1);
        let mut out = Body::of(&mut self.body, count.div_ceil(each));
        let mut rest = names;
        let mut line = |out: &mut Body<'_>| {
            rest.by_ref().take(each).enumerate().try_for_each(|(at, name)| {
                let blank = if at == 0 { "" } else { " " };
                write!(out, "{blank}{name}")
            })
        };
        let fits = (0..count.div_ceil(each)).all(|_| out.text(0, &mut line));
        let answer = match fits {
            true => Answer { code: Code::Ok, complement: "", body: &self.body },
            false => Answer::failed(Code::Range, "more objects than fit into one reply; request a longer prefix"),
        };
        let _ = replies.answer(ticket, &answer);
    }
}
