//! Connections that have not sent a greeting yet. They cannot keep a new connection from being accepted.

use base::{DurNs, MonoNs};
use std::os::fd::{AsFd as _, BorrowedFd};
use sys::handover::Caller;

/// Time limit for a greeting, and the maximum number of connections without one.
const PATIENCE: DurNs = DurNs::from_secs(2);
pub(super) const GREETINGS_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Greetings(Vec<(Caller, MonoNs)>);

impl Greetings {
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(caller, _)| caller.connection.as_fd())
    }

    /// Closes connections that exceeded the time limit, and removes and returns those that have sent something. `ready`
    /// has one entry for each [fd](Self::fds).
    pub(super) fn hear(&mut self, now: MonoNs, ready: &[bool]) -> Vec<Caller> {
        let mut ready = ready.iter();
        let spoke = self.0.extract_if(.., |_| ready.next().is_some_and(|ready| *ready));
        let spoke = spoke.map(|(caller, _)| caller).collect();
        self.0.retain(|(_, since)| now - *since <= PATIENCE);
        spoke
    }

    pub(super) fn push(&mut self, caller: Caller, now: MonoNs) {
        self.0.push((caller, now));
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= GREETINGS_MAX
    }

    /// Closes one silent connection: of the user that has the most of them (another user before the server's own and
    /// root), the oldest. Returns whether there was one.
    pub(super) fn hang_up_on_one(&mut self) -> bool {
        // A connection that has become readable meanwhile is handled next.
        let spoke = sys::poll::readable(&self.fds().collect::<Vec<_>>(), DurNs::ZERO);
        let of = |user: u32| self.0.iter().filter(|(caller, _)| caller.uid == user).count();
        let silent = self.0.iter().enumerate().filter(|(at, _)| !spoke[*at]);
        // Entries are in order of arrival. Of equal ones `max_by_key` returns the last, hence `rev`.
        let one = silent.rev().max_by_key(|(_, (caller, _))| (of(caller.uid), !caller.is_ours()));
        one.map(|(at, _)| at).map(|at| self.0.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    const STRANGER: u32 = 65_531;

    /// Adds a connection of a user; returns its far end.
    fn come(greetings: &mut Greetings, uid: u32, now: MonoNs) -> OwnedFd {
        let [connection, far] = sys::handover::pair().unwrap();
        greetings.push(Caller { connection, pid: 1, uid }, now);
        far
    }

    fn users(greetings: &Greetings) -> Vec<u32> {
        greetings.0.iter().map(|(caller, _)| caller.uid).collect()
    }

    #[test]
    fn the_user_with_the_most_silent_connections_loses_its_oldest_one() {
        let (mut greetings, now) = (Greetings::default(), MonoNs(1));
        let own = sys::handover::own_user();
        let order = [STRANGER, own, STRANGER + 1, STRANGER, own, STRANGER + 1, STRANGER];
        let far: Vec<OwnedFd> = order.iter().map(|user| come(&mut greetings, *user, now)).collect();
        sys::handover::send(far[0].as_fd(), b"hello", &[]).unwrap();
        assert!(greetings.hang_up_on_one());
        assert_eq!(
            users(&greetings),
            [STRANGER, own, STRANGER + 1, own, STRANGER + 1, STRANGER],
            "its first client has sent a greeting"
        );
        assert!(greetings.hang_up_on_one());
        assert_eq!(
            users(&greetings),
            [STRANGER, own, own, STRANGER + 1, STRANGER],
            "among users with equally many, a foreign one"
        );
        (0..4).for_each(|_| assert!(greetings.hang_up_on_one()));
        assert!(
            !greetings.hang_up_on_one() && users(&greetings) == [STRANGER],
            "only the client with a greeting remains"
        );
    }

    #[test]
    fn a_caller_that_sends_is_accepted_and_one_that_exceeds_its_time_is_dropped() {
        let mut greetings = Greetings::default();
        let [late, then] = [MonoNs(0), MonoNs(1) + PATIENCE];
        let _far = [come(&mut greetings, 1, late), come(&mut greetings, 2, late), come(&mut greetings, 3, then)];
        let spoke = greetings.hear(then, &[true, false]);
        assert_eq!(spoke.iter().map(|caller| caller.uid).collect::<Vec<_>>(), [1]);
        assert_eq!(users(&greetings), [3]);
    }
}
