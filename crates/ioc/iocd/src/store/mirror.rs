//! State of a remote field on the network thread, and the requests to its owner on behalf of subscribers. Free of I/O:
//! messages go in as arguments, requests come out as results.
//!
//! | request pending | the owner posts | action |
//! |---|---|---|
//! | no | a scalar | post it |
//! | no | elements or properties | request them |
//! | yes | a scalar | post it |
//! | yes | elements or properties | request them once more after the answer, however often they were posted |

use base::{Alarm, Annotation, EventMask, Scalar, Stamp, Value};
use ca::encode::{Needs, Reading};

/// A request to the owner, and the events that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) needs: Needs,
    /// Empty if the answer is not posted.
    pub(crate) mask: EventMask,
}

/// Action after a post of the owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// Post the value.
    Post(Scalar),
    /// Send the request.
    Fetch(Fetch),
    /// Wait for the pending answer.
    Wait,
}

/// Local copy of a remote field.
#[derive(Default)]
pub(crate) struct Mirror {
    newest: Reading,
    /// Whether `newest` is valid.
    known: bool,
    /// Events posted since the pending request was sent; `None` if no request is pending.
    asked: Option<EventMask>,
}

impl Mirror {
    /// The newest known state, whose properties are used for monitors that include them; `None` before the first answer.
    pub(crate) fn newest(&self) -> Option<&Reading> {
        self.known.then_some(&self.newest)
    }

    /// Called at the first subscription. Requests the properties, for monitors that include them.
    pub(crate) fn watched(&mut self) -> Fetch {
        self.asked = Some(EventMask::NONE);
        Fetch { needs: Needs::All, mask: EventMask::NONE }
    }

    /// Handles a post of the owner. `None` as value means that the elements must be requested.
    pub(crate) fn posted(
        &mut self,
        mask: EventMask,
        value: Option<Scalar>,
        (alarm, stamp, note): (Alarm, Stamp, Annotation),
    ) -> Next {
        match (value, &mut self.asked) {
            (Some(value), _) if !mask.meets(EventMask::PROPERTY) => {
                (self.newest.alarm, self.newest.stamp, self.newest.note) = (alarm, stamp, note);
                self.newest.value = Value::Scalar(value);
                Next::Post(value)
            }
            // Arrays are read when they are sent, so one answer covers several posts.
            (_, Some(since)) => {
                *since |= mask;
                Next::Wait
            }
            (_, None) => Next::Fetch(self.ask(mask)),
        }
    }

    /// Handles the answer to a request. Returns the next request, if needed.
    pub(crate) fn fetched(&mut self, needs: Needs, reading: Reading) -> Option<Fetch> {
        let before = std::mem::replace(&mut self.newest, reading);
        if needs != Needs::All {
            (self.newest.meta, self.newest.record_type) = (before.meta, before.record_type);
            (self.newest.ackt, self.newest.acks) = (before.ackt, before.acks);
            self.newest.description = before.description;
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
        mirror.posted(mask, value.map(Scalar::F64), (Alarm::NONE, Stamp::EPOCH, Annotation::NONE))
    }

    #[test]
    fn a_mirror_is_empty_before_the_first_complete_answer() {
        let mut mirror = Mirror::default();
        assert!(mirror.newest().is_none());
        assert_eq!(mirror.watched(), Fetch { needs: Needs::All, mask: EventMask::NONE });
        posted(&mut mirror, EventMask::VALUE, Some(1.0));
        assert!(mirror.newest().is_none(), "a value alone has no properties");
        assert_eq!(mirror.fetched(Needs::All, reading(1.0, "ai")), None);
        assert_eq!(mirror.newest().map(|newest| newest.record_type), Some(Str40::from("ai")));
    }

    #[test]
    fn a_single_value_is_passed_on_and_stored_while_a_fetch_is_pending() {
        let mut mirror = Mirror::default();
        mirror.fetched(Needs::All, reading(0.0, "ai"));
        for _ in 0..2 {
            assert_eq!(posted(&mut mirror, EventMask::VALUE, Some(2.5)), Next::Post(Scalar::F64(2.5)));
            assert_eq!(mirror.newest().map(|newest| newest.value.clone()), Some(Value::from(2.5)));
            mirror.watched();
        }
    }

    #[test]
    fn elements_posted_during_a_fetch_are_fetched_once_more() {
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
    fn changed_properties_are_fetched_even_for_a_single_value() {
        let mut mirror = Mirror::default();
        let all = Fetch { needs: Needs::All, mask: EventMask::PROPERTY };
        assert_eq!(posted(&mut mirror, EventMask::PROPERTY, Some(1.0)), Next::Fetch(all));
        assert_eq!(posted(&mut mirror, EventMask::PROPERTY, Some(1.0)), Next::Wait);
        assert_eq!(mirror.fetched(Needs::All, reading(1.0, "ai")), Some(all));
    }

    #[test]
    fn an_answer_without_properties_keeps_the_stored_ones() {
        let mut mirror = Mirror::default();
        mirror.fetched(Needs::All, Reading { acks: base::Severity::Major, ..reading(1.0, "waveform") });
        mirror.fetched(Needs::Value, reading(2.0, ""));
        let newest = mirror.newest().unwrap();
        assert_eq!((newest.value.clone(), newest.record_type), (Value::from(2.0), Str40::from("waveform")));
        assert_eq!(newest.acks, base::Severity::Major);
    }
}
