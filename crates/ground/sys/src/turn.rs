//! Values that a team's threads have by turns: the lead's, or one member's, and never both.
//!
//! One word for each member says whose turn it is, whether the other sleeps until it is its own, and whether either is gone.
//! To pass the turn is one locked instruction; what was written before is seen by who has it then. Each word, and each
//! member's value, is on cache lines of its own; a note of the member's lies beside its word and goes to the lead with it, so that
//! what is told each time moves no other line.

use std::cell::UnsafeCell;
use std::sync::Arc;

use sync::{AtomicU64, Ordering, Sleep};

/// The member has the turn; else the lead. The only bit that is added and subtracted, so it is the lowest.
const MEMBERS: u64 = 1;
const LEAD_SLEEPS: u64 = 2;
const MEMBER_SLEEPS: u64 = 4;
/// The lead is gone.
const CLOSED: u64 = 8;
/// The member is gone: it touches nothing any more, whosever turn it is.
const GONE: u64 = 16;

/// Who leads: it has what is shared, and of each member what that member has not at the moment.
#[derive(Debug)]
pub struct Lead<S, P>(Arc<Values<S, P>>);

/// A member: in its turn it has its own part, and sees what is shared.
#[derive(Debug)]
pub struct Member<S, P> {
    values: Arc<Values<S, P>>,
    index: usize,
}

/// Where a member is, as its lead sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has passed the turn back.
    Back,
    /// It has the turn.
    Out,
    /// It has ended, perhaps by a panic in its turn.
    Gone,
}

#[derive(Debug)]
struct Values<S, P> {
    shared: UnsafeCell<S>,
    parts: Vec<Part<P>>,
}

#[derive(Debug)]
struct Part<P> {
    turn: Turn,
    value: Own<UnsafeCell<P>>,
}

/// On cache lines of its own: two of 64 bytes, for the neighbour is fetched along.
#[derive(Debug)]
#[repr(align(128))]
struct Own<T>(T);

#[derive(Debug)]
#[repr(align(128))]
struct Turn {
    word: AtomicU64,
    sleep: Sleep,
    note: UnsafeCell<[u64; 2]>,
}

// SAFETY: the values are reached by turns alone: `shared` by the lead's `&mut` only while no member has its turn, and by `&` from
// several threads else (`S: Sync`); a part and a note by who has the turn. Values that are reached on another thread are `Send`.
unsafe impl<S: Send + Sync, P: Send> Sync for Values<S, P> {}

/// A team of as many members as there are parts. Allocates. The turn is the members': so each can make its part on its own thread,
/// which touches the memory first.
pub fn team<S: Send + Sync, P: Send>(shared: S, parts: Vec<P>) -> (Lead<S, P>, Vec<Member<S, P>>) {
    let part = |value| Part {
        turn: Turn { word: AtomicU64::new(MEMBERS), sleep: Sleep::new(), note: UnsafeCell::new([0; 2]) },
        value: Own(UnsafeCell::new(value)),
    };
    let values = Arc::new(Values { shared: UnsafeCell::new(shared), parts: parts.into_iter().map(part).collect() });
    let member = |index| Member { values: values.clone(), index };
    let members = (0..values.parts.len()).map(member).collect();
    (Lead(values), members)
}

impl Turn {
    fn look(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Says that something has happened, by `change`, and wakes who sleeps on it.
    fn tell(&self, sleeper: u64, change: impl FnOnce(&AtomicU64) -> u64) {
        if change(&self.word) & sleeper != 0 {
            self.sleep.wake(&self.word, sleeper);
        }
    }

    /// Has the word's line go from this CPU's own caches to the one that all share, where the CPU can: the lead, which waits for it, need not fetch
    /// it from here. The lead does not do so: its members look at the word all the time, and then it made both slower.
    fn hand_over(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        // SAFETY: a hint about a line of the cache, which changes nothing that can be seen; CPUs that do not know it do nothing.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) &raw const self.word, options(nostack, preserves_flags));
        }
    }

    /// Sleeps until something may have happened, unless `over` finds that it has; at most for `limit`.
    fn sleep(&self, mine: u64, limit: Option<base::DurNs>, over: impl FnOnce(u64) -> bool) {
        let seen = self.word.fetch_or(mine, Ordering::AcqRel) | mine;
        if !over(seen) {
            // Who changes the word afterwards finds the bit; who has changed it before keeps this from sleeping.
            self.sleep.wait(&self.word, seen, mine, limit);
        }
        self.word.fetch_and(!mine, Ordering::AcqRel);
    }
}

impl<S, P> Lead<S, P> {
    /// How many members there are.
    #[must_use]
    pub fn members(&self) -> usize {
        self.0.parts.len()
    }

    /// What is shared.
    #[must_use]
    pub fn shared(&self) -> &S {
        // SAFETY: only `shared_mut` hands out `&mut`, and borrows the lead as long as it is used.
        unsafe { &*self.0.shared.get() }
    }

    /// What is shared, to be changed, if no member has its turn.
    pub fn shared_mut(&mut self) -> Option<&mut S> {
        let idle = (0..self.members()).all(|member| self.place(member) != Place::Out);
        // SAFETY: no member looks at it before it has the turn, which only the lead can give, and the lead is borrowed.
        idle.then(|| unsafe { &mut *self.0.shared.get() })
    }

    /// A member's part, if that member does not have its turn.
    ///
    /// # Panics
    /// There is no such member.
    pub fn part(&mut self, member: usize) -> Option<&mut P> {
        let back = self.place(member) != Place::Out;
        // SAFETY: the member touches it in its turn alone, which only the lead can give, and the lead is borrowed.
        back.then(|| unsafe { &mut *self.0.parts[member].value.0.get() })
    }

    /// What a member has noted, if that member does not have its turn.
    ///
    /// # Panics
    /// There is no such member.
    #[must_use]
    pub fn note(&self, member: usize) -> Option<[u64; 2]> {
        let back = self.place(member) != Place::Out;
        // SAFETY: the member writes it in its turn alone, which only the lead can give, by `&mut`.
        back.then(|| unsafe { *self.0.parts[member].turn.note.get() })
    }

    /// Where a member is.
    ///
    /// # Panics
    /// There is no such member.
    #[must_use]
    pub fn place(&self, member: usize) -> Place {
        match self.0.parts[member].turn.look() {
            word if word & GONE != 0 => Place::Gone,
            word if word & MEMBERS != 0 => Place::Out,
            _ => Place::Back,
        }
    }

    /// Gives a member its turn, which it does not have; wakes it where it sleeps. Nothing happens where it has it or is gone.
    ///
    /// Real-time: one locked instruction; a system call that does not block where the member sleeps.
    ///
    /// # Panics
    /// There is no such member.
    pub fn pass(&mut self, member: usize) {
        if self.place(member) == Place::Back {
            self.0.parts[member].turn.tell(MEMBER_SLEEPS, |word| word.fetch_add(MEMBERS, Ordering::AcqRel));
        }
    }

    /// Sleeps until a member may have passed the turn back or be gone; at most for `limit`. May return for no reason: look again.
    ///
    /// # Panics
    /// There is no such member.
    pub fn sleep(&self, member: usize, limit: Option<base::DurNs>) {
        let over = |word| word & MEMBERS == 0 || word & GONE != 0;
        self.0.parts[member].turn.sleep(LEAD_SLEEPS, limit, over);
    }
}

impl<S, P> Member<S, P> {
    /// What is shared and the member's own part, if it has its turn.
    pub fn turn(&mut self) -> Option<(&S, &mut P)> {
        if self.part().turn.look() & MEMBERS == 0 {
            return None;
        }
        // SAFETY: in a member's turn the lead hands out `&` of it at most.
        let shared = unsafe { &*self.values.shared.get() };
        // SAFETY: in its turn the part is the member's alone, and the member is borrowed.
        Some((shared, unsafe { &mut *self.part().value.0.get() }))
    }

    /// Notes something for the lead, if it has its turn.
    pub fn note(&mut self, note: [u64; 2]) {
        if self.part().turn.look() & MEMBERS != 0 {
            // SAFETY: in its turn the note is the member's alone, and the member is borrowed.
            unsafe { *self.part().turn.note.get() = note };
        }
    }

    /// Passes its turn back, if it has it; wakes the lead where it sleeps.
    ///
    /// Real-time: as [`Lead::pass`].
    pub fn pass(&mut self) {
        let turn = &self.part().turn;
        if turn.look() & MEMBERS != 0 {
            turn.tell(LEAD_SLEEPS, |word| word.fetch_sub(MEMBERS, Ordering::AcqRel));
            turn.hand_over();
        }
    }

    /// Whether the lead is gone: there will be no turn any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.part().turn.look() & CLOSED != 0
    }

    /// Sleeps until it may be its turn, or the lead be gone. May return for no reason: look again.
    pub fn sleep(&self) {
        self.part().turn.sleep(MEMBER_SLEEPS, None, |word| word & (MEMBERS | CLOSED) != 0);
    }

    fn part(&self) -> &Part<P> {
        &self.values.parts[self.index]
    }
}

impl<S, P> Drop for Lead<S, P> {
    fn drop(&mut self) {
        for part in &self.0.parts {
            part.turn.tell(MEMBER_SLEEPS, |word| word.fetch_or(CLOSED, Ordering::AcqRel));
        }
    }
}

impl<S, P> Drop for Member<S, P> {
    fn drop(&mut self) {
        self.part().turn.tell(LEAD_SLEEPS, |word| word.fetch_or(GONE, Ordering::AcqRel));
    }
}

/// The real atomics and the kernel's sleep, or loom's.
#[cfg(not(loom))]
mod sync {
    use base::DurNs;
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};

    /// Both sides sleep on the word itself.
    #[derive(Debug)]
    pub(super) struct Sleep;

    impl Sleep {
        pub(super) const fn new() -> Self {
            Self
        }

        pub(super) fn wait(&self, word: &AtomicU64, seen: u64, _: u64, limit: Option<DurNs>) {
            crate::futex::wait(word, seen, limit);
        }

        pub(super) fn wake(&self, word: &AtomicU64, _: u64) {
            crate::futex::wake(word);
        }
    }
}
#[cfg(loom)]
mod sync {
    use base::DurNs;
    use loom::sync::Notify;
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    /// A sleeper that nobody wakes is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(super) struct Sleep {
        lead: Notify,
        member: Notify,
    }

    impl Sleep {
        pub(super) fn new() -> Self {
            Self { lead: Notify::new(), member: Notify::new() }
        }

        fn of(&self, side: u64) -> &Notify {
            if side == super::LEAD_SLEEPS { &self.lead } else { &self.member }
        }

        pub(super) fn wait(&self, word: &AtomicU64, seen: u64, side: u64, _: Option<DurNs>) {
            if word.load(Ordering::Acquire) == seen {
                self.of(side).wait();
            }
        }

        pub(super) fn wake(&self, _: &AtomicU64, side: u64) {
            self.of(side).notify();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Miri takes the kernel's look at half of a word for a race with those at all of it: there nobody sleeps.
    fn rest(sleep: impl FnOnce()) {
        if cfg!(miri) { std::thread::yield_now() } else { sleep() }
    }

    #[test]
    fn a_part_is_its_members_in_its_turn_and_the_leads_else() {
        let (mut lead, mut members) = team(5, vec![0, 0]);
        assert_eq!(lead.part(0), None, "they begin with the turn");
        assert_eq!(*lead.shared(), 5);
        assert_eq!(lead.shared_mut(), None);
        for (index, member) in members.iter_mut().enumerate() {
            *member.turn().unwrap().1 = index + 10;
            member.note([1, index as u64]);
            assert_eq!(lead.note(index), None);
            member.pass();
            member.pass();
            member.note([9, 9]);
            assert_eq!(lead.note(index), Some([1, index as u64]), "without its turn it notes nothing");
            assert_eq!(member.turn(), None);
        }
        assert_eq!([0, 1].map(|member| lead.part(member).copied()), [Some(10), Some(11)]);
        *lead.shared_mut().unwrap() = 6;
        lead.pass(1);
        lead.pass(1);
        assert_eq!((lead.place(0), lead.place(1)), (Place::Back, Place::Out));
        assert_eq!(members[1].turn(), Some((&6, &mut 11)));
        assert_eq!(lead.part(1), None);
        assert_eq!(lead.shared_mut(), None);
        assert_eq!(lead.part(0), Some(&mut 10));
    }

    #[test]
    fn who_is_gone_leaves_its_part_and_who_waits_for_the_lead_is_told_of_its_end() {
        let (mut lead, mut members) = team((), vec![1, 2]);
        members.remove(0);
        assert_eq!(lead.place(0), Place::Gone);
        assert_eq!(lead.part(0), Some(&mut 1));
        lead.pass(0);
        assert_eq!(lead.place(0), Place::Gone);
        members[0].pass();
        assert!(!members[0].is_closed());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !members[0].is_closed() {
                    rest(|| members[0].sleep());
                }
            });
            drop(lead);
        });
    }

    #[test]
    fn a_turn_goes_to_and_fro_between_threads_that_sleep() {
        let (mut lead, members) = team((), vec![0u64]);
        std::thread::scope(|scope| {
            for mut member in members {
                scope.spawn(move || {
                    while !member.is_closed() {
                        let Some((&(), count)) = member.turn() else {
                            rest(|| member.sleep());
                            continue;
                        };
                        *count += 1;
                        member.pass();
                    }
                });
            }
            for round in 1..=if cfg!(miri) { 20 } else { 1000 } {
                while lead.place(0) == Place::Out {
                    rest(|| lead.sleep(0, None));
                }
                assert_eq!(lead.part(0), Some(&mut { round }));
                lead.pass(0);
            }
            drop(lead);
        });
    }
}
