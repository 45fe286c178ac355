//! Records by number.

use std::ops::{Index, IndexMut};

/// A record, by number. Numbers of removed records are not given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecId(pub u32);

impl RecId {
    /// The records from this one on, to before `end`.
    pub(crate) fn to(self, end: Self) -> impl Iterator<Item = Self> + Clone {
        (self.0..end.0).map(Self)
    }
}

/// Something of each record, found by the record's number.
#[derive(Debug, Default)]
pub(crate) struct PerRecord<T>(Vec<T>);

impl<T> PerRecord<T> {
    /// The number of the next record.
    pub(crate) const fn end(&self) -> RecId {
        RecId(self.0.len() as u32)
    }

    /// How many records there are.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// All numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RecId> + Clone + use<T> {
        RecId(0).to(self.end())
    }

    /// Adds what the next record has; its number.
    pub(crate) fn push(&mut self, item: T) -> RecId {
        let rec = self.end();
        self.0.push(item);
        rec
    }

    /// What the records have, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecId, &T)> {
        self.ids().zip(&self.0)
    }

    /// What the records have, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// What the records from one on have.
    pub(crate) fn since_mut(&mut self, first: RecId) -> &mut [T] {
        &mut self.0[first.0 as usize..]
    }
}

impl<T> FromIterator<T> for PerRecord<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<T> Index<RecId> for PerRecord<T> {
    type Output = T;
    #[inline]
    fn index(&self, rec: RecId) -> &T {
        &self.0[rec.0 as usize]
    }
}

impl<T> IndexMut<RecId> for PerRecord<T> {
    #[inline]
    fn index_mut(&mut self, rec: RecId) -> &mut T {
        &mut self.0[rec.0 as usize]
    }
}
