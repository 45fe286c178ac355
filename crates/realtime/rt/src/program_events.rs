//! Events that a program itself reports: a name and a number, with time, thread and CPU. `tahti explain` and `tahti trace` show them
//! among the kernel's events.
//!
//! A process has one segment, with a [`Trail`] for each of its threads. It is handed over at the socket `tahti-events-PID`.

use crate::share::ShareError;
use base::{CpuId, MonoNs};
use ring::{Cursor, Trail};
use std::cell::OnceCell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use sys::clock::mono_now;
use sys::shm::{ReadWords, SharedWords};

/// Maximum number of threads of a process that report events at the same time.
pub const EVENT_THREADS_MAX: usize = 32;
/// Maximum length of an event's name, in bytes.
pub const EVENT_NAME_BYTES: usize = 15;

/// Events kept of each thread: two seconds of a loop at 1 kHz. The recorder reads them each second.
const EVENTS: usize = 2048;
/// Words of an event: time, thread and CPU, number, name (2).
const WORDS: usize = 5;
/// Words of a thread's trail.
const TRAIL: usize = Trail::<WORDS>::words_for(EVENTS);

/// The events of this process.
struct Segment {
    words: SharedWords,
    /// Trails that a thread uses.
    used: [AtomicBool; EVENT_THREADS_MAX],
}

static SEGMENT: OnceLock<Segment> = OnceLock::new();

/// The trail of a thread, until it ends.
struct Own {
    index: usize,
    tid: i32,
}

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(segment) = SEGMENT.get() {
            segment.used[self.index].store(false, Ordering::Release);
        }
    }
}

fn address(pid: i32) -> String {
    format!("tahti-events-{pid}")
}

/// Reports an event of the calling thread. The last 2,048 events of each thread are kept for programs of the same user and of root.
///
/// The first call of a process makes the memory and starts a thread that hands it out, and the first call of a thread takes its part
/// of it: make both during start-up. Later calls are real-time: two clock readings, some stores, no system call.
///
/// A process made by `fork` without `exec` must not call it.
///
/// # Errors
/// The name is empty or longer than [`EVENT_NAME_BYTES`], [`EVENT_THREADS_MAX`] threads report events already, or the kernel's error.
pub fn program_event(name: &str, value: i64) -> Result<(), ShareError> {
    if name.is_empty() || name.len() > EVENT_NAME_BYTES {
        return Err(ShareError::EventName { name: name.to_owned() });
    }
    let report = |own: &OnceCell<Own>| {
        let (segment, own) = match (SEGMENT.get(), own.get()) {
            (Some(segment), Some(known)) => (segment, known),
            _ => {
                let segment = opened()?;
                let claimed = claim(segment)?;
                (segment, own.get_or_init(|| claimed))
            }
        };
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let [first, second] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte])));
        let place = u64::from(own.tid.cast_unsigned()) << 32 | u64::from(sys::thread::cpu());
        let trail = Trail::attach(&segment.words.words()[own.index * TRAIL..][..TRAIL])?;
        trail.push_overwrite([mono_now().0, place, value.cast_unsigned(), first, second]);
        Ok(())
    };
    // A thread that runs its thread-local destructors has given its trail back.
    OWN.try_with(report).unwrap_or(Err(ShareError::EventThreads))
}

/// The segment of this process, opened by the first call.
fn opened() -> Result<&'static Segment, ShareError> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(segment) = SEGMENT.get() {
        return Ok(segment);
    }
    let refused = |error| ShareError::Events { error };
    let words = SharedWords::create_for_readers("tahti-events", EVENT_THREADS_MAX * TRAIL).map_err(refused)?;
    for trail in words.words().chunks_exact(TRAIL) {
        Trail::<WORDS>::format(trail)?;
    }
    let fd = words.read_only().map_err(refused)?;
    crate::share::offer_at(&address(std::process::id().cast_signed()), fd).map_err(refused)?;
    let used = [const { AtomicBool::new(false) }; EVENT_THREADS_MAX];
    Ok(SEGMENT.get_or_init(|| Segment { words, used }))
}

/// A trail that no other thread uses, for the calling thread.
fn claim(segment: &Segment) -> Result<Own, ShareError> {
    let free = segment.used.iter().position(|used| !used.swap(true, Ordering::AcqRel));
    free.map(|index| Own { index, tid: sys::thread::id() }).ok_or(ShareError::EventThreads)
}

/// An event of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramEvent {
    /// Time.
    pub at: MonoNs,
    /// The thread.
    pub tid: i32,
    /// The CPU that the thread had.
    pub cpu: CpuId,
    /// Number.
    pub value: i64,
    /// Name, padded with zeros.
    pub name: [u8; 16],
}

/// The events of another process.
#[derive(Debug)]
pub struct ProgramEvents {
    words: ReadWords,
    connection: OwnedFd,
    cursors: [Cursor; EVENT_THREADS_MAX],
}

impl ProgramEvents {
    /// Opens the events of a process, from the oldest that is kept.
    ///
    /// # Errors
    /// The process does not exist or has not reported an event, or its memory has another layout.
    pub fn open(pid: i32) -> Result<Self, ShareError> {
        let name = address(pid);
        let (fd, connection) =
            sys::handover::ask(&name).map_err(|error| ShareError::NotOffered { name: name.clone(), error })?;
        let words = SharedWords::attach_read_only(fd)?;
        let mut cursors = [Cursor::default(); EVENT_THREADS_MAX];
        for (index, cursor) in cursors.iter_mut().enumerate() {
            *cursor = trail(&words, index)?.from_oldest();
        }
        Ok(Self { words, connection, cursors })
    }

    /// Passes the new events to `each`, those of a thread in order: at most 2,048 of each thread. The process decides about their content.
    /// Events in the future are dropped.
    pub fn read(&mut self, mut each: impl FnMut(ProgramEvent)) {
        for (index, cursor) in self.cursors.iter_mut().enumerate() {
            // The process may have damaged its memory.
            let Ok(trail) = trail(&self.words, index) else { continue };
            for _ in 0..EVENTS {
                let Some([at, place, value, first, second]) = trail.next(cursor) else { break };
                if at > mono_now().0 {
                    continue;
                }
                let mut name = [0; 16];
                name[..8].copy_from_slice(&first.to_le_bytes());
                name[8..].copy_from_slice(&second.to_le_bytes());
                let (tid, cpu) = (((place >> 32) as u32).cast_signed(), place as CpuId);
                each(ProgramEvent { at: MonoNs(at), tid, cpu, value: value.cast_signed(), name });
            }
        }
    }

    /// Number of events that were overwritten before they were read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.cursors.iter().fold(0, |sum, cursor| sum.saturating_add(cursor.lost()))
    }

    /// Whether the process is alive. Its last events remain readable.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        sys::handover::is_alive(self.connection.as_fd())
    }
}

fn trail(words: &ReadWords, index: usize) -> Result<Trail<'_, WORDS>, ring::LayoutError> {
    let rest = words.words().get(index * TRAIL..).unwrap_or_default();
    Trail::attach(&rest[..rest.len().min(TRAIL)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_each_thread_are_read_with_time_thread_and_number() {
        let before = mono_now();
        program_event("exposure", 1).unwrap();
        std::thread::scope(|scope| _ = scope.spawn(|| program_event("fifteen letters", -2).unwrap()).join());
        program_event("exposure", 3).unwrap();
        let mut events = ProgramEvents::open(std::process::id().cast_signed()).unwrap();
        let mut found = Vec::new();
        events.read(|event| found.push(event));
        let named = |name: &[u8]| -> Vec<ProgramEvent> {
            found.iter().filter(|event| event.name.starts_with(name)).copied().collect()
        };
        let mut own = named(b"exposure\0");
        own.retain(|event| event.tid == sys::thread::id());
        assert_eq!(own.iter().map(|event| event.value).collect::<Vec<_>>(), [1, 3]);
        assert!(before <= own[0].at && own[0].at <= own[1].at && own[1].at <= mono_now(), "{own:?}");
        let other = named(b"fifteen letters\0");
        assert!(matches!(other[..], [event] if event.value == -2 && event.tid != own[0].tid), "{other:?}");
        let mut more = 0;
        events.read(|event| more += u32::from(event.tid == own[0].tid));
        assert_eq!((more, events.is_alive()), (0, true), "each is read once");
    }

    #[test]
    fn a_flood_keeps_the_last_2048_events_and_counts_the_others() {
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                program_event("first", 0).unwrap();
                let mut events = ProgramEvents::open(std::process::id().cast_signed()).unwrap();
                (0..2100).for_each(|number| program_event("flood", number).unwrap());
                let (mut values, own) = (Vec::new(), sys::thread::id());
                events.read(|event| values.extend((event.tid == own).then_some(event.value)));
                assert_eq!((values.first(), values.last(), values.len()), (Some(&52), Some(&2099), 2048));
                assert!(events.lost() >= 53, "{}", events.lost());
            });
            flood.join().unwrap();
        });
    }

    #[test]
    fn a_name_that_does_not_fit_and_a_process_without_events_are_refused() {
        for wrong in ["", "sixteen letters!"] {
            let refused = program_event(wrong, 0).unwrap_err().to_string();
            assert!(refused.contains("expected 1 to 15 bytes"), "{refused}");
        }
        let refused = ProgramEvents::open(-1).unwrap_err().to_string();
        assert!(refused.contains("\"tahti-events--1\"") && refused.contains("expected a running process"), "{refused}");
    }

    #[test]
    fn a_trail_is_used_again_after_its_thread_has_ended() {
        for number in 0..2 * EVENT_THREADS_MAX as i64 {
            let reported = std::thread::spawn(move || program_event("short", number)).join().unwrap();
            reported.unwrap_or_else(|error| panic!("thread {number}: {error}"));
        }
    }
}
