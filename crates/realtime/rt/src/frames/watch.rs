//! Watching a frame from outside.

use crate::frames::{JoinError, call, event};
use ring::FramePage;
use std::os::fd::{AsFd as _, OwnedFd};
use sys::shm::SharedWords;

/// A frame's page, read by somebody who takes no part.
#[derive(Debug)]
pub struct Watcher {
    words: SharedWords,
    connection: OwnedFd,
}

impl Watcher {
    /// Asks a frame for its page.
    ///
    /// # Errors
    /// If no such frame runs.
    pub fn open(frame: &str) -> Result<Self, JoinError> {
        let kernel = |error: sys::Error| JoinError::Kernel(error.to_string());
        let connection = call(frame)?;
        sys::handover::send(connection.as_fd(), b"watch", &[]).map_err(kernel)?;
        let mut answer = [0; 512];
        let received = sys::handover::receive(connection.as_fd(), &mut answer).map_err(kernel)?;
        let fd = received.and_then(|(_, fds)| fds.into_iter().next());
        let fd = fd.ok_or_else(|| JoinError::Refused(format!("frame {frame:?} does not let itself be watched")))?;
        let words = SharedWords::attach(fd).map_err(kernel)?;
        FramePage::attach(words.words()).map_err(|error| JoinError::Kernel(error.to_string()))?;
        Ok(Self { words, connection })
    }

    /// The page.
    ///
    /// # Panics
    /// If somebody who was handed the page has destroyed it since.
    #[must_use]
    pub fn page(&self) -> FramePage<'_> {
        FramePage::attach(self.words.words()).expect("checked when it was opened")
    }

    /// Asks for a mode by its name; the frame enters it where its next major frame begins.
    ///
    /// # Errors
    /// If the frame has no mode of that name, with those that it has.
    pub fn want_mode(&self, mode: &str) -> Result<(), JoinError> {
        want_mode(&self.page(), mode)
    }

    /// Whether the frame's process lives.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        sys::handover::is_alive(self.connection.as_fd())
    }
}

/// Finds a mode by its name and asks for it. Allocates only for an error.
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

/// What an event's `what` means.
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

/// What an event's `action` means.
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
