//! fanout record.

use super::inputs::ones;
use crate::model::link::{Link, LinkKind};
use crate::model::slot::record;
use crate::rec::{Body, RecId, RecordType};
use crate::run::engine::{Db, ProcessResult};
use base::{EventMask, Status};

record! {
    /// Fields of a fanout record.
    Fanout {
        val: i32 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        sell: Link [SELL],
        offs: i16 [OFFS],
        shft: i16 [SHFT],
        lnk: [Link; 16] [LNK0 LNK1 LNK2 LNK3 LNK4 LNK5 LNK6 LNK7 LNK8 LNK9 LNKA LNKB LNKC LNKD LNKE LNKF],
    }
}

impl RecordType for Fanout {
    /// Start: loads a constant selection.
    fn init(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        if let Some(seln) = r.sell.number() {
            r.seln = seln;
        }
    }

    /// Processes the targets of the selected links.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        let r = &db.records[body];
        let (sell, before) = (r.sell.brief(), r.seln);
        // A failed read raises the alarm itself and keeps the previous selection.
        if let Ok(Some(seln)) = db.get_link::<u16>(rec, sell) {
            db.records[body].seln = seln;
        }
        let r = &db.records[body];
        match selected(r.selm, r.seln, r.offs, r.shft) {
            Some(bits) => {
                for index in ones(bits.into()) {
                    let link = db.records[body].lnk[index].brief();
                    if link.kind != LinkKind::Constant {
                        db.forward(rec, link);
                    }
                }
            }
            None => {
                db.records[rec].raise(Status::Soft, 3);
            }
        }
        db.records[rec].udf = 0;
        db.stamp_now(rec);
        let mask = db.reset_alarms(rec);
        if !mask.is_empty() {
            db.post_value(rec, mask);
        }
        if db.records[body].seln != before {
            db.post_named(rec, "SELN", mask | EventMask::VALUE | EventMask::LOG);
        }
        ProcessResult::Done
    }
}

const LINKS: i32 = 16;

/// Bit mask of the selected links; `None` if the selection is invalid.
pub(crate) fn selected(selm: u16, seln: u16, offs: i16, shft: i16) -> Option<u16> {
    match selm {
        0 => Some(u16::MAX),
        1 => {
            let index = i32::from(seln) + i32::from(offs);
            (0..LINKS).contains(&index).then(|| 1 << index)
        }
        2 => match shft {
            0..=15 => Some(seln >> shft),
            -15..=-1 => Some((u32::from(seln) << -shft) as u16),
            _ => None,
        },
        _ => None,
    }
}
