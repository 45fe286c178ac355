//! Shares of limited resources, so that viewers cannot block operators.

use crate::access::Role;
use crate::refused::Refused;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use web::Owner;

/// A user in a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    pub(crate) role: Role,
    pub(crate) owner: Owner,
}

/// The limit that one more would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Limit of one user in one role.
    One,
    /// Limit of all viewers together.
    Viewers,
    /// Limit of all clients together.
    All,
}

impl Excess {
    /// The limit that one more for `party` would exceed, with `taken` of `all` in use. One viewer may have half; all viewers
    /// together, and one operator, three quarters.
    pub(crate) fn of(taken: impl Iterator<Item = Party>, party: Party, all: usize) -> Option<Self> {
        let (mut own, mut viewers, mut sum) = (0, 0, 0);
        for one in taken {
            sum += 1;
            own += usize::from(one == party);
            viewers += usize::from(one.role == Role::Viewer);
        }
        match () {
            () if own >= Self::One.most(party.role, all) => Some(Self::One),
            () if party.role == Role::Viewer && viewers >= Self::Viewers.most(party.role, all) => Some(Self::Viewers),
            () if sum >= all => Some(Self::All),
            () => None,
        }
    }

    /// The limit as a number.
    const fn most(self, role: Role, all: usize) -> usize {
        match (self, role) {
            (Self::One, Role::Viewer) => all / 2,
            (Self::One, Role::Operator) | (Self::Viewers, _) => all / 4 * 3,
            (Self::All, _) => all,
        }
    }
}

/// A resource limited for all clients together.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    /// Name of the resource in the plural, and the remedy if it is refused.
    what: &'static str,
    remedy: &'static str,
    all: usize,
    taken: Arc<Mutex<Vec<Party>>>,
}

/// One unit of a resource, released on drop.
#[derive(Debug)]
pub(crate) struct Unit {
    party: Party,
    of: Shares,
}

impl Shares {
    pub(crate) fn new(what: &'static str, remedy: &'static str, all: usize) -> Self {
        Self { what, remedy, all, taken: Arc::default() }
    }

    /// Takes one unit for `party`. The error states the limit.
    pub(crate) fn take(&self, party: Party) -> Result<Unit, Refused> {
        let mut taken = self.taken();
        let &Self { what, remedy, all, .. } = self;
        if let Some(excess) = Excess::of(taken.iter().copied(), party, all) {
            let most = excess.most(party.role, all);
            let whose = match excess {
                Excess::One => format!("{} as {}", party.owner, party.role.word()),
                Excess::Viewers => "all viewers together".to_owned(),
                Excess::All => "all clients together".to_owned(),
            };
            return Err(Refused::UsedUp { whose, most, all, what, remedy });
        }
        taken.push(party);
        Ok(Unit { party, of: self.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Party>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        if let Some(at) = taken.iter().position(|party| *party == self.party) {
            taken.swap_remove(at);
        }
    }
}

/// A queue of jobs for a thread. Jobs of operators are first. Each queued job uses a share.
pub(crate) struct Queue<T> {
    shares: Shares,
    waiting: Arc<Waiting<T>>,
}

/// The thread's end of a [`Queue`].
pub(crate) struct Jobs<T>(Arc<Waiting<T>>);

struct Waiting<T> {
    /// Jobs of operators, and of viewers.
    jobs: Mutex<[VecDeque<(T, Unit)>; 2]>,
    more: Condvar,
}

/// Creates a queue of limited length.
pub(crate) fn queue<T>(all: usize) -> (Queue<T>, Jobs<T>) {
    let waiting = Arc::new(Waiting { jobs: Mutex::new([VecDeque::new(), VecDeque::new()]), more: Condvar::new() });
    let shares = Shares::new("places in the queue", "try again when the answers have come", all);
    (Queue { shares, waiting: waiting.clone() }, Jobs(waiting))
}

impl<T> Queue<T> {
    /// Appends a job after those of the same role. The error states the limit.
    pub(crate) fn push(&self, party: Party, job: T) -> Result<(), Refused> {
        let taken = self.shares.take(party)?;
        let lane = usize::from(party.role == Role::Viewer);
        self.waiting.jobs.lock().unwrap_or_else(PoisonError::into_inner)[lane].push_back((job, taken));
        self.waiting.more.notify_one();
        Ok(())
    }
}

impl<T> Jobs<T> {
    /// Waits for the next job for a limited time.
    pub(crate) fn next_within(&self, limit: Duration) -> Option<T> {
        let jobs = self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |jobs: &mut [VecDeque<_>; 2]| jobs.iter().all(VecDeque::is_empty);
        let waited = self.0.more.wait_timeout_while(jobs, limit, is_empty);
        let mut jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
        jobs.iter_mut().find_map(VecDeque::pop_front).map(|(job, _)| job)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const fn party(role: Role, user: u32) -> Party {
        Party { role, owner: Owner::User(user) }
    }

    #[test]
    fn viewers_leave_a_quarter_to_operators_and_one_viewer_leaves_half() {
        let shares = Shares::new("desks", "close one", 8);
        let viewer = |user| shares.take(party(Role::Viewer, user));
        let mut taken: Vec<Unit> = (0..4).map(|_| viewer(1).unwrap()).collect();
        let why = viewer(1).unwrap_err().to_string();
        assert_eq!(why, "user 1 as viewer have 4 of 8 desks already, as many as they may; close one");
        taken.extend((0..2).map(|_| viewer(2).unwrap()));
        assert!(viewer(3).unwrap_err().to_string().starts_with("all viewers together have 6 of 8"));
        // The same user as an operator is a different party.
        taken.extend((0..2).map(|_| shares.take(party(Role::Operator, 1)).unwrap()));
        assert!(
            shares
                .take(party(Role::Operator, 1))
                .unwrap_err()
                .to_string()
                .starts_with("all clients together have 8 of 8")
        );
        taken.clear();
        assert!(shares.taken().is_empty());
        taken.extend((0..6).map(|_| shares.take(party(Role::Operator, 1)).unwrap()));
        assert!(shares.take(party(Role::Operator, 1)).is_err() && shares.take(party(Role::Operator, 2)).is_ok());
    }

    #[test]
    fn a_job_of_an_operator_precedes_those_of_viewers_and_finds_room() {
        let (queue, jobs) = queue(8);
        for job in 0..4 {
            queue.push(party(Role::Viewer, 1), job).unwrap();
        }
        assert!(queue.push(party(Role::Viewer, 1), 4).is_err());
        queue.push(party(Role::Operator, 1), 10).unwrap();
        let next = || jobs.next_within(Duration::ZERO).unwrap();
        assert_eq!((next(), next()), (10, 0));
        // A job that was taken releases its share.
        queue.push(party(Role::Viewer, 1), 5).unwrap();
        assert_eq!([next(), next(), next(), next()], [1, 2, 3, 5]);
        assert_eq!(jobs.next_within(Duration::ZERO), None);
    }
}
