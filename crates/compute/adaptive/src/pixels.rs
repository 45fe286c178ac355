//! Pixels received as datagrams, row by row, in any order and possibly incomplete.

use crate::error::Error;
use crate::input::Input;
use base::{DurNs, MonoNs};
use optics::gvsp::{Content, Packet};
use optics::{Assembly, FrameEnd, Geometry, RowAction};
use rt::Wait;
use sys::clock::{mono_now, sleep_until};
use sys::datagrams::Waits;

/// Maximum number of datagrams processed before control returns to the caller, which may have to stop.
const LOOKS: usize = 4096;
/// Polls of the socket between two readings of the clock.
const SPINS: usize = 16;

/// Result of waiting for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowEvent {
    /// A row, now in the image, with flags for the first and last row of the frame.
    Row { row: usize, first: bool, last: bool },
    /// The current frame ended without all of its rows.
    Over(FrameEnd),
    /// Nothing arrived.
    Nothing,
}

/// The receiving end: source of datagrams, current frame and its image.
#[derive(Debug)]
pub struct Pixels {
    input: Input,
    /// Index of the next datagram to process.
    index: usize,
    /// When the last batch of datagrams was received.
    at: MonoNs,
    /// Timestamps of the newest row and of the first row of the frame, in nanoseconds of the input's clock, if available.
    came_ns: [Option<u64>; 2],
    /// Interval between rows in the previous frame.
    pace: DurNs,
    wait: Wait,
    side: usize,
    row: usize,
    assembly: Assembly,
    image: Vec<u16>,
    /// Datagrams that are not pixels of this camera.
    foreign: u64,
    /// Announced images of another size.
    resized: u64,
    patience: DurNs,
}

impl Pixels {
    /// Receives datagrams from `input`. A frame ends if nothing arrives for the input's patience.
    ///
    /// `wait` sets how the thread waits: asleep, spinning, or both. With both, it sleeps between frames and during the first part of a frame.
    /// It spins near the end of a frame, and before it sleeps it spins for the given time for each row.
    #[must_use]
    pub fn new(input: Input, geometry: &Geometry, missing_max: usize, wait: Wait) -> Self {
        Self {
            patience: input.patience(),
            input,
            index: 0,
            at: MonoNs(0),
            came_ns: [None; 2],
            pace: DurNs::ZERO,
            wait,
            side: geometry.width(),
            row: geometry.row_bytes(),
            assembly: Assembly::new(geometry.across(), missing_max),
            image: vec![0; geometry.width() * geometry.width()],
            foreign: 0,
            resized: 0,
        }
    }

    /// Source of the datagrams.
    #[must_use]
    pub const fn input(&self) -> &Input {
        &self.input
    }

    /// The image. Rows that did not arrive keep their previous pixels.
    #[must_use]
    pub fn image(&self) -> &[u16] {
        &self.image
    }

    /// Swaps the image with another of the same size. The caller must swap it back before the next row.
    pub(crate) fn lend(&mut self, other: &mut Vec<u16>) {
        std::mem::swap(&mut self.image, other);
    }

    /// State of the current frame, and counters.
    #[must_use]
    pub const fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Arrival time of the newest row, from the kernel's timestamp if available. Real-time: reads two clocks.
    pub(crate) fn came(&self) -> MonoNs {
        self.came_ns[0].and_then(|came| self.input.at(came)).map_or(self.at, |came| came.min(self.at))
    }

    /// Receives and discards all available datagrams, and returns their number. For measurements of the cost of receiving. Real-time: one
    /// system call for up to 16 datagrams, and one that finds none.
    pub fn discard(&mut self) -> usize {
        let mut all = 0;
        while let Ok(there) = self.input.take(Waits::Not) {
            all += there;
        }
        self.index = self.input.there();
        all
    }

    /// Number of datagrams that were not pixels of this camera.
    #[must_use]
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Number of announced images of another size, for example after the camera's region of interest was changed. Their pixels count as
    /// foreign.
    #[must_use]
    pub const fn resized(&self) -> u64 {
        self.resized
    }

    /// Reason why no whole frame arrived for `while_`.
    pub(crate) fn absent(&self, while_: DurNs) -> Error {
        match self.resized {
            0 => self.input.silent(while_),
            images => Error::Resized { images, side: self.side },
        }
    }

    /// More datagrams have been received, so the next row needs no wait.
    pub(crate) fn more(&self) -> bool {
        self.index < self.input.there()
    }

    /// Discards all datagrams received so far, up to the end of a frame.
    pub(crate) fn restart(&mut self) {
        let now = mono_now();
        let mut over = false;
        for _ in 0..LOOKS {
            if over || self.input.take(Waits::ForOne).is_err() {
                break;
            }
            // Queued datagrams arrive faster than the rest of a frame does.
            over = mono_now() - now > self.patience && (0..self.input.there()).any(|index| self.is_trailer(index));
        }
        self.assembly.restart();
        (self.index, self.foreign, self.resized) = (self.input.there(), 0, 0);
    }

    fn is_trailer(&self, index: usize) -> bool {
        matches!(Packet::read(self.input.get(index)), Ok(Packet { content: Content::Trailer { .. }, .. }))
    }

    /// Ends the current frame, once its last row has arrived.
    pub(crate) fn end(&mut self) -> Option<FrameEnd> {
        let rows = self.assembly.seen().len() as i64;
        if let [Some(last), Some(first)] = self.came_ns {
            self.pace = DurNs((last.saturating_sub(first) as i64 / (rows - 1).max(1)).clamp(0, self.patience.0));
        }
        self.assembly.end()
    }

    /// Receives datagrams, waiting up to the patience. Returns false if none arrived.
    fn take(&mut self) -> bool {
        self.index = 0;
        let spin = match self.wait {
            Wait::Sleep => DurNs::ZERO,
            Wait::Spin => self.patience,
            // Between frames the thread sleeps.
            Wait::Both { .. } if self.assembly.frame().is_none() => DurNs::ZERO,
            Wait::Both { spin } => spin,
        };
        if spin > DurNs::ZERO {
            let begun = mono_now();
            let mut napped = self.wait == Wait::Spin;
            loop {
                for _ in 0..SPINS {
                    if self.input.take(Waits::Not).is_ok() {
                        self.at = mono_now();
                        return true;
                    }
                    std::hint::spin_loop();
                }
                // Sleeps for half of the time that the rest of the frame takes. Each later call sleeps for half of the time then left, so the
                // thread is spinning when the last rows arrive.
                let rest = DurNs(self.pace.0.saturating_mul(self.assembly.missing() as i64));
                if !napped && rest > DurNs(2 * spin.0) {
                    sleep_until(begun + DurNs(rest.0 / 2));
                    napped = true;
                } else if mono_now() - begun > spin {
                    break;
                }
            }
        }
        let taken = self.wait != Wait::Spin && self.input.take(Waits::ForOne).is_ok();
        self.at = mono_now();
        taken
    }

    /// Waits up to the patience for the next row or the end of a frame. Real-time: as [`Input::take`], without allocation.
    pub(crate) fn next(&mut self) -> RowEvent {
        for _ in 0..LOOKS {
            // No datagram arrived. Other errors of a receiving socket are transient.
            if !self.more() && !self.take() {
                return self.end().map_or(RowEvent::Nothing, RowEvent::Over);
            }
            let (side, index) = (self.side as u32, self.index);
            self.index += 1;
            let (block, row, pixels) = match Packet::read(self.input.get(index)) {
                Ok(Packet { content: Content::Leader { width, height, .. }, .. }) => {
                    self.resized += u64::from((width, height) != (side, side));
                    continue;
                }
                Ok(Packet { content: Content::Trailer { .. }, .. }) => continue,
                Ok(Packet { block, content: Content::Payload { index, pixels } }) if pixels.len() == self.row => {
                    (block, index as usize, pixels)
                }
                _ => {
                    self.foreign += 1;
                    continue;
                }
            };
            let first = self.assembly.frame().is_none();
            match self.assembly.take(block, row) {
                RowAction::Row { last } => {
                    optics::unpack(pixels, &mut self.image[row * self.row / 2..][..self.row / 2]);
                    self.came_ns[0] = self.input.came_ns(index);
                    if first {
                        self.came_ns[1] = self.came_ns[0];
                    }
                    return RowEvent::Row { row, first, last };
                }
                RowAction::Later => {
                    self.index = index;
                    return self.end().map_or(RowEvent::Nothing, RowEvent::Over);
                }
                RowAction::Dropped => {}
            }
        }
        RowEvent::Nothing
    }
}
