//! Maximum saving of a direct path from client to manager: messages of the same encoding between two processes without the
//! server, and so without its rules, locks, log and substitute answers.

use super::parts::{Process, part};
use crate::Failed;
use crate::measure::handed_on;
use base::{DurNs, MonoNs};
use broker::Spin;
use msg::{Band, Code, Frame, HEADER_WORDS, Header, Kind, Reply, Request, TextBuffer};
use ring::{Stream, StreamReader, StreamWriter, Words};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::shm::SharedWords;

/// Size of each queue in words, as in the server.
const ROOM_WORDS: usize = 1 << 15;
/// Interval at which a sleeping side checks that the other one is alive.
const ALIVE: DurNs = DurNs::from_secs(1);
/// Size limit of a message.
const MESSAGE_WORDS: usize = 512;

/// Name of the peer in errors.
const MANAGER: &str = "the manager on the direct path";

/// Error for an invalid message.
fn broken(found: impl std::fmt::Display) -> Failed {
    Failed::answer(MANAGER, "a message", found)
}

/// One of the two queues.
struct Half(Arc<SharedWords>, usize);

impl AsRef<Words> for Half {
    fn as_ref(&self) -> &Words {
        let words = self.0.words();
        let (first, second) = words.split_at(words.len() / 2);
        if self.1 == 0 { first } else { second }
    }
}

/// An end of the path.
struct End {
    out: StreamWriter<Half>,
    back: StreamReader<Half>,
    words: Box<[u64; MESSAGE_WORDS]>,
    spin: Spin,
}

impl End {
    fn new(out: Stream<Half>, back: Stream<Half>) -> Self {
        Self { out: out.writer(), back: back.reader(), words: Box::new([0; MESSAGE_WORDS]), spin: Spin::new() }
    }

    fn put(&mut self, header: Header, text: &str) -> Result<(), Failed> {
        let frame = Frame::new(header, text, &[]).map_err(broken)?;
        let rest = &mut self.words[..text.len().div_ceil(8)];
        rest.fill(0);
        bytemuck::cast_slice_mut::<u64, u8>(rest)[..text.len()].copy_from_slice(text.as_bytes());
        if !self.out.push_or_refuse(&[&frame.header.to_words(), rest]) {
            return Err(Failed::answer("the queue", "room", "none"));
        }
        if self.out.stream().is_asleep() {
            sys::futex::count_up(self.out.stream().bell(), 1);
        }
        Ok(())
    }

    /// The next message; `None` after a timeout.
    fn take(&mut self) -> Result<Option<Frame<'_>>, Failed> {
        let Self { back, spin, .. } = self;
        let bell = back.stream().bell().load(Ordering::Acquire);
        if spin.until(mono_now(), || !back.is_empty()).is_some() {
            back.fall_asleep();
            if back.is_empty() {
                sys::futex::wait(back.stream().bell(), bell, Some(ALIVE));
            }
            back.wake_up();
        }
        let Some(length) = self.back.pop(&mut self.words[..]).map_err(broken)? else {
            return Ok(None);
        };
        let (head, rest) =
            self.words[..length].split_first_chunk::<HEADER_WORDS>().ok_or_else(|| broken("a short one"))?;
        let header = Header::from_words(head).map_err(broken)?;
        let bytes: &[u8] = bytemuck::cast_slice(rest);
        let text = bytes.get(..header.text_bytes.into()).ok_or_else(|| broken("a short one"))?;
        Frame::after(header, text).map(Some).map_err(broken)
    }
}

/// The client's end, with the other process.
pub(super) struct Direct {
    end: End,
    id: u64,
    _memory: std::os::fd::OwnedFd,
    _manager: Process,
}

impl Direct {
    /// Starts a manager on the CPUs and in the class of this thread.
    pub(super) fn start() -> Result<Self, Failed> {
        let memory = SharedWords::create("tahti-direct", 2 * Stream::words_for(ROOM_WORDS)).map(Arc::new)?;
        let [out, back] = [0, 1].map(|at| Stream::format(Half(memory.clone(), at)));
        let (out, back) = (out?, back?);
        let handed = handed_on(memory.fd())?;
        let manager = part(&["bench", "rtt-part", "direct", &handed.as_raw_fd().to_string()])?;
        let mut direct = Self { end: End::new(out, back), id: 0, _memory: handed, _manager: manager };
        direct.round_trip()?;
        Ok(direct)
    }

    /// One message and its reply.
    pub(super) fn round_trip(&mut self) -> Result<(), Failed> {
        self.id += 1;
        let deadline = Some(mono_now() + DurNs::from_secs(5));
        let line = "get/bench_time/now";
        Request::parse(line).map_err(broken)?;
        self.end.put(Header { deadline, ..Header::request(Band::DEFAULT, self.id) }, line)?;
        let until = mono_now() + super::parts::BEGIN;
        while mono_now() < until {
            let Some(frame) = self.end.take()? else { continue };
            let reply = Reply::parse(frame.text).map_err(broken)?;
            let fine = reply.code == Code::Ok && frame.header.id == self.id;
            std::hint::black_box((reply.complement.text().into_owned(), frame.body.to_vec()));
            return if fine { Ok(()) } else { Err(Failed::answer(MANAGER, "the requested reply", "another")) };
        }
        Err(Failed::answer(MANAGER, "a reply", "none"))
    }
}

/// The manager's end, in the other process.
pub(super) fn serve(memory: &str) -> Result<(), Failed> {
    let fd: i32 = memory.parse().map_err(|_| Failed::argument(memory, "the number of a descriptor"))?;
    let memory = SharedWords::inherited(fd).map(Arc::new)?;
    let [back, out] = [0, 1].map(|at| Stream::attach(Half(memory.clone(), at)));
    let (back, out) = (back?, out?);
    let (mut end, mut line) = (End::new(out, back), TextBuffer::new());
    loop {
        let Some(frame) = end.take()? else {
            if rustix::process::getppid().is_none_or(rustix::process::Pid::is_init) {
                return Ok(());
            }
            continue;
        };
        let header = frame.header;
        let late = header.deadline.unwrap_or(MonoNs(u64::MAX)) < mono_now();
        match Request::parse(frame.text) {
            Ok(_) if !late => line.reply(Code::Ok, "1794000000.123456789"),
            Ok(_) => line.reply(Code::Expired, "too late"),
            Err(error) => line.reply(Code::Malformed, error),
        }
        end.put(Header { kind: Kind::Reply, ..Header::request(header.band, header.id) }, line.text())?;
    }
}
