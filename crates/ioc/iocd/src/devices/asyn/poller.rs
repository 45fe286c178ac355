//! The thread that reads the blocks of Modbus ports periodically.

use super::Block;
use crate::engine::now;
use base::MonoNs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::bell::Bell;
use sys::rounds::{ROUND_EVERY, Rounds};

/// Name of the thread.
const NAME: &str = "modbus-poll";

/// All blocks with records, and the thread that starts their readings.
#[derive(Default)]
pub(crate) struct Poller {
    bell: Bell,
    stop: AtomicBool,
    running: AtomicBool,
    blocks: Mutex<Vec<Arc<Block>>>,
}

impl Poller {
    /// Adds a block. Starts the thread with the first.
    pub(super) fn add(self: &Arc<Self>, block: Arc<Block>) {
        // A panic while the lock is held cannot leave the list inconsistent.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        if !self.running.swap(true, Ordering::AcqRel) {
            let (poller, rounds) = (self.clone(), Rounds::watch(NAME, crate::HANGS_AFTER));
            let spawned =
                std::thread::Builder::new().name(NAME.into()).stack_size(128 << 10).spawn(move || poller.run(&rounds));
            if let Err(error) = spawned {
                eprintln!("Modbus ports are not read: no thread: {error}");
            }
        }
        self.ring();
    }

    /// Makes the thread check its blocks.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.ring();
    }

    fn run(&self, rounds: &Rounds) {
        while !self.stop.load(Ordering::Acquire) {
            rounds.count();
            let round = now().mono + ROUND_EVERY;
            let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let next = blocks.iter().filter_map(|block| block.poll_if_due(now().mono)).fold(round, MonoNs::min);
            drop(blocks);
            self.bell.wait(Some(next));
        }
    }
}
