//! aai record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::{Text, record};
use base::Array;

record! {
    /// The fields of a aai record.
    Aai {
        val: Array [VAL],
        prec: i16 [PREC],
        inp: Link [INP],
        egu: Text<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        nelm: u32 [NELM],
        ftvl: u16 [FTVL],
        nord: u32 [NORD],
        mpst: u16 [MPST],
        apst: u16 [APST],
        hash: u32 [HASH],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
