//! Merges the events of all CPUs in order of time.

use crate::event::Event;
use base::{CpuId, MonoNs};
use std::collections::{BTreeMap, VecDeque};

/// An event, or `None` if events of this CPU were lost.
pub type Item = (MonoNs, CpuId, Option<Event>);

/// Holds each lane's events until no earlier one can arrive on another lane.
///
/// Two tracing instances may record on one CPU; each is a separate lane.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    lanes: BTreeMap<u32, VecDeque<Item>>,
}

impl Merge {
    /// Adds the next item of `lane`. The items of a lane must be in order.
    pub fn push(&mut self, lane: u32, item: Item) {
        self.lanes.entry(lane).or_default().push_back(item);
    }

    /// Passes all items up to `until` to `each`, in order. Every lane must have been read up to that time.
    pub fn drain(&mut self, until: MonoNs, mut each: impl FnMut(Item)) {
        loop {
            let first = self.lanes.values_mut().filter(|lane| lane.front().is_some_and(|item| item.0 <= until));
            let Some(lane) = first.min_by_key(|lane| lane.front().map(|item| item.0)) else { return };
            lane.pop_front().into_iter().for_each(&mut each);
        }
    }

    /// Number of items held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lanes.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_several_lanes_are_merged_in_order_of_time() {
        let mut merge = Merge::default();
        for (lane, at) in [(0, 1), (0, 5), (0, 9), (1, 2), (1, 6)] {
            merge.push(lane, (MonoNs(at), lane as CpuId, None));
        }
        let mut seen = Vec::new();
        merge.drain(MonoNs(6), |(at, ..)| seen.push(at.0));
        assert_eq!((seen, merge.held()), (vec![1, 2, 5, 6], 1));
    }
}
