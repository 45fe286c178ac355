//! sub record.

use crate::deadband::Limits;
use crate::link::Link;
use crate::slot::{Text, record};

record! {
    /// The fields of a sub record.
    Sub {
        val: f64 [VAL],
        inam: Text<40> [INAM],
        snam: Text<40> [SNAM],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        egu: Text<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        prec: i16 [PREC],
        brsv: u16 [BRSV],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        la: [f64; 21] [LA LB LC LD LE LF LG LH LI LJ LK LL LM LN LO LP LQ LR LS LT LU],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
