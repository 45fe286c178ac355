//! Whether to look again before sleeping: who asks one thing at a time asks the next as soon as it has its answer, and to
//! sleep and be woken costs more than the time between.

use base::{DurNs, MonoNs};

/// How long a look again may last, and how soon the next request must have come for it to be worth it: about what going to
/// sleep and being woken take. A spin that was in vain is the last until requests follow each other that quickly again.
const SPIN: DurNs = DurNs(60_000);

/// More than one request or a few: who asks for much at once has more to do before it asks again, and one sleep for all of it
/// costs little.
const FEW_BYTES: usize = 256;

/// Decides; whoever waits does it.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// Whether this thread may at all; not looked up yet where there is nothing.
    allowed: Option<bool>,
    worth: bool,
}

impl Spin {
    /// Until when to look again, if at all, for who begins to wait at `now`.
    ///
    /// Never on a single CPU, where whoever is to ask next needs it, nor in a class whose threads others cannot interrupt.
    pub(crate) fn until(&mut self, now: MonoNs) -> Option<MonoNs> {
        let may = || {
            let cpus = sys::sched::affinity(0).map_or(0, |cpus| cpus.count());
            cpus > 1 && sys::sched::has_fixed_priority(0) == Some(false)
        };
        (self.worth && *self.allowed.get_or_insert_with(may)).then_some(now + SPIN)
    }

    /// A request came at `now` to who had waited since `since`; or something else ended the wait.
    pub(crate) fn ended(&mut self, since: MonoNs, now: MonoNs, request: bool) {
        self.worth = request && now - since < SPIN;
    }

    /// So many bytes were read of what ended the wait.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.worth &= bytes <= FEW_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_follow_quickly_make_the_next_wait_spin() {
        let mut spin = Spin { allowed: Some(true), worth: false };
        let at = |us: u64| MonoNs(us * 1000);
        assert_eq!(spin.until(at(0)), None);
        spin.ended(at(0), at(59), true);
        assert_eq!(spin.until(at(100)), Some(at(160)));
        spin.ended(at(100), at(161), true);
        assert_eq!(spin.until(at(200)), None, "in vain");
        spin.ended(at(200), at(210), false);
        assert_eq!(spin.until(at(300)), None, "a timer is no request");
        spin.ended(at(300), at(310), true);
        spin.read(32);
        assert_eq!(spin.until(at(400)), Some(at(460)));
        spin.ended(at(400), at(410), true);
        spin.read(16_000);
        assert_eq!(spin.until(at(500)), None, "much at once");
        let mut spin = Spin { allowed: Some(false), worth: true };
        assert_eq!(spin.until(at(0)), None);
        spin.ended(at(0), at(1), true);
        assert_eq!(spin.until(at(0)), None);
    }
}
