//! What an output holds when it starts: the value that its device has, without writing it there.

use crate::rec::table::Kind;
use crate::run::channel::{Channel, RecId};
use crate::run::engine::{Db, Now};
use crate::run::filter::Filters;
use crate::run::scan::Fed;
use crate::text::error::PutError;
use base::{EventMask, Scalar, Stamp, Value};

impl Db {
    /// The device of an output record says what the record is to begin with: VAL and what follows from it are set, UDF is
    /// cleared, clients are told. Nothing is written, no link is followed, the alarm stays until the record is processed.
    /// Whole numbers of at most 32 bits are raw. A record that was processed meanwhile, or is being, keeps what it has.
    /// The value comes back, to be freed elsewhere.
    ///
    /// Real-time: does not block; allocates for arrays and long texts.
    pub fn start_with(&mut self, record: RecId, fed: Fed) -> Option<Fed> {
        let rec = record.0;
        let common = &self.common[rec as usize];
        if common.removed || common.pact != 0 || common.time != Stamp::EPOCH {
            return Some(fed);
        }
        if self.take_from_device(rec, &fed) {
            let (kind, body) = (self.common[rec as usize].kind(), self.common[rec as usize].body as usize);
            match kind {
                Kind::Ao => crate::rec::ao::begin(self, rec, body),
                Kind::Bo => crate::rec::bo::begin(self, body),
                Kind::Mbbo => crate::rec::mbbo::begin(self, rec, body),
                Kind::MbboDirect => crate::rec::mbbo_direct::begin(self, body),
                _ => {}
            }
            self.post_value(rec, EventMask::VALUE | EventMask::LOG);
        }
        Some(fed)
    }

    /// Writes a field as a device does (dbPut): nothing is processed, DISP is not obeyed.
    ///
    /// # Errors
    /// When the field cannot be written or the value does not fit it.
    pub fn put_by_device(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.now = now;
        self.put_value(channel, value)
    }

    /// As [`put_by_device`](Self::put_by_device), for what a record begins with: it is no longer undefined.
    ///
    /// # Errors
    /// As there.
    pub fn begin_with(&mut self, channel: &Channel, value: &Value, now: Now) -> Result<(), PutError> {
        self.put_by_device(channel, value, now)?;
        let common = &mut self.common[channel.record.0 as usize];
        (common.udf, common.sevr, common.stat) = (0, 0, 0);
        Ok(())
    }

    /// An output's value is what its device says it has: VAL and UDF are set, whole numbers of at most 32 bits go through the
    /// record's conversion and stand in RVAL and RBV. Whether there is a value that the record can hold.
    pub(crate) fn take_from_device(&mut self, rec: u32, fed: &Fed) -> bool {
        let (kind, body) = (self.common[rec as usize].kind(), self.common[rec as usize].body as usize);
        let Some(given) = fed.value.as_ref() else { return false };
        let raw = fed.raw();
        let value = match (kind, raw, fed.scalar()) {
            (Kind::Ao, Some(raw), _) => Some(crate::rec::ao::from_raw(self, rec, body, raw)),
            (Kind::Ao, None, Some(number)) => Some(crate::rec::ao::from_device(self, body, number)),
            (Kind::Bo, Some(raw), _) => Some(crate::rec::bo::from_raw(self, body, raw as u32)),
            (Kind::Mbbo, Some(raw), _) => Some(crate::rec::mbbo::from_raw(self, body, raw as u32)),
            (Kind::MbboDirect, Some(raw), _) => Some(crate::rec::mbbo_direct::from_raw(self, body, raw as u32)),
            _ => None,
        };
        let value = value.map(Value::Scalar);
        let val = self.type_of(rec).val;
        let record = RecId(rec);
        let channel = Channel { record, field: val, long_string: false, type_name: false, filters: Filters::default() };
        if self.put_value(&channel, value.as_ref().unwrap_or(given)).is_err() {
            return false;
        }
        self.common[rec as usize].udf = 0;
        let Some(raw) = raw else { return true };
        let masked = |mask: u32| if mask == 0 { raw as u32 } else { raw as u32 & mask };
        match kind {
            Kind::Ao => {
                let r = &mut self.bodies.ao[body];
                (r.rval, r.rbv) = (raw, raw);
            }
            Kind::Bo => {
                let r = &mut self.bodies.bo[body];
                r.rval = masked(r.mask);
                r.rbv = r.rval;
            }
            Kind::Mbbo => {
                let r = &mut self.bodies.mbbo[body];
                r.rval = masked(r.mask);
                r.rbv = r.rval;
            }
            Kind::MbboDirect => {
                let r = &mut self.bodies.mbbo_direct[body];
                r.rval = masked(r.mask);
                r.rbv = r.rval;
            }
            _ => {}
        }
        true
    }
}

/// A number of a device, where it is one.
pub(crate) fn number(scalar: Scalar) -> f64 {
    scalar.to_f64().unwrap_or(f64::NAN)
}
