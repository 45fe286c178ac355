//! seq record.

use crate::link::Link;
use crate::slot::record;

record! {
    /// The fields of a seq record.
    Seq {
        val: i32 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        sell: Link [SELL],
        offs: i16 [OFFS],
        shft: i16 [SHFT],
        oldn: u16 [OLDN],
        prec: i16 [PREC],
        dly: [f64; 16] [DLY0 DLY1 DLY2 DLY3 DLY4 DLY5 DLY6 DLY7 DLY8 DLY9 DLYA DLYB DLYC DLYD DLYE DLYF],
        dol: [Link; 16] [DOL0 DOL1 DOL2 DOL3 DOL4 DOL5 DOL6 DOL7 DOL8 DOL9 DOLA DOLB DOLC DOLD DOLE DOLF],
        dov: [f64; 16] [DO0 DO1 DO2 DO3 DO4 DO5 DO6 DO7 DO8 DO9 DOA DOB DOC DOD DOE DOF],
        lnk: [Link; 16] [LNK0 LNK1 LNK2 LNK3 LNK4 LNK5 LNK6 LNK7 LNK8 LNK9 LNKA LNKB LNKC LNKD LNKE LNKF],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
