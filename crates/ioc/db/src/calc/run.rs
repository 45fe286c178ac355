//! Interpreter of postfix code.

use super::{Code, Op, Program, STACK_LIMIT};
use crate::text::conv;

impl Program {
    /// Runs the expression. `result` is the value of `VAL` in it and receives the result.
    ///
    /// # Errors
    /// If the stack does not end with exactly one value. `result` is then unchanged.
    #[inline]
    pub(crate) fn run(&self, inputs: &mut [f64], result: &mut f64, seed: &mut u16) -> Result<(), ()> {
        // Short expressions use a short stack, because clearing the long one would take longer than running them.
        if self.pushes < 8 {
            self.run_on::<9>(inputs, result, seed)
        } else {
            self.run_on::<{ STACK_LIMIT + 1 }>(inputs, result, seed)
        }
    }

    fn run_on<const ROOM: usize>(&self, inputs: &mut [f64], result: &mut f64, seed: &mut u16) -> Result<(), ()> {
        let mut stack = [0.0f64; ROOM];
        // Index of the top. Index 0 is a sentinel that never holds a value.
        let mut top = 0usize;
        let mut at = 0usize;
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
                    stack[top] = truth(stack[top].is_finite());
                    fold(&mut stack, &mut top, count, |next, sofar| truth(sofar != 0.0 && next.is_finite()))?;
                }
                Op::IsNan(count) => {
                    stack[top] = truth(stack[top].is_nan());
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
                Op::Do(code) => compute(code, &mut stack, &mut top)?,
            }
        }
        if top != 1 {
            return Err(());
        }
        *result = stack[1];
        Ok(())
    }
}

/// Applies an operator or function to the topmost values. Part of the loop above, which runs it millions of times a second.
#[inline(always)]
fn compute<const ROOM: usize>(code: Code, stack: &mut [f64; ROOM], top: &mut usize) -> Result<(), ()> {
    macro_rules! unary {
        ($f:expr) => {
            stack[*top] = $f(stack[*top])
        };
    }
    macro_rules! binary {
        ($f:expr) => {{
            if *top < 2 {
                return Err(());
            }
            *top -= 1;
            stack[*top] = $f(stack[*top], stack[*top + 1]);
        }};
    }
    match code {
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
        // EPICS passes x first and y second.
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
    }
    Ok(())
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

/// Converts a number to 32 bits: negative numbers as signed, others as unsigned.
fn bits(value: f64) -> i32 {
    if value < 0.0 { base::text::to_i32(value) } else { conv::to_u32(value) as i32 }
}

/// Next number of the EPICS random generator, 0 to 1.
fn random(seed: &mut u16) -> f64 {
    *seed = seed.wrapping_mul(191 * 8 + 5).wrapping_add(0x3141);
    f64::from(*seed) / 65535.0
}
