//! Decides whether to poll before sleeping. A client that sends one request at a time sends the next one immediately after the
//! answer. A sleep and a wake-up take longer than that interval.

use base::{DurNs, MonoNs};

/// Maximum time of polling (60 µs), and maximum time until the next request for polling to be useful: about the time of a sleep
/// and a wake-up. After polling without success, polling stops until requests follow this quickly again.
const SPIN: DurNs = DurNs(60_000);

/// Maximum size of a few requests in bytes. A client that requests more at once is slower with its next request, and one sleep
/// for all of it costs little.
const FEW_BYTES: usize = 256;

/// Decides whether to poll. The waiting thread does the polling.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    /// This thread may poll. `None` until it is first needed.
    allowed: Option<bool>,
    worth: bool,
}

impl Spin {
    /// The end of polling for a wait that begins at `now`; `None` if the thread must not poll.
    ///
    /// Polling is never used on a single CPU, which the client needs, nor with a class whose threads others cannot preempt.
    pub(crate) fn until(&mut self, now: MonoNs) -> Option<MonoNs> {
        let may = || {
            let cpus = sys::sched::affinity(0).map_or(0, |cpus| cpus.count());
            cpus > 1 && sys::sched::has_fixed_priority(0) == Some(false)
        };
        (self.worth && *self.allowed.get_or_insert_with(may)).then_some(now + SPIN)
    }

    /// Records the end of a wait that began at `since`. `request`: a request ended it.
    pub(crate) fn ended(&mut self, since: MonoNs, now: MonoNs, request: bool) {
        self.worth = request && now - since < SPIN;
    }

    /// Records the number of bytes read after a wait.
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
        assert_eq!(spin.until(at(200)), None, "without a result");
        spin.ended(at(200), at(210), false);
        assert_eq!(spin.until(at(300)), None, "a timer is no request");
        spin.ended(at(300), at(310), true);
        spin.read(32);
        assert_eq!(spin.until(at(400)), Some(at(460)));
        spin.ended(at(400), at(410), true);
        spin.read(16_000);
        assert_eq!(spin.until(at(500)), None, "many bytes at once");
        let mut spin = Spin { allowed: Some(false), worth: true };
        assert_eq!(spin.until(at(0)), None);
        spin.ended(at(0), at(1), true);
        assert_eq!(spin.until(at(0)), None);
    }
}
