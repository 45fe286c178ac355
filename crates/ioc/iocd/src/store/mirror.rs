//! What the network's thread knows of a field that another thread owns, and what it asks of that owner for those who watch
//! it. Pure: what has come goes in, what is to be sent comes out.
//!
//! | asked of the owner | the owner has posted | then |
//! |---|---|---|
//! | nothing | a single value | it is a post |
//! | nothing | elements, or properties | they are asked for |
//! | something | a single value | it is a post |
//! | something | elements, or properties | they are asked for once more when the answer is here, however often they were posted |

use base::{Alarm, EventMask, Scalar, Stamp, Value};
use ca::encode::{Needs, Reading};

/// What is to be asked of the owner, and for which event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) needs: Needs,
    /// Empty where nobody waits for a post of it.
    pub(crate) mask: EventMask,
}

/// What becomes of something that the owner has posted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// It is handed on.
    Post(Scalar),
    /// It is asked for.
    Fetch(Fetch),
    /// What was asked for is waited for.
    Wait,
}

/// A remote field, as far as it is known here.
#[derive(Default)]
pub(crate) struct Mirror {
    newest: Reading,
    /// Whether `newest` holds anything.
    known: bool,
    /// While an answer is waited for: what was posted since it was asked for.
    asked: Option<EventMask>,
}

impl Mirror {
    /// The newest that is known; its properties answer monitors that want them. Nothing before the first answer.
    pub(crate) fn newest(&self) -> Option<&Reading> {
        self.known.then_some(&self.newest)
    }

    /// Somebody begins to watch: the properties are asked for, for monitors that send them along.
    pub(crate) fn watched(&mut self) -> Fetch {
        self.asked = Some(EventMask::NONE);
        Fetch { needs: Needs::All, mask: EventMask::NONE }
    }

    /// The owner has posted; without a value its elements are to be asked for.
    pub(crate) fn posted(&mut self, mask: EventMask, value: Option<Scalar>, alarm: Alarm, stamp: Stamp) -> Next {
        match (value, &mut self.asked) {
            (Some(value), _) if !mask.meets(EventMask::PROPERTY) => {
                (self.newest.alarm, self.newest.stamp) = (alarm, stamp);
                self.newest.value = Value::Scalar(value);
                Next::Post(value)
            }
            // One answer serves for several posts, as arrays are read when they are sent.
            (_, Some(since)) => {
                *since |= mask;
                Next::Wait
            }
            (_, None) => Next::Fetch(self.ask(mask)),
        }
    }

    /// What was asked for is here; what is to be asked for next.
    pub(crate) fn fetched(&mut self, needs: Needs, reading: Reading) -> Option<Fetch> {
        let before = std::mem::replace(&mut self.newest, reading);
        if needs != Needs::All {
            (self.newest.meta, self.newest.record_type) = (before.meta, before.record_type);
            (self.newest.ackt, self.newest.acks) = (before.ackt, before.acks);
        }
        self.known = true;
        let since = self.asked.take().unwrap_or(EventMask::NONE);
        (!since.is_empty()).then(|| self.ask(since))
    }

    fn ask(&mut self, mask: EventMask) -> Fetch {
        self.asked = Some(EventMask::NONE);
        let needs = if mask.meets(EventMask::PROPERTY) { Needs::All } else { Needs::Value };
        Fetch { needs, mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Str40;

    const ELEMENTS: Fetch = Fetch { needs: Needs::Value, mask: EventMask::VALUE };

    fn reading(value: f64, record_type: &str) -> Reading {
        Reading { value: Value::from(value), record_type: Str40::from(record_type), ..Reading::default() }
    }

    fn posted(mirror: &mut Mirror, mask: EventMask, value: Option<f64>) -> Next {
        mirror.posted(mask, value.map(Scalar::F64), Alarm::NONE, Stamp::EPOCH)
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        let mut mirror = Mirror::default();
        assert!(mirror.newest().is_none());
        assert_eq!(mirror.watched(), Fetch { needs: Needs::All, mask: EventMask::NONE });
        posted(&mut mirror, EventMask::VALUE, Some(1.0));
        assert!(mirror.newest().is_none(), "a value alone has no properties");
        assert_eq!(mirror.fetched(Needs::All, reading(1.0, "ai")), None);
        assert_eq!(mirror.newest().map(|newest| newest.record_type), Some(Str40::from("ai")));
    }

    #[test]
    fn a_single_value_is_handed_on_and_remembered_whatever_is_waited_for() {
        let mut mirror = Mirror::default();
        mirror.fetched(Needs::All, reading(0.0, "ai"));
        for _ in 0..2 {
            assert_eq!(posted(&mut mirror, EventMask::VALUE, Some(2.5)), Next::Post(Scalar::F64(2.5)));
            assert_eq!(mirror.newest().map(|newest| newest.value.clone()), Some(Value::from(2.5)));
            mirror.watched();
        }
    }

    #[test]
    fn elements_are_asked_for_once_more_however_often_they_were_posted_meanwhile() {
        let mut mirror = Mirror::default();
        assert_eq!(posted(&mut mirror, EventMask::VALUE, None), Next::Fetch(ELEMENTS));
        assert_eq!(posted(&mut mirror, EventMask::VALUE, None), Next::Wait);
        assert_eq!(posted(&mut mirror, EventMask::LOG, None), Next::Wait);
        let both = EventMask::VALUE | EventMask::LOG;
        assert_eq!(mirror.fetched(Needs::Value, reading(1.0, "")), Some(Fetch { needs: Needs::Value, mask: both }));
        assert_eq!(mirror.fetched(Needs::Value, reading(2.0, "")), None);
        assert_eq!(posted(&mut mirror, EventMask::VALUE, None), Next::Fetch(ELEMENTS));
    }

    #[test]
    fn changed_properties_are_asked_for_even_of_a_single_value() {
        let mut mirror = Mirror::default();
        let all = Fetch { needs: Needs::All, mask: EventMask::PROPERTY };
        assert_eq!(posted(&mut mirror, EventMask::PROPERTY, Some(1.0)), Next::Fetch(all));
        assert_eq!(posted(&mut mirror, EventMask::PROPERTY, Some(1.0)), Next::Wait);
        assert_eq!(mirror.fetched(Needs::All, reading(1.0, "ai")), Some(all));
    }

    #[test]
    fn an_answer_without_properties_leaves_those_that_are_known() {
        let mut mirror = Mirror::default();
        mirror.fetched(Needs::All, Reading { acks: base::Severity::Major, ..reading(1.0, "waveform") });
        mirror.fetched(Needs::Value, reading(2.0, ""));
        let newest = mirror.newest().unwrap();
        assert_eq!((newest.value.clone(), newest.record_type), (Value::from(2.0), Str40::from("waveform")));
        assert_eq!(newest.acks, base::Severity::Major);
    }
}
