//! The two real-time threads of a frame: the dispatcher at minor borders, the caretaker in the gaps.

use crate::frames::cause::{Cause, ThreadFiles};
use crate::frames::event;
use crate::frames::trigger::{Trigger, Waited};
use base::{DurNs, MonoNs, Policy, Priority};
use frame::{Action, Border, Fault, Judgement, Machine, Seen};
use ring::{ActivityCounter, FrameBorder, FrameCounter, FrameEvent, FramePage, Presence, Turn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use sys::clock::mono_now;
use sys::futex;
use sys::sched::{Scheduling, try_set_scheduling};
use sys::shm::SharedWords;

/// What the runner's thread and the dispatcher share of each activity.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Held by the runner's thread while somebody joins or leaves; the dispatcher only tries.
    pub(crate) guest: Mutex<Guest>,
    /// Whether its thread has the priority of parked ones.
    pub(crate) parked: AtomicBool,
    /// Whether its process is to be killed.
    pub(crate) kill: AtomicBool,
}

/// What belongs to the thread that has joined.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    pub(crate) files: Option<ThreadFiles>,
    pub(crate) variables: Option<SharedWords>,
}

/// What both threads and the runner's have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) words: Arc<SharedWords>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) stop: AtomicBool,
    /// Whether priorities are had, so that the queue's order holds and late calls can be parked.
    pub(crate) ordered: bool,
    pub(crate) priority: Priority,
}

impl Shared {
    pub(crate) fn page(&self) -> FramePage<'_> {
        FramePage::attach(self.words.words()).expect("made by this process; who destroys it ends the frame")
    }

    pub(crate) fn below(&self, by: u8) -> Policy {
        Policy::Fifo(Priority(self.priority.0.saturating_sub(by).max(1)))
    }

    /// Sets the priority of an activity's thread. A thread that is gone needs none.
    fn set_priority(&self, page: &FramePage<'_>, activity: usize, below: u8) {
        let (_, _, tid) = page.who(activity);
        if tid > 0 {
            let _ = try_set_scheduling(tid as i32, Scheduling { policy: self.below(below), reset_on_fork: true });
        }
    }

    /// Puts a call that goes on beyond its minor behind everybody else.
    fn park(&self, page: &FramePage<'_>, activity: usize) {
        let slot = &self.slots[activity];
        if self.ordered && !slot.parked.swap(true, Ordering::AcqRel) {
            self.set_priority(page, activity, 3);
            page.count(FrameCounter::Parked, 1);
        }
    }

    /// Gives a parked thread its place again. Whether it was parked.
    fn unpark(&self, page: &FramePage<'_>, activity: usize) -> bool {
        let was = self.slots[activity].parked.swap(false, Ordering::AcqRel);
        if was {
            self.set_priority(page, activity, 1);
        }
        was
    }

    /// Passes the turn on from `turn`, and wakes who has it then.
    pub(crate) fn pass_on(page: &FramePage<'_>, turn: Turn) -> bool {
        let before = page.turn();
        if let Some(next) = page.pass_on(turn) {
            futex::wake(page.call_word(next.into()));
        }
        before == turn
    }
}

/// The dispatcher.
pub(crate) struct Dispatcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Machine,
    pub(crate) trigger: Trigger,
    /// Faults of one border; room for all activities.
    pub(crate) faults: Vec<Judgement>,
    /// How many have joined each activity, as far as the machine knows.
    pub(crate) joins: Vec<u64>,
    /// The longest wait for a trigger.
    pub(crate) patience: DurNs,
    pub(crate) external: bool,
}

impl Dispatcher {
    /// Runs the frame until it is stopped or its time base is gone.
    ///
    /// Real-time: allocates nothing; a border costs one pass over the two queues, one futex call, and one more system
    /// call for each call that goes on beyond its minor.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let page = shared.page();
        let mut border = self.machine.first();
        if !self.external {
            // The first minor begins when it is due, not earlier.
            if self.trigger.wait(border.due, self.patience, &shared.stop) == Waited::Over {
                return;
            }
        }
        let mut woke = mono_now();
        let mut turn = self.begin(&page, &border, woke);
        loop {
            page.dispatch().record(mono_now() - woke);
            let ticks = match self.trigger.wait(border.end, self.patience, &shared.stop) {
                Waited::Ticks(ticks) => ticks,
                Waited::Nothing => {
                    self.trigger_event(&page, FrameCounter::TriggerStopped, event::TRIGGER_STOPPED, &border);
                    woke = mono_now();
                    continue;
                }
                Waited::Over => return,
            };
            let begun = woke;
            woke = mono_now();
            if self.external && (woke - begun).0 < self.machine.plan().length(border.minor.into()).0 / 2 {
                self.trigger_event(&page, FrameCounter::TriggerEarly, event::TRIGGER_EARLY, &border);
            }
            self.welcome(&page);
            let minor = usize::from(border.minor);
            let (faults, machine) = (&mut self.faults, &mut self.machine);
            faults.clear();
            let seen = |activity: u16| {
                let (ran, yielded, _) = page.progress(activity.into(), turn.sequence);
                Seen { present: page.who(activity.into()).0 == Presence::Joined, ran, yielded }
            };
            let next = machine.border(woke, ticks, seen, |fault| faults.push(fault));
            if next.extended.is_some() {
                page.extend(&shown(&next, woke));
                futex::wake(page.pulse_word());
                self.tell(&page, &border, turn, woke);
            } else {
                if page.at(page.turn()).is_none() {
                    page.slack(minor).record(border.end - page.last_yield());
                }
                self.close(&page, turn);
                let old = turn;
                turn = self.begin(&page, &next, woke);
                self.tell(&page, &border, old, woke);
                if next.lost > 0 {
                    let detail = next.lost;
                    page.tell(&FrameEvent { what: event::LOST, detail, ..frame_event(&border, woke) });
                }
                if next.mode != border.mode {
                    let detail = next.mode.into();
                    page.tell(&FrameEvent { what: event::MODE, detail, ..frame_event(&next, woke) });
                }
            }
            self.count(&page);
            if let Some(mode) = page.wanted_mode() {
                // A mode that does not exist is nobody's wish.
                let _ = self.machine.want_mode(mode.into());
            }
            border = next;
        }
    }

    /// Begins a minor: its queue, its first activity, and whoever waits for borders.
    fn begin(&self, page: &FramePage<'_>, border: &Border, woke: MonoNs) -> Turn {
        page.late().record(woke - border.due);
        let there = |activity: u16| page.who(activity.into()).0 == Presence::Joined;
        let queue = self.machine.queue().map(|entry| entry.activity).filter(|activity| there(*activity));
        let turn = page.begin(&shown(border, woke), queue);
        if let Some(first) = page.release_first(turn) {
            self.shared.unpark(page, first.into());
            futex::wake(page.call_word(first.into()));
        }
        futex::wake(page.pulse_word());
        turn
    }

    /// Ends a minor: nobody begins in it any more, and calls that go on are parked.
    fn close(&self, page: &FramePage<'_>, turn: Turn) {
        let mut at = Turn { index: 0, ..turn };
        while let Some(activity) = page.at(at) {
            let activity = usize::from(activity);
            let busy = page.close(activity, turn.sequence);
            if !busy {
                self.shared.unpark(page, activity);
            } else if !is_behind(page, activity) {
                self.shared.park(page, activity);
            }
            at.index += 1;
        }
        // Those that were parked before and were not queued in this minor may have ended their calls meanwhile.
        for (activity, slot) in self.shared.slots.iter().enumerate() {
            if slot.parked.load(Ordering::Relaxed)
                && !page.progress(activity, turn.sequence).2
                && !self.machine.is_demoted(activity as u16)
            {
                self.shared.unpark(page, activity);
            }
        }
    }

    /// Tells the machine of those who have joined anew.
    fn welcome(&mut self, page: &FramePage<'_>) {
        for (activity, known) in self.joins.iter_mut().enumerate() {
            let joins = page.activity_counter(activity, ActivityCounter::Joins);
            if joins != *known {
                *known = joins;
                self.machine.joined(activity as u16);
                self.shared.slots[activity].parked.store(false, Ordering::Release);
            }
        }
    }

    /// Writes down what went wrong, and does what follows.
    fn tell(&mut self, page: &FramePage<'_>, border: &Border, turn: Turn, now: MonoNs) {
        for fault in &self.faults {
            let activity = usize::from(fault.activity);
            let baseline = page.baseline(activity);
            let (cause, detail, cpu) = match fault.fault {
                Fault::Absent => (Cause::Nobody, 0, DurNs::ZERO),
                Fault::Underrun => match page.at(Turn { index: page.turn().index, ..turn }) {
                    Some(other) if other != fault.activity => (Cause::Behind, other.into(), DurNs::ZERO),
                    _ => self.why(activity, &baseline, now),
                },
                Fault::Overrun => self.why(activity, &baseline, now),
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
                    elapsed: if fault.fault == Fault::Overrun { now - baseline.at } else { DurNs::ZERO },
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
        for activity in 0..self.joins.len() {
            let (is, was) =
                (self.machine.is_safe(activity as u16), page.activity_counter(activity, ActivityCounter::Safe));
            if u64::from(is) != was {
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
    fn why(&self, activity: usize, baseline: &ring::Baseline, now: MonoNs) -> (Cause, u64, DurNs) {
        match self.shared.slots[activity].guest.try_lock() {
            Ok(guest) => guest.files.as_ref().map_or((Cause::Died, 0, DurNs::ZERO), |files| files.why(baseline, now)),
            // Just joining or leaving.
            Err(_) => (Cause::Unknown, 0, DurNs::ZERO),
        }
    }

    fn trigger_event(&self, page: &FramePage<'_>, counter: FrameCounter, what: u8, border: &Border) {
        page.count(counter, 1);
        page.tell(&FrameEvent { what, ..frame_event(border, mono_now()) });
    }

    /// Shows the machine's counters.
    fn count(&self, page: &FramePage<'_>) {
        let totals = self.machine.totals();
        let rows = [
            (FrameCounter::Minors, totals.minors),
            (FrameCounter::Lost, totals.lost),
            (FrameCounter::Overruns, totals.overruns),
            (FrameCounter::Underruns, totals.underruns),
            (FrameCounter::Absences, totals.absences),
            (FrameCounter::Extensions, totals.extensions),
            (FrameCounter::Modes, totals.modes),
            (FrameCounter::Skipped, totals.skipped),
        ];
        for (counter, value) in rows {
            page.count(counter, value.wrapping_sub(page.counter(counter)));
        }
    }
}

/// The caretaker: runs when nobody above it on this CPU does.
pub(crate) fn care(shared: &Shared) {
    let page = shared.page();
    let word = page.pulse_word();
    while !shared.stop.load(Ordering::Relaxed) {
        let seen = word.load(Ordering::Acquire);
        loop {
            let turn = page.turn();
            let Some(activity) = page.at(turn) else { break };
            let (_, yielded, _) = page.progress(activity.into(), turn.sequence);
            if is_behind(&page, activity.into()) {
                // Background activities run below this thread: nothing to look after.
                break;
            } else if yielded {
                // It was interrupted between ending its call and passing the turn on.
                Shared::pass_on(&page, turn);
            } else if shared.slots[usize::from(activity)].parked.load(Ordering::Acquire) {
                // Its turn has come: it goes on at once, before this thread.
                shared.unpark(&page, activity.into());
            } else if Shared::pass_on(&page, turn) {
                page.count(FrameCounter::Blocked, 1);
            }
        }
        futex::wait(word, seen, Some(DurNs::from_ms(100)));
    }
}

/// Whether an activity runs in the background, by its nature or for its faults.
fn is_behind(page: &FramePage<'_>, activity: usize) -> bool {
    page.activity_counter(activity, ActivityCounter::Budget) == 0
        || page.activity_counter(activity, ActivityCounter::Demoted) > 0
}

fn shown(border: &Border, begun: MonoNs) -> FrameBorder {
    let Border { pulse, minor, mode, due, end, .. } = *border;
    FrameBorder { pulse, minor, mode, begun, due, end }
}

fn frame_event(border: &Border, at: MonoNs) -> FrameEvent {
    FrameEvent { pulse: border.pulse, at, minor: border.minor, activity: u16::MAX, ..FrameEvent::default() }
}
