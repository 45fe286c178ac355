//! subArray record.

use crate::link::Link;
use crate::slot::{Text, record};
use base::Array;

record! {
    /// The fields of a subArray record.
    SubArray {
        val: Array [VAL],
        prec: i16 [PREC],
        ftvl: u16 [FTVL],
        inp: Link [INP],
        egu: Text<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        malm: u32 [MALM],
        nelm: u32 [NELM],
        indx: u32 [INDX],
        busy: i16 [BUSY],
        nord: i32 [NORD],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
