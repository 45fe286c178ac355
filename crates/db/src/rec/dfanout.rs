//! dfanout record.

use crate::deadband::Limits;
use crate::link::Link;
use crate::slot::{Text, record};

record! {
    /// The fields of a dfanout record.
    DFanout {
        val: f64 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        sell: Link [SELL],
        out: [Link; 16] [OUTA OUTB OUTC OUTD OUTE OUTF OUTG OUTH OUTI OUTJ OUTK OUTL OUTM OUTN OUTO OUTP],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        egu: Text<16> [EGU],
        prec: i16 [PREC],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        ivoa: u16 [IVOA],
        ivov: f64 [IVOV],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
