//! Unwinding of a copied stack.

use crate::record::User;
use crate::space::{Cache, Space};
use framehop::{Error, FrameAddress, Unwinder as _};

#[cfg(target_arch = "x86_64")]
use framehop::x86_64::UnwindRegsX86_64 as Registers;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{PtrAuthMask, UnwindRegsAarch64 as Registers};

/// Maximum frames per stack.
pub(crate) const FRAMES_MAX: usize = 512;

/// Reason why the outer part of a stack is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cut {
    /// The stack is larger than the copy.
    Copy,
    /// Code without unwind tables or frame pointers.
    Tables,
    /// More frames than the maximum.
    Deep,
}

impl Cut {
    /// Placeholder frame for the missing part.
    #[must_use]
    pub fn frame(self) -> &'static str {
        match self {
            Self::Copy => "[cut: the stack is deeper than its copy]",
            Self::Tables => "[cut: code without unwind tables]",
            Self::Deep => "[cut: too many frames]",
        }
    }
}

/// Unwinds the user stack, innermost frame first. Each address is within its function. Returns the reason if the rest is missing.
pub(crate) fn unwind(space: &Space, cache: &mut Cache, user: &User<'_>, out: &mut Vec<u64>) -> Option<Cut> {
    let (at, stack_pointer, registers) = registers(user);
    let mut read = |address: u64| {
        let from = usize::try_from(address.checked_sub(stack_pointer).ok_or(())?).map_err(|_| ())?;
        let bytes = user.stack.get(from..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
        Ok(u64::from_ne_bytes(*bytes))
    };
    let mut frames = space.unwinder().iter_frames(at, registers, cache, &mut read);
    for _ in 0..FRAMES_MAX {
        match frames.next() {
            Ok(Some(frame)) => {
                // Without tables the unwinder tries frame pointers, which may lead to arbitrary addresses.
                let address = frame.address_for_lookup();
                if matches!(frame, FrameAddress::ReturnAddress(_)) && space.find(address).is_none() {
                    return Some(Cut::Tables);
                }
                out.push(address);
            }
            Ok(None) => return None,
            Err(Error::CouldNotReadStack(wanted)) => {
                let behind = wanted.wrapping_sub(stack_pointer);
                let is_near = behind >= user.stack.len() as u64 && behind < 1 << 23;
                return Some(if is_near { Cut::Copy } else { Cut::Tables });
            }
            Err(_) => return Some(Cut::Tables),
        }
    }
    Some(Cut::Deep)
}

#[cfg(target_arch = "x86_64")]
fn registers(user: &User<'_>) -> (u64, u64, Registers) {
    let [frame, stack, at, _] = user.registers;
    (at, stack, Registers::new(at, stack, frame))
}

#[cfg(target_arch = "aarch64")]
fn registers(user: &User<'_>) -> (u64, u64, Registers) {
    let [frame, link, stack, at] = user.registers;
    // User addresses have 48 bits; pointer authentication uses the bits above.
    (at, stack, Registers::new_with_ptr_auth_mask(PtrAuthMask(0xffff_ffff_ffff), link, stack, frame))
}
