//! Deadlines of answers, by verb, band and object.

use crate::header::Band;
use crate::object::Pattern;
use crate::tables::{RuleError, bands, objects, verbs};
use alloc::string::String;
use alloc::vec::Vec;
use base::{DurNs, Fall, Lateness, ResultDeadline, Verb};
use core::str::FromStr;

/// A deadline for the answers to some requests. The first rule that matches a request applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineRule {
    /// The deadline, counted from the arrival at the server, and the value of a later answer.
    pub result: ResultDeadline,
    /// Verbs to which it applies; `None`: all.
    pub verbs: Option<Vec<Verb>>,
    /// Bands to which it applies: a bit mask, 1 << band.
    pub bands: u8,
    /// Objects to which it applies.
    pub objects: Pattern,
}

impl DeadlineRule {
    /// Whether it applies to a request.
    #[must_use]
    pub fn fits(&self, band: Band, verb: Verb, object: &str) -> bool {
        self.bands & 1 << band.number() != 0
            && self.verbs.as_ref().is_none_or(|verbs| verbs.contains(&verb))
            && self.objects.fits(object)
    }
}

impl FromStr for DeadlineRule {
    type Err = RuleError;

    /// Examples: `5ms hard objects=sr_rf_* verbs=put,call bands=6,7`, `5ms firm …`, `5ms soft linear 10ms …`. The words
    /// after the kind of deadline are optional.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        const FORM: &str = "a time; `hard`, `firm` or `soft`; after `soft` the decrease of the value (`linear 10ms`, `half 2ms`); then the requests";
        let error = |found: &str, expected| RuleError { found: found.into(), expected };
        let mut words = text.split_whitespace().peekable();
        let mut next = || words.next().unwrap_or_default();
        let at = next();
        let at: DurNs = at.parse().ok().filter(|at| *at > DurNs::ZERO).ok_or_else(|| error(at, FORM))?;
        let late = match next() {
            "hard" => Lateness::Hard,
            "firm" => Lateness::Firm,
            "soft" => {
                let mut fall = String::from(next());
                fall.push(' ');
                fall.push_str(next());
                Lateness::Soft(fall.parse::<Fall>().map_err(|_| error(&fall, FORM))?)
            }
            other => return Err(error(other, FORM)),
        };
        let all = Pattern::new("*").map_err(|_| error("*", "a pattern"))?;
        let mut rule = Self { result: ResultDeadline { at, late }, verbs: None, bands: u8::MAX, objects: all };
        for word in words {
            match word.split_once('=') {
                Some(("objects", text)) => rule.objects = objects(text)?,
                Some(("verbs", text)) => rule.verbs = Some(verbs(text)?),
                Some(("bands", text)) => rule.bands = bands(text)?,
                _ => return Err(error(word, "objects=, verbs= or bands=")),
            }
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn deadline_rules_are_read_with_their_objects_verbs_and_bands() {
        let rule: DeadlineRule = "5ms soft half 2ms objects=sr_rf_* verbs=put,call bands=6,7".parse().unwrap();
        assert_eq!(rule.result.to_string(), "5ms soft half 2ms");
        let band = |number| Band::new(number).unwrap();
        assert!(rule.fits(band(7), Verb::Put, "sr_rf_acc"));
        assert!(!rule.fits(band(5), Verb::Put, "sr_rf_acc") && !rule.fits(band(7), Verb::Get, "sr_rf_acc"));
        assert!(!rule.fits(band(7), Verb::Put, "sr_mag_ps"));
        assert!("1us hard".parse::<DeadlineRule>().unwrap().fits(band(0), Verb::Get, "anything"));
        for wrong in [
            "",
            "5ms",
            "0s firm",
            "5ms gentle",
            "5ms soft",
            "5ms soft step 1ms",
            "5ms firm users=1",
            "5ms firm bands=8",
        ] {
            assert!(wrong.parse::<DeadlineRule>().is_err(), "{wrong:?}");
        }
    }
}
