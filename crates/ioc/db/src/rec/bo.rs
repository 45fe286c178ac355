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
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use base::{FieldType, Range, Scalar, Status, Str40, Value};

binary_output!(Bo, |_: &Bo, failed: bool| if failed { ProcessResult::Failed } else { ProcessResult::Done };);
