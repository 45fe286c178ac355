//! Links: their text, and where they lead once resolved.

use crate::model::id::RecId;
use std::fmt::Write;

/// Process the source or target when it is passive.
pub(crate) const PP: u8 = 1;
/// Go over Channel Access although the record may be here.
pub(crate) const CA: u8 = 2;
/// Process the holder on each change of the source.
pub(crate) const CP: u8 = 4;
/// As [`CP`], only while the holder is passive.
pub(crate) const CPP: u8 = 8;
/// Bits that say how severity is passed on.
pub(crate) const MS_BITS: u8 = 0x30;
/// Severity is not passed on.
pub(crate) const NMS: u8 = 0;
/// Severity is passed on as LINK alarm.
pub(crate) const MS: u8 = 0x10;
/// As [`MS`], only INVALID.
pub(crate) const MSI: u8 = 0x20;
/// Severity, status and message are passed on.
pub(crate) const MSS: u8 = 0x30;
/// Only for printing: no word for how the source is processed.
pub(crate) const NO_PP: u8 = 0x80;
/// A TSEL link to `.TIME`.
pub(crate) const IS_TIME: u8 = 0x40;

/// What a link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum LinkKind {
    /// Empty, or a constant.
    #[default]
    Constant,
    /// To a field of this database.
    Db,
    /// To a process variable that is reached over the network, number `target` of the remote table.
    Remote,
    /// Device address (`@…`, `#…`).
    Hardware,
    /// JSON link, number `target` of the table of JSON links.
    Json,
    /// To a field of this database with modifiers, number `target` of the table of their channels.
    Through,
}

/// What kind of field holds a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkField {
    /// DBF_INLINK.
    In,
    /// DBF_OUTLINK.
    Out,
    /// DBF_FWDLINK.
    Forward,
}

/// A link without its text: what processing needs, copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ResolvedLink {
    pub(crate) kind: LinkKind,
    /// `PP`, `CA`, `CP`, `CPP`, severity bits, `IS_TIME`.
    pub(crate) flags: u8,
    /// Number of the target's field.
    pub(crate) field: u16,
    /// Number of the target's record, or of an entry in a table.
    pub(crate) target: u32,
}

impl ResolvedLink {
    /// To a field of this database.
    pub(crate) const fn to_field(flags: u8, field: u16, record: RecId) -> Self {
        Self { kind: LinkKind::Db, flags, field, target: record.0 }
    }

    /// The target's record, where the link is to a field of this database.
    #[inline]
    pub(crate) const fn record(self) -> RecId {
        RecId(self.target)
    }

    /// A constant's, and that of a link that leads to nothing else by number.
    const fn nowhere(kind: LinkKind) -> Self {
        Self { kind, flags: 0, field: 0, target: 0 }
    }
}

/// Bytes of a constant that stand in its link.
const SHORT_BYTES: usize = 14;

/// One link, 16 bytes.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// No link, or a short constant such as a number: takes no memory of its own.
    Short {
        /// Bytes of the text.
        len: u8,
        /// The text, and what is left.
        text: [u8; SHORT_BYTES],
    },
    /// Any other: where it leads, and what cannot be told from that.
    Long(ResolvedLink, Option<Box<LongText>>),
}

impl Default for Link {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// A long constant, an address, or a name that is not the target's plain name; without modifiers.
#[derive(Clone, Debug)]
pub(crate) struct LongText(Box<str>);

impl Link {
    /// No link.
    pub(crate) const EMPTY: Self = Self::Short { len: 0, text: [0; SHORT_BYTES] };

    /// A link that leads somewhere. `text` is kept where it is not empty.
    pub(crate) fn to(brief: ResolvedLink, text: &str) -> Self {
        Self::Long(brief, (!text.is_empty()).then(|| Box::new(LongText(text.into()))))
    }

    /// A constant.
    pub(crate) fn of_constant(text: &str) -> Self {
        let mut short = [0; SHORT_BYTES];
        match short.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short { len: text.len() as u8, text: short }
            }
            None => Self::to(ResolvedLink::nowhere(LinkKind::Constant), text),
        }
    }

    /// A device address.
    pub(crate) fn hardware(address: &str) -> Self {
        Self::to(ResolvedLink::nowhere(LinkKind::Hardware), address)
    }

    /// The link without its text.
    #[inline]
    pub(crate) const fn brief(&self) -> ResolvedLink {
        match self {
            Self::Short { .. } => ResolvedLink::nowhere(LinkKind::Constant),
            Self::Long(brief, _) => *brief,
        }
    }

    /// Whether nothing is read or written through it at run time.
    #[inline]
    pub(crate) const fn is_constant(&self) -> bool {
        matches!(self.brief().kind, LinkKind::Constant)
    }

    /// Whether nothing was ever written here.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self, Self::Short { len: 0, .. })
    }

    /// The text of a constant.
    pub(crate) fn constant(&self) -> Option<&str> {
        (self.is_constant() && !self.is_empty()).then(|| self.text())
    }

    /// The text apart from modifiers, where it was kept.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Short { len, text } => std::str::from_utf8(&text[..usize::from(*len)]).unwrap_or_default(),
            Self::Long(_, text) => text.as_ref().map_or("", |text| &text.0),
        }
    }
}

/// A link's text, taken apart.
#[derive(Clone, Debug)]
pub(crate) enum LinkText<'a> {
    /// Nothing, a number, or a list of constants.
    Constant(&'a str),
    /// A name of a process variable and flags.
    Pv(&'a str, u8),
    /// A device address, with its `@` or `#`.
    Hardware(&'a str),
    /// A JSON link that computes, as it stands and as it was understood.
    Json(&'a str, Box<crate::model::json_link::JsonLink>),
}

/// Whether the text is a number as EPICS reads it.
fn is_number(text: &str) -> bool {
    crate::text::conv::parse_f64(text).is_some()
}

/// Takes a link's text apart; the modifiers that the kind of field does not know are dropped, as EPICS does.
pub(crate) fn parse(text: &str, field: LinkField) -> Result<LinkText<'_>, String> {
    let text = text.trim();
    if text.starts_with('@') {
        return Ok(LinkText::Hardware(text));
    }
    if text.starts_with('{') && text.ends_with('}') {
        let json = crate::text::json::parse(text).map_err(|error| error.to_string())?;
        return Ok(match crate::model::json_link::from_json(&json, field)? {
            Some(link) => LinkText::Json(text, Box::new(link)),
            None => LinkText::Constant(text),
        });
    }
    if text.starts_with('#') {
        check_hardware(text)?;
        return Ok(LinkText::Hardware(text));
    }
    if text.is_empty() || is_number(text) || (text.starts_with('[') && text.ends_with(']')) {
        return Ok(LinkText::Constant(text));
    }
    let Some((name, modifiers)) = text.split_once(' ') else { return Ok(LinkText::Pv(text, 0)) };
    let has = |word: &str| modifiers.contains(word);
    let mut flags = match () {
        () if has("NPP") => 0,
        () if has("CPP") => CPP,
        () if has("PP") => PP,
        () if has("CA") => CA,
        () if has("CP") => CP,
        () => 0,
    };
    flags |= match () {
        () if has("NMS") => NMS,
        () if has("MSI") => MSI,
        () if has("MSS") => MSS,
        () if has("MS") => MS,
        () => 0,
    };
    match field {
        LinkField::In => {}
        LinkField::Out => flags &= !CPP,
        LinkField::Forward => flags &= CA,
    }
    Ok(LinkText::Pv(name, flags))
}

/// Checks `#Cn Sn …`: letters, each with a number.
fn check_hardware(text: &str) -> Result<(), String> {
    let body = text[1..].split('@').next().unwrap_or_default();
    let mut letters = String::new();
    let mut rest = body.trim();
    while let Some(letter) = rest.chars().next() {
        letters.push(letter);
        rest = rest[letter.len_utf8()..].trim_start();
        let Some(behind) = behind_number(rest) else {
            return Err(format!("address \"{text}\": no number after '{letter}'"));
        };
        rest = behind.trim_start();
    }
    match letters.as_str() {
        "CS" | "BCN" | "BCNA" | "BCNF" | "BCNAF" | "RMDE" | "LACS" | "LA" | "LNPS" | "LBG" | "VCS" | "VS" => Ok(()),
        _ => Err(format!("address \"{text}\": no bus is addressed by the letters \"{letters}\"")),
    }
}

/// What stands behind a whole number as C's `%i` reads it, hexadecimal ones too; `None` where there is none.
fn behind_number(text: &str) -> Option<&str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    if let Some(digits) = hex.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit())) {
        return Some(digits.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    let behind = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    (behind.len() < unsigned.len()).then_some(behind)
}

/// Writes the modifiers of a link as EPICS prints them.
pub(crate) fn write_modifiers(out: &mut String, flags: u8, field: LinkField) {
    if flags & IS_TIME != 0 {
        out.push_str(".TIME");
    }
    let word = match () {
        () if flags & PP != 0 => "PP",
        () if flags & CA != 0 => "CA",
        () if flags & CP != 0 => "CP",
        () if flags & CPP != 0 => "CPP",
        () => "NPP",
    };
    if field == LinkField::Forward {
        if flags & CA != 0 {
            out.push_str(" CA");
        }
        return;
    }
    let severity = match flags & MS_BITS {
        MS => "MS",
        MSI => "MSI",
        MSS => "MSS",
        _ => "NMS",
    };
    if flags & NO_PP == 0 {
        let _ = write!(out, " {word}");
    }
    let _ = write!(out, " {severity}");
}

/// A link that is resolved when all records are there.
pub(crate) struct PendingLink {
    pub(crate) rec: RecId,
    pub(crate) field: u16,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_texts_are_taken_apart() {
        let show = |link: Result<LinkText<'_>, String>| format!("{link:?}");
        let check = |text, expected| assert_eq!(show(parse(text, LinkField::In)), show(Ok(expected)), "{text}");
        check("", LinkText::Constant(""));
        check(" 1.5 ", LinkText::Constant("1.5"));
        check("0x10", LinkText::Constant("0x10"));
        check("[1,2]", LinkText::Constant("[1,2]"));
        check("rec.VAL PP MS", LinkText::Pv("rec.VAL", PP | MS));
        check("rec CPP MSI", LinkText::Pv("rec", CPP | MSI));
        check("rec NPP NMS", LinkText::Pv("rec", 0));
        check("@drv 1", LinkText::Hardware("@drv 1"));
        check("{const:1}", LinkText::Constant("{const:1}"));
        assert!(matches!(parse("{state:'s'}", LinkField::In), Ok(LinkText::Json(..))));
        check("#C1 S2 @x", LinkText::Hardware("#C1 S2 @x"));
        check("#C0x1F S 0X2@x", LinkText::Hardware("#C0x1F S 0X2@x"));
        assert_eq!(show(parse("rec PP MS", LinkField::Forward)), show(Ok(LinkText::Pv("rec", 0))));
        assert!(parse("#C1 S", LinkField::In).is_err());
    }

    #[test]
    fn a_link_is_small() {
        assert_eq!(size_of::<Link>(), 16);
    }

    #[test]
    fn constants_keep_their_text_whether_they_fit_in_the_link_or_not() {
        for text in ["1", "0.30000000000", "-12.3456789012", "[1, 2, 3, 4, 5]", "{const:\"µµµµµµµ\"}"] {
            let link = Link::of_constant(text);
            assert_eq!((link.constant(), link.brief().kind), (Some(text), LinkKind::Constant));
            assert_eq!(matches!(link, Link::Short { .. }), text.len() <= SHORT_BYTES, "{text}");
            assert!(link.is_constant() && !link.is_empty());
        }
        assert!(Link::of_constant("").is_empty() && Link::EMPTY.constant().is_none());
        assert_eq!((Link::hardware("@a").constant(), Link::hardware("@a").text()), (None, "@a"));
    }
}
