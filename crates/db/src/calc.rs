//! CALC expressions: compiled once to postfix code, evaluated without allocation on a bounded stack.

use crate::conv;

/// How many values an expression may hold at once.
const STACK_LIMIT: usize = 80;
/// Number of inputs, `A` to `U`.
pub(crate) const INPUTS: usize = 21;

/// Why an expression is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalcError {
    /// More than one result.
    TooMany,
    /// A number that is none.
    BadLiteral,
    /// `:=` after something that is no variable.
    BadAssignment,
    /// A comma outside of a function's parentheses.
    BadSeparator,
    /// `)` without `(`.
    ParenNotOpen,
    /// `(` without `)`.
    ParenOpen,
    /// `?` and `:` do not match.
    Conditional,
    /// Something is missing at the end.
    Incomplete,
    /// An operator lacks its operands.
    Underflow,
    /// Too deep.
    Overflow,
    /// A word that is none of the language.
    Syntax,
    /// No expression.
    Empty,
}

impl CalcError {
    /// The text that EPICS prints.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooMany => "Too many results returned",
            Self::BadLiteral => "Badly formed numeric literal",
            Self::BadAssignment => "Bad assignment target",
            Self::BadSeparator => "Comma without enclosing parentheses",
            Self::ParenNotOpen => "Close parenthesis found without open",
            Self::ParenOpen => "Parenthesis still open at end of expression",
            Self::Conditional => "Unbalanced conditional ?: operators",
            Self::Incomplete => "Incomplete expression, operand missing",
            Self::Underflow => "Not enough operands provided",
            Self::Overflow => "Runtime stack overflow",
            Self::Syntax => "Syntax error, unknown operator/operand",
            Self::Empty => "NULL or empty input argument to postfix()",
        }
    }
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
    /// No more values are pushed than this; what is not run in line is counted too.
    pushes: u16,
}

/// What an element of the source is.
#[derive(Clone, Copy)]
enum Kind {
    Number,
    Operand(Op),
    Unary(Code),
    VarArg(fn(u8) -> Op),
    Binary(Code),
    Open,
    Close,
    Separator,
    If,
    Else,
    Store,
    Terminator,
}

struct Element {
    name: &'static str,
    in_stack: u8,
    incoming: u8,
    effect: i16,
    kind: Kind,
}

const fn element(name: &'static str, in_stack: u8, incoming: u8, effect: i16, kind: Kind) -> Element {
    Element { name, in_stack, incoming, effect, kind }
}
const fn operand(name: &'static str, op: Op) -> Element {
    element(name, 0, 0, 1, Kind::Operand(op))
}
const fn unary(name: &'static str, code: Code) -> Element {
    element(name, 7, 8, 0, Kind::Unary(code))
}
const fn binary(name: &'static str, priority: u8, code: Code) -> Element {
    element(name, priority, priority, -1, Kind::Binary(code))
}

/// What may stand where an operand is due. The longest name that fits is taken.
const OPERANDS: &[Element] = &[
    unary("!", Code::Not),
    element("(", 0, 8, 0, Kind::Open),
    unary("-", Code::Neg),
    unary("~", Code::BitNot),
    unary("ABS", Code::Abs),
    unary("ACOS", Code::Acos),
    unary("ASIN", Code::Asin),
    unary("ATAN", Code::Atan),
    element("ATAN2", 7, 8, -1, Kind::Unary(Code::Atan2)),
    unary("CEIL", Code::Ceil),
    unary("COS", Code::Cos),
    unary("COSH", Code::Cosh),
    operand("D2R", Op::Literal(std::f64::consts::PI / 180.0)),
    unary("EXP", Code::Exp),
    element("FINITE", 7, 8, 0, Kind::VarArg(Op::Finite)),
    unary("FLOOR", Code::Floor),
    element("FMOD", 7, 8, -1, Kind::Unary(Code::Fmod)),
    element("INF", 0, 0, 1, Kind::Number),
    unary("ISINF", Code::IsInf),
    element("ISNAN", 7, 8, 0, Kind::VarArg(Op::IsNan)),
    unary("LN", Code::LogE),
    unary("LOG", Code::Log10),
    unary("LOGE", Code::LogE),
    element("MAX", 7, 8, 0, Kind::VarArg(Op::Max)),
    element("MIN", 7, 8, 0, Kind::VarArg(Op::Min)),
    unary("NINT", Code::Nint),
    element("NAN", 0, 0, 1, Kind::Number),
    unary("NOT", Code::BitNot),
    operand("PI", Op::Literal(std::f64::consts::PI)),
    operand("R2D", Op::Literal(180.0 / std::f64::consts::PI)),
    operand("RNDM", Op::Random),
    unary("SIN", Code::Sin),
    unary("SINH", Code::Sinh),
    unary("SQR", Code::Sqrt),
    unary("SQRT", Code::Sqrt),
    unary("TAN", Code::Tan),
    unary("TANH", Code::Tanh),
    operand("VAL", Op::Value),
];

/// What may stand where an operator is due.
const OPERATORS: &[Element] = &[
    binary("!=", 3, Code::NotEq),
    binary("#", 3, Code::NotEq),
    binary("%", 5, Code::Modulo),
    binary("&", 2, Code::BitAnd),
    binary("&&", 2, Code::And),
    element(")", 0, 0, 0, Kind::Close),
    binary("*", 5, Code::Mul),
    binary("**", 6, Code::Power),
    binary("+", 4, Code::Add),
    element(",", 0, 0, 0, Kind::Separator),
    binary("-", 4, Code::Sub),
    binary("/", 5, Code::Div),
    element(":", 0, 0, -1, Kind::Else),
    element(":=", 0, 0, -1, Kind::Store),
    element(";", 0, 0, 0, Kind::Terminator),
    binary("<", 3, Code::Less),
    binary("<<", 2, Code::ShiftLeft),
    binary("<=", 3, Code::LessEq),
    binary("=", 3, Code::Equal),
    binary("==", 3, Code::Equal),
    binary(">", 3, Code::Greater),
    binary(">=", 3, Code::GreaterEq),
    binary(">>", 2, Code::ShiftRight),
    binary(">>>", 2, Code::ShiftRightLogic),
    element("?", 0, 0, -1, Kind::If),
    binary("AND", 2, Code::BitAnd),
    binary("OR", 1, Code::BitOr),
    binary("XOR", 1, Code::BitXor),
    binary("^", 6, Code::Power),
    binary("|", 1, Code::BitOr),
    binary("||", 1, Code::Or),
];

const DIGIT: Element = element("", 0, 0, 1, Kind::Number);
const LETTERS: [Element; INPUTS] = {
    let mut letters = [const { operand("A", Op::Fetch(0)) }; INPUTS];
    let mut index = 0;
    while index < INPUTS {
        letters[index] = operand("A", Op::Fetch(index as u8));
        index += 1;
    }
    letters
};

/// An operator that waits for its operands.
#[derive(Clone, Copy)]
struct Waiting {
    in_stack: u8,
    effect: i16,
    kind: Pending,
}

#[derive(Clone, Copy)]
enum Pending {
    Op(Op),
    VarArg(fn(u8) -> Op),
    Open,
}

struct Compiler<'a> {
    source: &'a [u8],
    at: usize,
    ops: Vec<Op>,
    stack: Vec<Waiting>,
    depth: i16,
    conditions: i16,
}

impl Compiler<'_> {
    fn element(&mut self, operand_needed: bool) -> Option<&'static Element> {
        while self.source.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        let rest = &self.source[self.at..];
        let first = rest.first()?.to_ascii_uppercase();
        let fits = |element: &&Element| {
            let name = element.name.as_bytes();
            rest.len() >= name.len() && rest[..name.len()].eq_ignore_ascii_case(name)
        };
        let table = if operand_needed { OPERANDS } else { OPERATORS };
        if let Some(element) = table.iter().filter(fits).max_by_key(|element| element.name.len()) {
            self.at += element.name.len();
            return Some(element);
        }
        if !operand_needed {
            return None;
        }
        if first == b'.' || first.is_ascii_digit() {
            return Some(&DIGIT);
        }
        let letter = LETTERS.get(usize::from(first.checked_sub(b'A')?))?;
        self.at += 1;
        Some(letter)
    }

    fn emit(&mut self, waiting: Waiting) {
        match waiting.kind {
            Pending::Op(op) => self.ops.push(op),
            Pending::VarArg(make) => self.ops.push(make((1 - waiting.effect) as u8)),
            Pending::Open => {}
        }
        self.depth += waiting.effect;
    }

    /// Moves what binds at least as tightly as `priority` to the output.
    fn flush(&mut self, priority: u8) {
        while let Some(top) = self.stack.last().copied().filter(|top| top.in_stack >= priority) {
            self.stack.pop();
            self.emit(top);
        }
    }

    /// Moves everything down to the open parenthesis, which stays.
    fn flush_to_paren(&mut self, missing: CalcError) -> Result<(), CalcError> {
        loop {
            match self.stack.last().copied() {
                None => return Err(missing),
                Some(top) if matches!(top.kind, Pending::Open) => return Ok(()),
                Some(top) => {
                    self.stack.pop();
                    self.emit(top);
                }
            }
        }
    }

    fn flush_all(&mut self) -> Result<(), CalcError> {
        while let Some(top) = self.stack.pop() {
            if matches!(top.kind, Pending::Open) {
                return Err(CalcError::ParenOpen);
            }
            self.emit(top);
        }
        Ok(())
    }

    fn number(&mut self, name: &str) -> Result<(), CalcError> {
        let start = self.at - name.len();
        let rest = &self.source[start..];
        let hex = rest.len() > 1 && rest[0] == b'0' && rest[1].eq_ignore_ascii_case(&b'x');
        let (value, len) = if hex {
            let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let text = std::str::from_utf8(&rest[2..2 + digits]).unwrap_or_default();
            let number = u32::from_str_radix(text, 16).map_err(|_| CalcError::BadLiteral)?;
            (f64::from(number as i32), 2 + digits)
        } else {
            base::text::parse_double(rest).ok_or(CalcError::BadLiteral)?
        };
        self.ops.push(Op::Literal(value));
        self.at = start + len;
        self.depth += 1;
        Ok(())
    }
}

/// Compiles an expression.
pub(crate) fn compile(source: &[u8]) -> Result<Program, CalcError> {
    if source.is_empty() {
        return Err(CalcError::Empty);
    }
    let mut c = Compiler { source, at: 0, ops: Vec::new(), stack: Vec::new(), depth: 0, conditions: 0 };
    let mut operand_needed = true;
    while let Some(element) = c.element(operand_needed) {
        match element.kind {
            Kind::Operand(op) => {
                c.ops.push(op);
                c.depth += 1;
                operand_needed = false;
            }
            Kind::Number => {
                c.number(element.name)?;
                operand_needed = false;
            }
            Kind::Store => {
                let Some(Op::Fetch(index)) = c.ops.last().copied().filter(|_| c.stack.is_empty()) else {
                    return Err(CalcError::BadAssignment);
                };
                c.ops.pop();
                c.stack.push(Waiting { in_stack: 0, effect: -1, kind: Pending::Op(Op::Store(index)) });
                c.depth -= 1;
                operand_needed = true;
            }
            Kind::Unary(code) => {
                c.flush(element.incoming);
                c.stack.push(Waiting {
                    in_stack: element.in_stack,
                    effect: element.effect,
                    kind: Pending::Op(Op::Do(code)),
                });
            }
            Kind::VarArg(make) => {
                c.flush(element.incoming);
                c.stack.push(Waiting { in_stack: element.in_stack, effect: 0, kind: Pending::VarArg(make) });
            }
            Kind::Open => {
                c.flush(element.incoming);
                c.stack.push(Waiting { in_stack: 0, effect: 0, kind: Pending::Open });
            }
            Kind::Binary(code) => {
                c.flush(element.incoming);
                c.stack.push(Waiting { in_stack: element.in_stack, effect: -1, kind: Pending::Op(Op::Do(code)) });
                operand_needed = true;
            }
            Kind::Separator => {
                c.flush_to_paren(CalcError::BadSeparator)?;
                if let Some(paren) = c.stack.last_mut() {
                    paren.effect -= 1;
                }
                operand_needed = true;
            }
            Kind::Close => {
                c.flush_to_paren(CalcError::ParenNotOpen)?;
                let effect = c.stack.pop().map_or(0, |paren| paren.effect);
                if let Some(top) = c.stack.last_mut().filter(|top| matches!(top.kind, Pending::VarArg(_))) {
                    top.effect = effect;
                }
            }
            Kind::If | Kind::Else => {
                while let Some(top) = c.stack.last().copied().filter(|top| top.in_stack > 0) {
                    c.stack.pop();
                    c.emit(top);
                }
                c.depth -= 1;
                if matches!(element.kind, Kind::If) {
                    c.ops.push(Op::If(0));
                    c.conditions += 1;
                } else {
                    c.ops.push(Op::Jump(0));
                    c.conditions -= 1;
                    if c.conditions < 0 {
                        return Err(CalcError::Conditional);
                    }
                    c.stack.push(Waiting { in_stack: 0, effect: 0, kind: Pending::Op(Op::EndIf) });
                }
                operand_needed = true;
            }
            Kind::Terminator => {
                c.flush_all()?;
                if c.conditions != 0 {
                    return Err(CalcError::Conditional);
                }
                if c.depth > 1 {
                    return Err(CalcError::TooMany);
                }
                operand_needed = true;
            }
        }
        if c.depth < 0 {
            return Err(CalcError::Underflow);
        }
        if c.depth as usize >= STACK_LIMIT {
            return Err(CalcError::Overflow);
        }
    }
    if c.at != source.len() {
        return Err(CalcError::Syntax);
    }
    c.flush_all()?;
    if c.conditions != 0 {
        return Err(CalcError::Conditional);
    }
    if operand_needed || c.depth != 1 {
        return Err(CalcError::Incomplete);
    }
    let mut program = Program { ops: c.ops.into_boxed_slice(), inputs: 0, stores: 0, pushes: 0 };
    program.link()?;
    Ok(program)
}

impl Program {
    /// Sets the targets of jumps, notes which inputs are used, and proves the depth of the stack.
    fn link(&mut self) -> Result<(), CalcError> {
        for at in 0..self.ops.len() {
            match self.ops[at] {
                Op::If(_) => self.ops[at] = Op::If(self.partner(at, true)?),
                Op::Jump(_) => self.ops[at] = Op::Jump(self.partner(at, false)?),
                Op::Fetch(input) => {
                    self.inputs |= (1 << input) & !self.stores;
                    self.pushes += 1;
                }
                Op::Literal(_) | Op::Value | Op::Random => self.pushes += 1,
                Op::Store(input) => self.stores |= 1 << input,
                _ => {}
            }
        }
        Ok(())
    }

    /// The instruction after the `Jump` that ends an `If`'s branch, or after the `EndIf` of a `Jump`.
    fn partner(&self, from: usize, is_if: bool) -> Result<u16, CalcError> {
        let mut open = 1;
        for (at, op) in self.ops.iter().enumerate().skip(from + 1) {
            match op {
                Op::If(_) => open += 1,
                Op::Jump(_) if is_if => open -= 1,
                Op::EndIf if !is_if => open -= 1,
                _ => {}
            }
            if open == 0 {
                return Ok(at as u16 + 1);
            }
        }
        Err(CalcError::Conditional)
    }

    /// Runs the expression. `result` is both `VAL` in it and where the outcome goes.
    ///
    /// # Errors
    /// When more or less than one value is left: the result stays as it was.
    #[inline]
    pub(crate) fn run(&self, inputs: &mut [f64], result: &mut f64, seed: &mut u16) -> Result<(), ()> {
        // Short expressions get a short stack: clearing a long one would take longer than they do.
        if self.pushes < 8 {
            self.run_on::<9>(inputs, result, seed)
        } else {
            self.run_on::<{ STACK_LIMIT + 1 }>(inputs, result, seed)
        }
    }

    fn run_on<const ROOM: usize>(&self, inputs: &mut [f64], result: &mut f64, seed: &mut u16) -> Result<(), ()> {
        let mut stack = [0.0f64; ROOM];
        // Index of the top; index 0 is a ground that is never a value.
        let mut top = 0usize;
        let mut at = 0usize;
        macro_rules! unary {
            ($f:expr) => {
                stack[top] = $f(stack[top])
            };
        }
        macro_rules! binary {
            ($f:expr) => {{
                if top < 2 {
                    return Err(());
                }
                top -= 1;
                stack[top] = $f(stack[top], stack[top + 1]);
            }};
        }
        while let Some(op) = self.ops.get(at) {
            at += 1;
            match *op {
                Op::Literal(value) => push(&mut stack, &mut top, value)?,
                Op::Value => push(&mut stack, &mut top, *result)?,
                Op::Random => push(&mut stack, &mut top, random(seed))?,
                Op::Fetch(input) => push(&mut stack, &mut top, inputs.get(usize::from(input)).copied().unwrap_or(0.0))?,
                Op::Store(input) => {
                    if let Some(place) = inputs.get_mut(usize::from(input)) {
                        *place = stack[top];
                    }
                    top = top.checked_sub(1).ok_or(())?;
                }
                Op::Max(count) => {
                    fold(
                        &mut stack,
                        &mut top,
                        count,
                        |kept, other| if kept < other || other.is_nan() { other } else { kept },
                    )?
                }
                Op::Min(count) => {
                    fold(
                        &mut stack,
                        &mut top,
                        count,
                        |kept, other| if kept > other || other.is_nan() { other } else { kept },
                    )?
                }
                Op::Finite(count) => {
                    unary!(|v: f64| truth(v.is_finite()));
                    fold(&mut stack, &mut top, count, |next, sofar| truth(sofar != 0.0 && next.is_finite()))?;
                }
                Op::IsNan(count) => {
                    unary!(|v: f64| truth(v.is_nan()));
                    fold(&mut stack, &mut top, count, |next, sofar| truth(sofar != 0.0 || next.is_nan()))?;
                }
                Op::If(target) => {
                    let condition = stack[top];
                    top = top.checked_sub(1).ok_or(())?;
                    if condition == 0.0 {
                        at = usize::from(target);
                    }
                }
                Op::Jump(target) => at = usize::from(target),
                Op::EndIf => {}
                Op::Do(code) => match code {
                    Code::Neg => unary!(|v: f64| -v),
                    Code::Add => binary!(|a, b| a + b),
                    Code::Sub => binary!(|a, b| a - b),
                    Code::Mul => binary!(|a, b| a * b),
                    Code::Div => binary!(|a, b| a / b),
                    Code::Modulo => binary!(|a, b| match base::text::to_i32(b) {
                        0 => f64::NAN,
                        divisor => f64::from(base::text::to_i32(a).wrapping_rem(divisor)),
                    }),
                    Code::Power => binary!(f64::powf),
                    Code::Abs => unary!(f64::abs),
                    Code::Exp => unary!(f64::exp),
                    Code::Log10 => unary!(f64::log10),
                    Code::LogE => unary!(f64::ln),
                    Code::Sqrt => unary!(f64::sqrt),
                    Code::Acos => unary!(f64::acos),
                    Code::Asin => unary!(f64::asin),
                    Code::Atan => unary!(f64::atan),
                    // EPICS takes x first and y second.
                    Code::Atan2 => binary!(|x: f64, y: f64| y.atan2(x)),
                    Code::Cos => unary!(f64::cos),
                    Code::Cosh => unary!(f64::cosh),
                    Code::Sin => unary!(f64::sin),
                    Code::Sinh => unary!(f64::sinh),
                    Code::Tan => unary!(f64::tan),
                    Code::Tanh => unary!(f64::tanh),
                    Code::Ceil => unary!(f64::ceil),
                    Code::Floor => unary!(f64::floor),
                    Code::Fmod => binary!(|a: f64, b: f64| a % b),
                    Code::IsInf => unary!(|v: f64| if v.is_infinite() { v.signum() } else { 0.0 }),
                    Code::Nint => {
                        unary!(|v: f64| f64::from(base::text::to_i32(if v >= 0.0 { v + 0.5 } else { v - 0.5 })))
                    }
                    Code::Or => binary!(|a, b| truth(a != 0.0 || b != 0.0)),
                    Code::And => binary!(|a, b| truth(a != 0.0 && b != 0.0)),
                    Code::Not => unary!(|v| truth(v == 0.0)),
                    Code::BitOr => binary!(|a, b| f64::from(bits(a) | bits(b))),
                    Code::BitAnd => binary!(|a, b| f64::from(bits(a) & bits(b))),
                    Code::BitXor => binary!(|a, b| f64::from(bits(a) ^ bits(b))),
                    Code::BitNot => unary!(|v| f64::from(!bits(v))),
                    Code::ShiftRight => binary!(|a, b| f64::from(bits(a) >> (bits(b) & 31))),
                    Code::ShiftLeft => binary!(|a, b| f64::from(bits(a) << (bits(b) & 31))),
                    Code::ShiftRightLogic => binary!(|a, b| f64::from(bits(a) as u32 >> (bits(b) & 31))),
                    Code::NotEq => binary!(|a, b| truth(a != b)),
                    Code::Less => binary!(|a, b| truth(a < b)),
                    Code::LessEq => binary!(|a, b| truth(a <= b)),
                    Code::Equal => binary!(|a, b| truth(a == b)),
                    Code::GreaterEq => binary!(|a, b| truth(a >= b)),
                    Code::Greater => binary!(|a, b| truth(a > b)),
                },
            }
        }
        if top != 1 {
            return Err(());
        }
        *result = stack[1];
        Ok(())
    }
}

#[inline]
fn push(stack: &mut [f64], top: &mut usize, value: f64) -> Result<(), ()> {
    *top += 1;
    *stack.get_mut(*top).ok_or(())? = value;
    Ok(())
}

/// Folds the topmost `count` values into one, from the top downwards.
fn fold(stack: &mut [f64], top: &mut usize, count: u8, join: impl Fn(f64, f64) -> f64) -> Result<(), ()> {
    for _ in 1..count {
        if *top < 2 {
            return Err(());
        }
        *top -= 1;
        stack[*top] = join(stack[*top], stack[*top + 1]);
    }
    Ok(())
}

const fn truth(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

/// A number as 32 bits: negative ones as signed, others as unsigned.
fn bits(value: f64) -> i32 {
    if value < 0.0 { base::text::to_i32(value) } else { conv::to_u32(value) as i32 }
}

/// The next of EPICS' random numbers, 0 to 1.
pub(crate) fn random(seed: &mut u16) -> f64 {
    *seed = seed.wrapping_mul(191 * 8 + 5).wrapping_add(0x3141);
    f64::from(*seed) / 65535.0
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
    fn inputs_and_stores_are_known() {
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
