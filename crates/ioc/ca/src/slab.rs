//! Things by number: circuits, channels, subscriptions and requests by their ids.

use std::collections::BTreeMap;

/// Values by number; a freed number is given out again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value into a free slot and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(value);
            return index;
        }
        self.slots.push(Some(value));
        (self.slots.len() - 1) as u32
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// How many slots are in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Numbers and values in use, in rising order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index as u32, slot.as_ref()?)))
    }

    /// The numbers in use.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.iter().map(|(index, _)| index).collect()
    }
}

/// Values by number; a number is not given out again before all others were. What names one may come late.
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
    /// Takes a value in and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        while self.values.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.values.insert(number, value);
        number
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.values.remove(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.values.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(&number)
    }

    /// Numbers and values, in rising order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.values.iter().map(|(number, value)| (*number, value))
    }

    /// The numbers in use.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.values.keys().copied().collect()
    }
}
