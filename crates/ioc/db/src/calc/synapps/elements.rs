//! Words and signs of the language.

use super::{Binary, Dialect, Many, Op, Unary};
use std::f64::consts::PI;

/// Kind of an element.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Number,
    /// A quoted text.
    Quote,
    Operand(Op),
    Unary(Unary),
    /// A function with two operands.
    Function(Binary),
    Many(Many),
    Binary(Binary),
    Open,
    Close,
    Bracket,
    BracketEnd,
    Brace,
    BraceEnd,
    Separator,
    If,
    Else,
    Store,
    Until,
    Terminator,
}

/// A word or sign: its name, its priority, and its kind.
pub(super) struct Element {
    pub(super) name: &'static str,
    pub(super) priority: u8,
    pub(super) kind: Kind,
}

const fn element(name: &'static str, priority: u8, kind: Kind) -> Element {
    Element { name, priority, kind }
}
const fn operand(name: &'static str, op: Op) -> Element {
    element(name, 0, Kind::Operand(op))
}
const fn constant(name: &'static str, value: f64) -> Element {
    operand(name, Op::Literal(value))
}
const fn unary(name: &'static str, code: Unary) -> Element {
    element(name, PREFIX, Kind::Unary(code))
}
const fn function(name: &'static str, code: Binary) -> Element {
    element(name, PREFIX, Kind::Function(code))
}
const fn many(name: &'static str, code: Many) -> Element {
    element(name, PREFIX, Kind::Many(code))
}
const fn binary(name: &'static str, priority: u8, code: Binary) -> Element {
    element(name, priority, Kind::Binary(code))
}

/// Priority of functions and prefix operators.
pub(super) const PREFIX: u8 = 9;

/// Seconds of arc to radians.
const S2R: f64 = PI / (180.0 * 3_600.0);

/// Operands of both dialects.
const OPERANDS: &[Element] = &[
    unary("@", Unary::Fetch),
    unary("@@", Unary::FetchLarge),
    unary("!", Unary::Not),
    element("(", 0, Kind::Open),
    unary("-", Unary::Neg),
    unary("~", Unary::BitNot),
    unary("ABS", Unary::Abs),
    unary("ACOS", Unary::Acos),
    unary("ASIN", Unary::Asin),
    unary("ATAN", Unary::Atan),
    function("ATAN2", Binary::Atan2),
    unary("CEIL", Unary::Ceil),
    unary("COS", Unary::Cos),
    unary("COSH", Unary::Cosh),
    unary("DBL", Unary::Double),
    constant("D2R", PI / 180.0),
    unary("EXP", Unary::Exp),
    many("FINITE", Many::Finite),
    unary("FLOOR", Unary::Floor),
    element("INF", 0, Kind::Number),
    unary("INT", Unary::Nint),
    unary("ISINF", Unary::IsInf),
    many("ISNAN", Many::IsNan),
    unary("LEN", Unary::Len),
    unary("LN", Unary::Ln),
    unary("LOG", Unary::Log),
    unary("LOGE", Unary::Ln),
    many("MAX", Many::Max),
    many("MIN", Many::Min),
    element("NAN", 0, Kind::Number),
    unary("NINT", Unary::Nint),
    unary("NOT", Unary::BitNot),
    operand("NRNDM", Op::NormalRandom),
    constant("PI", PI),
    constant("R2D", 180.0 / PI),
    constant("R2S", 1.0 / S2R),
    operand("RNDM", Op::Random),
    constant("S2R", S2R),
    unary("SIN", Unary::Sin),
    unary("SINH", Unary::Sinh),
    unary("SQR", Unary::Sqrt),
    unary("SQRT", Unary::Sqrt),
    unary("TAN", Unary::Tan),
    unary("TANH", Unary::Tanh),
    element("UNTIL", PREFIX, Kind::Until),
    operand("VAL", Op::Value),
];

/// Operands of the dialect with texts.
const TEXTS: &[Element] = &[
    element("\"", 0, Kind::Quote),
    element("'", 0, Kind::Quote),
    unary("ADD_XOR8", Unary::AddXor8),
    unary("AMODBUS", Unary::AsciiModbus),
    unary("BYTE", Unary::Byte),
    unary("CRC16", Unary::Crc16),
    unary("$E", Unary::Escape),
    unary("ESC", Unary::Escape),
    unary("LRC", Unary::Lrc),
    unary("MODBUS", Unary::Modbus),
    function("$P", Binary::Printf),
    function("PRINTF", Binary::Printf),
    function("$R", Binary::Read),
    function("READ", Binary::Read),
    function("$S", Binary::Scanf),
    function("SSCANF", Binary::Scanf),
    unary("STR", Unary::Str),
    operand("SVAL", Op::LargeValue),
    unary("$T", Unary::Unescape),
    unary("TR_ESC", Unary::Unescape),
    function("$W", Binary::Write),
    function("WRITE", Binary::Write),
    unary("XOR8", Unary::Xor8),
];

/// Operands of the dialect with arrays.
const ARRAYS: &[Element] = &[
    unary("AMAX", Unary::ArrayMax),
    unary("AMIN", Unary::ArrayMin),
    unary("ANEG", Unary::OnlyNegative),
    unary("APOS", Unary::OnlyPositive),
    operand("ARNDM", Op::RandomArray),
    unary("ARR", Unary::ToArray),
    operand("AVAL", Op::LargeValue),
    unary("AVG", Unary::Average),
    function("CAT", Binary::Cat),
    unary("CUM", Unary::Cumulate),
    unary("DERIV", Unary::Derivative),
    many("FITMQ", Many::FitMasked),
    function("FITMPOLY", Binary::FitMaskedPoly),
    unary("FITPOLY", Unary::FitPoly),
    many("FITQ", Many::Fit),
    unary("FWHM", Unary::HalfWidth),
    operand("IX", Op::Indices),
    unary("IXMAX", Unary::IndexOfMax),
    unary("IXMIN", Unary::IndexOfMin),
    unary("IXNZ", Unary::IndexOfNonZero),
    unary("IXZ", Unary::IndexOfZero),
    function("NDERIV", Binary::NDerivative),
    function("NSMOO", Binary::NSmooth),
    unary("SMOO", Unary::Smooth),
    unary("STD", Unary::Deviation),
    unary("SUM", Unary::Sum),
];

/// Operators of both dialects.
const OPERATORS: &[Element] = &[
    binary("!=", 5, Binary::NotEq),
    binary("#", 5, Binary::NotEq),
    binary("%", 7, Binary::Modulo),
    binary("&", 3, Binary::BitAnd),
    binary("&&", 3, Binary::And),
    element(")", 0, Kind::Close),
    element("[", 11, Kind::Bracket),
    element("]", 0, Kind::BracketEnd),
    element("{", 11, Kind::Brace),
    element("}", 0, Kind::BraceEnd),
    binary("*", 7, Binary::Mul),
    binary("**", 8, Binary::Power),
    binary("+", 6, Binary::Add),
    element(",", 0, Kind::Separator),
    binary("-", 6, Binary::Sub),
    binary("/", 7, Binary::Div),
    element(":", 0, Kind::Else),
    element(":=", 0, Kind::Store),
    element(";", 0, Kind::Terminator),
    binary("<", 5, Binary::Less),
    binary("<<", 3, Binary::ShiftLeft),
    binary("<=", 5, Binary::LessEq),
    binary("<?", 4, Binary::Smaller),
    binary("=", 5, Binary::Equal),
    binary("==", 5, Binary::Equal),
    binary(">", 5, Binary::Greater),
    binary(">=", 5, Binary::GreaterEq),
    binary(">>", 3, Binary::ShiftRight),
    binary(">?", 4, Binary::Larger),
    element("?", 0, Kind::If),
    binary("AND", 3, Binary::BitAnd),
    binary("OR", 2, Binary::BitOr),
    binary("XOR", 2, Binary::BitXor),
    binary("^", 8, Binary::Power),
    binary("|", 2, Binary::BitOr),
    binary("||", 2, Binary::Or),
];

/// Operators of the dialect with texts.
const TEXT_OPERATORS: &[Element] = &[binary("-|", 6, Binary::Sub), binary("|-", 6, Binary::SubLast)];

/// Number of texts or arrays: `AA` to `LL`.
const LARGE: u8 = 12;
/// Number of numbers: `A` to `P`.
const NUMBERS: u8 = 16;

/// The element at the start of a text, and its length. The longest name wins, in capital or small letters.
pub(super) fn first(text: &[u8], needs_operand: bool, dialect: Dialect) -> Option<(Kind, u8, usize)> {
    let tables = match (needs_operand, dialect) {
        (true, Dialect::Texts) => [OPERANDS, TEXTS],
        (true, Dialect::Arrays) => [OPERANDS, ARRAYS],
        (false, Dialect::Texts) => [OPERATORS, TEXT_OPERATORS],
        (false, Dialect::Arrays) => [OPERATORS, &[]],
    };
    let fits = |element: &&Element| {
        let name = element.name.as_bytes();
        text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    let named = tables.into_iter().flatten().filter(fits).max_by_key(|element| element.name.len());
    let letter = |at: usize| text.get(at)?.to_ascii_uppercase().checked_sub(b'A');
    let doubled = letter(0).filter(|index| *index < LARGE && letter(1) == Some(*index));
    match named {
        // `AA` wins against no name and against names of one letter.
        Some(element) if element.name.len() > 2 || doubled.is_none() => {
            Some((element.kind, element.priority, element.name.len()))
        }
        _ if !needs_operand => None,
        _ if doubled.is_some() => doubled.map(|index| (Kind::Operand(Op::FetchLarge(index)), 0, 2)),
        _ if matches!(text.first(), Some(b'.' | b'0'..=b'9')) => Some((Kind::Number, 0, 0)),
        _ => letter(0).filter(|index| *index < NUMBERS).map(|index| (Kind::Operand(Op::Fetch(index)), 0, 1)),
    }
}
