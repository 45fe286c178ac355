//! What every record has.

use crate::link::Link;
use crate::record::Kind;
use crate::slot::{AnyText, Fields, Slot, Text, Zero, record};
use base::{Alarm, Severity, Stamp, Status};

/// Messages of alarms (AMSG): fixed texts, so that raising one needs no memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Message(pub(crate) &'static str);

impl PartialEq for Message {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Mostly both are empty: no call for that.
        self.0.len() == other.0.len() && (self.0.is_empty() || self.0 == other.0)
    }
}

impl AnyText for Message {
    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
    fn set(&mut self, _: &[u8]) {}
}

impl Fields for Message {
    const COUNT: usize = 1;
    fn slot(&mut self, _: usize) -> Slot<'_> {
        Slot::Text(self)
    }
}

impl Zero for Message {
    const ZERO: Self = Self("");
}

record! {
    /// The fields of dbCommon, and what the engine notes about a record.
    Common {
        flnk: Link [FLNK],
        sdis: Link [SDIS],
        stat: u16 [STAT],
        sevr: u16 [SEVR],
        nsta: u16 [NSTA],
        nsev: u16 [NSEV],
        pact: u8 [PACT],
        putf: u8 [PUTF],
        rpro: u8 [RPRO],
        lcnt: u8 [LCNT],
        udf: u8 [UDF],
        tpro: u8 [TPRO],
        disp: u8 [DISP],
        proc: u8 [PROC],
        scan: u16 [SCAN],
        disv: i16 [DISV],
        disa: i16 [DISA],
        tse: i16 [TSE],
        tsel: Link [TSEL],
        udfs: u16 [UDFS],
        acks: u16 [ACKS],
        ackt: u16 [ACKT],
        diss: u16 [DISS],
        prio: u16 [PRIO],
        pini: u16 [PINI],
        phas: i16 [PHAS],
        dtyp: u16 [DTYP],
        utag: u64 [UTAG],
        desc: Text<41> [DESC],
        asg: Text<29> [ASG],
        evnt: Text<40> [EVNT],
        amsg: Message [AMSG],
        namsg: Message [NAMSG],
    } private {
        time: Stamp,
        body: u32,
        name: u32,
        monitors: u32,
        notify: u32,
        kind: KindCell,
        on_stack: bool,
        broken: bool,
        device: u8,
        cold: bool,
        removed: bool,
        away: bool,
    }
}

/// A record's type; `ai` until it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindCell(pub(crate) Kind);

impl Default for KindCell {
    fn default() -> Self {
        Self(Kind::Ai)
    }
}

impl Common {
    /// Raises the alarm of this processing, where it is worse than what was raised before.
    #[inline]
    pub(crate) fn raise(&mut self, status: Status, severity: u16) -> bool {
        self.raise_with(status, severity, "")
    }

    /// As [`raise`](Self::raise), with a message.
    #[inline]
    pub(crate) fn raise_with(&mut self, status: Status, severity: u16, message: &'static str) -> bool {
        if self.nsev >= severity {
            return false;
        }
        self.nsta = status as u16;
        self.nsev = severity;
        self.namsg = Message(message);
        true
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
