//! int64in record.

use super::whole::{whole_input, whole_monitor};
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::{
    Body, Properties, Read, RecId, RecordType, Sim, cannot_read, check_limits_filtered, init_sim, number_properties,
    read_input, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, Outcome};
use crate::run::notify::Got;
use base::{EventMask, FieldType};

record! {
    /// The fields of a int64in record.
    Int64In {
        val: i64 [VAL],
        inp: Link [INP],
        egu: Inline<16> [EGU],
        hopr: i64 [HOPR],
        lopr: i64 [LOPR],
        aftc: f64 [AFTC],
        afvl: f64 [AFVL],
        adel: i64 [ADEL],
        mdel: i64 [MDEL],
        lalm: i64 [LALM],
        alst: i64 [ALST],
        mlst: i64 [MLST],
        sval: i64 [SVAL],
        limits: Limits<i64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

whole_input!(Int64In, i64;);
