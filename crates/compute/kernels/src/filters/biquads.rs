//! Filters with feedback: cascaded second-order sections.

use super::{BadFilter, Real, filled, kept, load, store};
use crate::level::wide::{Wide, at};
use crate::{Level, Misfit};

/// A section: `y = b0·x + s1`, then `s1 = (b1·x − a1·y) + s2` and `s2 = b2·x − a2·y` (transposed direct form II).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section<T> {
    /// Coefficients of the input: present, previous, the one before.
    pub b: [T; 3],
    /// Coefficients of the output: previous, the one before. That of the present output is 1.
    pub a: [T; 2],
}

/// Coefficients of a section in memory: b0, b1, b2, a1, a2, each for all channels.
const COEFFICIENTS: usize = 5;
/// State variables of a section.
const STATES: usize = 2;

/// One filter for each of many channels. A step neither allocates nor blocks, and its duration does not depend on the values.
///
/// **Error** of a step against exact arithmetic on the stored numbers, for given input and states of the section, with unit roundoff `u`:
/// `2u/(1 − 2u)·(|b0·x| + |s1|) + TINY` for the output; `3u/(1 − 3u)` times the magnitudes of the terms, plus `TINY`, for a state.
///
/// ```
/// use kernels::{Biquads, Level, Section};
///
/// // A leaky average of each of 1000 channels: y = 0.1·x + 0.9·y.
/// let mut filters = Biquads::new(1000, &[Section { b: [0.1f32, 0.0, 0.0], a: [-0.9, 0.0] }])?;
/// let (x, mut y) = (vec![1.0; 1000], vec![0.0; 1000]);
/// let level = Level::best();
/// filters.step(level, &x, &mut y)?;
/// filters.step(level, &x, &mut y)?;
/// assert!((y[999] - 0.19).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Biquads<T> {
    channels: usize,
    /// Ordered by section.
    coefficients: Vec<T>,
    /// Ordered by section: before and after the last step.
    states: [Vec<T>; 2],
    /// Index of the states after the last step.
    now: usize,
    may_take_back: bool,
}

impl<T: Real> Biquads<T> {
    /// The same sections for `channels` channels, with zero state. Allocates.
    ///
    /// # Errors
    /// There are no channels or no sections, or a coefficient is not finite.
    pub fn new(channels: usize, sections: &[Section<T>]) -> Result<Self, BadFilter>
    where
        f64: From<T>,
    {
        if channels == 0 {
            return Err(BadFilter::Empty("channels"));
        }
        if sections.is_empty() {
            return Err(BadFilter::Empty("sections"));
        }
        let states = vec![T::default(); sections.len() * STATES * filled(channels)];
        let coefficients = vec![T::default(); sections.len() * COEFFICIENTS * filled(channels)];
        let mut this = Self { channels, coefficients, states: [states.clone(), states], now: 0, may_take_back: false };
        for channel in 0..channels {
            this.set(channel, sections)?;
        }
        Ok(this)
    }

    /// Sets the sections of one channel; their number is the same for all channels. The states stay. Does not allocate, so it may be called
    /// between two steps.
    ///
    /// # Errors
    /// The channel does not exist, the number of sections differs, or a coefficient is not finite. Nothing was changed.
    pub fn set(&mut self, channel: usize, sections: &[Section<T>]) -> Result<(), BadFilter>
    where
        f64: From<T>,
    {
        if channel >= self.channels {
            return Err(BadFilter::Beyond { what: "channel", found: channel, of: self.channels });
        }
        if sections.len() != self.sections() {
            return Err(BadFilter::Beyond { what: "section", found: sections.len(), of: self.sections() });
        }
        let of = |section: &Section<T>| {
            let ([b0, b1, b2], [a1, a2]) = (section.b, section.a);
            [b0, b1, b2, a1, a2]
        };
        for (part, section) in sections.iter().enumerate() {
            if let Some(value) = of(section).into_iter().find(|value| !value.bounded()) {
                return Err(BadFilter::Coefficient { part, value: value.into() });
            }
        }
        let stride = filled(self.channels);
        for (part, section) in sections.iter().enumerate() {
            for (number, value) in of(section).into_iter().enumerate() {
                self.coefficients[(part * COEFFICIENTS + number) * stride + channel] = value;
            }
        }
        Ok(())
    }

    /// Number of channels.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// Number of sections of each channel.
    #[must_use]
    pub fn sections(&self) -> usize {
        self.states[0].len() / (STATES * filled(self.channels))
    }

    /// The two states of a channel's section; `None` if it does not exist.
    #[must_use]
    pub fn states(&self, channel: usize, section: usize) -> Option<[T; 2]> {
        let there = channel < self.channels && section < self.sections();
        let stride = filled(self.channels);
        let of = |state: usize| self.states[self.now][(section * STATES + state) * stride + channel];
        there.then(|| [of(0), of(1)])
    }

    /// Filters one number of each channel. Returns the number of channels with a non-finite input or result, which is replaced by 0.
    ///
    /// # Errors
    /// `x` or `y` does not have one element per channel. Nothing was written.
    pub fn step(&mut self, level: Level, x: &[T], y: &mut [T]) -> Result<usize, Misfit> {
        Misfit::check("elements of the input", x.len(), self.channels)?;
        Misfit::check("elements of the output", y.len(), self.channels)?;
        let (first, second) = self.states.split_at_mut(1);
        let (from, to) = if self.now == 0 { (&first[0], &mut second[0]) } else { (&second[0], &mut first[0]) };
        let unbounded = at(level, Step { coefficients: &self.coefficients, from, to, x, y });
        self.now = 1 - self.now;
        self.may_take_back = true;
        Ok(unbounded)
    }

    /// Undoes the last step. Only one step can be undone; returns false if none can.
    pub fn take_back(&mut self) -> bool {
        let may = std::mem::take(&mut self.may_take_back);
        if may {
            self.now = 1 - self.now;
        }
        may
    }

    /// Sets the states of all channels to zero.
    pub fn reset(&mut self) {
        self.states[self.now].fill(T::default());
        self.may_take_back = false;
    }
}

struct Step<'a, T> {
    coefficients: &'a [T],
    from: &'a [T],
    to: &'a mut [T],
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Wide for Step<'_, T> {
    type Output = usize;

    #[inline(always)]
    fn with<const N: usize>(self) -> usize {
        let Self { coefficients, from, to, x, y } = self;
        let stride = filled(x.len());
        let mut unbounded = 0;
        for begin in (0..x.len()).step_by(N) {
            let given: [T; N] = load(x, begin);
            let mut fine: [bool; N] = given.map(T::bounded);
            let mut x = given.map(kept);
            let sections = coefficients.chunks_exact(COEFFICIENTS * stride);
            let states = from.chunks_exact(STATES * stride).zip(to.chunks_exact_mut(STATES * stride));
            for (coefficients, (from, to)) in sections.zip(states) {
                let of = |number: usize| load::<T, N>(coefficients, number * stride + begin);
                let ([b0, b1, b2], [a1, a2]) = ([of(0), of(1), of(2)], [of(3), of(4)]);
                let (s1, s2): ([T; N], [T; N]) = (load(from, begin), load(from, stride + begin));
                let sum: [T; N] = std::array::from_fn(|lane| b0[lane] * x[lane] + s1[lane]);
                fine = std::array::from_fn(|lane| fine[lane] & sum[lane].bounded());
                let y = sum.map(kept);
                let next: [T; N] = std::array::from_fn(|lane| (b1[lane] * x[lane] - a1[lane] * y[lane]) + s2[lane]);
                let last: [T; N] = std::array::from_fn(|lane| b2[lane] * x[lane] - a2[lane] * y[lane]);
                fine = std::array::from_fn(|lane| fine[lane] & next[lane].bounded() & last[lane].bounded());
                store(next.map(kept), to, begin);
                store(last.map(kept), to, stride + begin);
                x = y;
            }
            // All numbers beyond the last channel are zero.
            unbounded += fine.into_iter().filter(|fine| !fine).count();
            store(x, y, begin);
        }
        unbounded
    }
}
