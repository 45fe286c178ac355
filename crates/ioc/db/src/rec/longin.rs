//! longin record.

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
    /// The fields of a longin record.
    LongIn {
        val: i32 [VAL],
        inp: Link [INP],
        egu: Inline<16> [EGU],
        hopr: i32 [HOPR],
        lopr: i32 [LOPR],
        aftc: f64 [AFTC],
        afvl: f64 [AFVL],
        adel: i32 [ADEL],
        mdel: i32 [MDEL],
        lalm: i32 [LALM],
        alst: i32 [ALST],
        mlst: i32 [MLST],
        sval: i32 [SVAL],
        limits: Limits<i32> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

whole_input!(LongIn, i32;
    const GENERAL_TIMES: &'static [&'static str] = &["GETERRCNT"];
);
