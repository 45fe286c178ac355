//! Saving and restoring field values across restarts (autosave).

use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::text::saved::{Saved, SavedValue};
use base::{Array, FieldType, Scalar, Str40, Value};

impl Db {
    /// Value of a channel in a text form that restores the same value.
    pub fn saved(&mut self, channel: &Channel) -> SavedValue {
        let (rec, field) = (channel.record, channel.field);
        let long = channel.long_string
            || self.records.is_long_text(rec, field)
            || self.records.def(rec, field).link_field().is_some();
        if long {
            return SavedValue::Text(self.get_long_text(channel));
        }
        match self.get(channel, usize::MAX) {
            Value::Scalar(scalar) => SavedValue::Text(text_of(scalar)),
            Value::Array(array) if array.len() == 1 => SavedValue::Text(array.get(0).map(text_of).unwrap_or_default()),
            Value::Array(array) => {
                SavedValue::Array((0..array.len()).filter_map(|at| array.get(at)).map(text_of).collect())
            }
        }
    }

    /// Restores values before records are initialised (pass 0). Call it between loading and [`init`](Db::init). Arrays wait
    /// for pass 1. Returns an error text, with channel and reason, for each value that could not be restored.
    pub fn restore_first(&mut self, values: &[Saved]) -> Vec<String> {
        let mut failed = Vec::new();
        let mut later = Vec::new();
        for saved in values {
            let result = match (&saved.value, self.find(&saved.name)) {
                (None, _) => Ok(()),
                (Some(_), Err(error)) => Err(error.to_string()),
                (Some(SavedValue::Text(text)), Ok(channel))
                    if !self.records.is_array(channel.record, channel.field)
                        && !self.records.is_long_text(channel.record, channel.field) =>
                {
                    self.load_value(channel.record, channel.field, text).map_err(|error| error.to_string())
                }
                (Some(_), Ok(_)) => {
                    later.push(saved.clone());
                    Ok(())
                }
            };
            if let Err(what) = result {
                failed.push(format!("{}: {what}", saved.name));
            }
        }
        self.restore_at_init(later);
        failed
    }

    /// Schedules values to be restored in the next [`init`](Db::init), after records are initialised and before any is
    /// processed (pass 1). Errors become notices.
    pub fn restore_at_init(&mut self, values: Vec<Saved>) {
        self.start.restores.extend(values);
    }

    /// Pass 1, for the records of this shard.
    pub(crate) fn restore_now(&mut self) {
        for saved in std::mem::take(&mut self.start.restores) {
            let Some(value) = &saved.value else { continue };
            let result = match self.find(&saved.name) {
                Ok(channel) if self.records[channel.record].is_remote => continue,
                Ok(channel) => self.restore(&channel, value).map_err(|error| error.to_string()),
                // A shard has only some of the records, so it skips unknown names. The housekeeping shard reports them.
                Err(_) if self.split.shard.is_some() => continue,
                Err(error) => Err(error.to_string()),
            };
            if let Err(what) = result {
                self.notice(format!("autosave: {}: {what}", saved.name));
            }
        }
    }

    /// Writes a saved value without processing.
    ///
    /// # Errors
    /// As [`Db::put`](Self::put).
    pub fn restore(&mut self, channel: &Channel, value: &SavedValue) -> Result<(), crate::PutError> {
        let (rec, field) = (channel.record, channel.field);
        match value {
            SavedValue::Text(text) if self.records.def(rec, field).link_field().is_some() => {
                self.put_link_field(rec, field, &base::raw::decode(text))
            }
            SavedValue::Text(text) if channel.long_string || self.records.is_long_text(rec, field) => {
                self.put_long_text(rec, field, text)
            }
            SavedValue::Text(text) => {
                let counted = matches!(
                    self.records.element_type(rec, field),
                    FieldType::Enum | FieldType::Menu | FieldType::Device | FieldType::U16
                );
                let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
                match number.filter(|_| counted) {
                    Some(number) => self.put_scalar(rec, field, Scalar::U16(number)),
                    None => self.put_scalar(rec, field, Scalar::String(Str40::new(text))),
                }
            }
            SavedValue::Array(elements) => {
                let array = Array::String(elements.iter().map(|element| Str40::new(element)).collect());
                self.put_array(rec, field, &array)
            }
        }
    }

    /// Like [`restore`](Self::restore), and then processes a passive record as a client's write does.
    ///
    /// # Errors
    /// As [`Db::put`](Self::put).
    pub fn restore_and_process(
        &mut self,
        channel: &Channel,
        value: &SavedValue,
        now: crate::Now,
    ) -> Result<(), crate::PutError> {
        self.restore(channel, value)?;
        let passive = self.records[channel.record].scan == 0;
        if passive && self.records.def(channel.record, channel.field).process_passive {
            self.process(channel.record, now);
        }
        Ok(())
    }

    /// Channels to be saved according to the records' info tags, such as `autosaveFields` with a list of field names.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Vec<String> {
        let mut all = Vec::new();
        for record in self.records() {
            for (_, fields) in self.info_tags(record).iter().filter(|(known, _)| known == tag) {
                let name = self.name_of(record);
                all.extend(
                    fields
                        .split([' ', ',', '\t', ';'])
                        .filter(|field| !field.is_empty())
                        .map(|field| format!("{name}.{field}")),
                );
            }
        }
        all
    }
}

/// A scalar in autosave's text format.
fn text_of(scalar: Scalar) -> Vec<u8> {
    match scalar {
        Scalar::String(text) => text.bytes().to_vec(),
        Scalar::F64(value) => general(value, 14, |text| text.parse() == Ok(value)),
        Scalar::F32(value) => general(value.into(), 7, |text| text.parse() == Ok(value)),
        Scalar::Enum(value) => value.to_string().into_bytes(),
        other => base::text::scalar(other, 0).bytes().to_vec(),
    }
}

/// Formats with as many digits as autosave, or with more if that is needed to restore the same value.
fn general(value: f64, digits: usize, is_same: impl Fn(&str) -> bool) -> Vec<u8> {
    let text = base::text::general(value, digits);
    let short = is_same(&text) || !value.is_finite();
    (if short { text } else { base::text::general(value, digits + 3) }).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::macros::Macros;
    use crate::text::saved::{parse_sav, write_sav};

    const DB: &str = r#"
        record(ao, "X:ao") { field(VAL, "1.5") field(PREC, "3") }
        record(mbbo, "X:mbbo") { field(ZRST, "zero") field(ONST, "one") field(TWST, "two") }
        record(stringout, "X:text") {}
        record(lso, "X:long") { field(SIZV, "200") }
        record(waveform, "X:wave") { field(FTVL, "DOUBLE") field(NELM, "4") }
        record(waveform, "X:words") { field(FTVL, "STRING") field(NELM, "4") }
        record(calc, "X:calc") { field(CALC, "A+1") field(INPA, "X:ao") field(PINI, "YES")
            info(autosaveFields, "CALC INPA SCAN") }
    "#;
    const NAMES: [&str; 9] =
        ["X:ao", "X:ao.PREC", "X:mbbo", "X:text", "X:long", "X:wave", "X:words", "X:calc.INPA", "X:calc.SCAN"];

    fn database() -> Db {
        let mut db = Db::new();
        db.load_records(DB, "t.db", &Macros::default(), &mut |_| None).unwrap();
        db
    }

    fn state(db: &mut Db) -> Vec<Saved> {
        let saved = |name: &&str| {
            let channel = db.find(name).unwrap();
            Saved { name: (*name).to_owned(), value: Some(db.saved(&channel)) }
        };
        NAMES.iter().map(saved).collect()
    }

    #[test]
    fn all_kinds_of_values_are_restored_in_either_pass() {
        let mut db = database();
        db.init(crate::Now::default());
        for (name, text) in [
            ("X:ao", "0.1"),
            ("X:ao.PREC", "5"),
            ("X:mbbo", "two"),
            ("X:text", "a \"b\"\\ c"),
            ("X:calc.SCAN", "1 second"),
        ] {
            let channel = db.find(name).unwrap();
            db.put_text(&channel, text, crate::Now::default()).unwrap();
        }
        let long = db.find("X:long").unwrap();
        db.put_text(&long, &"long ".repeat(20), crate::Now::default()).unwrap();
        for (name, value) in [("X:wave", vec!["1", "-2.5", "3e10"]), ("X:words", vec!["one two", "}\"", ""])] {
            let channel = db.find(name).unwrap();
            let elements = value.iter().map(|text| text.as_bytes().to_vec()).collect();
            db.restore(&channel, &SavedValue::Array(elements)).unwrap();
        }
        let before = state(&mut db);
        let text = write_sav("test", &before);
        let read = parse_sav(&text, "t.sav").unwrap();
        assert_eq!(read, before, "{text}");
        for pass in [0, 1] {
            let mut db = database();
            if pass == 0 {
                assert_eq!(db.restore_first(&read), [""; 0]);
            } else {
                db.restore_at_init(read.clone());
            }
            db.init(crate::Now::default());
            assert_eq!(state(&mut db), before, "pass {pass}: {:?}", db.take_notices());
            // Records processed at start read the restored values.
            let calc = db.find("X:calc").unwrap();
            assert_eq!(db.get(&calc, 1), Value::from(1.1));
        }
    }

    #[test]
    fn info_tags_name_fields() {
        assert_eq!(database().tagged("autosaveFields"), ["X:calc.CALC", "X:calc.INPA", "X:calc.SCAN"]);
    }
}
