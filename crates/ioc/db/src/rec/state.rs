//! state record.

use crate::model::slot::{Text, record};
use crate::rec::{Body, RecId, RecordType};
use crate::run::engine::{Db, ProcessResult};
use base::EventMask;

record! {
    /// Fields of a state record.
    State {
        val: Text<20> [VAL],
        oval: Text<20> [OVAL],
    }
}

impl RecordType for State {
    /// Posts changes.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        db.records[rec].udf = 0;
        db.stamp_now(rec);
        let mask = db.reset_alarms(rec);
        let r = &mut db.records[body];
        if r.oval != r.val {
            r.oval = r.val.clone();
            db.post_value(rec, mask | EventMask::VALUE | EventMask::LOG);
        }
        ProcessResult::Done
    }
}
