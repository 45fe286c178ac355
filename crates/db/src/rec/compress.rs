//! compress record.

use crate::link::Link;
use crate::slot::{Text, record};
use base::Array;

record! {
    /// The fields of a compress record.
    Compress {
        val: Array [VAL],
        inp: Link [INP],
        res: i16 [RES],
        alg: u16 [ALG],
        pbuf: u16 [PBUF],
        balg: u16 [BALG],
        nsam: u32 [NSAM],
        n: u32 [N],
        ihil: f64 [IHIL],
        ilil: f64 [ILIL],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        prec: i16 [PREC],
        egu: Text<16> [EGU],
        off: u32 [OFF],
        nuse: u32 [NUSE],
        ouse: u32 [OUSE],
        inpn: i32 [INPN],
        cvb: f64 [CVB],
        inx: u32 [INX],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}

pub(crate) fn ordered(db: &mut crate::engine::Db, rec: u32, max: usize) -> Array {
    let body = db.common[rec as usize].body as usize;
    let mut all = db.bodies.compress[body].val.clone();
    all.truncate(max);
    all
}
