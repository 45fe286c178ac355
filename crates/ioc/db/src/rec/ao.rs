//! ao record.

use super::breaks;
use crate::model::deadband::Limits;
use crate::model::link::Link;
use crate::model::slot::{Inline, Lazy, record};
use crate::rec::{
    Body, Properties, RecId, RecordType, Sim, check_limits, deadbands, drive_stamped, init_sim, no_device,
    number_properties, output_mode, simulation, stamp_output,
};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use base::{EventMask, FieldType, Range, Scalar, Status, Str40, Value};

record! {
    /// Fields of an ao record.
    Ao {
        val: f64 [VAL],
        oval: f64 [OVAL],
        out: Link [OUT],
        oroc: f64 [OROC],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        oif: u16 [OIF],
        prec: i16 [PREC],
        linr: u16 [LINR],
        eguf: f64 [EGUF],
        egul: f64 [EGUL],
        egu: Inline<16> [EGU],
        roff: u32 [ROFF],
        eoff: f64 [EOFF],
        eslo: f64 [ESLO],
        drvh: f64 [DRVH],
        drvl: f64 [DRVL],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        aoff: f64 [AOFF],
        aslo: f64 [ASLO],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        rval: i32 [RVAL],
        oraw: i32 [ORAW],
        rbv: i32 [RBV],
        orbv: i32 [ORBV],
        pval: f64 [PVAL],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        init: i16 [INIT],
        lbrk: i16 [LBRK],
        ivoa: u16 [IVOA],
        ivov: f64 [IVOV],
        omod: u8 [OMOD],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Ao {
    simulation!();

    /// Start: loads a constant DOL, sets up the conversion and the last values.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        init_sim(db, rec, body);
        let device = db.device(rec);
        if device == Device::Missing {
            return;
        }
        let (common, r) = db.records.both(rec, body);
        if let Some(val) = r.dol.number::<f64>() {
            r.val = val;
            common.udf = u8::from(val.is_nan());
        }
        r.init = 1;
        if r.eslo == 1.0 && r.eoff == 0.0 && (r.linr != 1 || device == Device::SoftRaw) {
            r.eoff = r.egul;
        }
        r.oval = r.val;
        r.pval = r.val;
        r.mlst = r.val;
        r.alst = r.val;
        r.lalm = r.val;
        r.oraw = r.rval;
        r.orbv = r.rbv;
    }

    /// Fetches DOL, converts, checks alarm limits, writes the output, posts monitors.
    #[inline]
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if !resumed {
            fetch(db, rec, body);
            stamp_output(db, rec, body);
        }
        let (common, r) = db.records.both(rec, body);
        check_limits!(*common, r);
        let ivoa = r.ivoa;
        let ivov = |db: &mut Db| {
            let value = db.records[body].ivov;
            db.records[body].val = value;
            convert(db, rec, body, value);
        };
        let write = |db: &mut Db| write(db, rec, body, resumed);
        let Some(failed) = drive_stamped(db, (rec, body), resumed, ivoa, ivov, write) else {
            return ProcessResult::Pending;
        };
        monitor(db, rec, body);
        db.records[body].init = 0;
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
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
        let is_value = matches!(field, Self::VAL | Self::OVAL | Self::PVAL);
        let of =
            number_properties!(self, field, kind, Self::OVAL | Self::PVAL | Self::IVOV).digits(self.prec, is_value);
        let units = if matches!(field, Self::ASLO | Self::AOFF) { Str40::EMPTY } else { of.units };
        let drive = Range { low: self.drvl, high: self.drvh };
        Properties { units, control: of.control.filter(|_| field != Self::IVOV).map(|_| drive), ..of }
    }

    /// Sets the other fields after VAL was set to the device's value.
    fn begin(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.oval = r.val;
        r.pval = r.val;
        r.mlst = r.val;
        r.alst = r.val;
        r.lalm = r.val;
        r.oraw = r.rval;
        db.records[rec].udf = u8::from(r.val.is_nan());
        db.post_named(rec, "OVAL", EventMask::VALUE | EventMask::LOG);
    }

    /// Value of the record for a device value: raw values are converted; ASLO and AOFF are applied to others, as in ai.
    fn from_device(db: &mut Db, rec: RecId, body: Body<Self>, fed: &DeviceSample) -> Option<Scalar> {
        if let Some(raw) = fed.raw() {
            return Some(from_raw(db, rec, body, raw));
        }
        let r = &db.records[body];
        let slope = if r.aslo == 0.0 { 1.0 } else { r.aslo };
        Some(Scalar::F64(fed.scalar()?.to_f64().unwrap_or(f64::NAN) * slope + r.aoff))
    }

    fn read_back(&mut self, raw: i32) {
        (self.rval, self.rbv) = (raw, raw);
    }

    #[inline]
    fn double_val(&self) -> Option<f64> {
        Some(self.val)
    }
}

/// Fetches the desired value: DOL in closed loop, otherwise VAL.
fn fetch(db: &mut Db, rec: RecId, body: Body<Ao>) {
    let r = &mut db.records[body];
    let mut value = Some(r.val);
    if r.omsl == 1 && !r.dol.is_constant() {
        // Incremental mode starts from the last output value, not from a VAL that a client wrote.
        r.val = r.pval;
        let (dol, incremental) = (r.dol.brief(), r.oif == 1);
        value = match db.get_link::<f64>(rec, dol) {
            Ok(fetched) => fetched.map(|fetched| if incremental { fetched + db.records[body].val } else { fetched }),
            Err(_) => {
                db.records[rec].raise(Status::Link, 3);
                None
            }
        };
    }
    if let Some(value) = value {
        convert(db, rec, body, value);
    }
    db.records[rec].udf = u8::from(db.records[body].val.is_nan());
}

/// Applies drive limits and rate limit, then converts engineering units to raw.
fn convert(db: &mut Db, rec: RecId, body: Body<Ao>, value: f64) {
    let r = &mut db.records.bodies[body];
    let mut value = value;
    if r.drvh > r.drvl {
        if value > r.drvh {
            value = r.drvh;
        } else if value < r.drvl {
            value = r.drvl;
        }
    }
    r.val = value;
    r.pval = value;
    if r.oroc != 0.0 {
        let step = value - r.oval;
        if step < 0.0 {
            if r.oroc < -step {
                value = r.oval - r.oroc;
            }
        } else if r.oroc < step {
            value = r.oval + r.oroc;
        }
    }
    r.omod = u8::from(r.oval != value);
    r.oval = value;
    match r.linr {
        0 => {}
        1 | 2 => value = if r.eslo == 0.0 { 0.0 } else { (value - r.eoff) / r.eslo },
        linr => {
            if !breaks::eng_to_raw(&db.records.schema, &mut value, linr, r.init != 0, &mut r.lbrk) {
                db.records.common[rec].raise(Status::Soft, 2);
                return;
            }
        }
    }
    value -= r.aoff;
    if r.aslo != 0.0 {
        value /= r.aslo;
    }
    value -= f64::from(r.roff);
    r.rval = if value >= 0.0 {
        if value >= 2_147_483_646.5 { i32::MAX } else { (value + 0.5) as i32 }
    } else if value > -2_147_483_647.5 {
        (value - 0.5) as i32
    } else {
        base::text::to_i32(f64::NAN)
    };
}

/// Writes the output or its simulation. Returns whether a callback is pending.
fn write(db: &mut Db, rec: RecId, body: Body<Ao>, resumed: bool) -> bool {
    let simm = match output_mode(db, rec, body, resumed, true) {
        Ok(simm) => simm,
        Err(pending) => return pending,
    };
    let r = &db.records[body];
    let link = if simm == 0 { r.out.brief() } else { r.sim.siol.brief() };
    let raw = if simm == 0 { db.device(rec) == Device::SoftRaw } else { simm == 2 };
    let value = if raw { Scalar::I32(r.rval) } else { Scalar::F64(r.oval) };
    if simm == 0 && db.device(rec) == Device::External {
        // Reverses the AOFF and ASLO conversion of ai.
        let r = &db.records[body];
        let slope = if r.aslo == 0.0 { 1.0 } else { r.aslo };
        let value = Scalar::F64((r.oval - r.aoff) / slope);
        let (raw, converted) = (i64::from(r.rval), r.linr != 0);
        let output = Output { value: Value::Scalar(value), raw, name: None, converted };
        return db.device_write(rec, resumed, output);
    }
    db.write_out(rec, link, value, simm == 0, resumed)
}

#[inline]
fn monitor(db: &mut Db, rec: RecId, body: Body<Ao>) {
    let mut mask = db.reset_alarms(rec);
    let r = &mut db.records[body];
    mask |= deadbands!(r);
    let value = mask;
    if r.omod != 0 {
        mask |= EventMask::VALUE | EventMask::LOG;
    }
    if mask.is_empty() {
        return;
    }
    r.omod = 0;
    let (raw, readback) = (r.oraw != r.rval, r.orbv != r.rbv);
    r.oraw = r.rval;
    r.orbv = r.rbv;
    if db.records[rec].monitors == 0 {
        return;
    }
    if !value.is_empty() {
        db.post_value(rec, value);
    }
    db.post_named(rec, "OVAL", mask);
    let all = mask | EventMask::VALUE | EventMask::LOG;
    if raw {
        db.post_named(rec, "RVAL", all);
    }
    if readback {
        db.post_named(rec, "RBV", all);
    }
}

/// Engineering value of a raw device value.
fn from_raw(db: &mut Db, rec: RecId, body: Body<Ao>, raw: i32) -> Scalar {
    let r = &mut db.records.bodies[body];
    r.rval = raw;
    let mut value = f64::from(raw) + f64::from(r.roff);
    if r.aslo != 0.0 {
        value *= r.aslo;
    }
    value += r.aoff;
    match r.linr {
        0 => {}
        1 | 2 => value = value * r.eslo + r.eoff,
        linr => {
            if !breaks::raw_to_eng(&db.records.schema, &mut value, linr, true, &mut r.lbrk) {
                db.records.common[rec].raise(Status::Soft, 2);
            }
        }
    }
    Scalar::F64(value)
}
