//! longin record.

use super::whole::{whole_input, whole_monitor};
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::{
    Body, Properties, ReadOutcome, RecId, RecordType, Sim, cannot_read, check_limits_filtered, init_sim,
    number_properties, read_input, read_soft,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use base::{EventMask, FieldType};

whole_input!(LongIn, i32;
    const GENERAL_TIMES: &'static [&'static str] = &["GETERRCNT"];
);
