//! Sends notifications, as the crate `alarm` decides. Each destination has a thread, so that a silent server delays neither alarms
//! nor other destinations.

mod body;
mod connection;
mod http;
mod smtp;

use alarm::notify::{Batch, Delivery, Notifier};
use alarm::wire::Row;
use alarm::{Config, Destination, Now, Panel, Target};
use base::DurNs;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use sys::rounds::{ROUND, Rounds};

/// A thread that finishes no round of its loop for longer than this hangs. To look up the name of a server may take half a minute,
/// a delivery takes up to 10 s.
const HANGS_AFTER: DurNs = DurNs::from_secs(60);

/// Notifications of all destinations.
#[derive(Debug)]
pub(crate) struct Notify {
    notifier: Notifier,
    /// The threads. Each gets its next batch after the result of the last one.
    threads: Vec<SyncSender<Batch>>,
    results: Receiver<(usize, Delivery)>,
}

/// A destination that needs TLS, if this build has none.
pub(crate) fn unavailable(config: &Config) -> Option<&Destination> {
    config.notify.iter().find(|destination| destination.to.server().is_secure && !cfg!(feature = "tls"))
}

impl Notify {
    /// Starts the threads, which end with the process.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(config: &Config, panel: &Panel, now: Now) -> io::Result<Self> {
        let (results, received) = channel();
        let mut threads = Vec::new();
        for (number, destination) in config.notify.iter().enumerate() {
            let (send, batches) = sync_channel(1);
            let (destination, set, results) = (destination.clone(), config.name.clone(), results.clone());
            let name = format!("notify-{number}");
            let rounds = Rounds::watch(&name, HANGS_AFTER);
            let run =
                move || follow(&destination, &set, &batches, &rounds, |result| results.send((number, result)).is_ok());
            std::thread::Builder::new().name(name).spawn(run)?;
            threads.push(send);
        }
        let mut notify = Self { notifier: Notifier::new(&config.notify, now), threads, results: received };
        panel.rows(&[], false).for_each(|row| notify.observe(&row, panel, now));
        Ok(notify)
    }

    /// Handles the state of an alarm.
    pub(crate) fn observe(&mut self, row: &Row, panel: &Panel, now: Now) {
        self.notifier.observe(row, panel.is_annunciating(&row.path), now);
    }

    /// Sends what is due. Never waits.
    pub(crate) fn step(&mut self, now: Now, report: &mut dyn FnMut(&str)) {
        for (number, result) in self.results.try_iter() {
            self.notifier.sent(number, result, now);
        }
        for (number, batch) in self.notifier.tick(now) {
            if self.threads[number].try_send(batch).is_err() {
                self.notifier.sent(number, Delivery::Failed("its thread has ended".to_owned(), None), now);
            }
        }
        self.notifier.lines().iter().for_each(|line| report(line));
    }

    /// The destinations that fail; empty if there is none.
    pub(crate) fn faults(&self, now: Now) -> String {
        self.notifier.faults(now)
    }

    /// Reports what is lost at the end.
    pub(crate) fn end(&mut self, report: &mut dyn FnMut(&str)) {
        self.notifier.end().iter().for_each(|line| report(line));
    }
}

/// Sends the batches of a destination. `report` returns whether the server still exists.
fn follow(to: &Destination, set: &str, batches: &Receiver<Batch>, rounds: &Rounds, report: impl Fn(Delivery) -> bool) {
    loop {
        rounds.count();
        match batches.recv_timeout(ROUND) {
            Ok(batch) if report(send(to, set, &batch)) => {}
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sends a batch: one try.
fn send(to: &Destination, set: &str, batch: &Batch) -> Delivery {
    match &to.to {
        Target::Web { authority, path, token_file, .. } => {
            let token = match token_file.as_deref().map(http::token).transpose() {
                Ok(token) => token,
                Err(why) => return Delivery::Failed(why, None),
            };
            let body = body::webhook(set, &to.name, batch);
            let request = http::Request { authority, path, token: token.as_deref(), id: batch.id, body: &body };
            connection::open(to)
                .map_or_else(|why| Delivery::Failed(why, None), |mut open| http::post(&mut *open.stream, &request))
        }
        Target::Mail { to: receivers, from, .. } => {
            let text = body::mail(set, from, receivers, batch);
            let mail = smtp::Mail { from, to: receivers, text: &text };
            connection::open(to).map_or_else(
                |why| Delivery::Failed(why, None),
                |mut open| smtp::send(&mut *open.stream, &open.here, &mail),
            )
        }
    }
}

/// A text from a server, or an error with one: one line of bounded length.
fn clipped(text: &str) -> String {
    text.trim().chars().take(160).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests;
