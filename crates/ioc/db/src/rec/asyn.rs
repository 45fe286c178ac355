//! asyn record (asyn module): exchanges messages with a port by hand, and shows and changes the port's settings.
//!
//! The device support does the exchange and applies settings. It writes the port's settings into the record after PORT was
//! written. Only octet interfaces exist: with IFACE other than `asynOctet` the record gets a COMM alarm.

use crate::model::slot::{Layout as _, Slot, Text, record};
use crate::rec::{Body, RecId, RecordType, changed, no_device};
use crate::run::device::Device;
use crate::run::device::support::Output;
use crate::run::engine::{Db, ProcessResult};
use crate::run::scan::DeviceSample;
use crate::text::error::PutError;
use crate::text::lex::unescape_bytes;
use base::{Array, EventMask, FieldType, Scalar, Severity, Status, Str40, Value};

record! {
    /// Fields of an asyn record.
    Asyn {
        val: i32 [VAL],
        port: Text<40> [PORT],
        addr: i32 [ADDR],
        pcnct: u16 [PCNCT],
        drvinfo: Text<40> [DRVINFO],
        reason: i32 [REASON],
        tmod: u16 [TMOD],
        tmot: f64 [TMOT],
        iface: u16 [IFACE],
        valid: [i32; 6] [OCTETIV OPTIONIV GPIBIV I32IV UI32IV F64IV],
        aout: Text<40> [AOUT],
        oeos: Text<40> [OEOS],
        bout: Array [BOUT],
        omax: i32 [OMAX],
        nowt: i32 [NOWT],
        nawt: i32 [NAWT],
        ofmt: u16 [OFMT],
        ainp: Text<40> [AINP],
        tinp: Text<40> [TINP],
        ieos: Text<40> [IEOS],
        binp: Array [BINP],
        imax: i32 [IMAX],
        nrrd: i32 [NRRD],
        nord: i32 [NORD],
        ifmt: u16 [IFMT],
        eomr: u16 [EOMR],
        i32: [i32; 2] [I32INP I32OUT],
        ui32: [u32; 3] [UI32INP UI32OUT UI32MASK],
        f64: [f64; 2] [F64INP F64OUT],
        baud: u16 [BAUD],
        lbaud: i32 [LBAUD],
        line: [u16; 8] [PRTY DBIT SBIT MCTL FCTL IXON IXOFF IXANY],
        hostinfo: Text<40> [HOSTINFO],
        drto: u16 [DRTO],
        ucmd: u16 [UCMD],
        acmd: u16 [ACMD],
        spr: u8 [SPR],
        tmsk: i32 [TMSK],
        tb: [u16; 6] [TB0 TB1 TB2 TB3 TB4 TB5],
        tiom: i32 [TIOM],
        tib: [u16; 3] [TIB0 TIB1 TIB2],
        tinm: i32 [TINM],
        tinb: [u16; 4] [TINB0 TINB1 TINB2 TINB3],
        tsiz: i32 [TSIZ],
        tfil: Text<40> [TFIL],
        auct: u16 [AUCT],
        cnct: u16 [CNCT],
        enbl: u16 [ENBL],
        errs: Text<40> [ERRS],
        aqr: u8 [AQR],
    }
}

/// Values of TMOD.
const WRITE_READ: u16 = 0;
const WRITE: u16 = 1;
const READ: u16 = 2;
const NO_IO: u16 = 4;
/// Values of OFMT and IFMT.
const ASCII: u16 = 0;
const BINARY: u16 = 2;
/// Values of EOMR.
const EOM_COUNT: u16 = 1;
const EOM_EOS: u16 = 2;
/// Maximum length of a message.
const MESSAGE_MAX: i32 = 65_535;
/// Masks, and the fields of their bits from bit 0 on.
const MASKS: &[(&str, &[&str])] = &[
    ("TMSK", &["TB0", "TB1", "TB2", "TB3", "TB4", "TB5"]),
    ("TIOM", &["TIB0", "TIB1", "TIB2"]),
    ("TINM", &["TINB0", "TINB1", "TINB2", "TINB3"]),
];
/// MAJOR.
const MAJOR: u16 = 2;

impl RecordType for Asyn {
    /// Start: the device support connects the port.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        (r.omax, r.imax) = (r.omax.clamp(1, MESSAGE_MAX), r.imax.clamp(1, MESSAGE_MAX));
        r.bout = Array::I8(Vec::new());
        r.binp = Array::I8(Vec::new());
        db.records[rec].udf = 0;
        setting(db, rec, "PORT");
    }

    /// Exchanges a message, stores the answer, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        let r = &db.records[body];
        if r.iface != 0 {
            db.records[rec].raise(Status::Comm, MAJOR);
        } else if r.tmod != NO_IO {
            let output = if resumed { None } else { Some(r.request()) };
            let Some(answer) = db.device_exchange(rec, resumed, output) else { return ProcessResult::Pending };
            take(db, rec, body, answer);
        }
        db.stamp_now(rec);
        let mask = db.reset_alarms(rec);
        if !mask.is_empty() {
            db.post_value(rec, mask);
        }
        ProcessResult::Done
    }

    /// Passes settings to the device support.
    fn special(db: &mut Db, rec: RecId, _: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        let name = Self::NAMES[usize::from(field)];
        for (mask, bits) in MASKS {
            if name == *mask || bits.contains(&name) {
                spread(db, rec, mask, bits, name == *mask);
                setting(db, rec, mask);
                return Ok(());
            }
        }
        setting(db, rec, if matches!(name, "ADDR" | "DRVINFO") { "PORT" } else { name });
        Ok(())
    }

    fn shape(&self, field: u16) -> (u32, FieldType) {
        (if field == Self::BOUT { self.omax } else { self.imax }.max(1) as u32, FieldType::I8)
    }

    fn store_array(db: &mut Db, _: RecId, body: Body<Self>, field: u16, values: Array) -> Result<(), PutError> {
        let r = &mut db.records[body];
        if field == Self::BOUT {
            r.nowt = values.len() as i32;
            r.bout = values;
            return Ok(());
        }
        Err(PutError::NoModify)
    }
}

impl Asyn {
    /// The exchange that TMOD requires. `raw` holds TMOD, whether input and output are binary, the maximum number of bytes
    /// and the time limit in ms.
    fn request(&self) -> Output {
        let out = match (self.tmod, self.ofmt) {
            (WRITE_READ | WRITE, ASCII) => unescape_bytes(self.aout.bytes()),
            (WRITE_READ | WRITE, format) => {
                let bytes: Vec<u8> = match &self.bout {
                    Array::I8(bytes) => bytes.iter().map(|byte| *byte as u8).collect(),
                    _ => Vec::new(),
                };
                if format == BINARY {
                    bytes.into_iter().take(self.nowt.max(0) as usize).collect()
                } else {
                    unescape_bytes(&bytes.into_iter().take_while(|byte| *byte != 0).collect::<Vec<_>>())
                }
            }
            _ => Vec::new(),
        };
        let most = if self.ifmt == ASCII { 39 } else { self.imax };
        let max = if self.nrrd > 0 { self.nrrd.min(most) } else { most };
        let ms = (self.tmot.clamp(0.001, 3_600.0) * 1e3) as i64;
        let flags = i64::from(self.ifmt == BINARY) << 3 | i64::from(self.ofmt == BINARY) << 4;
        let raw = i64::from(self.tmod) | flags | i64::from(max) << 8 | ms << 24;
        Output { value: Value::Array(Array::U8(out)), raw, name: None, converted: false }
    }
}

/// Sends the value of a field to the device support.
fn setting(db: &mut Db, rec: RecId, name: &str) {
    let Some(field) = db.records.type_of(rec).field(name) else { return };
    let value = match db.records.peek(rec, field) {
        Slot::Text(text) => Scalar::String(Str40::new(text.bytes())),
        slot => slot.scalar().unwrap_or(Scalar::I32(0)),
    };
    db.device_setting(rec, name, Value::Scalar(value));
}

/// Makes a mask and the fields of its bits equal: the bits follow the mask, or the mask the bits.
fn spread(db: &mut Db, rec: RecId, mask: &str, bits: &[&str], from_mask: bool) {
    let kind = db.records.type_of(rec);
    let Some(mask) = kind.field(mask) else { return };
    let bits: Vec<u16> = bits.iter().filter_map(|name| kind.field(name)).collect();
    let all = EventMask::VALUE | EventMask::LOG;
    if from_mask {
        let value = if let Slot::I32(mask) = db.records.slot(rec, mask) { *mask } else { 0 };
        for (bit, field) in bits.iter().enumerate() {
            if let Slot::U16(on) = db.records.slot(rec, *field) {
                *on = u16::from(value >> bit & 1 != 0);
            }
            db.post(rec, *field, all);
        }
        return;
    }
    let mut value = 0;
    for (bit, field) in bits.iter().enumerate() {
        if let Slot::U16(on) = db.records.slot(rec, *field) {
            value |= i32::from(*on != 0) << bit;
        }
    }
    if let Slot::I32(mask) = db.records.slot(rec, mask) {
        *mask = value;
    }
    db.post(rec, mask, all);
}

/// Stores the answer of an exchange.
fn take(db: &mut Db, rec: RecId, body: Body<Asyn>, answer: DeviceSample) {
    let r = &mut db.records[body];
    let reads = matches!(r.tmod, WRITE_READ | READ);
    let failed = answer.alarm.severity != Severity::None;
    let error = match answer.alarm.status {
        _ if !failed => "",
        Status::Timeout => "no answer in time",
        _ => "no connection",
    };
    let error_changed = r.errs.bytes() != error.as_bytes();
    r.errs.set(error.as_bytes());
    if failed {
        let status = if reads { Status::Read } else { Status::Write };
        db.records[rec].raise(status, MAJOR);
    }
    let r = &mut db.records[body];
    let written = matches!(r.tmod, WRITE_READ | WRITE).then(|| (answer.tag >> 1) as i32).filter(|_| !failed);
    let written_changed = written.is_some_and(|written| changed(&mut r.nawt, written));
    if reads {
        let bytes = match &answer.value {
            Some(Value::Array(Array::U8(bytes))) => bytes.as_slice(),
            _ => &[],
        };
        r.nord = bytes.len() as i32;
        r.eomr = if failed {
            0
        } else if answer.tag & 1 != 0 {
            EOM_EOS
        } else {
            EOM_COUNT
        };
        r.tinp.set(bytes.escape_ascii().to_string().as_bytes());
        if r.ifmt == ASCII {
            r.ainp.set(bytes);
        } else {
            r.binp = Array::I8(bytes.iter().map(|byte| *byte as i8).collect());
        }
    }
    let all = EventMask::VALUE | EventMask::LOG;
    let input = if db.records[body].ifmt == ASCII { "AINP" } else { "BINP" };
    for name in ["TINP", "NORD", "EOMR", input].iter().filter(|_| reads) {
        db.post_named(rec, name, all);
    }
    if written_changed {
        db.post_named(rec, "NAWT", all);
    }
    if error_changed {
        db.post_named(rec, "ERRS", all);
    }
}
