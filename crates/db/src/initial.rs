//! What an output holds when it starts: the value that its device has, without writing it there.

use crate::channel::{Channel, RecId};
use crate::engine::Db;
use crate::filter::Filters;
use crate::record::Kind;
use crate::scan::Fed;
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
        let (kind, body) = (common.kind(), common.body as usize);
        let Some(given) = fed.value.as_ref() else { return Some(fed) };
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
        let channel = Channel { record, field: val, long_string: false, type_name: false, filters: Filters::default() };
        if self.put_value(&channel, value.as_ref().unwrap_or(given)).is_ok() {
            self.common[rec as usize].udf = 0;
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
}

/// A number of a device, where it is one.
pub(crate) fn number(scalar: Scalar) -> f64 {
    scalar.to_f64().unwrap_or(f64::NAN)
}
