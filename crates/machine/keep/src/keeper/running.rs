//! The running child of a keeper: its streams, its signs of readiness, its descendants.

use super::log::Stream;
use crate::group::Group;
use crate::keeper::protocol::{ChildId, ExitRecord, Target};
use crate::launch::{Shortfall, Started, is_alive, start_ticks};
use base::MonoNs;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sys::signal::SIGKILL;

/// Signals that ask for an end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ASKING: [i32; 4] = [1, 2, 3, 15];

/// A line of output is compared with the ready text up to this length.
const READY_LINE_BYTES_MAX: usize = 512;

/// A child that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: ChildId,
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
    line: Vec<u8>,
}

impl Running {
    pub(super) fn new(started: Started, since: MonoNs) -> Self {
        let mut streams = Vec::new();
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
        let (id, shortfalls) = (started.child, started.shortfalls);
        Self { id, since, shortfalls, ready: false, said: None, asked: false, ended: None, streams, line: Vec::new() }
    }

    /// Streams to poll for output.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().map(|(_, fd)| fd.as_fd())
    }

    /// Hands all output that has arrived to `each`, at most `chunks` reads of a stream.
    pub(super) fn drain(&mut self, chunks: usize, mut each: impl FnMut(Stream, &[u8])) {
        let mut bytes = [0u8; 4096];
        self.streams.retain(|(stream, fd)| {
            for _ in 0..chunks {
                match rustix::io::read(fd, &mut bytes) {
                    Ok(0) | Err(Errno::IO) => return false,
                    Ok(got) => each(*stream, &bytes[..got]),
                    Err(Errno::INTR) => {}
                    Err(_) => return true,
                }
            }
            true
        });
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

    /// Whether `bytes` complete a line that contains `text`.
    pub(super) fn shows(&mut self, bytes: &[u8], text: &str) -> bool {
        for byte in bytes {
            if *byte == b'\n' {
                self.line.clear();
            } else if self.line.len() < READY_LINE_BYTES_MAX {
                self.line.push(*byte);
                if self.line.ends_with(text.as_bytes()) {
                    self.line = Vec::new();
                    return true;
                }
            }
        }
        false
    }

    /// Sends a signal; returns to how many processes.
    pub(super) fn signal(&mut self, signal: i32, to: Target, group: Option<&Group>) -> sys::Result<usize> {
        self.asked |= ASKING.contains(&signal);
        match to {
            // Its number may be somebody else's by now.
            Target::Child | Target::Group if self.ended.is_some() => {
                Ok(left_behind().into_iter().filter(|pid| sys::child::kill(*pid, signal).is_ok()).count())
            }
            Target::Child => sys::child::kill(self.id.pid, signal).map(|()| 1),
            Target::Group => sys::child::kill(-self.id.pid, signal).map(|()| 1),
            Target::All if signal == SIGKILL => Ok(kill_left_behind(group)),
            Target::All => Ok(left_behind().into_iter().filter(|pid| sys::child::kill(*pid, signal).is_ok()).count()),
        }
    }
}

/// The descendants of this process, the reaper of them all, that still run.
pub(super) fn left_behind() -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    crate::family(vec![own]).into_iter().skip(1).filter(|pid| is_no_zombie(*pid)).collect()
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
        killed.extend(left.into_iter().filter(|pid| sys::child::kill(*pid, SIGKILL).is_ok()));
    }
    killed.len()
}

fn is_no_zombie(pid: i32) -> bool {
    start_ticks(pid).is_some_and(|start_ticks| is_alive(ChildId { pid, start_ticks }))
}
