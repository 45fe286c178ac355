//! Beacons: the periodic announcements of a server.

use crate::wire::{Header, MINOR, command};
use base::{DurNs, MonoNs};

/// The gap after the first beacon; it doubles up to the period.
const FIRST_GAP: DurNs = DurNs::from_ms(20);

/// The schedule of the beacons.
#[derive(Debug)]
pub struct Beacon {
    next: MonoNs,
    gap: DurNs,
    period: DurNs,
    counter: u32,
}

impl Beacon {
    /// A server that starts at `now`. `period` is `EPICS_CAS_BEACON_PERIOD`.
    #[must_use]
    pub fn new(now: MonoNs, period: DurNs) -> Self {
        Self { next: now, gap: FIRST_GAP, period, counter: 0 }
    }

    /// The time of the next call to [`poll`](Self::poll).
    #[must_use]
    pub const fn poll_timeout(&self) -> MonoNs {
        self.next
    }

    /// The beacon to send, if one is due. `tcp_port` is the server's TCP port.
    pub fn poll(&mut self, now: MonoNs, tcp_port: u16) -> Option<Vec<u8>> {
        if now < self.next {
            return None;
        }
        let mut out = Vec::new();
        Header::bare(command::RSRV_IS_UP, MINOR, tcp_port.into(), self.counter, 0).write(&mut out);
        self.counter = self.counter.wrapping_add(1);
        self.next = now + self.gap;
        self.gap = DurNs(self.gap.0 * 2).min(self.period);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_double_up_to_the_period() {
        let mut beacon = Beacon::new(MonoNs(0), DurNs::from_secs(15));
        let mut times = Vec::new();
        for _ in 0..13 {
            let now = beacon.poll_timeout();
            assert!(beacon.poll(now, 5064).is_some() && beacon.poll(now, 5064).is_none());
            times.push(now.0 / 1_000_000);
        }
        assert_eq!(times[..4], [0, 20, 60, 140]);
        assert_eq!(times[12] - times[11], 15_000);
    }
}
