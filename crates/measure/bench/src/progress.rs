//! Progress of a measurement, on one line of the terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A line on standard error with the current step and the remaining time. Prints nothing if that is not a terminal.
pub struct Progress {
    bench: &'static str,
    begun: Instant,
    terminal: bool,
}

impl Progress {
    pub(crate) fn of(bench: &'static str) -> Self {
        Self { bench, begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    /// Part `done` (from 0) of `of` begins now.
    pub fn at(&mut self, done: usize, of: usize, what: &str) {
        if self.terminal {
            let left = left(self.begun.elapsed(), done, of).map_or(String::new(), |left| format!("; {left}"));
            // A closed terminal is not an error of the measurement.
            let _ =
                write!(std::io::stderr(), "\rtahti bench {}: {what} ({} of {of}{left})\x1b[K", self.bench, done + 1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// The remaining time, extrapolated from the finished parts.
fn left(elapsed: Duration, done: usize, of: usize) -> Option<String> {
    let each = elapsed.checked_div(u32::try_from(done).ok()?)?;
    let seconds = each.checked_mul(u32::try_from(of.saturating_sub(done)).ok()?)?.as_secs() + 1;
    Some(match seconds {
        0..120 => format!("{seconds} s left"),
        _ => format!("{} min left", seconds.div_ceil(60)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_extrapolated_from_the_finished_parts() {
        assert_eq!(left(Duration::from_secs(10), 0, 5), None);
        assert_eq!(left(Duration::from_secs(10), 1, 3).as_deref(), Some("21 s left"));
        assert_eq!(left(Duration::from_secs(100), 1, 3).as_deref(), Some("4 min left"));
    }
}
