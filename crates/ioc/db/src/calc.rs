//! CALC expressions: compiled once to postfix code, evaluated without allocation on a bounded stack.

mod compile;
mod run;
pub(crate) mod synapps;

pub(crate) use compile::compile;

/// Maximum number of values on the stack.
const STACK_LIMIT: usize = 80;
/// Number of inputs, `A` to `U`.
pub(crate) const INPUTS: usize = 21;

/// Error in an expression, in the words of EPICS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalcError {
    /// More than one result.
    #[error("Too many results returned")]
    TooMany,
    /// Malformed number.
    #[error("Badly formed numeric literal")]
    BadLiteral,
    /// `:=` after something other than a variable.
    #[error("Bad assignment target")]
    BadAssignment,
    /// A comma outside of a function's parentheses.
    #[error("Comma without enclosing parentheses")]
    BadSeparator,
    /// `)` without `(`.
    #[error("Close parenthesis found without open")]
    ParenNotOpen,
    /// `(` without `)`.
    #[error("Parenthesis still open at end of expression")]
    ParenOpen,
    /// `]` without `[`.
    #[error("Close bracket found without open")]
    BracketNotOpen,
    /// `}` without `{`.
    #[error("Close brace found without open")]
    BraceNotOpen,
    /// `?` and `:` do not match.
    #[error("Unbalanced conditional ?: operators")]
    Conditional,
    /// Operand missing at the end.
    #[error("Incomplete expression, operand missing")]
    Incomplete,
    /// An operator lacks its operands.
    #[error("Not enough operands provided")]
    Underflow,
    /// The expression needs more than the stack limit.
    #[error("Runtime stack overflow")]
    Overflow,
    /// Unknown word.
    #[error("Syntax error, unknown operator/operand")]
    Syntax,
    /// Empty expression.
    #[error("NULL or empty input argument to postfix()")]
    Empty,
}

/// An expression with its error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error} in expression \"{}\"", .expression.escape_ascii())]
pub(crate) struct BadExpression {
    pub(crate) error: CalcError,
    pub(crate) expression: Vec<u8>,
}

/// Operations with a fixed number of operands on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Neg,
    Add,
    Sub,
    Mul,
    Div,
    Modulo,
    Power,
    Abs,
    Exp,
    Log10,
    LogE,
    Sqrt,
    Acos,
    Asin,
    Atan,
    Atan2,
    Cos,
    Cosh,
    Sin,
    Sinh,
    Tan,
    Tanh,
    Ceil,
    Floor,
    Fmod,
    IsInf,
    Nint,
    Or,
    And,
    Not,
    BitOr,
    BitAnd,
    BitXor,
    BitNot,
    ShiftRight,
    ShiftLeft,
    ShiftRightLogic,
    NotEq,
    Less,
    LessEq,
    Equal,
    GreaterEq,
    Greater,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Literal(f64),
    Value,
    Random,
    Fetch(u8),
    Store(u8),
    Do(Code),
    Max(u8),
    Min(u8),
    Finite(u8),
    IsNan(u8),
    /// Jump when the top is zero.
    If(u16),
    Jump(u16),
    /// End of a conditional's second branch.
    EndIf,
}

/// A compiled expression.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Program {
    ops: Box<[Op]>,
    /// Inputs that are read before they are written.
    pub(crate) inputs: u32,
    /// Inputs that are written.
    pub(crate) stores: u32,
    /// Upper bound of the number of pushed values. Pushes in branches that are not taken count too.
    pushes: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn eval(text: &str) -> f64 {
        let mut inputs: Vec<f64> = (1..=INPUTS).map(|n| n as f64).collect();
        let mut result = 100.0;
        compile(text.as_bytes())
            .unwrap_or_else(|error| panic!("{text}: {error:?}"))
            .run(&mut inputs, &mut result, &mut 1)
            .unwrap();
        result
    }

    #[test]
    fn expressions_have_epics_values() {
        for (text, expected) in [
            ("1+2*3", 7.0),
            ("(1+2)*3", 9.0),
            ("2^3^2", 64.0),
            ("-2^2", 4.0),
            ("A+B*U", 43.0),
            ("A>B?C:D", 4.0),
            ("A<B?C<D?10:20:30", 10.0),
            ("A?B:C;D:=7", 2.0),
            ("D:=7;D+1", 8.0),
            ("7%4", 3.0),
            ("-7%4", -3.0),
            ("max(1,5,3)", 5.0),
            ("MIN(4,2)", 2.0),
            ("min(7)", 7.0),
            ("0xff", 255.0),
            ("0xffffffff", -1.0),
            ("1<<4", 16.0),
            ("-1>>1", -1.0),
            ("-1>>>1", 2_147_483_647.0),
            ("5&6", 4.0),
            ("5|6", 7.0),
            ("5 xor 6", 3.0),
            ("~0", -1.0),
            ("not 0", -1.0),
            ("!5", 0.0),
            ("A&&0", 0.0),
            ("A||0", 1.0),
            ("3#3", 0.0),
            ("nint(2.5)", 3.0),
            ("nint(-2.5)", -3.0),
            ("atan2(1,0)", 0.0),
            ("finite(1,2)", 1.0),
            ("isnan(1,nan)", 1.0),
            ("isinf(-inf)", -1.0),
            ("fmod(7,4)", 3.0),
            ("VAL+1", 101.0),
            ("1e3", 1000.0),
            (".5", 0.5),
        ] {
            assert_eq!(eval(text), expected, "{text}");
        }
        assert!(eval("5%0").is_nan());
    }

    #[test]
    fn malformed_expressions_get_epics_errors() {
        for (text, expected) in [
            ("", CalcError::Empty),
            ("1+", CalcError::Incomplete),
            ("(1", CalcError::ParenOpen),
            ("1)", CalcError::ParenNotOpen),
            ("1,2", CalcError::BadSeparator),
            ("1?2", CalcError::Conditional),
            ("1:2", CalcError::Conditional),
            ("1;2", CalcError::Incomplete),
            ("1;2;3", CalcError::TooMany),
            ("1:=2", CalcError::BadAssignment),
            ("A$", CalcError::Syntax),
            ("0x", CalcError::BadLiteral),
        ] {
            assert_eq!(compile(text.as_bytes()), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_program_lists_its_inputs_and_stores() {
        let program = compile(b"C:=A;C+D").unwrap();
        assert_eq!((program.inputs, program.stores), (0b1001, 0b100));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-A-U0-9.+*/()?:;=<>,&|^%!~#maxifn ]{0,40}") {
            if let Ok(program) = compile(text.as_bytes()) {
                let _ = program.run(&mut [1.0; INPUTS], &mut 0.0, &mut 1);
            }
        }
    }
}
