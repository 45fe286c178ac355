//! aai record.

use super::arrays::{array_input, array_monitor, array_properties, hash_of, kind_of, mask, set};
use crate::model::link::Link;
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::{
    Body, Mode, Properties, RecId, RecordType, Sim, init_sim, mode, no_device, stamp_by_device, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::link::LinkError;
use crate::run::notify::ReadResult;
use base::{Array, EventMask, FieldType};

record! {
    /// Fields of an aai record.
    Aai {
        val: Array [VAL],
        prec: i16 [PREC],
        inp: Link [INP],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        nelm: u32 [NELM],
        ftvl: u16 [FTVL],
        nord: u32 [NORD],
        mpst: u16 [MPST],
        apst: u16 [APST],
        hash: u32 [HASH],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

array_input!(
    Aai, start_empty;

    array_properties!(NORD: |r: &Self, of: Properties| of.within(0.0, r.nelm.into()));
);

impl Aai {
    const EMPTY_WHEN_SIMULATED_BY_NOTHING: bool = false;
}

/// Without a constant, the array stays as it is: an array of one element has one valid element.
const fn start_empty(_: &mut Aai) {}
