//! A compiled program: instructions of a stack machine, and tables of channels, flags and states.
//!
//! Values on the stack are 64-bit words: whole numbers sign- or zero-extended from their type, floating point as double.
//! Pointers are addresses in one of three segments; see [`crate::memory`].

use crate::ast::{BinOp, Prim};
use crate::builtin::Fun;
use crate::error::Pos;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Nop,
    Push(u64),
    /// Address of a local variable.
    Local(u32),
    Load(Prim),
    /// address, value → value
    Store(Prim),
    Cast(Prim, Prim),
    /// The same for the second word from the top.
    CastUnder(Prim, Prim),
    Binary(BinOp, Prim),
    Negate(Prim),
    Complement(Prim),
    Not,
    Truth,
    Jump(u32),
    JumpZero(u32),
    Dup,
    Swap,
    Pop,
    /// address → value; adds to the variable; the result is the value before if `true`.
    Step(Prim, i32, bool),
    /// address, number → address + number · size
    Offset(i32),
    /// Checks the number on top against a number of elements.
    Bound(u32),
    /// to, from → to; copies bytes.
    Copy(u32),
    /// to, from → to; copies a text into this many bytes.
    CopyText(u32),
    /// address → ; clears bytes.
    Zero(u32),
    /// number → channel
    Channel(u32, u32),
    Call(u32),
    Return,
    /// A function of the language or of C's library: number of arguments, and which of them are floating point, as bits.
    Builtin(Fun, u8, u32),
    State(u32),
}

/// A piece of code with its own variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) ops: Vec<Op>,
    pub(crate) places: Vec<Pos>,
    /// Bytes of local variables.
    pub(crate) frame: u32,
    /// Offset and type of each parameter.
    pub(crate) params: Vec<(u32, Prim)>,
}

/// Type of the elements of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Prim(Prim),
    Str,
}

impl Element {
    pub(crate) const fn size(self) -> u32 {
        match self {
            Self::Prim(prim) => prim.size(),
            Self::Str => 40,
        }
    }
}

/// A variable, or an element of one, that is assigned to a process variable.
#[derive(Clone, Debug)]
pub(crate) struct ChannelDef {
    pub(crate) variable: String,
    pub(crate) address: u32,
    pub(crate) element: Element,
    pub(crate) count: u32,
    /// Name of the process variable before expansion; may be empty.
    pub(crate) pv: String,
    pub(crate) monitored: bool,
    /// Event flag, from 1; 0 for none.
    pub(crate) flag: u32,
    pub(crate) queue: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct WhenDef {
    pub(crate) condition: u32,
    pub(crate) action: u32,
    /// `None` ends the program.
    pub(crate) next: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct StateDef {
    pub(crate) name: String,
    pub(crate) entry: Option<u32>,
    pub(crate) exit: Option<u32>,
    pub(crate) whens: Vec<WhenDef>,
    /// Delays count from each entry, also from the state itself (`+t`).
    pub(crate) resets_delays: bool,
    /// `-e`, `-x`
    pub(crate) entry_each_time: bool,
    pub(crate) exit_each_time: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SetDef {
    pub(crate) name: String,
    pub(crate) states: Vec<StateDef>,
}

/// A checked and compiled program, which any number of instances can run.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) params: String,
    pub(crate) files: Vec<String>,
    /// Texts.
    pub(crate) constants: Vec<u8>,
    /// Bytes of variables.
    pub(crate) data_len: u32,
    pub(crate) channels: Vec<ChannelDef>,
    /// Length of each queue.
    pub(crate) queues: Vec<u32>,
    /// Names of event flags; the first has number 1.
    pub(crate) flags: Vec<String>,
    /// Options that are on.
    pub(crate) options: Vec<char>,
    pub(crate) units: Vec<Unit>,
    pub(crate) init: u32,
    pub(crate) entry: Option<u32>,
    pub(crate) exit: Option<u32>,
    pub(crate) sets: Vec<SetDef>,
}

impl Program {
    /// The program's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Files of which it consists: the program's, then included ones.
    #[must_use]
    pub fn files(&self) -> &[String] {
        &self.files
    }

    pub(crate) fn has_option(&self, letter: char) -> bool {
        self.options.contains(&letter)
    }
}
