//! calcout record.

use crate::deadband::Limits;
use crate::link::Link;
use crate::slot::{Text, record};

record! {
    /// The fields of a calcout record.
    CalcOut {
        val: f64 [VAL],
        pval: f64 [PVAL],
        calc: Text<160> [CALC],
        clcv: i32 [CLCV],
        inp: [Link; 21] [INPA INPB INPC INPD INPE INPF INPG INPH INPI INPJ INPK INPL INPM INPN INPO INPP INPQ INPR INPS INPT INPU],
        out: Link [OUT],
        inv: [u16; 21] [INAV INBV INCV INDV INEV INFV INGV INHV INIV INJV INKV INLV INMV INNV INOV INPV INQV INRV INSV INTV INUV],
        outv: u16 [OUTV],
        oopt: u16 [OOPT],
        odly: f64 [ODLY],
        dlya: u16 [DLYA],
        dopt: u16 [DOPT],
        ocal: Text<160> [OCAL],
        oclv: i32 [OCLV],
        oevt: Text<40> [OEVT],
        ivoa: u16 [IVOA],
        ivov: f64 [IVOV],
        egu: Text<16> [EGU],
        prec: i16 [PREC],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        a: [f64; 21] [A B C D E F G H I J K L M N O P Q R S T U],
        oval: f64 [OVAL],
        la: [f64; 21] [LA LB LC LD LE LF LG LH LI LJ LK LL LM LN LO LP LQ LR LS LT LU],
        povl: f64 [POVL],
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
