//! permissive record.

use crate::slot::{Text, record};

record! {
    /// The fields of a permissive record.
    Permissive {
        val: u16 [VAL],
        wflg: u16 [WFLG],
        labl: Text<20> [LABL],
        oval: u16 [OVAL],
        oflg: u16 [OFLG],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
