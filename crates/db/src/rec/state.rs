//! state record.

use crate::slot::{Text, record};

record! {
    /// The fields of a state record.
    State {
        val: Text<20> [VAL],
        oval: Text<20> [OVAL],
    }
}

/// Processing is not there yet; files with this type are refused.
pub(crate) fn process(db: &mut crate::engine::Db, rec: u32, _: usize, _: bool) -> crate::engine::Outcome {
    super::no_device(db, rec)
}
