//! Settings of an oscilloscope, and the request to the loop.

use crate::{Beside, Trigger, TriggerError};
use rt::scope::{Condition, Request, Timing};

/// Repetition of captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One, then it stops.
    #[default]
    Single,
    /// One for each trigger.
    Normal,
    /// As normal, but a capture starts without trigger after the time of two captures.
    Auto,
    /// No captures: always the newest rows.
    Roll,
}

impl Mode {
    /// The mode of a word: `single`, `normal`, `auto` or `roll`.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "single" => Self::Single,
            "normal" => Self::Normal,
            "auto" => Self::Auto,
            "roll" => Self::Roll,
            _ => return None,
        })
    }
}

/// Settings of a capture of one segment's variables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureSettings {
    /// Names of the variables, without the segment's.
    pub channels: Vec<String>,
    /// The trigger; without one, a capture starts at once.
    pub trigger: Option<String>,
    /// Repetition of captures.
    pub mode: Mode,
    /// The part of a capture that is before its trigger, 0 to 1.
    pub pre: f64,
    /// Rows of a capture.
    pub length: u64,
    /// Cycles per row.
    pub every: u64,
    /// Hold-off: cycles after a trigger in which further triggers are ignored.
    pub holdoff: u64,
    /// Number of captures; by default that of the mode.
    pub captures: Option<u64>,
    /// Captures that are stored.
    pub keep: usize,
    /// Continue after the client has disconnected.
    pub detached: bool,
}

impl CaptureSettings {
    /// The external trigger, if the trigger is one.
    ///
    /// # Errors
    /// The trigger is invalid.
    pub fn beside(&self) -> Result<Option<Beside>, TriggerError> {
        Ok(match self.trigger.as_deref().map(str::parse::<Trigger>).transpose()? {
            Some(Trigger::Beside(beside)) => Some(beside),
            Some(Trigger::Loop { .. }) | None => None,
        })
    }

    /// The request to the loop of `segment`. In the trigger, the name of a variable may have the segment's name as a prefix.
    ///
    /// # Errors
    /// The trigger is invalid.
    pub fn request(&self, segment: &str) -> Result<Request, TriggerError> {
        let (on, condition) = match self.trigger.as_deref().map(str::parse::<Trigger>).transpose()? {
            Some(Trigger::Loop { on, condition }) => (on, condition),
            Some(Trigger::Beside(_)) | None => (None, Condition::Never),
        };
        let prefix = format!("{segment}/");
        let on = on.map(|name| name.strip_prefix(&prefix).unwrap_or(&name).to_owned());
        let pre = self.pre.min(self.length.saturating_sub(1) as f64 / self.length as f64);
        let captures = self.captures.unwrap_or(u64::from(self.mode == Mode::Single));
        let timing = Timing {
            mode: match (self.mode, &self.trigger) {
                (Mode::Roll, _) => rt::scope::Mode::Roll,
                (Mode::Auto, _) | (_, None) => rt::scope::Mode::Auto,
                (Mode::Single | Mode::Normal, Some(_)) => rt::scope::Mode::Normal,
            },
            pre: if self.mode == Mode::Roll { 0 } else { (pre * self.length as f64).round() as u64 },
            length: self.length,
            every: self.every,
            holdoff: self.holdoff,
            patience: match self.trigger {
                Some(_) => self.length.saturating_mul(self.every).saturating_mul(2),
                None => 0,
            },
            captures,
        };
        let keep = if captures == 1 { 1 } else { self.keep };
        let (channels, detached) = (self.channels.clone(), self.detached);
        Ok(Request { channels, timing, condition, on, keep, detached })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_trigger_a_capture_begins_at_once_and_with_one_it_waits() {
        let wanted = CaptureSettings { length: 100, every: 2, pre: 0.3, keep: 4, ..CaptureSettings::default() };
        let request = wanted.request("llrf").unwrap();
        let Timing { mode, pre, patience, captures, .. } = request.timing;
        assert_eq!((mode, pre, patience, captures, request.keep), (rt::scope::Mode::Auto, 30, 0, 1, 1));
        let trigger = Some("llrf/beam changes".to_owned());
        let normal = CaptureSettings { trigger, mode: Mode::Normal, ..wanted.clone() }.request("llrf").unwrap();
        assert_eq!((normal.on.as_deref(), normal.keep), (Some("beam"), 4));
        assert_eq!(
            (normal.timing.mode, normal.timing.patience, normal.timing.captures),
            (rt::scope::Mode::Normal, 400, 0)
        );
        assert!(CaptureSettings { trigger: Some("beam".into()), ..wanted }.request("llrf").is_err());
    }
}
