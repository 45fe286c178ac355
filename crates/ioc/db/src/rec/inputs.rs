//! Inputs A, B, C, … of calc, calcout, sel, sub and swait: reading and posting.

use super::{Body, RecordType};
use crate::calc::INPUTS;
use crate::model::id::RecId;
use crate::model::link::Link;
use crate::model::slot::Layout;
use crate::run::engine::Db;
use crate::run::link::LinkError;
use base::EventMask;

/// A record type with inputs.
pub(crate) trait Inputs: RecordType {
    /// Field number of the first value.
    const FIRST: u16;
    /// Links of the inputs.
    fn links(&self) -> &[Link];
    /// Current values, and the values posted last.
    fn values(&mut self) -> (&mut [f64], &mut [f64]);
    /// Events for which VAL left its deadband.
    fn left(&mut self) -> EventMask;
}

/// Implements [`Inputs`] for a type with links in `inp` and values in `a` and `la`.
macro_rules! inputs {
    ($T:ident) => {
        impl crate::rec::inputs::Inputs for $T {
            const FIRST: u16 = Self::A;
            #[inline]
            fn links(&self) -> &[Link] {
                &self.inp
            }
            #[inline]
            fn values(&mut self) -> (&mut [f64], &mut [f64]) {
                (&mut self.a, &mut self.la)
            }
            #[inline]
            fn left(&mut self) -> base::EventMask {
                crate::rec::deadbands!(self)
            }
        }
    };
}
pub(crate) use inputs;

/// Index of a field in a row of `count` fields.
pub(crate) fn nth(field: u16, first: u16, count: usize) -> Option<usize> {
    field.checked_sub(first).map(usize::from).filter(|index| *index < count)
}

/// Name of the field `nth` places after `first`.
pub(crate) fn name_of<T: Layout>(first: u16, nth: usize) -> &'static str {
    T::NAMES[usize::from(first) + nth]
}

/// Index of the input (of 21) that a field belongs to. `value` and `last` are the first fields of the two rows.
pub(crate) fn input_of(field: u16, [value, last]: [u16; 2]) -> Option<usize> {
    nth(field, value, INPUTS).or_else(|| nth(field, last, INPUTS))
}

/// Positions of the set bits, lowest first.
#[inline]
pub(crate) fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

/// Start: loads constants into their inputs.
pub(crate) fn constants(links: &[Link], values: &mut [f64]) {
    for (link, value) in links.iter().zip(values) {
        *value = link.number().unwrap_or(*value);
    }
}

/// Loads a constant into its input after a client wrote the link `field`. `first` is the first link of the row. Returns the
/// index of the input; `None` if the field is not in the row, or the link is not constant.
pub(crate) fn written_constant(field: u16, first: u16, links: &[Link], values: &mut [f64]) -> Option<usize> {
    let index = nth(field, first, links.len())?;
    let link = links.get(index).filter(|link| link.is_constant())?;
    if let (Some(value), Some(place)) = (link.number(), values.get_mut(index)) {
        *place = value;
    }
    Some(index)
}

/// Bit mask of the links that must be read.
pub(crate) fn live_links(links: &[Link]) -> u32 {
    links.iter().enumerate().filter(|(_, link)| !link.is_constant()).fold(0, |bits, (index, _)| bits | 1 << index)
}

/// Reads one input.
#[inline]
pub(crate) fn read_one<T: Inputs>(db: &mut Db, rec: RecId, body: Body<T>, index: usize) -> Result<(), LinkError> {
    let link = db.records[body].links()[index].brief();
    if let Some(value) = db.get_link::<f64>(rec, link)? {
        db.records[body].values().0[index] = value;
    }
    Ok(())
}

/// Reads the inputs whose bits are set. Returns whether all reads succeeded.
#[inline]
pub(crate) fn read_live<T: Inputs>(db: &mut Db, rec: RecId, body: Body<T>, live: u32) -> bool {
    ones(live).fold(true, |fetched, index| fetched & read_one(db, rec, body, index).is_ok())
}

/// Posts VAL if it left a deadband or the alarm changed. Returns the events posted.
pub(crate) fn post_val<T: Inputs>(db: &mut Db, rec: RecId, body: Body<T>) -> EventMask {
    let mask = db.reset_alarms(rec) | db.records[body].left();
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
    mask
}

/// Posts the inputs that changed, or `all`.
pub(crate) fn post_inputs<T: Inputs>(db: &mut Db, rec: RecId, body: Body<T>, mask: EventMask, all: bool) {
    let (now, last) = db.records[body].values();
    let mut bits = 0u32;
    for (index, (now, last)) in now.iter().zip(last).enumerate() {
        if all || now != last {
            bits |= 1 << index;
            *last = *now;
        }
    }
    ones(bits)
        .for_each(|index| db.post_named(rec, name_of::<T>(T::FIRST, index), mask | EventMask::VALUE | EventMask::LOG));
}
