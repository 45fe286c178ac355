//! Progress of long operations, and their interruption with Ctrl-C.
//!
//! On a terminal, a line of standard error shows the progress and the time left. Elsewhere, `--progress` prints such a
//! line every 10 s.
//! SIGINT does not end the process: [`Progress::step`] returns false, and the operation ends at a point where all files
//! are complete.

use crate::failure::Failure;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};
use sys::signal::{SIGINT, SignalFd};

/// Exit status of an interrupted operation, the same as that of shells for SIGINT.
const INTERRUPTED: u8 = 130;

/// Interval between checks for SIGINT.
const CHECK: Duration = Duration::from_millis(50);

/// Interval between updates of the line on a terminal.
const UPDATE: Duration = Duration::from_millis(200);

/// Interval between printed lines if standard error is no terminal.
const LINE: Duration = Duration::from_secs(10);

/// Minimum time before the time left is estimated. An earlier estimate would be unreliable.
const GUESS: Duration = Duration::from_secs(1);

/// The option of long work.
#[derive(clap::Args)]
pub(crate) struct ProgressArgs {
    /// Print the progress every 10 s also if standard error is no terminal
    #[arg(long)]
    progress: bool,
}

/// Where progress is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// In one line that is overwritten.
    Live,
    Lines,
    Nowhere,
}

/// Progress of a long operation of this process.
pub(crate) struct Progress {
    signals: SignalFd,
    shown: Shown,
    begun: Instant,
    /// Time of the next check for SIGINT.
    check: Instant,
    /// Time of the next progress line.
    line: Instant,
    has_line: bool,
    is_interrupted: bool,
}

impl Progress {
    /// Starts: from now on SIGINT does not end the process.
    ///
    /// # Errors
    /// If the kernel refuses the signal descriptor.
    pub(crate) fn begin(args: &ProgressArgs) -> Result<Self, Failure> {
        let shown = match stderr().is_terminal() && !crate::out::is_dumb() {
            true => Shown::Live,
            false if args.progress => Shown::Lines,
            false => Shown::Nowhere,
        };
        let now = Instant::now();
        let every = if shown == Shown::Live { UPDATE } else { LINE };
        Ok(Self {
            signals: SignalFd::new(&[SIGINT])?,
            shown,
            begun: now,
            check: now,
            line: now + every,
            has_line: false,
            is_interrupted: false,
        })
    }

    /// Prints the progress: a share from 0 to 1 if known, and a text. Returns false once SIGINT has arrived. Only reads
    /// the clock, unless a check or an update is due.
    pub(crate) fn step(&mut self, share: Option<f64>, done: impl FnOnce() -> String) -> bool {
        let now = Instant::now();
        if now < self.check {
            return !self.is_interrupted;
        }
        self.check = now + CHECK;
        // If this descriptor fails, Ctrl-C has no effect. The operation itself is not affected.
        self.is_interrupted |= matches!(self.signals.read(), Ok(Some(_)));
        if now >= self.line && self.shown != Shown::Nowhere && !self.is_interrupted {
            self.print(&line(share, now - self.begun, &done()));
            self.line = now + if self.shown == Shown::Live { UPDATE } else { LINE };
        }
        !self.is_interrupted
    }

    /// Whether SIGINT has arrived, including since the last step.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        self.check = Instant::now();
        !self.step(None, String::new)
    }

    fn print(&mut self, line: &str) {
        // If standard error takes no output, the operation continues.
        let _ = match self.shown {
            Shown::Live => write!(stderr(), "\r\x1b[K{line}"),
            _ => writeln!(stderr(), "tahti: {line}"),
        };
        self.has_line = self.shown == Shown::Live;
    }

    /// Removes the line. Call before other output.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.has_line) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The error of an interrupted operation: what was done, and how to continue.
pub(crate) fn interrupted(done: &str, remedy: &str) -> Failure {
    Failure::from(format!("interrupted: {done}\n  try: {remedy}")).with_status(INTERRUPTED)
}

/// A progress line.
fn line(share: Option<f64>, elapsed: Duration, done: &str) -> String {
    let Some(share) = share.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0)) else {
        return done.to_owned();
    };
    let percent = (share * 100.0).floor();
    if elapsed < GUESS || share <= 0.0 {
        return format!("{done}, {percent} %");
    }
    let left = elapsed.as_secs_f64() * (1.0 - share) / share;
    format!("{done}, {percent} %, {} left", time(left.ceil() as u64))
}

/// A time with units.
fn time(secs: u64) -> String {
    match secs {
        0..60 => format!("{secs} s"),
        60..3_600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3_600, secs / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_share_and_the_time_left_by_the_rate_so_far() {
        let after = |secs: u64, share| line(share, Duration::from_secs(secs), "9 samples");
        assert_eq!(after(10, Some(0.25)), "9 samples, 25 %, 30 s left");
        assert_eq!(after(75, Some(0.5)), "9 samples, 50 %, 1 min 15 s left");
        assert_eq!(after(36, Some(0.01)), "9 samples, 1 %, 59 min 24 s left");
        assert_eq!(after(100, Some(0.01)), "9 samples, 1 %, 2 h 45 min left");
        assert_eq!(after(10, Some(1.5)), "9 samples, 100 %, 0 s left");
        assert_eq!(after(0, Some(0.5)), "9 samples, 50 %", "too early to estimate");
        assert_eq!(after(10, Some(0.0)), "9 samples, 0 %");
        assert_eq!(after(10, None), "9 samples");
        assert_eq!(after(10, Some(f64::NAN)), "9 samples");
    }
}
