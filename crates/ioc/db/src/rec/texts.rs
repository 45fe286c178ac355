//! Common code of the text records: the inputs stringin and lsi, and the outputs stringout, lso and printf. Long texts are
//! byte arrays with a NUL.

use super::common::Common;
use super::{Body, ReadOutcome, RecordType, drive_output, no_device, read_input, stamp_output};
use crate::model::id::RecId;
use crate::model::link::{LinkKind, ResolvedLink};
use crate::model::values::text;
use crate::run::device::{Device, Stream};
use crate::run::engine::{Db, ProcessResult};
use crate::run::link::LinkResult;
use base::{Array, FieldType};

/// Type-specific parts of a text input.
pub(crate) trait TextInput: RecordType {
    /// Reads the device.
    fn read(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ReadOutcome;
    /// Reads SIOL.
    fn simulated(db: &mut Db, rec: RecId, body: Body<Self>) -> ReadOutcome;
    fn monitor(db: &mut Db, rec: RecId, body: Body<Self>);
}

/// Processes a text input: reads the input, posts monitors.
pub(crate) fn process_input<T: TextInput>(db: &mut Db, rec: RecId, body: Body<T>, resumed: bool) -> ProcessResult {
    let read = |db: &mut Db| T::read(db, rec, body, resumed);
    let simulated = |db: &mut Db, _| T::simulated(db, rec, body);
    match read_input(db, rec, body, resumed, false, read, simulated) {
        Ok(read) => {
            T::monitor(db, rec, body);
            read.outcome()
        }
        Err(result) => result,
    }
}

/// Type-specific parts of a text output.
pub(crate) trait TextOutput: RecordType {
    /// Whether the record is stamped before the write, so that records processed by the write see the new time stamp.
    const STAMPED_FIRST: bool = false;
    /// Whether the record stays active if its device support is missing.
    const NEEDS_DEVICE: bool = true;

    /// Sets VAL: from DOL, or by formatting.
    fn fetch(db: &mut Db, rec: RecId, body: Body<Self>);
    /// Raises the alarm of a text that was never set.
    fn check_alarms(_: &mut Common) {}
    fn ivoa(&self) -> u16 {
        0
    }
    /// Sets VAL to IVOV.
    fn set_ivov(&mut self) {}
    /// Writes VAL. Returns whether a callback is pending.
    fn write(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> bool;
    fn monitor(db: &mut Db, rec: RecId, body: Body<Self>);
}

/// Processes a text output: fetches the text, writes it, posts monitors.
pub(crate) fn process_output<T: TextOutput>(db: &mut Db, rec: RecId, body: Body<T>, resumed: bool) -> ProcessResult {
    if T::NEEDS_DEVICE && db.device(rec) == Device::Missing {
        return no_device(db, rec);
    }
    if !resumed {
        T::fetch(db, rec, body);
    }
    T::check_alarms(&mut db.records[rec]);
    if T::STAMPED_FIRST {
        stamp_output(db, rec, body);
    }
    let ivoa = db.records[body].ivoa();
    let ivov = |db: &mut Db| db.records[body].set_ivov();
    if drive_output(db, rec, resumed, ivoa, ivov, |db| T::write(db, rec, body, resumed)) {
        return ProcessResult::Pending;
    }
    let failed = db.pass.failed;
    if !T::STAMPED_FIRST {
        stamp_output(db, rec, body);
    }
    T::monitor(db, rec, body);
    if failed { ProcessResult::Failed } else { ProcessResult::Done }
}

/// Output of `stdio` device support, and the stream named by its address: `@stdout`, `@stderr` or `@errlog`.
pub(crate) fn printed(address: &str, text: &[u8]) -> (Stream, String) {
    let stream = match address.trim_start_matches('@').trim() {
        "stderr" => Stream::Err,
        "errlog" => Stream::Log,
        _ => Stream::Out,
    };
    (stream, base::raw::decode(text).into_owned())
}

/// A text with its NUL, as an array.
pub(crate) fn with_nul(text: &[u8], size: u16) -> Array {
    let mut bytes = text[..text.len().min(usize::from(size).saturating_sub(1))].to_vec();
    bytes.push(0);
    Array::U8(bytes)
}

/// Reads a text of any length through a link (dbGetLinkLS).
pub(crate) fn get_link_long(db: &mut Db, rec: RecId, link: ResolvedLink, size: u16) -> LinkResult<Array> {
    if link.kind == LinkKind::Constant {
        return Ok(None);
    }
    if matches!(db.link_type(link), Some(FieldType::I8 | FieldType::U8)) {
        let mut found = db.get_link_array(rec, link, FieldType::U8, usize::from(size))?;
        if let Some(Array::U8(bytes)) = &mut found {
            // As in C, the last element is replaced by the NUL, even if it is not a NUL already.
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

/// Common code of lsi and lso: text properties, and, for `$T`, allocation, constants and events.
macro_rules! long_text {
    () => {
        const LONG_TEXTS: &'static [u16] = &[Self::VAL, Self::OVAL];

        fn shape(&self, _: u16) -> (u32, FieldType) {
            (u32::from(self.sizv), FieldType::F64)
        }

        /// As in C, a link reads the memory even if the text was never written.
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
            /// Allocates the texts.
            fn reserve(&mut self) {
                self.sizv = self.sizv.clamp(16, 0x7fff);
                self.val = Array::U8(Vec::with_capacity(usize::from(self.sizv)));
                self.oval = Array::U8(Vec::with_capacity(usize::from(self.sizv)));
            }

            /// Sets the initial VAL from a constant.
            fn begin_with(&mut self, text: &str) {
                self.val = with_nul(&base::raw::encode(text), self.sizv);
                self.len = self.val.len() as u32;
                self.oval.clone_from(&self.val);
                self.olen = self.len;
            }
        }

        /// Sets VAL to a text with its NUL.
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
