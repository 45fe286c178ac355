//! What is wrong with a message, a conversion or a quoted text.

use super::format::MESSAGE_ITEMS_MAX;
use crate::checksum::UnknownChecksum;

/// A fault of a text. The caller adds its place.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Syntax {
    #[error("\"{0}\"; expected a quoted text, a number from -128 to 255, or a name such as CR")]
    Byte(String),
    #[error("more than {MESSAGE_ITEMS_MAX} items in one message")]
    Items,
    #[error("\"\\{0}\"; expected a byte, at most \\xff, \\0377 or \\255")]
    Escape(String),
    #[error("a terminator holds wild cards; expected bytes")]
    WildTerminator,
    #[error("\"\\${{\" that is not closed")]
    OpenVariable,
    #[error("\"\\$\" with a name that is no UTF-8")]
    VariableNotUtf8,
    #[error("a % at the end of a text; expected a conversion")]
    NoConversion,
    #[error("a wild card behind %; expected a conversion")]
    WildConversion,
    #[error("unknown conversion %{}", .0.escape_ascii())]
    Conversion(u8),
    #[error("%{} that is not closed", .0.escape_ascii())]
    Open(u8),
    #[error("%(…) with bytes that are no UTF-8")]
    FieldNotUtf8,
    #[error("%() without a name; expected a field or a record")]
    NoField,
    #[error("a field of a record with a checksum or a substitution; these take no value")]
    FieldWithoutValue,
    #[error("a wild card behind %B; expected two bytes")]
    WildBits,
    #[error("%B at the end of a text; expected two bytes behind it")]
    NoBits,
    #[error("%{0}R; expected 4 or 8 bytes")]
    RawFloat(usize),
    #[error(transparent)]
    Checksum(#[from] UnknownChecksum),
    #[error("\"=?\" before the last text of %#{{}}")]
    EarlyDefault,
    #[error("\"={0}\" in %#{{}}; expected a whole number")]
    Number(String),
    #[error("\\_ in %/…/; expected \\s")]
    BlankInRegex,
    #[error("%/{0}/: {1}")]
    Regex(String, Box<fancy_regex::Error>),
    #[error("%.{group}/{text}/; the expression has {most} pairs of brackets")]
    Group { group: usize, text: String, most: usize },
    #[error("%#/…/ that is not closed; expected %#/regex/text/")]
    OpenSubstitution,
    #[error("%T without a format; expected one such as %T(%Y-%m-%d %H:%M:%S)")]
    NoTimeFormat,
    #[error("a wild card in %T(…); expected a format of strftime")]
    WildTime,
    #[error("%+ in %T(…); expected a time zone such as %+0100")]
    Zone,
    #[error("a % at the end of %T(…); expected a directive of strftime")]
    NoDirective,
    #[error("%…{} in %T(…); expected digits in %.3S and %3f alone", .0.escape_ascii())]
    Digits(u8),
    #[error("%{} in %T(…); expected one of %aAbBcdDeFfhHIjklmMnNpRrsStTxXyYz", .0.escape_ascii())]
    Directive(u8),
}
