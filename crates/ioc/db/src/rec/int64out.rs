//! int64out record.

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
    /// Fields of an int64out record.
    Int64Out {
        val: i64 [VAL],
        out: Link [OUT],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        egu: Inline<16> [EGU],
        drvh: i64 [DRVH],
        drvl: i64 [DRVL],
        hopr: i64 [HOPR],
        lopr: i64 [LOPR],
        adel: i64 [ADEL],
        mdel: i64 [MDEL],
        lalm: i64 [LALM],
        alst: i64 [ALST],
        mlst: i64 [MLST],
        ivoa: u16 [IVOA],
        ivov: i64 [IVOV],
        limits: Limits<i64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

whole_output!(Int64Out, i64, I64, |_: &mut Int64Out| {}, |_: &Int64Out| true, |_: &mut Int64Out| {};);
