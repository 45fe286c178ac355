//! busy record (synApps): a bo that waits. While VAL is 1, the forward link is not followed and put callbacks do not
//! complete. Setting VAL to 0 triggers both.

use super::binary::{END_OF_HIGH, binary_output};
use super::bits::bits_output;
use crate::model::link::Link;
use crate::model::slot::{Lazy, Text, record};
use crate::rec::common::Common;
use crate::rec::{
    Body, Properties, RecId, RecordType, Sim, States, changed, drive_stamped, init_sim, no_device, output_mode,
    post_raw, stamp_output,
};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use base::{FieldType, Range, Scalar, Status, Str40, Value};

binary_output!(
    Busy,
    |r: &Busy, failed: bool| match (r.val, failed) {
        (1, true) => ProcessResult::GivenUp,
        (1, false) => ProcessResult::NoForward,
        (_, true) => ProcessResult::Failed,
        (_, false) => ProcessResult::Done,
    };

    fn holds_puts(&self) -> bool {
        self.val == 1
    }
);

#[cfg(test)]
mod tests {
    use crate::{Db, Macros, NotifyState, Now};
    use base::Value;

    #[test]
    fn a_put_that_sets_the_record_busy_completes_when_the_record_is_set_to_done() {
        let mut db = Db::new();
        let text = "record(busy, \"b\") { field(FLNK, \"n\") field(OUT, \"o PP\") } record(calc, \"n\") { field(CALC, \"VAL+1\") } record(longout, \"o\") {}";
        db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap();
        let now = Now::default();
        db.init(now);
        let [busy, next, out] = ["b", "n", "o"].map(|name| db.find(name).unwrap());
        assert_eq!(db.get_text(&busy).to_str(), "Done");
        assert_eq!(db.put_notify(&busy, &Value::from("Busy"), 7, now), Ok(NotifyState::Pending));
        // The record wrote its output and is busy. Its forward link waits.
        assert_eq!((db.get(&out, 1), db.get(&next, 1)), (Value::from(1), Value::from(0.0)));
        assert!(db.take_completed().is_empty());
        // Setting it busy again changes nothing.
        db.put(&busy, &Value::from("Busy"), now).unwrap();
        assert!(db.take_completed().is_empty());
        db.put(&busy, &Value::from("Done"), now).unwrap();
        assert_eq!((db.get(&out, 1), db.get(&next, 1)), (Value::from(0), Value::from(1.0)));
        assert_eq!(db.take_completed().len(), 1);
    }
}
