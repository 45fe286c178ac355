//! The stack machine: runs the code of a state set until it ends, waits, or has used its share of instructions.

use crate::ast::{BinOp, Prim};
use crate::code::{Op, Program};
use crate::error::Pos;
use crate::machine::Machine;
use crate::memory::{Memory, STACK, STACK_LEN, Trap, cast, wrap};
use std::sync::Arc;

/// Maximum number of nested calls.
const CALLS_MAX: usize = 200;

#[derive(Clone, Copy, Debug)]
struct Frame {
    unit: u32,
    next: u32,
    base: u32,
}

/// Code in progress of a state set.
#[derive(Debug, Default)]
pub(crate) struct Task {
    frames: Vec<Frame>,
    words: Vec<u64>,
    pub(crate) stack: Vec<u8>,
    top: usize,
}

/// Why the machine returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Value(u64),
    /// The state set waits for an event.
    Waits,
    /// The share of instructions is used.
    Share,
    /// The action ended with a change of state.
    State(u32),
}

/// Result of a built-in function.
pub(crate) enum Flow {
    Value(u64),
    /// The result arrives later.
    Later,
    /// The call is repeated after an event.
    Retry,
}

impl Task {
    /// Starts a unit.
    pub(crate) fn start(&mut self, program: &Program, unit: u32) -> Result<(), Trap> {
        (self.top, self.frames, self.words) = (0, Vec::new(), Vec::new());
        self.enter(program, unit)
    }

    pub(crate) fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    fn enter(&mut self, program: &Program, unit: u32) -> Result<(), Trap> {
        let base = self.top.next_multiple_of(8);
        let frame = program.units[unit as usize].frame as usize;
        if base + frame > STACK_LEN || self.frames.len() >= CALLS_MAX {
            return Err(Trap::Depth);
        }
        self.top = base + frame;
        if self.stack.len() < self.top {
            self.stack.resize(self.top, 0);
        }
        self.stack[base..self.top].fill(0);
        self.frames.push(Frame { unit, next: 0, base: base as u32 });
        Ok(())
    }

    fn pop(&mut self) -> u64 {
        self.words.pop().unwrap_or(0)
    }

    fn top(&mut self) -> &mut u64 {
        if self.words.is_empty() {
            self.words.push(0);
        }
        let last = self.words.len() - 1;
        &mut self.words[last]
    }
}

fn arithmetic(op: BinOp, prim: Prim, left: u64, right: u64) -> Result<u64, Trap> {
    if prim.is_float() {
        let (left, right) = (f64::from_bits(left), f64::from_bits(right));
        let value = match op {
            BinOp::Add => left + right,
            BinOp::Sub => left - right,
            BinOp::Mul => left * right,
            BinOp::Div => left / right,
            BinOp::Eq => return Ok(u64::from(left == right)),
            BinOp::Ne => return Ok(u64::from(left != right)),
            BinOp::Lt => return Ok(u64::from(left < right)),
            BinOp::Le => return Ok(u64::from(left <= right)),
            BinOp::Gt => return Ok(u64::from(left > right)),
            BinOp::Ge => return Ok(u64::from(left >= right)),
            _ => 0.0,
        };
        return Ok(cast(Prim::F64, prim, value.to_bits()));
    }
    let signed = matches!(prim, Prim::I32 | Prim::I64);
    let order = if signed { (left as i64).cmp(&(right as i64)) } else { left.cmp(&right) };
    let bits = if prim.size() == 4 { 31 } else { 63 };
    let value = match op {
        BinOp::Add => left.wrapping_add(right),
        BinOp::Sub => left.wrapping_sub(right),
        BinOp::Mul => left.wrapping_mul(right),
        BinOp::Div | BinOp::Rem if right == 0 => return Err(Trap::DivisionByZero),
        BinOp::Div if signed => (left as i64).wrapping_div(right as i64) as u64,
        BinOp::Div => left / right,
        BinOp::Rem if signed => (left as i64).wrapping_rem(right as i64) as u64,
        BinOp::Rem => left % right,
        BinOp::And => left & right,
        BinOp::Or => left | right,
        BinOp::Xor => left ^ right,
        // As x86 shifts.
        BinOp::Shl => left << (right & bits),
        BinOp::Shr if signed => ((left as i64) >> (right & bits)) as u64,
        BinOp::Shr => left >> (right & bits),
        BinOp::Eq => return Ok(u64::from(order.is_eq())),
        BinOp::Ne => return Ok(u64::from(order.is_ne())),
        BinOp::Lt => return Ok(u64::from(order.is_lt())),
        BinOp::Le => return Ok(u64::from(order.is_le())),
        BinOp::Gt => return Ok(u64::from(order.is_gt())),
        BinOp::Ge => return Ok(u64::from(order.is_ge())),
    };
    Ok(wrap(prim, value))
}

impl Machine {
    /// Continues the code of a state set.
    pub(crate) fn run(&mut self, set: usize) -> Result<Outcome, (Trap, Pos)> {
        let program = Arc::clone(&self.program);
        let mut task = std::mem::take(&mut self.sets[set].task);
        if let Some(word) = self.sets[set].resume.take() {
            task.push(word);
        }
        let done = self.instructions(&program, set, &mut task).map_err(|trap| {
            let place = task.frames.last().map(|frame| {
                let places = &program.units[frame.unit as usize].places;
                places.get((frame.next as usize).saturating_sub(1)).copied().unwrap_or_default()
            });
            (trap, place.unwrap_or_default())
        });
        if matches!(done, Ok(Outcome::Value(_) | Outcome::State(_))) {
            task.frames.clear();
        }
        self.sets[set].task = task;
        done
    }

    fn instructions(&mut self, program: &Program, set: usize, task: &mut Task) -> Result<Outcome, Trap> {
        let view = self.view(set);
        macro_rules! memory {
            () => {
                Memory { constants: &self.constants, data: &mut self.views[view], stack: &mut task.stack }
            };
        }
        while let Some(frame) = task.frames.last_mut() {
            let Some(op) = program.units[frame.unit as usize].ops.get(frame.next as usize).copied() else {
                return Ok(Outcome::Value(0));
            };
            if self.share == 0 {
                return Ok(Outcome::Share);
            }
            self.share -= 1;
            frame.next += 1;
            let base = frame.base;
            match op {
                Op::Nop => {}
                Op::Push(word) => task.push(word),
                Op::Local(offset) => task.push(u64::from(STACK) + u64::from(base + offset)),
                Op::Load(prim) => {
                    let at = task.pop();
                    let word = memory!().load(prim, at)?;
                    task.push(word);
                }
                Op::Store(prim) => {
                    let (word, at) = (task.pop(), task.pop());
                    memory!().store(prim, at, word)?;
                    task.push(word);
                }
                Op::Cast(from, to) => *task.top() = cast(from, to, *task.top()),
                Op::CastUnder(from, to) => {
                    let above = task.pop();
                    *task.top() = cast(from, to, *task.top());
                    task.push(above);
                }
                Op::Binary(op, prim) => {
                    let (right, left) = (task.pop(), task.pop());
                    task.push(arithmetic(op, prim, left, right)?);
                }
                Op::Negate(prim) => {
                    let word = *task.top();
                    *task.top() = match prim.is_float() {
                        true => (-f64::from_bits(word)).to_bits(),
                        false => wrap(prim, word.wrapping_neg()),
                    };
                }
                Op::Complement(prim) => *task.top() = wrap(prim, !*task.top()),
                Op::Not => *task.top() = u64::from(*task.top() == 0),
                Op::Truth => *task.top() = u64::from(*task.top() != 0),
                Op::Jump(to) => frame.next = to,
                Op::JumpZero(to) => {
                    if task.words.pop() == Some(0)
                        && let Some(frame) = task.frames.last_mut()
                    {
                        frame.next = to;
                    }
                }
                Op::Dup => {
                    let word = *task.top();
                    task.push(word);
                }
                Op::Swap => {
                    let (above, under) = (task.pop(), task.pop());
                    task.push(above);
                    task.push(under);
                }
                Op::Pop => drop(task.pop()),
                Op::Step(prim, by, after) => {
                    let at = task.pop();
                    let mut memory = memory!();
                    let before = memory.load(prim, at)?;
                    let new = match prim.is_float() {
                        true => (f64::from_bits(before) + f64::from(by)).to_bits(),
                        false => wrap(prim, before.wrapping_add_signed(i64::from(by))),
                    };
                    memory.store(prim, at, new)?;
                    task.push(if after { before } else { new });
                }
                Op::Offset(size) => {
                    let by = (task.pop() as i64).wrapping_mul(i64::from(size));
                    *task.top() = task.top().wrapping_add_signed(by);
                }
                Op::Bound(count) => {
                    let index = *task.top() as i64;
                    if !(0..i64::from(count)).contains(&index) {
                        return Err(Trap::Index(index, count));
                    }
                }
                Op::Copy(len) => {
                    let (from, to) = (task.pop(), *task.top());
                    self.charge(len as usize);
                    let mut memory = memory!();
                    let bytes = memory.bytes(from, len as usize)?.to_vec();
                    memory.bytes_mut(to, len as usize)?.copy_from_slice(&bytes);
                }
                Op::CopyText(len) => {
                    let (from, to) = (task.pop(), *task.top());
                    self.charge(len as usize);
                    let mut memory = memory!();
                    let text = memory.text(from)?;
                    let text = text[..text.len().min(len as usize)].to_vec();
                    let room = memory.bytes_mut(to, len as usize)?;
                    room.fill(0);
                    room[..text.len()].copy_from_slice(&text);
                }
                Op::Zero(len) => {
                    let at = task.pop();
                    self.charge(len as usize);
                    memory!().bytes_mut(at, len as usize)?.fill(0);
                }
                Op::Channel(first, count) => {
                    let index = *task.top() as i64;
                    if !(0..i64::from(count)).contains(&index) {
                        return Err(Trap::Index(index, count));
                    }
                    *task.top() = u64::from(first) + index as u64;
                }
                Op::Call(unit) => {
                    let params = &program.units[unit as usize].params;
                    let from = task.words.len().saturating_sub(params.len());
                    let arguments = task.words.split_off(from);
                    task.enter(program, unit)?;
                    self.charge(program.units[unit as usize].frame as usize);
                    let base = task.frames.last().map_or(0, |frame| frame.base);
                    for (word, (offset, prim)) in arguments.into_iter().zip(params) {
                        memory!().store(*prim, u64::from(STACK) + u64::from(base + offset), word)?;
                    }
                }
                Op::Return => {
                    task.top = base as usize;
                    task.frames.pop();
                }
                Op::Builtin(fun, count, floats) => {
                    let from = task.words.len().saturating_sub(usize::from(count));
                    let arguments = task.words.split_off(from);
                    match self.builtin(set, &mut task.stack, fun, &arguments, floats)? {
                        Flow::Value(word) => task.push(word),
                        Flow::Later => return Ok(Outcome::Waits),
                        Flow::Retry => {
                            task.words.extend(arguments);
                            if let Some(frame) = task.frames.last_mut() {
                                frame.next -= 1;
                            }
                            return Ok(Outcome::Waits);
                        }
                    }
                }
                Op::State(state) => return Ok(Outcome::State(state)),
            }
        }
        Ok(Outcome::Value(task.pop()))
    }
}
