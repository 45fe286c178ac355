//! bo record.

use super::binary::{END_OF_HIGH, binary_output};
use super::bits::bits_output;
use crate::model::link::Link;
use crate::model::slot::{Lazy, Text, record};
use crate::rec::common::Common;
use crate::rec::{
    Body, Properties, RecId, RecordType, Sim, States, changed, drive_stamped, init_sim, no_device, output_mode,
    post_raw, stamp_output,
};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, Outcome};
use crate::run::scan::DeviceSample;
use base::{FieldType, Range, Scalar, Status, Str40, Value};

record! {
    /// The fields of a bo record.
    Bo {
        val: u16 [VAL],
        omsl: u16 [OMSL],
        dol: Link [DOL],
        out: Link [OUT],
        high: f64 [HIGH],
        znam: Text<26> [ZNAM],
        onam: Text<26> [ONAM],
        rval: u32 [RVAL],
        oraw: u32 [ORAW],
        mask: u32 [MASK],
        zsv: u16 [ZSV],
        osv: u16 [OSV],
        cosv: u16 [COSV],
        rbv: u32 [RBV],
        orbv: u32 [ORBV],
        mlst: u16 [MLST],
        lalm: u16 [LALM],
        ivoa: u16 [IVOA],
        ivov: u16 [IVOV],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

binary_output!(Bo, |_: &Bo, failed: bool| if failed { Outcome::Failed } else { Outcome::Done };);
