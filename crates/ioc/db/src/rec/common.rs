//! Fields and state common to all records.

use crate::model::link::Link;
use crate::model::slot::{Fields, Idle, Lazy, Slot, Text, Zero, record};
use crate::rec::Kind;
use crate::rec::message::Message;
use crate::run::device::Device;
use crate::run::engine::Time;
use base::{Alarm, Severity, Stamp, Status};

/// Fields that most records leave at their initial values; unallocated until one is written.
#[derive(Clone, Debug)]
pub(crate) struct Rare {
    pub(crate) sdis: Link,
    pub(crate) tsel: Link,
    pub(crate) asg: Text<29>,
    pub(crate) evnt: Text<40>,
    /// Breakpoint marks ([`crate::run::stop`]).
    pub(crate) marks: u8,
}

impl Fields for Rare {
    const COUNT: usize = 4;
    fn slot(&mut self, index: usize) -> Slot<'_> {
        match index {
            0 => self.sdis.slot(0),
            1 => self.tsel.slot(0),
            2 => self.asg.slot(0),
            _ => self.evnt.slot(0),
        }
    }
}

impl Zero for Rare {
    const ZERO: Self = Self { sdis: Link::EMPTY, tsel: Link::EMPTY, asg: Text::ZERO, evnt: Text::ZERO, marks: 0 };
}

impl Idle for Rare {
    const IDLE: &'static Self = &Self::ZERO;
    fn is_idle(&self) -> bool {
        let texts = self.asg.bytes().is_empty() && self.evnt.bytes().is_empty();
        self.sdis.is_empty() && self.tsel.is_empty() && texts && self.marks == 0
    }
}

record! {
    /// The fields of dbCommon, and the engine's state of a record.
    ///
    /// The order matters for the cache: the fields used on every processing, from `flnk` to `broken`, are adjacent and take
    /// two cache lines.
    #[repr(C)]
    Common {
        utag: u64 [UTAG],
        desc: Text<41> [DESC],
        udfs: u16 [UDFS],
        acks: u16 [ACKS],
        ackt: u16 [ACKT],
        diss: u16 [DISS],
        prio: u16 [PRIO],
        pini: u16 [PINI],
        phas: i16 [PHAS],
        dtyp: u16 [DTYP],
        flnk: Link [FLNK],
        rare: Lazy<Rare> [SDIS TSEL ASG EVNT],
        stat: u16 [STAT],
        sevr: u16 [SEVR],
        amsg: Message [AMSG],
        scan: u16 [SCAN],
        nsta: u16 [NSTA],
        nsev: u16 [NSEV],
        namsg: Message [NAMSG],
        tse: i16 [TSE],
        disv: i16 [DISV],
        disa: i16 [DISA],
        pact: u8 [PACT],
        putf: u8 [PUTF],
        rpro: u8 [RPRO],
        lcnt: u8 [LCNT],
        udf: u8 [UDF],
        tpro: u8 [TPRO],
        disp: u8 [DISP],
        proc: u8 [PROC],
    } private {
        time: Stamp,
        body: u32,
        monitors: u32,
        notify: u32,
        kind: KindCell,
        device: Device,
        on_stack: bool,
        broken: bool,
        name: u32,
        removed: bool,
        is_remote: bool,
    }
}

/// Type of a record; `ai` until it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindCell(pub(crate) Kind);

impl Default for KindCell {
    fn default() -> Self {
        Self(Kind::Ai)
    }
}

impl Common {
    /// Raises an alarm in this processing if it is more severe than those raised before.
    #[inline]
    pub(crate) fn raise(&mut self, status: Status, severity: u16) -> bool {
        self.raise_with(status, severity, Message::NONE)
    }

    /// Like [`raise`](Self::raise), with a message.
    #[inline]
    pub(crate) fn raise_with(&mut self, status: Status, severity: u16, message: Message) -> bool {
        if self.nsev >= severity {
            return false;
        }
        self.nsta = status as u16;
        self.nsev = severity;
        self.namsg = message;
        true
    }

    /// Raises the UDF alarm with the record's severity for it (UDFS).
    #[inline]
    pub(crate) fn raise_undefined(&mut self) -> bool {
        self.raise(Status::Udf, self.udfs)
    }

    /// Commits the alarm of this processing if it did not change, which is the usual case. Returns whether that was so.
    #[inline]
    pub(crate) fn alarm_stays(&mut self) -> bool {
        let stays = self.nsta == self.stat && self.nsev == self.sevr && self.namsg == self.amsg;
        if stays {
            self.nsta = 0;
            self.nsev = 0;
        }
        stays
    }

    /// Stamps a record whose TSE is 0 and whose TSEL is not a link, with the time of the pass or of the `clock`. Returns whether
    /// the record was such.
    #[inline]
    pub(crate) fn stamp(&mut self, time: &Time) -> bool {
        let plain = self.tse == 0 && (self.rare.rests() || self.rare.tsel.is_constant());
        if plain {
            self.time = time.wall();
        }
        plain
    }

    /// The committed alarm.
    pub(crate) fn alarm(&self) -> Alarm {
        Alarm { status: Status::from_index(self.stat).unwrap_or_default(), severity: Severity::from_index(self.sevr) }
    }

    /// The type.
    #[inline]
    pub(crate) const fn kind(&self) -> Kind {
        self.kind.0
    }
}
