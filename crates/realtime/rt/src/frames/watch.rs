//! Observing a frame from another process.

use crate::frames::{JoinError, call, event};
use ring::FramePage;
use std::os::fd::{AsFd as _, OwnedFd};
use sys::shm::SharedWords;

/// A reader of a frame's page that is not a member.
#[derive(Debug)]
pub struct Watcher {
    words: SharedWords,
    connection: OwnedFd,
}

impl Watcher {
    /// Requests the page of a frame.
    ///
    /// # Errors
    /// If no such frame is running.
    pub fn open(frame: &str) -> Result<Self, JoinError> {
        let kernel = |error: sys::Error| JoinError::Kernel(error.to_string());
        let connection = call(frame)?;
        sys::handover::send(connection.as_fd(), b"watch", &[]).map_err(kernel)?;
        let mut answer = [0; 512];
        let received = sys::handover::receive(connection.as_fd(), &mut answer).map_err(kernel)?;
        let fd = received.and_then(|(_, fds)| fds.into_iter().next());
        let fd = fd.ok_or_else(|| JoinError::Refused(format!("frame {frame:?} refuses to be watched")))?;
        let words = SharedWords::attach(fd).map_err(kernel)?;
        FramePage::attach(words.words()).map_err(|error| JoinError::Kernel(error.to_string()))?;
        Ok(Self { words, connection })
    }

    /// The page.
    ///
    /// # Panics
    /// If a process that shares the page has damaged it since it was opened.
    #[must_use]
    pub fn page(&self) -> FramePage<'_> {
        FramePage::attach(self.words.words()).expect("checked when it was opened")
    }

    /// Requests a mode by its name. The frame enters it at the start of its next major frame.
    ///
    /// # Errors
    /// If the frame has no mode of that name. The error lists its modes.
    pub fn want_mode(&self, mode: &str) -> Result<(), JoinError> {
        want_mode(&self.page(), mode)
    }

    /// Whether the frame's process is alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        sys::handover::is_alive(self.connection.as_fd())
    }
}

/// Finds a mode by its name and requests it. Allocates only for an error.
pub(super) fn want_mode(page: &FramePage<'_>, mode: &str) -> Result<(), JoinError> {
    let names = || (0..page.shape().modes).filter_map(|index| page.mode_name(index));
    match names().position(|name| name.as_str() == mode) {
        Some(index) => {
            page.want_mode(index as u16);
            Ok(())
        }
        None => {
            let known = names().map(|name| name.as_str().to_owned()).collect::<Vec<_>>().join(", ");
            let (frame, known) = (page.name(), if known.is_empty() { "no mode at all" } else { &known });
            Err(JoinError::Refused(format!("frame {:?} has no mode {mode:?}; it has: {known}", frame.as_str())))
        }
    }
}

/// Display text for an event's `what`.
#[must_use]
pub fn what_word(what: u8) -> &'static str {
    match what {
        event::OVERRUN => "overrun",
        event::UNDERRUN => "underrun",
        event::ABSENT => "absent",
        event::LOST => "minors lost",
        event::MODE => "mode",
        event::TRIGGER_STOPPED => "trigger stopped",
        event::TRIGGER_EARLY => "trigger early",
        event::TRIGGER_LATE => "trigger late",
        event::TRIGGER_STEADY => "trigger steady again",
        _ => "?",
    }
}

/// Display text for an event's `action`.
#[must_use]
pub fn action_word(action: u8) -> &'static str {
    match action {
        1 => "more time",
        2 => "skip",
        3 => "safe value",
        4 => "demoted",
        5 => "restart",
        _ => "counted",
    }
}
