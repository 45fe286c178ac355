//! Names and numbers of states.

use crate::model::slot::Text;
use crate::rec::table::Kind;
use crate::run::device::Device;
use crate::run::engine::Db;
use base::{EventMask, Scalar, Str40};

/// The name of a state.
pub(crate) fn state_text(db: &Db, rec: u32, index: u16) -> Str40 {
    let body = db.common[rec as usize].body as usize;
    let pair = |zero: &[u8], one: &[u8]| match index {
        0 => Str40::new(zero),
        1 => Str40::new(one),
        _ => Str40::from("Illegal_Value"),
    };
    let many = |names: &[Text<26>; 16]| {
        names.get(usize::from(index)).map_or_else(|| Str40::from("Illegal Value"), |name| Str40::new(name.bytes()))
    };
    match db.common[rec as usize].kind() {
        Kind::Bi => pair(db.bodies.bi[body].znam.bytes(), db.bodies.bi[body].onam.bytes()),
        Kind::Bo => pair(db.bodies.bo[body].znam.bytes(), db.bodies.bo[body].onam.bytes()),
        Kind::Mbbi => many(&db.bodies.mbbi[body].names),
        Kind::Mbbo => many(&db.bodies.mbbo[body].names),
        _ => base::text::scalar(Scalar::U16(index), 0),
    }
}

/// The names of the states, up to the last that has one.
pub(crate) fn states(db: &Db, rec: u32) -> Vec<Str40> {
    let body = db.common[rec as usize].body as usize;
    let pair = |zero: &[u8], one: &[u8]| {
        let mut names = vec![Str40::new(zero), Str40::new(one)];
        // A name for zero alone makes one state; none at all makes two.
        if one.is_empty() && !zero.is_empty() {
            names.pop();
        }
        names
    };
    let many = |names: &[Text<26>; 16]| {
        let count = names.iter().rposition(|name| !name.bytes().is_empty()).map_or(0, |last| last + 1);
        names[..count].iter().map(|name| Str40::new(name.bytes())).collect()
    };
    match db.common[rec as usize].kind() {
        Kind::Bi => pair(db.bodies.bi[body].znam.bytes(), db.bodies.bi[body].onam.bytes()),
        Kind::Bo => pair(db.bodies.bo[body].znam.bytes(), db.bodies.bo[body].onam.bytes()),
        Kind::Mbbi => many(&db.bodies.mbbi[body].names),
        Kind::Mbbo => many(&db.bodies.mbbo[body].names),
        _ => Vec::new(),
    }
}

/// SDEF: whether any state has a value or a name.
pub(crate) fn any_state(values: &[u32; 16], names: &[Text<26>; 16]) -> i16 {
    i16::from(values.iter().any(|value| *value != 0) || names.iter().any(|name| !name.bytes().is_empty()))
}

/// After a state's value or name was written: clients are told of the name.
pub(crate) fn state_written(db: &mut Db, rec: u32, name: &str, val: u16) {
    let Some(state) = STATE_NAMES.iter().position(|state| name.strip_suffix("ST") == Some(*state)) else { return };
    let mut mask = EventMask::PROPERTY;
    if usize::from(val) == state {
        mask |= EventMask::VALUE | EventMask::LOG;
    }
    db.post_value(rec, mask);
}

/// First letters of the fields of each state.
pub(crate) const STATE_NAMES: [&str; 16] =
    ["ZR", "ON", "TW", "TH", "FR", "FV", "SX", "SV", "EI", "NI", "TE", "EL", "TV", "TT", "FT", "FF"];

/// The mask that NOBT means where MASK is not given.
pub(crate) fn mask_of(mask: u32, nobt: impl TryInto<u32>) -> u32 {
    match nobt.try_into() {
        Ok(nobt @ 0..=32) if mask == 0 => ((1u64 << nobt) - 1) as u32,
        _ => mask,
    }
}

/// The mask as a device support shifts it; in the raw ones all bits count where there is no NOBT.
pub(crate) fn device_mask(device: Device, mask: u32, without_nobt: bool, shft: u16) -> u32 {
    match device {
        Device::SoftRaw if without_nobt => u32::MAX.checked_shl(shft.into()).unwrap_or(0),
        Device::SoftRaw | Device::External => mask.checked_shl(shft.into()).unwrap_or(0),
        _ => mask,
    }
}

/// The number of the state that a text names.
pub(crate) fn state_number(db: &Db, rec: u32, text: &str) -> Option<u16> {
    let states = states(db, rec);
    if text.is_empty() {
        // The first state that has no name.
        let most = if matches!(db.common[rec as usize].kind(), Kind::Mbbi | Kind::Mbbo) { 16 } else { 2 };
        let unnamed = states.iter().position(|state| state.bytes().is_empty()).unwrap_or(states.len());
        return (unnamed < most).then_some(unnamed as u16);
    }
    let limit = 25;
    let cut = &text.as_bytes()[..text.len().min(limit)];
    if let Some(index) = states.iter().position(|state| state.bytes() == cut) {
        return Some(index as u16);
    }
    let trimmed = text.trim();
    // mbbo's VAL takes another way through EPICS, which ignores what follows a number.
    let loose = db.common[rec as usize].kind() == Kind::Mbbo;
    let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let index: u16 = (loose || digits == trimmed.len()).then(|| trimmed[..digits].parse().ok())??;
    (usize::from(index) < states.len()).then_some(index)
}

/// Whether VAL, an enumeration by its type, is a plain number: mbbo without states.
pub(crate) fn is_plain_number(db: &Db, rec: u32) -> bool {
    let common = &db.common[rec as usize];
    common.kind() == Kind::Mbbo && db.bodies.mbbo[common.body as usize].sdef == 0
}
