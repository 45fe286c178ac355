//! Consequences of a border's judgements: events, causes and recoveries.

use crate::frames::cause::{Before, Cause, InProgress};
use crate::frames::dispatcher::Dispatcher;
use crate::frames::event;
use base::{DurNs, Lateness, MonoNs};
use frame::{Action, Border, Fault};
use ring::{ActivityCounter, FrameEvent, FramePage, Turn};
use std::sync::atomic::Ordering;

/// State of the minor that has ended, taken from the page before the next minor began.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinorState {
    /// Place that its queue had reached.
    pub(super) stood: Turn,
    /// Time at which the dispatcher began it.
    pub(super) begun: MonoNs,
    /// Time of the last yield in it.
    pub(super) last_yield: MonoNs,
}

impl MinorState {
    pub(super) fn of(page: &FramePage<'_>, stood: Turn) -> Self {
        Self { stood, begun: page.border().begun, last_yield: page.last_yield() }
    }

    /// Whether an activity got the turn.
    fn reached(&self, page: &FramePage<'_>, activity: u16) -> bool {
        (0..=self.stood.index).any(|index| page.at(Turn { index, ..self.stood }) == Some(activity))
    }

    /// Time lost before an activity got the turn, and the time at which it got it.
    fn before(&self, page: &FramePage<'_>, activity: usize, due: MonoNs, came: MonoNs) -> Before {
        let mut before = Before { late: self.begun - due, ..Before::default() };
        let (mut at, mut since) = (Turn { index: 0, ..self.stood }, self.begun);
        let mut in_front = None;
        while let Some(next) = page.at(at).map(usize::from) {
            at.index += 1;
            // A call that continues from an earlier minor got the turn when the activity in front of it yielded.
            let begun = Some(page.begun(next)).filter(|begun| (since..=came).contains(begun)).unwrap_or(since);
            let begun = if next == activity { came } else { begun };
            match in_front {
                None => before.kept = begun - since,
                Some(who) => {
                    let budget = page.activity_counter(who, ActivityCounter::Budget) as i64;
                    let beyond = DurNs((begun - since).0.saturating_sub(budget));
                    if before.front.is_none_or(|(_, most)| beyond > most) {
                        before.front = Some((who, beyond));
                    }
                }
            }
            if next == activity {
                break;
            }
            (in_front, since) = (Some(next), begun);
        }
        before
    }
}

impl Dispatcher {
    /// Writes an event for each fault and carries out the recoveries.
    #[cold]
    pub(super) fn tell(&mut self, page: &FramePage<'_>, border: &Border, ended: &MinorState, now: MonoNs) {
        if self.faults.is_empty() && !self.unsettled && !self.known.iter().any(|known| known.safe) {
            return;
        }
        for fault in &self.faults {
            let activity = usize::from(fault.activity);
            let begun = page.begun(activity);
            let overran = fault.fault == Fault::Overrun;
            let elapsed = if overran { now - begun } else { DurNs::ZERO };
            let (cause, detail, cpu) = match (fault.fault, page.at(ended.stood)) {
                (Fault::Absent, _) => (Cause::Nobody, 0, DurNs::ZERO),
                (_, Some(other)) if !ended.reached(page, fault.activity) => (Cause::Behind, other.into(), DurNs::ZERO),
                _ => {
                    // A call that began before the minor was due has been running since an earlier minor.
                    let goes_on = overran && begun < border.due;
                    let came = if overran && !goes_on { begun } else { ended.last_yield };
                    let call = InProgress {
                        elapsed,
                        goes_on,
                        budget: DurNs(page.activity_counter(activity, ActivityCounter::Budget) as i64),
                        before: ended.before(page, activity, border.due, came),
                        waited: if overran { DurNs::ZERO } else { now - came },
                    };
                    self.why(page, activity, call)
                }
            };
            let (what, counter) = match fault.fault {
                Fault::Overrun => (event::OVERRUN, ActivityCounter::Overruns),
                Fault::Underrun => (event::UNDERRUN, ActivityCounter::Underruns),
                Fault::Absent => (event::ABSENT, ActivityCounter::Absences),
            };
            page.count_activity(activity, counter, 1);
            page.set_activity_counter(activity, ActivityCounter::Consecutive, fault.consecutive.into());
            let action = match fault.action {
                Action::Counted => 0,
                Action::MoreTime => 1,
                Action::Skip => 2,
                Action::SafeValue => 3,
                Action::Demote => 4,
                Action::Restart => 5,
            };
            // An absence causes one event, not one at every border.
            if fault.fault != Fault::Absent || fault.consecutive == 1 {
                page.tell(&FrameEvent {
                    pulse: border.pulse,
                    at: now,
                    minor: fault.minor,
                    activity: fault.activity,
                    what,
                    action,
                    cause: cause as u8,
                    consecutive: fault.consecutive,
                    elapsed,
                    cpu,
                    detail,
                });
            }
            match fault.action {
                Action::Demote => {
                    page.set_activity_counter(activity, ActivityCounter::Demoted, 1);
                    self.shared.park(page, activity);
                }
                Action::Restart => self.shared.slots[activity].kill.store(true, Ordering::Release),
                Action::Counted | Action::MoreTime | Action::Skip | Action::SafeValue => {}
            }
        }
        self.unsettled = false;
        for (activity, known) in self.known.iter_mut().enumerate() {
            let is = self.machine.is_safe(activity as u16);
            if known.safe == is {
                continue;
            }
            // After a missed hard deadline the activity itself withdraws the safe values, with its next result in time.
            let takes_back = || page.deadline(activity).is_some_and(|deadline| deadline.late == Lateness::Hard);
            if !is && takes_back() || self.shared.slots[activity].stand_safe(is) {
                known.safe = is;
                page.set_activity_counter(activity, ActivityCounter::Safe, is.into());
            } else {
                self.unsettled = true;
            }
        }
    }

    /// The cause of an activity's fault.
    fn why(&self, page: &FramePage<'_>, activity: usize, call: InProgress) -> (Cause, u64, DurNs) {
        match self.shared.slots[activity].guest.try_lock() {
            Ok(guest) => {
                guest.files.as_ref().map_or((Cause::Died, 0, DurNs::ZERO), |files| files.why(page, activity, call))
            }
            // A thread is just joining or leaving.
            Err(_) => (Cause::Unknown, 0, DurNs::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::{AtomicU64, FrameBorder, FrameShape};

    const SHAPE: FrameShape = FrameShape { activities: 4, minors: 1, queue: 4, modes: 0 };

    #[test]
    fn the_time_lost_before_a_turn_is_derived_from_the_starts_of_the_other_activities() {
        let words: Vec<AtomicU64> = (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect();
        let page = FramePage::format(&words, "judged", SHAPE).unwrap();
        (0..4).for_each(|activity| page.set_activity_counter(activity, ActivityCounter::Budget, 100));
        // Due at 1000, begun at 1040. The activities begin one after the other from 1050 on. Activity 1 is present and has
        // no turn in this minor.
        let border =
            FrameBorder { begun: MonoNs(1040), due: MonoNs(1000), end: MonoNs(2000), ..FrameBorder::default() };
        let turn = page.begin(&border, [0, 2, 3].into_iter());
        let mut first = page.release_first(turn);
        for (activity, begun) in [(0, 1050), (2, 1090), (3, 1700)] {
            assert_eq!(first, Some(activity));
            assert!(page.start(activity.into()));
            page.set_begun(activity.into(), MonoNs(begun));
            first = if activity == 3 { None } else { page.finish(activity.into(), MonoNs(begun + 30)) };
        }
        let ended = MinorState::of(&page, page.turn());
        let before = ended.before(&page, 3, border.due, page.begun(3));
        // Activity 0 took 40, including the start of its successor; activity 2 took 610. Both have a budget of 100.
        assert_eq!(before, Before { late: DurNs(40), kept: DurNs(10), front: Some((2, DurNs(510))) });
        let before = ended.before(&page, 0, border.due, page.begun(0));
        assert_eq!(before, Before { late: DurNs(40), kept: DurNs(10), front: None });
        // A call that continues from an earlier minor got its turn when the last activity yielded.
        page.set_begun(3, MonoNs(500));
        let before = ended.before(&page, 3, border.due, ended.last_yield);
        assert_eq!(before.front, Some((0, DurNs(-60))), "no activity in front was too long");
    }
}
