//! What an output holds when it starts: the value that its device has, without writing it there.

use crate::model::id::RecId;
use crate::run::channel::Channel;
use crate::run::engine::{Db, Now};
use crate::run::filter::Filters;
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{EventMask, Stamp, Value};

impl Db {
    /// The device of an output record says what the record is to begin with: VAL and what follows from it are set, UDF is
    /// cleared, clients are told. Nothing is written, no link is followed, the alarm stays until the record is processed.
    /// Whole numbers of at most 32 bits are raw. A record that was processed meanwhile, or is being, keeps what it has.
    /// The value comes back, to be freed elsewhere.
    ///
    /// Real-time: does not block; allocates for arrays and long texts.
    pub fn start_with(&mut self, rec: RecId, fed: DeviceSample) -> Option<DeviceSample> {
        let common = &self.records[rec];
        if common.removed || common.pact != 0 || common.time != Stamp::EPOCH {
            return Some(fed);
        }
        if self.take_from_device(rec, &fed) {
            crate::rec::begin(self, rec);
            self.post_value(rec, EventMask::VALUE | EventMask::LOG);
        }
        Some(fed)
    }

    /// Writes a field as a device does (dbPut): nothing is processed, DISP is not obeyed.
    ///
    /// # Errors
    /// When the field cannot be written or the value does not fit it.
    pub fn put_by_device(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.time.now = now;
        self.put_value(channel, value)
    }

    /// As [`put_by_device`](Self::put_by_device), for what a record begins with: it is no longer undefined.
    ///
    /// # Errors
    /// As there.
    pub fn begin_with(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.put_by_device(channel, value, now)?;
        let common = &mut self.records[channel.record];
        (common.udf, common.sevr, common.stat) = (0, 0, 0);
        Ok(())
    }

    /// An output's value is what its device says it has: VAL and UDF are set, whole numbers of at most 32 bits go through the
    /// record's conversion and stand in RVAL and RBV. Whether there is a value that the record can hold.
    pub(crate) fn take_from_device(&mut self, rec: RecId, fed: &DeviceSample) -> bool {
        let Some(given) = fed.value.as_ref() else { return false };
        let value = crate::rec::from_device(self, rec, fed).map(Value::Scalar);
        let val = self.records.type_of(rec).val;
        let record = rec;
        let channel = Channel { record, field: val, long_string: false, type_name: false, filters: Filters::default() };
        if self.put_value(&channel, value.as_ref().unwrap_or(given)).is_err() {
            return false;
        }
        self.records[rec].udf = 0;
        if let Some(raw) = fed.raw() {
            self.records.read_back(rec, raw);
        }
        true
    }
}
