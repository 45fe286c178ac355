//! histogram record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::record;
use base::Array;

record! {
    /// The fields of a histogram record.
    Histogram {
        val: Array [VAL],
        nelm: u16 [NELM],
        csta: i16 [CSTA],
        cmd: u16 [CMD],
        ulim: f64 [ULIM],
        llim: f64 [LLIM],
        wdth: f64 [WDTH],
        sgnl: f64 [SGNL],
        prec: i16 [PREC],
        svl: Link [SVL],
        mdel: i16 [MDEL],
        mcnt: i16 [MCNT],
        sdel: f64 [SDEL],
        sval: f64 [SVAL],
        hopr: u32 [HOPR],
        lopr: u32 [LOPR],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
