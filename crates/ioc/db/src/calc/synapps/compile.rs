//! Compiler from expression text to postfix code: an operator-precedence parser without recursion.

use super::elements::{self, Kind, PREFIX};
use super::{Binary, Dialect, Many, Op, Program, STACK_LIMIT, UNTILS, Unary};
use crate::calc::CalcError;
use base::Str40;

/// Priority of `:=` on the parser's stack: a conditional ends it.
const STORE: u8 = 1;

/// An element on the parser's stack that has not been output yet.
#[derive(Clone, Copy)]
struct Waiting {
    priority: u8,
    /// Change of the number of values when it is output.
    effect: i16,
    kind: Pending,
}

#[derive(Clone, Copy, PartialEq)]
enum Pending {
    Op(Op),
    Many(Many),
    Paren,
    Bracket,
    Brace,
}

impl Pending {
    const fn is_open(self) -> bool {
        matches!(self, Self::Paren | Self::Bracket | Self::Brace)
    }
}

struct Compiler<'a> {
    source: &'a [u8],
    at: usize,
    ops: Vec<Op>,
    texts: Vec<Str40>,
    stack: Vec<Waiting>,
    depth: i16,
    conditions: i16,
    untils: u8,
}

/// Compiles an expression. Time and memory are proportional to its length.
///
/// # Errors
/// If it is malformed or needs more than the limits.
pub(crate) fn compile(source: &[u8], dialect: Dialect) -> Result<Program, CalcError> {
    if source.is_empty() {
        return Err(CalcError::Empty);
    }
    let (ops, texts, stack) = (Vec::new(), Vec::new(), Vec::new());
    let mut c = Compiler { source, at: 0, ops, texts, stack, depth: 0, conditions: 0, untils: 0 };
    let mut needs_operand = true;
    loop {
        c.at += c.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let Some((kind, priority, len)) = elements::first(c.rest(), needs_operand, dialect) else { break };
        needs_operand = c.take(kind, priority, len, needs_operand)?;
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
    c.flush_while(|top| !top.kind.is_open());
    if !c.stack.is_empty() {
        return Err(CalcError::ParenOpen);
    }
    if c.conditions != 0 {
        return Err(CalcError::Conditional);
    }
    if needs_operand || c.depth != 1 {
        return Err(CalcError::Incomplete);
    }
    let has_texts = dialect == Dialect::Texts && c.ops.iter().any(works_on_texts);
    let mut program = Program { ops: c.ops.into_boxed_slice(), texts: c.texts.into_boxed_slice(), dialect, has_texts };
    program.link()?;
    Ok(program)
}

/// Whether an instruction makes the interpreter of synApps treat the whole expression as one with texts.
fn works_on_texts(op: &Op) -> bool {
    match op {
        Op::Text(_) | Op::LargeValue | Op::FetchLarge(_) | Op::StoreLarge(_) | Op::StoreLargeAt => true,
        Op::Range | Op::Braces => true,
        Op::Unary(code) => matches!(
            code,
            Unary::FetchLarge
                | Unary::Len
                | Unary::Escape
                | Unary::Unescape
                | Unary::Str
                | Unary::Crc16
                | Unary::Modbus
                | Unary::Lrc
                | Unary::AsciiModbus
                | Unary::Xor8
                | Unary::AddXor8
        ),
        Op::Binary(code) => matches!(code, Binary::Printf | Binary::Scanf | Binary::Read | Binary::Write),
        _ => false,
    }
}

impl Compiler<'_> {
    fn rest(&self) -> &[u8] {
        &self.source[self.at..]
    }

    fn emit(&mut self, waiting: Waiting) {
        match waiting.kind {
            Pending::Op(op) => self.ops.push(op),
            Pending::Many(code @ (Many::Fit | Many::FitMasked)) => {
                let fit = self.fit(code == Many::FitMasked, (1 - waiting.effect) as u8);
                self.ops.push(fit);
            }
            Pending::Many(code) => self.ops.push(Op::Many(code, (1 - waiting.effect) as u8)),
            Pending::Bracket => self.ops.push(Op::Range),
            Pending::Brace => self.ops.push(Op::Braces),
            Pending::Paren => {}
        }
        self.depth += waiting.effect;
    }

    /// A fit, with the variables that its last operands name.
    fn fit(&self, is_masked: bool, count: u8) -> Op {
        let further = usize::from(count).saturating_sub(if is_masked { 2 } else { 1 }).min(3);
        let mut targets = [None; 3];
        for (target, op) in targets[..further].iter_mut().rev().zip(self.ops.iter().rev()) {
            let Op::Fetch(index) = op else { break };
            *target = Some(*index);
        }
        Op::Fit { is_masked, count, targets }
    }

    fn flush_while(&mut self, goes: impl Fn(&Waiting) -> bool) {
        while let Some(top) = self.stack.last().copied().filter(|top| goes(top)) {
            self.stack.pop();
            self.emit(top);
        }
    }

    /// Moves operators that bind at least as tightly as `priority` to the output.
    fn flush(&mut self, priority: u8) {
        self.flush_while(|top| top.priority >= priority && !top.kind.is_open());
    }

    fn push(&mut self, priority: u8, effect: i16, kind: Pending) {
        self.stack.push(Waiting { priority, effect, kind });
    }

    fn operand(&mut self, op: Op) {
        self.ops.push(op);
        self.depth += 1;
    }

    /// Processes one element. Returns whether an operand must follow.
    fn take(&mut self, kind: Kind, priority: u8, len: usize, needs_operand: bool) -> Result<bool, CalcError> {
        if !matches!(kind, Kind::Number) {
            self.at += len;
        }
        match kind {
            Kind::Number => {
                let (value, len) = base::text::parse_double(self.rest()).ok_or(CalcError::BadLiteral)?;
                self.at += len;
                self.operand(Op::Literal(value));
                Ok(false)
            }
            Kind::Quote => {
                let quote = self.source[self.at - 1];
                let len = self.rest().iter().take_while(|byte| **byte != quote).count();
                self.texts.push(Str40::new(&self.rest()[..len]));
                self.at = (self.at + len + 1).min(self.source.len());
                self.operand(Op::Text(self.texts.len() as u16 - 1));
                Ok(false)
            }
            Kind::Operand(op) => {
                self.operand(op);
                Ok(false)
            }
            // Prefixes bind from right to left: they move nothing to the output.
            Kind::Unary(code) => {
                self.push(PREFIX, 0, Pending::Op(Op::Unary(code)));
                Ok(needs_operand)
            }
            Kind::Function(code) => {
                self.push(PREFIX, -1, Pending::Op(Op::Binary(code)));
                Ok(needs_operand)
            }
            Kind::Many(code) => {
                self.push(PREFIX, 0, Pending::Many(code));
                Ok(needs_operand)
            }
            Kind::Until => self.until().map(|()| needs_operand),
            Kind::Open => {
                self.push(0, 0, Pending::Paren);
                Ok(needs_operand)
            }
            Kind::Binary(code) => {
                self.flush(priority);
                self.push(priority, -1, Pending::Op(Op::Binary(code)));
                Ok(true)
            }
            Kind::Bracket | Kind::Brace => {
                self.flush(priority);
                self.push(0, -1, if matches!(kind, Kind::Bracket) { Pending::Bracket } else { Pending::Brace });
                Ok(true)
            }
            Kind::BracketEnd => self.close_range(Pending::Bracket, CalcError::BracketNotOpen).map(|()| needs_operand),
            Kind::BraceEnd => self.close_range(Pending::Brace, CalcError::BraceNotOpen).map(|()| needs_operand),
            Kind::Close => self.close().map(|()| needs_operand),
            Kind::Separator => {
                self.flush_while(|top| !top.kind.is_open());
                let open = self.stack.last_mut().ok_or(CalcError::BadSeparator)?;
                open.effect -= 1;
                Ok(true)
            }
            Kind::If | Kind::Else => self.condition(matches!(kind, Kind::If)).map(|()| true),
            Kind::Store => self.store().map(|()| true),
            Kind::Terminator => {
                self.flush_while(|top| !top.kind.is_open());
                match self.stack.last() {
                    Some(open) if open.kind != Pending::Paren => Err(CalcError::BadSeparator),
                    _ => Ok(true),
                }
            }
        }
    }

    fn until(&mut self) -> Result<(), CalcError> {
        if usize::from(self.untils) >= UNTILS {
            return Err(CalcError::Overflow);
        }
        self.ops.push(Op::Until(self.untils));
        self.push(0, 0, Pending::Op(Op::EndUntil(self.untils)));
        self.untils += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<(), CalcError> {
        self.flush_while(|top| !top.kind.is_open());
        let open = self.stack.pop().filter(|open| open.kind == Pending::Paren).ok_or(CalcError::ParenNotOpen)?;
        match self.stack.last_mut() {
            Some(top) if matches!(top.kind, Pending::Many(_)) => top.effect = open.effect,
            // A loop ends with the parentheses after its name.
            Some(top) if matches!(top.kind, Pending::Op(Op::EndUntil(_))) => {
                let end = *top;
                self.stack.pop();
                self.emit(end);
            }
            _ => {}
        }
        Ok(())
    }

    fn close_range(&mut self, kind: Pending, missing: CalcError) -> Result<(), CalcError> {
        self.flush_while(|top| !top.kind.is_open());
        let open = self.stack.pop().filter(|open| open.kind == kind).ok_or(missing)?;
        // A range has two parts.
        if open.effect != -2 {
            return Err(CalcError::Incomplete);
        }
        self.emit(open);
        Ok(())
    }

    fn condition(&mut self, is_if: bool) -> Result<(), CalcError> {
        self.flush_while(|top| top.priority > 0 && !top.kind.is_open());
        self.depth -= 1;
        if is_if {
            self.ops.push(Op::If(0));
            self.conditions += 1;
            return Ok(());
        }
        self.ops.push(Op::Jump(0));
        self.conditions -= 1;
        if self.conditions < 0 {
            return Err(CalcError::Conditional);
        }
        self.push(0, 0, Pending::Op(Op::EndIf));
        Ok(())
    }

    /// `:=` after a variable or after `@` with its index.
    fn store(&mut self) -> Result<(), CalcError> {
        self.depth -= 1;
        let inner = self.stack.iter().rposition(|waiting| waiting.kind.is_open()).map_or(0, |open| open + 1);
        let index = self.stack[inner..]
            .iter()
            .rposition(|waiting| matches!(waiting.kind, Pending::Op(Op::Unary(Unary::Fetch | Unary::FetchLarge))));
        if let Some(place) = index.map(|index| inner + index) {
            while self.stack.len() > place + 1 {
                if let Some(top) = self.stack.pop() {
                    self.emit(top);
                }
            }
            let is_number = self.stack[place].kind == Pending::Op(Op::Unary(Unary::Fetch));
            let op = if is_number { Op::StoreAt } else { Op::StoreLargeAt };
            self.stack[place] = Waiting { priority: STORE, effect: -1, kind: Pending::Op(op) };
            return Ok(());
        }
        let op = match self.ops.pop() {
            Some(Op::Fetch(index)) => Op::Store(index),
            Some(Op::FetchLarge(index)) => Op::StoreLarge(index),
            _ => return Err(CalcError::BadAssignment),
        };
        self.push(STORE, -1, Pending::Op(op));
        Ok(())
    }
}

impl Program {
    /// Resolves jump targets.
    fn link(&mut self) -> Result<(), CalcError> {
        for at in 0..self.ops.len() {
            match self.ops[at] {
                Op::If(_) => self.ops[at] = Op::If(self.partner(at, true)?),
                Op::Jump(_) => self.ops[at] = Op::Jump(self.partner(at, false)?),
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
