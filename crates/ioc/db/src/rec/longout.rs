//! longout record.

use super::whole::{whole_monitor, whole_output};
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::properties::Limit;
use crate::rec::{
    Body, Properties, RecId, RecordType, Sim, check_limits, drive_stamped, init_sim, no_device, number_properties,
    output_mode, stamp_output,
};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use base::{EventMask, FieldType, Range, Scalar, Value};

record! {
    /// Fields of a longout record.
    LongOut {
        val: i32 [VAL],
        out: Link [OUT],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        egu: Inline<16> [EGU],
        drvh: i32 [DRVH],
        drvl: i32 [DRVL],
        hopr: i32 [HOPR],
        lopr: i32 [LOPR],
        adel: i32 [ADEL],
        mdel: i32 [MDEL],
        lalm: i32 [LALM],
        alst: i32 [ALST],
        mlst: i32 [MLST],
        ivoa: u16 [IVOA],
        ivov: i32 [IVOV],
        pval: i32 [PVAL],
        ooch: u16 [OOCH],
        oopt: u16 [OOPT],
        limits: Limits<i32> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    } private {
        first: bool,
    }
}

/// Whether OOPT requires an output.
fn due(r: &LongOut) -> bool {
    match r.oopt {
        0 => true,
        1 => r.first || r.val != r.pval,
        2 => r.val == 0,
        3 => r.val != 0,
        4 => r.val == 0 && r.pval != 0,
        5 => r.val != 0 && r.pval == 0,
        _ => false,
    }
}

whole_output!(
    LongOut,
    i32,
    I32,
    |r: &mut LongOut| {
        r.pval = r.val;
        r.first = true;
    },
    due,
    |r: &mut LongOut| {
        r.pval = r.val;
        r.first = false;
    };

    /// Called after OUT was written: with OOCH, the next processing writes unconditionally.
    fn link_put(db: &mut Db, _: RecId, body: Body<Self>, field: u16) {
        let r = &mut db.records[body];
        if field == Self::OUT && r.ooch != 0 {
            r.first = true;
        }
    }
);
