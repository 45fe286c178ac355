//! Execution of requests to an owner's shard of the database. The code is the same for every owner: it runs immediately if
//! the calling thread owns the shard, and from a ring otherwise.

use crate::job::{JobResult, MemberAction, MemberPart, MemberStep, OwnerRequest};
use base::{EventMask, NumberHash, Scalar, Severity, Str40, Value};
use ca::encode::{Needs, Reading};
use ca::server::{PutOutcome, Write};
use db::{Channel, Db, NotifyState, Now, QueueId, SubId};
use std::collections::HashMap;

/// Subscriptions of clients to a shard, by the number under which posts are sent.
pub(crate) struct Subscriptions {
    /// Queue of the posts.
    pub(crate) queue: QueueId,
    by_key: HashMap<u64, SubId, NumberHash>,
}

impl Subscriptions {
    /// No subscriptions; memory for `room` of them.
    pub(crate) fn new(queue: QueueId, room: usize) -> Self {
        Self { queue, by_key: HashMap::with_capacity_and_hasher(room, NumberHash::default()) }
    }
}

/// Executes a request. Values are read into `reading`, reusing the memory of its value.
pub(crate) fn execute(
    db: &mut Db,
    subs: &mut Subscriptions,
    request: &mut OwnerRequest,
    reading: &mut Reading,
    now: Now,
) -> JobResult {
    match request {
        OwnerRequest::Read { channel, needs } => {
            read(db, channel, *needs, reading);
            return JobResult::Read(Ok(()));
        }
        OwnerRequest::Write { channel, write, notify, log } => {
            if log.is_some() {
                db.get_into(channel, usize::MAX, &mut reading.value);
            }
            let put = write_to(db, channel, write, *notify, now);
            if let Some(log) = log {
                db.get_into(channel, usize::MAX, &mut log.new);
            }
            return JobResult::Write(put);
        }
        OwnerRequest::Members { parts, step } => members(db, parts, *step, now),
        OwnerRequest::Process(record) => db.process_if_passive(*record, now),
        OwnerRequest::Forget(token) => db.cancel_notify(*token),
        OwnerRequest::Watch { channel, key } => {
            let all = EventMask::VALUE | EventMask::LOG | EventMask::ALARM | EventMask::PROPERTY;
            let sub = db.subscribe(subs.queue, channel, all, *key);
            subs.by_key.insert(*key, sub);
        }
        OwnerRequest::Unwatch { key } => {
            if let Some(sub) = subs.by_key.remove(key) {
                db.unsubscribe(sub);
            }
        }
        OwnerRequest::Update { id, value, alarm, stamp } => {
            if let Some(new) = value.take() {
                *value = db.remote_update(*id, new, *alarm, *stamp);
            }
        }
        OwnerRequest::Got { id, value, alarm, stamp } => {
            let new = value.take();
            let ok = new.is_some();
            *value = new.and_then(|new| db.remote_update(*id, new, *alarm, *stamp));
            db.remote_written(*id, ok);
        }
        OwnerRequest::Updates { updates, atomic } => db.remote_updates(updates, *atomic, now),
        OwnerRequest::Meta { id, meta } => db.remote_meta(*id, meta),
        OwnerRequest::Connect { id, connected: true, .. } => db.remote_connect(*id),
        OwnerRequest::Connect { id, connected: false, .. } => db.remote_disconnect(*id),
        OwnerRequest::Written { id, ok } => db.remote_written(*id, *ok),
        OwnerRequest::Signal(signal) => db.take_signal(signal),
        OwnerRequest::Finish(token) => drop(db.finish_function(*token)),
        OwnerRequest::Call(work) => work(db, now),
        // These requests concern the owner's thread and rings, not the database.
        OwnerRequest::Feed(_) | OwnerRequest::Retire | OwnerRequest::Pause(_) | OwnerRequest::Adopt(_) => {}
    }
    JobResult::Nothing
}

/// Reads, checks or writes fields of a group.
pub(crate) fn members(db: &mut Db, parts: &mut [MemberPart], step: MemberStep, now: Now) {
    if step == MemberStep::Read {
        parts.iter_mut().for_each(|part| read(db, &part.channel, part.needs, &mut part.reading));
        return;
    }
    let mut ok = true;
    for part in &mut *parts {
        let checked = match &part.write {
            Some(MemberAction::Value(value)) => db.check_write(&part.channel, value),
            Some(MemberAction::Process { always }) if *always || db.is_passive(part.channel.record) => {
                db.check_write(&part.channel, &PROCESS)
            }
            _ => Ok(()),
        };
        ok &= checked.is_ok();
        part.outcome = checked.map(|()| PutOutcome::Done);
    }
    if ok && step == MemberStep::Write {
        parts.iter_mut().for_each(|part| write_member(db, part, now));
    }
}

/// The value that is written to PROC.
const PROCESS: Value = Value::Scalar(Scalar::U8(1));

fn write_member(db: &mut Db, part: &mut MemberPart, now: Now) {
    let value = match &part.write {
        Some(MemberAction::Value(value)) => value,
        Some(MemberAction::Process { always }) if *always || db.is_passive(part.channel.record) => &PROCESS,
        _ => return,
    };
    if part.log.is_some() {
        db.get_into(&part.channel, usize::MAX, &mut part.reading.value);
    }
    part.outcome = match part.notify {
        None => db.put_with_outcome(&part.channel, value, now).map(|ok| match ok {
            true => PutOutcome::Done,
            false => PutOutcome::Failed,
        }),
        Some(token) => db.put_notify(&part.channel, value, token, now).map(|state| match state {
            NotifyState::Done => PutOutcome::Done,
            NotifyState::Pending => PutOutcome::Later,
        }),
    };
    part.written = part.outcome.is_ok();
    if let Some(log) = &mut part.log {
        db.get_into(&part.channel, usize::MAX, &mut log.new);
    }
}

/// Reads a field with its alarm, stamp and properties.
#[inline]
pub(crate) fn read(db: &mut Db, channel: &Channel, needs: Needs, reading: &mut Reading) {
    db.get_into(channel, usize::MAX, &mut reading.value);
    read_rest(db, channel, needs, reading);
}

/// Reads the data that accompany a field's value: always alarm and stamp, others as `needs` selects.
#[inline]
pub(crate) fn read_rest(db: &mut Db, channel: &Channel, needs: Needs, reading: &mut Reading) {
    let record = channel.record;
    reading.characters = db.characters(channel);
    reading.alarm = db.alarm(record);
    reading.stamp = db.stamp_of(channel).0;
    reading.note = db.annotation(record);
    if needs == Needs::Text {
        db.text_meta(channel, &mut reading.meta);
    }
    if needs == Needs::All {
        let (ackt, acks) = db.acknowledge_state(record);
        reading.ackt = ackt != 0;
        reading.acks = Severity::from_index(acks);
        reading.record_type = Str40::from(db.type_name(record));
        reading.description = db.description(record);
        reading.meta = db.meta(channel);
    }
}

/// Writes a field for a client.
pub(crate) fn write_to(db: &mut Db, channel: &Channel, write: &Write, notify: Option<u64>, now: Now) -> PutOutcome {
    let value = match write {
        Write::Value(value) => value,
        Write::AckT(transient) => {
            db.put_ackt(channel, *transient);
            return PutOutcome::Done;
        }
        Write::AckS(severity) => {
            db.put_acks(channel, *severity);
            return PutOutcome::Done;
        }
    };
    match notify {
        None => match db.put_with_outcome(channel, value, now) {
            Ok(true) => PutOutcome::Done,
            Ok(false) | Err(_) => PutOutcome::Failed,
        },
        Some(token) => match db.put_notify(channel, value, token, now) {
            Ok(NotifyState::Done) => PutOutcome::Done,
            Ok(NotifyState::Pending) => PutOutcome::Later,
            Err(_) => PutOutcome::Failed,
        },
    }
}
