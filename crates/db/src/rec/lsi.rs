//! lsi record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::record;
use base::Array;

record! {
    /// The fields of a lsi record.
    Lsi {
        val: Array [VAL],
        oval: Array [OVAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        olen: u32 [OLEN],
        inp: Link [INP],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}

pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}

pub(crate) fn set_len(_: &mut crate::engine::Db, _: u32) {}
