//! CPU allowance of a band's thread in a real-time class: 75 % of its CPU, checked every 4 ms. Work beyond the
//! allowance waits. A client that floods a band, or keeps waking its thread, therefore takes no CPU time from lower
//! priorities.
//!
//! The allowance is below the 80 % at which the guard treats a thread as a runaway.

use super::lane::LaneThread;
use super::{Control, Event};
use base::{DurNs, MonoNs, RtLevel};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until, thread_cpu};

/// Time between two readings of the thread's CPU time, which cost a system call each.
const LOOK: DurNs = DurNs::from_ms(4);
/// Maximum CPU use, in percent of one CPU.
const PERCENT: i64 = 75;

/// Minimum time between two log lines about exceeded allowances.
const TELL_EVERY: DurNs = DurNs::from_secs(10);

/// Action required by a thread's CPU use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// The thread exceeded its allowance while it also spun for work: until the next check it sleeps without spinning.
    NoSpin,
    /// The thread exceeded its allowance with work alone: it sleeps for this time.
    Nap(DurNs),
}

/// CPU account of one thread.
#[derive(Debug)]
pub(super) struct Allowance {
    since: MonoNs,
    burnt: DurNs,
    spins: bool,
}

impl Allowance {
    /// Opens an account at `now` for a thread that has used `burnt` of CPU time so far.
    pub(super) fn new(now: MonoNs, burnt: DurNs) -> Self {
        Self { since: now, burnt, spins: true }
    }

    /// Whether the thread may spin for work before it sleeps.
    pub(super) fn spins(&self) -> bool {
        self.spins
    }

    /// Compares the thread's CPU time `burnt` with the allowance, if a check is due.
    ///
    /// Real-time: neither allocates nor blocks; calls `burnt` at most once in 4 ms.
    pub(super) fn look(&mut self, now: MonoNs, burnt: impl FnOnce() -> DurNs) -> Due {
        let elapsed = now - self.since;
        if elapsed < LOOK {
            return Due::Nothing;
        }
        let burnt = burnt();
        let used = burnt.0 - self.burnt.0;
        let spun = std::mem::replace(&mut self.spins, true);
        (self.since, self.burnt) = (now, burnt);
        // Sleeping this long brings the use since the last check down to the allowance.
        let nap = DurNs(used * 100 / PERCENT - elapsed.0);
        match nap > DurNs::ZERO {
            false => Due::Nothing,
            true if spun => {
                self.spins = false;
                Due::NoSpin
            }
            true => {
                self.since = now + nap;
                self.spins = false;
                Due::Nap(nap)
            }
        }
    }
}

impl Allowance {
    /// Account of the calling thread, if it has a fixed priority. Threads in other classes cannot starve others.
    pub(super) fn of_this_thread() -> Option<Self> {
        let level = sys::sched::scheduling(0).map(|scheduling| scheduling.policy.level());
        matches!(level, Ok(RtLevel::Fixed(_))).then(|| Self::new(mono_now(), thread_cpu()))
    }
}

/// Number of naps of a band's thread, and the connection that sent the most messages before the last one.
#[derive(Debug, Default)]
pub(super) struct Naps {
    count: AtomicU64,
    /// Slot of that connection in bits 0 to 15, its messages in bits 16 to 39, those of all connections in bits 40 to
    /// 63.
    most: AtomicU64,
}

impl Naps {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, (slot, heard): (usize, u64), all: u64) {
        let counted = |messages: u64| messages.min((1 << 24) - 1);
        self.most.store(slot as u64 | counted(heard) << 16 | counted(all) << 40, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The slot with the most messages, its messages, and those of all connections.
    fn most(&self) -> (usize, u64, u64) {
        let most = self.most.load(Ordering::Relaxed);
        ((most & 0xffff) as usize, most >> 16 & 0xff_ffff, most >> 40)
    }
}

impl LaneThread {
    /// Sleeps if the thread has exceeded its allowance. Returns the time afterwards.
    pub(super) fn keep_to(&mut self, allowance: &mut Option<Allowance>, now: MonoNs) -> MonoNs {
        let Some(allowance) = allowance else { return now };
        let due = allowance.look(now, thread_cpu);
        if due == Due::Nothing {
            return now;
        }
        let (mut most, mut all) = ((0, 0), 0);
        for (slot, connection) in self.connections[..self.used].iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            let heard = connection.heard.0 - connection.heard.1;
            connection.heard.1 = connection.heard.0;
            all += heard;
            most = if heard > most.1 { (slot, heard) } else { most };
        }
        let Due::Nap(nap) = due else { return now };
        self.seen.naps.add(most, all);
        sleep_until(now + nap);
        mono_now()
    }
}

impl Control<'_> {
    /// Reports that a band exceeded its allowance, and the client that caused it.
    pub(super) fn tell_naps(&mut self) {
        let (told, at) = self.naps_told;
        let naps: u64 = self.lanes.iter().map(|lane| lane.seen.naps.count()).sum();
        let now = mono_now();
        if naps == told || told > 0 && now - at < TELL_EVERY {
            return;
        }
        self.naps_told = (naps, now);
        let Some(lane) = self.lanes.iter().max_by_key(|lane| lane.seen.naps.count()) else { return };
        let (slot, heard, all) = lane.seen.naps.most();
        let who = match self.peers.get(slot).and_then(Option::as_ref).filter(|_| heard > 0) {
            Some(peer) => {
                let (uid, pid) = (peer.caller.uid, peer.caller.pid);
                format!("{} (user {uid}, process {pid}) sent {heard} of the last {all} messages", peer.name)
            }
            None => "no messages were sent to it: a client wakes it without sending".to_owned(),
        };
        (self.say)(Event::Trouble(format!(
            "band {} used up its allowance of {PERCENT} % of its CPU; further requests waited, {} times so far: {who}; send \
             less, or give it a separate CPU without a limit (--no-allowance)",
            lane.band, naps
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of `span` that a thread uses which is busy for `percent` of the time it does not nap, and the share in
    /// which it may not spin, both in percent.
    fn share(percent: i64, span: DurNs) -> (i64, i64) {
        const STEP: DurNs = DurNs::from_us(50);
        let (mut now, mut burnt) = (MonoNs(0), DurNs::ZERO);
        let (mut allowance, mut quiet) = (Allowance::new(now, burnt), DurNs::ZERO);
        while now - MonoNs(0) < span {
            now = now + STEP;
            burnt.0 += STEP.0 * percent / 100;
            if !allowance.spins() {
                quiet.0 += STEP.0;
            }
            if let Due::Nap(nap) = allowance.look(now, || burnt) {
                now = now + nap;
            }
        }
        (burnt.0 * 100 / span.0, quiet.0 * 100 / span.0)
    }

    #[test]
    fn a_busy_lane_gets_three_quarters_of_its_cpu_and_a_lane_below_that_is_not_limited() {
        let second = DurNs::from_secs(1);
        assert_eq!(share(70, second), (70, 0));
        let (burnt, _) = share(100, second);
        assert!((74..=76).contains(&burnt), "{burnt} %");
    }

    #[test]
    fn a_lane_above_its_allowance_stops_spinning_before_it_must_nap() {
        let mut allowance = Allowance::new(MonoNs(0), DurNs::ZERO);
        let ms = |ms: i64| MonoNs(ms as u64 * 1_000_000);
        assert_eq!(allowance.look(ms(3), || unreachable!("too early")), Due::Nothing);
        assert_eq!(allowance.look(ms(4), || DurNs::from_ms(4)), Due::NoSpin);
        assert!(!allowance.spins());
        assert_eq!(allowance.look(ms(8), || DurNs::from_ms(6)), Due::Nothing, "then half of it is enough");
        assert!(allowance.spins());
        assert_eq!(allowance.look(ms(12), || DurNs::from_ms(10)), Due::NoSpin);
        assert_eq!(allowance.look(ms(16), || DurNs::from_ms(13)), Due::Nothing);
        assert_eq!(allowance.look(ms(20), || DurNs::from_ms(17)), Due::NoSpin);
        assert_eq!(allowance.look(ms(25), || DurNs::from_ms(22)), Due::Nap(DurNs(5_000_000 * 100 / 75 - 5_000_000)));
    }
}
