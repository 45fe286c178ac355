//! seq record.

use super::inputs::{name_of, nth};
use crate::model::link::Link;
use crate::model::slot::record;
use crate::rec::{Body, Properties, RecId, RecordType};
use crate::run::callback::Callback;
use crate::run::engine::{Db, ProcessResult};
use base::{EventMask, FieldType, Range, Scalar, Status};

record! {
    /// Fields of a seq record.
    Seq {
        val: i32 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        sell: Link [SELL],
        offs: i16 [OFFS],
        shft: i16 [SHFT],
        oldn: u16 [OLDN],
        prec: i16 [PREC],
        dly: [f64; 16] [DLY0 DLY1 DLY2 DLY3 DLY4 DLY5 DLY6 DLY7 DLY8 DLY9 DLYA DLYB DLYC DLYD DLYE DLYF],
        dol: [Link; 16] [DOL0 DOL1 DOL2 DOL3 DOL4 DOL5 DOL6 DOL7 DOL8 DOL9 DOLA DOLB DOLC DOLD DOLE DOLF],
        dov: [f64; 16] [DO0 DO1 DO2 DO3 DO4 DO5 DO6 DO7 DO8 DO9 DOA DOB DOC DOD DOE DOF],
        lnk: [Link; 16] [LNK0 LNK1 LNK2 LNK3 LNK4 LNK5 LNK6 LNK7 LNK8 LNK9 LNKA LNKB LNKC LNKD LNKE LNKF],
    } private {
        todo: u16,
    }
}

impl RecordType for Seq {
    /// Start: loads constants.
    fn init(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        if let Some(seln) = r.sell.number() {
            r.seln = seln;
        }
        for index in 0..GROUPS {
            if let Some(value) = r.dol[index].number() {
                r.dov[index] = value;
            }
        }
        r.oldn = r.seln;
    }

    /// Selects the groups and starts the first one. Callbacks process the rest.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if resumed {
            return finish(db, rec, body);
        }
        let r = &db.records[body];
        let bits = if r.selm == 0 {
            Some(u16::MAX)
        } else {
            let sell = r.sell.brief();
            if let Ok(Some(seln)) = db.get_link::<u16>(rec, sell) {
                db.records[body].seln = seln;
            }
            let r = &db.records[body];
            super::fanout::selected(r.selm, r.seln, r.offs, r.shft)
        };
        let Some(bits) = bits else {
            db.records[rec].raise(Status::Soft, 3);
            return finish(db, rec, body);
        };
        let r = &mut db.records[body];
        r.todo = (0..GROUPS)
            .filter(|index| bits >> index & 1 != 0 && !(r.lnk[*index].is_constant() && r.dol[*index].is_constant()))
            .fold(0, |todo, index| todo | 1 << index);
        if r.todo == 0 {
            return finish(db, rec, body);
        }
        next(db, rec, body);
        ProcessResult::Pending
    }

    /// Field properties as in C, which derives them from field positions with errors: link fields get properties, values
    /// those of the previous group's input, delays a display range with only its low limit set, and the first group nothing.
    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        if let Some(1..) = Self::group_of(field, [Self::DLY0, Self::DOL0]) {
            return Properties::of_delay(Range { low: 10.0, high: 0.0 });
        }
        let of = match Self::group_of(field, [Self::DO0, Self::LNK0]) {
            Some(group @ 1..) => Properties::of_link(&self.dol[group - 1]),
            _ => Properties::BOUNDED,
        };
        of.digits(self.prec, false)
    }

    /// Processes one group: reads DOLn, writes LNKn.
    fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, _: u8) {
        let r = &mut db.records[body];
        if r.todo == 0 {
            return;
        }
        let index = r.todo.trailing_zeros() as usize;
        r.todo &= r.todo - 1;
        let (before, dol, lnk) = (r.dov[index], r.dol[index].brief(), r.lnk[index].brief());
        // Failed reads and writes raise the alarm themselves.
        if let Ok(Some(value)) = db.get_link::<f64>(rec, dol) {
            db.records[body].dov[index] = value;
        }
        db.stamp_now(rec);
        let value = db.records[body].dov[index];
        let _ = db.put_link(rec, lnk, Scalar::F64(value));
        if before != value {
            db.post_named(rec, name_of::<Self>(Self::DO0, index), EventMask::VALUE | EventMask::LOG);
        }
        next(db, rec, body);
    }
}

impl Seq {
    /// The group of a field, if the field is in one of the two rows.
    fn group_of(field: u16, firsts: [u16; 2]) -> Option<usize> {
        firsts.into_iter().find_map(|first| nth(field, first, GROUPS))
    }
}

/// Callback that processes one group.
const GROUP: u8 = 0;
const GROUPS: usize = 16;

/// Schedules the callback of the next group, or ends the sequence.
fn next(db: &mut Db, rec: RecId, body: Body<Seq>) {
    let r = &db.records[body];
    if r.todo == 0 {
        db.resume(rec);
        return;
    }
    let delay = r.dly[r.todo.trailing_zeros() as usize];
    if delay > 0.0 {
        db.call_back_after(rec, Callback::Own(GROUP), delay);
    } else {
        db.call_back(rec, Callback::Own(GROUP));
    }
}

fn finish(db: &mut Db, rec: RecId, body: Body<Seq>) -> ProcessResult {
    db.records[rec].udf = 0;
    db.stamp_now(rec);
    let mask = db.reset_alarms(rec);
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    let r = &mut db.records[body];
    if r.seln != r.oldn {
        r.oldn = r.seln;
        db.post_named(rec, "SELN", mask | EventMask::VALUE | EventMask::LOG);
    }
    ProcessResult::Done
}
