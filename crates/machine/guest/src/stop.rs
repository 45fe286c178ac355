//! Steps of stopping a guest: ask the guest, then ask QEMU, then kill QEMU. The caller passes the time `now`.

use base::{DurNs, MonoNs};

/// Time QEMU has to quit.
pub const QUIT_WITHIN: DurNs = DurNs::from_secs(5);

/// Interval between presses of the power button. A system that is still booting ignores the first ones.
pub const PRESS_EVERY: DurNs = DurNs::from_secs(2);

/// A step of the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Press the guest's power button.
    Powerdown,
    /// Let QEMU end at once with consistent disk images.
    Quit,
    /// Kill QEMU.
    Kill,
}

/// A stop in progress.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    taken: Option<Step>,
    next: MonoNs,
    within: DurNs,
    /// End of the guest's own time.
    until: MonoNs,
}

impl Stop {
    /// Begins a stop. The guest itself has the time `within`.
    #[must_use]
    pub const fn begin(now: MonoNs, within: DurNs) -> Self {
        Self { taken: None, next: now, within, until: now }
    }

    /// The step that is due. Each step is due once, except the power button, which is repeated during the guest's time.
    pub fn due(&mut self, now: MonoNs) -> Option<Step> {
        if now < self.next {
            return None;
        }
        if self.taken.is_none() {
            self.until = now + self.within;
        }
        let (step, next) = match self.taken {
            None => (Step::Powerdown, self.until.min(now + PRESS_EVERY)),
            Some(Step::Powerdown) if now < self.until => (Step::Powerdown, self.until.min(now + PRESS_EVERY)),
            Some(Step::Powerdown) => (Step::Quit, now + QUIT_WITHIN),
            Some(Step::Quit) => (Step::Kill, now),
            Some(Step::Kill) => return None,
        };
        (self.taken, self.next) = (Some(step), next);
        Some(step)
    }

    /// Makes the next step due at once, because a step failed or the user does not want to wait.
    pub const fn hurry(&mut self, now: MonoNs) {
        (self.next, self.until) = (now, now);
    }

    /// The last step taken.
    #[must_use]
    pub const fn taken(&self) -> Option<Step> {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_powerdown_first_then_quit_and_kill_last() {
        let at = |s: i64| MonoNs(0) + DurNs::from_secs(s);
        let mut stop = Stop::begin(at(0), DurNs::from_secs(30));
        assert_eq!(stop.due(at(0)), Some(Step::Powerdown));
        assert_eq!(stop.due(at(1)), None);
        for second in 1..15 {
            assert_eq!(stop.due(at(2 * second)), Some(Step::Powerdown), "it may have booted just now");
        }
        assert_eq!(stop.due(at(29)), None);
        assert_eq!(stop.due(at(30)), Some(Step::Quit));
        assert_eq!(stop.due(at(34)), None);
        assert_eq!(stop.due(at(35)), Some(Step::Kill));
        assert_eq!(stop.due(at(99)), None);
    }

    #[test]
    fn a_hurried_stop_skips_the_waits_and_no_step() {
        let mut stop = Stop::begin(MonoNs(0), DurNs::from_secs(30));
        let mut steps = Vec::new();
        for now in 0..9 {
            steps.extend(stop.due(MonoNs(now)));
            stop.hurry(MonoNs(now));
        }
        assert_eq!(steps, [Step::Powerdown, Step::Quit, Step::Kill]);
    }
}
