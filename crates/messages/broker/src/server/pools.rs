//! Pools of the clients. The server never maps them.
//!
//! A manager keeps every announced pool mapped, because unmapping one interrupts the CPUs of its bands. Therefore a
//! pool whose client has gone is kept and given to the next client that needs the same: the managers already know it. A
//! pool is never reused if another process may still write into it or if its client broke the rules.

use super::refusal::Refusal;
use crate::pool::{ALIGNED, POOL_BYTES_MAX, POOLS_BYTES_MAX};
use msg::{Band, Share};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::shm::SharedWords;

/// Maximum bytes of unused pools kept for reuse. Beyond this, the oldest is dropped.
const KEPT_BYTES_MAX: u64 = POOL_BYTES_MAX;
/// Maximum number of unused pools.
const KEPT_MAX: usize = 256;
/// Limit of the users' pools in total, and how it is shared among them.
const SHARE: Share = Share {
    what: "bytes of pools",
    all: POOLS_BYTES_MAX,
    remedy: "ask for a smaller pool, or close clients that have one",
};

/// Identity of a pool for managers: its slot in the high half of `number`, the slot's generation in the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

pub(super) struct Pool {
    lent: Lent,
    fd: OwnedFd,
    user: u32,
    bands: Vec<Band>,
    /// Number of bands on which its client is connected. 0: the pool is kept for reuse.
    connections: usize,
    lost: bool,
}

#[derive(Default)]
struct Slot {
    turn: u32,
    pool: Option<Pool>,
}

/// All pools, by slot.
#[derive(Default)]
pub(super) struct Pools {
    places: Vec<Slot>,
    /// Slots of the unused pools, the oldest first.
    kept: VecDeque<usize>,
}

impl Pools {
    /// Assigns a pool to a client on these bands. The flag is set if the pool is new, so that managers must be
    /// informed.
    pub(super) fn take(&mut self, user: u32, bands: &[Band], bytes: u64) -> Result<(Lent, bool), Refusal> {
        if bytes > POOL_BYTES_MAX {
            return Err(Refusal::Pool(bytes));
        }
        let bytes = bytes.next_multiple_of(ALIGNED);
        let taken = || self.pools().filter(|pool| pool.connections > 0).map(|pool| (pool.user, pool.lent.bytes));
        SHARE.admit(taken(), user, bytes, sys::handover::is_ours)?;
        let taken: u64 = taken().map(|(_, bytes)| bytes).sum();
        // A previous client may have kept the pool mapped, so a pool is never passed to another user.
        let fits = |pool: &Pool| pool.user == user && pool.lent.bytes == bytes && pool.bands == bands;
        let places = &self.places;
        let found = self.kept.iter().position(|at| places[*at].pool.as_ref().is_some_and(fits));
        if let Some(at) = found.and_then(|at| self.kept.remove(at))
            && let Some(pool) = &mut self.places[at].pool
        {
            pool.connections = bands.len();
            return Ok((pool.lent, false));
        }
        self.keep_at_most(KEPT_BYTES_MAX.min(POOLS_BYTES_MAX - taken - bytes));
        let fd = SharedWords::unmapped("tahti-pool", bytes as usize / 8)?;
        let at = self.places.iter().position(|place| place.pool.is_none()).unwrap_or(self.places.len());
        if at == self.places.len() {
            self.places.push(Slot::default());
        }
        let place = &mut self.places[at];
        place.turn = place.turn.wrapping_add(1);
        let lent = Lent { number: (at as u64) << 32 | u64::from(place.turn), bytes };
        place.pool = Some(Pool { lent, fd, user, bands: bands.to_vec(), connections: bands.len(), lost: false });
        Ok((lent, true))
    }

    /// The memory of a pool.
    pub(super) fn fd(&self, number: u64) -> Option<BorrowedFd<'_>> {
        self.find(number).map(|pool| pool.fd.as_fd())
    }

    /// Releases a pool on one band. `lost`: another process may still write into it.
    pub(super) fn give_back(&mut self, number: u64, lost: bool) {
        let at = (number >> 32) as usize;
        let Some(place) = self.places.get_mut(at) else { return };
        let Some(pool) = place.pool.as_mut().filter(|pool| pool.lent.number == number && pool.connections > 0) else {
            return;
        };
        pool.lost |= lost;
        pool.connections -= 1;
        match (pool.connections, pool.lost) {
            (0, true) => place.pool = None,
            (0, false) => self.kept.push_back(at),
            _ => {}
        }
        self.keep_at_most(KEPT_BYTES_MAX);
    }

    /// Drops a pool whose client was not connected after all.
    pub(super) fn forget(&mut self, number: u64) {
        self.places.iter_mut().for_each(|place| drop(place.pool.take_if(|pool| pool.lent.number == number)));
    }

    fn keep_at_most(&mut self, bytes: u64) {
        let places = &self.places;
        let size = |at: &usize| places[*at].pool.as_ref().map_or(0, |pool| pool.lent.bytes);
        let mut kept: u64 = self.kept.iter().map(size).sum();
        while kept > bytes || self.kept.len() > KEPT_MAX {
            let Some(at) = self.kept.pop_front() else { return };
            kept -= self.places[at].pool.take().map_or(0, |pool| pool.lent.bytes);
        }
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.places.iter().filter_map(|place| place.pool.as_ref())
    }

    /// The numbers of all pools of a band.
    fn of(&self, band: Band) -> impl Iterator<Item = u64> {
        self.pools().filter(move |pool| pool.bands.contains(&band)).map(|pool| pool.lent.number)
    }

    fn find(&self, number: u64) -> Option<&Pool> {
        self.places.get((number >> 32) as usize)?.pool.as_ref().filter(|pool| pool.lent.number == number)
    }
}

/// A manager's channel for announcements of pools on one of its bands, with those not sent yet.
pub(super) struct News {
    band: Band,
    socket: OwnedFd,
    untold: VecDeque<u64>,
}

impl News {
    /// Starts with all pools of the band, for a new manager.
    pub(super) fn new(band: Band, socket: OwnedFd, pools: &Pools) -> Self {
        Self { band, socket, untold: pools.of(band).collect() }
    }

    /// Queues the announcement of a new pool.
    pub(super) fn add(&mut self, bands: &[Band], number: u64) {
        if bands.contains(&self.band) {
            self.untold.push_back(number);
        }
    }

    /// Sends as many announcements as the socket takes without blocking. The rest stays queued.
    pub(super) fn tell(&mut self, pools: &Pools) {
        while let Some(number) = self.untold.front() {
            if let Some(pool) = pools.fd(*number)
                && sys::handover::send(self.socket.as_fd(), &number.to_le_bytes(), &[pool]).is_err()
            {
                return;
            }
            self.untold.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_pool_is_reused_for_its_user_only_when_no_process_may_still_write_it() {
        let (mut pools, bands) = (Pools::default(), [Band::DEFAULT]);
        let take = |pools: &mut Pools, user, bytes| pools.take(user, &bands, bytes).unwrap();
        let (first, is_new) = take(&mut pools, 1000, MIB);
        assert!(is_new);
        pools.give_back(first.number, false);
        assert_eq!(take(&mut pools, 1000, MIB), (first, false));
        assert!(take(&mut pools, 1000, MIB).1, "it is in use");
        pools.give_back(first.number, false);
        assert!(take(&mut pools, 1001, MIB).1, "another user");
        assert!(take(&mut pools, 1000, 2 * MIB).1, "another size");
        assert!(pools.take(1000, &[Band::new(7).unwrap()], MIB).unwrap().1, "managers of another band do not know it");
        assert_eq!(take(&mut pools, 1000, MIB), (first, false));
        pools.give_back(first.number, true);
        pools.give_back(first.number, false);
        let (second, is_new) = take(&mut pools, 1000, MIB);
        assert!(is_new && second.number == first.number + 1, "its place is reused, with another number");
    }

    #[test]
    fn a_pool_of_several_bands_is_kept_when_all_bands_have_returned_it() {
        let mut pools = Pools::default();
        let bands = [2, 3].map(|band| Band::new(band).unwrap());
        let (pool, _) = pools.take(1, &bands, MIB).unwrap();
        pools.give_back(pool.number, false);
        assert!(pools.take(1, &bands, MIB).unwrap().1);
        pools.give_back(pool.number, false);
        assert_eq!(pools.take(1, &bands, MIB).unwrap(), (pool, false));
        pools.give_back(pool.number, true);
        pools.give_back(pool.number, false);
        assert!(pools.take(1, &bands, MIB).unwrap().1, "it is lost with one band");
    }

    #[test]
    fn kept_pools_are_bounded_and_replaced_by_new_ones() {
        let (mut pools, bands) = (Pools::default(), [Band::DEFAULT]);
        let mut take = |user, count| {
            let mut each = || pools.take(user, &bands, 64 * MIB).unwrap().0.number;
            (0..count).map(|_| each()).collect::<Vec<_>>()
        };
        // Root last: it still has room when the others have used up their shares.
        let all: Vec<_> = [(1, 8), (2, 4), (0, 4)].into_iter().flat_map(|(user, count)| take(user, count)).collect();
        let mut refused = |user| pools.take(user, &bands, MIB).unwrap_err().to_string();
        assert!(refused(1).starts_with("user 1 has 536870912 of 1073741824 bytes of pools"), "{}", refused(1));
        assert!(refused(3).starts_with("users other than the server's own and root have 805306368 of"));
        assert!(refused(0).starts_with("all users have 1073741824 of"));
        all.iter().for_each(|number| pools.give_back(*number, false));
        let kept: Vec<u64> = pools.of(bands[0]).collect();
        assert_eq!(kept, all[12..], "256 MiB, the latest");
        for user in [0, 2, 3, 4] {
            pools.take(user, &bands, 256 * MIB).unwrap();
        }
        assert_eq!(pools.of(bands[0]).count(), 4, "other users are first");
        assert!(pools.take(1, &bands, 257 * MIB).is_err() && pools.take(1, &bands, u64::MAX).is_err());
    }
}
