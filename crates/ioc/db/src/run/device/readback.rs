//! Initial values of outputs, read from their devices.

use crate::model::id::RecId;
use crate::rec::message::Message;
use crate::run::channel::{Channel, Processing};
use crate::run::engine::{Db, Now};
use crate::run::filter::Filters;
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{EventMask, Stamp, Value};

impl Db {
    /// Sets the initial value of an output record from its device: VAL and dependent fields are set, UDF is cleared, monitors
    /// are posted. Nothing is written and no link is followed. The alarm stays until the record is processed. Whole numbers
    /// of at most 32 bits are raw. A record that is active or was processed before keeps its value. Returns the sample, so
    /// that the caller can free it elsewhere.
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

    /// Like [`start_with`](Self::start_with), after a connect to the device: also for a record that was processed before. The
    /// alarm is cleared and the record is stamped. A record that is active keeps its value, because it is being written.
    ///
    /// Real-time: as [`start_with`](Self::start_with).
    pub fn refresh_with(&mut self, rec: RecId, fed: DeviceSample) -> Option<DeviceSample> {
        let common = &self.records[rec];
        if common.removed || common.pact != 0 {
            return Some(fed);
        }
        if self.take_from_device(rec, &fed) {
            crate::rec::begin(self, rec);
            match crate::rec::stamp_by_device(self, rec) {
                true => self.records[rec].time = fed.stamp,
                false => self.stamp_now(rec),
            }
            let common = &mut self.records[rec];
            (common.nsta, common.nsev, common.namsg) = (0, 0, Message::NONE);
            let mask = self.reset_alarms(rec);
            self.post_value(rec, mask | EventMask::VALUE | EventMask::LOG);
        }
        Some(fed)
    }

    /// Writes a field on behalf of a device (dbPut). The record is not processed and DISP is ignored.
    ///
    /// # Errors
    /// If the field cannot be written or the value does not fit.
    pub fn put_by_device(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.time.now = now;
        self.put_value(channel, value)
    }

    /// Like [`put_by_device`](Self::put_by_device), for an initial value: also clears UDF and the alarm.
    ///
    /// # Errors
    /// As [`put_by_device`](Self::put_by_device).
    pub fn begin_with(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.put_by_device(channel, value, now)?;
        let common = &mut self.records[channel.record];
        (common.udf, common.sevr, common.stat) = (0, 0, 0);
        Ok(())
    }

    /// Sets an output's VAL and UDF from the value of its device. Whole numbers of at most 32 bits pass the record's
    /// conversion and are stored in RVAL and RBV. Returns whether there is a value that fits the record.
    pub(crate) fn take_from_device(&mut self, rec: RecId, fed: &DeviceSample) -> bool {
        let Some(given) = fed.value.as_ref() else { return false };
        let value = crate::rec::from_device(self, rec, fed).map(Value::Scalar);
        let val = self.records.type_of(rec).val;
        let record = rec;
        let channel = Channel {
            record,
            field: val,
            long_string: false,
            type_name: false,
            filters: Filters::default(),
            processing: Processing::Passive,
        };
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
