//! A guest's first serial line: what it says goes to stdout, what is typed on stdin goes to it.

use base::{Tamed, Visible};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Bytes that are passed on at once.
const BYTES: usize = 4096;
/// How often that is done between two looks at everything else.
const PIECES: usize = 16;
/// `^]`, as in telnet: who typed it leaves, which for the guest's own terminal is its power button.
const END_KEY: u8 = 0x1d;

/// By whole lines, so that nothing else gets between; as it comes once somebody has typed.
pub(crate) struct Console {
    /// Until the guest's end has closed it.
    stream: Option<UnixStream>,
    held: Vec<u8>,
    typing: Typing,
    /// Since somebody has typed.
    tamed: Option<Tamed>,
    /// Whether the last that was passed on was a part of a line.
    within_line: bool,
    ends: bool,
}

impl Console {
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        let (typing, held) = (Typing::begin(), Vec::new());
        Ok(Self { stream: Some(stream), held, typing, tamed: None, within_line: false, ends: false })
    }

    /// What to wait for.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let typed = self.typing.listens().then(rustix::stdio::stdin);
        self.stream.iter().map(|stream| stream.as_fd()).chain(typed)
    }

    /// Whether something typed waits for the guest, which does not read.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.typing.waiting.is_empty()
    }

    /// Whether somebody typed the key for it since the last look.
    pub(crate) const fn wants_to_end(&mut self) -> bool {
        std::mem::replace(&mut self.ends, false)
    }

    /// Whether what is told now would stand within a line of the guest's: then that is to be ended first.
    pub(crate) const fn leaves_line(&mut self) -> bool {
        std::mem::replace(&mut self.within_line, false)
    }

    /// Passes on what has come; a guest that never stops is passed on in turns with everything else.
    pub(crate) fn pass_on(&mut self) {
        let typed = self.typing.read();
        self.ends |= self.typing.is_terminal() && typed.contains(&END_KEY);
        if !typed.is_empty() && self.tamed.is_none() {
            self.tamed = Some(Tamed::default());
        }
        self.typing.waiting.extend(typed);
        if let Some(stream) = &mut self.stream
            && !self.typing.waiting.is_empty()
        {
            match stream.write(&self.typing.waiting) {
                Ok(count) => drop(self.typing.waiting.drain(..count)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // Its end is seen where it is read.
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
            // A prompt without an end comes with the next line; one that is longer than any line, and the last one, at once.
            _ if self.stream.is_none() || self.held.len() > BYTES || self.tamed.is_some() => self.held.len(),
            Some(at) => at + 1,
            None => 0,
        };
        if whole == 0 {
            return;
        }
        let mut said: Vec<u8> = self.held.drain(..whole).collect();
        if self.stream.is_none() && !said.ends_with(b"\n") {
            // Something else follows.
            said.push(b'\n');
        }
        self.within_line = !said.ends_with(b"\n");
        // Nobody who reads is no reason for the guest to end.
        let mut out = io::stdout();
        let _ = match &mut self.tamed {
            Some(tamed) => out.write_all(&tamed.pass(&said)),
            None => write!(out, "{}", Visible { text: &String::from_utf8_lossy(&said), colours: true }),
        };
        let _ = out.flush();
    }
}

/// Stdin, where it may be read: a terminal passes each key on, and is as it was in the end.
struct Typing {
    open: bool,
    before: Option<Termios>,
    waiting: Vec<u8>,
}

impl Typing {
    fn begin() -> Self {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok();
        // Who is not in a terminal's foreground would be stopped for reading.
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

    /// What was typed, if the last was taken.
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
            // A terminal that has gone needs nothing.
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
