//! Record numbers.

use std::ops::{Index, IndexMut};

/// Number of a record. Numbers of removed records are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecId(pub u32);

impl RecId {
    /// Record numbers from this one up to, but not including, `end`.
    pub(crate) fn to(self, end: Self) -> impl Iterator<Item = Self> + Clone {
        (self.0..end.0).map(Self)
    }
}

/// One item per record, indexed by record number.
#[derive(Debug, Default)]
pub(crate) struct PerRecord<T>(Vec<T>);

impl<T> PerRecord<T> {
    /// The number of the next record.
    pub(crate) const fn end(&self) -> RecId {
        RecId(self.0.len() as u32)
    }

    /// Number of records.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// All record numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RecId> + Clone + use<T> {
        RecId(0).to(self.end())
    }

    /// Appends the item of the next record and returns its number.
    pub(crate) fn push(&mut self, item: T) -> RecId {
        let rec = self.end();
        self.0.push(item);
        rec
    }

    /// All items in the order of record numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecId, &T)> {
        self.ids().zip(&self.0)
    }

    /// All items, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Items from record `first` on, mutable.
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
