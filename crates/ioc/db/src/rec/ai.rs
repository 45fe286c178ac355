//! ai record.

use super::breaks;
use crate::model::deadband::Limits;
use crate::model::link::{Link, LinkKind, ResolvedLink};
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::{
    Body, Mode, Properties, ReadOutcome, RecId, RecordType, Sim, cannot_read, check_limits_filtered, deadbands,
    init_sim, mode, no_device, number_properties, read_simulated, simulation, stamp_input, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::notify::ReadResult;
use crate::run::scan::DeviceSample;
use crate::text::conv;
use crate::text::error::PutError;
use base::{EventMask, FieldType, Status, Str40};

record! {
    /// Fields of an ai record.
    ///
    /// The order matters for the cache: the fields used on every processing are adjacent, starting with the severities of
    /// `limits`.
    #[repr(C)]
    Ai {
        eguf: f64 [EGUF],
        egul: f64 [EGUL],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        aoff: f64 [AOFF],
        aslo: f64 [ASLO],
        eslo: f64 [ESLO],
        eoff: f64 [EOFF],
        sval: f64 [SVAL],
        roff: u32 [ROFF],
        prec: i16 [PREC],
        lbrk: i16 [LBRK],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        inp: Link [INP],
        val: f64 [VAL],
        smoo: f64 [SMOO],
        aftc: f64 [AFTC],
        afvl: f64 [AFVL],
        lalm: f64 [LALM],
        adel: f64 [ADEL],
        alst: f64 [ALST],
        mdel: f64 [MDEL],
        mlst: f64 [MLST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
        rval: i32 [RVAL],
        oraw: i32 [ORAW],
        linr: u16 [LINR],
        init: i16 [INIT],
    } private {
        smooth: bool,
    }
}

impl RecordType for Ai {
    const GENERAL_TIMES: &'static [&'static str] = &["TIME"];

    simulation!();

    /// Start: loads constants, sets up the conversion and the last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        init_sim(db, rec, body);
        let device = db.device(rec);
        let (common, r) = db.records.both(rec, body);
        if let Some(sval) = r.sim.siol.number() {
            r.sval = sval;
        }
        if device == Device::Missing {
            return;
        }
        r.init = 1;
        let slope = (r.eslo, r.eoff);
        if r.eslo == 1.0 && r.eoff == 0.0 {
            r.eoff = r.egul;
        }
        match device {
            Device::SoftRaw => {
                if let Some(rval) = r.inp.number() {
                    r.rval = rval;
                }
            }
            Device::Soft | Device::SoftAsync => {
                if let Some(val) = r.inp.number() {
                    r.val = val;
                    common.udf = 0;
                }
            }
            _ => {}
        }
        // With LINR = SLOPE, ESLO and EOFF keep the values of the file.
        if r.linr == 1 {
            (r.eslo, r.eoff) = slope;
        }
        // EPICS returns before it sets the last values if the device support has its own initialization.
        if device == Device::SoftTimestamp {
            r.mlst = r.val;
            r.alst = r.val;
            r.lalm = r.val;
            r.oraw = r.rval;
        }
    }

    /// Reads the device or link, converts, checks alarm limits, posts monitors.
    #[inline]
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        let before = db.records[rec].time;
        let read = match mode(db, rec, body, resumed, true) {
            Mode::Real => read(db, rec, body, resumed),
            Mode::Simulated(simm) => simulated(db, rec, body, simm),
            Mode::Delayed => ReadOutcome::Pending,
            Mode::Bad => ReadOutcome::Failed,
        };
        match read {
            ReadOutcome::Pending => return ProcessResult::Pending,
            ReadOutcome::Raw => convert(db, rec, body),
            ReadOutcome::Value | ReadOutcome::Failed => {}
        }
        let (mut common, mut r) = db.records.both(rec, body);
        if !(r.sim.rests() && common.stamp(&db.time)) {
            stamp_input(db, rec, body);
            (common, r) = db.records.both(rec, body);
        }
        if read != ReadOutcome::Failed {
            common.udf = u8::from(r.val.is_nan());
        }
        check_limits_filtered!(*common, r, before);
        r.init = 0;
        let mask = deadbands!(r);
        let stays = common.alarm_stays();
        if stays && common.monitors == 0 {
            if !mask.is_empty() {
                r.oraw = r.rval;
            }
        } else {
            monitor(db, rec, body, mask, stays);
        }
        if read == ReadOutcome::Failed {
            return if db.records[rec].broken { no_device(db, rec) } else { ProcessResult::Failed };
        }
        ProcessResult::Done
    }

    /// A change of the conversion resets it.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if after && matches!(field, Self::LINR | Self::EGUF | Self::EGUL) {
            db.records[body].init = 1;
            db.scale_raw(rec);
        }
        Ok(())
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let of = number_properties!(self, field, kind, Self::SVAL).digits(self.prec, field == Self::VAL);
        let units = if matches!(field, Self::ASLO | Self::AOFF | Self::SMOO) { Str40::EMPTY } else { of.units };
        Properties { units, ..of }
    }

    #[inline]
    fn double_val(&self) -> Option<f64> {
        Some(self.val)
    }
}

#[inline]
fn read(db: &mut Db, rec: RecId, body: Body<Ai>, resumed: bool) -> ReadOutcome {
    let link = db.records[body].inp.brief();
    match db.device(rec) {
        Device::Soft => {
            if link.kind == LinkKind::Constant {
                return ReadOutcome::Value;
            }
            let Ok(Some(value)) = db.get_link::<f64>(rec, link) else {
                db.records[body].smooth = false;
                return ReadOutcome::Failed;
            };
            take(db, rec, body, link, value);
            ReadOutcome::Value
        }
        Device::SoftRaw => match db.get_link::<i32>(rec, link) {
            Ok(value) => {
                if let Some(value) = value {
                    db.records[body].rval = value;
                }
                take_stamp(db, rec, link);
                ReadOutcome::Raw
            }
            Err(_) => ReadOutcome::Failed,
        },
        Device::SoftAsync => match db.async_get::<f64>(rec, link, resumed) {
            ReadResult::Constant => ReadOutcome::Value,
            ReadResult::Pending => ReadOutcome::Pending,
            ReadResult::Failed => {
                db.records[body].smooth = false;
                ReadOutcome::Value
            }
            ReadResult::Value(value) => {
                take(db, rec, body, link, value);
                ReadOutcome::Value
            }
        },
        Device::External => match db.device_read(rec, resumed) {
            ReadResult::Pending => ReadOutcome::Pending,
            ReadResult::Value(fed) => device_value(db, body, &fed),
            ReadResult::Constant | ReadResult::Failed => ReadOutcome::Failed,
        },
        Device::SoftTimestamp => {
            db.stamp_now(rec);
            let time = db.records[rec].time;
            db.records[body].val = f64::from(time.secs) + f64::from(time.nanos) * 1e-9;
            ReadOutcome::Value
        }
        Device::GeneralTime => {
            let wall = db.time.now.wall;
            db.records[body].val = f64::from(wall.secs) + f64::from(wall.nanos) * 1e-9;
            ReadOutcome::Value
        }
        _ => cannot_read(db, rec),
    }
}

/// Takes a device value: whole numbers are raw; others are engineering units, to which only AOFF and ASLO are applied.
fn device_value(db: &mut Db, body: Body<Ai>, fed: &DeviceSample) -> ReadOutcome {
    let r = &mut db.records[body];
    if let Some(raw) = fed.raw() {
        r.rval = raw;
        return ReadOutcome::Raw;
    }
    let Some(value) = fed.scalar().and_then(conv::number::<f64>) else { return ReadOutcome::Failed };
    let slope = if r.aslo == 0.0 { 1.0 } else { r.aslo };
    let value = value * slope + r.aoff;
    smooth(db, body, value);
    ReadOutcome::Value
}

/// Takes the value read by a soft input.
#[inline]
fn take(db: &mut Db, rec: RecId, body: Body<Ai>, link: ResolvedLink, value: f64) {
    smooth(db, body, value);
    db.records[rec].udf = 0;
    take_stamp(db, rec, link);
}

/// Sets a new value, smoothed with the previous ones (SMOO).
#[inline]
fn smooth(db: &mut Db, body: Body<Ai>, value: f64) {
    let r = &mut db.records[body];
    let before = (r.smoo != 0.0 && r.smooth && r.val.is_finite()).then_some(r.val);
    r.val = before.map_or(value, |before| value * (1.0 - r.smoo) + before * r.smoo);
    r.smooth = true;
}

fn simulated(db: &mut Db, rec: RecId, body: Body<Ai>, simm: u16) -> ReadOutcome {
    read_simulated(db, rec, body, Db::get_link::<f64>, |db, value| {
        let r = &mut db.records[body];
        r.sval = value.unwrap_or(r.sval);
        if simm == 1 {
            r.val = r.sval;
            return ReadOutcome::Value;
        }
        r.rval = conv::to_i64(r.sval.floor()) as i32;
        ReadOutcome::Raw
    })
}

/// Converts the raw value to engineering units.
#[cold]
fn convert(db: &mut Db, rec: RecId, body: Body<Ai>) {
    let r = &mut db.records.bodies[body];
    let mut value = f64::from(r.rval) + f64::from(r.roff);
    if r.aslo != 0.0 {
        value *= r.aslo;
    }
    value += r.aoff;
    match r.linr {
        0 => {}
        1 | 2 => value = value * r.eslo + r.eoff,
        linr => {
            if !breaks::raw_to_eng(&db.records.schema, &mut value, linr, r.init != 0, &mut r.lbrk) {
                db.records.common[rec].raise_with(Status::Soft, 2, crate::rec::message::Message::BREAKS);
            }
        }
    }
    if r.smoo != 0.0 && r.val.is_finite() {
        if r.init != 0 {
            r.val = value;
        }
        r.val = value * (1.0 - r.smoo) + r.val * r.smoo;
    } else {
        r.val = value;
    }
}

/// Posts VAL if it left a deadband, and the alarm if it changed.
fn monitor(db: &mut Db, rec: RecId, body: Body<Ai>, mut mask: EventMask, alarm_stays: bool) {
    if !alarm_stays {
        mask |= db.alarm_changed(rec);
    }
    if mask.is_empty() {
        return;
    }
    let r = &mut db.records[body];
    let raw = r.oraw != r.rval;
    r.oraw = r.rval;
    db.post_value(rec, mask);
    if raw {
        db.post_named(rec, "RVAL", mask);
    }
}
