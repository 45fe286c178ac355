//! The state machine of a frame: decisions at each border between minors.

use crate::admit::{Entry, Plan};
use crate::spec::Recovery;
use alloc::vec;
use alloc::vec::Vec;
use base::{DurNs, MonoNs};

/// Progress of an activity in the minor that ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityProgress {
    /// A living thread has joined as it.
    pub present: bool,
    /// It was dispatched in this minor, and began or continued.
    pub ran: bool,
    /// It has yielded since.
    pub yielded: bool,
}

/// Kinds of faults of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not yield.
    Overrun,
    /// It did not begin.
    Underrun,
    /// No thread has joined under its name, or its thread has gone.
    Absent,
}

/// Action after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The fault is counted.
    Counted,
    /// The minor is extended, for this activity or for another.
    MoreTime,
    /// The activity is skipped in the next minor in which it is queued.
    Skip,
    /// Its safe values are put in force.
    SafeValue,
    /// It runs in the background from now on.
    Demote,
    /// Its process is to be killed.
    Restart,
}

/// Judgement of an activity's fault at a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The activity.
    pub activity: u16,
    /// The minor that ends.
    pub minor: u16,
    /// Kind of the fault.
    pub fault: Fault,
    /// Number of consecutive faults, including this one.
    pub consecutive: u32,
    /// Action after the fault.
    pub action: Action,
}

/// Kind of extension of a minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// By its own length.
    Inject,
    /// By a set time; everything after it is later.
    Stretch,
    /// By a set time; the next minor is shorter.
    Steal,
}

/// The minor that begins at a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border {
    /// Pulse number.
    pub pulse: u64,
    /// The minor that begins or is extended.
    pub minor: u16,
    /// Set if the running minor is extended.
    pub extended: Option<Extension>,
    /// Minors that passed before the dispatcher could run them.
    pub lost: u64,
    /// Time at which this minor was due.
    pub due: MonoNs,
    /// Time at which it ends.
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
    /// Absences: for each minor, the number of activities that were absent from it.
    pub absences: u64,
    /// Extensions of a minor.
    pub extensions: u64,
    /// Changes of mode.
    pub modes: u64,
    /// Turns skipped by the recovery `skip`.
    pub skipped: u64,
}

/// State of an activity that is kept from border to border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Progress in an earlier continuable minor.
    carried_ran: bool,
    carried_yielded: bool,
    consecutive: u32,
    skip: bool,
    demoted: bool,
    safe: bool,
    /// It is not judged in this minor, because it is skipped.
    excused: bool,
    /// Fault at the border that is being judged.
    fault: Option<Fault>,
}

impl State {
    fn forget_carried(&mut self) {
        (self.carried_ran, self.carried_yielded) = (false, false);
    }
}

/// A running frame. It does not allocate after [`new`](Self::new). A border costs one pass over the queue.
#[derive(Clone, Debug)]
pub struct Machine {
    plan: Plan,
    states: Vec<State>,
    minor: usize,
    pulse: u64,
    /// Time at which the minor was due.
    due: MonoNs,
    /// Time at which the minor would end if no time had been stolen for it.
    planned: MonoNs,
    /// Time at which the minor ends.
    end: MonoNs,
    mode: usize,
    wanted: usize,
    totals: Totals,
    /// All states have their initial value. May be false although they have.
    calm: bool,
}

impl Machine {
    /// Starts with the first minor at `start`, with pulse number `pulse`.
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

    /// Processes the border at which the running minor ends. `ticks` is the number of ticks of the time base since the last
    /// border. For a timer it is 1; lost minors are determined from `now`.
    ///
    /// `seen` returns the progress of an activity. `report` is called for each fault. If the border
    /// [extends](Border::extended) the minor, activities that have not yielded continue, and none begins again.
    pub fn border(
        &mut self,
        now: MonoNs,
        ticks: u64,
        seen: impl Fn(u16) -> ActivityProgress,
        mut report: impl FnMut(Judgement),
    ) -> Border {
        let extension = self.judge(&seen, &mut report);
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

    /// Processes the border of a minor in which all activities in front of the background were present and have yielded. The
    /// result is that of [`border`](Self::border), but no activity is checked. Returns `None` if the state of an activity is
    /// or must be kept; the caller must then call `border`.
    pub fn border_of_all(&mut self, now: MonoNs, ticks: u64) -> Option<Border> {
        (self.calm && !self.plan.carries[self.minor]).then(|| self.go_on(now, ticks))
    }

    /// The border at which the frame begins.
    #[must_use]
    pub fn first(&mut self) -> Border {
        self.excuse();
        self.shown(None, 0)
    }

    /// Sets the start of a frame that follows another frame with the same minors: begins with this pulse and minor, at
    /// `start`. To be called before [`first`](Self::first).
    pub fn begin_with(&mut self, pulse: u64, minor: u16, start: MonoNs) {
        self.minor = usize::from(minor) % self.plan.minors();
        self.pulse = pulse;
        self.due = start;
        self.planned = start + self.plan.lengths[self.minor];
        self.end = self.planned;
    }

    /// Number of ticks for [`border`](Self::border) when this frame follows another one to this pulse and minor. Ticks for
    /// which the other frame repeated a minor do not count.
    pub fn follow(&mut self, pulse: u64, minor: u16) -> u64 {
        let minors = self.plan.minors() as u64;
        let least = (u64::from(minor) % minors + minors - self.minor as u64 - 1) % minors + 1;
        let ticks = least + pulse.wrapping_sub(self.pulse).saturating_sub(least) / minors * minors;
        self.pulse = pulse.wrapping_sub(ticks);
        ticks
    }

    /// The activities of the minor that has begun, in the order in which they run. The caller must check which of them are
    /// present.
    pub fn queue(&self) -> impl Iterator<Item = Entry> + '_ {
        let entries = self.plan.queue(self.minor).iter().copied();
        // Tables without information are not read, because at a border the caches hold the data of other work.
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

    /// The [`queue`](Self::queue) if it equals the plan's queue of the minor: there is one mode, and no activity's state is
    /// kept.
    #[must_use]
    pub fn queue_of_all(&self) -> Option<&[Entry]> {
        // The plan has the background entries last as well.
        (self.calm && self.plan.modes.len() == 1).then(|| self.plan.queue(self.minor))
    }

    /// Requests a mode. It is entered at the next border of a major frame. Returns `false` if there is no such mode.
    pub fn want_mode(&mut self, mode: usize) -> bool {
        let known = mode < self.plan.modes.len();
        if known {
            self.wanted = mode;
        }
        known
    }

    /// Resets the state of an activity that a new thread has joined as.
    pub fn joined(&mut self, activity: u16) {
        if let Some(state) = self.states.get_mut(usize::from(activity)) {
            *state = State { excused: state.excused, ..State::default() };
        }
    }

    /// Whether the safe values of an activity are in force.
    #[must_use]
    pub fn is_safe(&self, activity: u16) -> bool {
        self.states.get(usize::from(activity)).is_some_and(|state| state.safe)
    }

    /// Whether an activity is demoted.
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

    /// Judges all activities that were queued. Returns the extension that a recovery requires.
    fn judge(
        &mut self,
        seen: &impl Fn(u16) -> ActivityProgress,
        report: &mut impl FnMut(Judgement),
    ) -> Option<(Extension, DurNs)> {
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
            let ActivityProgress { present, ran, yielded } = seen(activity);
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
                // The first activity in the queue determines the extension.
                extension = extension.or(match self.plan.recovery[index] {
                    Recovery::Stretch(by) => Some((Extension::Stretch, by)),
                    Recovery::Steal(by) => Some((Extension::Steal, by)),
                    Recovery::Inject => Some((Extension::Inject, self.plan.lengths[self.minor])),
                    _ => None,
                });
            }
        }
        if faults {
            range.for_each(|at| self.recover(self.plan.entries[at].activity, extension.is_some(), report));
        }
        extension
    }

    /// Applies the recovery after a fault. In an extended minor no activity loses its turn, because it may still yield in
    /// time.
    fn recover(&mut self, activity: u16, goes_on: bool, report: &mut impl FnMut(Judgement)) {
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
        report(Judgement { activity, minor: self.minor as u16, fault, consecutive: state.consecutive, action });
    }

    fn extend(&mut self, now: MonoNs, ticks: u64, extension: Extension, by: DurNs) -> Border {
        self.totals.extensions += 1;
        let begin = self.end;
        self.end = self.end + by;
        if extension != Extension::Steal {
            self.planned = self.end;
        }
        // The repeated minor has a separate pulse number, so that pulse numbers continue to count the time base.
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

    /// Keeps the progress in this minor that counts for the next minor in which the same activity is queued.
    fn carry(&mut self, seen: &impl Fn(u16) -> ActivityProgress) {
        for at in self.plan.first[self.minor] as usize..self.plan.first[self.minor + 1] as usize {
            let Entry { activity, discipline } = self.plan.entries[at];
            let state = &mut self.states[usize::from(activity)];
            if !self.plan.modes[self.mode][usize::from(activity)] {
                continue;
            }
            // Also if the activity is skipped at the end of its block.
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

    /// Advances to the minor that runs at `now`. Returns the number of lost minors.
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

    /// Advances to the next minor. It is due now, unless the time base is a timer.
    fn step(&mut self, now: MonoNs) {
        self.minor = if self.minor + 1 < self.plan.minors() { self.minor + 1 } else { 0 };
        self.pulse = self.pulse.wrapping_add(1);
        let length = self.plan.lengths[self.minor];
        if self.plan.timer {
            // Stolen time is returned here: the next minor ends at its planned time.
            self.due = self.end;
            self.planned = self.planned + length;
        } else {
            (self.due, self.planned) = (now, now + length);
        }
        self.end = self.planned;
    }

    /// Advances from a minor that has already ended to the one that should be running. Returns the number of lost minors.
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

    /// Loses the present minor. For activities whose block of continuable minors ends with it, earlier progress is
    /// discarded.
    fn lose(&mut self) {
        for entry in self.plan.queue(self.minor).iter().filter(|entry| !entry.discipline.continuable) {
            self.states[usize::from(entry.activity)].forget_carried();
        }
    }

    /// Loses a number of whole major frames and returns the number of minors in them. Each block ends in one of these
    /// minors.
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
            // An activity that is not in the mode starts its block again when it is back.
            let gone = self.states.iter_mut().zip(&self.plan.modes[self.mode]).filter(|(_, runs)| !**runs);
            gone.for_each(|(state, _)| state.forget_carried());
        }
        self.totals.minors += 1;
        self.totals.lost += lost;
        self.shown(None, lost)
    }

    /// Excuses the activities that are skipped in this minor.
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
