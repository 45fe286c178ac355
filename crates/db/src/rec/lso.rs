//! lso record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::{Text, record};
use base::Array;

record! {
    /// The fields of a lso record.
    Lso {
        val: Array [VAL],
        oval: Array [OVAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        olen: u32 [OLEN],
        dol: Link [DOL],
        ivoa: u16 [IVOA],
        ivov: Text<40> [IVOV],
        omsl: u16 [OMSL],
        out: Link [OUT],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
