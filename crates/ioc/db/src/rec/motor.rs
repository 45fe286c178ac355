//! motor record (synApps), with a simulated axis.
//!
//! Positions exist in user units (VAL, RBV), dial units (DVAL, DRBV) and steps (RVAL, RRBV): user = dial · DIR + OFF, dial =
//! steps · MRES. A write to a drive field clears DMOV at once. While the axis moves, the record is not active (PACT), but its
//! forward link and put callbacks wait until DMOV is 1 again.
//!
//! [`work`] has the decisions, [`fields`] the fields that depend on each other, [`axis`] the simulated axis.

mod axis;
mod fields;
mod work;

use crate::model::deadband::check;
use crate::model::link::Link;
use crate::model::slot::{Inline, Layout, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, no_device};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use axis::Axis;
use base::{AlarmLimits, EventMask, FieldType, Scalar, Status, Str40};

record! {
    /// Fields of a motor record.
    Motor {
        vers: f32 [VERS],
        off: f64 [OFF],
        foff: u16 [FOFF],
        fof: i16 [FOF],
        vof: i16 [VOF],
        dir: u16 [DIR],
        set: u16 [SET],
        sset: i16 [SSET],
        suse: i16 [SUSE],
        velo: f64 [VELO],
        vbas: f64 [VBAS],
        vmax: f64 [VMAX],
        s: f64 [S],
        sbas: f64 [SBAS],
        smax: f64 [SMAX],
        accl: f64 [ACCL],
        accs: f64 [ACCS],
        accu: u16 [ACCU],
        bdst: f64 [BDST],
        bvel: f64 [BVEL],
        sbak: f64 [SBAK],
        bacc: f64 [BACC],
        frac: f32 [FRAC],
        out: Link [OUT],
        card: i16 [CARD],
        rdbl: Link [RDBL],
        dol: Link [DOL],
        omsl: u16 [OMSL],
        rlnk: Link [RLNK],
        srev: i32 [SREV],
        urev: f64 [UREV],
        mres: f64 [MRES],
        eres: f64 [ERES],
        rres: f64 [RRES],
        ueip: u16 [UEIP],
        urip: u16 [URIP],
        prec: i16 [PREC],
        egu: Inline<16> [EGU],
        rhlm: f64 [RHLM],
        rllm: f64 [RLLM],
        hlm: f64 [HLM],
        llm: f64 [LLM],
        dhlm: f64 [DHLM],
        dllm: f64 [DLLM],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        hls: i16 [HLS],
        lls: i16 [LLS],
        rhls: i16 [RHLS],
        rlls: i16 [RLLS],
        hihi: f64 [HIHI],
        lolo: f64 [LOLO],
        high: f64 [HIGH],
        low: f64 [LOW],
        hhsv: u16 [HHSV],
        llsv: u16 [LLSV],
        hsv: u16 [HSV],
        lsv: u16 [LSV],
        hlsv: u16 [HLSV],
        rdbd: f64 [RDBD],
        spdb: f64 [SPDB],
        rcnt: i16 [RCNT],
        rtry: i16 [RTRY],
        miss: i16 [MISS],
        spmg: u16 [SPMG],
        lspg: u16 [LSPG],
        stop: i16 [STOP],
        homf: i16 [HOMF],
        homr: i16 [HOMR],
        jogf: i16 [JOGF],
        jogr: i16 [JOGR],
        twf: i16 [TWF],
        twr: i16 [TWR],
        twv: f64 [TWV],
        val: f64 [VAL],
        lval: f64 [LVAL],
        dval: f64 [DVAL],
        ldvl: f64 [LDVL],
        rval: i32 [RVAL],
        lrvl: i32 [LRVL],
        rlv: f64 [RLV],
        lrlv: f64 [LRLV],
        rbv: f64 [RBV],
        drbv: f64 [DRBV],
        diff: f64 [DIFF],
        rdif: i32 [RDIF],
        cdir: i16 [CDIR],
        rrbv: i32 [RRBV],
        rmp: i32 [RMP],
        rep: i32 [REP],
        rvel: i32 [RVEL],
        dmov: i16 [DMOV],
        movn: i16 [MOVN],
        msta: u32 [MSTA],
        lvio: i16 [LVIO],
        tdir: i16 [TDIR],
        athm: i16 [ATHM],
        pp: i16 [PP],
        mip: u16 [MIP],
        mmap: u32 [MMAP],
        nmap: u32 [NMAP],
        dly: f64 [DLY],
        pcof: f64 [PCOF],
        icof: f64 [ICOF],
        dcof: f64 [DCOF],
        cnen: u16 [CNEN],
        texts: [Text<40>; 3] [INIT PREM POST],
        stoo: Link [STOO],
        dinp: Link [DINP],
        rinp: Link [RINP],
        jvel: f64 [JVEL],
        jar: f64 [JAR],
        lock: u16 [LOCK],
        ntm: u16 [NTM],
        ntmf: u16 [NTMF],
        hvel: f64 [HVEL],
        stup: u16 [STUP],
        rmod: u16 [RMOD],
        adel: f64 [ADEL],
        mdel: f64 [MDEL],
        alst: f64 [ALST],
        mlst: f64 [MLST],
        sync: i16 [SYNC],
        igset: i16 [IGSET],
        rstm: u16 [RSTM],
    } private {
        axis: Axis,
        // The processing was requested by the axis, not by a client or link.
        update: bool,
        // The delay DLY is running, or is over.
        settling: bool,
        settled: bool,
        // A second move takes out the backlash.
        backlash: bool,
        // Values as posted last, in the order of WATCHED.
        posted: Vec<Scalar>,
    }
}

/// Bits of MIP, the motion in progress.
mod mip {
    pub(super) const JOGF: u16 = 0x1;
    pub(super) const JOGR: u16 = 0x2;
    pub(super) const JOG_BL1: u16 = 0x4;
    pub(super) const HOMF: u16 = 0x8;
    pub(super) const HOMR: u16 = 0x10;
    pub(super) const MOVE: u16 = 0x20;
    pub(super) const RETRY: u16 = 0x40;
    pub(super) const MOVE_BL: u16 = 0x100;
    pub(super) const STOP: u16 = 0x200;
    pub(super) const DELAY: u16 = 0x400;
    pub(super) const JOG_REQ: u16 = 0x1000;
    pub(super) const JOG_STOP: u16 = 0x2000;
    pub(super) const JOG_BL2: u16 = 0x4000;
    pub(super) const JOG: u16 = JOGF | JOGR;
    pub(super) const HOME: u16 = HOMF | HOMR;
}

/// STUP: no status update in progress.
const STOPPED: u16 = 0;

/// Fields that the record changes itself, in the order in which they are posted. DMOV is last, so that a client that
/// receives it has all others.
const WATCHED: &[u16] = &[
    Motor::OFF,
    Motor::FOFF,
    Motor::FOF,
    Motor::VOF,
    Motor::SET,
    Motor::SSET,
    Motor::SUSE,
    Motor::VELO,
    Motor::VBAS,
    Motor::VMAX,
    Motor::S,
    Motor::SBAS,
    Motor::SMAX,
    Motor::ACCL,
    Motor::ACCS,
    Motor::ACCU,
    Motor::BVEL,
    Motor::SBAK,
    Motor::FRAC,
    Motor::SREV,
    Motor::UREV,
    Motor::MRES,
    Motor::UEIP,
    Motor::URIP,
    Motor::RHLM,
    Motor::RLLM,
    Motor::HLM,
    Motor::LLM,
    Motor::DHLM,
    Motor::DLLM,
    Motor::RDBD,
    Motor::NTMF,
    Motor::JVEL,
    Motor::HVEL,
    Motor::HLS,
    Motor::LLS,
    Motor::RHLS,
    Motor::RLLS,
    Motor::RCNT,
    Motor::MISS,
    Motor::SPMG,
    Motor::STOP,
    Motor::HOMF,
    Motor::HOMR,
    Motor::JOGF,
    Motor::JOGR,
    Motor::TWF,
    Motor::TWR,
    Motor::DVAL,
    Motor::RVAL,
    Motor::RLV,
    Motor::DRBV,
    Motor::DIFF,
    Motor::RDIF,
    Motor::CDIR,
    Motor::RRBV,
    Motor::RMP,
    Motor::REP,
    Motor::RVEL,
    Motor::MSTA,
    Motor::TDIR,
    Motor::ATHM,
    Motor::MIP,
    Motor::STUP,
    Motor::SYNC,
    Motor::LVIO,
    Motor::MOVN,
    Motor::DMOV,
];

impl RecordType for Motor {
    /// Start: makes the fields consistent, finds the axis, and takes its position as target. A target from the database or from
    /// autosave becomes the axis' position as RSTM selects.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        if db.device(rec) == Device::Missing {
            return;
        }
        if db.device(rec) == Device::Simulated {
            match Axis::new(&db.address(rec)) {
                Ok(axis) => db.records[body].axis = axis,
                Err(what) => {
                    let name = db.records.name(rec).to_owned();
                    db.notice(format!("{name}.OUT: {what}"));
                }
            }
        }
        let r = &mut db.records[body];
        r.consistent();
        if let Some(val) = r.dol.number::<f64>() {
            r.dval = (val - r.off) * r.sign();
        }
        // Never, Always, NearZero, Conditional: the simulated axis starts at 0.
        if r.dval != 0.0 && r.rstm != 0 {
            r.axis.load((r.dval / r.mres).round());
        }
        (r.dmov, r.lvio, r.lspg) = (1, 0, r.spmg);
        db.records[rec].udf = 0;
        work::read(db, rec, body);
        let r = &mut db.records[body];
        r.targets_from_readback();
        r.posted = WATCHED.iter().map(|field| scalar(r, *field)).collect();
        (r.mlst, r.alst) = (r.rbv, r.rbv);
    }

    /// Reads the axis, decides, commands it, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        let (val, rbv) = (db.records[body].lval, db.records[body].rbv);
        let given = db.records[body].val;
        let update = std::mem::take(&mut db.records[body].update);
        if !(update && work::updated(db, rec, body)) {
            work::work(db, rec, body);
        }
        let r = &db.records[body];
        let (link, value) = (r.rlnk.brief(), Scalar::F64(r.rbv));
        // A failed write raises the alarm itself.
        let _ = db.put_link(rec, link, value);
        db.stamp_now(rec);
        alarms(db, rec, body);
        let alarm = db.reset_alarms(rec);
        let r = &mut db.records[body];
        let moved = r.val != val || r.val != given;
        let mask = check(&mut r.mlst, r.rbv, r.mdel, EventMask::VALUE)
            | check(&mut r.alst, r.rbv, r.adel, EventMask::LOG)
            | alarm;
        let readback = r.rbv != rbv || !alarm.is_empty();
        let done = r.dmov != 0;
        if moved || !alarm.is_empty() {
            let value = if moved { EventMask::VALUE | EventMask::LOG } else { EventMask::NONE };
            db.post_value(rec, alarm | value);
        }
        if readback && !mask.is_empty() {
            db.post_named(rec, "RBV", mask);
        }
        post_changes(db, rec, body, alarm | EventMask::VALUE | EventMask::LOG);
        if done { ProcessResult::Done } else { ProcessResult::NoForward }
    }

    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        fields::written(db, rec, body, field, after)
    }

    /// A motion or the delay after it may have ended.
    fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, _: u8) {
        let r = &mut db.records[body];
        r.settled |= std::mem::take(&mut r.settling);
        r.update = true;
        db.run(rec);
        // A disabled record was not processed. It checks again later.
        if std::mem::take(&mut db.records[body].update) {
            work::look_later(db, rec, body);
        }
    }

    /// A put callback waits for the end of the motion.
    fn holds_puts(&self) -> bool {
        self.dmov == 0
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let with = |suffix: &str| {
            let mut text = self.egu.bytes().to_vec();
            text.extend_from_slice(suffix.as_bytes());
            Str40::new(&text)
        };
        let units = match field {
            Self::VELO | Self::VBAS | Self::VMAX | Self::BVEL | Self::JVEL | Self::HVEL => with("/sec"),
            Self::ACCL | Self::BACC | Self::DLY => Str40::from("sec"),
            Self::S | Self::SBAS | Self::SMAX | Self::SBAK => Str40::from("rev/sec"),
            Self::ACCS | Self::JAR => with("/sec/sec"),
            _ if kind == Some(FieldType::F64) => with(""),
            _ => Str40::EMPTY,
        };
        let of = Properties { units, ..Properties::BOUNDED.digits(self.prec, true) };
        match field {
            Self::VAL | Self::RBV => {
                let given = |severity: u16, limit| if severity == 0 { f64::NAN } else { limit };
                let alarm = AlarmLimits {
                    hihi: given(self.hhsv, self.hihi),
                    high: given(self.hsv, self.high),
                    low: given(self.lsv, self.low),
                    lolo: given(self.llsv, self.lolo),
                };
                Properties { alarm, ..of.within(self.llm, self.hlm) }
            }
            Self::DVAL | Self::DRBV => of.within(self.dllm, self.dhlm),
            Self::RVAL | Self::RRBV => of.within(self.rllm, self.rhlm),
            Self::VELO => of.within(self.vbas, self.vmax),
            _ => of,
        }
    }
}

/// Value of a watched field.
fn scalar(r: &mut Motor, field: u16) -> Scalar {
    r.slot(usize::from(field)).scalar().unwrap_or(Scalar::U8(0))
}

/// Posts the watched fields that changed.
fn post_changes(db: &mut Db, rec: RecId, body: Body<Motor>, mask: EventMask) {
    for (index, field) in WATCHED.iter().enumerate() {
        let r = &mut db.records[body];
        let now = scalar(r, *field);
        if let Some(last) = r.posted.get_mut(index).filter(|last| **last != now) {
            *last = now;
            db.post_named(rec, Motor::NAMES[usize::from(*field)], mask);
        }
    }
}

/// Alarms of the limit switches and of targets beyond the soft limits.
fn alarms(db: &mut Db, rec: RecId, body: Body<Motor>) {
    let (common, r) = db.records.both(rec, body);
    let beyond = r.has_limits();
    if r.hls != 0 || (beyond && r.dval > r.dhlm) {
        common.raise(Status::High, r.hlsv);
    }
    if r.lls != 0 || (beyond && r.dval < r.dllm) {
        common.raise(Status::Low, r.hlsv);
    }
}

#[cfg(test)]
mod tests;
