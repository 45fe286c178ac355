//! Processing steps shared by many record types.

use super::common::Common;
use super::message::Message;
use super::sim::{Mode, mode, stamp_input, stamp_output};
use super::{Bodies, Body, RecordType};
use crate::model::id::RecId;
use crate::model::link::ResolvedLink;
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use crate::run::scan::DeviceSample;
use crate::text::conv::Number;
use base::{EventMask, Scalar, Status};
use std::collections::HashMap;

/// Result of reading a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// A raw value, which must be converted.
    Raw,
    /// A value in engineering units.
    Value,
    /// No value; the alarm is raised.
    Failed,
    /// A callback will deliver the value.
    Pending,
}

impl ReadOutcome {
    /// Result of the processing after this read.
    #[inline]
    pub(crate) fn outcome(self) -> ProcessResult {
        if self == Self::Failed { ProcessResult::Failed } else { ProcessResult::Done }
    }
}

/// First steps of an input record: reads the device or the simulation, and stamps the record. `Err` ends the processing.
/// `raw`: whether raw values can be simulated.
#[inline]
pub(crate) fn read_input<T: RecordType>(
    db: &mut Db,
    rec: RecId,
    body: Body<T>,
    resumed: bool,
    raw: bool,
    read: impl FnOnce(&mut Db) -> ReadOutcome,
    simulated: impl FnOnce(&mut Db, u16) -> ReadOutcome,
) -> Result<ReadOutcome, ProcessResult> {
    let read = match mode(db, rec, body, resumed, raw) {
        Mode::Real => read(db),
        Mode::Simulated(simm) => simulated(db, simm),
        Mode::Delayed => ReadOutcome::Pending,
        Mode::Bad => ReadOutcome::Failed,
    };
    if read == ReadOutcome::Pending {
        return Err(ProcessResult::Pending);
    }
    if db.records[rec].broken {
        return Err(no_device(db, rec));
    }
    stamp_input(db, rec, body);
    Ok(read)
}

/// Reads an input through the link of Soft Channel or Async Soft Channel. `failed` is the result of the latter if the read
/// fails.
pub(crate) fn read_soft<T: Number>(
    db: &mut Db,
    rec: RecId,
    link: ResolvedLink,
    resumed: bool,
    failed: ReadOutcome,
    set: impl Fn(&mut Bodies, T),
) -> ReadOutcome {
    let value = if db.device(rec) == Device::SoftAsync {
        match db.async_get::<T>(rec, link, resumed) {
            ReadResult::Constant => return ReadOutcome::Value,
            ReadResult::Failed => return failed,
            ReadResult::Pending => return ReadOutcome::Pending,
            ReadResult::Value(value) => Some(value),
        }
    } else {
        match db.get_link::<T>(rec, link) {
            Ok(value) => value,
            Err(_) => return ReadOutcome::Failed,
        }
    };
    if let Some(value) = value {
        set(&mut db.records.bodies, value);
    }
    db.records[rec].udf = 0;
    take_stamp(db, rec, link);
    ReadOutcome::Value
}

/// Environment variable named by a device address; raises UDF and returns an empty text if it is not set.
pub(crate) fn environment<'a>(all: &'a HashMap<String, String>, common: &mut Common, address: &str) -> &'a str {
    let value = all.get(address.trim_start_matches('@').trim());
    common.udf = u8::from(value.is_none());
    if value.is_none() {
        common.raise_with(Status::Udf, common.udfs, Message::NO_ENV);
    }
    value.map_or("", String::as_str)
}

/// Leaves a record without device support active, as in EPICS.
#[cold]
pub(crate) fn no_device(db: &mut Db, rec: RecId) -> ProcessResult {
    db.records[rec].broken = true;
    ProcessResult::Broken
}

/// Leaves an input whose device support cannot read active, as in EPICS.
pub(crate) fn cannot_read(db: &mut Db, rec: RecId) -> ReadOutcome {
    db.records[rec].broken = true;
    ReadOutcome::Failed
}

/// State number that a device returned, as a name or as a number.
pub(crate) fn device_state(db: &Db, rec: RecId, fed: &DeviceSample) -> Option<u16> {
    match fed.scalar()? {
        Scalar::Enum(state) => Some(state),
        Scalar::String(text) => db.records.state_number(rec, text.to_str()),
        number => crate::text::conv::number(number),
    }
}

/// The device returned a state name that the record does not have.
pub(crate) fn no_state(db: &mut Db, rec: RecId) -> ReadOutcome {
    db.records[rec].raise(Status::Read, 3);
    ReadOutcome::Failed
}

/// Whether the device support provides the time stamp (TSE −2 and no TSEL).
#[inline]
pub(crate) fn stamp_by_device(db: &Db, rec: RecId) -> bool {
    let common = &db.records[rec];
    common.tse == -2 && common.rare.tsel.is_constant()
}

/// Takes the time stamp of a soft input's source if TSE is −2.
#[inline]
pub(crate) fn take_stamp(db: &mut Db, rec: RecId, link: ResolvedLink) {
    if db.records[rec].tse == -2 {
        take_stamp_of(db, rec, link);
    }
}

#[cold]
fn take_stamp_of(db: &mut Db, rec: RecId, link: ResolvedLink) {
    if stamp_by_device(db, rec)
        && let Some(stamp) = db.link_stamp(link)
    {
        db.records[rec].time = stamp;
    }
}

/// Action of an output with INVALID alarm (IVOA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// Write.
    Normally,
    /// Do not write.
    Not,
    /// Set IVOV, then write.
    Ivov,
}

/// Action that IVOA selects for the alarm raised by the record.
#[inline]
pub(crate) fn drive(db: &mut Db, rec: RecId, ivoa: u16) -> Drive {
    db.pass.failed = false;
    if db.records[rec].nsev < 3 {
        return Drive::Normally;
    }
    match ivoa {
        0 => Drive::Normally,
        2 => Drive::Ivov,
        _ => Drive::Not,
    }
}

/// Writes an output as IVOA selects; `ivov` sets VAL to IVOV. Stamps the record if this ends an earlier processing. Returns
/// whether the write failed; `None` if a callback is pending.
#[inline]
pub(crate) fn drive_stamped<T: RecordType>(
    db: &mut Db,
    (rec, body): (RecId, Body<T>),
    resumed: bool,
    ivoa: u16,
    ivov: impl FnOnce(&mut Db),
    write: impl FnOnce(&mut Db) -> bool,
) -> Option<bool> {
    if drive_output(db, rec, resumed, ivoa, ivov, write) {
        return None;
    }
    if resumed {
        stamp_output(db, rec, body);
    }
    Some(db.pass.failed)
}

/// Writes an output as IVOA selects; `ivov` sets VAL to IVOV. Returns whether a callback is pending.
#[inline]
pub(crate) fn drive_output(
    db: &mut Db,
    rec: RecId,
    resumed: bool,
    ivoa: u16,
    ivov: impl FnOnce(&mut Db),
    write: impl FnOnce(&mut Db) -> bool,
) -> bool {
    match drive(db, rec, ivoa) {
        Drive::Normally => write(db),
        Drive::Not => false,
        Drive::Ivov => {
            if !resumed {
                ivov(db);
            }
            write(db)
        }
    }
}

/// Stores a value as the last one posted. Returns whether it changed.
#[inline]
pub(crate) fn changed<T: PartialEq>(last: &mut T, now: T) -> bool {
    // As in C, an equal value is not stored: 0 is kept when −0 follows.
    let differs = *last != now;
    if differs {
        *last = now;
    }
    differs
}

/// Posts a text in VAL if it or the alarm changed. MPST (values) and APST (archive) set to Always post it on every
/// processing.
pub(crate) fn post_text(db: &mut Db, rec: RecId, alarm: EventMask, moved: bool, always: [u16; 2]) {
    let told = |when: u16, mask| if moved || when == 1 { mask } else { EventMask::NONE };
    let mask = alarm | told(always[0], EventMask::VALUE) | told(always[1], EventMask::LOG);
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
}

/// Posts VAL if it or the alarm changed, and the raw value and the readback if they changed.
pub(crate) fn post_raw(db: &mut Db, rec: RecId, alarm: EventMask, [value, raw, readback]: [bool; 3]) {
    let all = alarm | EventMask::VALUE | EventMask::LOG;
    let mask = if value { all } else { alarm };
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    if raw {
        db.post_named(rec, "RVAL", all);
    }
    if readback {
        db.post_named(rec, "RBV", all);
    }
}

/// Events for which VAL left its deadband: MDEL for values, ADEL for the archive.
macro_rules! deadbands {
    ($r:expr) => {
        crate::model::deadband::check(&mut $r.mlst, $r.val, $r.mdel, base::EventMask::VALUE)
            | crate::model::deadband::check(&mut $r.alst, $r.val, $r.adel, base::EventMask::LOG)
    };
}
pub(crate) use deadbands;

/// Checks the alarms of an analog record: first UDF, then the limits with hysteresis.
macro_rules! check_limits {
    ($common:expr, $r:ident) => {{
        let common = &mut $common;
        if common.udf != 0 {
            common.raise_undefined();
        } else {
            let (zone, severity, limit) = $r.limits.zone($r.val, $r.lalm);
            if severity == 0 {
                $r.lalm = $r.val;
            } else if common.raise(crate::model::deadband::status_of(zone), severity) {
                $r.lalm = limit;
            }
        }
    }};
}
pub(crate) use check_limits;

/// Like [`check_limits`], with the alarm filter AFTC. `$before` is the time stamp of the previous processing.
macro_rules! check_limits_filtered {
    ($common:expr, $r:ident, $before:ident) => {{
        let common = &mut $common;
        if common.udf != 0 {
            common.raise_undefined();
            $r.afvl = 0.0;
        } else {
            let mut found = $r.limits.zone($r.val, $r.lalm);
            if $r.aftc > 0.0 {
                found = $r.limits.filtered(found, $r.aftc, &mut $r.afvl, common.time, $before);
            } else {
                $r.afvl = 0.0;
            }
            let (zone, severity, limit) = found;
            if severity == 0 {
                $r.lalm = $r.val;
            } else if common.raise(crate::model::deadband::status_of(zone), severity) {
                $r.lalm = limit;
            }
        }
    }};
}
pub(crate) use check_limits_filtered;
