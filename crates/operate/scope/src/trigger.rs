//! Triggers in text form.

use rt::scope::Condition;
use std::str::FromStr;

/// The start condition of a capture, in text form:
///
/// | text | holds |
/// |---|---|
/// | `voltage > 1.5 rising`, `voltage < 1.5 falling`, `voltage = 1.5 crossing` | the variable crosses the level; with `hysteresis 0.1` only if it was at least that far from the level before |
/// | `voltage > 1.5`, `voltage < 1.5` | the variable is beyond the level |
/// | `voltage enters 1..2`, `voltage leaves 1..2` | the variable enters or leaves the window |
/// | `state changes` | the value differs from the previous cycle |
/// | `miss` | the cycle ended after its deadline |
/// | `overrun` | a loop skipped pulses before the cycle, or the last call of a frame exceeded its budget |
/// | `pulse 4711` | the first cycle with this pulse number or a later one |
/// | `pulse % 1000 = 3` | each cycle whose pulse number modulo 1000 is 3, or the next one if that pulse was skipped |
/// | `alarm RF:TEMP`, `alarm /rf/*` | such an alarm is raised, or its severity rises |
/// | `message put/sr_*` | such a message passes the message server |
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// The loop evaluates it in each cycle.
    Loop {
        /// Its variable, if it has one.
        on: Option<String>,
        /// The condition.
        condition: Condition,
    },
    /// Another process evaluates it, and then requests a capture from the loop.
    Beside(Beside),
}

/// An event outside a loop that starts a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// One of these alarms is raised, or its severity rises: a channel, a path, an area, with `*` and `?`.
    Alarm(String),
    /// A message like this passes: `VERB/OBJECT` or `OBJECT`, with `*` and `?`.
    Message(String),
}

/// A text that is not a trigger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "trigger {found:?}: expected \"VAR > LEVEL rising\", \"VAR < LEVEL falling\", \"VAR = LEVEL crossing\" (each with \
     \"hysteresis HOW-MUCH\" behind it if need be), \"VAR > LEVEL\", \"VAR < LEVEL\", \"VAR enters LOW..HIGH\", \"VAR leaves \
     LOW..HIGH\", \"VAR changes\", \"miss\", \"overrun\", \"pulse NUMBER\", \"pulse % PERIOD = PHASE\", \"alarm NAMES\" or \
     \"message VERB/OBJECT\""
)]
pub struct TriggerError {
    /// The text.
    pub found: String,
}

impl FromStr for Trigger {
    type Err = TriggerError;

    fn from_str(text: &str) -> Result<Self, TriggerError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        parse(&words).ok_or_else(|| TriggerError { found: text.to_owned() })
    }
}

fn parse(words: &[&str]) -> Option<Trigger> {
    let alone = |condition| Some(Trigger::Loop { on: None, condition });
    match *words {
        ["miss"] => alone(Condition::Miss),
        ["overrun"] => alone(Condition::Overrun),
        ["pulse", number] => alone(Condition::Pulse { number: number.parse().ok()? }),
        ["pulse", "%", period, "=", phase] => {
            let (period, phase) = (period.parse().ok()?, phase.parse().ok()?);
            (phase < period).then_some(Condition::EachPulse { period, phase }).and_then(alone)
        }
        // A variable may have this name, too.
        ["alarm", names] if names != "changes" => Some(Trigger::Beside(Beside::Alarm(names.to_owned()))),
        ["message", pattern] if pattern != "changes" => Some(Trigger::Beside(Beside::Message(pattern.to_owned()))),
        [name, ref rest @ ..] => {
            let condition = of_variable(rest)?;
            Some(Trigger::Loop { on: Some(name.to_owned()), condition })
        }
        [] => None,
    }
}

fn of_variable(words: &[&str]) -> Option<Condition> {
    let (words, hysteresis) = match *words {
        [ref before @ .., "hysteresis", amount] => (before, Some(real(amount).filter(|amount| *amount >= 0.0)?)),
        _ => (words, None),
    };
    let edge = hysteresis.unwrap_or(0.0);
    let condition = match *words {
        [">", level, "rising"] | ["rising", level] => Condition::Rising { level: real(level)?, hysteresis: edge },
        ["<", level, "falling"] | ["falling", level] => Condition::Falling { level: real(level)?, hysteresis: edge },
        ["=", level, "crossing"] | ["crossing", level] => Condition::Crossing { level: real(level)?, hysteresis: edge },
        _ if hysteresis.is_some() => return None,
        [">", level] => Condition::Above { level: real(level)? },
        ["<", level] => Condition::Below { level: real(level)? },
        ["enters", window] => {
            let (low, high) = window_of(window)?;
            Condition::Enters { low, high }
        }
        ["leaves", window] => {
            let (low, high) = window_of(window)?;
            Condition::Leaves { low, high }
        }
        ["changes"] => Condition::Changes,
        _ => return None,
    };
    Some(condition)
}

fn real(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn window_of(text: &str) -> Option<(f64, f64)> {
    let (low, high) = text.split_once("..")?;
    let (low, high) = (real(low)?, real(high)?);
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_parsed_as_in_the_table() {
        let of = |text: &str| {
            text.parse::<Trigger>().map(|trigger| match trigger {
                Trigger::Loop { on, condition } => (on, condition),
                Trigger::Beside(_) => panic!("{text}"),
            })
        };
        let on = |name: &str, condition| Ok((Some(name.to_owned()), condition));
        assert_eq!(of("v > 1.5 rising"), on("v", Condition::Rising { level: 1.5, hysteresis: 0.0 }));
        assert_eq!(of("v falling -2 hysteresis 0.1"), on("v", Condition::Falling { level: -2.0, hysteresis: 0.1 }));
        assert_eq!(of("a:b = 1e-3 crossing"), on("a:b", Condition::Crossing { level: 1e-3, hysteresis: 0.0 }));
        assert_eq!(of("v > 1"), on("v", Condition::Above { level: 1.0 }));
        assert_eq!(of("v leaves -1..2.5"), on("v", Condition::Leaves { low: -1.0, high: 2.5 }));
        assert_eq!(of("state changes"), on("state", Condition::Changes));
        assert_eq!(of("miss"), Ok((None, Condition::Miss)));
        assert_eq!(of("alarm changes"), on("alarm", Condition::Changes));
        let beside = |text: &str| text.parse::<Trigger>();
        assert_eq!(beside("alarm /rf/*"), Ok(Trigger::Beside(Beside::Alarm("/rf/*".to_owned()))));
        assert_eq!(beside("message put/sr_*"), Ok(Trigger::Beside(Beside::Message("put/sr_*".to_owned()))));
        assert_eq!(of("pulse % 10 = 3"), Ok((None, Condition::EachPulse { period: 10, phase: 3 })));
    }

    #[test]
    fn a_malformed_trigger_is_refused_with_the_expected_form() {
        for wrong in [
            "",
            "v",
            "v >",
            "v > x rising",
            "v > 1 falling",
            "v enters 2..1",
            "v > 1 hysteresis 1",
            "pulse % 3 = 3",
            "v > 1 rising hysteresis -1",
            "v > inf",
            "pulse -1",
            "alarm",
            "message a b",
        ] {
            let why = wrong.parse::<Trigger>().unwrap_err().to_string();
            assert!(why.contains("VAR > LEVEL rising"), "{wrong}");
        }
    }
}
