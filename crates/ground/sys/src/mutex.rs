//! A mutex with priority inheritance for threads of all processes that map it. It is robust: the death of its owner is
//! detected.
//!
//! It is the C library's mutex (`PTHREAD_PRIO_INHERIT`, `PTHREAD_MUTEX_ROBUST`, `PTHREAD_PROCESS_SHARED`) in sealed
//! shared memory. When a thread ends, the kernel walks its list of robust mutexes. Each thread has only one such list,
//! which the C library owns. A separate lock word would miss an owner that dies while no thread waits and whose id is
//! then reused.

use crate::error::{Error, Result};
use crate::peer::{is_ours, own_user};
use crate::shm::SharedWords;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `TAHTIMTX` in a hex dump; written last.
const MAGIC: u64 = u64::from_le_bytes(*b"TAHTIMTX");
const AT_MAGIC: usize = 0;
const AT_FORM: usize = 1;
const MUTEX: usize = 8;
const MUTEX_WORDS: usize = 8;
/// The protected words, on a separate cache line.
const DATA: usize = MUTEX + MUTEX_WORDS;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= MUTEX_WORDS * 8);
const _: () = assert!(align_of::<libc::pthread_mutex_t>() <= 64);

/// Identifies the C library's mutex and its size. Programs built with a different C library cannot use it.
const FORM: u64 = (if cfg!(target_env = "musl") { 2 } else { 1 }) << 32 | size_of::<libc::pthread_mutex_t>() as u64;

/// A mutex, and the words that it protects. Clones, and all processes that map its memory, share it.
///
/// Its memory stays mapped until the process ends, because the kernel and the C library may still have its address.
#[derive(Clone, Debug)]
pub struct Lock {
    words: Arc<SharedWords>,
}

/// Holds a [`Lock`] until it is dropped. Must stay on its thread.
#[derive(Debug)]
pub struct LockGuard<'a> {
    lock: &'a Lock,
    owner_died: bool,
    /// Only the locking thread may unlock.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Lock {
    /// Creates a mutex that protects `data` words.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(data: usize) -> Result<Self> {
        let words = SharedWords::create("tahti-mutex", DATA + data)?;
        let lock = Self::keep(words);
        lock.initialise()?;
        let words = lock.words.words();
        words[AT_FORM].store(FORM, Ordering::Relaxed);
        words[AT_MAGIC].store(MAGIC, Ordering::Release);
        Ok(lock)
    }

    /// Attaches to a mutex whose memory was received from another process.
    ///
    /// # Errors
    /// `EINVAL` if it is not a mutex, or one of another C library; `EPERM` if its creator is neither this user nor
    /// root, because the C library follows pointers in it. The kernel's.
    pub fn attach(fd: OwnedFd) -> Result<Self> {
        let words = SharedWords::attach(fd)?;
        let user = words.user()?;
        if !is_ours(user) {
            let doing = format!("use a mutex that user {user} created: expected user {} or root", own_user());
            return Err(Error { doing, errno: Errno::PERM });
        }
        let found = (words.words().len() >= DATA)
            .then(|| [AT_MAGIC, AT_FORM].map(|index| words.words()[index].load(Ordering::Acquire)));
        if found != Some([MAGIC, FORM]) {
            let doing = format!("take over a mutex: found {found:x?}, expected {:x?}", [MAGIC, FORM]);
            return Err(Error { doing, errno: Errno::INVAL });
        }
        Ok(Self::keep(words))
    }

    fn keep(words: SharedWords) -> Self {
        let words = Arc::new(words);
        std::mem::forget(words.clone());
        Self { words }
    }

    /// Its memory, for passing to another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }

    /// The protected words. Access without the lock is incorrect, but not undefined behaviour.
    #[must_use]
    pub fn data(&self) -> &[AtomicU64] {
        &self.words.words()[DATA..]
    }

    /// Takes the lock. While waiting, raises the owner's priority to the caller's, if that is higher.
    ///
    /// Real-time: no system call if the lock is free; otherwise one, which blocks until the owner releases it. Does not
    /// allocate.
    ///
    /// # Errors
    /// `EDEADLK` if the caller already holds it; `EAGAIN`, `ENOMEM` of the kernel.
    pub fn lock(&self) -> std::result::Result<LockGuard<'_>, Errno> {
        let owner_died = self.acquire()?;
        Ok(LockGuard { lock: self, owner_died, _not_send: std::marker::PhantomData })
    }

    /// Like [`lock`](Self::lock), but returns `EBUSY` instead of waiting.
    ///
    /// # Errors
    /// `EBUSY`; otherwise like `lock`.
    pub fn try_lock(&self) -> std::result::Result<LockGuard<'_>, Errno> {
        let owner_died = self.try_acquire()?;
        Ok(LockGuard { lock: self, owner_died, _not_send: std::marker::PhantomData })
    }

    /// Like [`lock`](Self::lock), for callers that cannot keep a guard (C). Returns whether an owner died holding it.
    ///
    /// # Errors
    /// Like `lock`.
    pub fn acquire(&self) -> std::result::Result<bool, Errno> {
        // SAFETY: an initialised mutex (checked on creation or attachment) that stays mapped.
        self.judged(unsafe { libc::pthread_mutex_lock(self.raw()) })
    }

    /// Like [`acquire`](Self::acquire), but returns `EBUSY` instead of waiting.
    ///
    /// # Errors
    /// Like [`try_lock`](Self::try_lock).
    pub fn try_acquire(&self) -> std::result::Result<bool, Errno> {
        // SAFETY: as in `acquire`.
        self.judged(unsafe { libc::pthread_mutex_trylock(self.raw()) })
    }

    /// Releases the lock.
    ///
    /// Real-time: a system call only if another thread waits; does not block.
    ///
    /// # Errors
    /// `EPERM` if the calling thread does not hold it.
    pub fn release(&self) -> std::result::Result<(), Errno> {
        // SAFETY: as in `acquire`; a robust mutex checks its owner.
        match unsafe { libc::pthread_mutex_unlock(self.raw()) } {
            0 => Ok(()),
            code => Err(Errno::from_raw_os_error(code)),
        }
    }

    /// Whether the previous owner of a lock just taken has died. If so, the mutex is made consistent at once. The new
    /// owner is informed, and if it dies too, the next one.
    fn judged(&self, code: i32) -> std::result::Result<bool, Errno> {
        match code {
            0 => Ok(false),
            libc::EOWNERDEAD => {
                // SAFETY: as in `acquire`; the caller holds it.
                match unsafe { libc::pthread_mutex_consistent(self.raw()) } {
                    0 => Ok(true),
                    code => Err(Errno::from_raw_os_error(code)),
                }
            }
            code => Err(Errno::from_raw_os_error(code)),
        }
    }

    fn raw(&self) -> *mut libc::pthread_mutex_t {
        self.words.words()[MUTEX..].as_ptr().cast_mut().cast()
    }

    fn initialise(&self) -> Result<()> {
        let checked = |code: i32| match code {
            0 => Ok(()),
            code => Err(Error { doing: "make a robust mutex".to_owned(), errno: Errno::from_raw_os_error(code) }),
        };
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
        let at = attributes.as_mut_ptr();
        // SAFETY: `at` is writable for the attributes.
        checked(unsafe { libc::pthread_mutexattr_init(at) })?;
        // SAFETY: initialised above.
        let inherit = checked(unsafe { libc::pthread_mutexattr_setprotocol(at, libc::PTHREAD_PRIO_INHERIT) });
        // Otherwise locking it twice would block forever.
        // SAFETY: as above.
        let checks = checked(unsafe { libc::pthread_mutexattr_settype(at, libc::PTHREAD_MUTEX_ERRORCHECK) });
        // SAFETY: as above.
        let robust = checked(unsafe { libc::pthread_mutexattr_setrobust(at, libc::PTHREAD_MUTEX_ROBUST) });
        // SAFETY: as above.
        let shared = checked(unsafe { libc::pthread_mutexattr_setpshared(at, libc::PTHREAD_PROCESS_SHARED) });
        // SAFETY: the words are writable, aligned and large enough (asserted above), and not yet shared.
        let made = inherit
            .and(checks)
            .and(robust)
            .and(shared)
            .and_then(|()| checked(unsafe { libc::pthread_mutex_init(self.raw(), at) }));
        // SAFETY: initialised above, not used afterwards.
        unsafe { libc::pthread_mutexattr_destroy(at) };
        made
    }
}

impl<'a> LockGuard<'a> {
    /// Whether the previous owner died holding the lock: the protected data may be inconsistent.
    #[must_use]
    pub fn owner_died(&self) -> bool {
        self.owner_died
    }

    /// The lock that is held.
    #[must_use]
    pub fn lock(&self) -> &'a Lock {
        self.lock
    }

    /// Releases the lock while `meanwhile` runs.
    ///
    /// # Errors
    /// Like [`Lock::lock`]; then the lock is not held, and the guard is consumed.
    pub fn without<T>(self, meanwhile: impl FnOnce() -> T) -> std::result::Result<(Self, T), Errno> {
        let lock = self.lock;
        drop(self);
        let value = meanwhile();
        Ok((lock.lock()?, value))
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let released = self.lock.release();
        debug_assert_eq!(released, Ok(()), "a guard stays on the thread that has locked");
    }
}

/// A value of this process behind a [`Lock`]: like `std::sync::Mutex`, with priority inheritance.
///
/// ```
/// let count = sys::mutex::Mutex::new(0)?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *count.lock().unwrap() += 1);
///     }
/// });
/// assert_eq!(*count.lock().unwrap(), 4);
/// # Ok::<(), sys::Error>(())
/// ```
#[derive(Debug)]
pub struct Mutex<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock accesses the value.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above; a shared mutex passes the value between threads, never to two at the same time.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Holds a [`Mutex`] and provides access to its value.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    held: LockGuard<'a>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`. Allocates, and maps a page that stays until the process ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(value: T) -> Result<Self> {
        Ok(Self { lock: Lock::create(0)?, value: UnsafeCell::new(value) })
    }

    /// Takes the lock. Real-time properties and errors are those of [`Lock::lock`].
    ///
    /// # Errors
    /// Like [`Lock::lock`].
    pub fn lock(&self) -> std::result::Result<MutexGuard<'_, T>, Errno> {
        Ok(MutexGuard { held: self.lock.lock()?, mutex: self })
    }
}

impl<T> MutexGuard<'_, T> {
    /// Whether a thread ended holding the lock: the protected value may be inconsistent.
    #[must_use]
    pub fn owner_died(&self) -> bool {
        self.held.owner_died()
    }

    /// Releases the lock while `meanwhile` runs.
    ///
    /// # Errors
    /// Like [`LockGuard::without`].
    pub fn without<V>(self, meanwhile: impl FnOnce() -> V) -> std::result::Result<(Self, V), Errno> {
        let mutex = self.mutex;
        let (held, value) = self.held.without(meanwhile)?;
        Ok((Self { held, mutex }, value))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held as long as the guard lives, so no other thread accesses the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed for writing.
        unsafe { &mut *self.mutex.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_reached_by_one_thread_at_a_time() {
        let mutex = Mutex::new((0u64, 0u64)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mut both = mutex.lock().unwrap();
                        assert_eq!(both.0, both.1);
                        both.0 += 1;
                        both.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*mutex.lock().unwrap(), (2000, 2000));
    }

    #[test]
    fn the_death_of_the_owner_of_a_lock_is_reported_once_to_the_next_owner() {
        let lock = Lock::create(1).unwrap();
        let theirs = Lock::attach(lock.fd().try_clone_to_owned().unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = theirs.lock().unwrap();
                held.lock().data()[0].store(1, Ordering::Relaxed);
                std::mem::forget(held);
            });
        });
        let held = lock.lock().unwrap();
        assert!(held.owner_died());
        assert_eq!(held.lock().data()[0].load(Ordering::Relaxed), 1, "half done");
        assert_eq!(lock.lock().unwrap_err(), Errno::DEADLK);
        drop(held);
        assert!(!lock.lock().unwrap().owner_died(), "reported once");
        assert_eq!(lock.release(), Err(Errno::PERM));
    }

    #[test]
    fn a_held_lock_is_busy_and_is_free_while_its_guard_releases_it() {
        let lock = Lock::create(0).unwrap();
        let busy = || std::thread::scope(|scope| scope.spawn(|| lock.try_lock().map(drop)).join().unwrap());
        let held = lock.lock().unwrap();
        assert_eq!(busy(), Err(Errno::BUSY));
        let (held, meanwhile) = held.without(busy).unwrap();
        assert_eq!((meanwhile, busy()), (Ok(()), Err(Errno::BUSY)));
        drop(held);
        assert_eq!(busy(), Ok(()));
    }

    #[test]
    fn memory_that_is_not_a_mutex_is_refused() {
        for words in [1, 64] {
            let other = SharedWords::create("no-mutex", words).unwrap();
            let error = Lock::attach(other.fd().try_clone_to_owned().unwrap()).unwrap_err();
            assert!(error.errno == Errno::INVAL && error.to_string().contains("expected"), "{error}");
        }
    }
}
