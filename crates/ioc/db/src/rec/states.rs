//! State names and numbers.

use super::Records;
use crate::model::id::RecId;
use crate::model::slot::Text;
use crate::run::device::Device;
use crate::run::engine::Db;
use base::{EventMask, Scalar, Str40};

/// State names of a record type.
pub(crate) enum States<'a> {
    /// The type has no states.
    None,
    /// Names of states zero and one.
    Pair(&'a Text<26>, &'a Text<26>),
    /// Names of sixteen states.
    Many(&'a [Text<26>; 16]),
}

/// SDEF: whether any state has a value or a name.
pub(crate) fn any_state(values: &[u32; 16], names: &[Text<26>; 16]) -> i16 {
    i16::from(values.iter().any(|value| *value != 0) || names.iter().any(|name| !name.bytes().is_empty()))
}

/// Posts a change of a state's value or name to clients.
pub(crate) fn state_written(db: &mut Db, rec: RecId, state: u16, val: u16) {
    if usize::from(state) >= STATES {
        return;
    }
    let mut mask = EventMask::PROPERTY;
    if val == state {
        mask |= EventMask::VALUE | EventMask::LOG;
    }
    db.post_value(rec, mask);
}

/// Maximum number of states.
pub(crate) const STATES: usize = 16;

/// Mask with NOBT bits, unless MASK is set.
pub(crate) fn mask_of(mask: u32, nobt: impl Into<i32>) -> u32 {
    match nobt.into() {
        // A negative NOBT gives the result of the x86 shift instruction.
        nobt if mask == 0 && nobt <= 32 => 1u64.wrapping_shl(nobt as u32).wrapping_sub(1) as u32,
        _ => mask,
    }
}

/// The mask, shifted as the device support does. Raw Soft Channel without NOBT uses all bits.
pub(crate) fn device_mask(device: Device, mask: u32, without_nobt: bool, shft: u16) -> u32 {
    match device {
        Device::SoftRaw if without_nobt => u32::MAX.wrapping_shl(shft.into()),
        Device::SoftRaw | Device::External => mask.wrapping_shl(shft.into()),
        _ => mask,
    }
}

impl Records {
    /// Name of a state.
    pub(crate) fn state_text(&self, rec: RecId, index: u16) -> Str40 {
        let name = match self.states_of(rec).0 {
            States::None => return base::text::scalar(Scalar::U16(index), 0),
            States::Pair(zero, one) => [zero, one].get(usize::from(index)).copied().ok_or("Illegal_Value"),
            States::Many(names) => names.get(usize::from(index)).ok_or("Illegal Value"),
        };
        name.map_or_else(Str40::from, |name| Str40::new(name.bytes()))
    }

    /// Text for a number beyond the states; `None` if the type has no states.
    pub(crate) fn beyond_states(&self, rec: RecId) -> Option<Str40> {
        match self.states_of(rec).0 {
            States::None => None,
            _ => Some(self.state_text(rec, u16::MAX)),
        }
    }

    /// State names up to the last one that is set.
    pub(crate) fn states(&self, rec: RecId) -> Vec<Str40> {
        let named = |name: &Text<26>| Str40::new(name.bytes());
        match self.states_of(rec).0 {
            States::None => Vec::new(),
            // If only ZNAM is set there is one state. If neither is set there are two.
            States::Pair(zero, one) if one.bytes().is_empty() && !zero.bytes().is_empty() => vec![named(zero)],
            States::Pair(zero, one) => vec![named(zero), named(one)],
            States::Many(names) => {
                let count = names.iter().rposition(|name| !name.bytes().is_empty()).map_or(0, |last| last + 1);
                names[..count].iter().map(named).collect()
            }
        }
    }

    /// State number for a text.
    pub(crate) fn state_number(&self, rec: RecId, text: &str) -> Option<u16> {
        let (of_record, loose) = self.states_of(rec);
        let states = self.states(rec);
        if text.is_empty() {
            // Index of the first unnamed state.
            let most = if matches!(of_record, States::Many(_)) { STATES } else { 2 };
            let unnamed = states.iter().position(|state| state.bytes().is_empty()).unwrap_or(states.len());
            return (unnamed < most).then_some(unnamed as u16);
        }
        let limit = 25;
        let cut = &text.as_bytes()[..text.len().min(limit)];
        if let Some(index) = states.iter().position(|state| state.bytes() == cut) {
            return Some(index as u16);
        }
        let trimmed = text.trim();
        // A put to VAL of mbbo uses a different path in EPICS, which ignores text after the number.
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let index: u16 = (loose || digits == trimmed.len()).then(|| trimmed[..digits].parse().ok())??;
        (usize::from(index) < states.len()).then_some(index)
    }
}
