//! sel record.

use crate::deadband::Limits;
use crate::link::Link;
use crate::slot::{Text, record};

record! {
    /// The fields of a sel record.
    Sel {
        val: f64 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        prec: i16 [PREC],
        nvl: Link [NVL],
        inp: [Link; 12] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL],
        egu: Text<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 12] [A B C D E F G H I J K L],
        la: [f64; 12] [LA LB LC LD LE LF LG LH LI LJ LK LL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        nlst: u16 [NLST],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
