//! printf record.

use crate::link::Link;
use crate::slot::{Text, record};
use base::Array;

record! {
    /// The fields of a printf record.
    Printf {
        val: Array [VAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        out: Link [OUT],
        fmt: Text<81> [FMT],
        ivls: Text<16> [IVLS],
        inp: [Link; 10] [INP0 INP1 INP2 INP3 INP4 INP5 INP6 INP7 INP8 INP9],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
