//! Simulated counters: a clock and signals of constant rates.

use base::MonoNs;

/// Number of channels that a record has.
pub(crate) const CHANNELS: usize = 64;
/// Number of channels without an address.
const DEFAULT_CHANNELS: usize = 8;
/// Rate of a channel that the address does not list, per second.
const DEFAULT_RATE: f64 = 1_000.0;
/// Part of a count, and time in seconds, that rounding may have lost.
const ROUNDING: f64 = 1e-6;
const SLACK: f64 = 1e-8;

/// Counters that start and stop together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Counts per second of each channel. The first is the clock.
    rates: Vec<f64>,
    /// Start of the count in progress.
    started: Option<MonoNs>,
    /// Duration of the last count in seconds.
    lasted: f64,
    /// Time in seconds after which a preset is reached.
    limit: f64,
}

/// An address that is none of counters.
#[derive(Debug, thiserror::Error)]
#[error("found \"{0}\", expected \"@CHANNELS RATE2 RATE3 …\" with 1 to {CHANNELS} channels and counts per second")]
pub(crate) struct BadCounters(String);

impl Counters {
    /// Counters with an address such as `@16 500 20`: the number of channels, and the counts per second of channels 2, 3, ….
    pub(crate) fn new(address: &str) -> Result<Self, BadCounters> {
        let mut words = address.trim().trim_start_matches('@').split_whitespace();
        let wrong = || BadCounters(address.to_owned());
        let channels = words.next().map_or(Ok(DEFAULT_CHANNELS), str::parse).map_err(|_| wrong())?;
        let mut rates = vec![DEFAULT_RATE; channels.min(CHANNELS)];
        let given: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        if channels == 0
            || channels > CHANNELS
            || given.len() >= channels
            || given.iter().any(|rate| !(0.0..1e12).contains(rate))
        {
            return Err(wrong());
        }
        rates[1..=given.len()].copy_from_slice(&given);
        Ok(Self { rates, ..Self::default() })
    }

    /// Number of channels.
    pub(crate) const fn channels(&self) -> usize {
        self.rates.len()
    }

    /// Clears the counters and starts them. They stop when a channel reaches its preset, if it has one. `clock` is the rate of
    /// the first channel.
    pub(crate) fn start(&mut self, now: MonoNs, clock: f64, presets: impl Fn(usize) -> Option<u32>) {
        if let Some(rate) = self.rates.first_mut() {
            *rate = clock.max(0.0);
        }
        let times = self.rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
        let times = times.filter_map(|(channel, rate)| presets(channel).map(|preset| f64::from(preset) / rate));
        (self.limit, self.started) = (times.fold(f64::INFINITY, f64::min), Some(now));
    }

    /// Duration of the count in seconds.
    fn duration(&self, now: MonoNs) -> f64 {
        self.started.map_or(self.lasted, |started| (now.0.saturating_sub(started.0) as f64 / 1e9).min(self.limit))
    }

    /// Stops the counters.
    pub(crate) fn stop(&mut self, now: MonoNs) {
        self.lasted = if self.is_over(now) { self.limit } else { self.duration(now) };
        self.started = None;
    }

    /// Whether a preset is reached.
    pub(crate) fn is_over(&self, now: MonoNs) -> bool {
        self.time_left(now) < SLACK
    }

    /// Time in seconds until a preset is reached; infinite without presets.
    pub(crate) fn time_left(&self, now: MonoNs) -> f64 {
        self.limit - self.duration(now)
    }

    /// Counts of a channel.
    pub(crate) fn read(&self, channel: usize, now: MonoNs) -> u32 {
        // A counter has 32 bits.
        (self.rates[channel] * self.duration(now) + ROUNDING) as u64 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_count_until_the_first_preset_is_reached() {
        let mut counters = Counters::new("@3 500").unwrap();
        counters.start(MonoNs(0), 1e6, |channel| [Some(5_000_000), Some(1_000), None][channel]);
        let read = |counters: &Counters, seconds: u64| {
            [0, 1, 2].map(|channel| counters.read(channel, MonoNs(seconds * 1_000_000_000)))
        };
        assert_eq!(counters.time_left(MonoNs(0)), 2.0, "1,000 counts at 500 per second");
        assert_eq!(read(&counters, 1), [1_000_000, 500, 1_000]);
        assert_eq!(read(&counters, 9), [2_000_000, 1_000, 2_000]);
        counters.stop(MonoNs(1_000_000_000));
        assert_eq!(read(&counters, 9), [1_000_000, 500, 1_000]);
    }

    #[test]
    fn an_address_with_a_wrong_number_is_refused() {
        for wrong in ["@0", "@65", "@x", "@2 1 2", "@4 -1", "@4 nan"] {
            assert!(Counters::new(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Counters::new("@").unwrap().channels(), 8);
        assert_eq!(Counters::new("@64").unwrap().channels(), 64);
    }
}
