//! Start of a loaded database (iocInit), and link changes at run time.

use crate::model::id::RecId;
use crate::model::link::{self, CA, CP, CPP, IS_TIME, Link, LinkField, LinkKind, LinkText, ResolvedLink};
use crate::model::slot::Slot;
use crate::run::channel::Channel;
use crate::run::device;
use crate::run::engine::{Db, Now};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Status};

/// Choices of `PINI`: when a record is processed during start.
const PINI_YES: u16 = 1;
const PINI_RUN: u16 = 2;
const PINI_RUNNING: u16 = 3;

impl Db {
    /// Resolves links, initialises all records, processes those with PINI, and fills the scan lists.
    ///
    /// Can be called again after loading more records. Only the new records are initialised then.
    pub fn init(&mut self, now: Now) {
        self.time.now = now;
        crate::rec::message::prepare();
        let end = self.records.common.end();
        let first = std::mem::replace(&mut self.start.first_new, end);
        let pending = std::mem::take(&mut self.links.pending);
        for item in &pending.links {
            if !self.records[item.rec].removed {
                self.set_link(item.rec, item.field, pending.text_of(item));
            }
        }
        drop(pending);
        for rec in first.to(end) {
            if self.records[rec].removed || self.records[rec].is_remote {
                continue;
            }
            let common = &mut self.records[rec];
            if common.udf != 0 && common.stat == Status::Udf as u16 {
                common.sevr = common.udfs;
            }
            self.records[rec].device = device::choose(self, rec);
            crate::rec::init(self, rec);
        }
        self.tell_unstamped(first);
        self.restore_now();
        // Done before any record is processed, as in C: links can process a record that becomes Passive.
        for rec in first.to(end) {
            if !self.records[rec].removed && !self.records[rec].is_remote {
                self.refuse_interrupts(rec);
            }
        }
        // Each record can be active at most once.
        self.pass.active.reserve(self.records.common.len() + 16);
        let added = self.start.running;
        for pini in [PINI_YES, PINI_RUN] {
            self.process_at_start(first, pini);
        }
        if added {
            for rec in first.to(end) {
                let common = &self.records[rec];
                if !common.removed && !common.is_remote {
                    self.scan_add(rec);
                }
            }
        } else {
            self.start.running = true;
            self.fill_scans();
        }
        self.process_at_start(first, PINI_RUNNING);
        // As in C, links over channels connect only now. Their first value is the one after the start.
        self.connect_links();
    }

    /// Processes the records with this PINI choice: when the IOC pauses (4, then 5) and when it continues (2, then 3).
    pub fn process_pini(&mut self, pini: u16, now: Now) {
        self.time.now = now;
        self.process_at_start(crate::rec::Kind::FIRST_LOADED, pini);
    }

    fn process_at_start(&mut self, first: RecId, pini: u16) {
        let mut records: Vec<RecId> = first
            .to(self.records.common.end())
            .filter(|rec| {
                let common = &self.records[*rec];
                common.pini == pini && !common.removed && !common.is_remote
            })
            .collect();
        // EPICS iterates over the types in the order of its .dbd, and over each type's records in loading order.
        records.sort_by_key(|rec| (self.records[*rec].phas, self.records[*rec].kind() as u8));
        for rec in records {
            self.run(rec);
        }
    }

    /// Removes a record: ends its subscriptions and its own links. Links to it access its remains until
    /// [`unlink`](Self::unlink) handles them.
    pub fn remove_record(&mut self, rec: RecId) {
        self.scan_delete(rec);
        self.end_subscriptions(rec);
        self.detach(rec);
        crate::rec::removed(self, rec);
        let common = &mut self.records[rec];
        common.removed = true;
        common.scan = 0;
        common.pact = 1;
        for field in self.link_fields(rec) {
            if matches!(self.records.peek(rec, field), Slot::Link(link) if !link.is_constant()) {
                self.set_link(rec, field, "");
            }
        }
    }

    /// Converts links to a removed record into remote links, which find a later record of the same name. Handles `count`
    /// records from number `from` on, so that the owner can do other work in between.
    pub fn unlink(&mut self, gone: RecId, from: u32, count: u32) {
        let end = self.records.common.end().min(RecId(from.saturating_add(count)));
        for rec in RecId(from).to(end) {
            if self.records[rec].removed || self.records[rec].is_remote {
                continue;
            }
            for field in self.link_fields(rec) {
                let Slot::Link(link) = self.records.peek(rec, field) else { continue };
                let link = link.brief();
                let leads = match link.kind {
                    LinkKind::Db => link.record() == gone,
                    LinkKind::Through => {
                        self.links.modified.get(link.target).is_some_and(|channel| channel.record == gone)
                    }
                    LinkKind::Remote => {
                        self.links.remotes.source(link.target).is_some_and(|channel| channel.record == gone)
                    }
                    _ => false,
                };
                if leads {
                    let text = self.link_text(rec, field);
                    let said = self.outbox.notices.len();
                    self.set_link(rec, field, &text);
                    // No notice is needed, because the caller has just removed the record.
                    self.outbox.notices.truncate(said);
                }
            }
        }
    }

    fn link_fields(&self, rec: RecId) -> Vec<u16> {
        let fields = self.records.type_of(rec).fields.iter().enumerate();
        fields.filter(|(_, def)| def.kind == Some(FieldType::Link)).map(|(field, _)| field as u16).collect()
    }

    /// Sets a link field from its text and resolves it.
    pub(crate) fn set_link(&mut self, rec: RecId, field: u16, text: &str) {
        let Some(link_field) = self.records.def(rec, field).link_field() else { return };
        let link = match link::read(text, link_field) {
            Err(what) => {
                let name = format!("{}.{}", self.records.name(rec), self.records.def(rec, field).name);
                self.notice(format!("{name}: {what}"));
                Link::EMPTY
            }
            Ok(LinkText::Constant(text)) => Link::of_constant(text),
            Ok(LinkText::Hardware(text)) => Link::hardware(text),
            Ok(LinkText::Json(text, link)) => {
                Link::to(ResolvedLink { kind: LinkKind::Json, flags: 0, field: 0, target: self.add_json(*link) }, text)
            }
            Ok(LinkText::Pva(text, link, complaints)) => {
                for complaint in complaints {
                    let name = format!("{}.{}", self.records.name(rec), self.records.def(rec, field).name);
                    self.notice(format!("{name}: {complaint}"));
                }
                let flags = link.flags(link_field);
                let target = self.links.remotes.add_pva(rec, flags, *link, link_field == LinkField::In);
                Link::to(ResolvedLink { kind: LinkKind::Remote, flags, field: 0, target }, text)
            }
            Ok(LinkText::Pv(name, flags)) => self.resolve(rec, field, link_field, name, flags),
        };
        if let Slot::Link(slot) = self.records.slot(rec, field) {
            let old = std::mem::replace(slot, link).brief();
            self.release_link(old);
        }
        crate::rec::links_changed(self, rec);
    }

    /// Resolves a link to a name: into this database, or over a channel if the link asks for one or the name is not local.
    fn resolve(&mut self, rec: RecId, field: u16, link_field: LinkField, name: &str, flags: u8) -> Link {
        let is_tsel = self.records.def(rec, field).name == "TSEL";
        let (name, flags) = match name.strip_suffix(".TIME").filter(|_| is_tsel) {
            Some(short) => (short, flags | IS_TIME),
            None => (name, flags),
        };
        let found = self.find(name);
        let here = found.is_ok();
        let found = found.ok().filter(|found| !found.type_name && !self.records[found.record].is_remote);
        let way = flags & (CP | CPP | CA);
        match found {
            Some(channel) if way == 0 || self.reads_by_notify(rec, field) => {
                if channel.long_string || !channel.filters.is_empty() {
                    let target = self.links.modified.add(channel);
                    return Link::to(ResolvedLink { kind: LinkKind::Through, flags, field: 0, target }, name);
                }
                let target = channel.record;
                let plain = if channel.field == self.records.type_of(target).val {
                    name == self.records.name(target)
                } else {
                    name.strip_prefix(self.records.name(target)).and_then(|rest| rest.strip_prefix('.'))
                        == Some(&*self.records.def(target, channel.field).name)
                };
                let brief = ResolvedLink::to_field(flags, channel.field, target);
                Link::to(brief, if plain { "" } else { name })
            }
            source => {
                let forward = link_field == LinkField::Forward;
                if forward && (!here || way != 0) && !crate::run::link::remote::names_proc(name) {
                    let holder = format!("{}.{}", self.records.name(rec), self.records.def(rec, field).name);
                    let why = if here { "asks for CA" } else { "is not in this database" };
                    self.notice(format!("{holder}: forward link to \"{name}\", which {why} and names no PROC field"));
                }
                let over = if way == 0 { flags | CA } else { flags };
                self.over_channel(rec, name, link_field == LinkField::In, (flags, over), source)
            }
        }
    }

    /// Creates a link over a channel, even to a local name, for records whose links are not in link fields. `over` has `CA`, and
    /// `CP` if each new value processes the record.
    pub(crate) fn link_over_channel(&mut self, rec: RecId, name: &str, reads: bool, over: u8) -> Link {
        let source = self.find(name).ok().filter(|found| !found.type_name && !self.records[found.record].is_remote);
        self.over_channel(rec, name, reads, (0, over), source)
    }

    /// Creates a link over a channel. `flags` are its modifiers as given, `over` those that are served.
    fn over_channel(
        &mut self,
        rec: RecId,
        name: &str,
        reads: bool,
        (flags, over): (u8, u8),
        source: Option<Channel>,
    ) -> Link {
        let target = self.links.remotes.add(rec, over, name, reads, source);
        Link::to(ResolvedLink { kind: LinkKind::Remote, flags, field: 0, target }, name)
    }

    /// Whether a field is an input that is read through a put callback to its source, which ignores the link's modifiers.
    fn reads_by_notify(&self, rec: RecId, field: u16) -> bool {
        let dtyp = usize::from(self.records[rec].dtyp);
        self.records.def(rec, field).name == "INP"
            && self.records.type_of(rec).devices.get(dtyp).is_some_and(|device| device.name == "Async Soft Channel")
    }

    /// Writes a link field at run time (dbPutFieldLink).
    pub(crate) fn put_link_field(&mut self, rec: RecId, field: u16, text: &str) -> Result<(), PutError> {
        let Some(link_field) = self.records.def(rec, field).link_field() else { return Err(PutError::NoModify) };
        let parsed = link::read(text, link_field).map_err(|error| PutError::BadLink { what: error.to_string() })?;
        let device_link = matches!(self.records.def(rec, field).name.as_str(), "INP" | "OUT")
            && !self.records.type_of(rec).devices.is_empty();
        if device_link {
            let dtyp = usize::from(self.records[rec].dtyp);
            let wants_address =
                self.records.type_of(rec).devices.get(dtyp).is_some_and(|device| device.link != "CONSTANT");
            if wants_address != matches!(parsed, LinkText::Hardware(_)) {
                return Err(PutError::BadLink {
                    what: "the link's kind does not fit the device support (DTYP)".into(),
                });
            }
        } else if matches!(parsed, LinkText::Hardware(_)) {
            return Err(PutError::BadLink { what: "a device address in a field that is no device link".into() });
        }
        self.set_link(rec, field, text);
        if device_link {
            self.attach_device(rec);
        }
        crate::rec::link_put(self, rec, field);
        self.post(rec, field, EventMask::VALUE | EventMask::LOG);
        Ok(())
    }
}
