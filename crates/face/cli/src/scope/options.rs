//! Command-line options of `tahti scope`.

use ::scope::Mode;
use base::DurNs;
use std::path::PathBuf;

/// Record variables of a real-time loop on every cycle, before and after a trigger
///
/// The loop samples the variables and evaluates the trigger; it never waits for a reader. Without variables: lists the
/// available ones. Triggers: 'VAR > 1.5 rising', 'VAR < 1 falling hysteresis 0.1', 'VAR = 0 crossing', 'VAR > 1', 'VAR
/// enters 1..2', 'VAR leaves 1..2', 'VAR changes', miss, overrun, 'pulse 4711', 'pulse % 1000 = 3', 'alarm RF:*',
/// 'message put/sr_*'.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Variables of one segment, SEGMENT/NAME; SEGMENT alone means all of them
    pub(super) variables: Vec<String>,
    /// Trigger of a capture [default: start at once]
    #[arg(long, short, value_name = "TEXT")]
    pub(super) trigger: Option<String>,
    /// Alarm server of a trigger 'alarm …'
    #[arg(long, value_name = "NAME", default_value = "alarms", env = "TAHTI_ALARMS")]
    pub(super) alarms: String,
    /// Message server of a trigger 'message …'
    #[arg(long, value_name = "NAME", default_value = "main", env = "TAHTI_MESSAGES")]
    pub(super) messages: String,
    /// Share of a capture before its trigger
    #[arg(long, default_value = "30%", value_parser = percent)]
    pub(super) pre: f64,
    /// Number of rows of a capture
    #[arg(long, default_value_t = 1000, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(2..))]
    pub(super) length: u64,
    /// Record every N-th cycle; the trigger is evaluated in every cycle
    #[arg(long, default_value_t = 1, value_name = "CYCLES", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) every: u64,
    /// Stop after one capture (default)
    #[arg(long, group = "modes")]
    pub(super) single: bool,
    /// Capture at each trigger
    #[arg(long, group = "modes")]
    pub(super) normal: bool,
    /// As --normal, but start a capture if the trigger does not occur
    #[arg(long, group = "modes")]
    pub(super) auto: bool,
    /// Show the newest rows continuously, without captures
    #[arg(long, group = "modes")]
    pub(super) roll: bool,
    /// Stop after this number of captures
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) captures: Option<u64>,
    /// Number of captures kept in the process of the loop
    #[arg(long, default_value_t = 4, value_name = "NUMBER")]
    pub(super) keep: usize,
    /// Cycles after a trigger in which further triggers are ignored
    #[arg(long, default_value_t = 0, value_name = "CYCLES")]
    pub(super) holdoff: u64,
    /// Timeout
    #[arg(long, value_name = "TIME")]
    pub(super) within: Option<DurNs>,
    /// Start the recording and exit
    #[arg(long, group = "acts")]
    pub(super) detach: bool,
    /// Show the captures of a detached recording
    #[arg(long, group = "acts")]
    pub(super) fetch: bool,
    /// Start a capture now
    #[arg(long, group = "acts")]
    pub(super) force: bool,
    /// Stop sampling
    #[arg(long, group = "acts")]
    pub(super) stop: bool,
    /// Show the spectrum of each variable
    #[arg(long)]
    pub(super) fft: bool,
    /// Window function of the spectrum
    #[arg(long, value_enum, default_value = "hann")]
    pub(super) window: Window,
    /// Two times relative to the trigger, such as -10ms..5ms: print values and differences
    #[arg(long, value_name = "A..B", allow_hyphen_values = true, value_parser = read_span)]
    pub(super) cursors: Option<(f64, f64)>,
    /// Draw only the time between A and B, relative to the trigger
    #[arg(long, value_name = "A..B", allow_hyphen_values = true, value_parser = read_span)]
    pub(super) zoom: Option<(f64, f64)>,
    /// Do not draw
    #[arg(long)]
    pub(super) no_plot: bool,
    /// Write each capture to a file: .csv, .npy or .json
    #[arg(long, value_name = "FILE")]
    pub(super) export: Vec<PathBuf>,
    /// Show a capture from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["variables", "trigger", "modes", "acts"])]
    pub(super) open: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Window {
    Rectangle,
    Hann,
    FlatTop,
}

impl Args {
    pub(super) const fn mode(&self) -> Mode {
        match (self.roll, self.auto, self.normal) {
            (true, ..) => Mode::Roll,
            (_, true, _) => Mode::Auto,
            (.., true) => Mode::Normal,
            _ => Mode::Single,
        }
    }
}

/// Parses a percentage, such as `30%`, as a share from 0 to 1.
fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.strip_suffix('%').and_then(|text| text.parse::<f64>().ok());
    number.filter(|part| (0.0..=100.0).contains(part)).map(|part| part / 100.0).ok_or("expected 0% to 100%")
}

/// Parses a span of two times, such as `-10ms..5ms`. Returns seconds.
pub(super) fn read_span(text: &str) -> Result<(f64, f64), &'static str> {
    const EXPECTED: &str = "expected two times, such as -10ms..5ms";
    let time = |text: &str| {
        let (sign, size) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        if size == "0" {
            Ok(0.0)
        } else {
            size.parse().map(|time: DurNs| sign * time.0 as f64 / 1e9).map_err(|_| EXPECTED)
        }
    };
    let (one, two) = text.split_once("..").ok_or(EXPECTED)?;
    Ok((time(one)?, time(two)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_spans_are_parsed_in_their_common_forms() {
        assert_eq!((percent("30%"), percent("0%")), (Ok(0.3), Ok(0.0)));
        assert!(percent("30").is_err() && percent("-1%").is_err() && percent("101%").is_err());
        assert_eq!(read_span("-10ms..5ms"), Ok((-0.01, 0.005)));
        assert_eq!(read_span("0..1s"), Ok((0.0, 1.0)));
        assert!(read_span("1ms").is_err() && read_span("a..b").is_err());
    }
}
