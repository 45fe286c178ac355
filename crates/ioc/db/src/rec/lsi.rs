//! lsi record.

use crate::model::link::{Link, LinkKind, ResolvedLink};
use crate::model::slot::{Lazy, record};
use crate::model::values::text;
use crate::rec::{
    Body, Mode, RecId, RecordType, Sim, environment, init_sim, mode, no_device, simulation, stamp_input, take_stamp,
};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::run::link::LinkError;
use crate::run::notify::Got;
use base::Str40;
use base::{Array, EventMask, FieldType, Scalar};

record! {
    /// The fields of a lsi record.
    Lsi {
        val: Array [VAL],
        oval: Array [OVAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        olen: u32 [OLEN],
        inp: Link [INP],
        mpst: u16 [MPST],
        apst: u16 [APST],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Lsi {
    simulation!();

    /// At start: memory, constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let device = db.device(rec);
        db.records[body].reserve();
        init_sim(db, rec, body);
        let r = &mut db.records[body];
        if device == Device::Soft
            && let Some(text) = r.inp.long_text()
        {
            r.begin_with(&text);
            db.records[rec].udf = 0;
        }
    }

    /// Reads, tells.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        let device = db.device(rec);
        let size = db.records[body].sizv;
        let read = match mode(db, rec, body, resumed, false) {
            Mode::Real if device == Device::Soft => {
                let link = db.records[body].inp.brief();
                let read = get_link_long(db, rec, link, size);
                if read.is_ok() {
                    take_stamp(db, rec, link);
                }
                read
            }
            Mode::Real if device == Device::Getenv => {
                let (common, r) = db.records.both(rec, body);
                let value = environment(&db.environment, common, r.inp.text());
                Ok(Some(with_nul(value.as_bytes(), size)))
            }
            Mode::Real if device == Device::External => match db.device_read(rec, resumed) {
                Got::Pending => return ProcessResult::Pending,
                Got::Value(fed) => fed.bytes().map(|bytes| Some(with_nul(text(&bytes), size))).ok_or(LinkError),
                Got::Constant | Got::Failed => Err(LinkError),
            },
            Mode::Real => return no_device(db, rec),
            Mode::Simulated(_) => {
                let link = db.records[body].sim.siol.brief();
                let read = get_link_long(db, rec, link, size);
                if read.is_ok() {
                    db.records[rec].udf = 0;
                }
                read
            }
            Mode::Delayed => return ProcessResult::Pending,
            Mode::Bad => Err(LinkError),
        };
        let failed = read.is_err();
        if let Ok(Some(val)) = read {
            set(db, body, val);
        }
        stamp_input(db, rec, body);
        monitor(db, rec, body);
        if failed { ProcessResult::Failed } else { ProcessResult::Done }
    }

    long_text!();
}

/// A text with its NUL, in an array.
pub(crate) fn with_nul(text: &[u8], size: u16) -> Array {
    let mut bytes = text[..text.len().min(usize::from(size).saturating_sub(1))].to_vec();
    bytes.push(0);
    Array::U8(bytes)
}

/// Reads a text of any length through a link (dbGetLinkLS).
pub(crate) fn get_link_long(
    db: &mut Db,
    rec: RecId,
    link: ResolvedLink,
    size: u16,
) -> Result<Option<Array>, LinkError> {
    if link.kind == LinkKind::Constant {
        return Ok(None);
    }
    if matches!(db.link_type(link), Some(FieldType::I8 | FieldType::U8)) {
        let mut found = db.get_link_array(rec, link, FieldType::U8, usize::from(size))?;
        if let Some(Array::U8(bytes)) = &mut found {
            // As in C the last element makes room for the end, also where it is not one.
            bytes.pop();
            bytes.truncate(text(bytes).len());
            bytes.push(0);
        }
        return Ok(found);
    }
    let Some(found) = db.get_link_text(rec, link)? else { return Ok(None) };
    let mut into = db.lend_array(FieldType::U8);
    if let Array::U8(bytes) = &mut into {
        let found = found.bytes();
        bytes.extend_from_slice(&found[..found.len().min(usize::from(size).saturating_sub(1))]);
        bytes.push(0);
    }
    Ok(Some(into))
}

/// What lsi and lso have in common: what their type says of the text, and, for `$T`, memory, constants and events.
macro_rules! long_text {
    () => {
        const LONG_TEXTS: &'static [u16] = &[Self::VAL, Self::OVAL];

        fn shape(&self, _: u16) -> (u32, FieldType) {
            (u32::from(self.sizv), FieldType::F64)
        }

        /// C's links see that of a text that was never written, too.
        fn in_memory(&self, field: u16) -> Option<Scalar> {
            let text = match field {
                Self::VAL => &self.val,
                Self::OVAL => &self.oval,
                _ => return None,
            };
            let Array::U8(bytes) = text else { return None };
            Some(Scalar::String(Str40::new(bytes)))
        }

        fn long_text_written(&mut self) {
            self.len = self.val.len() as u32;
        }
    };
    ($T:ident) => {
        impl $T {
            /// Takes the memory for the texts.
            fn reserve(&mut self) {
                self.sizv = self.sizv.clamp(16, 0x7fff);
                self.val = Array::U8(Vec::with_capacity(usize::from(self.sizv)));
                self.oval = Array::U8(Vec::with_capacity(usize::from(self.sizv)));
            }

            /// VAL begins with a constant.
            fn begin_with(&mut self, text: &str) {
                self.val = with_nul(text.as_bytes(), self.sizv);
                self.len = self.val.len() as u32;
                self.oval.clone_from(&self.val);
                self.olen = self.len;
            }
        }

        /// Takes a text with its NUL as VAL.
        fn set(db: &mut Db, body: Body<$T>, val: Array) {
            let r = &mut db.records[body];
            r.len = val.len() as u32;
            let spare = crate::rec::arrays::set(&mut r.val, val);
            db.recycle_array(spare);
        }

        fn monitor(db: &mut Db, rec: RecId, body: Body<$T>) {
            let alarm = db.reset_alarms(rec);
            let r = &mut db.records[body];
            let moved = r.len != r.olen || r.val != r.oval;
            if moved {
                crate::model::values::copy_into(&r.val, 0, 1, r.val.len(), usize::MAX, &mut r.oval);
            }
            let (longer, always) = (crate::rec::changed(&mut r.olen, r.len), [r.mpst, r.apst]);
            if longer {
                db.post_named(rec, "LEN", EventMask::VALUE | EventMask::LOG);
            }
            crate::rec::post_text(db, rec, alarm, moved, always);
        }
    };
}
pub(crate) use long_text;

long_text!(Lsi);
