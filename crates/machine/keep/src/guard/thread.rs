//! The guard's thread: checks each watch when it is due, then sleeps until the next is due or a command arrives.

use super::watched::Watched;
use super::{Command, Ends, EventKind, GuardEvent, WATCHES_MAX, WatchId};
use base::{DurNs, MonoNs};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::atomic::Ordering;

/// Runs until [`Command::Stop`] arrives.
pub(super) fn watch(ends: &Ends) {
    // All memory that this thread ever needs.
    let mut watches: Vec<Box<Watched>> = Vec::with_capacity(WATCHES_MAX);
    loop {
        ends.rounds.fetch_add(1, Ordering::Relaxed);
        while let Ok(command) = ends.commands.try_recv() {
            match command {
                Command::Watch(watched) if watches.len() < WATCHES_MAX => {
                    ends.take(watched.id(), true);
                    watches.push(watched);
                }
                Command::Watch(refused) => {
                    ends.take(refused.id(), false);
                    give_back(ends, refused);
                }
                Command::Unwatch(id) => {
                    if let Some(index) = watches.iter().position(|watched| watched.id() == id) {
                        give_back(ends, watches.swap_remove(index));
                    }
                }
                Command::Stop => return,
            }
        }
        let now = sys::clock::mono_now();
        let mut next: Option<MonoNs> = None;
        let mut index = 0;
        while let Some(watched) = watches.get_mut(index) {
            let due = watched.look(now, ends);
            match due {
                Some(due) => {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    index += 1;
                }
                None => give_back(ends, watches.swap_remove(index)),
            }
        }
        wait(ends, next);
    }
}

/// Returns an ended watch to the guard's owner, which frees its memory. The queue has room for every watch that can exist.
fn give_back(ends: &Ends, watched: Box<Watched>) {
    if let Err(refused) = ends.over.try_send(watched) {
        let (std::sync::mpsc::TrySendError::Full(watched) | std::sync::mpsc::TrySendError::Disconnected(watched)) =
            refused;
        // The owner is gone or has not emptied the queue for hundreds of watches. Leaking is safer than freeing on this
        // thread.
        Box::leak(watched);
    }
}

/// Sleeps until `next` (forever if `None`) or until a command arrives.
fn wait(ends: &Ends, next: Option<MonoNs>) {
    let left = next.map(|next| (next - sys::clock::mono_now()).max(DurNs::ZERO));
    let timeout =
        left.map(|left| rustix::time::Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 });
    let mut fds = [PollFd::new(&*ends.wake_guard, PollFlags::IN)];
    // An interrupted wait only causes an early check.
    if poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&*ends.wake_guard, &mut count);
    }
}

impl Ends {
    pub(super) fn event(&self, at: MonoNs, watch: WatchId, pid: i32, tid: i32, what: EventKind) {
        self.tell(GuardEvent { at, watch, pid, tid, what });
    }
}
