//! Units, precision, limits and labels of fields, as each record type gives them.

use crate::channel::Channel;
use crate::engine::Db;
use crate::record::Kind;
use crate::slot::Slot;
use base::{AlarmLimits, FieldType, Meta, Range, Str40};

/// What a display may expect of a type without limits of its own.
fn type_range(kind: FieldType) -> Range {
    let (low, high) = match kind {
        FieldType::I8 => (-128.0, 127.0),
        FieldType::U8 => (0.0, 255.0),
        FieldType::I16 => (-32768.0, 32767.0),
        FieldType::U16 | FieldType::Enum => (0.0, 65535.0),
        FieldType::I32 => (-2_147_483_648.0, 2_147_483_647.0),
        FieldType::U32 => (0.0, 4_294_967_295.0),
        FieldType::I64 => (-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0),
        FieldType::U64 => (0.0, 18_446_744_073_709_551_615.0),
        FieldType::F32 => (-1e30, 1e30),
        FieldType::F64 => (-1e300, 1e300),
        _ => (0.0, 0.0),
    };
    Range { low, high }
}

impl Db {
    /// Units, precision, limits and labels of a field.
    pub fn meta(&mut self, channel: &Channel) -> Meta {
        let (rec, field) = (channel.record.0, channel.field);
        let kind = self.element_type(rec, field);
        if channel.type_name || channel.long_string {
            return Meta::default();
        }
        let mut meta = Meta { precision: self.precision_of(rec, field) as i16, ..Meta::default() };
        match kind {
            FieldType::Menu => {
                let menu = self.def(rec, field).menu_index;
                let choices = menu.map_or(&[][..], |menu| &self.schema.menus[usize::from(menu)].choices);
                meta.labels = choices.iter().map(|choice| Str40::from(choice.as_str())).collect();
                return meta;
            }
            FieldType::Device => {
                meta.labels =
                    self.type_of(rec).devices.iter().map(|device| Str40::from(device.name.as_str())).collect();
                return meta;
            }
            FieldType::Enum => {
                meta.labels = crate::rec::states(self, rec);
                meta.beyond = crate::rec::state_text(self, rec, u16::MAX);
                if self.common[rec as usize].kind() == Kind::Bo {
                    // The one enumeration whose record answers with the range of its type.
                    meta.control = Range { low: 0.0, high: 65_535.0 };
                }
                return meta;
            }
            FieldType::String | FieldType::Link => return meta,
            _ => {}
        }
        let name = self.def(rec, field).name.clone();
        if let Some(input) = self.input_link(rec, &name) {
            return self.linked_meta(rec, &name, input, meta);
        }
        meta.units = self.units_of(rec, &name, kind);
        meta.display = self.range_of(rec, &name, kind, false);
        meta.control = self.range_of(rec, &name, kind, true);
        if name == "VAL" {
            meta.alarm = self.alarm_limits(rec);
        }
        meta
    }

    /// Fields of inputs (A, LA, …) have the properties of what their link leads to.
    fn linked_meta(&mut self, rec: u32, name: &str, link_field: u16, mut meta: Meta) -> Meta {
        let brief = match self.peek(rec, link_field) {
            Slot::Link(link) => link.brief(),
            _ => return meta,
        };
        meta.control = self.range_of(rec, name, FieldType::F64, true);
        match brief.kind {
            crate::link::LinkKind::Db if brief.target != rec => {
                let source = Channel {
                    record: crate::channel::RecId(brief.target),
                    field: brief.field,
                    long_string: false,
                    type_name: false,
                    filters: crate::filter::Filters::default(),
                };
                // One step only: an input of an input shows its own record's properties.
                let source_name = self.def(brief.target, brief.field).name.clone();
                if self.input_link(brief.target, &source_name).is_none() {
                    let found = self.meta(&source);
                    meta.units = found.units;
                    meta.precision = found.precision;
                    meta.display = found.display;
                    meta.alarm = found.alarm;
                }
            }
            crate::link::LinkKind::Json => {
                if let Some(calc) = self.json.get(brief.target).and_then(crate::jlink::JsonLink::calc) {
                    meta.units = calc.units;
                    meta.precision = calc.precision;
                }
            }
            crate::link::LinkKind::Remote => {
                if let Some(found) = self.remotes.meta(brief.target) {
                    meta.units = found.units;
                    meta.precision = found.precision;
                    meta.display = found.display;
                    meta.alarm = found.alarm;
                }
            }
            _ => {}
        }
        meta
    }

    /// The link that feeds a field such as A or LA.
    fn input_link(&self, rec: u32, name: &str) -> Option<u16> {
        if !matches!(self.common[rec as usize].kind(), Kind::Calc | Kind::CalcOut | Kind::Sub | Kind::Sel) {
            return None;
        }
        let letter = match name.as_bytes() {
            [letter @ b'A'..=b'U'] | [b'L', letter @ b'A'..=b'U'] => *letter,
            _ => return None,
        };
        self.type_of(rec).field(&format!("INP{}", char::from(letter)))
    }

    /// A double field of the record, by name.
    fn number_field(&mut self, rec: u32, name: &str) -> Option<f64> {
        let field = self.type_of(rec).field(name)?;
        self.read_number(rec, field)
    }

    fn units_of(&mut self, rec: u32, name: &str, kind: FieldType) -> Str40 {
        let record = self.common[rec as usize].kind();
        match (record, name) {
            (Kind::Bo, "HIGH") | (Kind::CalcOut, "ODLY") => return Str40::from("s"),
            (Kind::Seq, name) if name.starts_with("DLY") => return Str40::from("s"),
            (Kind::Histogram, "SDEL") => return Str40::from("s"),
            (Kind::Ai | Kind::Ao, "ASLO" | "AOFF" | "SMOO") => return Str40::EMPTY,
            (Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray, "VAL") => {}
            (Kind::Compress, "VAL") => {}
            (Kind::LongIn | Kind::LongOut, _) if kind != FieldType::I32 => return Str40::EMPTY,
            (Kind::Int64In | Kind::Int64Out, _) if kind != FieldType::I64 => return Str40::EMPTY,
            (Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray, "HOPR" | "LOPR") => {}
            (Kind::Compress, "IHIL" | "ILIL" | "HOPR" | "LOPR") => {}
            (Kind::LongIn | Kind::LongOut | Kind::Int64In | Kind::Int64Out, _) => {}
            _ if kind != FieldType::F64 => return Str40::EMPTY,
            _ => {}
        }
        let Some(field) = self.type_of(rec).field("EGU") else { return Str40::EMPTY };
        self.read_text(rec, field).unwrap_or_default()
    }

    fn range_of(&mut self, rec: u32, name: &str, kind: FieldType, control: bool) -> Range {
        let record = self.common[rec as usize].kind();
        let mut from = |low: &str, high: &str| {
            Some(Range { low: self.number_field(rec, low)?, high: self.number_field(rec, high)? })
        };
        let analog = matches!(name, "VAL" | "HIHI" | "HIGH" | "LOW" | "LOLO" | "LALM" | "ALST" | "MLST");
        let found = match (record, name) {
            (Kind::Ao, "OVAL" | "PVAL") => {
                from(if control { "DRVL" } else { "LOPR" }, if control { "DRVH" } else { "HOPR" })
            }
            (Kind::Ao, _) if analog && control => from("DRVL", "DRVH"),
            (Kind::LongOut | Kind::Int64Out, _) if analog && control => {
                from("DRVL", "DRVH").filter(|range| range.high > range.low).or_else(|| from("LOPR", "HOPR"))
            }
            (Kind::Ai | Kind::LongIn | Kind::Int64In, "SVAL") => from("LOPR", "HOPR"),
            (Kind::Bo, "HIGH") if control => Some(Range { low: 0.0, high: 100_000.0 }),
            (Kind::CalcOut, "ODLY") => Some(Range { low: 0.0, high: 100_000.0 }),
            (Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray | Kind::Compress | Kind::Histogram, "VAL") => {
                from("LOPR", "HOPR")
            }
            (Kind::Compress, "IHIL" | "ILIL") => from("LOPR", "HOPR"),
            (Kind::Aai | Kind::Aao | Kind::Waveform, "NORD") => {
                self.number_field(rec, "NELM").map(|high| Range { low: 0.0, high })
            }
            (Kind::Ai | Kind::Ao | Kind::Calc | Kind::CalcOut | Kind::DFanout | Kind::Sel | Kind::Sub, _) if analog => {
                from("LOPR", "HOPR")
            }
            (Kind::LongIn | Kind::LongOut | Kind::Int64In | Kind::Int64Out, _) if analog => from("LOPR", "HOPR"),
            _ => None,
        };
        found.unwrap_or_else(|| type_range(kind))
    }

    fn alarm_limits(&mut self, rec: u32) -> AlarmLimits {
        let mut limit = |severity: &str, value: &str| {
            let on = self.number_field(rec, severity).is_some_and(|severity| severity != 0.0);
            if on { self.number_field(rec, value).unwrap_or(f64::NAN) } else { f64::NAN }
        };
        AlarmLimits {
            hihi: limit("HHSV", "HIHI"),
            high: limit("HSV", "HIGH"),
            low: limit("LSV", "LOW"),
            lolo: limit("LLSV", "LOLO"),
        }
    }

    /// PREC of a record; 6 for types without, as texts written from numbers have it, and for histogram, which minds its
    /// PREC for few fields.
    pub(crate) fn own_precision(&mut self, rec: u32) -> u16 {
        if self.common[rec as usize].kind() == Kind::Histogram {
            return 6;
        }
        let Some(prec) = self.type_of(rec).field("PREC") else { return 6 };
        match self.peek(rec, prec) {
            Slot::I16(prec) => *prec as u16,
            _ => 6,
        }
    }

    /// Digits after the point that a field is shown with.
    pub(crate) fn precision_of(&mut self, rec: u32, field: u16) -> u16 {
        let kind = self.element_type(rec, field);
        if !matches!(kind, FieldType::F32 | FieldType::F64) {
            return 0;
        }
        let record = self.type_of(rec);
        let name = record.fields[usize::from(field)].name.as_str();
        if record.name == "bo" && name == "HIGH" || record.name == "seq" && name.starts_with("DLY") {
            return 2;
        }
        if record.name == "histogram" && name == "SDEL" {
            return 2;
        }
        let Some(prec) = record.field("PREC") else {
            // Types without PREC give EPICS' default, which their other fields limit to 15.
            return if crate::dev::has_precision(self.common[rec as usize].kind()) { 15 } else { 6 };
        };
        let is_value = name == "VAL";
        let own = match self.peek(rec, prec) {
            Slot::I16(prec) => *prec,
            _ => 0,
        };
        if !is_value && !(0..=15).contains(&own) { 15 } else { own as u16 }
    }
}
