//! The state machine: what each minor border means.

use crate::admit::{Entry, Plan};
use crate::spec::Recovery;
use alloc::vec;
use alloc::vec::Vec;
use base::{DurNs, MonoNs};

/// How an activity did in the minor that ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// A living thread stands behind it.
    pub present: bool,
    /// It was dispatched in this minor, and began or went on.
    pub ran: bool,
    /// It has yielded since.
    pub yielded: bool,
}

/// What an activity did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not yield.
    Overrun,
    /// It did not begin.
    Underrun,
    /// Nobody has joined under its name, or who had is gone.
    Absent,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is counted.
    Counted,
    /// The minor goes on, for its sake or another's.
    MoreTime,
    /// It is left out of the next minor in which it is queued.
    Skip,
    /// Its safe values stand.
    SafeValue,
    /// It runs in the background from now on.
    Demote,
    /// Its process is to be killed.
    Restart,
}

/// One activity's fault at a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The activity.
    pub activity: u16,
    /// The minor that ends.
    pub minor: u16,
    /// What it did wrong.
    pub fault: Fault,
    /// How often in succession, this time included.
    pub consecutive: u32,
    /// What is done about it.
    pub action: Action,
}

/// Why a minor goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// For its own length once more.
    Inject,
    /// For a while; everything after it is later.
    Stretch,
    /// For a while; the next one is shorter.
    Steal,
}

/// What begins at a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border {
    /// Number of the pulse that begins.
    pub pulse: u64,
    /// The minor that begins, or goes on.
    pub minor: u16,
    /// Set if the minor that was running goes on.
    pub extended: Option<Extension>,
    /// Minors that passed before anybody could run them.
    pub lost: u64,
    /// When this minor was due to begin.
    pub due: MonoNs,
    /// When it is to end.
    pub end: MonoNs,
    /// Whether a major frame begins.
    pub major: bool,
    /// The mode.
    pub mode: u16,
}

/// Counters of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Minors that were run.
    pub minors: u64,
    /// Minors that were lost.
    pub lost: u64,
    /// Overruns.
    pub overruns: u64,
    /// Underruns.
    pub underruns: u64,
    /// Minors in which somebody was absent, once for each.
    pub absences: u64,
    /// Times that a minor was given more time.
    pub extensions: u64,
    /// Changes of mode.
    pub modes: u64,
    /// Turns that were left out by `skip`.
    pub skipped: u64,
}

/// What is remembered of an activity from border to border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// From a continuable minor.
    carried_ran: bool,
    carried_yielded: bool,
    consecutive: u32,
    skip: bool,
    demoted: bool,
    safe: bool,
    /// It is not judged in this minor: left out, or not queued.
    excused: bool,
    /// Of the border that is being judged.
    fault: Option<Fault>,
}

impl State {
    fn forget_carried(&mut self) {
        (self.carried_ran, self.carried_yielded) = (false, false);
    }
}

/// A running frame. Nothing here allocates after [`new`](Self::new); a border costs one pass over the queue.
#[derive(Clone, Debug)]
pub struct Machine {
    plan: Plan,
    states: Vec<State>,
    minor: usize,
    pulse: u64,
    /// When the minor was due to begin.
    due: MonoNs,
    /// When it would end if nothing had been stolen for it.
    planned: MonoNs,
    /// When it ends.
    end: MonoNs,
    mode: usize,
    wanted: usize,
    totals: Totals,
    /// Nothing is remembered of anybody: every state is as it began. May be false though it is so.
    calm: bool,
}

impl Machine {
    /// The first minor, with pulse number `pulse`, begins at `start`.
    #[must_use]
    pub fn new(plan: Plan, pulse: u64, start: MonoNs) -> Self {
        let planned = start + plan.lengths[0];
        let states = vec![State::default(); plan.activities()];
        let totals = Totals { minors: 1, ..Totals::default() };
        Self {
            plan,
            states,
            minor: 0,
            pulse,
            due: start,
            planned,
            end: planned,
            mode: 0,
            wanted: 0,
            totals,
            calm: true,
        }
    }

    /// The border at which the running minor ends. `ticks` is how often the time base has said so since the last
    /// border: 1 for a timer, whose losses are found from `now`.
    ///
    /// `seen` tells how an activity did; `told` hears of each fault. If the border [extends](Border::extended) the
    /// minor, whoever has not yielded goes on and nobody begins anew.
    pub fn border(
        &mut self,
        now: MonoNs,
        ticks: u64,
        seen: impl Fn(u16) -> Seen,
        mut told: impl FnMut(Judgement),
    ) -> Border {
        let extension = self.judge(&seen, &mut told);
        if let Some((extension, by)) = extension {
            self.calm = false;
            return self.extend(now, ticks, extension, by);
        }
        self.carry(&seen);
        let border = self.go_on(now, ticks);
        self.excuse();
        self.calm = self.states.iter().all(|state| *state == State::default());
        border
    }

    /// The border of a minor in which everybody who was queued in front of the background was there and has yielded: what
    /// [`border`](Self::border) makes of it, without a look at each. `None` where something is remembered of somebody, or is
    /// to be: ask `border` then.
    pub fn border_of_all(&mut self, now: MonoNs, ticks: u64) -> Option<Border> {
        (self.calm && !self.plan.carries[self.minor]).then(|| self.go_on(now, ticks))
    }

    /// The border with which the frame has begun.
    #[must_use]
    pub fn first(&mut self) -> Border {
        self.excuse();
        self.shown(None, 0)
    }

    /// Begins where another frame has begun or gone on to, whose minors are the same: with this pulse and minor, at `start`.
    /// Before [`first`](Self::first).
    pub fn begin_with(&mut self, pulse: u64, minor: u16, start: MonoNs) {
        self.minor = usize::from(minor) % self.plan.minors();
        self.pulse = pulse;
        self.due = start;
        self.planned = start + self.plan.lengths[self.minor];
        self.end = self.planned;
    }

    /// For the border at which this frame goes on to the minor and pulse of another: the ticks to give to
    /// [`border`](Self::border), of which those are no ticks for which the other ran a minor again.
    pub fn follow(&mut self, pulse: u64, minor: u16) -> u64 {
        let minors = self.plan.minors() as u64;
        let least = (u64::from(minor) % minors + minors - self.minor as u64 - 1) % minors + 1;
        let ticks = least + pulse.wrapping_sub(self.pulse).saturating_sub(least) / minors * minors;
        self.pulse = pulse.wrapping_sub(ticks);
        ticks
    }

    /// The activities of the minor that has begun, in the order in which they run. Whether somebody stands behind
    /// them is for the caller to know.
    pub fn queue(&self) -> impl Iterator<Item = Entry> + '_ {
        let entries = self.plan.queue(self.minor).iter().copied();
        // A border begins with caches that others have filled: no look at tables that say nothing.
        let always = self.plan.modes.len() == 1;
        let runs = move |entry: &Entry| always || self.plan.runs_in(self.mode, entry.activity);
        let state = |entry: &Entry| self.states[usize::from(entry.activity)];
        let ahead = move |entry: &Entry| {
            self.calm || {
                let state = state(entry);
                !state.demoted && !state.excused && !state.carried_yielded
            }
        };
        let demoted = move |entry: &Entry| !self.calm && state(entry).demoted;
        let regular = entries.clone().filter(move |entry| runs(entry) && !entry.discipline.background && ahead(entry));
        let behind = entries.filter(move |entry| runs(entry) && (entry.discipline.background || demoted(entry)));
        regular.chain(behind.map(|entry| Entry { discipline: crate::Discipline::BACKGROUND, ..entry }))
    }

    /// The [`queue`](Self::queue) where it is all that the plan has for the minor: one mode, nothing remembered of anybody.
    #[must_use]
    pub fn queue_of_all(&self) -> Option<&[Entry]> {
        // The plan has the background ones last, too.
        (self.calm && self.plan.modes.len() == 1).then(|| self.plan.queue(self.minor))
    }

    /// Asks for a mode; it is entered at the next border of a major frame. `false` if there is no such mode.
    pub fn want_mode(&mut self, mode: usize) -> bool {
        let known = mode < self.plan.modes.len();
        if known {
            self.wanted = mode;
        }
        known
    }

    /// A new thread stands behind an activity: what was held against the old one is forgotten.
    pub fn joined(&mut self, activity: u16) {
        if let Some(state) = self.states.get_mut(usize::from(activity)) {
            *state = State { excused: state.excused, ..State::default() };
        }
    }

    /// Whether the safe values of an activity stand.
    #[must_use]
    pub fn is_safe(&self, activity: u16) -> bool {
        self.states.get(usize::from(activity)).is_some_and(|state| state.safe)
    }

    /// Whether an activity was demoted.
    #[must_use]
    pub fn is_demoted(&self, activity: u16) -> bool {
        self.states.get(usize::from(activity)).is_some_and(|state| state.demoted)
    }

    /// The counters.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Judges everybody who was queued; the extension that somebody's recovery asks for.
    fn judge(&mut self, seen: &impl Fn(u16) -> Seen, told: &mut impl FnMut(Judgement)) -> Option<(Extension, DurNs)> {
        let mut extension = None;
        let mut faults = false;
        let range = self.plan.first[self.minor] as usize..self.plan.first[self.minor + 1] as usize;
        for at in range.clone() {
            let Entry { activity, discipline } = self.plan.entries[at];
            let index = usize::from(activity);
            let state = &mut self.states[index];
            if discipline.background || state.demoted || state.excused || !self.plan.modes[self.mode][index] {
                continue;
            }
            let Seen { present, ran, yielded } = seen(activity);
            let (ran, yielded) = (ran || state.carried_ran, yielded || state.carried_yielded);
            let fault = match (present, ran, yielded) {
                (false, ..) => Fault::Absent,
                (true, false, false) if !discipline.underrunnable => Fault::Underrun,
                (true, true, false) if !discipline.overrunnable => Fault::Overrun,
                _ => {
                    if yielded {
                        (state.consecutive, state.safe) = (0, false);
                    }
                    continue;
                }
            };
            match fault {
                Fault::Overrun => self.totals.overruns += 1,
                Fault::Underrun => self.totals.underruns += 1,
                Fault::Absent => self.totals.absences += 1,
            }
            faults = true;
            state.fault = Some(fault);
            state.consecutive = state.consecutive.saturating_add(1);
            if fault != Fault::Absent && state.consecutive <= self.plan.tolerate[index] {
                // The first in the queue decides how much.
                extension = extension.or(match self.plan.recovery[index] {
                    Recovery::Stretch(by) => Some((Extension::Stretch, by)),
                    Recovery::Steal(by) => Some((Extension::Steal, by)),
                    Recovery::Inject => Some((Extension::Inject, self.plan.lengths[self.minor])),
                    _ => None,
                });
            }
        }
        if faults {
            range.for_each(|at| self.recover(self.plan.entries[at].activity, extension.is_some(), told));
        }
        extension
    }

    /// Does what follows from somebody's fault. In a minor that goes on nobody loses its turn: it may still yield in time.
    fn recover(&mut self, activity: u16, goes_on: bool, told: &mut impl FnMut(Judgement)) {
        let index = usize::from(activity);
        let state = &mut self.states[index];
        let Some(fault) = state.fault.take() else { return };
        let tolerated = state.consecutive <= self.plan.tolerate[index];
        let action = match (self.plan.recovery[index], fault, tolerated) {
            (Recovery::SafeValue, _, false) => {
                state.safe = true;
                Action::SafeValue
            }
            (_, Fault::Absent, _) => Action::Counted,
            (recovery, _, true) if recovery.gives_time() => Action::MoreTime,
            (Recovery::Skip, _, false) if !goes_on => {
                state.skip = true;
                Action::Skip
            }
            (Recovery::Demote, _, false) if !goes_on => {
                state.demoted = true;
                Action::Demote
            }
            (Recovery::Restart, _, false) if !goes_on => Action::Restart,
            _ => Action::Counted,
        };
        told(Judgement { activity, minor: self.minor as u16, fault, consecutive: state.consecutive, action });
    }

    fn extend(&mut self, now: MonoNs, ticks: u64, extension: Extension, by: DurNs) -> Border {
        self.totals.extensions += 1;
        let begin = self.end;
        self.end = self.end + by;
        if extension != Extension::Steal {
            self.planned = self.end;
        }
        // The repeated minor has a pulse of its own, so that pulses go on counting the time base.
        let mut lost = 0;
        if extension == Extension::Inject {
            lost = if self.plan.timer { 0 } else { ticks.saturating_sub(1) };
            self.pulse = self.pulse.wrapping_add(1).wrapping_add(lost);
            self.totals.lost += lost;
        }
        if !self.plan.timer {
            (self.planned, self.end) = (now + by, now + by);
        }
        Border { due: begin, ..self.shown(Some(extension), lost) }
    }

    /// What of this minor counts for the next in which the same activity is queued.
    fn carry(&mut self, seen: &impl Fn(u16) -> Seen) {
        for at in self.plan.first[self.minor] as usize..self.plan.first[self.minor + 1] as usize {
            let Entry { activity, discipline } = self.plan.entries[at];
            let state = &mut self.states[usize::from(activity)];
            if !self.plan.modes[self.mode][usize::from(activity)] {
                continue;
            }
            // Also where it is left out of the end of its block.
            if !discipline.continuable {
                state.forget_carried();
                continue;
            }
            if state.excused {
                continue;
            }
            let seen = seen(activity);
            state.carried_ran |= seen.ran;
            state.carried_yielded |= seen.yielded;
        }
    }

    /// Goes on to the minor that runs at `now`; how many were lost.
    fn advance(&mut self, now: MonoNs, ticks: u64) -> u64 {
        if self.plan.timer {
            self.step(now);
            return if now < self.end { 0 } else { self.catch_up(now) };
        }
        let lost = ticks.saturating_sub(1);
        let minors = self.plan.minors() as u64;
        self.step(now);
        self.lose_majors(lost / minors);
        for _ in 0..lost % minors {
            self.lose();
            self.step(now);
        }
        lost
    }

    /// The next minor, due now unless a timer says when.
    fn step(&mut self, now: MonoNs) {
        self.minor = if self.minor + 1 < self.plan.minors() { self.minor + 1 } else { 0 };
        self.pulse = self.pulse.wrapping_add(1);
        let length = self.plan.lengths[self.minor];
        if self.plan.timer {
            // What was stolen comes back here: the next minor ends when it would have.
            self.due = self.end;
            self.planned = self.planned + length;
        } else {
            (self.due, self.planned) = (now, now + length);
        }
        self.end = self.planned;
    }

    /// Goes on from a minor that has ended by now to the one that runs: how many were lost.
    #[cold]
    fn catch_up(&mut self, now: MonoNs) -> u64 {
        let major = self.plan.lengths.iter().map(|length| length.0 as u64).sum::<u64>();
        let whole = now.0.saturating_sub(self.end.0) / major;
        let by = DurNs((whole * major) as i64);
        (self.due, self.planned, self.end) = (self.due + by, self.planned + by, self.end + by);
        let mut lost = self.lose_majors(whole);
        while now >= self.end {
            self.lose();
            self.step(now);
            lost += 1;
        }
        lost
    }

    /// Nobody runs this minor: for those whose block of continuable minors ends with it, nothing counts any longer.
    fn lose(&mut self) {
        for entry in self.plan.queue(self.minor).iter().filter(|entry| !entry.discipline.continuable) {
            self.states[usize::from(entry.activity)].forget_carried();
        }
    }

    /// Nobody runs this and all other minors so often, and each block ends in one of them: how many minors those are.
    fn lose_majors(&mut self, majors: u64) -> u64 {
        let minors = majors.wrapping_mul(self.plan.minors() as u64);
        self.pulse = self.pulse.wrapping_add(minors);
        if majors > 0 {
            self.states.iter_mut().for_each(State::forget_carried);
        }
        minors
    }

    /// Begins the next minor.
    fn go_on(&mut self, now: MonoNs, ticks: u64) -> Border {
        let lost = self.advance(now, ticks);
        if self.minor == 0 && self.wanted != self.mode {
            self.mode = self.wanted;
            self.totals.modes += 1;
            // Who is not in it begins its block anew when it is back.
            let gone = self.states.iter_mut().zip(&self.plan.modes[self.mode]).filter(|(_, runs)| !**runs);
            gone.for_each(|(state, _)| state.forget_carried());
        }
        self.totals.minors += 1;
        self.totals.lost += lost;
        self.shown(None, lost)
    }

    /// Leaves out those whose turn is skipped.
    fn excuse(&mut self) {
        for at in self.plan.first[self.minor] as usize..self.plan.first[self.minor + 1] as usize {
            let index = usize::from(self.plan.entries[at].activity);
            let state = &mut self.states[index];
            state.excused = state.skip && self.plan.modes[self.mode][index];
            if state.excused {
                state.skip = false;
                self.totals.skipped += 1;
            }
        }
    }

    fn shown(&self, extended: Option<Extension>, lost: u64) -> Border {
        Border {
            pulse: self.pulse,
            minor: self.minor as u16,
            extended,
            lost,
            due: self.due,
            end: self.end,
            major: self.minor == 0 && extended.is_none(),
            mode: self.mode as u16,
        }
    }
}
