//! Large bodies: shared memory of a client, which it and its managers read and write in place.
//!
//! The client owns the pool and allocates rooms in it. A request names a room. The manager copies the request's body
//! out of it, and writes the answer's body into it; the client copies that out. Each direction costs one copy, by the
//! receiver. The server forwards the room's location after checking that it is within the pool. It never accesses the
//! memory.

use crate::end::ClientError;
use msg::Pooled;
use ring::Words;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::shm::SharedWords;

/// Maximum pool of one client, and of all clients of a server together, in bytes.
pub const POOL_BYTES_MAX: u64 = 1 << 28;
pub(crate) const POOLS_BYTES_MAX: u64 = 1 << 30;
/// Alignment of rooms in bytes. No two share a cache line.
pub(crate) const ALIGNED: u64 = 64;

/// A client's pool. Clones refer to the same pool.
#[derive(Clone)]
pub(crate) struct Pool {
    memory: Arc<SharedWords>,
    taken: Arc<AllocatedRanges>,
}

/// The allocated ranges in ascending order, and whether some are lost.
#[derive(Default)]
struct AllocatedRanges {
    ranges: Mutex<Vec<Range<u64>>>,
    lost: AtomicBool,
    /// Keeps the connection open as long as a room exists, so that the server does not give the pool to another client.
    _connection: Option<Arc<OwnedFd>>,
}

impl AllocatedRanges {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Range<u64>>) -> T) -> T {
        change(&mut self.ranges.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A part of a pool. A client owns it until it is dropped, a manager until it has answered.
pub struct Room {
    memory: Arc<SharedWords>,
    at: Pooled,
    owner: Option<Arc<AllocatedRanges>>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

/// Allocates rooms in a client's pool, from any thread.
#[derive(Clone)]
pub struct Rooms(pub(crate) Pool);

impl Rooms {
    /// Like [`Client::room`](crate::Client::room).
    ///
    /// # Errors
    /// [`NoRoom`](ClientError::NoRoom).
    pub fn room(&self, bytes: u64) -> Result<Room, ClientError> {
        self.0.room(bytes).ok_or(ClientError::NoRoom(bytes))
    }
}

/// Keeps the memory of a room mapped after the room is dropped. Later writes are never read, or only by clients of the
/// same user.
pub struct Mapping {
    _memory: Arc<SharedWords>,
}

impl PartialEq for Room {
    /// Whether both are the same range of the same pool.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.at == other.at
    }
}

impl Eq for Room {}

impl Pool {
    /// Maps a client's pool. `connection` is the client's connection.
    pub(crate) fn new(fd: OwnedFd, connection: Option<Arc<OwnedFd>>) -> sys::Result<Self> {
        let taken = AllocatedRanges { _connection: connection, ..AllocatedRanges::default() };
        Ok(Self { memory: Arc::new(SharedWords::attach(fd)?), taken: Arc::new(taken) })
    }

    /// Whether a part of the pool is permanently lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.taken.lost.load(Ordering::Relaxed)
    }

    /// Whether a room of `bytes` is available now.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.room(bytes).is_some()
    }

    /// Whether a room belongs to this pool.
    pub(crate) fn owns(&self, room: &Room) -> bool {
        Arc::ptr_eq(&self.memory, &room.memory)
    }

    /// Allocates a room of `bytes` at the first free range that is large enough; `None` if there is none.
    pub(crate) fn room(&self, bytes: u64) -> Option<Room> {
        let size = bytes.max(1).checked_next_multiple_of(ALIGNED)?;
        let all = self.memory.words().len() as u64 * 8;
        let offset = self.taken.change(|taken| {
            let ends = std::iter::once(0).chain(taken.iter().map(|taken| taken.end));
            let begins = taken.iter().map(|taken| taken.start).chain([all]);
            let (at, offset) = ends.zip(begins).enumerate().find_map(|(at, (end, begin))| {
                // Neighbouring ranges may touch, so that a gap may be empty.
                (begin.checked_sub(end)? >= size).then_some((at, end))
            })?;
            taken.insert(at, offset..offset + size);
            Some(offset)
        })?;
        let at = Pooled { offset, room: size, bytes: 0, pool: 0 };
        Some(Room { memory: self.memory.clone(), at, owner: Some(self.taken.clone()) })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.change(|taken| taken.retain(|range| range.start != self.at.offset));
        }
    }
}

impl Room {
    /// A manager's view of the room that a request names; `None` if it is not within the pool.
    pub(crate) fn lent(memory: &Arc<SharedWords>, at: Pooled) -> Option<Self> {
        at.is_within(memory.words().len() as u64 * 8).then(|| Self { memory: memory.clone(), at, owner: None })
    }

    /// Excludes the room from reuse, because another process may still write into it.
    pub(crate) fn lose(mut self) {
        if let Some(owner) = self.owner.take() {
            owner.lost.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn place(&self) -> Pooled {
        self.at
    }

    /// Sets the length of the body, as reported by the other end. Returns `false` if it exceeds the room.
    pub(crate) fn set_filled(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.at.room;
        if fits {
            self.at.bytes = bytes;
        }
        fits
    }

    /// Size of the room in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.at.room as usize
    }

    /// Length of the body in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.at.bytes as usize
    }

    /// Whether the body is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.bytes == 0
    }

    /// A handle that keeps the memory mapped after the room is dropped.
    #[must_use]
    pub fn mapping(&self) -> Mapping {
        Mapping { _memory: self.memory.clone() }
    }

    /// The room's memory, to read and write in place. The other end may write into it at any time.
    #[must_use]
    pub fn words(&self) -> &Words {
        let first = (self.at.offset / 8) as usize;
        &self.memory.words()[first..first + (self.at.room / 8) as usize]
    }

    /// Sets the length of a body that the caller wrote to the start of [`words`](Self::words).
    ///
    /// # Panics
    /// If `bytes` exceeds the room.
    pub fn filled(&mut self, bytes: usize) {
        assert!(self.set_filled(bytes as u64), "{bytes} bytes in a room for {}", self.at.room);
    }

    /// Copies a body into the room. Returns `false` if it does not fit.
    ///
    /// Real-time: does not allocate; takes the time of the copy.
    #[must_use]
    pub fn write(&mut self, body: &[u8]) -> bool {
        if !self.set_filled(body.len() as u64) {
            return false;
        }
        let (whole, rest) = body.as_chunks::<8>();
        let words = self.words();
        for (to, from) in words.iter().zip(whole) {
            to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        true
    }

    /// Copies the body to the start of `out`. Returns the number of bytes, at most the length of `out`. Validate the
    /// data only after the copy, in `out`.
    ///
    /// Real-time: does not allocate; takes the time of the copy.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let bytes = self.len().min(out.len());
        let (whole, rest) = out[..bytes].as_chunks_mut::<8>();
        let words = self.words();
        for (to, from) in whole.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed).to_le_bytes();
        }
        if !rest.is_empty() {
            let last = words[whole.len()].load(Ordering::Relaxed).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        bytes
    }
}

/// The clients' pools as known to a manager's lane.
pub(crate) struct Pools {
    /// Socket for announcements of pools: number and memory.
    news: OwnedFd,
    /// By slot.
    known: Vec<Option<PoolEntry>>,
}

/// A pool: its number, and its descriptor, or its memory once a request has named it.
enum PoolEntry {
    Announced(u64, OwnedFd),
    Mapped(u64, Arc<SharedWords>),
}

/// Maximum number of pools of a lane. The server does not have more slots.
const KNOWN_MAX: usize = 1 << 12;

impl Pools {
    pub(crate) fn new(news: OwnedFd) -> Self {
        Self { news, known: Vec::new() }
    }

    /// The room that a request names. Maps the pool on first use, which takes a few system calls.
    pub(crate) fn room(&mut self, at: Pooled) -> Option<Room> {
        if self.find(at.pool).is_none() {
            self.hear();
        }
        Room::lent(self.find(at.pool)?, at)
    }

    fn find(&mut self, number: u64) -> Option<&Arc<SharedWords>> {
        let known = self.known.get_mut(place(number))?;
        if let Some(PoolEntry::Announced(told, _)) = known
            && *told == number
            && let Some(PoolEntry::Announced(_, fd)) = known.take()
        {
            *known = SharedWords::attach(fd).ok().map(|memory| PoolEntry::Mapped(number, Arc::new(memory)));
        }
        match known {
            Some(PoolEntry::Mapped(mapped, memory)) if *mapped == number => Some(memory),
            _ => None,
        }
    }

    /// Reads announcements from the server. Call it regularly, so that the socket does not fill up. If a slot has a new
    /// pool, the previous one is unmapped.
    pub(crate) fn hear(&mut self) {
        let mut number = [0; 8];
        while let Ok(Some((8, fds))) = sys::handover::receive_now(self.news.as_fd(), &mut number) {
            let number = u64::from_le_bytes(number);
            let Some(fd) = fds.into_iter().next() else { continue };
            let place = place(number);
            if place >= KNOWN_MAX {
                continue;
            }
            if self.known.len() <= place {
                self.known.resize_with(place + 1, || None);
            }
            self.known[place] = Some(PoolEntry::Announced(number, fd));
        }
    }
}

/// Slot of a pool: the high half of its number. The low half is the slot's generation.
fn place(number: u64) -> usize {
    (number >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(bytes: usize) -> Pool {
        let memory = SharedWords::create("tahti-test-pool", bytes / 8).unwrap();
        Pool::new(memory.fd().try_clone_to_owned().unwrap(), None).unwrap()
    }

    #[test]
    fn allocated_rooms_never_overlap() {
        let pool = pool(1024);
        let rooms: Vec<Room> = [1, 64, 65, 512].map(|bytes| pool.room(bytes).unwrap()).into();
        let places: Vec<_> = rooms.iter().map(|room| (room.at.offset, room.at.room)).collect();
        assert_eq!(places, [(0, 64), (64, 64), (128, 128), (256, 512)]);
        assert!(pool.room(257).is_none() && pool.room(u64::MAX).is_none());
        let mut rooms = rooms.into_iter();
        let (first, second) = (rooms.next(), rooms.next());
        drop(second);
        assert_eq!(pool.room(64).unwrap().at.offset, 64, "a returned room is reused");
        first.unwrap().lose();
        assert_eq!(pool.room(1).unwrap().at.offset, 64, "a lost room is not");
    }

    #[test]
    fn a_body_of_any_length_survives_a_round_trip() {
        let pool = pool(4096);
        for length in [0, 1, 7, 8, 9, 1000, 2048] {
            let body: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut room = pool.room(2048).unwrap();
            assert!(room.write(&body));
            let theirs = Room::lent(&pool.memory, room.place()).unwrap();
            let mut out = [0xff; 3000];
            assert_eq!(theirs.copy_to(&mut out), length);
            assert_eq!(out[..length], body);
        }
        assert!(!pool.room(64).unwrap().write(&[0; 65]));
    }

    #[test]
    fn a_place_outside_its_pool_is_refused() {
        let pool = pool(1024);
        let good = Pooled { offset: 64, room: 960, bytes: 960, pool: 1 };
        assert!(Room::lent(&pool.memory, good).is_some());
        for bad in [
            Pooled { offset: 1024, ..good },
            Pooled { offset: 8, room: 64, ..good },
            Pooled { room: 961, ..good },
            Pooled { room: 1 << 63, offset: 1 << 63, ..good },
            Pooled { offset: u64::MAX - 63, ..good },
            Pooled { bytes: 961, ..good },
        ] {
            assert!(Room::lent(&pool.memory, bad).is_none(), "{bad:?}");
        }
    }
}
