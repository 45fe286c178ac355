//! Values shared between a lead thread and the members of its team, with exclusive access in turns: either the lead or
//! the member has access, never both.
//!
//! One word per member records whose turn it is, whether the other side sleeps until its turn, and whether either has
//! ended. Passing the turn is one locked instruction, and makes earlier writes visible to the other side. Each word and
//! each member's value has separate cache lines. A member's note is next to its word and moves to the lead with it, so
//! that small results cost no further cache line.

use std::cell::UnsafeCell;
use std::sync::Arc;

use sync::{AtomicU64, Ordering, Sleep};

/// Set: the member's turn; clear: the lead's. It is the lowest bit because it is changed by addition and subtraction.
const MEMBERS: u64 = 1;
const LEAD_SLEEPS: u64 = 2;
const MEMBER_SLEEPS: u64 = 4;
/// The lead has been dropped.
const CLOSED: u64 = 8;
/// The member has been dropped. It accesses nothing more, whichever side has the turn.
const GONE: u64 = 16;

/// The lead. It has access to the shared value, and to the part of each member that does not have its turn.
#[derive(Debug)]
pub struct Lead<S, P>(Arc<Values<S, P>>);

/// A member. In its turn it has access to its part, and read access to the shared value.
#[derive(Debug)]
pub struct Member<S, P> {
    values: Arc<Values<S, P>>,
    index: usize,
}

/// State of a member as seen by the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has returned the turn.
    Back,
    /// It has the turn.
    Out,
    /// It has ended, possibly by a panic in its turn.
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

/// Aligned to two cache lines of 64 bytes, because the CPU prefetches the adjacent line.
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

// SAFETY: access alternates. `shared` is accessed by the lead's `&mut` only while no member has its turn,
// and otherwise by `&` from several threads (`S: Sync`); a part and a note only by the side that has the turn. Values
// accessed on another thread are `Send`.
unsafe impl<S: Send + Sync, P: Send> Sync for Values<S, P> {}

/// Creates a team with one member per part. Allocates. The members have the first turn, so that each can initialise its
/// part on its own thread, which touches the memory first.
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

    /// Applies `change` to the word, and wakes the other side if it sleeps.
    fn tell(&self, sleeper: u64, change: impl FnOnce(&AtomicU64) -> u64) {
        if change(&self.word) & sleeper != 0 {
            self.sleep.wake(&self.word, sleeper);
        }
    }

    /// Moves the word's cache line from this CPU's private caches to the shared one, if the CPU can. The waiting lead
    /// then need not fetch it from here. The lead does not do the same, because its members poll the word constantly;
    /// it made both sides slower.
    fn hand_over(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        // SAFETY: a hint about a cache line without visible effects. CPUs without the instruction ignore it.
        unsafe {
            std::arch::asm!("cldemote [{}]", in(reg) &raw const self.word, options(nostack, preserves_flags));
        }
    }

    /// Sleeps until a change, unless `over` returns true for the current word; at most for `limit`.
    fn sleep(&self, mine: u64, limit: Option<base::DurNs>, over: impl FnOnce(u64) -> bool) {
        let seen = self.word.fetch_or(mine, Ordering::AcqRel) | mine;
        if !over(seen) {
            // A later change sees the bit and wakes this side. An earlier one keeps this side from sleeping.
            self.sleep.wait(&self.word, seen, mine, limit);
        }
        self.word.fetch_and(!mine, Ordering::AcqRel);
    }
}

impl<S, P> Lead<S, P> {
    /// Number of members.
    #[must_use]
    pub fn members(&self) -> usize {
        self.0.parts.len()
    }

    /// The shared value.
    #[must_use]
    pub fn shared(&self) -> &S {
        // SAFETY: only `shared_mut` hands out `&mut`, and borrows the lead as long as it is used.
        unsafe { &*self.0.shared.get() }
    }

    /// The shared value for modification, if no member has its turn.
    pub fn shared_mut(&mut self) -> Option<&mut S> {
        let idle = (0..self.members()).all(|member| self.place(member) != Place::Out);
        // SAFETY: members access it only in their turns, which only the lead can give, and the lead is borrowed.
        idle.then(|| unsafe { &mut *self.0.shared.get() })
    }

    /// A member's part, if that member does not have its turn.
    ///
    /// # Panics
    /// There is no such member.
    pub fn part(&mut self, member: usize) -> Option<&mut P> {
        let back = self.place(member) != Place::Out;
        // SAFETY: the member accesses it only in its turn, which only the lead can give, and the lead is borrowed.
        back.then(|| unsafe { &mut *self.0.parts[member].value.0.get() })
    }

    /// A member's note, if that member does not have its turn.
    ///
    /// # Panics
    /// There is no such member.
    #[must_use]
    pub fn note(&self, member: usize) -> Option<[u64; 2]> {
        let back = self.place(member) != Place::Out;
        // SAFETY: the member writes it only in its turn, which only the lead can give, by `&mut`.
        back.then(|| unsafe { *self.0.parts[member].turn.note.get() })
    }

    /// State of a member.
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

    /// Gives a member its turn and wakes it if it sleeps. Does nothing if it has the turn or has ended.
    ///
    /// Real-time: one locked instruction; a non-blocking system call if the member sleeps.
    ///
    /// # Panics
    /// There is no such member.
    pub fn pass(&mut self, member: usize) {
        if self.place(member) == Place::Back {
            self.0.parts[member].turn.tell(MEMBER_SLEEPS, |word| word.fetch_add(MEMBERS, Ordering::AcqRel));
        }
    }

    /// Sleeps until a member returns the turn or ends, at most for `limit`. May return early: check again.
    ///
    /// # Panics
    /// There is no such member.
    pub fn sleep(&self, member: usize, limit: Option<base::DurNs>) {
        let over = |word| word & MEMBERS == 0 || word & GONE != 0;
        self.0.parts[member].turn.sleep(LEAD_SLEEPS, limit, over);
    }
}

impl<S, P> Member<S, P> {
    /// The shared value and the member's part, if it has its turn.
    pub fn turn(&mut self) -> Option<(&S, &mut P)> {
        if self.part().turn.look() & MEMBERS == 0 {
            return None;
        }
        // SAFETY: in a member's turn the lead provides only `&` to it.
        let shared = unsafe { &*self.values.shared.get() };
        // SAFETY: in its turn the part is accessed only by the member, and the member is borrowed.
        Some((shared, unsafe { &mut *self.part().value.0.get() }))
    }

    /// Leaves a note for the lead, if it has its turn.
    pub fn note(&mut self, note: [u64; 2]) {
        if self.part().turn.look() & MEMBERS != 0 {
            // SAFETY: in its turn the note is accessed only by the member, and the member is borrowed.
            unsafe { *self.part().turn.note.get() = note };
        }
    }

    /// Returns its turn, if it has it, and wakes the lead if it sleeps.
    ///
    /// Real-time: like [`Lead::pass`].
    pub fn pass(&mut self) {
        let turn = &self.part().turn;
        if turn.look() & MEMBERS != 0 {
            turn.tell(LEAD_SLEEPS, |word| word.fetch_sub(MEMBERS, Ordering::AcqRel));
            turn.hand_over();
        }
    }

    /// Whether the lead has been dropped. There will be no further turn.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.part().turn.look() & CLOSED != 0
    }

    /// Sleeps until its turn, or until the lead is dropped. May return early: check again.
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

/// The real atomics and the kernel's futex, or loom's.
#[cfg(not(loom))]
mod sync {
    use base::DurNs;
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};

    /// Both sides sleep on the word.
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

    /// A sleeper that is never woken is a deadlock, which loom reports.
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

    /// Miri treats the kernel's access to half of a word as a race with accesses to the whole word. There, no side
    /// sleeps.
    fn rest(sleep: impl FnOnce()) {
        if cfg!(miri) { std::thread::yield_now() } else { sleep() }
    }

    #[test]
    fn a_part_belongs_to_its_member_during_its_turn_and_otherwise_to_the_lead() {
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
            assert_eq!(lead.note(index), Some([1, index as u64]), "without its turn it writes no note");
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
    fn a_member_that_ended_leaves_its_part_and_a_waiting_member_sees_the_end_of_the_lead() {
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
    fn a_turn_alternates_between_sleeping_threads() {
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
