//! The running child of a keeper: its streams, readiness and descendants.

use super::last_line::LastLine;
use super::log::Stream;
use crate::group::Group;
use crate::keeper::protocol::{ChildId, ExitRecord, Target};
use crate::launch::{Shortfall, Started};
use base::{DurNs, MonoNs};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::termios::{LocalModes, SpecialCodeIndex};
use sys::process::Process;
use sys::signal::{SIGINT, SIGKILL, SIGQUIT, SIGWINCH};

/// Signals that request an end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ASKING: [i32; 4] = [1, 2, 3, 15];

/// A running child.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: ChildId,
    /// Handle for sending signals.
    process: Process,
    /// Whether this is the main process announced by the first one. Another process may reap it.
    named: bool,
    pub(super) since: MonoNs,
    pub(super) shortfalls: Vec<Shortfall>,
    pub(super) ready: bool,
    pub(super) said: Option<String>,
    pub(super) interval: Option<DurNs>,
    /// Whether the child was asked to end. If so, its descendants get time to end.
    pub(super) asked: bool,
    /// The exit record while descendants are still running, and the time at which they are killed.
    pub(super) ended: Option<(ExitRecord, MonoNs)>,
    /// The keeper's ends of the streams. A stream at end of file is removed.
    streams: Vec<(Stream, OwnedFd)>,
    /// The terminal controls no session ([`Terminal::FreePty`](crate::launch::Terminal::FreePty)), so the keeper sends its
    /// signals.
    is_free: bool,
    /// The tail of the current output line. Its length is bounded by that of the ready text.
    line: Vec<u8>,
    /// The last line of the terminal or of standard output.
    last_output: LastLine,
    /// The last line of standard error, with pipes.
    last_error: LastLine,
}

impl Running {
    pub(super) fn new(started: Started, is_free: bool, since: MonoNs) -> Self {
        let mut streams = Vec::new();
        if let Some(pty) = started.pty {
            streams.push((Stream::Output, pty));
        }
        if let Some([output, error]) = started.pipes {
            streams.extend([(Stream::Output, output), (Stream::Error, error)]);
        }
        for (_, fd) in &streams {
            // The keeper alone uses these descriptors. A descriptor left in blocking mode is read only after poll reports
            // it.
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
            interval: None,
            asked: false,
            ended: None,
            streams,
            is_free,
            line: Vec::new(),
            last_output: LastLine::default(),
            last_error: LastLine::default(),
        }
    }

    /// The output streams, for polling.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().map(|(_, fd)| fd.as_fd())
    }

    /// Passes all output that has arrived to `each`, at most `chunks` reads per stream.
    pub(super) fn drain(&mut self, chunks: usize, mut each: impl FnMut(Stream, &[u8])) {
        let mut bytes = [0u8; 4096];
        let (last_output, last_error) = (&mut self.last_output, &mut self.last_error);
        self.streams.retain(|(stream, fd)| {
            for _ in 0..chunks {
                match rustix::io::read(fd, &mut bytes) {
                    Ok(0) | Err(Errno::IO) => return false,
                    Ok(got) => {
                        if *stream == Stream::Error { &mut *last_error } else { &mut *last_output }.take(&bytes[..got]);
                        each(*stream, &bytes[..got]);
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return true,
                }
            }
            true
        });
    }

    /// The line that is the probable reason for its end, for display.
    pub(super) fn last_line(&self) -> Option<String> {
        self.last_error.text().or_else(|| self.last_output.text())
    }

    /// Writes bytes to the child's terminal. Returns the number of bytes not accepted.
    pub(super) fn type_in(&self, bytes: &[u8]) -> usize {
        let Some((_, terminal)) = self.streams.first() else { return bytes.len() };
        if self.is_free {
            for signal in bytes.iter().filter_map(|byte| signal_of(terminal, *byte)) {
                self.signal_typed(signal);
            }
        }
        bytes.len() - rustix::io::write(terminal, bytes).unwrap_or(0)
    }

    /// Sets the size of the child's terminal.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        if let Some((_, terminal)) = self.streams.first() {
            // Pipes have no size; the error is ignored.
            let _ = rustix::termios::tcsetwinsize(terminal, size);
            if self.is_free {
                self.signal_typed(SIGWINCH);
            }
        }
    }

    /// Sends a signal of the terminal to the process and its group, as the kernel does for a controlling terminal.
    fn signal_typed(&self, signal: i32) {
        if self.process.signal_group(signal).is_err() {
            // A named main process leads no group. An error means that it is already gone.
            let _ = self.process.signal(signal);
        }
    }

    /// Whether `bytes` complete a line that contains `text`. The length of the line does not matter. A carriage return also
    /// ends a line, because a progress bar prints no newline.
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
                // Earlier bytes cannot be part of a match.
                self.line.drain(..self.line.len() - text.len());
            }
        }
        false
    }

    /// Replaces the supervised process by the announced main process.
    pub(super) fn take_main(&mut self, id: ChildId, process: Process) {
        (self.id, self.process, self.named) = (id, process, true);
    }

    /// A descriptor that becomes readable when the announced main process ends; another process may reap it.
    pub(super) fn main(&self) -> Option<BorrowedFd<'_>> {
        (self.named && self.ended.is_none()).then(|| self.process.as_fd())
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Sends a signal. Returns the number of processes it was sent to.
    pub(super) fn signal(&mut self, signal: i32, to: Target, group: Option<&Group>) -> sys::Result<usize> {
        self.asked |= ASKING.contains(&signal);
        match to {
            // The child has ended, so the signal goes to its descendants.
            Target::Child | Target::Group if self.ended.is_some() => Ok(signal_left_behind(signal)),
            Target::Child => self.process.signal(signal).map(|()| 1),
            Target::Group => match self.process.signal_group(signal) {
                // A main process is not necessarily a group leader.
                Err(error) if self.named && error.errno == Errno::SRCH => self.process.signal(signal),
                sent => sent,
            }
            .map(|()| 1),
            Target::All if signal == SIGKILL => Ok(kill_left_behind(group)),
            Target::All => Ok(signal_left_behind(signal)),
        }
    }
}

/// The signal that a terminal sends for a typed byte (`^C`, `^\\`), unless the program reads all bytes itself.
fn signal_of(terminal: impl AsFd, byte: u8) -> Option<i32> {
    let modes = rustix::termios::tcgetattr(terminal).ok()?;
    let keys = [(SpecialCodeIndex::VINTR, SIGINT), (SpecialCodeIndex::VQUIT, SIGQUIT)];
    let signals = modes.local_modes.contains(LocalModes::ISIG) && byte != 0;
    keys.into_iter().find(|(key, _)| signals && modes.special_codes[*key] == byte).map(|(_, signal)| signal)
}

/// The running descendants of this process, which is their reaper.
pub(super) fn left_behind() -> Vec<Process> {
    crate::family::descendants(rustix::process::getpid().as_raw_nonzero().get())
}

/// Sends a signal to every descendant of this process. Returns the number of processes.
pub(super) fn signal_left_behind(signal: i32) -> usize {
    left_behind().iter().filter(|process| process.signal(signal).is_ok()).count()
}

/// Kills every descendant of this process, which is their reaper, and every member of their control group. A surviving
/// process would keep the devices and the CPU of the supervised one. Returns the number of processes killed.
pub(crate) fn kill_left_behind(group: Option<&Group>) -> usize {
    let mut killed = std::collections::BTreeSet::new();
    // Each round catches processes forked during the previous one.
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
