//! printf record.

use super::texts::{TextOutput, printed, process_output};
use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Text, record};
use crate::model::values::text;
use crate::rec::common::Common;
use crate::rec::{ArrayView, Body, RecId, RecordType};
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::text::conv::Number;
use base::{Array, Directive, EventMask, FieldType};

record! {
    /// Fields of a printf record.
    Printf {
        val: Array [VAL],
        sizv: u16 [SIZV],
        len: u32 [LEN],
        out: Link [OUT],
        fmt: Text<81> [FMT],
        ivls: Text<16> [IVLS],
        inp: [Link; 10] [INP0 INP1 INP2 INP3 INP4 INP5 INP6 INP7 INP8 INP9],
    }
}

impl RecordType for Printf {
    const LONG_TEXTS: &'static [u16] = &[Self::VAL];

    /// Start: allocates the text.
    fn init(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.sizv = r.sizv.clamp(16, 0x7fff);
        r.val = Array::U8(Vec::with_capacity(usize::from(r.sizv)));
    }

    /// Formats the text, writes the output, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        process_output(db, rec, body, resumed)
    }

    fn shape(&self, _: u16) -> (u32, FieldType) {
        (u32::from(self.sizv), FieldType::F64)
    }

    /// As in C, a text written by a client is visible only after the record was processed.
    fn seen(&self, _: &Common) -> ArrayView {
        if self.len == 0 { ArrayView::Nothing } else { ArrayView::Stored }
    }
}

impl TextOutput for Printf {
    const STAMPED_FIRST: bool = true;
    const NEEDS_DEVICE: bool = false;

    fn fetch(db: &mut Db, rec: RecId, body: Body<Self>) {
        let text = format(db, rec, body);
        let r = &mut db.records[body];
        r.len = text.len() as u32;
        r.val = Array::U8(text);
        db.records[rec].udf = 0;
    }

    fn write(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> bool {
        let device = db.device(rec);
        let r = &db.records[body];
        match device {
            Device::Stdio => {
                if let Array::U8(bytes) = &r.val {
                    let line = printed(r.out.text(), text(bytes));
                    db.outbox.output.push(line);
                }
            }
            Device::Missing => {}
            _ => {
                let (link, value) = (r.out.brief(), r.val.clone());
                db.pass.failed = db.put_link_long(rec, link, &value).is_err();
            }
        }
        false
    }

    fn monitor(db: &mut Db, rec: RecId, _: Body<Self>) {
        let mask = db.reset_alarms(rec) | EventMask::VALUE | EventMask::LOG;
        db.post_value(rec, mask);
        db.post_named(rec, "LEN", mask);
    }
}

/// Reason why a directive has no value.
enum Bad {
    /// Invalid directive: it is written as it is.
    Format,
    /// The input cannot be read: IVLS is written.
    Link,
}

/// FMT with its directives replaced by the inputs, NUL-terminated.
fn format(db: &mut Db, rec: RecId, body: Body<Printf>) -> Vec<u8> {
    let r = &db.records[body];
    let limit = usize::from(r.sizv) - 1;
    let format = r.fmt.bytes().to_vec();
    let mut inputs = Inputs { next: 0, rec, body };
    let mut out = Vec::with_capacity(usize::from(r.sizv));
    let mut at = 0;
    while at < format.len() && out.len() < limit {
        if format[at] != b'%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        let start = at;
        let Some((parsed, end)) = parse(db, &format, at + 1, &mut inputs) else { break };
        at = end;
        let before = out.len();
        if let Err(bad) = parsed.and_then(|(directive, size, letter)| {
            convert(db, &mut inputs, &mut out, limit - before, directive, size, letter)
        }) {
            out.truncate(before);
            match bad {
                Bad::Format => out.extend_from_slice(&format[start..at]),
                Bad::Link => out.extend_from_slice(db.records[body].ivls.bytes()),
            }
        }
        out.truncate(limit);
    }
    out.push(0);
    out
}

/// Size letters of a directive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Plain,
    Char,
    Short,
    Long,
    LongLong,
}

/// The inputs, consumed by the directives in order.
struct Inputs {
    next: usize,
    rec: RecId,
    body: Body<Printf>,
}

impl Inputs {
    /// Link of the next input.
    fn take(&mut self, db: &Db) -> Result<Link, Bad> {
        let link = db.records[self.body].inp.get(self.next).cloned().ok_or(Bad::Link)?;
        self.next += 1;
        Ok(link)
    }

    fn number<T: Number>(&mut self, db: &mut Db) -> Result<T, Bad> {
        let link = self.take(db)?;
        if link.is_constant() {
            return link.number().ok_or(Bad::Link);
        }
        db.get_link(self.rec, link.brief()).ok().flatten().ok_or(Bad::Link)
    }
}

type Parsed = Result<(Directive, Size, u8), Bad>;

/// Parses a directive after its `%`. Returns it and its end; `None` if FMT ends within it.
fn parse(db: &mut Db, format: &[u8], from: usize, inputs: &mut Inputs) -> Option<(Parsed, usize)> {
    let mut directive = Directive::default();
    let (mut width, mut precision): (i64, Option<i64>) = (0, None);
    let mut size = Size::Plain;
    let mut bad: Result<(), Bad> = Ok(());
    let mut at = from;
    loop {
        let byte = *format.get(at)?;
        at += 1;
        let before_point = precision.is_none();
        let number = precision.as_mut().unwrap_or(&mut width);
        match byte {
            b'+' => directive.plus = true,
            b' ' => directive.blank = true,
            b'#' => directive.alternate = true,
            b'-' => directive.left = true,
            b'.' => precision = Some(0),
            b'0' if *number == 0 && before_point => directive.zero = true,
            b'0'..=b'9' => *number = (*number * 10 + i64::from(byte - b'0')).min(1_000_000),
            b'*' if *number != 0 => bad = Err(Bad::Format),
            b'*' => match inputs.number::<i16>(db) {
                Ok(value) => *number = i64::from(value),
                Err(why) => bad = Err(why),
            },
            b'h' | b'l' => {
                size = match (size, byte) {
                    (Size::Plain, b'h') => Size::Short,
                    (Size::Short, b'h') => Size::Char,
                    (Size::Plain, _) => Size::Long,
                    (Size::Long, b'l') => Size::LongLong,
                    _ => {
                        bad = Err(Bad::Format);
                        size
                    }
                };
            }
            _ => {
                if !b"diouxXeEfFgGcs%".contains(&byte) {
                    bad = Err(Bad::Format);
                }
                if width < 0 {
                    directive.left = true;
                }
                directive.width = width.unsigned_abs() as usize;
                // A negative precision is ignored.
                directive.precision = precision.and_then(|digits| usize::try_from(digits).ok());
                return Some((bad.map(|()| (directive, size, byte)), at));
            }
        }
    }
}

/// Formats one value; a long text is limited to `room` bytes.
fn convert(
    db: &mut Db,
    inputs: &mut Inputs,
    out: &mut Vec<u8>,
    room: usize,
    directive: Directive,
    size: Size,
    letter: u8,
) -> Result<(), Bad> {
    match letter {
        b'%' => out.push(b'%'),
        b'c' => {
            let byte = inputs.number::<i8>(db)? as u8;
            directive.text(out, &[byte]);
        }
        b'd' | b'i' => {
            let value = match size {
                Size::Char => i64::from(inputs.number::<i8>(db)?),
                Size::Short => i64::from(inputs.number::<i16>(db)?),
                Size::LongLong => inputs.number::<i64>(db)?,
                Size::Plain | Size::Long => i64::from(inputs.number::<i32>(db)?),
            };
            directive.signed(out, value);
        }
        b'o' | b'x' | b'X' | b'u' => {
            let value = match size {
                Size::Char => u64::from(inputs.number::<u8>(db)?),
                Size::Short => u64::from(inputs.number::<u16>(db)?),
                Size::LongLong => inputs.number::<u64>(db)?,
                Size::Plain | Size::Long => u64::from(inputs.number::<u32>(db)?),
            };
            directive.unsigned(out, value, letter);
        }
        b's' if size == Size::Long => {
            let link = inputs.take(db)?;
            let brief = link.brief();
            let cut =
                directive.precision.filter(|precision| *precision > 0).map_or(room, |precision| precision.min(room));
            let bytes = if link.is_constant() {
                base::raw::encode(&link.long_text().ok_or(Bad::Link)?).into_owned()
            } else if brief.kind == LinkKind::Db && db.records.is_long_text(brief.record(), brief.field) {
                // As in C, a text without `$` is read as a number and formatted as one character.
                let one = db.get_link::<i8>(inputs.rec, brief).ok().flatten().ok_or(Bad::Link)?;
                vec![one as u8]
            } else {
                match db.get_link_array(inputs.rec, link.brief(), FieldType::I8, cut + 1) {
                    Ok(Some(Array::I8(bytes))) => {
                        bytes.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect()
                    }
                    _ => return Err(Bad::Link),
                }
            };
            directive.text(out, &bytes[..bytes.len().min(cut)]);
        }
        b's' => {
            let link = inputs.take(db)?;
            let text = if link.is_constant() {
                link.short_text()
            } else {
                db.get_link_text(inputs.rec, link.brief()).ok().flatten()
            };
            directive.text(out, text.ok_or(Bad::Link)?.bytes());
        }
        _ => {
            let value =
                if size == Size::Short { f64::from(inputs.number::<f32>(db)?) } else { inputs.number::<f64>(db)? };
            directive.float(out, value, letter);
        }
    }
    Ok(())
}
