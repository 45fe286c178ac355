//! Inputs A, B, C and so on: how calc, calcout, sel and sub read them, and tell about them.

use super::{Body, RecordType};
use crate::calc::INPUTS;
use crate::model::id::RecId;
use crate::model::link::Link;
use crate::run::engine::Db;
use crate::run::link::LinkError;
use base::EventMask;

/// Names of the inputs, for events.
pub(crate) const INPUT_NAMES: [&str; INPUTS] =
    ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S", "T", "U"];

/// A record type with inputs.
pub(crate) trait Inputs: RecordType {
    /// Where they come from.
    fn links(&self) -> &[Link];
    /// Their values, and those that were told last.
    fn values(&mut self) -> (&mut [f64], &mut [f64]);
}

/// A type that has its links in `inp`, its values in `a` and `la`.
macro_rules! inputs {
    ($T:ident) => {
        impl crate::rec::inputs::Inputs for $T {
            #[inline]
            fn links(&self) -> &[Link] {
                &self.inp
            }
            #[inline]
            fn values(&mut self) -> (&mut [f64], &mut [f64]) {
                (&mut self.a, &mut self.la)
            }
        }
    };
}
pub(crate) use inputs;

/// Which of 21 inputs a field is about, by the first of their values and of those that were told last.
pub(crate) fn input_of(field: u16, firsts: [u16; 2]) -> Option<usize> {
    let index = |first: u16| field.checked_sub(first).map(usize::from).filter(|index| *index < INPUTS);
    firsts.into_iter().find_map(index)
}

/// At start: constants go into their inputs.
pub(crate) fn constants(links: &[Link], values: &mut [f64]) {
    for (link, value) in links.iter().zip(values) {
        *value = link.number().unwrap_or(*value);
    }
}

/// Which of some links are to be read: one bit each.
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

/// Reads those inputs that have a bit; whether none failed.
#[inline]
pub(crate) fn read_live<T: Inputs>(db: &mut Db, rec: RecId, body: Body<T>, mut live: u32) -> bool {
    let mut fetched = true;
    while live != 0 {
        fetched &= read_one(db, rec, body, live.trailing_zeros() as usize).is_ok();
        live &= live - 1;
    }
    fetched
}

/// Tells about inputs that changed, or about `all`.
pub(crate) fn post_inputs<T: Inputs>(db: &mut Db, rec: RecId, body: Body<T>, mask: EventMask, all: bool) {
    let (now, last) = db.records[body].values();
    let mut bits = 0u32;
    for (index, (now, last)) in now.iter().zip(last).enumerate() {
        if all || now != last {
            bits |= 1 << index;
            *last = *now;
        }
    }
    while bits != 0 {
        let index = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        db.post_named(rec, INPUT_NAMES[index], mask | EventMask::VALUE | EventMask::LOG);
    }
}
