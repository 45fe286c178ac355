//! Storage of circuits, channels, subscriptions and requests by number.

use std::collections::BTreeMap;

/// The lower bits of a number are the slot, the upper bits count its uses.
const SLOT_BITS: u32 = 20;
/// Numbers have this many bits, so that tokens with a circuit number in their upper half leave room for other tokens.
pub(crate) const NUMBER_BITS: u32 = 30;
/// Maximum number of values in a slab.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// Values by number. The caller must limit them to [`SLOTS_MAX`]. A slot is reused under a new number. An outdated number
/// therefore finds no value, until the slot has been used 1,024 times.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Number of the value, or of the next value if the slot is free.
    number: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Stores a value in a free slot and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return slot.number;
        }
        debug_assert!(self.slots.len() < SLOTS_MAX, "bounded by the caller");
        let number = self.slots.len() as u32;
        self.slots.push(Slot { number, value: Some(value) });
        number
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(index_of(number)).filter(|slot| slot.number == number)?;
        let value = slot.value.take()?;
        slot.number = (number + (1 << SLOT_BITS)) % (1 << NUMBER_BITS);
        self.free.push(index_of(number) as u32);
        Some(value)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(index_of(number)).filter(|slot| slot.number == number)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(index_of(number)).filter(|slot| slot.number == number)?.value.as_mut()
    }

    /// The number of used slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The used numbers and their values, in the order of the slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.number, slot.value.as_ref()?)))
    }

    /// The used numbers.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.iter().map(|(index, _)| index).collect()
    }
}

const fn index_of(number: u32) -> usize {
    number as usize % SLOTS_MAX
}

/// Values by number. A number is reused only after all other numbers, because messages with an old number may arrive late.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    values: BTreeMap<u32, T>,
    next: u32,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), next: 0 }
    }
}

impl<T> Numbered<T> {
    /// Stores a value and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        while self.values.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.values.insert(number, value);
        number
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.values.remove(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.values.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(&number)
    }

    /// Numbers and values, in increasing order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.values.iter().map(|(number, value)| (*number, value))
    }

    /// The used numbers.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.values.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_does_not_find_the_next_value_in_its_slot() {
        let mut slab = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(slab.slots.len(), 1, "the slot is reused");
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.remove(first).is_none());
        assert_eq!((slab.get(second), slab.len(), slab.keys()), (Some(&"second"), 1, vec![second]));
    }

    #[test]
    fn numbers_keep_to_their_bits_when_a_slot_is_reused_many_times() {
        let mut slab = Slab::default();
        for _ in 0..5000 {
            let number = slab.insert(());
            assert!(number < 1 << NUMBER_BITS, "{number}");
            assert_eq!(slab.remove(number), Some(()));
        }
    }
}
