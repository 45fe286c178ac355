//! Memory of a program: constants, variables, and the local variables of each state set, in three segments of addresses.
//! Every access is checked.

use crate::ast::Prim;

/// First address of constants. Lower ones are invalid, as a null pointer.
pub(crate) const CONSTANTS: u32 = 0x0001_0000;
/// First address of variables.
pub(crate) const DATA: u32 = 0x1000_0000;
/// First address of local variables.
pub(crate) const STACK: u32 = 0x4000_0000;
/// Maximum number of bytes of variables.
pub(crate) const DATA_MAX: u32 = 64 << 20;
/// Bytes of local variables of a state set.
pub(crate) const STACK_LEN: usize = 1 << 20;

/// Reason why a program cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// An access outside of the program's variables.
    Address(u64),
    /// A write to a text.
    Constant,
    Index(i64, u32),
    DivisionByZero,
    Depth,
    Argument(&'static str),
}

impl std::fmt::Display for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(0) => write!(f, "found a null pointer, expected the address of a variable"),
            Self::Address(at) => write!(f, "found the address {at:#x}, which is outside of the program's variables"),
            Self::Constant => write!(f, "found a write to a constant text, expected a variable"),
            Self::Index(found, count) => write!(f, "found index {found} of an array of {count} elements"),
            Self::DivisionByZero => write!(f, "found a division by zero"),
            Self::Depth => write!(f, "found functions that call each other without end"),
            Self::Argument(what) => f.write_str(what),
        }
    }
}

/// The memory as one state set has it.
pub(crate) struct Memory<'a> {
    pub(crate) constants: &'a [u8],
    pub(crate) data: &'a mut [u8],
    pub(crate) stack: &'a mut [u8],
}

impl Memory<'_> {
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Result<&[u8], Trap> {
        let (segment, offset) = match at {
            at if at >= u64::from(STACK) => (&*self.stack, at - u64::from(STACK)),
            at if at >= u64::from(DATA) => (&*self.data, at - u64::from(DATA)),
            at if at >= u64::from(CONSTANTS) => (self.constants, at - u64::from(CONSTANTS)),
            _ => return Err(Trap::Address(at)),
        };
        range(offset, len).and_then(|range| segment.get(range)).ok_or(Trap::Address(at))
    }

    pub(crate) fn bytes_mut(&mut self, at: u64, len: usize) -> Result<&mut [u8], Trap> {
        let (segment, offset) = match at {
            at if at >= u64::from(STACK) => (&mut *self.stack, at - u64::from(STACK)),
            at if at >= u64::from(DATA) => (&mut *self.data, at - u64::from(DATA)),
            at if at >= u64::from(CONSTANTS) => return Err(Trap::Constant),
            _ => return Err(Trap::Address(at)),
        };
        range(offset, len).and_then(|range| segment.get_mut(range)).ok_or(Trap::Address(at))
    }

    /// The text at an address, without its zero.
    pub(crate) fn text(&self, at: u64) -> Result<&[u8], Trap> {
        let rest = self.rest(at)?;
        let len = rest.iter().position(|byte| *byte == 0).ok_or(Trap::Address(at))?;
        Ok(&rest[..len])
    }

    /// All bytes from an address to the end of its segment.
    pub(crate) fn rest(&self, at: u64) -> Result<&[u8], Trap> {
        let (segment, offset) = match at {
            at if at >= u64::from(STACK) => (&*self.stack, at - u64::from(STACK)),
            at if at >= u64::from(DATA) => (&*self.data, at - u64::from(DATA)),
            at if at >= u64::from(CONSTANTS) => (self.constants, at - u64::from(CONSTANTS)),
            _ => return Err(Trap::Address(at)),
        };
        usize::try_from(offset).ok().and_then(|from| segment.get(from..)).ok_or(Trap::Address(at))
    }

    /// Writes a text with its zero.
    pub(crate) fn set_text(&mut self, at: u64, text: &[u8]) -> Result<(), Trap> {
        let room = self.bytes_mut(at, text.len() + 1)?;
        room[..text.len()].copy_from_slice(text);
        room[text.len()] = 0;
        Ok(())
    }

    pub(crate) fn load(&self, prim: Prim, at: u64) -> Result<u64, Trap> {
        let mut raw = [0; 8];
        let len = prim.size() as usize;
        raw[..len].copy_from_slice(self.bytes(at, len)?);
        let bits = u64::from_le_bytes(raw);
        Ok(match prim {
            Prim::I8 => bits as i8 as i64 as u64,
            Prim::I16 => bits as i16 as i64 as u64,
            Prim::I32 => bits as i32 as i64 as u64,
            Prim::F32 => f64::from(f32::from_bits(bits as u32)).to_bits(),
            _ => bits,
        })
    }

    pub(crate) fn store(&mut self, prim: Prim, at: u64, value: u64) -> Result<(), Trap> {
        let bits = match prim {
            Prim::F32 => u64::from((f64::from_bits(value) as f32).to_bits()),
            _ => value,
        };
        let len = prim.size() as usize;
        self.bytes_mut(at, len)?.copy_from_slice(&bits.to_le_bytes()[..len]);
        Ok(())
    }
}

fn range(offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(offset).ok()?;
    Some(from..from.checked_add(len)?)
}

/// Converts a word from one type to another.
pub(crate) fn cast(from: Prim, to: Prim, word: u64) -> u64 {
    match (from.is_float(), to.is_float()) {
        (true, true) if to == Prim::F32 => f64::from(f64::from_bits(word) as f32).to_bits(),
        (true, true) => word,
        (true, false) => {
            let value = f64::from_bits(word);
            let whole = if to == Prim::U64 && value > 0.0 { value as u64 } else { value as i64 as u64 };
            wrap(to, whole)
        }
        (false, true) => {
            let value = if from == Prim::U64 { word as f64 } else { word as i64 as f64 };
            if to == Prim::F32 { f64::from(value as f32).to_bits() } else { value.to_bits() }
        }
        (false, false) => wrap(to, word),
    }
}

/// A whole number in the width of its type.
pub(crate) const fn wrap(prim: Prim, word: u64) -> u64 {
    match prim {
        Prim::I8 => word as i8 as i64 as u64,
        Prim::U8 => word as u8 as u64,
        Prim::I16 => word as i16 as i64 as u64,
        Prim::U16 => word as u16 as u64,
        Prim::I32 => word as i32 as i64 as u64,
        Prim::U32 => word as u32 as u64,
        _ => word,
    }
}
