//! Expressions of synApps: scalcout and transform (numbers and texts), acalcout (numbers and arrays).
//!
//! The language differs from [base's](super): other operators and priorities, `;` in parentheses, `UNTIL`, variables by number
//! (`@n`, `@@n`), subranges, and errors instead of NaN. One compiler serves both dialects, which differ only in their
//! [element tables](elements). One interpreter runs both, because texts and arrays never meet.
//!
//! Bounds: at most [`STACK_LIMIT`] values, [`UNTILS`] loops, [`ROUNDS`] rounds of all loops together, and texts of 39 bytes.
//! Numbers and texts do not allocate.

mod compile;
mod elements;
mod lanes;
mod run;
mod scan;
mod texts;

pub(crate) use compile::compile;
pub(crate) use run::{Frame, number_text};
pub(crate) use texts::escaped;

use base::Str40;
use lanes::Lanes;

/// Maximum number of values on the stack.
const STACK_LIMIT: usize = 30;
/// Maximum number of `UNTIL` in an expression.
const UNTILS: usize = 10;
/// Maximum number of rounds of all loops together. A loop that reaches it ends with its last value.
const ROUNDS: u32 = 1_000;
/// Maximum number of array elements that loops compute. A loop that reaches it ends with its last value.
const LOOP_ELEMENTS: u64 = 10_000_000;

/// Dialect of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Numbers and texts.
    #[default]
    Texts,
    /// Numbers and arrays.
    Arrays,
}

/// A value on the stack.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    Number(f64),
    Text(Str40),
    Array(Lanes),
}

/// Operators and functions with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unary {
    Not,
    Neg,
    Abs,
    Acos,
    Asin,
    Atan,
    Ceil,
    Cos,
    Cosh,
    Exp,
    Floor,
    IsInf,
    Ln,
    Log,
    Nint,
    BitNot,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
    /// `@n`: the number with this index.
    Fetch,
    /// `@@n`: the text or array with this index.
    FetchLarge,
    Len,
    Double,
    Byte,
    Escape,
    Unescape,
    Str,
    Crc16,
    Modbus,
    Lrc,
    AsciiModbus,
    Xor8,
    AddXor8,
    Average,
    Deviation,
    Sum,
    ArrayMax,
    ArrayMin,
    IndexOfMax,
    IndexOfMin,
    IndexOfZero,
    IndexOfNonZero,
    HalfWidth,
    Smooth,
    Derivative,
    FitPoly,
    Cumulate,
    ToArray,
    OnlyNegative,
    OnlyPositive,
}

/// Operators and functions with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    NotEq,
    Modulo,
    BitAnd,
    And,
    Mul,
    Power,
    Add,
    Sub,
    SubLast,
    Div,
    Less,
    LessEq,
    Equal,
    Greater,
    GreaterEq,
    ShiftLeft,
    ShiftRight,
    BitOr,
    BitXor,
    Or,
    Larger,
    Smaller,
    Atan2,
    Printf,
    Scanf,
    Read,
    Write,
    NSmooth,
    NDerivative,
    Cat,
    FitMaskedPoly,
}

/// Functions with any number of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Many {
    Max,
    Min,
    Finite,
    IsNan,
    /// `FITQ(y, a, b, c)`: the variables receive the coefficients.
    Fit,
    /// `FITMQ(y, mask, a, b, c)`
    FitMasked,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Literal(f64),
    /// A text of the program.
    Text(u16),
    Value,
    /// SVAL or AVAL.
    LargeValue,
    Random,
    NormalRandom,
    RandomArray,
    /// The array 0, 1, 2, …
    Indices,
    Fetch(u8),
    FetchLarge(u8),
    Store(u8),
    StoreLarge(u8),
    /// `@n := value`
    StoreAt,
    /// `@@n := value`
    StoreLargeAt,
    Unary(Unary),
    Binary(Binary),
    Many(Many, u8),
    /// `FITQ` or `FITMQ` with its number of operands, and the variables for the coefficients.
    Fit {
        is_masked: bool,
        count: u8,
        targets: [Option<u8>; 3],
    },
    /// `a[i,j]`
    Range,
    /// `a{x,y}`: replacement in a text, subrange in place of an array.
    Braces,
    /// Jump when the top is zero.
    If(u16),
    Jump(u16),
    /// End of a conditional's second branch.
    EndIf,
    /// Start of the loop with this number.
    Until(u8),
    /// End of the loop with this number.
    EndUntil(u8),
}

/// A compiled expression.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Program {
    ops: Box<[Op]>,
    texts: Box<[Str40]>,
    dialect: Dialect,
    /// Whether it works on texts. Integers then have 32 bits, and numbers become texts with eight digits.
    pub(crate) has_texts: bool,
}

#[cfg(test)]
mod tests;
