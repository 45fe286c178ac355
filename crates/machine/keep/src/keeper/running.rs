//! The running child of a keeper: its streams, its signs of readiness, its descendants.

use super::last_line::LastLine;
use super::log::Stream;
use crate::group::Group;
use crate::keeper::protocol::{ChildId, ExitRecord, Target};
use crate::launch::{Shortfall, Started};
use base::MonoNs;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sys::process::Process;
use sys::signal::SIGKILL;

/// Signals that ask for an end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ASKING: [i32; 4] = [1, 2, 3, 15];

/// A child that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: ChildId,
    /// The handle for signals to it.
    process: Process,
    /// Whether it is the main process that the first one has named: another process may reap it.
    named: bool,
    pub(super) since: MonoNs,
    pub(super) shortfalls: Vec<Shortfall>,
    pub(super) ready: bool,
    pub(super) said: Option<String>,
    /// Whether it was asked to end: what it leaves behind may then end in its own time.
    pub(super) asked: bool,
    /// How it ended, while something that it left behind still runs, and when that is killed.
    pub(super) ended: Option<(ExitRecord, MonoNs)>,
    /// The keeper's ends of its streams; a stream at its end is taken out.
    streams: Vec<(Stream, OwnedFd)>,
    /// The end of its present line of output, not much longer than the ready text.
    line: Vec<u8>,
    /// The stream with its error messages: its terminal, or standard error.
    errors: Stream,
    /// The last line of that stream.
    last_line: LastLine,
}

impl Running {
    pub(super) fn new(started: Started, since: MonoNs) -> Self {
        let mut streams = Vec::new();
        let errors = if started.pipes.is_some() { Stream::Error } else { Stream::Output };
        if let Some(pty) = started.pty {
            streams.push((Stream::Output, pty));
        }
        if let Some([output, error]) = started.pipes {
            streams.extend([(Stream::Output, output), (Stream::Error, error)]);
        }
        for (_, fd) in &streams {
            // Both are ours alone; a descriptor that cannot be switched is read only when poll says so.
            let _ = rustix::io::ioctl_fionbio(fd, true);
        }
        Self {
            id: started.child,
            process: started.process,
            named: false,
            since,
            shortfalls: started.shortfalls,
            ready: false,
            said: None,
            asked: false,
            ended: None,
            streams,
            line: Vec::new(),
            errors,
            last_line: LastLine::default(),
        }
    }

    /// Streams to poll for output.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().map(|(_, fd)| fd.as_fd())
    }

    /// Hands all output that has arrived to `each`, at most `chunks` reads of a stream.
    pub(super) fn drain(&mut self, chunks: usize, mut each: impl FnMut(Stream, &[u8])) {
        let mut bytes = [0u8; 4096];
        let (errors, last_line) = (self.errors, &mut self.last_line);
        self.streams.retain(|(stream, fd)| {
            for _ in 0..chunks {
                match rustix::io::read(fd, &mut bytes) {
                    Ok(0) | Err(Errno::IO) => return false,
                    Ok(got) => {
                        if *stream == errors {
                            last_line.take(&bytes[..got]);
                        }
                        each(*stream, &bytes[..got]);
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return true,
                }
            }
            true
        });
    }

    /// The last line that it wrote, for people.
    pub(super) fn last_line(&self) -> Option<String> {
        self.last_line.text()
    }

    /// Sends bytes to the child's terminal; returns how many it did not take.
    pub(super) fn type_in(&self, bytes: &[u8]) -> usize {
        let Some((_, terminal)) = self.streams.first() else { return bytes.len() };
        bytes.len() - rustix::io::write(terminal, bytes).unwrap_or(0)
    }

    /// Tells the child's terminal its size.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        if let Some((_, terminal)) = self.streams.first() {
            // Pipes have no size.
            let _ = rustix::termios::tcsetwinsize(terminal, size);
        }
    }

    /// Whether `bytes` complete a line that contains `text`, however long the line is. A carriage return ends a line, too:
    /// a progress bar has no other end.
    pub(super) fn shows(&mut self, bytes: &[u8], text: &str) -> bool {
        let text = text.as_bytes();
        for byte in bytes {
            if matches!(byte, b'\n' | b'\r') {
                self.line.clear();
                continue;
            }
            self.line.push(*byte);
            if self.line.ends_with(text) {
                self.line = Vec::new();
                return true;
            }
            if self.line.len() > 2 * text.len().max(64) {
                // What is in front of that is in no match any more.
                self.line.drain(..self.line.len() - text.len());
            }
        }
        false
    }

    /// Takes the process that it has named as its main one: what is supervised from now on.
    pub(super) fn take_main(&mut self, id: ChildId, process: Process) {
        (self.id, self.process, self.named) = (id, process, true);
    }

    /// The descriptor that tells the end of a main process that another process may reap.
    pub(super) fn main(&self) -> Option<BorrowedFd<'_>> {
        (self.named && self.ended.is_none()).then(|| self.process.as_fd())
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Sends a signal; returns to how many processes.
    pub(super) fn signal(&mut self, signal: i32, to: Target, group: Option<&Group>) -> sys::Result<usize> {
        self.asked |= ASKING.contains(&signal);
        match to {
            // What it left behind is meant.
            Target::Child | Target::Group if self.ended.is_some() => Ok(signal_left_behind(signal)),
            Target::Child => self.process.signal(signal).map(|()| 1),
            Target::Group => match self.process.signal_group(signal) {
                // A main process need not lead a group.
                Err(error) if self.named && error.errno == Errno::SRCH => self.process.signal(signal),
                sent => sent,
            }
            .map(|()| 1),
            Target::All if signal == SIGKILL => Ok(kill_left_behind(group)),
            Target::All => Ok(signal_left_behind(signal)),
        }
    }
}

/// The descendants of this process, the reaper of them all, that still run.
pub(super) fn left_behind() -> Vec<Process> {
    crate::family::descendants(rustix::process::getpid().as_raw_nonzero().get())
}

/// Sends a signal to every descendant of this process; returns to how many.
pub(super) fn signal_left_behind(signal: i32) -> usize {
    left_behind().iter().filter(|process| process.signal(signal).is_ok()).count()
}

/// Kills every descendant of this process, which is their reaper, and whoever is in their control group: one that
/// outlived the supervised process would hold its devices and its CPU. Returns how many there were.
pub(crate) fn kill_left_behind(group: Option<&Group>) -> usize {
    let mut killed = std::collections::BTreeSet::new();
    // Each round catches what the one before forked meanwhile.
    for _ in 0..10 {
        let left = left_behind();
        let members = group.map_or(Vec::new(), Group::members);
        if left.is_empty() && members.is_empty() {
            break;
        }
        if let Some(group) = group.filter(|_| !members.is_empty()) {
            group.kill();
            killed.extend(members);
        }
        killed.extend(left.iter().filter(|process| process.signal(SIGKILL).is_ok()).map(Process::pid));
    }
    killed.len()
}
