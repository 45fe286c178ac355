//! Access to the engine from other threads.

use super::Engine;
use canet::Waker;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A function to be run on the engine thread.
pub(super) type Mail = Box<dyn FnOnce(&mut Engine) + Send>;

/// Sends work to the engine from other threads.
#[derive(Clone)]
pub struct Mailbox {
    pub(super) sender: SyncSender<Mail>,
    pub(super) finished: SyncSender<db::Token>,
    pub(super) waker: Waker,
}

impl Mailbox {
    /// Runs `work` on the engine thread and waits for its result; `None` if the engine has ended.
    pub fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Engine) -> T + Send + 'static) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        let mail: Mail = Box::new(move |engine| {
            // If the caller has gone, the answer is not needed.
            let _ = reply.send(work(engine));
        });
        self.sender.send(mail).ok()?;
        self.waker.wake();
        answer.recv().ok()
    }

    /// Queues `work` for the engine thread. Waits only while the mailbox is full. Returns whether the engine exists.
    pub fn tell(&self, work: impl FnOnce(&mut Engine) + Send + 'static) -> bool {
        let sent = self.sender.send(Box::new(work)).is_ok();
        self.waker.wake();
        sent
    }

    /// Reports the end of a deferred function call. Neither blocks nor allocates. Returns whether there was room.
    #[must_use]
    pub fn finish_or_refuse(&self, token: db::Token) -> bool {
        let sent = self.finished.try_send(token).is_ok();
        self.waker.wake();
        sent
    }

    /// Writes texts to those of the channels that exist, each on its owner's thread. Does nothing if the IOC has ended.
    pub(crate) fn put_texts(&self, puts: Vec<(String, String)>) {
        let _ = self.ask(move |engine| {
            for (name, text) in puts {
                let own = name.clone();
                engine.call(
                    &name,
                    Box::new(move |db, now| {
                        if let Ok(channel) = db.find(&own) {
                            let _ = db.put_text(&channel, &text, now);
                        }
                    }),
                );
            }
        });
    }
}
