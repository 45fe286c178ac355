//! Checks of writes before they are made.

use crate::model::schema::Special;
use crate::model::slot::{Slot, with_number};
use crate::model::values::set_element;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::text::conv;
use crate::text::error::PutError;
use base::{Array, FieldType, Scalar, Value};

impl Db {
    /// Checks whether [`put`](Self::put) would write a value: DISP, read-only fields, and the conversion to the type of the
    /// field. The support of a record may still refuse the write. Does not change the record.
    ///
    /// # Errors
    /// The reason why the write would fail.
    pub fn check_write(&mut self, channel: &Channel, value: &Value) -> Result<(), PutError> {
        self.check_put(channel)?;
        let (rec, field) = (channel.record, channel.field);
        let def = self.records.def(rec, field);
        if matches!(def.special, Special::NoMod | Special::Attribute) {
            return Err(PutError::NoModify);
        }
        if def.link_field().is_some() || channel.long_string || self.records.is_long_text(rec, field) {
            return Ok(());
        }
        if self.records.is_array(rec, field) {
            return self.check_elements(self.records.element_type(rec, field), value);
        }
        value.get(0).map_or(Ok(()), |scalar| self.check_scalar(channel, scalar))
    }

    /// Whether a record is processed only by others: its scan is `Passive`.
    #[must_use]
    pub fn is_passive(&self, record: crate::RecId) -> bool {
        self.records[record].scan == 0
    }

    fn check_elements(&mut self, kind: FieldType, value: &Value) -> Result<(), PutError> {
        if kind == value.kind() || kind == FieldType::String {
            return Ok(());
        }
        let mut probe = self.lend_array(kind);
        make_room(&mut probe);
        let wrong = (0..value.len()).filter_map(|index| value.get(index)).find(|element| match element {
            Scalar::String(text) if kind == FieldType::Enum || text.bytes().is_empty() => true,
            element => !set_element(&mut probe, 0, *element),
        });
        self.recycle_array(probe);
        match wrong {
            None => Ok(()),
            Some(element) => {
                let given = base::text::scalar(element, 6);
                Err(PutError::BadValue { what: format!("found \"{}\", expected {kind:?} elements", given.to_str()) })
            }
        }
    }

    fn check_scalar(&mut self, channel: &Channel, value: Scalar) -> Result<(), PutError> {
        let (rec, field) = (channel.record, channel.field);
        match self.records.def(rec, field).kind {
            Some(FieldType::Enum) if self.records.is_plain_number(rec) => {}
            Some(FieldType::Enum | FieldType::Menu | FieldType::Device) => {
                return self.choice(rec, field, value).map(drop);
            }
            Some(FieldType::String) => return Ok(()),
            _ => {}
        }
        with_number!(self.records.slot(rec, field), place => {
            let mut probe = *place;
            probe.clone_from(&conv::number(value).ok_or_else(|| super::put::bad_number(value))?);
        },
            Slot::Str(_) | Slot::Text(_) => {},
            Slot::None | Slot::Link(_) | Slot::Array(_) => return Err(PutError::NoModify),
        );
        Ok(())
    }
}

/// Gives an empty array one element.
fn make_room(array: &mut Array) {
    let kind = array.kind();
    if array.is_empty() {
        *array = Array::zeros(kind, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Macros, Now};
    use base::Str40;

    const RECORDS: &str = r#"
record(ao, "ao") { field(VAL, "1") }
record(longout, "closed") { field(DISP, "1") }
record(mbbo, "mbbo") { field(ZRST, "zero") field(ONST, "one") }
record(waveform, "wave") { field(FTVL, "LONG") field(NELM, "4") }
record(lso, "text") {}
"#;

    #[test]
    fn a_check_fails_exactly_where_the_write_fails_and_changes_nothing() {
        let mut db = Db::new();
        db.load_records(RECORDS, "test.db", &Macros::default(), &mut |_| None).unwrap();
        db.init(Now::default());
        let text = |text: &str| Value::Scalar(Scalar::String(Str40::from(text)));
        let values = [
            text("2"),
            text("one"),
            text("many"),
            text(""),
            Value::from(3.0),
            Value::from(-1.0),
            Value::from(vec![1, 2, 3]),
            Value::Array(Array::String(vec![Str40::from("x")])),
            Value::Scalar(Scalar::Enum(1)),
        ];
        for name in ["ao", "ao.SCAN", "ao.NAME", "ao.PREC", "ao.EGU", "closed", "closed.DISP", "mbbo", "wave", "text"] {
            let channel = db.find(name).unwrap();
            for value in &values {
                let before = db.get(&channel, usize::MAX);
                let checked = db.check_write(&channel, value);
                assert_eq!(db.get(&channel, usize::MAX), before, "{name} {value:?}");
                let written = db.put(&channel, value, Now::default());
                assert_eq!(checked.is_ok(), written.is_ok(), "{name} {value:?}: {checked:?}, {written:?}");
                // Not disabled for the next one.
                let disp = db.find("closed.DISP").unwrap();
                db.put(&disp, &Value::from(1), Now::default()).unwrap();
            }
        }
    }
}
