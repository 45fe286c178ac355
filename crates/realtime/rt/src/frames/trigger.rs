//! Waiting for the trigger of a minor frame.

use crate::frames::address;
use crate::frames::ticker::Ticker;
use base::{DurNs, MonoNs};
use frame::TimeBase;
use ring::{FramePage, FrameState};
use std::fs::File;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use sys::clock::{mono_now, sleep_until};
use sys::gpio::Line;
use sys::pps::Pps;
use sys::shm::SharedWords;

/// Maximum time of a wait between checks whether the frame is to end.
const LOOK: DurNs = DurNs::from_ms(50);

/// The time base of a running frame.
pub(crate) enum Trigger {
    Timer,
    Word { words: Arc<SharedWords>, seen: u64, poll: Option<DurNs> },
    Udp(UdpSocket),
    Device(Ticker),
    Pps { source: Pps, seen: u32, at: Option<MonoNs> },
    Gpio { line: Line, seen: u32, at: Option<MonoNs> },
    Handed { handed: Arc<HandedTrigger>, ticker: Option<Ticker> },
    Frame { words: SharedWords, connection: OwnedFd, sequence: Option<u64> },
}

/// A descriptor that a client handed to the frame. The runner stores it, and the dispatcher takes it to wait on it.
#[derive(Debug, Default)]
pub(crate) struct HandedTrigger {
    /// Locked for a moment by the runner. The dispatcher only tries to lock it.
    left: Mutex<Option<Ticker>>,
    /// Whether a descriptor is stored.
    fresh: AtomicBool,
}

impl HandedTrigger {
    /// Stores a descriptor, replacing one that was not taken yet.
    pub(crate) fn leave(&self, fd: OwnedFd) {
        *self.left.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(Ticker::of(File::from(fd)));
        self.fresh.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Ticker> {
        if !self.fresh.load(Ordering::Acquire) {
            return None;
        }
        let mut left = self.left.try_lock().ok()?;
        self.fresh.store(false, Ordering::Release);
        left.take()
    }
}

/// Reason why a time base is unavailable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TriggerError {
    #[error("UDP port {port} of 127.0.0.1 cannot be opened: {error}")]
    Udp { port: u16, error: std::io::Error },
    #[error("{path} cannot be opened: {error}")]
    Device { path: String, error: std::io::Error },
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    #[error("frame {name:?} cannot be followed: {error}")]
    Follow { name: String, error: FollowError },
}

/// Reason why a frame cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    #[error("it refuses")]
    Refused,
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    #[error(transparent)]
    Layout(#[from] ring::LayoutError),
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The time base has ticked: number of ticks, and the time at which they were detected.
    Ticks(u64, MonoNs),
    /// No tick came in time.
    Nothing,
    /// The frame is to end, or its time base is gone.
    Over,
}

/// Position of the frame that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub(crate) pulse: u64,
    pub(crate) minor: u16,
    /// Time at which its dispatcher began the minor.
    pub(crate) begun: MonoNs,
}

impl Trigger {
    /// Opens the time base. `page` is the page of the frame itself.
    pub(crate) fn open(
        base: &TimeBase,
        page: &Arc<SharedWords>,
        handed: &Arc<HandedTrigger>,
    ) -> Result<Self, TriggerError> {
        Ok(match base {
            TimeBase::Timer => Self::Timer,
            TimeBase::Software => Self::Word { words: page.clone(), seen: 0, poll: None },
            TimeBase::Counter(every) => Self::Word { words: page.clone(), seen: 0, poll: Some(*every) },
            TimeBase::Udp(port) => {
                let socket = UdpSocket::bind(("127.0.0.1", *port));
                let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
                Self::Udp(socket.map_err(|error| TriggerError::Udp { port: *port, error })?)
            }
            TimeBase::Device(path) => {
                // Also opened for writing, so that a FIFO does not end when its writers have closed it.
                let file = File::options().read(true).write(true).open(path).or_else(|_| File::open(path));
                Self::Device(Ticker::of(file.map_err(|error| TriggerError::Device { path: path.clone(), error })?))
            }
            TimeBase::Pps(path) => {
                let source = Pps::open(path)?;
                let last =
                    source.fetch(DurNs::ZERO).map_err(|errno| sys::Error { doing: format!("read {path}"), errno })?;
                Self::Pps { source, seen: last.map_or(0, |pulse| pulse.sequence), at: None }
            }
            TimeBase::Gpio { chip, line, falling } => {
                let line = Line::open(chip, *line, *falling)?;
                Self::Gpio { line, seen: 0, at: None }
            }
            TimeBase::Eventfd => Self::Handed { handed: handed.clone(), ticker: None },
            TimeBase::Frame(name) => {
                let (words, connection) = follow(name)?;
                Self::Frame { words, connection, sequence: None }
            }
        })
    }

    /// Whether no tick is expected yet: no descriptor was handed over, or the frame that is followed is still forming.
    pub(crate) fn is_forming(&self) -> bool {
        match self {
            Self::Handed { ticker, .. } => ticker.is_none(),
            Self::Frame { words, .. } => {
                FramePage::attach(words.words()).is_ok_and(|page| page.state() == FrameState::Forming)
            }
            _ => false,
        }
    }

    /// Position of the frame that is followed, if the time base is a frame.
    pub(crate) fn place(&self) -> Option<Followed> {
        let Self::Frame { words, .. } = self else { return None };
        let page = FramePage::attach(words.words()).ok()?;
        let border = page.border();
        Some(Followed { pulse: border.pulse, minor: border.minor, begun: border.begun })
    }

    /// Time of the last tick, if the time base has a time stamp.
    pub(crate) fn stamped(&self) -> Option<MonoNs> {
        match self {
            Self::Pps { at, .. } | Self::Gpio { at, .. } => *at,
            _ => self.place().map(|place| place.begun),
        }
    }

    /// Waits for the end of the minor: until `end` for a timer, otherwise for the next trigger, at most for `limit`.
    ///
    /// Real-time: blocks; does not allocate.
    pub(crate) fn wait(&mut self, end: MonoNs, limit: DurNs, stop: &AtomicBool) -> Waited {
        match self {
            Self::Timer => until(end, stop),
            _ => self.await_tick(limit, stop),
        }
    }

    #[inline(never)]
    fn await_tick(&mut self, limit: DurNs, stop: &AtomicBool) -> Waited {
        let mut now = mono_now();
        let give_up = now + limit;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Waited::Over;
            }
            let ticks = match self {
                // `wait` handles the timer.
                Self::Timer => return Waited::Nothing,
                Self::Word { words, seen, poll } => {
                    let Ok(page) = FramePage::attach(words.words()) else { return Waited::Over };
                    await_change(page.trigger_word(), seen, *poll)
                }
                Self::Udp(socket) => datagrams(socket),
                Self::Device(ticker) => ticker.ticks(),
                Self::Pps { source, seen, at } => pulses(source, seen, at),
                Self::Gpio { line, seen, at } => edges(line, seen, at),
                Self::Handed { handed, ticker } => {
                    if let Some(fresh) = handed.take() {
                        *ticker = Some(fresh);
                    }
                    match ticker {
                        Some(open) => open.ticks().or_else(|| {
                            // The descriptor has ended. A client may hand over another.
                            *ticker = None;
                            Some(0)
                        }),
                        None => {
                            sleep_until(now + DurNs::from_ms(5));
                            Some(0)
                        }
                    }
                }
                Self::Frame { words, connection, sequence } => {
                    let Ok(page) = FramePage::attach(words.words()) else { return Waited::Over };
                    if page.state() == FrameState::Ended || !sys::handover::is_alive(connection.as_fd()) {
                        return Waited::Over;
                    }
                    minors(&page, sequence)
                }
            };
            now = mono_now();
            match ticks {
                Some(0) if now >= give_up => return Waited::Nothing,
                Some(0) => {}
                Some(ticks) => return Waited::Ticks(ticks, now),
                None => return Waited::Over,
            }
        }
    }
}

/// Waits until `end`, unless the frame is to end before.
pub(crate) fn until(end: MonoNs, stop: &AtomicBool) -> Waited {
    loop {
        let now = mono_now();
        if stop.load(Ordering::Relaxed) {
            return Waited::Over;
        } else if now >= end {
            return Waited::Ticks(1, now);
        }
        sleep_until(end.min(now + LOOK));
    }
}

/// Opens the page of another frame as its follower.
fn follow(name: &str) -> Result<(SharedWords, OwnedFd), TriggerError> {
    let ask = || -> Result<_, FollowError> {
        let connection = sys::handover::connect(&address(name))?;
        sys::handover::send(connection.as_fd(), b"follow", &[])?;
        let received = sys::handover::receive(connection.as_fd(), &mut [0; 256])?;
        let fd = received.and_then(|(_, fds)| fds.into_iter().next()).ok_or(FollowError::Refused)?;
        let words = SharedWords::attach(fd)?;
        FramePage::attach(words.words())?;
        Ok((words, connection))
    };
    ask().map_err(|error| TriggerError::Follow { name: name.to_owned(), error })
}

/// Number of steps of a counter. Sleeps until it changes, with a short limit.
fn await_change(word: &AtomicU64, seen: &mut u64, poll: Option<DurNs>) -> Option<u64> {
    let mut now = word.load(Ordering::Acquire);
    if now == *seen {
        match poll {
            Some(every) => sleep_until(mono_now() + every),
            None => _ = sys::futex::wait(word, now, Some(LOOK)),
        }
        now = word.load(Ordering::Acquire);
    }
    // A counter that was reset counts as one step.
    let ticks = if now >= *seen { now - *seen } else { 1 };
    *seen = now;
    Some(ticks)
}

/// Number of minors that another frame has begun. Sleeps until it begins one, with a short limit. A minor that is extended
/// or repeated does not count.
fn minors(page: &FramePage<'_>, sequence: &mut Option<u64>) -> Option<u64> {
    let begun = || page.turn().sequence;
    // A frame that is forming has begun no minor.
    let before = *sequence.get_or_insert_with(|| if page.state() == FrameState::Forming { 0 } else { begun() });
    let pulse = page.pulse_word();
    let seen = pulse.load(Ordering::Acquire);
    let mut now = begun();
    if now == before {
        sys::futex::wait(pulse, seen, Some(LOOK));
        now = begun();
    }
    *sequence = Some(now);
    Some(now.wrapping_sub(before))
}

/// Number of new pulses. Sleeps until one comes, with a short limit.
fn pulses(source: &Pps, seen: &mut u32, at: &mut Option<MonoNs>) -> Option<u64> {
    // A pulse between the two fetches is found at the next call. Its time stamp shows when it came.
    let mut last = source.fetch(DurNs::ZERO).ok()?;
    if last.is_none_or(|pulse| pulse.sequence == *seen) {
        last = source.fetch(LOOK).ok()?;
    }
    let Some(pulse) = last else { return Some(0) };
    *at = Some(pulse.at);
    Some(pulse.sequence.wrapping_sub(std::mem::replace(seen, pulse.sequence)).into())
}

/// Number of new edges. Sleeps until one comes, with a short limit.
fn edges(line: &Line, seen: &mut u32, at: &mut Option<MonoNs>) -> Option<u64> {
    if !sys::poll::is_readable(line.as_fd(), LOOK) {
        return Some(0);
    }
    let Some(edge) = line.look().ok()? else { return Some(0) };
    *at = Some(edge.at);
    Some(edge.sequence.wrapping_sub(std::mem::replace(seen, edge.sequence)).into())
}

/// Number of new datagrams.
fn datagrams(socket: &UdpSocket) -> Option<u64> {
    if !sys::poll::is_readable(socket.as_fd(), LOOK) {
        return Some(0);
    }
    let mut ticks = 0;
    // Bounded, so that a client that floods the port cannot hold up the dispatcher.
    while ticks < 1024 {
        match socket.recv_from(&mut [0; 16]) {
            Ok(_) => ticks += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // The ICMP error of an earlier datagram.
            Err(_) => {}
        }
    }
    Some(ticks)
}
