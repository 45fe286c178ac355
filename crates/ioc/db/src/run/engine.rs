//! The database and the processing of a record.

use crate::model::id::RecId;
use crate::model::link::{LinkKind, PP};
use crate::rec::{Kind, Records};
use crate::run::device::Stream;
use crate::run::device::support::Supports;
use crate::run::events::Events;
use crate::run::function::Functions;
use crate::run::link::Links;
use crate::run::notify::Notifies;
use crate::run::pool::Pool;
use crate::run::scan::Scans;
use crate::run::split::Split;
use crate::run::stop::Stops;
use crate::text::local::LocalText;
use crate::text::saved::Saved;
use base::{EventMask, MonoNs, Stamp, Status};
use std::collections::{BTreeSet, HashMap};

/// Time of a processing pass: wall clock for stamps, monotonic clock for delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time for record stamps.
    pub wall: Stamp,
    /// Time for delays.
    pub mono: MonoNs,
}

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice(pub String);

/// Event and error counts since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records processed.
    pub processed: u64,
    /// Attempts to process an active record.
    pub while_active: u64,
    /// Processings refused because links nested deeper than the limit.
    pub too_deep: u64,
    /// Scan-once requests lost because the queue was full.
    pub once_lost: u64,
    /// Callbacks lost because the queue was full.
    pub callback_lost: u64,
    /// Events and states not sent to the other databases of the IOC because the queue was full.
    pub signals_lost: u64,
}

/// Maximum nesting depth of links that process records. Chains of forward links do not nest.
const DEPTH_LIMIT: u32 = 200;
/// Number of attempts to process an active record before it gets a SCAN alarm.
const MAX_LOCK: u8 = 10;

/// Result of a record type's processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessResult {
    /// Finished. The forward link follows.
    Done,
    /// Waiting for a callback. The record stays active.
    Pending,
    /// Aborted. The record stays active permanently, as EPICS leaves a record without support.
    Broken,
    /// Finished, and the forward link follows. A PP link that processed the record gets an error.
    Failed,
    /// Finished. The forward link is not followed.
    NoForward,
    /// Like `NoForward`, and a PP link that processed the record gets an error.
    GivenUp,
}

/// Time sources of a database.
pub(crate) struct Time {
    /// Time of the current pass.
    pub(crate) now: Now,
    /// Clock for individual record stamps; `None` to use the time of the pass.
    pub(crate) clock: Option<fn() -> Stamp>,
    pub(crate) local: LocalText,
}

impl Time {
    /// Time for the next record stamp.
    #[inline]
    pub(crate) fn wall(&self) -> Stamp {
        self.clock.map_or(self.now.wall, |clock| clock())
    }
}

/// Processing state: the records on the stack.
#[derive(Default)]
pub(crate) struct Pass {
    /// Records whose forward links are being followed.
    pub(crate) active: Vec<RecId>,
    pub(crate) depth: u32,
    /// Whether the record processed last failed.
    pub(crate) failed: bool,
}

/// Output for the shell.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Texts written by `stdio` device supports.
    pub(crate) output: Vec<(Stream, String)>,
    pub(crate) notices: Vec<Notice>,
    /// Records whose ASG field was written.
    pub(crate) regrouped: BTreeSet<RecId>,
}

/// Work to do at database start.
pub(crate) struct Start {
    pub(crate) running: bool,
    /// First record loaded since the last init. Records from here on cannot be found yet.
    pub(crate) first_new: RecId,
    /// Values to be restored by autosave.
    pub(crate) restores: Vec<Saved>,
}

/// An EPICS database.
pub struct Db {
    pub(crate) records: Records,
    pub(crate) links: Links,
    pub(crate) scans: Scans,
    pub(crate) events: Events,
    pub(crate) notifies: Notifies,
    pub(crate) supports: Supports,
    pub(crate) functions: Functions,
    pub(crate) states: HashMap<String, bool>,
    pub(crate) environment: HashMap<String, String>,
    pub(crate) outbox: Outbox,
    pub(crate) time: Time,
    pub(crate) pass: Pass,
    pub(crate) start: Start,
    pub(crate) split: Split,
    /// Lock sets with breakpoints.
    pub(crate) stops: Option<Box<Stops>>,
    pub(crate) counters: Counters,
    pub(crate) pool: Pool,
    /// Seed of the random numbers in expressions.
    pub(crate) seed: u16,
    /// Whether a file with errors is rejected as a whole.
    pub(crate) strict: bool,
    /// Whether a record can be defined only once.
    pub(crate) once_only: bool,
}

impl Default for Db {
    fn default() -> Self {
        Self::new()
    }
}

impl Db {
    /// An empty database with the record types of EPICS 7.
    #[must_use]
    pub fn new() -> Self {
        let mut db = Self {
            records: Records::new(),
            links: Links::default(),
            scans: Scans::default(),
            events: Events::default(),
            notifies: Notifies::default(),
            supports: Supports::default(),
            functions: Functions::default(),
            states: HashMap::new(),
            environment: HashMap::new(),
            outbox: Outbox::default(),
            time: Time { now: Now::default(), clock: None, local: crate::text::local::utc },
            pass: Pass::default(),
            start: Start { running: false, first_new: Kind::FIRST_LOADED, restores: Vec::new() },
            split: Split::default(),
            stops: None,
            counters: Counters::default(),
            pool: Pool::default(),
            seed: 0xa3bf,
            strict: false,
            once_only: false,
        };
        db.make_firsts();
        db
    }

    /// Whether it has been initialised.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.start.running
    }

    /// Event and error counts since start.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Messages for the operator since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.outbox.notices)
    }

    /// Records whose access security group was written since the last call.
    pub fn take_regrouped(&mut self) -> Vec<RecId> {
        std::mem::take(&mut self.outbox.regrouped).into_iter().collect()
    }

    /// Next record whose access security group was written, and the group. Does not allocate.
    pub fn next_regrouped(&mut self) -> Option<(RecId, base::Str40)> {
        let rec = self.outbox.regrouped.pop_first()?;
        Some((rec, base::Str40::new(self.records[rec].rare.asg.bytes())))
    }

    /// Sets a clock to stamp each record individually, like an IOC in C. Without a clock, all records of a pass get the same
    /// stamp.
    pub fn stamp_each_record(&mut self, clock: Option<fn() -> Stamp>) {
        self.time.clock = clock;
    }

    /// Sets the formatter of local time. The default is UTC.
    pub fn set_local_text(&mut self, local: LocalText) {
        self.time.local = local;
    }

    pub(crate) fn notice(&mut self, text: String) {
        // Bounded in case the shell does not drain notices.
        if self.outbox.notices.len() < 10_000 {
            self.outbox.notices.push(Notice(text));
        }
    }

    /// Processes a record and its link targets (dbProcess). Returns whether the record failed.
    pub(crate) fn run(&mut self, rec: RecId) -> bool {
        if self.pass.depth >= DEPTH_LIMIT {
            self.counters.too_deep += 1;
            self.records[rec].raise(Status::Link, 3);
            return true;
        }
        self.pass.depth += 1;
        let next = self.process_one(rec, false);
        let failed = self.pass.failed;
        if let Some(next) = next {
            self.follow(rec, next);
        }
        self.pass.depth -= 1;
        failed
    }

    /// Resumes an active record after a callback.
    pub(crate) fn resume(&mut self, rec: RecId) {
        self.pass.depth += 1;
        if let Some(next) = self.process_one(rec, true) {
            self.follow(rec, next);
        }
        self.pass.depth -= 1;
    }

    /// Processes a chain of forward links, then ends the activity of its records in reverse order.
    // A separate function, so that processing a single record (as in a read with PP) does not save registers for the chain.
    #[inline(never)]
    pub(crate) fn follow(&mut self, first: RecId, second: RecId) {
        let base = self.pass.active.len();
        self.pass.active.push(first);
        let mut current = second;
        while let Some(next) = self.process_one(current, false) {
            self.pass.active.push(current);
            current = next;
        }
        while self.pass.active.len() > base {
            if let Some(done) = self.pass.active.pop() {
                self.finish(done);
            }
        }
    }

    /// Processes one record up to its forward link. Returns the record to process next, before this record's activity ends.
    /// `resumed` is set if a callback continues the record.
    pub(crate) fn process_one(&mut self, rec: RecId, resumed: bool) -> Option<RecId> {
        self.pass.failed = false;
        let mut common = &mut self.records[rec];
        if !resumed {
            if common.pact != 0 {
                self.already_active(rec);
                return None;
            }
            common.lcnt = 0;
            if !common.rare.rests() {
                if crate::run::stop::stops(common.rare.marks) {
                    return self.process_stoppable(rec);
                }
                if !common.rare.sdis.is_constant() {
                    self.read_sdis(rec);
                }
                common = &mut self.records[rec];
            }
            if common.disa == common.disv {
                self.disabled(rec);
                return None;
            }
            common.pact = 1;
        }
        common.on_stack = true;
        self.counters.processed += 1;
        let outcome = crate::rec::process(self, rec, resumed);
        self.pass.failed = matches!(outcome, ProcessResult::Failed | ProcessResult::Broken | ProcessResult::GivenUp);
        match outcome {
            ProcessResult::Done | ProcessResult::Failed => {}
            ProcessResult::Pending | ProcessResult::Broken => {
                self.records[rec].on_stack = false;
                return None;
            }
            ProcessResult::NoForward | ProcessResult::GivenUp => {
                let common = &mut self.records[rec];
                common.pact = 0;
                common.on_stack = false;
                return None;
            }
        }
        let flnk = self.records[rec].flnk.brief();
        match flnk.kind {
            LinkKind::Constant => {}
            LinkKind::Db => {
                let target = flnk.record();
                if self.records[target].scan == 0 {
                    self.hand_over(rec, target);
                    return Some(target);
                }
            }
            _ => self.forward_elsewhere(rec),
        }
        self.finish(rec);
        None
    }

    /// Ends a record's activity after its forward link was followed: completes put callbacks and reprocesses it if requested.
    #[inline]
    fn finish(&mut self, rec: RecId) {
        let mut common = &mut self.records[rec];
        if (common.notify | u32::from(common.rpro)) != 0 {
            self.finish_special(rec);
            common = &mut self.records[rec];
        }
        common.putf = 0;
        common.pact = 0;
        common.on_stack = false;
    }

    #[cold]
    fn finish_special(&mut self, rec: RecId) {
        self.notify_completion(rec);
        let common = &mut self.records[rec];
        if common.rpro != 0 {
            common.rpro = 0;
            self.scan_once(rec);
        }
    }

    /// Hands a put's state from the source to the target (first half of processTarget).
    #[inline]
    pub(crate) fn hand_over(&mut self, source: RecId, target: RecId) {
        let from = &self.records[source];
        let (putf, notify) = (from.putf, from.notify);
        if notify != 0 {
            self.notify_add(source, target);
        }
        let to = &mut self.records[target];
        if to.pact == 0 {
            to.putf = putf;
        } else if putf != 0 && source != target && !to.on_stack {
            to.putf = 0;
            to.rpro = 1;
        }
    }

    /// Processes the target of a link (processTarget). Returns whether the target failed.
    pub(crate) fn process_target(&mut self, source: RecId, target: RecId) -> bool {
        self.hand_over(source, target);
        // A callback (seq) writes while its record is not being processed. Chains that lead back to the record must find it
        // active, and must not request another processing.
        let from = &mut self.records[source];
        let (pact, on_stack) = (from.pact, from.on_stack);
        from.pact = 1;
        from.on_stack = true;
        let failed = self.run(target);
        let from = &mut self.records[source];
        from.pact = pact;
        from.on_stack = on_stack;
        failed
    }

    /// Processes the target of a link if it is passive (dbScanPassive). Returns whether the target failed.
    #[inline]
    pub(crate) fn process_passive(&mut self, source: RecId, target: RecId) -> bool {
        self.records[target].scan == 0 && self.process_target(source, target)
    }

    #[cold]
    fn already_active(&mut self, rec: RecId) {
        if self.records[rec].rare.marks & crate::run::stop::STOPS != 0 && self.is_held(rec) {
            return;
        }
        self.counters.while_active += 1;
        let common = &mut self.records[rec];
        let tries = common.lcnt;
        if common.stat == Status::Scan as u16 {
            return;
        }
        common.lcnt = tries.wrapping_add(1);
        if tries < MAX_LOCK || common.sevr >= 3 {
            return;
        }
        common.raise_with(Status::Scan, 3, crate::rec::message::Message::ASYNC);
        let mask = self.reset_alarms(rec);
        self.post_value(rec, mask | EventMask::VALUE | EventMask::LOG);
    }

    #[cold]
    pub(crate) fn read_sdis(&mut self, rec: RecId) {
        let link = self.records[rec].rare.sdis.brief();
        if let Ok(Some(value)) = self.get_link::<i16>(rec, link) {
            self.records[rec].disa = value;
        }
    }

    #[cold]
    fn disabled(&mut self, rec: RecId) {
        let common = &mut self.records[rec];
        common.rpro = 0;
        common.putf = 0;
        if common.stat != Status::Disable as u16 {
            common.sevr = common.diss;
            common.stat = Status::Disable as u16;
            common.nsev = 0;
            common.nsta = 0;
            self.post_common(rec, "STAT", EventMask::VALUE);
            self.post_common(rec, "SEVR", EventMask::VALUE);
            self.post_value(rec, EventMask::VALUE | EventMask::ALARM);
        }
        self.notify_completion(rec);
    }

    /// Follows a forward link that leaves this database or is JSON.
    #[cold]
    fn forward_elsewhere(&mut self, rec: RecId) {
        let link = self.records[rec].flnk.brief();
        self.forward(rec, link);
    }

    /// Follows a forward link of a record that is being processed (such as LNKn of fanout).
    pub(crate) fn forward(&mut self, rec: RecId, link: crate::model::link::ResolvedLink) {
        match link.kind {
            LinkKind::Db => {
                self.process_passive(rec, link.record());
            }
            LinkKind::Remote => self.remote_forward(rec, link),
            LinkKind::Through => {
                if let Some(bare) = self.bare(link) {
                    self.process_passive(rec, bare.record());
                }
            }
            LinkKind::Constant | LinkKind::Hardware | LinkKind::Json => {}
        }
    }

    /// Commits the alarm of this processing (recGblResetAlarms). Returns the events to add to those of the value.
    #[inline]
    pub(crate) fn reset_alarms(&mut self, rec: RecId) -> EventMask {
        if self.records[rec].alarm_stays() { EventMask::NONE } else { self.alarm_changed(rec) }
    }

    #[cold]
    pub(crate) fn alarm_changed(&mut self, rec: RecId) -> EventMask {
        let common = &mut self.records[rec];
        let (old_status, old_severity) = (common.stat, common.sevr);
        let mut mask = EventMask::NONE;
        if common.namsg != common.amsg {
            common.amsg = common.namsg;
            mask = EventMask::ALARM;
        }
        common.stat = common.nsta;
        common.sevr = common.nsev.min(3);
        common.nsta = 0;
        common.nsev = 0;
        let (status, severity) = (common.stat, common.sevr);
        if old_severity != severity {
            mask = EventMask::ALARM;
            self.post_common(rec, "SEVR", EventMask::VALUE);
        }
        if old_status != status {
            mask |= EventMask::VALUE;
        }
        if mask.is_empty() {
            return EventMask::NONE;
        }
        self.post_common(rec, "STAT", mask);
        self.post_common(rec, "AMSG", mask);
        let common = &mut self.records[rec];
        if common.ackt == 0 || severity >= common.acks {
            common.acks = severity;
            self.post_common(rec, "ACKS", EventMask::VALUE);
        }
        EventMask::ALARM
    }

    /// Stamps a record (recGblGetTimeStamp).
    #[inline]
    pub(crate) fn stamp_now(&mut self, rec: RecId) {
        if !self.records[rec].stamp(&self.time) {
            self.stamp_specially(rec, 0, None);
        }
    }

    /// Like [`stamp_now`](Self::stamp_now), for a record in simulation mode `simm` with its link.
    pub(crate) fn stamp_simulated(&mut self, rec: RecId, simm: u16, siol: Option<crate::model::link::ResolvedLink>) {
        if simm == 0 {
            self.stamp_now(rec);
        } else {
            self.stamp_specially(rec, simm, siol);
        }
    }

    #[cold]
    pub(crate) fn stamp_specially(&mut self, rec: RecId, simm: u16, siol: Option<crate::model::link::ResolvedLink>) {
        let tsel = self.records[rec].rare.tsel.brief();
        if tsel.kind != LinkKind::Constant {
            if tsel.flags & crate::model::link::IS_TIME != 0 {
                self.stamp_from_link(rec, tsel);
                return;
            }
            if let Ok(Some(event)) = self.get_link::<i16>(rec, tsel) {
                self.records[rec].tse = event;
            }
        }
        let wall = self.time.wall();
        let tse = self.records[rec].tse;
        if tse != -2 {
            // Only an event generator knows the time of events and of the best source (-1). Without one, the stamp does not
            // change.
            if tse == 0 || self.scans.last_resort {
                self.records[rec].time = wall;
            }
        } else if simm != 0 {
            match siol {
                Some(link) if link.kind != LinkKind::Constant => self.stamp_from_link(rec, link),
                _ => self.records[rec].time = wall,
            }
        }
    }

    /// Takes time stamp and tag from a link's source.
    pub(crate) fn stamp_from_link(&mut self, rec: RecId, link: crate::model::link::ResolvedLink) {
        match link.kind {
            LinkKind::Db => {
                let source = &self.records[link.record()];
                let (time, utag) = (source.time, source.utag);
                let common = &mut self.records[rec];
                common.time = time;
                common.utag = utag;
            }
            LinkKind::Through => {
                if let Some(bare) = self.bare(link) {
                    self.stamp_from_link(rec, bare);
                }
            }
            LinkKind::Remote => {
                if let Some(time) = self.links.remotes.stamp(link.target) {
                    self.records[rec].time = time;
                }
                if let Some(tag) = self.links.remotes.tag(link.target) {
                    self.records[rec].utag = tag;
                }
            }
            _ => {}
        }
    }

    /// Whether a link processes its source or target if that is passive.
    pub(crate) const fn is_pp(flags: u8) -> bool {
        flags & PP != 0
    }
}
