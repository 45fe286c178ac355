//! waveform record.

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
    /// Fields of a waveform record.
    Waveform {
        val: Array [VAL],
        rarm: i16 [RARM],
        prec: i16 [PREC],
        inp: Link [INP],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        nelm: u32 [NELM],
        ftvl: u16 [FTVL],
        busy: i16 [BUSY],
        nord: u32 [NORD],
        mpst: u16 [MPST],
        apst: u16 [APST],
        hash: u32 [HASH],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

array_input!(
    Waveform, start_empty;

    array_properties!(
        NORD: |r: &Self, of: Properties| of.within(0.0, r.nelm.into()),
        BUSY: |_, of: Properties| of.within(0.0, 1.0),
    );
);

impl Waveform {
    /// A constant SIOL gives a waveform no elements.
    const EMPTY_WHEN_SIMULATED_BY_NOTHING: bool = true;
}

/// Without a constant, no element is valid.
fn start_empty(r: &mut Waveform) {
    r.nord = 0;
    r.val.truncate(0);
}
