//! Links: their text, and their target once resolved.

use crate::model::id::RecId;
use crate::model::json_link::BadJsonLink;
use crate::model::pva_link::PvaLink;
use base::json::Json;
use std::fmt::Write;

/// Process the source or target if it is passive.
pub(crate) const PP: u8 = 1;
/// Use Channel Access even if the record is local.
pub(crate) const CA: u8 = 2;
/// Process the holder on each change of the source.
pub(crate) const CP: u8 = 4;
/// Like [`CP`], but only if the holder is passive.
pub(crate) const CPP: u8 = 8;
/// Bits that select how severity is propagated.
pub(crate) const MS_BITS: u8 = 0x30;
/// Severity is not propagated.
pub(crate) const NMS: u8 = 0;
/// Severity is propagated as LINK alarm.
pub(crate) const MS: u8 = 0x10;
/// Like [`MS`], but only INVALID severity.
pub(crate) const MSI: u8 = 0x20;
/// Severity, status and message are propagated.
pub(crate) const MSS: u8 = 0x30;
/// For printing only: no word for processing.
pub(crate) const NO_PP: u8 = 0x80;
/// A TSEL link to `.TIME`.
pub(crate) const IS_TIME: u8 = 0x40;

/// Kind of a link.
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

/// Kind of a link field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkField {
    /// DBF_INLINK.
    In,
    /// DBF_OUTLINK.
    Out,
    /// DBF_FWDLINK.
    Forward,
}

/// A link without its text: the part that processing needs, cheap to copy.
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
    /// A link to a field of this database.
    pub(crate) const fn to_field(flags: u8, field: u16, record: RecId) -> Self {
        Self { kind: LinkKind::Db, flags, field, target: record.0 }
    }

    /// The target's record. Valid only for a link to a field of this database.
    #[inline]
    pub(crate) const fn record(self) -> RecId {
        RecId(self.target)
    }

    /// A link without a target, such as a constant.
    const fn nowhere(kind: LinkKind) -> Self {
        Self { kind, flags: 0, field: 0, target: 0 }
    }
}

/// Maximum length in bytes of a constant stored inside the link.
const SHORT_BYTES: usize = 14;

/// One link (16 bytes).
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// No link, or a short constant such as a number. Uses no heap memory.
    Short {
        /// Length of the text in bytes.
        len: u8,
        /// The text, zero-padded.
        text: [u8; SHORT_BYTES],
    },
    /// Any other link: its target, and the text that cannot be rebuilt from the target.
    Long(ResolvedLink, Option<Box<LongText>>),
}

impl Default for Link {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// A long constant, an address, or a name other than the target's plain name; without modifiers.
#[derive(Clone, Debug)]
pub(crate) struct LongText(Box<str>);

impl Link {
    /// No link.
    pub(crate) const EMPTY: Self = Self::Short { len: 0, text: [0; SHORT_BYTES] };

    /// A link with a target. `text` is kept if it is not empty.
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

    /// Whether the link is never read or written at run time.
    #[inline]
    pub(crate) const fn is_constant(&self) -> bool {
        matches!(self.brief().kind, LinkKind::Constant)
    }

    /// Whether the link text is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self, Self::Short { len: 0, .. })
    }

    /// The text of a constant.
    pub(crate) fn constant(&self) -> Option<&str> {
        (self.is_constant() && !self.is_empty()).then(|| self.text())
    }

    /// The stored text without modifiers; empty if none is stored.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Short { len, text } => std::str::from_utf8(&text[..usize::from(*len)]).unwrap_or_default(),
            Self::Long(_, text) => text.as_ref().map_or("", |text| &text.0),
        }
    }
}

/// A parsed link text.
#[derive(Clone, Debug)]
pub(crate) enum LinkText<'a> {
    /// Nothing, a number, or a list of constants.
    Constant(&'a str),
    /// A process variable name and flags.
    Pv(&'a str, u8),
    /// A device address, with its `@` or `#`.
    Hardware(&'a str),
    /// A computing JSON link: its text and its parsed form.
    Json(&'a str, Box<crate::model::json_link::JsonLink>),
    /// A link over PVAccess: its text, its parsed form, and complaints about ignored options.
    Pva(&'a str, Box<PvaLink>, Vec<String>),
}

/// Whether EPICS reads the text as a number.
fn is_number(text: &str) -> bool {
    crate::text::conv::parse_f64(text).is_some()
}

/// The reason why a text is no link.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadLink {
    #[error(transparent)]
    Syntax(#[from] base::json::JsonError),
    #[error(transparent)]
    Json(#[from] BadJsonLink),
    #[error("address \"{0}\": no number after '{1}'")]
    Number(String, char),
    #[error("address \"{0}\": no bus is addressed by the letters \"{1}\"")]
    Bus(String, String),
    #[error("\"{0}\" is a device address or JSON, expected the name of a process variable or a number")]
    NoName(String),
}

/// Parses a link text, with the error as text.
pub(crate) fn parse(text: &str, field: LinkField) -> Result<LinkText<'_>, String> {
    read(text, field).map_err(|error| error.to_string())
}

/// Parses a link text. Modifiers that the field kind does not support are dropped, as in EPICS.
pub(crate) fn read(text: &str, field: LinkField) -> Result<LinkText<'_>, BadLink> {
    let text = text.trim();
    if text.starts_with('@') {
        return Ok(LinkText::Hardware(text));
    }
    if text.starts_with('{') && text.ends_with('}') {
        let json = base::json::parse(text)?;
        if let Json::Map(entries) = &json
            && let [(kind, value)] = &entries[..]
            && kind == "pva"
        {
            let (link, complaints) = PvaLink::from_json(value, field)?;
            return Ok(LinkText::Pva(text, Box::new(link), complaints));
        }
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
fn check_hardware(text: &str) -> Result<(), BadLink> {
    let body = text[1..].split('@').next().unwrap_or_default();
    let mut letters = String::new();
    let mut rest = body.trim();
    while let Some(letter) = rest.chars().next() {
        letters.push(letter);
        rest = rest[letter.len_utf8()..].trim_start();
        let Some(behind) = behind_number(rest) else {
            return Err(BadLink::Number(text.to_owned(), letter));
        };
        rest = behind.trim_start();
    }
    match letters.as_str() {
        "CS" | "BCN" | "BCNA" | "BCNF" | "BCNAF" | "RMDE" | "LACS" | "LA" | "LNPS" | "LBG" | "VCS" | "VS" => Ok(()),
        _ => Err(BadLink::Bus(text.to_owned(), letters)),
    }
}

/// The text after a whole number as read by C's `%i` (hexadecimal too); `None` if there is no number.
fn behind_number(text: &str) -> Option<&str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    if let Some(digits) = hex.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit())) {
        return Some(digits.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    let behind = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    (behind.len() < unsigned.len()).then_some(behind)
}

/// Writes a link's modifiers in EPICS notation.
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

/// A link to be resolved after all records are loaded.
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
    fn link_texts_are_parsed() {
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
    fn constants_of_any_length_keep_their_text() {
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
