//! Console of a guest: its first serial line goes to stdout, and stdin goes to the serial line.

use base::{ConsoleFilter, Visible};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Maximum bytes per read.
const BYTES: usize = 4096;
/// Maximum reads per pass.
const PIECES: usize = 16;
/// `^]`, as in telnet: ends the session. On the guest's own terminal it presses the power button.
const END_KEY: u8 = 0x1d;

/// Passes output line by line, so that other messages do not interrupt a line. After the first key press, output is
/// passed as it arrives.
pub(crate) struct Console {
    /// `None` after the guest's end has closed it.
    stream: Option<UnixStream>,
    held: Vec<u8>,
    typing: Typing,
    /// Set after the first key press.
    filter: Option<ConsoleFilter>,
    /// The last write ended in the middle of a line.
    within_line: bool,
    ends: bool,
}

impl Console {
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        let (typing, held) = (Typing::begin(), Vec::new());
        Ok(Self { stream: Some(stream), held, typing, filter: None, within_line: false, ends: false })
    }

    /// Descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let typed = self.typing.listens().then(rustix::stdio::stdin);
        self.stream.iter().map(|stream| stream.as_fd()).chain(typed)
    }

    /// Whether typed bytes wait because the guest does not read.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.typing.waiting.is_empty()
    }

    /// Whether the end key was typed since the last call.
    pub(crate) const fn wants_to_end(&mut self) -> bool {
        std::mem::replace(&mut self.ends, false)
    }

    /// Whether a message would now appear in the middle of a line of the guest. The caller then ends that line first.
    pub(crate) const fn leaves_line(&mut self) -> bool {
        std::mem::replace(&mut self.within_line, false)
    }

    /// Passes pending bytes. The amount per call is bounded, so that a guest that prints without end does not block the
    /// rest.
    pub(crate) fn pass_on(&mut self) {
        let typed = self.typing.read();
        self.ends |= self.typing.is_terminal() && typed.contains(&END_KEY);
        if !typed.is_empty() && self.filter.is_none() {
            self.filter = Some(ConsoleFilter::default());
        }
        self.typing.waiting.extend(typed);
        if let Some(stream) = &mut self.stream
            && !self.typing.waiting.is_empty()
        {
            match stream.write(&self.typing.waiting) {
                Ok(count) => drop(self.typing.waiting.drain(..count)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // The read below detects the end of the stream.
                Err(_) => self.typing.waiting.clear(),
            }
        }
        let mut bytes = [0; BYTES];
        for _ in 0..PIECES {
            match self.stream.as_mut().map(|stream| stream.read(&mut bytes)) {
                Some(Ok(count)) if count > 0 => self.held.extend_from_slice(&bytes[..count]),
                Some(Err(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    break;
                }
                Some(_) => self.stream = None,
                None => break,
            }
        }
        self.say();
    }

    fn say(&mut self) {
        let whole = match self.held.iter().rposition(|byte| *byte == b'\n') {
            // A prompt without a line end is printed with the next line. A part longer than `BYTES`, or the last part,
            // is printed at once.
            _ if self.stream.is_none() || self.held.len() > BYTES || self.filter.is_some() => self.held.len(),
            Some(at) => at + 1,
            None => 0,
        };
        if whole == 0 {
            return;
        }
        let mut said: Vec<u8> = self.held.drain(..whole).collect();
        if self.stream.is_none() && !said.ends_with(b"\n") {
            // More output follows.
            said.push(b'\n');
        }
        self.within_line = !said.ends_with(b"\n");
        // A closed stdout does not end the guest.
        let mut out = io::stdout();
        let _ = match &mut self.filter {
            Some(filter) => out.write_all(&filter.pass(&said)),
            None => write!(out, "{}", Visible { text: &String::from_utf8_lossy(&said), colours: true }),
        };
        let _ = out.flush();
    }
}

/// Stdin, if it may be read. A terminal passes each key, and its modes are restored at the end.
struct Typing {
    open: bool,
    before: Option<Termios>,
    waiting: Vec<u8>,
}

impl Typing {
    fn begin() -> Self {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok();
        // A process in the background of a terminal would be stopped for reading.
        let mut open = before.is_none() || tcgetpgrp(stdin).map_or(true, |front| front == rustix::process::getpgrp());
        if let Some(mut modes) = before.clone().filter(|_| open) {
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
            modes.input_modes -= InputModes::ICRNL | InputModes::INLCR | InputModes::IXON;
            open = tcsetattr(stdin, OptionalActions::Now, &modes).is_ok();
        }
        Self { open, before: before.filter(|_| open), waiting: Vec::new() }
    }

    const fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    fn listens(&self) -> bool {
        self.open && self.waiting.is_empty()
    }

    /// Typed bytes; empty while the previous ones wait.
    fn read(&mut self) -> Vec<u8> {
        let stdin = rustix::stdio::stdin();
        if !self.listens() || !sys::poll::is_readable(stdin, base::DurNs::ZERO) {
            return Vec::new();
        }
        let mut bytes = [0; BYTES];
        match rustix::io::read(stdin, &mut bytes) {
            Ok(count) if count > 0 => bytes[..count].to_vec(),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Vec::new(),
            _ => {
                self.open = false;
                Vec::new()
            }
        }
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The terminal may be gone; then the error is ignored.
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
