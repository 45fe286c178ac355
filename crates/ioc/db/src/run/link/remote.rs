//! Links over channels. The database stores the newest value of each link. The shell connects those to other IOCs or owners;
//! those to this database are served [here](super::here).

use crate::model::id::RecId;
use crate::model::link::{CA, CP, CPP, LinkKind, MS_BITS, ResolvedLink};
use crate::model::pva_link::PvaLink;
use crate::model::values::array_of;
use crate::rec::message::Message;
use crate::run::callback::Callback;
use crate::run::channel::Channel;
use crate::run::device::Device;
use crate::run::engine::{Db, Now};
use crate::run::link::LinkError;
use crate::run::link::here::Chore;
use crate::run::scan::IO_INTR;
use crate::text::conv::{self, Number};
use base::{Alarm, Array, FieldType, Meta, Scalar, Stamp, Status, Str40, Value};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of a remote link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteId(pub u32);

/// Request of a remote link to the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum RemoteRequest {
    /// Connect to a process variable.
    Connect {
        /// Number of the link.
        id: RemoteId,
        /// Name of the process variable.
        name: String,
        /// Whether values must be monitored (input links).
        monitor: bool,
        /// Options of a link over PVAccess; `None` for Channel Access.
        pva: Option<Arc<PvaLink>>,
    },
    /// Write a value.
    Put {
        /// Number of the link.
        id: RemoteId,
        /// The value.
        value: Value,
        /// Whether [`Db::remote_written`] must report completion.
        notify: bool,
    },
    /// Read the present value. [`Db::remote_update`] must report it, then [`Db::remote_written`] the end.
    Get {
        /// Number of the link.
        id: RemoteId,
    },
    /// Process the target of a forward link to a record (not to a PROC field), if the record belongs to this IOC, or over
    /// PVAccess. Over Channel Access such a link does nothing, as in C.
    Process {
        /// Number of the link.
        id: RemoteId,
    },
    /// Disconnect a removed link.
    Disconnect {
        /// Number of the link.
        id: RemoteId,
    },
}

/// A new value of a link over PVAccess.
#[derive(Debug)]
pub struct RemoteUpdate {
    /// Number of the link.
    pub id: RemoteId,
    /// The value. [`Db::remote_updates`] replaces it by the previous one.
    pub value: Option<Value>,
    /// Severity of the source.
    pub alarm: Alarm,
    /// Time stamp of the source.
    pub stamp: Stamp,
    /// User tag of the source.
    pub tag: u64,
}

struct Remote {
    /// Number of the link that has this entry.
    id: u32,
    holder: RecId,
    flags: u8,
    name: Box<str>,
    /// Options of a link over PVAccess.
    pva: Option<Arc<PvaLink>>,
    /// Target, if it is in this database.
    source: Option<Box<Channel>>,
    disconnects: u32,
    value: Option<Value>,
    alarm: Alarm,
    stamp: Stamp,
    tag: u64,
    /// Properties at connection time; `None` for a text.
    meta: Option<Box<Meta>>,
    connected: bool,
    alive: bool,
    /// Whether the holder waits for completion of a write.
    waiting: bool,
}

/// All remote links.
///
/// The low bits of a link's number are its entry, the high ones count how often the entry was reused. So what the shell still
/// reports about a removed link does not reach the link that has its entry now.
#[derive(Default)]
pub(crate) struct Remotes {
    links: Vec<Remote>,
    /// Entries of removed links, the oldest first.
    free: VecDeque<u32>,
    requests: VecDeque<RemoteRequest>,
    /// Deferred operations of links to this database.
    pub(crate) chores: VecDeque<Chore>,
    /// Writes lost because the queue was full.
    pub(crate) lost: u64,
}

/// Maximum number of requests waiting for the shell.
const REQUEST_LIMIT: usize = 100_000;
/// Maximum number of entries; the part of a link's number that is not its entry counts in steps of this.
const ENTRIES: u32 = 1 << 24;
/// Number of entries of removed links that are kept before the oldest is reused.
const FREE_MAX: usize = 64;
/// Number of a link for which there is no entry. It never connects.
const NONE: u32 = u32::MAX;

/// Whether a forward link's target is a PROC field, by the rule of C.
pub(crate) fn names_proc(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, field)| field.contains("PROC"))
}

impl Remotes {
    #[inline]
    fn at(&self, id: u32) -> Option<&Remote> {
        self.links.get((id % ENTRIES) as usize).filter(|link| link.id == id && link.alive)
    }

    #[inline]
    fn at_mut(&mut self, id: u32) -> Option<&mut Remote> {
        self.links.get_mut((id % ENTRIES) as usize).filter(|link| link.id == id && link.alive)
    }

    pub(crate) fn stamp(&self, id: u32) -> Option<Stamp> {
        self.at(id).filter(|link| link.connected).map(|link| link.stamp)
    }

    pub(crate) fn value(&self, id: u32) -> Option<&Value> {
        self.at(id).filter(|link| link.connected)?.value.as_ref()
    }

    pub(crate) fn meta(&self, id: u32) -> Option<&Meta> {
        self.at(id).filter(|link| link.connected)?.meta.as_deref()
    }

    /// Preallocates the queues for the writes of a pass.
    pub(crate) fn reserve(&mut self) {
        self.requests.reserve(self.links.len() + 64);
        self.chores.reserve(self.links.len() + 64);
    }

    /// Adds a link and returns its number. `source` is its target, if that is in this database.
    pub(crate) fn add(&mut self, holder: RecId, flags: u8, name: &str, monitor: bool, source: Option<Channel>) -> u32 {
        let id = self.push(holder, flags, name, None, source);
        if id == NONE {
            return id;
        }
        if self.source(id).is_some() {
            self.chores.push_back(Chore::Connect { id: RemoteId(id), monitor });
        } else {
            let name = name.to_owned();
            self.requests.push_back(RemoteRequest::Connect { id: RemoteId(id), name, monitor, pva: None });
        }
        id
    }

    /// Adds a link over PVAccess and returns its number.
    pub(crate) fn add_pva(&mut self, holder: RecId, flags: u8, link: PvaLink, monitor: bool) -> u32 {
        let link = Arc::new(link);
        let id = self.push(holder, flags, &link.pv, Some(Arc::clone(&link)), None);
        if id == NONE {
            return id;
        }
        let name = link.pv.clone();
        self.requests.push_back(RemoteRequest::Connect { id: RemoteId(id), name, monitor, pva: Some(link) });
        id
    }

    fn push(
        &mut self,
        holder: RecId,
        flags: u8,
        name: &str,
        pva: Option<Arc<PvaLink>>,
        source: Option<Channel>,
    ) -> u32 {
        let reused = if self.free.len() > FREE_MAX { self.free.pop_front() } else { None };
        let id = match reused {
            Some(entry) => self.links[entry as usize].id.wrapping_add(ENTRIES),
            None if self.links.len() as u32 >= ENTRIES - 1 => return NONE,
            None => self.links.len() as u32,
        };
        let link = Remote {
            id,
            holder,
            flags,
            name: name.into(),
            pva,
            source: source.map(Box::new),
            disconnects: 0,
            value: None,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            tag: 0,
            meta: None,
            connected: false,
            alive: true,
            waiting: false,
        };
        match reused {
            Some(entry) => self.links[entry as usize] = link,
            None => self.links.push(link),
        }
        id
    }

    /// User tag of a link over PVAccess.
    pub(crate) fn tag(&self, id: u32) -> Option<u64> {
        self.at(id).filter(|link| link.connected && link.pva.is_some()).map(|link| link.tag)
    }

    /// Options of a link over PVAccess.
    pub(crate) fn pva(&self, id: u32) -> Option<&Arc<PvaLink>> {
        self.at(id)?.pva.as_ref()
    }

    /// Removes a link. Returns its target, if that is in this database.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Channel>> {
        let link = self.at_mut(id)?;
        link.alive = false;
        link.connected = false;
        (link.name, link.pva, link.value, link.meta) = (Box::default(), None, None, None);
        let source = link.source.take();
        self.free.push_back(id % ENTRIES);
        if source.is_none() {
            self.requests.push_back(RemoteRequest::Disconnect { id: RemoteId(id) });
        }
        source
    }

    /// Target of a link, if it is in this database.
    pub(crate) fn source(&self, id: u32) -> Option<&Channel> {
        self.at(id)?.source.as_deref()
    }

    /// Whether a link is connected.
    pub(crate) fn is_connected(&self, id: u32) -> bool {
        self.at(id).is_some_and(|link| link.connected)
    }

    /// Takes the newest value out, so that its memory can be refilled.
    pub(crate) fn take_value(&mut self, id: u32) -> Option<Value> {
        self.at_mut(id)?.value.take()
    }
}

impl Db {
    /// Removes and returns the oldest request to the shell. Does not allocate.
    pub fn next_remote(&mut self) -> Option<RemoteRequest> {
        self.links.remotes.requests.pop_front()
    }

    /// Whether there are requests to the shell.
    #[must_use]
    pub fn asks_elsewhere(&self) -> bool {
        !self.links.remotes.requests.is_empty()
    }

    /// State of a remote link for reports: name, whether it is connected, number of disconnects.
    pub(crate) fn remote_state(&self, id: u32) -> Option<(&str, bool, u32)> {
        let link = self.links.remotes.at(id)?;
        Some((&link.name, link.connected, link.disconnects))
    }

    /// Writes to remote links lost because the queue was full.
    #[must_use]
    pub fn remote_lost(&self) -> u64 {
        self.links.remotes.lost
    }

    /// Called when a remote process variable connects, or its value or alarm changes. CP and CPP links process their holder
    /// soon. Returns the previous value, so that it is not freed on a real-time thread.
    pub fn remote_update(&mut self, id: RemoteId, value: Value, alarm: Alarm, stamp: Stamp) -> Option<Value> {
        let link = self.links.remotes.at_mut(id.0)?;
        let before = link.value.replace(value);
        link.alarm = alarm;
        link.stamp = stamp;
        if self.remote_is_due(id) {
            self.scan_holder(id);
        }
        before
    }

    /// New values of links over PVAccess to one channel, in the order in which their holders are processed. With `atomic`
    /// the holders of CP and CPP links are processed now, after all links have their values. The previous values are
    /// returned in the updates, so that they are not freed on a real-time thread.
    pub fn remote_updates(&mut self, updates: &mut [RemoteUpdate], atomic: bool, now: Now) {
        self.time.now = now;
        for update in &mut *updates {
            let Some(link) = self.links.remotes.at_mut(update.id.0) else {
                continue;
            };
            std::mem::swap(&mut link.value, &mut update.value);
            (link.alarm, link.stamp, link.tag) = (update.alarm, update.stamp, update.tag);
        }
        for update in updates {
            if !self.remote_is_due(update.id) {
                continue;
            }
            let Some(holder) = self.links.remotes.at(update.id.0).map(|link| link.holder) else { continue };
            if atomic {
                self.run(holder);
            } else {
                self.scan_once(holder);
            }
        }
        self.restart_notifies(now);
    }

    fn scan_holder(&mut self, id: RemoteId) {
        if let Some(holder) = self.links.remotes.at(id.0).map(|link| link.holder) {
            self.scan_once(holder);
        }
    }

    /// Called after a link's new value: connects it, and returns whether it processes its holder.
    fn remote_is_due(&mut self, id: RemoteId) -> bool {
        let Some(link) = self.links.remotes.at_mut(id.0) else {
            return false;
        };
        let fresh = !std::mem::replace(&mut link.connected, true);
        let (holder, flags) = (link.holder, link.flags);
        if fresh {
            crate::rec::connection_changed(self, holder);
        }
        if flags & CP != 0 || (flags & CPP != 0 && self.records[holder].scan == 0) {
            return true;
        }
        if self.records[holder].scan == IO_INTR
            && self.records.processes_for(holder, id.0)
            && let Some(source) = self.scans.source_of(holder)
        {
            self.interrupt(source);
        }
        false
    }

    /// Swaps in new units, limits and labels of a remote process variable. The old ones are returned in `meta`, so that they
    /// are not freed on a real-time thread. A text has none, as for links in C.
    pub fn remote_meta(&mut self, id: RemoteId, meta: &mut Option<Box<Meta>>) {
        if let Some(link) = self.links.remotes.at_mut(id.0) {
            std::mem::swap(&mut link.meta, meta);
        }
    }

    /// Called when a remote process variable can be written (output links get no values).
    pub fn remote_connect(&mut self, id: RemoteId) {
        let Some(link) = self.links.remotes.at_mut(id.0) else { return };
        link.connected = true;
        let holder = link.holder;
        crate::rec::connection_changed(self, holder);
    }

    /// Called when a remote process variable disconnects. Reads through the link then raise LINK alarms. CP links process
    /// their holder, CPP links only a passive one.
    pub fn remote_disconnect(&mut self, id: RemoteId) {
        let Some(link) = self.links.remotes.at_mut(id.0) else { return };
        link.disconnects += u32::from(link.connected);
        link.connected = false;
        link.value = None;
        link.stamp = self.time.now.wall;
        let (holder, flags) = (link.holder, link.flags);
        crate::rec::connection_changed(self, holder);
        self.remote_written(id, false);
        if flags & CP != 0 || (flags & CPP != 0 && self.records[holder].scan == 0) {
            self.scan_once(holder);
        }
    }

    /// Called when a write with completion has ended (`ok` is false if it failed). The record that waited for it continues.
    pub fn remote_written(&mut self, id: RemoteId, ok: bool) {
        let Some(link) = self.links.remotes.at_mut(id.0).filter(|link| link.waiting) else { return };
        link.waiting = false;
        let holder = link.holder;
        if !ok {
            self.records[holder].raise(Status::Link, 3);
        }
        self.call_back(holder, Callback::Resume);
    }

    /// Writes a record's output. Returns whether the record must wait for completion (Async Soft Channel over a remote link).
    /// `real` is false for a simulated output. `resumed` is set if the write has completed.
    #[inline]
    pub(crate) fn write_out(
        &mut self,
        rec: RecId,
        link: ResolvedLink,
        value: Scalar,
        real: bool,
        resumed: bool,
    ) -> bool {
        // An output without a target is common: a setpoint that other records read.
        if link.kind == LinkKind::Constant || self.out_has_ended(rec, link, real, resumed) {
            self.pass.failed = false;
            return false;
        }
        // A failed write raises the alarm itself.
        self.pass.failed = self.put_link(rec, link, value).is_err() && !(real && self.hides_failed_write(rec));
        self.out_is_pending(rec, link, real)
    }

    /// Whether a failed write is hidden from the link that processed the record.
    #[cold]
    fn hides_failed_write(&self, rec: RecId) -> bool {
        crate::rec::hides_failed_write(self.records[rec].kind())
            && matches!(self.device(rec), Device::Soft | Device::SoftRaw)
    }

    /// Whether the record was resumed because its write has completed.
    pub(crate) fn out_has_ended(&mut self, rec: RecId, link: ResolvedLink, real: bool, resumed: bool) -> bool {
        let ended = resumed && self.awaits_end(rec, link, real);
        if ended {
            self.pass.failed = false;
        }
        ended
    }

    /// Whether a record must wait for completion of the write that it just requested.
    pub(crate) fn out_is_pending(&mut self, rec: RecId, link: ResolvedLink, real: bool) -> bool {
        !self.pass.failed && self.awaits_end(rec, link, real) && self.wait_for_last_put(link.target)
    }

    /// Writes through a link over a channel with completion, which resumes the record. Returns whether it will be reported.
    pub(crate) fn put_and_wait(&mut self, rec: RecId, link: ResolvedLink, value: Value) -> Result<bool, LinkError> {
        self.remote_put(rec, link, value)?;
        Ok(self.wait_for_last_put(link.target))
    }

    /// Requests the present value of a process variable of another IOC or owner, whose monitor may be behind. Its arrival
    /// resumes the record like the end of a write. Returns whether it was requested.
    pub(crate) fn get_and_wait(&mut self, link: ResolvedLink) -> bool {
        let is_full = self.links.remotes.requests.len() >= REQUEST_LIMIT;
        let Some(remote) = self.links.remotes.at_mut(link.target) else { return false };
        let is_elsewhere = link.kind == LinkKind::Remote && remote.source.is_none() && remote.pva.is_none();
        if !is_elsewhere || !remote.connected || remote.waiting || is_full {
            return false;
        }
        remote.waiting = true;
        self.request(RemoteRequest::Get { id: RemoteId(link.target) });
        true
    }

    /// Whether a write through a link over a channel has not completed yet.
    pub(crate) fn is_waiting(&self, link: ResolvedLink) -> bool {
        link.kind == LinkKind::Remote && self.links.remotes.at(link.target).is_some_and(|remote| remote.waiting)
    }

    /// Requests completion of the last write, which must be the link's. Returns `false` if the write was dropped and counted
    /// as lost.
    fn wait_for_last_put(&mut self, link: u32) -> bool {
        match (self.links.remotes.requests.back_mut(), self.links.remotes.chores.back_mut()) {
            (Some(RemoteRequest::Put { id, notify, .. }), _) | (_, Some(Chore::Put { id, notify, .. }))
                if id.0 == link =>
            {
                *notify = true;
            }
            _ => return false,
        }
        self.links.remotes.at_mut(link).is_some_and(|link| {
            link.waiting = true;
            true
        })
    }

    fn awaits_end(&self, rec: RecId, link: ResolvedLink, real: bool) -> bool {
        real && link.kind == LinkKind::Remote && self.device(rec) == Device::SoftAsync
    }

    /// Propagates the severity of a remote link's newest value after a read. A failed read propagates nothing.
    fn remote_inherit(&mut self, rec: RecId, link: ResolvedLink) {
        if link.flags & MS_BITS != 0
            && let Some(remote) = self.links.remotes.at(link.target)
        {
            let alarm = remote.alarm;
            self.inherit(rec, link.flags, alarm.status as u16, alarm.severity as u16);
        }
        self.remote_time(rec, link);
    }

    /// Takes the time stamp of a link over PVAccess with the option `time`: that of its value, or of its disconnection.
    pub(crate) fn remote_time(&mut self, rec: RecId, link: ResolvedLink) {
        if link.kind == LinkKind::Remote
            && let Some(remote) = self.links.remotes.at(link.target)
            && remote.pva.as_ref().is_some_and(|pva| pva.time)
        {
            let common = &mut self.records[rec];
            (common.time, common.utag) = (remote.stamp, remote.tag);
        }
    }

    /// Whether a link is over PVAccess and not connected.
    pub(crate) fn is_lost_pva(&self, link: ResolvedLink) -> bool {
        let remote = self.links.remotes.at(link.target);
        link.kind == LinkKind::Remote && remote.is_some_and(|remote| remote.pva.is_some() && !remote.connected)
    }

    /// First element of a remote link's newest value; `None` for an empty array.
    fn remote_scalar(&self, link: ResolvedLink) -> Option<Scalar> {
        self.links.remotes.value(link.target)?.get(0)
    }

    /// Newest value of a remote link as a number; `None` for a text that is not a number, and for an empty array.
    pub(crate) fn remote_number<T: Number>(&mut self, rec: RecId, link: ResolvedLink) -> Option<T> {
        let number = conv::number(self.remote_scalar(link)?)?;
        self.remote_inherit(rec, link);
        Some(number)
    }

    /// Newest value of a remote link as text: the name of a state, or a number with six digits as in C.
    pub(crate) fn remote_text(&mut self, rec: RecId, link: ResolvedLink) -> Option<Str40> {
        let scalar = self.remote_scalar(link)?;
        self.remote_inherit(rec, link);
        if let (Scalar::Enum(_), Some(source)) = (scalar, self.links.remotes.source(link.target)) {
            let (source, field) = (source.record, source.field);
            return Some(self.text_of(source, field, scalar));
        }
        Some(match scalar {
            Scalar::Enum(index) => {
                let labels = self.links.remotes.meta(link.target).map(|meta| &meta.labels);
                let label = labels.and_then(|labels| labels.get(usize::from(index)).copied());
                label.unwrap_or_else(|| base::text::scalar(Scalar::U16(index), 0))
            }
            other => base::text::scalar(other, 6),
        })
    }

    pub(crate) fn remote_array(
        &mut self,
        rec: RecId,
        link: ResolvedLink,
        kind: FieldType,
        max: usize,
    ) -> Option<Array> {
        let array = array_of(self.links.remotes.value(link.target)?, kind, max, 6)?;
        self.remote_inherit(rec, link);
        Some(array)
    }

    pub(crate) fn remote_put(&mut self, rec: RecId, link: ResolvedLink, value: Value) -> Result<(), LinkError> {
        let remote = self.links.remotes.at(link.target);
        let accepts = remote.is_some_and(|it| it.connected || it.pva.as_ref().is_some_and(|pva| pva.retry));
        if !accepts || !self.fits(link.target, &value) {
            return Err(self.put_link_alarm(rec, link));
        }
        self.request_put(link.target, value);
        Ok(())
    }

    /// Follows a forward link over a channel: writes 1 to the PROC field that it names. A link to another field does nothing,
    /// as in C. A link without CA to a record of another owner processes that record, and so does a link over PVAccess.
    pub(crate) fn remote_forward(&mut self, rec: RecId, link: ResolvedLink) {
        let id = link.target;
        if let Some(pva) = self.links.remotes.pva(id) {
            if pva.retry || self.links.remotes.is_connected(id) {
                self.request(RemoteRequest::Process { id: RemoteId(id) });
            } else {
                self.records[rec].raise_with(Status::Link, 3, Message::DISCONNECTED);
            }
            return;
        }
        let Some(remote) = self.links.remotes.at(id).filter(|remote| remote.connected) else { return };
        if names_proc(&remote.name) {
            self.request_put(id, Value::from(1i16));
        } else if link.flags & CA == 0 {
            self.request(RemoteRequest::Process { id: RemoteId(id) });
        }
    }

    fn request_put(&mut self, id: u32, value: Value) {
        let here = self.links.remotes.source(id).is_some();
        let id = RemoteId(id);
        if !here {
            self.request(RemoteRequest::Put { id, value, notify: false });
        } else if self.links.remotes.chores.len() >= REQUEST_LIMIT {
            self.links.remotes.lost += 1;
        } else {
            self.links.remotes.chores.push_back(Chore::Put { id, value, notify: false });
        }
    }

    /// Maximum number of elements of a link's target if it is in this database, otherwise its current number. `None` if the
    /// link has no value.
    pub(crate) fn channel_elements(&self, link: u32) -> Option<usize> {
        let now = self.links.remotes.value(link)?.len();
        let source = self.links.remotes.source(link);
        Some(source.map_or(now, |source| self.element_count(source.record, source.field).max(now)))
    }

    fn request(&mut self, request: RemoteRequest) {
        if self.links.remotes.requests.len() >= REQUEST_LIMIT {
            self.links.remotes.lost += 1;
            return;
        }
        self.links.remotes.requests.push_back(request);
    }

    /// Releases the resources of a link.
    pub(crate) fn release_link(&mut self, link: ResolvedLink) {
        if link.kind == LinkKind::Remote {
            self.remote_written(RemoteId(link.target), false);
        }
        if let Some(source) = self.links.release(link) {
            self.end_watch(source.record, link.target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES, FREE_MAX, RemoteId, RemoteRequest};
    use crate::Db;
    use crate::rec::test_kit::{number, put, started};
    use base::{Alarm, Stamp, Value};
    use std::collections::HashSet;

    /// Links that the shell is asked to connect.
    fn asked(db: &mut Db) -> Vec<RemoteId> {
        let requests = std::iter::from_fn(|| db.next_remote());
        requests
            .filter_map(|request| match request {
                RemoteRequest::Connect { id, .. } => Some(id),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn links_that_are_replaced_do_not_accumulate() {
        let mut db = started(
            "record(calc, \"c\") { field(INPA, \"x CA\") field(CALC, \"A\") } record(ao, \"x\") { field(VAL, \"5\") }",
        );
        let mut ids = HashSet::new();
        for _ in 0..500 {
            put(&mut db, "c.INPA", "elsewhere");
            assert!(asked(&mut db).into_iter().all(|id| ids.insert(id)));
            put(&mut db, "c.INPA", "x CA");
        }
        assert_eq!(ids.len(), 500);
        assert!(db.links.remotes.links.len() <= FREE_MAX + 3, "{}", db.links.remotes.links.len());
        put(&mut db, "c.PROC", 1);
        assert_eq!(number(&mut db, "c"), 5.0);
    }

    #[test]
    fn a_late_report_about_a_removed_link_does_not_reach_its_successor() {
        let mut db = started("record(calc, \"c\") { field(INPA, \"first\") field(CALC, \"A\") }");
        let first = asked(&mut db)[0];
        let mut next = (0..1_000).map(|turn| {
            put(&mut db, "c.INPA", format!("next{turn}").as_str());
            asked(&mut db)[0]
        });
        let last = next.find(|id| id.0 % ENTRIES == first.0 % ENTRIES).unwrap();
        assert_ne!(first, last);
        db.remote_update(first, Value::from(3.0), Alarm::NONE, Stamp::EPOCH);
        assert_eq!(db.links.remotes.value(last.0), None);
        db.remote_update(last, Value::from(4.0), Alarm::NONE, Stamp::EPOCH);
        put(&mut db, "c.PROC", 1);
        assert_eq!(number(&mut db, "c"), 4.0);
    }
}
