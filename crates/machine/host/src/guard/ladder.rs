//! The ladder: step after step against a runaway until it is tame or gone.

use super::{Rung, RungAction};
use base::{DurNs, MonoNs};

/// More steps than a ladder ever has.
pub const RUNGS_MAX: usize = 8;

/// What was seen of the process since the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It still burns, or cannot be told tame.
    Burning,
    /// Its threads gave their CPU up and keep the budget.
    Tame,
    /// It is gone.
    Gone,
}

/// What must be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing yet.
    Wait,
    /// This step.
    Do(RungAction),
    /// The process gave in before it had to be ended: it goes on as it now is (demoted).
    Tamed,
    /// The process is gone: the supervisor decides what follows.
    Ended,
    /// All steps are done and the process still lives; the last is repeated.
    Exhausted,
}

/// One climb. Holds its steps by value: no allocation.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    rungs: [Option<Rung>; RUNGS_MAX],
    /// The next step, and when it is due; `None` while nobody climbs.
    climbing: Option<(usize, MonoNs)>,
    /// Whether the last step left a process that can still show itself tame.
    tamable: bool,
}

impl Ladder {
    /// A ladder of these steps; those beyond [`RUNGS_MAX`] are left out (a plant with more is refused).
    #[must_use]
    pub fn new(rungs: &[Rung]) -> Self {
        let mut held = [None; RUNGS_MAX];
        for (place, rung) in held.iter_mut().zip(rungs) {
            *place = Some(*rung);
        }
        Self { rungs: held, climbing: None, tamable: false }
    }

    /// Whether a climb is under way.
    #[must_use]
    pub fn is_climbing(&self) -> bool {
        self.climbing.is_some()
    }

    /// A runaway was found: the first step. Does nothing while a climb is under way.
    pub fn begin(&mut self, now: MonoNs) -> Deed {
        if self.is_climbing() {
            return Deed::Wait;
        }
        self.climbing = Some((0, now));
        self.tamable = false;
        self.advance(now, Seen::Burning)
    }

    /// Time has passed.
    pub fn advance(&mut self, now: MonoNs, seen: Seen) -> Deed {
        let Some((next, due)) = self.climbing else { return Deed::Wait };
        if seen == Seen::Gone {
            self.climbing = None;
            return Deed::Ended;
        }
        if now < due {
            return Deed::Wait;
        }
        if seen == Seen::Tame && self.tamable {
            self.climbing = None;
            return Deed::Tamed;
        }
        let Some(Some(rung)) = self.rungs.get(next).copied() else {
            // Nobody survives SIGKILL but in the kernel's own waits: ask again each second, for ever.
            self.climbing = Some((next, now + DurNs::from_secs(1)));
            return Deed::Exhausted;
        };
        self.climbing = Some((next + 1, now + rung.wait));
        self.tamable = rung.action == RungAction::Demote;
        Deed::Do(rung.action)
    }

    /// When the next step is due; `None` while nobody climbs.
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
            match ladder.advance(at(ms), Seen::Burning) {
                Deed::Wait => {}
                deed => deeds.push((ms, deed)),
            }
        }
        assert_eq!(
            deeds,
            [
                (0, Deed::Do(RungAction::Demote)),
                (500, Deed::Do(RungAction::Freeze)),
                (700, Deed::Do(RungAction::Abort)),
                (2700, Deed::Do(RungAction::Kill)),
                (3700, Deed::Exhausted),
                (4700, Deed::Exhausted),
            ]
        );
        assert_eq!(ladder.advance(at(4800), Seen::Gone), Deed::Ended);
        assert!(!ladder.is_climbing());
    }

    #[test]
    fn a_process_that_behaves_after_its_demotion_is_left_running() {
        let mut ladder = Ladder::new(&LADDER);
        assert_eq!(ladder.begin(at(0)), Deed::Do(RungAction::Demote));
        assert_eq!(ladder.begin(at(1)), Deed::Wait);
        assert_eq!(ladder.advance(at(100), Seen::Tame), Deed::Wait);
        assert_eq!(ladder.advance(at(500), Seen::Tame), Deed::Tamed);
        assert_eq!(ladder.due(), None);
        assert_eq!(ladder.begin(at(900)), Deed::Do(RungAction::Demote));
    }

    #[test]
    fn a_frozen_process_is_not_treated_as_tamed() {
        let mut ladder = Ladder::new(&LADDER[1..]);
        assert_eq!(ladder.begin(at(0)), Deed::Do(RungAction::Freeze));
        assert_eq!(ladder.advance(at(200), Seen::Tame), Deed::Do(RungAction::Abort));
        assert_eq!(ladder.advance(at(210), Seen::Gone), Deed::Ended);
    }
}
