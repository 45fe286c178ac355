//! mbbo record.

use crate::link::Link;
use crate::rec::Sim;
use crate::slot::{Text, record};

record! {
    /// The fields of a mbbo record.
    Mbbo {
        val: u16 [VAL],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        nobt: u16 [NOBT],
        out: Link [OUT],
        values: [u32; 16] [ZRVL ONVL TWVL THVL FRVL FVVL SXVL SVVL EIVL NIVL TEVL ELVL TVVL TTVL FTVL FFVL],
        names: [Text<26>; 16] [ZRST ONST TWST THST FRST FVST SXST SVST EIST NIST TEST ELST TVST TTST FTST FFST],
        severities: [u16; 16] [ZRSV ONSV TWSV THSV FRSV FVSV SXSV SVSV EISV NISV TESV ELSV TVSV TTSV FTSV FFSV],
        unsv: u16 [UNSV],
        cosv: u16 [COSV],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        rbv: u32 [RBV],
        orbv: u32 [ORBV],
        mask: u32 [MASK],
        mlst: u16 [MLST],
        lalm: u16 [LALM],
        sdef: i16 [SDEF],
        shft: u16 [SHFT],
        ivoa: u16 [IVOA],
        ivov: u16 [IVOV],
        sim: Sim [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
