//! Pixels that come as datagrams, row by row, in whatever order and with whatever missing.

use crate::error::Error;
use crate::input::Input;
use base::{DurNs, MonoNs};
use optics::gvsp::{Content, Packet};
use optics::{Assembly, Geometry, Taken, Whole};
use rt::Wait;
use sys::clock::{mono_now, sleep_until};
use sys::datagrams::Waits;

/// Datagrams that are looked at before the caller may see whether it is to end.
const LOOKS: usize = 4096;
/// Looks at the socket between two readings of the clock.
const SPINS: usize = 16;

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// A row, which is in the image; whether it is the frame's first, and whether its last.
    Row { row: usize, first: bool, last: bool },
    /// The frame that had begun is over without all of its rows.
    Over(Whole),
    /// Nothing.
    Nothing,
}

/// The end of the wire: where datagrams come from, the frame that comes, and its image.
#[derive(Debug)]
pub struct Pixels {
    input: Input,
    /// The datagram that is looked at next.
    index: usize,
    /// When those that were taken were in hand.
    at: MonoNs,
    /// When the newest row came, in nanoseconds of the input's clock, where it says so; and that of the frame's first.
    came_ns: [Option<u64>; 2],
    /// From row to row, by the frame before.
    pace: DurNs,
    wait: Wait,
    side: usize,
    row: usize,
    assembly: Assembly,
    image: Vec<u16>,
    /// Datagrams that are no pixels of this camera.
    foreign: u64,
    /// Images of another size that were announced.
    resized: u64,
    patience: DurNs,
}

impl Pixels {
    /// Takes datagrams from here; a frame of which nothing has come for the input's patience is over.
    ///
    /// How the thread waits: asleep for each datagram; spinning; or both: asleep between frames and while much of one is to come, spinning
    /// at its end and for so long wherever it waits for a row.
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

    /// Where they come from.
    #[must_use]
    pub const fn input(&self) -> &Input {
        &self.input
    }

    /// The image; rows that did not come are of before.
    #[must_use]
    pub fn image(&self) -> &[u16] {
        &self.image
    }

    /// Exchanges the image for another of its size: whoever has it is to bring it back before the next row.
    pub(crate) fn lend(&mut self, other: &mut Vec<u16>) {
        std::mem::swap(&mut self.image, other);
    }

    /// The frame that comes, and what was counted.
    #[must_use]
    pub const fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// When the newest row came: by the kernel, where it says so. Real-time: two readings of clocks.
    pub(crate) fn came(&self) -> MonoNs {
        self.came_ns[0].and_then(|came| self.input.at(came)).map_or(self.at, |came| came.min(self.at))
    }

    /// Takes what has come as for a frame, looks at none of it, and says how many: for who measures what the taking costs. Real-time: a
    /// system call for up to 16 datagrams, and one that finds none.
    pub fn discard(&mut self) -> usize {
        let mut all = 0;
        while let Ok(there) = self.input.take(Waits::Not) {
            all += there;
        }
        self.index = self.input.there();
        all
    }

    /// Datagrams that were no pixels of this camera.
    #[must_use]
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Images of another size that the camera announced: it reads another region of its detector. Their pixels count as foreign.
    #[must_use]
    pub const fn resized(&self) -> u64 {
        self.resized
    }

    /// Why no whole frame came for `while_`.
    pub(crate) fn absent(&self, while_: DurNs) -> Error {
        match self.resized {
            0 => self.input.silent(while_),
            images => Error::Resized { images, side: self.side },
        }
    }

    /// Whether more datagrams are in hand: the next row comes without waiting.
    pub(crate) fn more(&self) -> bool {
        self.index < self.input.there()
    }

    /// Forgets what came before now, up to the end of a frame.
    pub(crate) fn restart(&mut self) {
        let now = mono_now();
        let mut over = false;
        for _ in 0..LOOKS {
            if over || self.input.take(Waits::ForOne).is_err() {
                break;
            }
            // What waited for us came faster than a frame's rest does.
            over = mono_now() - now > self.patience && (0..self.input.there()).any(|index| self.is_trailer(index));
        }
        self.assembly.restart();
        (self.index, self.foreign, self.resized) = (self.input.there(), 0, 0);
    }

    fn is_trailer(&self, index: usize) -> bool {
        matches!(Packet::read(self.input.get(index)), Ok(Packet { content: Content::Trailer { .. }, .. }))
    }

    /// Ends the frame of which the last row has come.
    pub(crate) fn end(&mut self) -> Option<Whole> {
        let rows = self.assembly.seen().len() as i64;
        if let [Some(last), Some(first)] = self.came_ns {
            self.pace = DurNs((last.saturating_sub(first) as i64 / (rows - 1).max(1)).clamp(0, self.patience.0));
        }
        self.assembly.end()
    }

    /// Takes what has come, waiting for it for the patience at most; whether there was anything.
    fn take(&mut self) -> bool {
        self.index = 0;
        let spin = match self.wait {
            Wait::Sleep => DurNs::ZERO,
            Wait::Spin => self.patience,
            // Between frames it sleeps.
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
                // Half of the time that the rest of the frame takes, then half of what is left, and so on: the last rows find it spinning.
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

    /// Waits for the next row, or the end of a frame, for the patience at most. Real-time: what [`Input::take`] does, no allocation.
    pub(crate) fn next(&mut self) -> Got {
        for _ in 0..LOOKS {
            // Nothing came; what else a receiving socket may say passes.
            if !self.more() && !self.take() {
                return self.end().map_or(Got::Nothing, Got::Over);
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
                Taken::Row { last } => {
                    optics::unpack(pixels, &mut self.image[row * self.row / 2..][..self.row / 2]);
                    self.came_ns[0] = self.input.came_ns(index);
                    if first {
                        self.came_ns[1] = self.came_ns[0];
                    }
                    return Got::Row { row, first, last };
                }
                Taken::Later => {
                    self.index = index;
                    return self.end().map_or(Got::Nothing, Got::Over);
                }
                Taken::Dropped => {}
            }
        }
        Got::Nothing
    }
}
