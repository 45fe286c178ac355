//! Filters without feedback.

use super::{BadFilter, Real, filled, kept, load, store};
use crate::level::wide::{Wide, at};
use crate::{Level, Misfit};

/// Registers summed at once, so that additions do not wait for each other.
const GROUP: usize = 4;

/// One filter for each of many channels: `y = Σ tap[k]·x[now − k]`, summed from the newest input on. A step neither allocates nor blocks, and
/// its duration does not depend on the values.
///
/// **Error** of `n` taps against exact arithmetic on the stored numbers, with unit roundoff `u`: at most `n·u/(1 − n·u)·Σ|tap||x| + (1 +
/// Σ|tap|)·TINY`.
#[derive(Clone, Debug)]
pub struct Fir<T> {
    channels: usize,
    /// Tap by tap, for all channels.
    taps: Vec<T>,
    /// Ring of inputs, each for all channels. Has one more than there are taps, so that a step does not overwrite an input that the previous
    /// one used.
    inputs: Vec<T>,
    /// Index of the newest input. The one behind it is the previous one.
    newest: usize,
    may_take_back: bool,
}

impl<T: Real> Fir<T> {
    /// The same taps for `channels` channels, that of the newest input first, with zeros as previous inputs. Allocates.
    ///
    /// # Errors
    /// There are no channels or no taps, or a tap is not finite.
    pub fn new(channels: usize, taps: &[T]) -> Result<Self, BadFilter>
    where
        f64: From<T>,
    {
        if channels == 0 {
            return Err(BadFilter::Empty("channels"));
        }
        if taps.is_empty() {
            return Err(BadFilter::Empty("taps"));
        }
        let stride = filled(channels);
        let mut this = Self {
            channels,
            taps: vec![T::default(); taps.len() * stride],
            inputs: vec![T::default(); (taps.len() + 1) * stride],
            newest: 0,
            may_take_back: false,
        };
        for channel in 0..channels {
            this.set(channel, taps)?;
        }
        Ok(this)
    }

    /// Sets the taps of one channel; their number is the same for all channels. Does not allocate, so it may be called between two steps.
    ///
    /// # Errors
    /// The channel does not exist, the number of taps differs, or a tap is not finite. Nothing was changed.
    pub fn set(&mut self, channel: usize, taps: &[T]) -> Result<(), BadFilter>
    where
        f64: From<T>,
    {
        if channel >= self.channels {
            return Err(BadFilter::Beyond { what: "channel", found: channel, of: self.channels });
        }
        if taps.len() != self.taps() {
            return Err(BadFilter::Beyond { what: "tap", found: taps.len(), of: self.taps() });
        }
        if let Some((part, value)) = taps.iter().copied().enumerate().find(|(_, tap)| !tap.bounded()) {
            return Err(BadFilter::Coefficient { part, value: value.into() });
        }
        let stride = filled(self.channels);
        for (number, tap) in taps.iter().enumerate() {
            self.taps[number * stride + channel] = *tap;
        }
        Ok(())
    }

    /// Number of channels.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// Number of taps of each channel.
    #[must_use]
    pub fn taps(&self) -> usize {
        self.taps.len() / filled(self.channels)
    }

    /// Filters one number of each channel. Returns the number of channels with a non-finite input or result, which is replaced by 0.
    ///
    /// # Errors
    /// `x` or `y` does not have one element per channel. Nothing was written.
    pub fn step(&mut self, level: Level, x: &[T], y: &mut [T]) -> Result<usize, Misfit> {
        Misfit::check("elements of the input", x.len(), self.channels)?;
        Misfit::check("elements of the output", y.len(), self.channels)?;
        let stride = filled(self.channels);
        self.newest = self.newest.checked_sub(1).unwrap_or(self.taps());
        let unbounded =
            at(level, Step { taps: &self.taps, inputs: &mut self.inputs, newest: self.newest, stride, x, y });
        self.may_take_back = true;
        Ok(unbounded)
    }

    /// Undoes the last step. Only one step can be undone; returns false if none can.
    pub fn take_back(&mut self) -> bool {
        let may = std::mem::take(&mut self.may_take_back);
        if may {
            self.newest = if self.newest == self.taps() { 0 } else { self.newest + 1 };
        }
        may
    }

    /// Sets all previous inputs to zero.
    pub fn reset(&mut self) {
        self.inputs.fill(T::default());
        self.may_take_back = false;
    }
}

struct Step<'a, T> {
    taps: &'a [T],
    inputs: &'a mut [T],
    newest: usize,
    stride: usize,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Wide for Step<'_, T> {
    type Output = usize;

    #[inline(always)]
    fn with<const N: usize>(self) -> usize {
        let Self { taps, inputs, newest, stride, x, y } = self;
        let mut unbounded = 0;
        let row = &mut inputs[newest * stride..][..stride];
        for begin in (0..x.len()).step_by(N) {
            let given: [T; N] = load(x, begin);
            unbounded += given.into_iter().filter(|number| !number.bounded()).count();
            store(given.map(kept), row, begin);
        }
        // The ring as two slices, the newest inputs first.
        let (older, newer) = inputs.split_at(newest * stride);
        let mut begin = 0;
        while begin < x.len() {
            let many = if x.len() - begin >= GROUP * N { GROUP } else { 1 };
            unbounded += match many {
                GROUP => sums::<T, N, GROUP>(taps, [newer, older], (stride, begin), x, y),
                _ => sums::<T, N, 1>(taps, [newer, older], (stride, begin), x, y),
            };
            begin += many * N;
        }
        unbounded
    }
}

/// Sums of `G` registers of channels. Returns the number of non-finite sums among channels with a finite input.
#[inline(always)]
fn sums<T: Real, const N: usize, const G: usize>(
    taps: &[T],
    stretches: [&[T]; 2],
    (stride, begin): (usize, usize),
    x: &[T],
    y: &mut [T],
) -> usize {
    let mut sums = [[T::default(); N]; G];
    let inputs = stretches.into_iter().flat_map(|stretch| stretch.chunks_exact(stride));
    for (taps, inputs) in taps.chunks_exact(stride).zip(inputs) {
        for (register, sum) in sums.iter_mut().enumerate() {
            let at = begin + register * N;
            let (tap, input): ([T; N], [T; N]) = (load(taps, at), load(inputs, at));
            *sum = std::array::from_fn(|lane| sum[lane] + tap[lane] * input[lane]);
        }
    }
    let mut unbounded = 0;
    for (register, sum) in sums.into_iter().enumerate() {
        let at = begin + register * N;
        let given: [T; N] = load(x, at);
        unbounded += (0..N).filter(|lane| given[*lane].bounded() && !sum[*lane].bounded()).count();
        store(sum.map(kept), y, at);
    }
    unbounded
}
