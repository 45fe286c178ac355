//! Compiler from expression text to postfix code: an operator-precedence parser, like `postfix()` of EPICS.

use super::{CalcError, Code, INPUTS, Op, Program, STACK_LIMIT};

/// Kind of a source element.
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

/// Elements allowed where an operand is expected. The longest matching name wins.
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

/// Elements allowed where an operator is expected. The longest matching name wins.
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

/// An operator on the parser's stack that has not been output yet.
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

    /// Moves operators that bind at least as tightly as `priority` to the output.
    fn flush(&mut self, priority: u8) {
        while let Some(top) = self.stack.last().copied().filter(|top| top.in_stack >= priority) {
            self.stack.pop();
            self.emit(top);
        }
    }

    /// Moves operators to the output down to the open parenthesis, which stays on the stack.
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

    /// Processes one element. Returns whether an operand must follow.
    fn take(&mut self, element: &Element, operand_needed: bool) -> Result<bool, CalcError> {
        match element.kind {
            Kind::Operand(op) => {
                self.ops.push(op);
                self.depth += 1;
                return Ok(false);
            }
            Kind::Number => {
                self.number(element.name)?;
                return Ok(false);
            }
            Kind::Store => {
                let Some(Op::Fetch(index)) = self.ops.last().copied().filter(|_| self.stack.is_empty()) else {
                    return Err(CalcError::BadAssignment);
                };
                self.ops.pop();
                self.stack.push(Waiting { in_stack: 0, effect: -1, kind: Pending::Op(Op::Store(index)) });
                self.depth -= 1;
                return Ok(true);
            }
            Kind::Unary(code) => {
                self.flush(element.incoming);
                self.stack.push(Waiting {
                    in_stack: element.in_stack,
                    effect: element.effect,
                    kind: Pending::Op(Op::Do(code)),
                });
            }
            Kind::VarArg(make) => {
                self.flush(element.incoming);
                self.stack.push(Waiting { in_stack: element.in_stack, effect: 0, kind: Pending::VarArg(make) });
            }
            Kind::Open => {
                self.flush(element.incoming);
                self.stack.push(Waiting { in_stack: 0, effect: 0, kind: Pending::Open });
            }
            Kind::Binary(code) => {
                self.flush(element.incoming);
                self.stack.push(Waiting { in_stack: element.in_stack, effect: -1, kind: Pending::Op(Op::Do(code)) });
                return Ok(true);
            }
            Kind::Separator => {
                self.flush_to_paren(CalcError::BadSeparator)?;
                if let Some(paren) = self.stack.last_mut() {
                    paren.effect -= 1;
                }
                return Ok(true);
            }
            Kind::Close => {
                self.flush_to_paren(CalcError::ParenNotOpen)?;
                let effect = self.stack.pop().map_or(0, |paren| paren.effect);
                if let Some(top) = self.stack.last_mut().filter(|top| matches!(top.kind, Pending::VarArg(_))) {
                    top.effect = effect;
                }
            }
            Kind::If | Kind::Else => {
                while let Some(top) = self.stack.last().copied().filter(|top| top.in_stack > 0) {
                    self.stack.pop();
                    self.emit(top);
                }
                self.depth -= 1;
                if matches!(element.kind, Kind::If) {
                    self.ops.push(Op::If(0));
                    self.conditions += 1;
                } else {
                    self.ops.push(Op::Jump(0));
                    self.conditions -= 1;
                    if self.conditions < 0 {
                        return Err(CalcError::Conditional);
                    }
                    self.stack.push(Waiting { in_stack: 0, effect: 0, kind: Pending::Op(Op::EndIf) });
                }
                return Ok(true);
            }
            Kind::Terminator => {
                self.flush_all()?;
                if self.conditions != 0 {
                    return Err(CalcError::Conditional);
                }
                if self.depth > 1 {
                    return Err(CalcError::TooMany);
                }
                return Ok(true);
            }
        }
        Ok(operand_needed)
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
        operand_needed = c.take(element, operand_needed)?;
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
    /// Resolves jump targets, records which inputs are used, and counts the pushed values.
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
}
