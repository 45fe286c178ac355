//! Measurements of a trace.

use crate::Capture;

/// Measurements of a channel over a capture. Values that are not numbers are excluded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Values that are numbers.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The root of the mean square.
    pub rms: f64,
    /// Frequency in Hz, from the first to the last rise through the middle between minimum and maximum; `None`
    /// for fewer than two rises.
    pub frequency: Option<f64>,
}

impl Measured {
    /// Largest minus smallest value.
    #[must_use]
    pub fn peak_to_peak(&self) -> f64 {
        self.max - self.min
    }
}

/// Measures a channel; `None` if it has no numbers.
#[must_use]
pub fn measure(capture: &Capture, channel: usize) -> Option<Measured> {
    let values = &capture.channels.get(channel)?.values;
    let numbers = || values.iter().copied().filter(|value| value.is_finite());
    let count = numbers().count();
    let of = count as f64;
    let mean = numbers().sum::<f64>() / of;
    let rms = (numbers().map(|value| value * value).sum::<f64>() / of).sqrt();
    let (min, max) = numbers().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), v| (min.min(v), max.max(v)));
    let frequency = frequency(&capture.seconds(), values, min, max);
    (count > 0).then_some(Measured { count, min, max, mean, rms, frequency })
}

/// Frequency of the crossings through the middle, in Hz. A hysteresis of a tenth of the height rejects noise.
fn frequency(seconds: &[f64], values: &[f64], min: f64, max: f64) -> Option<f64> {
    let (middle, guard) = (f64::midpoint(min, max), (max - min) / 10.0);
    let (mut below, mut crossings, mut first, mut last) = (false, 0u32, 0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        if *value < middle - guard {
            below = true;
        } else if below && *value >= middle && index > 0 {
            below = false;
            let before = values[index - 1];
            // Between two rows: the point at which the line through them crosses.
            let part = if *value > before { (middle - before) / (value - before) } else { 1.0 };
            last = seconds[index - 1] + (seconds[index] - seconds[index - 1]) * part.clamp(0.0, 1.0);
            first = if crossings == 0 { last } else { first };
            crossings += 1;
        }
    }
    (crossings >= 2 && last > first).then(|| f64::from(crossings - 1) / (last - first))
}

/// Two places in a capture, and a channel's values there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cursors {
    /// Seconds from the trigger.
    pub seconds: (f64, f64),
    /// Pulse numbers.
    pub pulses: (u64, u64),
    /// Values.
    pub values: (f64, f64),
}

impl Cursors {
    /// Seconds from the first cursor to the second.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.seconds.1 - self.seconds.0
    }

    /// Second value minus first.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.values.1 - self.values.0
    }
}

/// Places two cursors on the rows nearest to two times, in seconds from the trigger; `None` without such a channel or
/// without rows.
#[must_use]
pub fn cursors(capture: &Capture, channel: usize, at: (f64, f64)) -> Option<Cursors> {
    let seconds = capture.seconds();
    let values = &capture.channels.get(channel)?.values;
    let nearest = |wanted: f64| {
        let off = |index: &usize| (seconds[*index] - wanted).abs();
        (0..seconds.len()).min_by(|a, b| off(a).total_cmp(&off(b)))
    };
    let (one, two) = (nearest(at.0)?, nearest(at.1)?);
    Some(Cursors {
        seconds: (seconds[one], seconds[two]),
        pulses: (capture.pulses[one], capture.pulses[two]),
        values: (values[one], values[two]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sine_has_its_theoretical_measurements() {
        let sine = (0..1000).map(|k| 1.0 + 2.0 * (f64::from(k) * 1e-3 * std::f64::consts::TAU * 50.0).sin());
        let capture = Capture::of_values("v", "V", 1e-3, sine);
        let found = measure(&capture, 0).unwrap();
        assert!((found.mean - 1.0).abs() < 1e-9 && (found.peak_to_peak() - 4.0).abs() < 1e-9, "{found:?}");
        assert!((found.rms - 3f64.sqrt()).abs() < 1e-9 && (found.frequency.unwrap() - 50.0).abs() < 1e-6, "{found:?}");
        let two = cursors(&capture, 0, (0.005, 0.0149)).unwrap();
        assert!((two.time() - 0.01).abs() < 1e-12 && (two.difference() + 4.0).abs() < 1e-9, "{two:?}");
        assert_eq!(two.pulses, (5, 15));
    }

    #[test]
    fn nan_is_excluded_from_measurements_and_an_empty_capture_has_none() {
        let capture = Capture::of_values("v", "", 1e-3, [f64::NAN, 1.0, 1.0].into_iter());
        let found = measure(&capture, 0).unwrap();
        assert_eq!((found.count, found.min, found.frequency), (2, 1.0, None));
        assert!(measure(&Capture::of_values("v", "", 1e-3, std::iter::empty()), 0).is_none());
        assert!(measure(&capture, 1).is_none() && cursors(&capture, 1, (0.0, 1.0)).is_none());
    }
}
