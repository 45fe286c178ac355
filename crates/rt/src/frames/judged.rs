//! What follows from a border's judgements: events, causes, recoveries.

use crate::frames::cause::{Cause, InProgress};
use crate::frames::dispatcher::Dispatcher;
use crate::frames::event;
use base::{DurNs, MonoNs};
use frame::{Action, Border, Fault};
use ring::{ActivityCounter, FrameEvent, FramePage, Turn};
use std::sync::atomic::Ordering;

impl Dispatcher {
    /// Writes down what went wrong, and does what follows.
    #[cold]
    pub(super) fn tell(&mut self, page: &FramePage<'_>, border: &Border, stood: Turn, now: MonoNs) {
        if self.faults.is_empty() && !self.known.iter().any(|known| known.safe) {
            return;
        }
        for fault in &self.faults {
            let activity = usize::from(fault.activity);
            let begun = page.begun(activity);
            let overran = fault.fault == Fault::Overrun;
            let elapsed = if overran { now - begun } else { DurNs::ZERO };
            // Who began a call before the minor was due has been on the way for longer than it.
            let call = InProgress { elapsed, goes_on: overran && begun < border.due };
            let (cause, detail, cpu) = match fault.fault {
                Fault::Absent => (Cause::Nobody, 0, DurNs::ZERO),
                Fault::Underrun => match page.at(stood) {
                    Some(other) if other != fault.activity => (Cause::Behind, other.into(), DurNs::ZERO),
                    _ => self.why(page, activity, call),
                },
                Fault::Overrun => self.why(page, activity, call),
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
            // An absence is told once, not at every border.
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
        for (activity, known) in self.known.iter_mut().enumerate() {
            let is = self.machine.is_safe(activity as u16);
            if std::mem::replace(&mut known.safe, is) != is {
                page.set_activity_counter(activity, ActivityCounter::Safe, is.into());
                if let Ok(guest) = self.shared.slots[activity].guest.try_lock()
                    && let Some(Ok(variables)) = guest.variables.as_ref().map(|w| ring::Variables::attach(w.words()))
                {
                    variables.stand_safe(is);
                }
            }
        }
    }

    /// What kept an activity from doing as it should.
    fn why(&self, page: &FramePage<'_>, activity: usize, call: InProgress) -> (Cause, u64, DurNs) {
        match self.shared.slots[activity].guest.try_lock() {
            Ok(guest) => {
                guest.files.as_ref().map_or((Cause::Died, 0, DurNs::ZERO), |files| files.why(page, activity, call))
            }
            // Just joining or leaving.
            Err(_) => (Cause::Unknown, 0, DurNs::ZERO),
        }
    }
}
