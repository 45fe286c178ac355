//! Alarms of PVAccess channels, from a thread with its own client.

use crate::serve::{moment, number};
use alarm::{ChannelUse, Severity, Update};
use base::{DurNs, Stamp};
use canet::Waker;
use pva::client::{Action, ChannelId, Client, Event, OpId};
use pva::codec::Mask;
use pva::nt::Parts;
use pva::request::Request;
use pvanet::session::Session;
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use sys::rounds::Rounds;

/// Maximum number of changes that wait for the server; the thread waits while there are that many.
pub(crate) const CHANGES_MAX: usize = 1_024;
/// Interval between looks at the channels that are not connected.
const LOOK_EVERY: DurNs = DurNs::from_secs(1);
/// A thread that finishes no round of its loop for longer than this hangs.
const HANGS_AFTER: DurNs = DurNs::from_secs(15);

/// A change of a channel, or of the connections.
pub(crate) enum Change {
    Updated(ChannelUse, Update),
    Disconnected(ChannelUse),
    /// The channels that are not connected, as [`Client::unconnected`] names them.
    Unconnected(String),
    /// The kernel's error that ended the thread.
    Ended(io::Error),
}

struct Channel {
    id: ChannelId,
    user: ChannelUse,
    /// The parts of its type and the names of its states, from the first update after a connection on.
    known: Option<(Parts, Vec<String>)>,
}

/// Monitors channels, given with their names without `pva://`. `bell` is rung after each change. Returns invalid values in the
/// environment, too.
///
/// # Errors
/// If the socket cannot be opened or the thread cannot be started.
pub(crate) fn watch(
    channels: &[(ChannelUse, String)],
    bell: Waker,
) -> io::Result<(Receiver<Change>, Vec<canet::config::Complaint>)> {
    let mut session = Session::open(|name| std::env::var(name).ok())?;
    let complaints = std::mem::take(&mut session.complaints);
    let mut open = HashMap::new();
    for (user, name) in channels {
        let id = session.client.channel(Session::now(), name);
        let op = session.client.start(id, Action::Monitor, &Request::default());
        session.client.renew(op);
        open.insert(op, Channel { id, user: *user, known: None });
    }
    let (send, changes) = sync_channel(CHANGES_MAX);
    let rounds = Rounds::watch("pvaccess", HANGS_AFTER);
    std::thread::Builder::new().name("pvaccess".into()).spawn(move || {
        if let Err(error) = follow(&mut session, &mut open, (&send, &bell), &rounds) {
            let _ = send.send(Change::Ended(error));
            bell.wake();
        }
    })?;
    Ok((changes, complaints))
}

/// Sends changes until the server has ended.
fn follow(
    session: &mut Session,
    channels: &mut HashMap<OpId, Channel>,
    (send, bell): (&SyncSender<Change>, &Waker),
    rounds: &Rounds,
) -> io::Result<()> {
    let (mut look, mut unconnected) = (Session::now(), String::new());
    loop {
        rounds.count();
        let mut changes = Vec::new();
        if let Some(event) = session.step(look)? {
            change(&session.client, channels, event, &mut changes);
        }
        if Session::now() >= look {
            look = Session::now() + LOOK_EVERY;
            let text = session.client.unconnected();
            if text != unconnected {
                unconnected.clone_from(&text);
                changes.push(Change::Unconnected(text));
            }
        }
        for change in changes {
            if send.send(change).is_err() {
                return Ok(());
            }
            bell.wake();
        }
    }
}

/// Handles an event.
fn change(client: &Client, channels: &mut HashMap<OpId, Channel>, event: Event, changes: &mut Vec<Change>) {
    match event {
        Event::Value { op, changed, .. } => {
            let Some(channel) = channels.get_mut(&op) else { return };
            changes.extend(channel.value(client, op, &changed).map(|update| Change::Updated(channel.user, update)));
        }
        Event::Disconnected(id) => {
            for channel in channels.values_mut().filter(|channel| channel.id == id) {
                channel.known = None;
                changes.push(Change::Disconnected(channel.user));
            }
        }
        Event::Failed(op, status) => {
            let Some(channel) = channels.get_mut(&op) else { return };
            channel.known = None;
            let moment = moment(Severity::Undefined, &status.message, None, &[], Stamp::EPOCH);
            changes.push(Change::Updated(channel.user, Update { moment, number: None }));
        }
        Event::Done(op) => {
            let Some(channel) = channels.get_mut(&op) else { return };
            channel.known = None;
            changes.push(Change::Disconnected(channel.user));
        }
        _ => {}
    }
}

impl Channel {
    /// Handles a received value. Returns the update, if it is one.
    fn value(&mut self, client: &Client, op: OpId, changed: &Mask) -> Option<Update> {
        let (ty, value) = (client.ty(op)?, client.value(op)?);
        let known = self.known.take();
        let is_new = known.is_none();
        let (parts, mut labels) = known.or_else(|| Some((Parts::of(ty, "")?, Vec::new())))?;
        if is_new || parts.properties_are_in(changed, ty) {
            labels = parts.meta(value).labels.iter().map(|label| label.readable().into_owned()).collect();
        }
        let is_update = is_new || parts.is_update(changed, ty);
        let update = is_update.then(|| update(&parts, value, &labels));
        self.known = Some((parts, labels));
        update
    }
}

fn update(parts: &Parts, value: &pva::codec::Value, labels: &[String]) -> Update {
    let severity = Severity::of(parts.severity(value));
    let message = match parts.cause(value).1 {
        _ if severity == Severity::Ok => severity.name(),
        "" => parts.status(value).name(),
        message => message,
    };
    let scalar = parts.value(value).and_then(|value| value.get(0));
    let moment = moment(severity, message, scalar, labels, parts.stamp(value).unwrap_or(Stamp::EPOCH));
    Update { moment, number: scalar.and_then(number) }
}
