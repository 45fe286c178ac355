//! Accounting of queues shared by several users: a manager's, or the one to the server's control thread.

use super::CONTROL_WORDS;
use crate::memory::ROOM_WORDS;
use msg::{Excess, HEADER_WORDS, Share};
use ring::{StreamWriter, Words};
use std::collections::VecDeque;

/// Owner of each message in a queue, so that no single user can fill it.
///
/// The reader does not report which messages it has taken. If needed, this follows from the free space.
pub(crate) struct Queued {
    share: Share,
    /// User and words of each message, the oldest first. Has capacity for as many messages as the queue can hold.
    waiting: VecDeque<(u32, u32)>,
    /// Sum of their words.
    words: u64,
}

impl Queued {
    fn new(what: &'static str, room: usize) -> Self {
        let remedy = "take replies first, or send less at once";
        let share = Share { what, all: room as u64 * 8, remedy };
        // A message has at least a header and its length word.
        Self { share, waiting: VecDeque::with_capacity(room / HEADER_WORDS), words: 0 }
    }

    pub(crate) fn of_manager() -> Self {
        Self::new("bytes of its queue", ROOM_WORDS)
    }

    pub(crate) fn of_control() -> Self {
        Self::new("bytes of its own queue", CONTROL_WORDS)
    }

    /// For a client's queue, which holds only replies to its own requests.
    pub(crate) fn of_no_manager() -> Self {
        Self::new("", 0)
    }

    /// Puts a user's message into the queue `to`, which must be the same on every call. `Err(None)`: the queue is full;
    /// `Err(Some)`: the user exceeds its share.
    ///
    /// Real-time: does not allocate. If the queue may be more than half full, checks each queued message.
    pub(crate) fn push<W: AsRef<Words>>(
        &mut self,
        user: u32,
        to: &mut StreamWriter<W>,
        parts: &[&[u64]],
        is_ours: impl Fn(u32) -> bool,
    ) -> Result<(), Option<Excess>> {
        let words = 1 + parts.iter().map(|part| part.len()).sum::<usize>() as u64;
        if !self.share.is_plenty(self.words * 8, words * 8) {
            let room = to.stream().room();
            // The reader detects damage.
            let free = to.free(room).unwrap_or(0);
            self.forget_all_but((room - free) as u64);
            let waiting = self.waiting.iter().map(|(user, words)| (*user, u64::from(*words) * 8));
            self.share.admit(waiting, user, words * 8, is_ours)?;
        }
        if !to.push_or_refuse(parts) {
            return Err(None);
        }
        self.waiting.push_back((user, words as u32));
        self.words += words;
        Ok(())
    }

    /// Drops the oldest entries, which the reader has taken, until `left` words remain.
    fn forget_all_but(&mut self, left: u64) {
        while self.words > left {
            let Some((_, words)) = self.waiting.pop_front() else { break };
            self.words -= u64::from(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Stream;

    #[test]
    fn one_user_fills_half_of_a_queue_and_read_messages_free_their_room() {
        let words = crate::memory::inside(CONTROL_WORDS);
        let mut to = Stream::format(words.clone()).unwrap().writer();
        let mut from = Stream::attach(words).unwrap().reader();
        let mut queued = Queued::of_control();
        let message = [7; 1023];
        let mut push = |user, queued: &mut Queued| queued.push(user, &mut to, &[&message], |user| user == 0);
        for _ in 0..32 {
            push(7, &mut queued).unwrap();
        }
        let why = push(7, &mut queued).unwrap_err().unwrap().to_string();
        let said =
            "user 7 has 262144 of 524288 bytes of its own queue and 8192 more are requested, expected at most 262144";
        assert!(why.starts_with(said), "{why}");
        (0..16).for_each(|_| push(8, &mut queued).unwrap());
        assert!(push(9, &mut queued).unwrap_err().is_some(), "three quarters are for foreign users");
        (0..16).for_each(|_| push(0, &mut queued).unwrap());
        assert_eq!(push(0, &mut queued).unwrap_err().map(|_| ()), Some(()), "all slots are used");
        // The reader takes the first user's messages first.
        let mut room = [0; 1023];
        from.pop(&mut room).unwrap();
        push(9, &mut queued).unwrap();
        assert!(push(9, &mut queued).unwrap_err().is_some());
        while from.pop(&mut room).unwrap().is_some() {}
        for _ in 0..32 {
            push(7, &mut queued).unwrap();
        }
        assert!(push(7, &mut queued).unwrap_err().is_some());
        let capacity = queued.waiting.capacity();
        assert!(capacity >= queued.waiting.len() && capacity < CONTROL_WORDS, "it does not grow");
    }

    #[test]
    fn all_messages_of_a_full_queue_are_tracked_without_allocation() {
        let words = crate::memory::inside(ROOM_WORDS);
        let mut to = Stream::format(words).unwrap().writer();
        let mut queued = Queued::of_manager();
        let capacity = queued.waiting.capacity();
        let mut user = 0;
        // Root and three other users together fill the whole queue.
        while user < 4 {
            match queued.push(user, &mut to, &[&[0; HEADER_WORDS]], |user| user == 0) {
                Ok(()) => {}
                Err(_) => user += 1,
            }
        }
        assert_eq!(queued.waiting.capacity(), capacity);
        assert!(queued.waiting.len() > ROOM_WORDS / (HEADER_WORDS + 1) - 2, "{}", queued.waiting.len());
    }
}
