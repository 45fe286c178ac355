//! The spectrum of a channel.

use crate::Capture;
use std::f64::consts::{PI, TAU};

/// Window function, which limits the leakage of signals without a whole number of periods in the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// No window.
    Rectangle,
    /// Best for frequencies.
    #[default]
    Hann,
    /// Best for amplitudes: exact to 0.01 dB, also between two lines.
    FlatTop,
}

impl Window {
    fn at(self, part: f64) -> f64 {
        let cosine = |times: f64| (TAU * times * part).cos();
        match self {
            Self::Rectangle => 1.0,
            Self::Hann => 0.5 - 0.5 * cosine(1.0),
            Self::FlatTop => {
                0.215_578_95 - 0.416_631_58 * cosine(1.0) + 0.277_263_158 * cosine(2.0) - 0.083_578_947 * cosine(3.0)
                    + 0.006_947_368 * cosine(4.0)
            }
        }
    }
}

/// Amplitudes of a channel by frequency.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    /// Hz from one line to the next.
    pub resolution: f64,
    /// The amplitude at each line, in the channel's unit. For a sine it is the peak. The first line is the mean.
    pub amplitudes: Vec<f64>,
    /// Rows used: the largest power of two available.
    pub rows: usize,
}

impl Spectrum {
    /// The line with the highest amplitude, except the mean: its frequency in Hz, interpolated from the adjacent lines, and its
    /// amplitude.
    #[must_use]
    pub fn highest(&self) -> Option<(f64, f64)> {
        let lines = self.amplitudes.iter().enumerate().skip(2);
        let (at, amplitude) = lines.max_by(|a, b| a.1.total_cmp(b.1))?;
        let beside = |index: usize| self.amplitudes.get(index).copied().unwrap_or(0.0);
        let (left, right) = (beside(at - 1), beside(at + 1));
        let weight = left + amplitude + right;
        let shift = if weight > 0.0 { (right - left) / weight } else { 0.0 };
        Some(((at as f64 + shift) * self.resolution, *amplitude))
    }
}

/// The spectrum of a channel's first rows, whose number is the largest power of two available. Assumes a distance of
/// [`Capture::step`] between rows. `None` for fewer than eight rows, or if a value is not a number.
#[must_use]
pub fn spectrum(capture: &Capture, channel: usize, window: Window) -> Option<Spectrum> {
    let values = &capture.channels.get(channel)?.values;
    let rows = 1usize << values.len().checked_ilog2()?;
    let step = capture.step()?;
    if rows < 8 || values[..rows].iter().any(|value| !value.is_finite()) {
        return None;
    }
    let weights = (0..rows).map(|k| window.at(k as f64 / rows as f64));
    let gain: f64 = weights.clone().sum();
    let mean = values[..rows].iter().sum::<f64>() / rows as f64;
    // Subtract the mean, which would leak into the adjacent lines.
    let mut points: Vec<(f64, f64)> =
        values.iter().zip(weights).map(|(v, weight)| ((v - mean) * weight, 0.0)).collect();
    fft(&mut points);
    let mut amplitudes: Vec<f64> = points[..rows / 2].iter().map(|(re, im)| 2.0 * re.hypot(*im) / gain).collect();
    amplitudes[0] = mean;
    Some(Spectrum { resolution: 1.0 / (rows as f64 * step), amplitudes, rows })
}

/// The root mean square of spectra with the same window; `None` if there are none or they differ in length.
#[must_use]
pub fn average(spectra: &[Spectrum]) -> Option<Spectrum> {
    let first = spectra.first()?;
    if spectra.iter().any(|other| other.amplitudes.len() != first.amplitudes.len()) {
        return None;
    }
    let power = |line: usize| spectra.iter().map(|one| one.amplitudes[line].powi(2)).sum::<f64>();
    let amplitudes = (0..first.amplitudes.len()).map(|line| (power(line) / spectra.len() as f64).sqrt());
    Some(Spectrum { amplitudes: amplitudes.collect(), ..first.clone() })
}

/// Transforms complex points in place (radix 2, decimation in time). Does not allocate.
///
/// # Panics
/// If their number is not a power of two.
pub fn fft(points: &mut [(f64, f64)]) {
    let count = points.len();
    assert!(count.is_power_of_two(), "{count} points: expected a power of two");
    let bits = count.ilog2();
    for index in 0..count {
        let other = index.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0);
        if index < other {
            points.swap(index, other);
        }
    }
    let mut half = 1;
    while half < count {
        for start in (0..count).step_by(2 * half) {
            for k in 0..half {
                let (sin, cos) = (-PI * k as f64 / half as f64).sin_cos();
                let (re, im) = points[start + k + half];
                let (re, im) = (re * cos - im * sin, re * sin + im * cos);
                let (a, b) = points[start + k];
                points[start + k] = (a + re, b + im);
                points[start + k + half] = (a - re, b - im);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f64, amplitude: f64) -> Capture {
        let value = |k: u32| 0.5 + amplitude * (f64::from(k) * 1e-3 * TAU * hz).cos();
        Capture::of_values("v", "V", 1e-3, (0..1100).map(value))
    }

    #[test]
    fn a_tone_has_its_frequency_and_amplitude_in_each_window() {
        for (window, hz, tolerance) in [
            (Window::Rectangle, 125.0, 1e-9),
            (Window::Hann, 125.0, 1e-9),
            (Window::FlatTop, 125.0, 1e-6),
            (Window::FlatTop, 123.4, 3e-3),
        ] {
            let found = spectrum(&tone(hz, 2.0), 0, window).unwrap();
            let (at, amplitude) = found.highest().unwrap();
            assert_eq!(found.rows, 1024);
            assert!((amplitude - 2.0).abs() < 2.0 * tolerance, "{window:?} {hz}: {amplitude}");
            assert!((at - hz).abs() < found.resolution, "{window:?} {hz}: {at}");
        }
    }

    #[test]
    fn the_transform_agrees_with_its_definition() {
        let values: Vec<f64> = (0..16).map(|k| f64::from(k * k % 7)).collect();
        let mut points: Vec<(f64, f64)> = values.iter().map(|value| (*value, 0.0)).collect();
        fft(&mut points);
        for (line, (re, im)) in points.iter().enumerate() {
            let angle = |k: usize| -TAU * (line * k) as f64 / 16.0;
            let sum = |part: fn(f64) -> f64| values.iter().enumerate().map(|(k, v)| v * part(angle(k))).sum::<f64>();
            assert!((re - sum(f64::cos)).abs() < 1e-9 && (im - sum(f64::sin)).abs() < 1e-9, "{line}");
        }
    }

    #[test]
    fn spectra_are_averaged_by_power_and_a_short_capture_has_no_spectrum() {
        let spectra: Vec<Spectrum> =
            [3.0, 4.0].iter().filter_map(|a| spectrum(&tone(125.0, *a), 0, Window::Hann)).collect();
        let (_, amplitude) = average(&spectra).unwrap().highest().unwrap();
        assert!((amplitude - 12.5f64.sqrt()).abs() < 1e-9);
        assert!(average(&[]).is_none());
        let short = Capture::of_values("v", "", 1e-3, (0..7).map(f64::from));
        assert!(
            spectrum(&short, 0, Window::Hann).is_none() && spectrum(&Capture::default(), 0, Window::Hann).is_none()
        );
    }
}
