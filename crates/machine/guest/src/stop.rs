//! How a guest is stopped: asked, then its QEMU is asked, then its QEMU is killed. `now` comes from outside.

use base::{DurNs, MonoNs};

/// How long QEMU may take to quit.
pub const QUIT_WITHIN: DurNs = DurNs::from_secs(5);

/// Between two presses of the power button: a system that is still booting does not feel the first ones.
pub const PRESS_EVERY: DurNs = DurNs::from_secs(2);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Press the guest's power button.
    Powerdown,
    /// Have QEMU end at once, with its disk images in order.
    Quit,
    /// Kill QEMU.
    Kill,
}

/// A stop under way.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    taken: Option<Step>,
    next: MonoNs,
    within: DurNs,
    /// Until then the guest itself has its time.
    until: MonoNs,
}

impl Stop {
    /// Begins; the guest itself may take `within`.
    #[must_use]
    pub const fn begin(now: MonoNs, within: DurNs) -> Self {
        Self { taken: None, next: now, within, until: now }
    }

    /// The step that is due, each once but the power button, which is pressed again and again while the guest has its time.
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

    /// The step could not be taken, or somebody is in a hurry: the next one is due at once.
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
    fn a_guest_is_asked_before_qemu_is_and_killed_last() {
        let at = |s: i64| MonoNs(0) + DurNs::from_secs(s);
        let mut stop = Stop::begin(at(0), DurNs::from_secs(30));
        assert_eq!(stop.due(at(0)), Some(Step::Powerdown));
        assert_eq!(stop.due(at(1)), None);
        for second in 1..15 {
            assert_eq!(stop.due(at(2 * second)), Some(Step::Powerdown), "it may have booted only now");
        }
        assert_eq!(stop.due(at(29)), None);
        assert_eq!(stop.due(at(30)), Some(Step::Quit));
        assert_eq!(stop.due(at(34)), None);
        assert_eq!(stop.due(at(35)), Some(Step::Kill));
        assert_eq!(stop.due(at(99)), None);
    }

    #[test]
    fn who_is_in_a_hurry_skips_the_wait_and_no_step() {
        let mut stop = Stop::begin(MonoNs(0), DurNs::from_secs(30));
        let mut steps = Vec::new();
        for now in 0..9 {
            steps.extend(stop.due(MonoNs(now)));
            stop.hurry(MonoNs(now));
        }
        assert_eq!(steps, [Step::Powerdown, Step::Quit, Step::Kill]);
    }
}
