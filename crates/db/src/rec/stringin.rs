//! stringin record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::record;
use base::Str40;

record! {
    /// The fields of a stringin record.
    StringIn {
        val: Str40 [VAL],
        oval: Str40 [OVAL],
        inp: Link [INP],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sval: Str40 [SVAL],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
