//! mbbiDirect record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::record;

record! {
    /// The fields of a mbbiDirect record.
    MbbiDirect {
        val: i32 [VAL],
        nobt: i16 [NOBT],
        inp: Link [INP],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        mask: u32 [MASK],
        mlst: i32 [MLST],
        shft: u16 [SHFT],
        sval: i32 [SVAL],
        b: [u8; 32] [B0 B1 B2 B3 B4 B5 B6 B7 B8 B9 BA BB BC BD BE BF B10 B11 B12 B13 B14 B15 B16 B17 B18 B19 B1A B1B B1C B1D B1E B1F],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
