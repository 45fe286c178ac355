//! The two real-time threads of a frame: the dispatcher at minor borders, the caretaker in the gaps.

use crate::frames::cause::{Cause, InProgress, ThreadFiles};
use crate::frames::event;
use crate::frames::trigger::{Trigger, Waited};
use base::{DurNs, MonoNs, Policy, Priority};
use frame::{Action, Beat, Border, Fault, Judgement, Machine, Rhythm, Seen};
use ring::{ActivityCounter, FrameBorder, FrameCounter, FrameEvent, FramePage, Presence, Turn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use sys::clock::{mono_now, sleep_until};
use sys::futex;
use sys::sched::{Scheduling, try_set_scheduling};
use sys::shm::SharedWords;

/// Borders between two looks at the dispatcher's own accounts: a look is a system call.
const ACCOUNTS_EVERY: u32 = 256;

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
    /// Frames that wait for this one's borders.
    pub(crate) followers: AtomicUsize,
    /// Calls that are parked.
    pub(crate) parked: AtomicUsize,
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
            self.parked.fetch_add(1, Ordering::AcqRel);
            self.set_priority(page, activity, 3);
            page.count(FrameCounter::Parked, 1);
        }
    }

    /// Gives a parked thread its place again. Whether it was parked.
    fn unpark(&self, page: &FramePage<'_>, activity: usize) -> bool {
        let was = self.forget_parked(activity);
        if was {
            self.set_priority(page, activity, 1);
        }
        was
    }

    /// An activity's thread has the priority of its place, or is another one. Whether it was parked.
    fn forget_parked(&self, activity: usize) -> bool {
        let was = self.slots[activity].parked.swap(false, Ordering::AcqRel);
        if was {
            self.parked.fetch_sub(1, Ordering::AcqRel);
        }
        was
    }

    /// Passes the turn on over an activity that has not yielded, and wakes who has it then. Whether it was here.
    pub(crate) fn pass_over(page: &FramePage<'_>, turn: Turn) -> bool {
        let (moved, next) = page.pass_over(turn);
        if let Some(next) = next {
            futex::wake(page.call_word(next.into()));
        }
        moved
    }
}

/// What the dispatcher knows of an activity without looking at the page, where others write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Threads that had joined.
    pub(crate) joins: u64,
    /// A thread stood behind it when the minor began, and still does.
    pub(crate) present: bool,
    /// It is a background activity.
    pub(crate) background: bool,
    /// Its safe values stand.
    pub(crate) safe: bool,
}

/// The dispatcher.
pub(crate) struct Dispatcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Machine,
    pub(crate) trigger: Trigger,
    /// Faults of one border; room for all activities.
    pub(crate) faults: Vec<Judgement>,
    pub(crate) known: Vec<Known>,
    /// Whether all of them are present.
    pub(crate) complete: bool,
    /// The longest wait for a trigger.
    pub(crate) patience: DurNs,
    pub(crate) external: bool,
    pub(crate) rhythm: Rhythm,
    /// Of the page, when it was looked at who is there.
    pub(crate) changes: u64,
    /// Entries in front of the background ones in the queue of the running minor.
    pub(crate) front: usize,
}

impl Dispatcher {
    /// Runs the frame until it is stopped or its time base is gone.
    ///
    /// Real-time: allocates nothing. A border of a minor in which all have yielded costs one pass over the frame's own
    /// tables and one futex call; each call that goes on beyond its minor, each fault and each frame that follows more.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let page = shared.page();
        let Some((mut border, mut woke)) = self.first(&page) else { return };
        self.welcome(&page);
        let mut accounts = Accounts::now();
        let (mut turn, mut first) = self.begin(&page, &border, woke);
        loop {
            // Last of all: what the kernel needs for it is no work of the dispatcher's.
            page.dispatch().record(mono_now() - woke);
            if let Some(first) = first.take() {
                self.wake_first(&page, first);
            }
            if let Some(until) = self.rhythm.rest(border.due, self.machine.plan().length(border.minor.into())) {
                sleep_until(until);
            }
            let (mut ticks, now) = match self.trigger.wait(border.end, self.patience, &shared.stop) {
                Waited::Ticks(ticks, now) => (ticks, now),
                Waited::Nothing => {
                    self.silent(&page, &border);
                    woke = mono_now();
                    continue;
                }
                Waited::Over => return accounts.settle(&page),
            };
            woke = now;
            let due = self.trigger.stamped().map_or(now, |at| at.min(now));
            if self.external {
                self.listen(&page, &border, due, ticks);
            }
            if let Some(place) = self.trigger.place() {
                ticks = self.machine.follow(place.pulse, place.minor);
            }
            let stood = page.turn();
            self.miss(&page);
            let smooth = page.in_order() && stood.index >= self.front;
            let (faults, machine, known) = (&mut self.faults, &mut self.machine, &self.known);
            faults.clear();
            let seen = |activity: u16| {
                let present = known[usize::from(activity)].present;
                if smooth {
                    return Seen { present, ran: present, yielded: present };
                }
                let (ran, yielded, _) = page.progress(activity.into(), turn.sequence);
                Seen { present, ran, yielded }
            };
            // All were there and have yielded, and nothing is remembered of anybody: nobody needs to be looked at. Each look
            // is a part of memory more, and of that nothing is in the caches after a minor of other work.
            let short = if smooth && self.complete { machine.border_of_all(due, ticks) } else { None };
            let looked = short.is_none();
            let next = short.unwrap_or_else(|| machine.border(due, ticks, seen, |fault| faults.push(fault)));
            if next.extended.is_some() {
                page.extend(&shown(&next, woke));
                self.wake_followers(&page);
                self.tell(&page, &border, stood, woke);
            } else {
                let slack = page.at(stood).is_none().then(|| border.end - page.last_yield());
                self.close(&page, stood);
                self.welcome(&page);
                (turn, first) = self.begin(&page, &next, woke);
                if let Some(slack) = slack {
                    page.slack(border.minor.into()).record(slack);
                }
                if looked {
                    self.tell(&page, &border, stood, woke);
                }
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
            accounts.look(&page);
            if let Some(mode) = page.wanted_mode() {
                // A mode that does not exist is nobody's wish.
                let _ = self.machine.want_mode(mode.into());
            }
            border = next;
        }
    }

    /// Waits for the begin of the first minor: until it is due, or for the base's first tick.
    fn first(&mut self, page: &FramePage<'_>) -> Option<(Border, MonoNs)> {
        let mut border = self.machine.first();
        loop {
            match self.trigger.wait(border.due, self.patience, &self.shared.stop) {
                Waited::Ticks(_, now) if self.external => {
                    let due = self.trigger.stamped().map_or(now, |at| at.min(now));
                    self.rhythm.tick(due, 1, DurNs::ZERO);
                    let (pulse, minor) = self.trigger.place().map_or((border.pulse, 0), |at| (at.pulse, at.minor));
                    self.machine.begin_with(pulse, minor, due);
                    border = self.machine.first();
                    return Some((border, now));
                }
                Waited::Ticks(_, now) => return Some((border, now)),
                Waited::Nothing => self.silent(page, &border),
                Waited::Over => return None,
            }
        }
    }

    /// The base has not ticked for long.
    fn silent(&mut self, page: &FramePage<'_>, border: &Border) {
        if self.trigger.is_forming() {
            return;
        }
        page.count(FrameCounter::TriggerStopped, 1);
        if self.rhythm.beat() != self.rhythm.silence() {
            page.tell(&FrameEvent { what: event::TRIGGER_STOPPED, ..frame_event(border, mono_now()) });
        }
    }

    /// The base has ticked: whether it did so when it was expected.
    fn listen(&mut self, page: &FramePage<'_>, border: &Border, now: MonoNs, ticks: u64) {
        let before = self.rhythm.beat();
        let (beat, each) = self.rhythm.tick(now, ticks, self.machine.plan().length(border.minor.into()));
        let (counter, what) = match beat {
            Beat::Early => (Some(FrameCounter::TriggerEarly), event::TRIGGER_EARLY),
            Beat::Late | Beat::Stopped => (Some(FrameCounter::TriggerLate), event::TRIGGER_LATE),
            Beat::Steady => (None, event::TRIGGER_STEADY),
        };
        counter.into_iter().for_each(|counter| page.count(counter, 1));
        // A base that keeps coming too early is told once.
        if beat != before {
            page.tell(&FrameEvent { what, elapsed: each, ..frame_event(border, now) });
        }
    }

    /// Begins a minor: its queue, and whoever waits for borders. Its first activity is released, and is to be woken.
    fn begin(&mut self, page: &FramePage<'_>, border: &Border, woke: MonoNs) -> (Turn, Option<u16>) {
        let (machine, known, front, complete) = (&self.machine, &self.known, &mut self.front, self.complete);
        *front = 0;
        let there = |activity: u16| complete || known[usize::from(activity)].present;
        let queue = machine.queue().filter(|entry| there(entry.activity)).map(|entry| {
            *front += usize::from(!entry.discipline.background);
            entry.activity
        });
        let turn = page.begin(&shown(border, woke), queue);
        self.wake_followers(page);
        page.late().record(woke - border.due);
        (turn, page.release_first(turn))
    }

    /// Wakes the first activity of a minor, and the caretaker below it. One that was demoted keeps its place.
    fn wake_first(&self, page: &FramePage<'_>, first: u16) {
        if self.shared.parked.load(Ordering::Acquire) > 0 && !self.is_behind(first) {
            self.shared.unpark(page, first.into());
        }
        match self.shared.ordered {
            true => futex::wake_both(page.call_word(first.into()), page.care_word()),
            false => _ = futex::wake(page.call_word(first.into())),
        }
    }

    fn wake_followers(&self, page: &FramePage<'_>) {
        if self.shared.followers.load(Ordering::Acquire) > 0 {
            futex::wake(page.pulse_word());
        }
    }

    /// Ends a minor whose queue has come to `stood`: nobody begins in it any more, and calls that go on are parked.
    fn close(&self, page: &FramePage<'_>, stood: Turn) {
        // Who stands before the turn has yielded, unless somebody was passed over.
        let mut at = if page.in_order() { stood } else { Turn { index: 0, ..stood } };
        while let Some(activity) = page.at(at) {
            let index = usize::from(activity);
            let busy = page.close(index, stood.sequence);
            if busy && self.shared.ordered {
                page.count_held(index);
            }
            // Who is behind the others stays there: one that was demoted and had no turn in this minor must not come up.
            if !self.is_behind(activity) {
                match busy {
                    true => self.shared.park(page, index),
                    false => _ = self.shared.unpark(page, index),
                }
            }
            at.index += 1;
        }
        if self.shared.parked.load(Ordering::Acquire) == 0 {
            return;
        }
        // Those that were parked before and were not queued in this minor may have ended their calls meanwhile.
        for (activity, slot) in self.shared.slots.iter().enumerate() {
            if slot.parked.load(Ordering::Relaxed)
                && !page.progress(activity, stood.sequence).2
                && !self.machine.is_demoted(activity as u16)
            {
                self.shared.unpark(page, activity);
            }
        }
    }

    fn is_behind(&self, activity: u16) -> bool {
        self.known[usize::from(activity)].background || self.machine.is_demoted(activity)
    }

    /// Notices who is gone since the minor began; somebody new counts from the next one on.
    fn miss(&mut self, page: &FramePage<'_>) {
        if page.changes() == self.changes {
            return;
        }
        for (activity, known) in self.known.iter_mut().enumerate() {
            known.present &= page.who(activity).0 == Presence::Joined
                && page.activity_counter(activity, ActivityCounter::Joins) == known.joins;
        }
        self.complete = self.known.iter().all(|known| known.present);
    }

    /// Notices who has come, for the minor that begins, and tells the machine of those who joined anew.
    fn welcome(&mut self, page: &FramePage<'_>) {
        let changes = page.changes();
        if changes == std::mem::replace(&mut self.changes, changes) {
            return;
        }
        for (activity, known) in self.known.iter_mut().enumerate() {
            known.present = page.who(activity).0 == Presence::Joined;
            let joins = page.activity_counter(activity, ActivityCounter::Joins);
            if known.present && joins != known.joins {
                known.joins = joins;
                self.machine.joined(activity as u16);
                self.shared.forget_parked(activity);
            }
        }
        self.complete = self.known.iter().all(|known| known.present);
    }

    /// Writes down what went wrong, and does what follows.
    fn tell(&mut self, page: &FramePage<'_>, border: &Border, stood: Turn, now: MonoNs) {
        if self.faults.is_empty() && !self.known.iter().any(|known| known.safe) {
            return;
        }
        // Who began a call before that has been on the way for longer than this minor.
        let page_began = border.due;
        for fault in &self.faults {
            let activity = usize::from(fault.activity);
            let begun = page.begun(activity);
            let overran = fault.fault == Fault::Overrun;
            let elapsed = if overran { now - begun } else { DurNs::ZERO };
            let call = InProgress { elapsed, goes_on: overran && begun < page_began };
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
            let more = value.wrapping_sub(page.counter(counter));
            if more > 0 {
                page.count(counter, more);
            }
        }
    }
}

/// What the dispatcher must not do: fault, and take memory.
struct Accounts {
    until: u32,
    faults: u64,
    allocations: Option<u64>,
}

impl Accounts {
    fn now() -> Self {
        let usage = sys::thread::usage();
        let counts = sys::alloc::thread_counts();
        Self {
            until: ACCOUNTS_EVERY,
            faults: usage.minor_faults + usage.major_faults,
            allocations: counts.map(|counts| counts.taken + counts.given),
        }
    }

    /// Looks from time to time.
    fn look(&mut self, page: &FramePage<'_>) {
        match self.until.checked_sub(1) {
            Some(left) => self.until = left,
            None => self.settle(page),
        }
    }

    /// Shows what has come since it began.
    fn settle(&mut self, page: &FramePage<'_>) {
        let Self { faults, allocations, .. } = Self::now();
        self.until = ACCOUNTS_EVERY;
        let show = |counter, value: u64| page.count(counter, value.wrapping_sub(page.counter(counter)));
        show(FrameCounter::PageFaults, faults.saturating_sub(self.faults));
        let taken = allocations.zip(self.allocations).map_or(u64::MAX, |(now, before)| now.saturating_sub(before));
        show(FrameCounter::Allocations, taken);
    }
}

/// The caretaker: runs when nobody above it on this CPU does.
pub(crate) fn care(shared: &Shared) {
    let page = shared.page();
    let word = page.care_word();
    while !shared.stop.load(Ordering::Relaxed) {
        // First this: who wants it to look from now on finds it asleep, and wakes it.
        word.store(0, Ordering::SeqCst);
        loop {
            let turn = page.turn();
            let Some(activity) = page.at(turn) else { break };
            let (_, yielded, _) = page.progress(activity.into(), turn.sequence);
            if is_behind(&page, activity.into()) {
                // Background activities run below this thread: nothing to look after.
                break;
            } else if yielded {
                // It was interrupted between ending its call and passing the turn on.
                if let Some(next) = page.pass_on(turn) {
                    futex::wake(page.call_word(next.into()));
                }
            } else if shared.slots[usize::from(activity)].parked.load(Ordering::Acquire) {
                // Its turn has come: it goes on at once, before this thread.
                shared.unpark(&page, activity.into());
            } else if Shared::pass_over(&page, turn) {
                page.count(FrameCounter::Blocked, 1);
            }
        }
        futex::wait(word, 0, Some(DurNs::from_ms(100)));
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
