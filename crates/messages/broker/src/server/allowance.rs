//! What a band's thread may burn in a real-time class, so that who floods a band, or keeps waking it, takes no CPU from what
//! stands below it: 75 % in each few milliseconds. What comes beyond that waits.
//!
//! Less than the 80 % from which on the guard takes a thread for a runaway.

use super::lane::LaneThread;
use super::{Control, Event};
use base::{DurNs, MonoNs, RtLevel};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until, thread_cpu};

/// Time between two looks at the thread's account: a system call.
const LOOK: DurNs = DurNs::from_ms(4);
/// The most that it may burn of a CPU, in percent.
const PERCENT: i64 = 75;

/// Time between two lines about bands that burnt too much.
const TELL_EVERY: DurNs = DurNs::from_secs(10);

/// What is to be done about a thread's use of its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// It burnt too much while it looked for work: it sleeps at once where there is none, for a while.
    NoSpin,
    /// It burnt too much with work: it sleeps for so long.
    Nap(DurNs),
}

/// A thread's account.
#[derive(Debug)]
pub(super) struct Allowance {
    since: MonoNs,
    burnt: DurNs,
    spins: bool,
}

impl Allowance {
    /// An account from `now` on, when the thread had burnt so much.
    pub(super) fn new(now: MonoNs, burnt: DurNs) -> Self {
        Self { since: now, burnt, spins: true }
    }

    /// Whether the thread may look for work before it sleeps.
    pub(super) fn spins(&self) -> bool {
        self.spins
    }

    /// Looks at what it `burnt` since it began, if it is time for that.
    ///
    /// Real-time: neither allocates nor blocks; calls `burnt` once in 4 ms at most.
    pub(super) fn look(&mut self, now: MonoNs, burnt: impl FnOnce() -> DurNs) -> Due {
        let elapsed = now - self.since;
        if elapsed < LOOK {
            return Due::Nothing;
        }
        let burnt = burnt();
        let used = burnt.0 - self.burnt.0;
        let spun = std::mem::replace(&mut self.spins, true);
        (self.since, self.burnt) = (now, burnt);
        // As long as is needed for that much to be no more than its share.
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
    /// That of the calling thread, if it has a fixed priority: nobody starves below another one.
    pub(super) fn of_this_thread() -> Option<Self> {
        let level = sys::sched::scheduling(0).map(|scheduling| scheduling.policy.level());
        matches!(level, Ok(RtLevel::Fixed(_))).then(|| Self::new(mono_now(), thread_cpu()))
    }
}

/// How often a band's thread has slept for its allowance, and whom it heard most often before it did so last.
#[derive(Debug, Default)]
pub(super) struct Naps {
    count: AtomicU64,
    /// Its place, and above it the messages of it and of all, 24 bits each.
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

    /// The place of whom it heard most, how often, and how often anybody.
    fn most(&self) -> (usize, u64, u64) {
        let most = self.most.load(Ordering::Relaxed);
        ((most & 0xffff) as usize, most >> 16 & 0xff_ffff, most >> 40)
    }
}

impl LaneThread {
    /// Sleeps where the thread has burnt more than it may; the time then.
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
    /// Says that a band burnt more than it may, and because of whom.
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
            "band {} burnt its allowance of {PERCENT} % of its CPU, and what came beyond that waited, {} times so far: {who}; send \
             less, or let it have a CPU of its own and all of it (--no-allowance)",
            lane.band, naps
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much a thread burns of `span` that always burns `percent` of the time in which it does not nap, in percent, and
    /// how much of it was without looking for work.
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
    fn who_burns_all_it_can_gets_three_quarters_and_who_burns_less_is_left_alone() {
        let second = DurNs::from_secs(1);
        assert_eq!(share(70, second), (70, 0));
        let (burnt, _) = share(100, second);
        assert!((74..=76).contains(&burnt), "{burnt} %");
    }

    #[test]
    fn who_burns_too_much_first_gives_up_looking_for_work() {
        let mut allowance = Allowance::new(MonoNs(0), DurNs::ZERO);
        let ms = |ms: i64| MonoNs(ms as u64 * 1_000_000);
        assert_eq!(allowance.look(ms(3), || unreachable!("it is not time")), Due::Nothing);
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
