//! Interpreter of postfix code.

use super::lanes::{self, Lanes, any, map, zip};
use super::{Binary, Dialect, Item, LOOP_ELEMENTS, Many, Op, Program, ROUNDS, STACK_LIMIT, UNTILS, Unary, texts};
use crate::text::conv::to_i64;
use base::Str40;
use base::text::to_i32;
use std::f64::consts::TAU;

/// Variables of an expression.
pub(crate) struct Frame<'a> {
    /// `A` to `P`. Missing ones are 0; stores to them are lost.
    pub(crate) numbers: &'a mut [f64],
    /// `AA` to `LL` of the dialect with texts.
    pub(crate) texts: &'a mut [Str40],
    /// `AA` to `LL` of the dialect with arrays.
    pub(crate) arrays: &'a mut [Vec<f64>],
    /// Number of elements of each array in the dialect with arrays.
    pub(crate) size: usize,
    /// `VAL`.
    pub(crate) value: f64,
    /// `SVAL`.
    pub(crate) text: Str40,
    /// `AVAL`.
    pub(crate) array: &'a [f64],
    /// Seed of the random numbers.
    pub(crate) seed: &'a mut u16,
    /// Texts or arrays that were written, one bit each.
    pub(crate) stored: u32,
}

/// The expression has no value: a division by 0, a negative number's root, a wrong format, too many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoValue;

pub(super) type Computed<T = Item> = Result<T, NoValue>;

impl Item {
    /// The number, the number at the start of the text, or the first element.
    pub(crate) fn number(&self) -> f64 {
        match self {
            Self::Number(value) => *value,
            Self::Text(text) => base::text::parse_double(text.bytes()).map_or(0.0, |(value, _)| value),
            Self::Array(lanes) => lanes.values.first().copied().unwrap_or(0.0),
        }
    }

    /// The text, or the number with eight digits.
    pub(crate) fn text(&self) -> Str40 {
        match self {
            Self::Text(text) => *text,
            other => number_text(other.number(), 8),
        }
    }
}

/// A number as text.
pub(crate) fn number_text(value: f64, precision: u16) -> Str40 {
    if value.is_nan() { Str40::new(b"NaN") } else { base::text::double(value, precision) }
}

struct Stack {
    items: [Item; STACK_LIMIT],
    len: usize,
}

impl Stack {
    fn push(&mut self, item: Item) -> Computed<()> {
        *self.items.get_mut(self.len).ok_or(NoValue)? = item;
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Computed {
        self.len = self.len.checked_sub(1).ok_or(NoValue)?;
        Ok(std::mem::replace(&mut self.items[self.len], Item::Number(0.0)))
    }

    fn pop_number(&mut self) -> Computed<f64> {
        self.pop().map(|item| item.number())
    }

    /// The topmost `count` values, in the order of the expression.
    fn top(&self, count: usize) -> Computed<&[Item]> {
        let start = self.len.checked_sub(count).ok_or(NoValue)?;
        Ok(&self.items[start..self.len])
    }
}

impl Program {
    /// Runs the expression. Stores take effect also if it fails later.
    ///
    /// # Errors
    /// If the expression has no value. Infinity or NaN is returned as a result; the callers treat it as an error, and
    /// decide which value the record keeps.
    pub(crate) fn run(&self, frame: &mut Frame<'_>) -> Computed {
        let mut stack = Stack { items: [const { Item::Number(0.0) }; STACK_LIMIT], len: 0 };
        // Instruction and stack depth at the start of each loop.
        let mut starts = [(0, 0); UNTILS];
        let (mut rounds, mut elements) = (0, 0);
        let mut at = 0usize;
        while let Some(op) = self.ops.get(at) {
            at += 1;
            if rounds > 0 {
                elements += frame.size as u64;
            }
            match *op {
                Op::If(target) => {
                    if stack.pop_number()? == 0.0 {
                        at = usize::from(target);
                    }
                }
                Op::Jump(target) => at = usize::from(target),
                Op::EndIf => {}
                Op::Until(number) => starts[usize::from(number)] = (at, stack.len),
                Op::EndUntil(number) => {
                    let ended = stack.top(1)?[0].number() != 0.0;
                    rounds += 1;
                    if !ended && rounds <= ROUNDS && elements < LOOP_ELEMENTS {
                        (at, stack.len) = starts[usize::from(number)];
                    }
                }
                op => self.step(op, &mut stack, frame)?,
            }
        }
        if stack.len != 1 {
            return Err(NoValue);
        }
        stack.pop()
    }

    /// Runs an instruction that does not jump.
    fn step(&self, op: Op, stack: &mut Stack, frame: &mut Frame<'_>) -> Computed<()> {
        match op {
            Op::Literal(value) => stack.push(Item::Number(value)),
            Op::Text(index) => stack.push(Item::Text(self.texts.get(usize::from(index)).copied().ok_or(NoValue)?)),
            Op::Value => stack.push(Item::Number(frame.value)),
            Op::LargeValue if self.dialect == Dialect::Texts => stack.push(Item::Text(frame.text)),
            Op::LargeValue => stack.push(Item::Array(Lanes::of_size(frame.array, frame.size))),
            Op::Random => stack.push(Item::Number(random(frame.seed))),
            Op::NormalRandom => {
                let value = (-2.0 * random(frame.seed).ln()).sqrt() * (TAU * random(frame.seed)).cos();
                stack.push(Item::Number(value))
            }
            Op::RandomArray => {
                let values = (0..frame.size).map(|_| random(frame.seed)).collect();
                stack.push(Item::Array(Lanes::new(values)))
            }
            Op::Indices => {
                let values = (0..frame.size).map(|index| index as f64).collect();
                stack.push(Item::Array(Lanes::new(values)))
            }
            Op::Fetch(index) => stack.push(Item::Number(frame.numbers.get(usize::from(index)).copied().unwrap_or(0.0))),
            Op::FetchLarge(index) => stack.push(self.large(usize::from(index), frame)),
            Op::Store(index) => {
                let value = stack.pop_number()?;
                frame.store(usize::from(index), value);
                Ok(())
            }
            Op::StoreLarge(index) => {
                let value = stack.pop()?;
                frame.store_large(usize::from(index), value);
                Ok(())
            }
            Op::StoreAt => {
                let (value, index) = (stack.pop_number()?, stack.pop_number()?);
                if let Some(index) = index_of(index) {
                    frame.store(index, value);
                }
                Ok(())
            }
            Op::StoreLargeAt => {
                let (value, index) = (stack.pop()?, stack.pop_number()?);
                if let Some(index) = index_of(index) {
                    frame.store_large(index, value);
                }
                Ok(())
            }
            Op::Unary(code) => {
                let operand = stack.pop()?;
                stack.push(self.unary(code, operand, frame)?)
            }
            Op::Binary(code) => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(self.binary(code, left, right, frame)?)
            }
            Op::Many(code, count) => {
                let joined = many(code, stack.top(usize::from(count))?)?;
                stack.len -= usize::from(count);
                stack.push(joined)
            }
            Op::Fit { is_masked, count, targets } => {
                let (lanes, coefficients) = lanes::fit(is_masked, stack.top(usize::from(count))?, frame.size)?;
                for (target, value) in targets.into_iter().zip(coefficients) {
                    if let Some(index) = target {
                        frame.store(usize::from(index), value);
                    }
                }
                stack.len -= usize::from(count);
                stack.push(Item::Array(lanes))
            }
            Op::Range | Op::Braces => {
                let (second, first, whole) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.push(match op {
                    _ if self.dialect == Dialect::Arrays => {
                        let whole = Lanes::of(whole, frame.size);
                        Item::Array(lanes::range(&whole, first.number(), second.number(), op == Op::Braces))
                    }
                    Op::Range => Item::Text(texts::range(whole.text(), &first, &second)),
                    _ => Item::Text(texts::replace(whole.text(), first.text(), second.text())),
                })
            }
            // Jumps are handled by the caller.
            Op::If(_) | Op::Jump(_) | Op::EndIf | Op::Until(_) | Op::EndUntil(_) => Ok(()),
        }
    }

    fn unary(&self, code: Unary, operand: Item, frame: &mut Frame<'_>) -> Computed {
        let arrays = self.dialect == Dialect::Arrays;
        let map = |f: &dyn Fn(f64) -> f64| map(&operand, f);
        // Functions of negative numbers: an error, or 0 in the dialect with arrays.
        let positive = |f: &dyn Fn(f64) -> f64| match arrays {
            true => Ok(map(&|value| if value < 0.0 { 0.0 } else { f(value) })),
            false if operand.number() < 0.0 => Err(NoValue),
            false => Ok(map(f)),
        };
        Ok(match code {
            Unary::Not => map(&|value| truth(value == 0.0)),
            Unary::Neg => map(&|value| -value),
            Unary::Abs => map(&f64::abs),
            Unary::Acos => map(&f64::acos),
            Unary::Asin => map(&f64::asin),
            Unary::Atan => map(&f64::atan),
            Unary::Ceil => map(&f64::ceil),
            Unary::Cos => map(&f64::cos),
            Unary::Cosh => map(&f64::cosh),
            Unary::Exp => map(&f64::exp),
            Unary::Floor => map(&f64::floor),
            Unary::IsInf => map(&|value| if value.is_infinite() { value.signum() } else { 0.0 }),
            Unary::Ln => positive(&f64::ln)?,
            Unary::Log => positive(&f64::log10)?,
            Unary::Sqrt => positive(&f64::sqrt)?,
            Unary::Nint => match operand {
                Item::Text(text) => Item::Number(nint(texts::first_number(text))),
                _ => map(&nint),
            },
            Unary::BitNot if self.is_narrow() => map(&|value| f64::from(!to_i32(value))),
            Unary::BitNot => map(&|value| !to_i64(value) as f64),
            Unary::Sin => map(&f64::sin),
            Unary::Sinh => map(&f64::sinh),
            Unary::Tan => map(&f64::tan),
            Unary::Tanh => map(&f64::tanh),
            Unary::Fetch => {
                let index = index_of(operand.number());
                Item::Number(index.and_then(|index| frame.numbers.get(index)).copied().unwrap_or(0.0))
            }
            Unary::FetchLarge => self.large(index_of(operand.number()).unwrap_or(usize::MAX), frame),
            Unary::Double => match operand {
                Item::Text(text) => Item::Number(texts::first_number(text)),
                other => Item::Number(other.number()),
            },
            Unary::Len if arrays => Item::Number(frame.size as f64),
            Unary::Len => Item::Number(operand.text().bytes().len() as f64),
            code if arrays => lanes::unary(code, operand, frame.size)?,
            code => texts::unary(code, operand)?,
        })
    }

    /// Whether integers have 32 bits.
    const fn is_narrow(&self) -> bool {
        self.has_texts || matches!(self.dialect, Dialect::Arrays)
    }

    fn binary(&self, code: Binary, left: Item, right: Item, frame: &Frame<'_>) -> Computed {
        if let (Item::Text(left), Item::Text(right)) = (&left, &right)
            && let Some(joined) = texts::binary(code, *left, *right)
        {
            return Ok(joined);
        }
        let (arrays, narrow) = (self.dialect == Dialect::Arrays, self.is_narrow());
        // Numbers closer than this are equal. Arrays are compared exactly.
        let small = if arrays { 0.0 } else { 1e-11 };
        let near = |a: f64, b: f64| a == b || (a - b).abs() < small;
        let zip = |f: &dyn Fn(f64, f64) -> f64| zip(&left, &right, f);
        let bits = |f: &dyn Fn(i64, i64) -> i64| {
            let whole = |value| if arrays { i64::from(to_i32(value)) } else { to_i64(value) };
            zip(&|a, b| f(whole(a), whole(b)) as f64)
        };
        let is_zero = |value: f64| if code == Binary::Div { value == 0.0 } else { to_i32(value) == 0 };
        Ok(match code {
            Binary::NotEq => zip(&|a, b| truth((a - b).abs() > small)),
            Binary::Equal => zip(&|a, b| truth(near(a, b))),
            Binary::Less => zip(&|a, b| truth(b - a > small)),
            Binary::LessEq => zip(&|a, b| truth(near(a, b) || a < b)),
            Binary::Greater => zip(&|a, b| truth(a - b > small)),
            Binary::GreaterEq => zip(&|a, b| truth(near(a, b) || a > b)),
            Binary::Div | Binary::Modulo if !arrays && any(&right, &is_zero) => return Err(NoValue),
            Binary::Div => zip(&|a, b| if b == 0.0 { DIVIDED_BY_0 } else { a / b }),
            Binary::Modulo => zip(&|a, b| match to_i32(b) {
                0 => DIVIDED_BY_0,
                divisor => f64::from(to_i32(a).wrapping_rem(divisor)),
            }),
            Binary::BitAnd => bits(&|a, b| a & b),
            Binary::BitOr => bits(&|a, b| a | b),
            Binary::BitXor => bits(&|a, b| a ^ b),
            Binary::And => zip(&|a, b| truth(a != 0.0 && b != 0.0)),
            Binary::Or => zip(&|a, b| truth(a != 0.0 || b != 0.0)),
            Binary::Mul => zip(&|a, b| a * b),
            Binary::Power => zip(&f64::powf),
            Binary::Add => zip(&|a, b| a + b),
            Binary::Sub | Binary::SubLast => zip(&|a, b| a - b),
            Binary::Larger => zip(&|a, b| if a < b { b } else { a }),
            Binary::Smaller => zip(&|a, b| if a > b { b } else { a }),
            // As in base, x comes first and y second.
            Binary::Atan2 => zip(&|x, y| y.atan2(x)),
            Binary::ShiftLeft | Binary::ShiftRight => {
                let to_right = code == Binary::ShiftRight;
                match &left {
                    Item::Text(text) => Item::Text(texts::shift(*text, right.number(), to_right)),
                    Item::Array(lanes) => {
                        let by = right.number();
                        Item::Array(lanes::shift(lanes, if to_right { by } else { -by }))
                    }
                    Item::Number(_) if narrow => zip(&|a, b| {
                        let (a, b) = (to_i32(a), to_i32(b) as u32);
                        f64::from(if to_right { a.wrapping_shr(b) } else { a.wrapping_shl(b) })
                    }),
                    Item::Number(_) => {
                        bits(&|a, b| if to_right { a.wrapping_shr(b as u32) } else { a.wrapping_shl(b as u32) })
                    }
                }
            }
            code if arrays => lanes::binary(code, left, right, frame.size)?,
            code => texts::function(code, &left, &right)?,
        })
    }

    /// The text or array with an index; an empty one beyond the last.
    fn large(&self, index: usize, frame: &Frame<'_>) -> Item {
        if self.dialect == Dialect::Texts {
            return Item::Text(frame.texts.get(index).copied().unwrap_or(Str40::EMPTY));
        }
        Item::Array(Lanes::of_size(frame.arrays.get(index).map_or(&[], Vec::as_slice), frame.size))
    }
}

/// Result of a division by 0 in the dialect with arrays.
const DIVIDED_BY_0: f64 = 1e35f32 as f64;

impl Frame<'_> {
    fn store(&mut self, index: usize, value: f64) {
        if let Some(place) = self.numbers.get_mut(index) {
            *place = value;
        }
    }

    fn store_large(&mut self, index: usize, value: Item) {
        self.stored |= 1u32.checked_shl(index as u32).unwrap_or(0);
        if let Some(place) = self.texts.get_mut(index) {
            *place = value.text();
        } else if let Some(place) = self.arrays.get_mut(index) {
            *place = Lanes::of(value, self.size).values;
        }
    }
}

/// Functions with any number of operands, of which there is at least one.
fn many(code: Many, items: &[Item]) -> Computed {
    let is_text = |item: &Item| matches!(item, Item::Text(_));
    let all = |is: fn(f64) -> bool| items.iter().all(|item| !any(item, &|value| !is(value)));
    Ok(match code {
        Many::Finite => Item::Number(truth(all(f64::is_finite))),
        Many::IsNan => Item::Number(truth(!all(|value| !value.is_nan()))),
        Many::Max | Many::Min if items.iter().all(is_text) => {
            let sorted = items.iter().map(Item::text);
            let found = match code {
                Many::Max => sorted.max_by(|a, b| a.bytes().cmp(b.bytes())),
                _ => sorted.min_by(|a, b| a.bytes().cmp(b.bytes())),
            };
            Item::Text(found.ok_or(NoValue)?)
        }
        Many::Max | Many::Min => {
            let join = |kept: f64, other: f64| {
                let replaces = if code == Many::Max { kept < other } else { kept > other };
                if replaces || other.is_nan() { other } else { kept }
            };
            let (last, others) = items.split_last().ok_or(NoValue)?;
            let last = map(last, &|value| value);
            others.iter().rev().fold(last, |joined, item| zip(item, &joined, &join))
        }
        // Separate instructions implement these.
        Many::Fit | Many::FitMasked => return Err(NoValue),
    })
}

/// Index of a variable, rounded.
fn index_of(value: f64) -> Option<usize> {
    usize::try_from(to_i64(nint(value))).ok()
}

pub(super) const fn truth(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

/// Nearest integer.
pub(super) fn nint(value: f64) -> f64 {
    to_i64(if value >= 0.0 { value + 0.5 } else { value - 0.5 }) as f64
}

/// Next number of the EPICS random generator, above 0, up to 1.
fn random(seed: &mut u16) -> f64 {
    *seed = seed.wrapping_mul(191 * 8 + 5).wrapping_add(0x3141);
    (f64::from(*seed) + 1.0) / 65_536.0
}
