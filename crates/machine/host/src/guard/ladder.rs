//! The ladder: a sequence of steps against a runaway process, until it keeps its budget or is gone.

use super::{Rung, RungAction};
use base::{DurNs, MonoNs};

/// Maximum number of steps in a ladder.
pub const RUNGS_MAX: usize = 8;

/// State of the process since the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetState {
    /// It still exceeds its budget, or it is not known whether it does.
    Burning,
    /// Its threads have yielded their CPU and keep the budget.
    Tame,
    /// It is gone.
    Gone,
}

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderStep {
    /// None yet.
    Wait,
    /// Execute this step.
    Do(RungAction),
    /// The process kept its budget before it had to be ended. It continues in its present state (demoted).
    Tamed,
    /// The process is gone. The supervisor decides the next action.
    Ended,
    /// All steps are done and the process still exists. Repeat the last step.
    Exhausted,
}

/// Progress through a ladder. Contains the steps by value, so that it never allocates.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    rungs: [Option<Rung>; RUNGS_MAX],
    /// Index of the next step and the time when it is due; `None` if no climb is in progress.
    climbing: Option<(usize, MonoNs)>,
    /// Whether the last step was a demotion. The process then still runs and can return to its budget.
    tamable: bool,
}

impl Ladder {
    /// Creates a ladder of these steps. Steps beyond [`RUNGS_MAX`] are ignored; the plant file check refuses such a
    /// plant.
    #[must_use]
    pub fn new(rungs: &[Rung]) -> Self {
        let mut held = [None; RUNGS_MAX];
        for (place, rung) in held.iter_mut().zip(rungs) {
            *place = Some(*rung);
        }
        Self { rungs: held, climbing: None, tamable: false }
    }

    /// Whether a climb is in progress.
    #[must_use]
    pub fn is_climbing(&self) -> bool {
        self.climbing.is_some()
    }

    /// Starts with the first step, after a runaway was detected. Does nothing while a climb is in progress.
    pub fn begin(&mut self, now: MonoNs) -> LadderStep {
        if self.is_climbing() {
            return LadderStep::Wait;
        }
        self.climbing = Some((0, now));
        self.tamable = false;
        self.advance(now, BudgetState::Burning)
    }

    /// Returns the action that is due at `now`.
    pub fn advance(&mut self, now: MonoNs, seen: BudgetState) -> LadderStep {
        let Some((next, due)) = self.climbing else { return LadderStep::Wait };
        if seen == BudgetState::Gone {
            self.climbing = None;
            return LadderStep::Ended;
        }
        if now < due {
            return LadderStep::Wait;
        }
        if seen == BudgetState::Tame && self.tamable {
            self.climbing = None;
            return LadderStep::Tamed;
        }
        let Some(Some(rung)) = self.rungs.get(next).copied() else {
            // A process survives SIGKILL only in uninterruptible kernel waits. Repeat it every second, without limit.
            self.climbing = Some((next, now + DurNs::from_secs(1)));
            return LadderStep::Exhausted;
        };
        self.climbing = Some((next + 1, now + rung.wait));
        self.tamable = rung.action == RungAction::Demote;
        LadderStep::Do(rung.action)
    }

    /// Time when the next step is due; `None` if no climb is in progress.
    #[must_use]
    pub fn due(&self) -> Option<MonoNs> {
        self.climbing.map(|(_, due)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LADDER;
    use super::*;

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    #[test]
    fn each_step_against_a_stubborn_runaway_follows_after_its_time() {
        let mut ladder = Ladder::new(&LADDER);
        let mut deeds = vec![(0, ladder.begin(at(0)))];
        for ms in (0..5000).step_by(10) {
            match ladder.advance(at(ms), BudgetState::Burning) {
                LadderStep::Wait => {}
                deed => deeds.push((ms, deed)),
            }
        }
        assert_eq!(
            deeds,
            [
                (0, LadderStep::Do(RungAction::Demote)),
                (500, LadderStep::Do(RungAction::Freeze)),
                (700, LadderStep::Do(RungAction::Abort)),
                (2700, LadderStep::Do(RungAction::Kill)),
                (3700, LadderStep::Exhausted),
                (4700, LadderStep::Exhausted),
            ]
        );
        assert_eq!(ladder.advance(at(4800), BudgetState::Gone), LadderStep::Ended);
        assert!(!ladder.is_climbing());
    }

    #[test]
    fn a_process_that_behaves_after_its_demotion_is_left_running() {
        let mut ladder = Ladder::new(&LADDER);
        assert_eq!(ladder.begin(at(0)), LadderStep::Do(RungAction::Demote));
        assert_eq!(ladder.begin(at(1)), LadderStep::Wait);
        assert_eq!(ladder.advance(at(100), BudgetState::Tame), LadderStep::Wait);
        assert_eq!(ladder.advance(at(500), BudgetState::Tame), LadderStep::Tamed);
        assert_eq!(ladder.due(), None);
        assert_eq!(ladder.begin(at(900)), LadderStep::Do(RungAction::Demote));
    }

    #[test]
    fn a_frozen_process_is_not_treated_as_tamed() {
        let mut ladder = Ladder::new(&LADDER[1..]);
        assert_eq!(ladder.begin(at(0)), LadderStep::Do(RungAction::Freeze));
        assert_eq!(ladder.advance(at(200), BudgetState::Tame), LadderStep::Do(RungAction::Abort));
        assert_eq!(ladder.advance(at(210), BudgetState::Gone), LadderStep::Ended);
    }
}
