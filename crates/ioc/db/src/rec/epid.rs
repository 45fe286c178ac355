//! epid record (synApps): feedback that drives an output so that the controlled value follows the setpoint.

use crate::model::deadband::Limits;
use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Inline, record};
use crate::rec::{Body, Properties, RecId, RecordType, changed, check_limits, deadbands, no_device, number_properties};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use base::{EventMask, FieldType, MonoNs, Scalar, Status, Value};

record! {
    /// Fields of an epid record.
    Epid {
        val: f64 [VAL],
        smsl: u16 [SMSL],
        stpl: Link [STPL],
        inp: Link [INP],
        outl: Link [OUTL],
        trig: Link [TRIG],
        tval: f64 [TVAL],
        cval: f64 [CVAL],
        cvlp: f64 [CVLP],
        oval: f64 [OVAL],
        ovlp: f64 [OVLP],
        prec: i16 [PREC],
        mdt: f64 [MDT],
        fmod: u16 [FMOD],
        fbon: u16 [FBON],
        fbop: u16 [FBOP],
        kp: f64 [KP],
        ki: f64 [KI],
        kd: f64 [KD],
        egu: Inline<16> [EGU],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        drvh: f64 [DRVH],
        drvl: f64 [DRVL],
        limits: Limits<f64> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        odel: f64 [ODEL],
        p: f64 [P],
        pp: f64 [PP],
        i: f64 [I],
        ip: f64 [IP],
        d: f64 [D],
        dp: f64 [DP],
        dt: f64 [DT],
        dtp: f64 [DTP],
        err: f64 [ERR],
        errp: f64 [ERRP],
        lalm: f64 [LALM],
        alst: f64 [ALST],
        mlst: f64 [MLST],
    } private {
        // Time of the previous computation.
        at: Option<MonoNs>,
    }
}

impl RecordType for Epid {
    /// Start: loads a constant setpoint.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        if let Some(value) = r.stpl.number::<f64>() {
            r.val = value;
            db.records[rec].udf = 0;
        }
    }

    /// Fetches the setpoint, reads the controlled value, computes and writes the output. With Async Soft Channel it first
    /// triggers a new value and waits for it.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        if !resumed {
            let (smsl, stpl) = (db.records[body].smsl, db.records[body].stpl.brief());
            // A failed read raises the alarm itself.
            if smsl == 1
                && let Ok(Some(value)) = db.get_link::<f64>(rec, stpl)
            {
                db.records[body].val = value;
                db.records[rec].udf = 0;
            }
            if db.records[rec].udf != 0 {
                db.records[rec].raise_undefined();
                return ProcessResult::NoForward;
            }
            if db.device(rec) == Device::SoftAsync && trigger(db, rec, body) {
                return ProcessResult::Pending;
            }
        }
        control(db, rec, body);
        db.stamp_now(rec);
        let (common, r) = db.records.both(rec, body);
        check_limits!(*common, r);
        monitor(db, rec, body);
        ProcessResult::Done
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let is_value = matches!(field, Self::VAL | Self::CVAL);
        let of = number_properties!(self, field, kind, Self::CVAL).digits(self.prec, is_value);
        let is_output = matches!(field, Self::OVAL | Self::P | Self::I | Self::D);
        if is_output { of.within(self.drvl, self.drvh) } else { of }
    }
}

/// Writes TVAL to TRIG. Returns whether its completion must be awaited.
fn trigger(db: &mut Db, rec: RecId, body: Body<Epid>) -> bool {
    let r = &db.records[body];
    let (link, value) = (r.trig.brief(), Scalar::F64(r.tval));
    // A failed write raises the alarm itself.
    if link.kind == LinkKind::Remote {
        return db.put_and_wait(rec, link, Value::Scalar(value)).unwrap_or(false);
    }
    let _ = db.put_link(rec, link, value);
    false
}

/// Reads the controlled value, computes the output, and writes it if feedback is on.
fn control(db: &mut Db, rec: RecId, body: Body<Epid>) {
    let (inp, outl) = (db.records[body].inp.brief(), db.records[body].outl.brief());
    if inp.kind == LinkKind::Constant {
        db.records[rec].raise(Status::Soft, 3);
        return;
    }
    // A failed read raises the alarm itself.
    let Ok(Some(cval)) = db.get_link::<f64>(rec, inp) else { return };
    let now = db.time.now.mono;
    let r = &mut db.records[body];
    let before = std::mem::replace(&mut r.cval, cval);
    let dt = r.at.map_or(0.0, |at| (now.0 - at.0) as f64 / 1e9);
    // The first computation has no time difference and is always done.
    if r.at.is_some() && dt < r.mdt {
        return;
    }
    let rises = r.fbon != 0 && r.fbop == 0;
    // Feedback starts at the present output.
    let output = if rises { db.get_link::<f64>(rec, outl).ok().flatten() } else { None };
    let r = &mut db.records[body];
    let (oval, error) =
        if r.fmod == 0 { pid(r, cval, dt, rises, output) } else { seek(r, cval - before, output, rises) };
    let oval = oval.min(r.drvh).max(r.drvl);
    if r.odel == 0.0 || (r.oval - oval).abs() > r.odel {
        r.oval = oval;
    }
    (r.at, r.dt, r.err, r.fbop) = (Some(now), dt, error, r.fbon);
    if r.fbon != 0 {
        let value = Scalar::F64(r.oval);
        let _ = db.put_link(rec, outl, value);
    }
}

/// Mode PID: returns the output and the error, and sets P, I and D.
fn pid(r: &mut Epid, cval: f64, dt: f64, rises: bool, output: Option<f64>) -> (f64, f64) {
    let error = r.val - cval;
    let change = r.kp * r.ki * error * dt;
    if rises {
        r.i = output.unwrap_or(r.i);
    } else if r.fbon != 0 {
        // The integral does not grow further into a limit that the output has reached.
        let (at_high, at_low) = (r.oval >= r.drvh, r.oval <= r.drvl);
        if (!at_high && !at_low) || (at_high && change < 0.0) || (at_low && change > 0.0) {
            r.i = (r.i + change).max(r.drvl).min(r.drvh);
        }
    }
    if r.ki == 0.0 {
        r.i = 0.0;
    }
    r.p = r.kp * error;
    r.d = if dt > 0.0 { r.kp * r.kd * (error - r.err) / dt } else { 0.0 };
    (r.p + r.i + r.d, error)
}

/// Mode Max/Min: moves the output by KP, and turns when the controlled value falls (KP above 0) or rises (below 0).
fn seek(r: &mut Epid, change: f64, output: Option<f64>, rises: bool) -> (f64, f64) {
    if r.fbon == 0 {
        return (r.oval, 0.0);
    }
    if rises {
        return (output.unwrap_or(r.oval), 0.0);
    }
    let turns = (r.kp > 0.0 && change < 0.0) || (r.kp < 0.0 && change > 0.0);
    let sign = if (r.d > 0.0) == turns { -1.0 } else { 1.0 };
    r.d = r.kp * sign;
    (r.oval + r.d, change)
}

fn monitor(db: &mut Db, rec: RecId, body: Body<Epid>) {
    let alarm = db.reset_alarms(rec);
    let r = &mut db.records[body];
    let mask = alarm | deadbands!(r);
    let moved = [
        ("OVAL", changed(&mut r.ovlp, r.oval)),
        ("P", changed(&mut r.pp, r.p)),
        ("I", changed(&mut r.ip, r.i)),
        ("D", changed(&mut r.dp, r.d)),
        ("DT", changed(&mut r.dtp, r.dt)),
        ("ERR", changed(&mut r.errp, r.err)),
        ("CVAL", changed(&mut r.cvlp, r.cval)),
    ];
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    for (name, _) in moved.into_iter().filter(|(_, moved)| *moved) {
        db.post_named(rec, name, EventMask::VALUE | EventMask::LOG);
    }
}

#[cfg(test)]
mod tests {
    use crate::Db;
    use crate::rec::test_kit::{number, put, started, text, wait};

    fn all<const N: usize>(db: &mut Db, fields: [&str; N]) -> [f64; N] {
        fields.map(|field| number(db, &format!("e.{field}")))
    }

    fn near<const N: usize>(values: [f64; N], expected: [f64; N]) {
        let same = values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(same, "{values:?}, expected {expected:?}");
    }

    const PID: &str = "record(epid, \"e\") { field(VAL, \"10\") field(STPL, \"10\") field(INP, \"in\") field(OUTL, \"out\") field(KP, \"2\")
             field(KI, \"0.5\") field(KD, \"0.1\") field(DRVH, \"100\") field(DRVL, \"-100\") }
         record(ao, \"in\") { field(VAL, \"4\") } record(ao, \"out\") { field(VAL, \"30\") }";

    #[test]
    fn pid_terms_are_those_of_the_documentation() {
        let mut db = started(PID);
        put(&mut db, "e.FBON", "On");
        put(&mut db, "e.PROC", 1);
        // Feedback starts at the present output: I = 30.
        near(all(&mut db, ["ERR", "P", "I", "D", "OVAL"]), [6.0, 12.0, 30.0, 0.0, 42.0]);
        wait(&mut db, 2.0);
        put(&mut db, "in", 6.0);
        put(&mut db, "e.PROC", 1);
        // e = 4: P = 2·4, dI = 2·0.5·4·2, D = 2·0.1·(4 − 6)/2.
        near(all(&mut db, ["ERR", "P", "I", "D", "DT", "OVAL"]), [4.0, 8.0, 38.0, -0.2, 2.0, 45.8]);
        near([number(&mut db, "out")], [45.8]);
    }

    #[test]
    fn the_integral_stops_at_the_drive_limits_and_without_feedback_nothing_is_written() {
        let mut db = started(PID);
        put(&mut db, "e.DRVH", 35.0);
        put(&mut db, "e.FBON", "On");
        put(&mut db, "e.PROC", 1);
        for _ in 0..3 {
            wait(&mut db, 1.0);
            put(&mut db, "e.PROC", 1);
        }
        near(all(&mut db, ["I", "OVAL"]), [30.0, 35.0]);
        put(&mut db, "e.FBON", "Off");
        put(&mut db, "out", 1.0);
        wait(&mut db, 1.0);
        put(&mut db, "e.PROC", 1);
        near([number(&mut db, "out"), number(&mut db, "e.I")], [1.0, 30.0]);
    }

    #[test]
    fn below_mdt_nothing_is_computed_and_a_constant_input_is_an_alarm() {
        let mut db = started(PID);
        put(&mut db, "e.MDT", 5.0);
        put(&mut db, "e.PROC", 1);
        put(&mut db, "in", 9.0);
        wait(&mut db, 1.0);
        put(&mut db, "e.PROC", 1);
        near(all(&mut db, ["ERR", "P"]), [6.0, 12.0]);
        put(&mut db, "e.INP", "");
        put(&mut db, "e.PROC", 1);
        assert_eq!(text(&mut db, "e.STAT"), "SOFT");
    }

    #[test]
    fn max_min_turns_when_the_value_falls() {
        let mut db = started(PID);
        put(&mut db, "e.FMOD", "Max/Min");
        put(&mut db, "e.FBON", "On");
        put(&mut db, "e.PROC", 1);
        near(all(&mut db, ["OVAL"]), [30.0]);
        let mut outputs = Vec::new();
        for value in [5.0, 6.0, 5.5, 5.6] {
            put(&mut db, "in", value);
            wait(&mut db, 1.0);
            put(&mut db, "e.PROC", 1);
            outputs.push(number(&mut db, "e.OVAL"));
        }
        assert_eq!(outputs, [28.0, 26.0, 28.0, 30.0]);
    }

    #[test]
    fn async_soft_channel_reads_after_its_trigger_has_completed() {
        let mut db = started(
            "record(epid, \"e\") { field(DTYP, \"Async Soft Channel\") field(STPL, \"10\") field(INP, \"slow\") field(TRIG, \"slow.A CA\")
                 field(TVAL, \"3\") field(KP, \"1\") field(DRVH, \"100\") field(FLNK, \"n\") }
             record(calcout, \"slow\") { field(CALC, \"A\") field(ODLY, \"1\") } record(calc, \"n\") { field(CALC, \"VAL+1\") }",
        );
        put(&mut db, "e.PROC", 1);
        assert_eq!((number(&mut db, "e.PACT"), number(&mut db, "n")), (1.0, 0.0));
        wait(&mut db, 1.0);
        near(all(&mut db, ["CVAL", "P", "PACT"]), [3.0, 7.0, 0.0]);
        assert_eq!(number(&mut db, "n"), 1.0);
    }
}
