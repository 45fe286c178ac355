//! Units, precision, limits and labels of fields, as C's record types give them: nothing where they give nothing.

use crate::model::id::RecId;
use crate::model::json_link::JsonLink;
use crate::model::link::{LinkKind, ResolvedLink};
use crate::model::schema::Schema;
use crate::model::slot::Slot;
use crate::rec::Kind;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use base::{AlarmLimits, FieldType, Meta, Range, Str40};
use std::sync::Arc;

/// How many links properties are followed over; C ends where its stack does.
const LINKS_LIMIT: u32 = 16;

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

/// Whether limits of the value are those of this field, too.
fn is_analog(name: &str) -> bool {
    matches!(name, "VAL" | "HIHI" | "HIGH" | "LOW" | "LOLO" | "LALM" | "ALST" | "MLST")
}

/// Where a field's properties come from.
struct Of<'a> {
    rec: RecId,
    record: Kind,
    name: &'a str,
    /// The type in the table of fields; none of those whose type the record chooses.
    kind: Option<FieldType>,
    /// For seq: a delay (and its link), or a value (and where it goes).
    step: Option<Step>,
    /// The link that feeds the field, where there is such a one.
    link: Option<ResolvedLink>,
    /// How many more links may be followed.
    links: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Delay,
    Value,
}

impl Db {
    /// Units, precision, limits and labels of a field.
    pub fn meta(&mut self, channel: &Channel) -> Meta {
        if channel.type_name {
            return Meta::default();
        }
        self.meta_over(channel.record, channel.field, LINKS_LIMIT)
    }

    /// As much of [`meta`](Self::meta) as a value's text is made with: digits after the point, names of states. Does not
    /// allocate but for the latter.
    pub fn text_meta(&mut self, channel: &Channel, into: &mut Meta) {
        let (rec, field) = (channel.record, channel.field);
        match self.records.element_type(rec, field) {
            _ if channel.type_name => *into = Meta::default(),
            FieldType::Menu | FieldType::Device | FieldType::Enum => *into = self.meta(channel),
            FieldType::F32 | FieldType::F64 => {
                let schema = Arc::clone(&self.records.schema);
                let of = self.source_of(&schema, rec, field, LINKS_LIMIT);
                self.precisions(&of, into);
            }
            _ => (into.precision, into.text_precision) = (0, None),
        }
    }

    /// Digits after the point: those that are told, and those of texts where they are others.
    fn precisions(&mut self, of: &Of<'_>, into: &mut Meta) {
        into.precision = self.precision_given(of, 0);
        let in_texts = self.precision_given(of, 6);
        into.text_precision = (in_texts != into.precision).then_some(in_texts as u16);
    }

    /// The same over so many links.
    fn meta_over(&mut self, rec: RecId, field: u16, links: u32) -> Meta {
        let element = self.records.element_type(rec, field);
        let mut meta = Meta::default();
        match element {
            FieldType::Menu => {
                let menu = self.records.def(rec, field).menu_index;
                let choices = menu.map_or(&[][..], |menu| &self.records.schema.menus[usize::from(menu)].choices);
                meta.labels = choices.iter().map(|choice| Str40::from(choice.as_str())).collect();
            }
            FieldType::Device => {
                let devices = self.records.type_of(rec).devices.iter();
                meta.labels = devices.map(|device| Str40::from(device.name.as_str())).collect();
                // Of types without devices.
                meta.beyond = meta.labels.is_empty().then_some(Str40::EMPTY);
            }
            FieldType::Enum => {
                meta.labels = self.records.states(rec);
                meta.beyond = self.records.beyond_states(rec);
            }
            _ => {}
        }
        let schema = Arc::clone(&self.records.schema);
        let of = self.source_of(&schema, rec, field, links);
        let linked = self.linked_meta(&of);
        if matches!(element, FieldType::F32 | FieldType::F64) {
            self.precisions(&of, &mut meta);
        }
        meta.units = self.units_of(&of, linked.as_ref());
        meta.display = self.range_of(&of, linked.as_ref(), false);
        meta.control = self.range_of(&of, linked.as_ref(), true);
        meta.alarm = self.alarm_limits(&of, linked.as_ref());
        meta
    }

    fn source_of<'a>(&mut self, schema: &'a Schema, rec: RecId, field: u16, links: u32) -> Of<'a> {
        let own = self.records[rec].kind();
        let record = crate::rec::described_as(own);
        let first = if record == Kind::Seq { self.records.type_of(rec).field("DLY1") } else { None };
        // C looks at the place in the table alone: the first step has no properties, links have their neighbours'.
        let place = first.and_then(|first| field.checked_sub(first));
        let step = place.map(|place| if place & 2 == 0 { Step::Delay } else { Step::Value });
        let def = &schema.types[own as usize].fields[usize::from(field)];
        let feeding = match (record, def.name.as_bytes()) {
            (Kind::Calc | Kind::CalcOut | Kind::Sub, [letter @ b'A'..=b'U'] | [b'L', letter @ b'A'..=b'U'])
            | (Kind::ASub, [letter @ b'A'..=b'U']) => [b'I', b'N', b'P', *letter],
            (Kind::ASub, [b'V', b'A', b'L', letter]) => [b'O', b'U', b'T', *letter],
            // As C counts them, that of the step before.
            (Kind::Seq, _) if step == Some(Step::Value) => {
                let before = place.map_or(0, |place| usize::from(place >> 2) & 15);
                [b'D', b'O', b'L', b"0123456789ABCDEF"[before]]
            }
            _ => [0; 4],
        };
        let link = std::str::from_utf8(&feeding).ok().and_then(|name| schema.types[own as usize].field(name));
        let link = link.and_then(|link| match self.records.peek(rec, link) {
            Slot::Link(link) => Some(link.brief()),
            _ => None,
        });
        let link = match link {
            Some(through) if through.kind == LinkKind::Through => self.bare(through),
            link => link,
        };
        Of { rec, record, name: &def.name, kind: def.kind, step, link, links }
    }

    /// The properties of what the link leads to that feeds a field; none where that has no properties.
    fn linked_meta(&mut self, of: &Of<'_>) -> Option<Meta> {
        let link = of.link?;
        match link.kind {
            LinkKind::Db if of.links > 0 => Some(self.meta_over(link.record(), link.field, of.links - 1)),
            LinkKind::Json => self.links.json.get(link.target).and_then(JsonLink::calc).map(|calc| Meta {
                units: calc.units,
                precision: calc.precision,
                ..Meta::default()
            }),
            LinkKind::Remote => self.links.remotes.meta(link.target).cloned(),
            _ => None,
        }
    }

    /// Its precision alone.
    fn linked_precision(&mut self, of: &Of<'_>) -> Option<i16> {
        let link = of.link?;
        match link.kind {
            LinkKind::Db if of.links > 0 => {
                if !matches!(self.records.element_type(link.record(), link.field), FieldType::F32 | FieldType::F64) {
                    return Some(0);
                }
                let schema = Arc::clone(&self.records.schema);
                let source = self.source_of(&schema, link.record(), link.field, of.links - 1);
                Some(self.precision_given(&source, 0))
            }
            LinkKind::Json => self.links.json.get(link.target).and_then(JsonLink::calc).map(|calc| calc.precision),
            LinkKind::Remote => self.links.remotes.meta(link.target).map(|meta| meta.precision),
            _ => None,
        }
    }

    /// A number in another field of the record, by name.
    fn number_field(&mut self, rec: RecId, name: &str) -> Option<f64> {
        let field = self.records.type_of(rec).field(name)?;
        self.read_number(rec, field)
    }

    fn units_of(&mut self, of: &Of<'_>, linked: Option<&Meta>) -> Str40 {
        let real = of.kind == Some(FieldType::F64);
        match (of.record, of.name) {
            (Kind::Bo, "HIGH") | (Kind::CalcOut, "ODLY") | (Kind::Histogram, "SDEL") => return Str40::from("s"),
            (Kind::Seq, _) if of.step == Some(Step::Delay) => return Str40::from("s"),
            (Kind::Seq | Kind::ASub | Kind::Calc | Kind::CalcOut | Kind::Sub, _) if of.link.is_some() => {
                return linked.map_or(Str40::EMPTY, |meta| meta.units);
            }
            (Kind::Ai, "ASLO" | "AOFF" | "SMOO") | (Kind::Ao, "ASLO" | "AOFF") => return Str40::EMPTY,
            (Kind::Ai | Kind::Ao | Kind::Calc | Kind::CalcOut | Kind::Sub | Kind::Sel | Kind::DFanout, _) if real => {}
            (Kind::LongIn | Kind::LongOut, _) if of.kind == Some(FieldType::I32) => {}
            (Kind::Int64In | Kind::Int64Out, _) if of.kind == Some(FieldType::I64) => {}
            (Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray, "VAL") => {
                let elements = self.records.type_of(of.rec).val;
                if matches!(self.records.element_type(of.rec, elements), FieldType::String | FieldType::Enum) {
                    return Str40::EMPTY;
                }
            }
            (Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray, "HOPR" | "LOPR") => {}
            (Kind::Compress, name) if real || name == "VAL" => {}
            _ => return Str40::EMPTY,
        }
        let Some(field) = self.records.type_of(of.rec).field("EGU") else { return Str40::EMPTY };
        self.read_text(of.rec, field).unwrap_or_default()
    }

    /// The limits of a display, or of what may be written.
    fn range_of(&mut self, of: &Of<'_>, linked: Option<&Meta>, control: bool) -> Range {
        let (rec, name, analog) = (of.rec, of.name, is_analog(of.name));
        let mut from = |low: &str, high: &str| {
            Some(Range { low: self.number_field(rec, low)?, high: self.number_field(rec, high)? })
        };
        let upto = |high: f64| Some(Range { low: 0.0, high });
        let found = match of.record {
            Kind::Ai | Kind::LongIn | Kind::Int64In if analog || of.name == "SVAL" => from("LOPR", "HOPR"),
            Kind::Ao if control && (analog || matches!(name, "OVAL" | "PVAL")) => from("DRVL", "DRVH"),
            Kind::Ao if !control && (analog || matches!(name, "OVAL" | "PVAL" | "IVOV")) => from("LOPR", "HOPR"),
            Kind::LongOut | Kind::Int64Out if analog && control => {
                from("DRVL", "DRVH").filter(|range| range.high > range.low).or_else(|| from("LOPR", "HOPR"))
            }
            Kind::DFanout if control && matches!(name, "HIHI" | "HIGH" | "LOW" | "LOLO") => None,
            Kind::CalcOut if name == "ODLY" && control => upto(100_000.0),
            Kind::CalcOut if name == "ODLY" => upto(1e300),
            Kind::LongOut | Kind::Int64Out | Kind::DFanout | Kind::Sel | Kind::Calc | Kind::CalcOut | Kind::Sub
                if analog =>
            {
                from("LOPR", "HOPR")
            }
            Kind::Sel if matches!(name.as_bytes(), [b'A'..=b'L'] | [b'L', b'A'..=b'L']) => from("LOPR", "HOPR"),
            Kind::Calc | Kind::CalcOut | Kind::Sub if !control && of.link.is_some() => {
                Some(linked.map_or(Range::default(), |meta| meta.display))
            }
            Kind::ASub if !control => Some(linked.map_or(Range::default(), |meta| meta.display)),
            Kind::Seq => match of.step {
                Some(Step::Delay) if control => upto(100_000.0),
                // C sets the lower limit twice.
                Some(Step::Delay) => Some(Range { low: 10.0, high: 0.0 }),
                Some(Step::Value) if !control => Some(linked.map_or(Range::default(), |meta| meta.display)),
                _ => None,
            },
            Kind::Bo if control && name == "HIGH" => upto(100_000.0),
            Kind::Bo if control => None,
            Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray | Kind::Compress | Kind::Histogram
                if name == "VAL" =>
            {
                from("LOPR", "HOPR")
            }
            Kind::Compress if matches!(name, "IHIL" | "ILIL") => from("LOPR", "HOPR"),
            Kind::Histogram if name == "WDTH" => from("LLIM", "ULIM").and_then(|range| upto(range.high - range.low)),
            Kind::Aai | Kind::Aao | Kind::Waveform if name == "NORD" => self.number_field(rec, "NELM").and_then(upto),
            Kind::Waveform | Kind::SubArray if name == "BUSY" => upto(1.0),
            Kind::SubArray => self.number_field(rec, "MALM").and_then(|room| match name {
                "INDX" => upto(room - 1.0),
                "NELM" if control => Some(Range { low: 1.0, high: room }),
                "NELM" | "NORD" => upto(room),
                _ => None,
            }),
            Kind::Ai
            | Kind::LongIn
            | Kind::Int64In
            | Kind::Ao
            | Kind::LongOut
            | Kind::Int64Out
            | Kind::DFanout
            | Kind::Sel
            | Kind::Calc
            | Kind::CalcOut
            | Kind::Sub
            | Kind::ASub
            | Kind::Aai
            | Kind::Aao
            | Kind::Waveform
            | Kind::Compress
            | Kind::Histogram => None,
            // The other types say nothing of limits.
            _ => Some(Range::default()),
        };
        found.unwrap_or_else(|| of.kind.map_or(Range::default(), type_range))
    }

    fn alarm_limits(&mut self, of: &Of<'_>, linked: Option<&Meta>) -> AlarmLimits {
        if of.link.is_some() {
            return linked.map_or(AlarmLimits::NONE, |meta| meta.alarm);
        }
        let severities = match of.record {
            _ if of.name != "VAL" => return AlarmLimits::NONE,
            // These give their limits whether they lead to an alarm or not.
            Kind::Int64In | Kind::Int64Out => false,
            Kind::Ai | Kind::Ao | Kind::Calc | Kind::CalcOut | Kind::Sub | Kind::Sel | Kind::DFanout => true,
            Kind::LongIn | Kind::LongOut => true,
            _ => return AlarmLimits::NONE,
        };
        let mut limit = |severity: &str, value: &str| {
            let on = !severities || self.number_field(of.rec, severity).is_some_and(|severity| severity != 0.0);
            if on { self.number_field(of.rec, value).unwrap_or(f64::NAN) } else { f64::NAN }
        };
        // C's conditional has a float in its other branch.
        let narrow = matches!(of.record, Kind::LongIn | Kind::LongOut);
        let mut limit = |severity: &str, value: &str| {
            let limit = limit(severity, value);
            if narrow { f64::from(limit as f32) } else { limit }
        };
        AlarmLimits {
            hihi: limit("HHSV", "HIHI"),
            high: limit("HSV", "HIGH"),
            low: limit("LSV", "LOW"),
            lolo: limit("LLSV", "LOLO"),
        }
    }

    /// Digits after the point that a record gives a field; `unset` where it says nothing of it.
    fn precision_given(&mut self, of: &Of<'_>, unset: i16) -> i16 {
        let usual = |precision: i16| match of.kind {
            Some(FieldType::F32 | FieldType::F64) if !(0..=15).contains(&precision) => 15,
            Some(
                FieldType::I8
                | FieldType::U8
                | FieldType::I16
                | FieldType::U16
                | FieldType::I32
                | FieldType::U32
                | FieldType::I64
                | FieldType::U64,
            ) => 0,
            _ => precision,
        };
        let is_value = match of.record {
            Kind::Bo if of.name == "HIGH" => return 2,
            Kind::CalcOut if of.name == "ODLY" => return 2,
            Kind::Histogram if of.name == "SDEL" => return 2,
            Kind::Seq if of.step == Some(Step::Delay) => return 2,
            Kind::Histogram if !matches!(of.name, "ULIM" | "LLIM" | "SGNL" | "SVAL" | "WDTH") => return usual(unset),
            Kind::MbbiDirect | Kind::MbboDirect if of.name != "VAL" => return usual(unset),
            Kind::Bo => return usual(unset),
            Kind::Histogram | Kind::MbbiDirect | Kind::MbboDirect => true,
            Kind::Ao => matches!(of.name, "VAL" | "OVAL" | "PVAL"),
            Kind::Calc | Kind::CalcOut | Kind::Sub | Kind::ASub | Kind::Seq if of.link.is_some() => {
                match self.linked_precision(of) {
                    Some(precision) => return precision,
                    None => of.record != Kind::Seq,
                }
            }
            Kind::ASub | Kind::Seq => false,
            Kind::Ai | Kind::Calc | Kind::CalcOut | Kind::Sub | Kind::Sel | Kind::DFanout | Kind::Compress => {
                of.name == "VAL"
            }
            Kind::Aai | Kind::Aao | Kind::Waveform | Kind::SubArray => of.name == "VAL",
            _ => return unset,
        };
        let name = if matches!(of.record, Kind::MbbiDirect | Kind::MbboDirect) { "NOBT" } else { "PREC" };
        let own = match self.records.type_of(of.rec).field(name).map(|field| self.records.peek(of.rec, field)) {
            Some(Slot::I16(own)) => *own,
            Some(Slot::U16(own)) => *own as i16,
            _ => 0,
        };
        if is_value { own } else { usual(own) }
    }

    /// Digits after the point in texts that are made from a field's numbers, and from numbers that are written into it.
    /// Takes no memory.
    pub(crate) fn precision_of(&mut self, rec: RecId, field: u16) -> u16 {
        let schema = Arc::clone(&self.records.schema);
        let of = self.source_of(&schema, rec, field, LINKS_LIMIT);
        self.precision_given(&of, 6) as u16
    }
}
