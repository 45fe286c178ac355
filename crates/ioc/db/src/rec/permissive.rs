//! permissive record.

use crate::model::slot::{Text, record};
use crate::rec::{Body, RecId, RecordType};
use crate::run::engine::{Db, ProcessResult};
use base::EventMask;

record! {
    /// Fields of a permissive record.
    Permissive {
        val: u16 [VAL],
        wflg: u16 [WFLG],
        labl: Text<20> [LABL],
        oval: u16 [OVAL],
        oflg: u16 [OFLG],
    }
}

impl RecordType for Permissive {
    /// Posts changes.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        db.records[rec].udf = 0;
        db.stamp_now(rec);
        let mask = db.reset_alarms(rec) | EventMask::VALUE | EventMask::LOG;
        let r = &mut db.records[body];
        let (value, flag) = (r.oval != r.val, r.oflg != r.wflg);
        r.oval = r.val;
        r.oflg = r.wflg;
        if value {
            db.post_value(rec, mask);
        }
        if flag {
            db.post_named(rec, "WFLG", mask);
        }
        ProcessResult::Done
    }
}
