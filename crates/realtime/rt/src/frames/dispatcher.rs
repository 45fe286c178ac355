//! The dispatcher of a frame: the thread that acts at borders between minors.
//!
//! At a border the caches hold the data of other work. So the cost of a border is the memory that it touches, its own code
//! included. Code that a border of a minor in order does not need is in separate functions, marked as cold.

use crate::frames::accounts::{self, Accounts};
use crate::frames::event;
use crate::frames::shared::Shared;
use crate::frames::trigger::{self, Trigger, Waited};
use crate::frames::verdicts::MinorState;
use base::{DurNs, MonoNs};
use frame::{ActivityProgress, Beat, Border, Entry, Judgement, Machine, Rhythm};
use ring::{ActivityCounter, FrameBorder, FrameCounter, FrameEvent, FramePage, Presence, Turn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::futex;
use sys::rounds::Rounds;

/// The dispatcher hangs if it finishes no round of its loop for longer than this and its longest wait.
pub(crate) const HANGS_AFTER: DurNs = DurNs::from_secs(4);

/// Copy of an activity's state, so that the dispatcher need not read the page, which other threads write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActivityState {
    /// Number of threads that had joined.
    pub(crate) joins: u64,
    /// A thread had joined when the minor began, and still is.
    pub(crate) present: bool,
    /// It is a background activity.
    pub(crate) background: bool,
    /// Its safe values are in force.
    pub(crate) safe: bool,
}

/// The dispatcher.
pub(crate) struct Dispatcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: Machine,
    pub(crate) trigger: Trigger,
    /// Faults at one border, with room for all activities.
    pub(crate) faults: Vec<Judgement>,
    pub(crate) known: Vec<ActivityState>,
    /// Whether all activities are present.
    pub(crate) complete: bool,
    /// Whether safe values must still be put in force or withdrawn.
    pub(crate) unsettled: bool,
    /// Maximum wait for a trigger.
    pub(crate) patience: DurNs,
    pub(crate) external: bool,
    pub(crate) rhythm: Rhythm,
    /// The page's count of changes at the last check of the activities' presence.
    pub(crate) changes: u64,
    /// Number of entries before the background ones in the queue of the running minor.
    pub(crate) front: usize,
    pub(crate) rounds: Rounds,
}

impl Dispatcher {
    /// Runs the frame until it is stopped or its time base is gone.
    ///
    /// Real-time: does not allocate. A border of a minor in which all activities have yielded costs one pass over the
    /// frame's tables and one futex call. Each call that continues beyond its minor, each fault and each following frame
    /// costs more.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let page = shared.page();
        let Some((mut border, mut woke)) = self.first(&page) else { return };
        self.welcome(&page);
        let mut accounts = Accounts::now();
        let (mut turn, mut first) = self.begin(&page, &border, woke);
        loop {
            self.rounds.count();
            // Recorded first, because the kernel's time for the wake-up below is not the dispatcher's work.
            page.dispatch().record(mono_now() - woke);
            if let Some(first) = first.take() {
                self.wake_first(&page, first);
            }
            if let Some(until) = self.rhythm.rest(border.due, self.machine.plan().length(border.minor.into()))
                && trigger::until(until, &shared.stop) == Waited::Over
            {
                return accounts.settle(&page);
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
            self.faults.clear();
            // In the common case all activities were present and have yielded, and the state of none is kept. Then no
            // activity needs a check. Each check touches more memory, and after a minor of other work none of that is in
            // the caches.
            let short =
                if smooth && self.complete && !self.unsettled { self.machine.border_of_all(due, ticks) } else { None };
            let looked = short.is_none();
            let next = short.unwrap_or_else(|| self.border_of_some(&page, due, ticks, (!smooth).then_some(turn)));
            if next.extended.is_some() {
                let ended = MinorState::of(&page, stood);
                page.extend(&shown(&next, woke));
                self.wake_followers(&page);
                self.tell(&page, &border, &ended, woke);
            } else {
                let slack = page.at(stood).is_none().then(|| border.end - page.last_yield());
                let ended = looked.then(|| MinorState::of(&page, stood));
                self.close(&page, stood);
                self.welcome(&page);
                (turn, first) = self.begin(&page, &next, woke);
                if let Some(slack) = slack {
                    page.slack(border.minor.into()).record(slack);
                }
                if let Some(ended) = ended {
                    self.tell(&page, &border, &ended, woke);
                }
                if next.lost > 0 || next.mode != border.mode {
                    tell_of(&page, &border, &next, woke);
                }
            }
            accounts::show(&self.machine.totals(), &page);
            accounts.look(&page);
            if let Some(mode) = page.wanted_mode() {
                // A request for a mode that does not exist is ignored.
                let _ = self.machine.want_mode(mode.into());
            }
            border = next;
        }
    }

    /// The border of a minor in which activities must be checked. `turn` is the begin of the minor, or `None` if all have
    /// yielded.
    #[cold]
    fn border_of_some(&mut self, page: &FramePage<'_>, due: MonoNs, ticks: u64, turn: Option<Turn>) -> Border {
        let (faults, known) = (&mut self.faults, &self.known);
        let seen = |activity: u16| {
            let present = known[usize::from(activity)].present;
            let Some(turn) = turn else { return ActivityProgress { present, ran: present, yielded: present } };
            let (ran, yielded, _) = page.progress(activity.into(), turn.sequence);
            ActivityProgress { present, ran, yielded }
        };
        self.machine.border(due, ticks, seen, |fault| faults.push(fault))
    }

    /// Waits for the start of the first minor: until it is due, or for the first tick of the time base.
    fn first(&mut self, page: &FramePage<'_>) -> Option<(Border, MonoNs)> {
        let mut border = self.machine.first();
        loop {
            self.rounds.count();
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

    /// Handles a time base that has not ticked for long.
    #[cold]
    fn silent(&mut self, page: &FramePage<'_>, border: &Border) {
        if self.trigger.is_forming() {
            return;
        }
        page.count(FrameCounter::TriggerStopped, 1);
        if self.rhythm.beat() != self.rhythm.silence() {
            page.tell(&FrameEvent { what: event::TRIGGER_STOPPED, ..frame_event(border, mono_now()) });
        }
    }

    /// Handles a tick of the time base: checks whether it came when it was expected.
    #[inline(never)]
    fn listen(&mut self, page: &FramePage<'_>, border: &Border, now: MonoNs, ticks: u64) {
        let before = self.rhythm.beat();
        let (beat, each) = self.rhythm.tick(now, ticks, self.machine.plan().length(border.minor.into()));
        let (counter, what) = match beat {
            Beat::Early => (Some(FrameCounter::TriggerEarly), event::TRIGGER_EARLY),
            Beat::Late | Beat::Stopped => (Some(FrameCounter::TriggerLate), event::TRIGGER_LATE),
            Beat::Steady => (None, event::TRIGGER_STEADY),
        };
        counter.into_iter().for_each(|counter| page.count(counter, 1));
        // An event is only written when the state changes, so a time base that is always early causes one event.
        if beat != before {
            page.tell(&FrameEvent { what, elapsed: each, ..frame_event(border, now) });
        }
    }

    /// Begins a minor: publishes its queue, wakes the followers, and releases its first activity, which the caller must
    /// wake.
    fn begin(&mut self, page: &FramePage<'_>, border: &Border, woke: MonoNs) -> (Turn, Option<u16>) {
        let border = shown(border, woke);
        let turn = match self.machine.queue_of_all() {
            Some(entries) if self.complete => {
                page.begin(&border, count_front(entries.iter().copied(), &mut self.front))
            }
            _ => self.begin_with_some(page, &border),
        };
        self.wake_followers(page);
        page.late().record(border.begun - border.due);
        (turn, page.release_first(turn))
    }

    /// Begins a minor in which activities are absent, skipped or demoted, or any minor of a frame with several modes.
    #[cold]
    fn begin_with_some(&mut self, page: &FramePage<'_>, border: &FrameBorder) -> Turn {
        let (known, complete) = (&self.known, self.complete);
        let there = |entry: &Entry| complete || known[usize::from(entry.activity)].present;
        page.begin(border, count_front(self.machine.queue().filter(there), &mut self.front))
    }

    /// Wakes the first activity of a minor, and the caretaker below it. A demoted activity keeps its priority.
    fn wake_first(&self, page: &FramePage<'_>, first: u16) {
        if self.shared.parked.load(Ordering::Acquire) > 0 && !self.is_behind(first) {
            self.shared.unpark(first.into());
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

    /// Ends a minor whose queue has come to `stood`: no call can begin in it, and calls that continue are parked.
    fn close(&self, page: &FramePage<'_>, stood: Turn) {
        // All activities before the turn have yielded, unless one was passed over.
        match page.in_order() {
            true if page.at(stood).is_none() => {}
            true => self.shut(page, stood),
            false => self.shut(page, Turn { index: 0, ..stood }),
        }
        if self.shared.parked.load(Ordering::Acquire) > 0 {
            self.unpark_the_ended(page, stood);
        }
    }

    /// Closes the calls from a place in the queue on.
    #[cold]
    fn shut(&self, page: &FramePage<'_>, mut at: Turn) {
        while let Some(activity) = page.at(at) {
            let index = usize::from(activity);
            let busy = page.close(index, at.sequence);
            if busy && self.shared.ordered {
                page.count_held(index);
            }
            // An activity in the background stays there. A demoted one that had no turn in this minor must not be raised.
            if !self.is_behind(activity) {
                match busy {
                    true => self.shared.park(page, index),
                    false => _ = self.shared.unpark(index),
                }
            }
            at.index += 1;
        }
    }

    /// Restores activities that were parked before, were not queued in this minor, and have ended their calls meanwhile.
    #[cold]
    fn unpark_the_ended(&self, page: &FramePage<'_>, stood: Turn) {
        for (activity, slot) in self.shared.slots.iter().enumerate() {
            if slot.parked.load(Ordering::Relaxed)
                && !page.progress(activity, stood.sequence).2
                && !self.machine.is_demoted(activity as u16)
            {
                self.shared.unpark(activity);
            }
        }
    }

    fn is_behind(&self, activity: u16) -> bool {
        self.known[usize::from(activity)].background || self.machine.is_demoted(activity)
    }

    /// Detects activities that have gone since the minor began. A new one counts from the next minor on.
    fn miss(&mut self, page: &FramePage<'_>) {
        if page.changes() != self.changes {
            self.look_who_is_gone(page);
        }
    }

    #[cold]
    fn look_who_is_gone(&mut self, page: &FramePage<'_>) {
        for (activity, known) in self.known.iter_mut().enumerate() {
            known.present &= page.who(activity).0 == Presence::Joined
                && page.activity_counter(activity, ActivityCounter::Joins) == known.joins;
        }
        self.complete = self.known.iter().all(|known| known.present);
    }

    /// Detects activities that have arrived, for the minor that begins, and reports new joins to the machine.
    fn welcome(&mut self, page: &FramePage<'_>) {
        let changes = page.changes();
        if changes != std::mem::replace(&mut self.changes, changes) {
            self.look_who_has_come(page);
        }
    }

    #[cold]
    fn look_who_has_come(&mut self, page: &FramePage<'_>) {
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
}

/// The activities of a queue. Those that are not in the background are counted in `front`.
fn count_front(queue: impl Iterator<Item = Entry>, front: &mut usize) -> impl Iterator<Item = u16> {
    *front = 0;
    queue.map(|entry| {
        *front += usize::from(!entry.discipline.background);
        entry.activity
    })
}

/// Writes events for lost minors and for a mode that was entered between two borders.
#[cold]
fn tell_of(page: &FramePage<'_>, border: &Border, next: &Border, woke: MonoNs) {
    if next.lost > 0 {
        page.tell(&FrameEvent { what: event::LOST, detail: next.lost, ..frame_event(border, woke) });
    }
    if next.mode != border.mode {
        page.tell(&FrameEvent { what: event::MODE, detail: next.mode.into(), ..frame_event(next, woke) });
    }
}

fn shown(border: &Border, begun: MonoNs) -> FrameBorder {
    let Border { pulse, minor, mode, due, end, .. } = *border;
    FrameBorder { pulse, minor, mode, begun, due, end }
}

fn frame_event(border: &Border, at: MonoNs) -> FrameEvent {
    FrameEvent { pulse: border.pulse, at, minor: border.minor, activity: u16::MAX, ..FrameEvent::default() }
}
