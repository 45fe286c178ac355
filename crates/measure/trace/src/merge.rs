//! One order over the events of all CPUs.

use crate::event::Event;
use base::{CpuId, MonoNs};
use std::collections::{BTreeMap, VecDeque};

/// One thing on its way: an event, or the word that events of this CPU were lost.
pub type Item = (MonoNs, CpuId, Option<Event>);

/// Holds each CPU's events until it is known that none earlier can come from another.
///
/// Two instances may record on one CPU: each way in is a lane of its own.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    lanes: BTreeMap<u32, VecDeque<Item>>,
}

impl Merge {
    /// Takes the next of `lane`; each lane comes in its own order.
    pub fn push(&mut self, lane: u32, item: Item) {
        self.lanes.entry(lane).or_default().push_back(item);
    }

    /// Hands out, in order, what happened no later than `until`: a moment before which every lane was read to its end.
    pub fn drain(&mut self, until: MonoNs, mut each: impl FnMut(Item)) {
        loop {
            let first = self.lanes.values_mut().filter(|lane| lane.front().is_some_and(|item| item.0 <= until));
            let Some(lane) = first.min_by_key(|lane| lane.front().map(|item| item.0)) else { return };
            lane.pop_front().into_iter().for_each(&mut each);
        }
    }

    /// How many are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.lanes.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_none_before_its_turn() {
        let mut merge = Merge::default();
        for (lane, at) in [(0, 1), (0, 5), (0, 9), (1, 2), (1, 6)] {
            merge.push(lane, (MonoNs(at), lane as CpuId, None));
        }
        let mut seen = Vec::new();
        merge.drain(MonoNs(6), |(at, ..)| seen.push(at.0));
        assert_eq!((seen, merge.held()), (vec![1, 2, 5, 6], 1));
    }
}
