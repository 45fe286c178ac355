//! The last pages of each lane, with bounded memory, for a flight recorder.

use crate::stored::Page;
use base::{CpuId, MonoNs};
use std::collections::{BTreeMap, VecDeque};

/// The last pages. Each lane has its own limit, so that a busy CPU does not displace the pages of others.
#[derive(Clone, Debug)]
pub struct Window {
    lanes: BTreeMap<u32, Lane>,
    lane_bytes_max: usize,
}

#[derive(Clone, Debug)]
struct Lane {
    cpu: CpuId,
    pages: VecDeque<(MonoNs, Vec<u8>)>,
    bytes: usize,
}

impl Window {
    /// An empty window with a limit of bytes per lane.
    #[must_use]
    pub fn new(lane_bytes_max: usize) -> Self {
        Self { lanes: BTreeMap::new(), lane_bytes_max }
    }

    /// Adds a page of `lane` that starts at `begin`. Drops the lane's oldest pages to keep the limit.
    pub fn push(&mut self, lane: u32, cpu: CpuId, begin: MonoNs, page: &[u8]) {
        let lane = self.lanes.entry(lane).or_insert_with(|| Lane { cpu, pages: VecDeque::new(), bytes: 0 });
        let mut room = Vec::new();
        while lane.bytes + page.len() > self.lane_bytes_max
            && let Some((_, old)) = lane.pages.pop_front()
        {
            lane.bytes -= old.len();
            room = old;
        }
        room.clear();
        room.extend_from_slice(page);
        room.shrink_to_fit();
        lane.bytes += room.len();
        lane.pages.push_back((begin, room));
    }

    /// The pages with events in an interval, in order within each lane.
    pub fn between(&self, from: MonoNs, to: MonoNs) -> impl Iterator<Item = Page<'_>> {
        self.lanes.iter().flat_map(move |(&lane, of)| {
            // A page ends where the next one begins.
            let first = of.pages.partition_point(|(begin, _)| *begin <= from).saturating_sub(1);
            let pages = of.pages.range(first..).take_while(move |(begin, _)| *begin <= to);
            pages.map(move |(_, bytes)| Page { lane, cpu: of.cpu, bytes })
        })
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lanes.values().map(|lane| lane.bytes).sum()
    }

    /// Time from which all lanes are complete. Before it, some lane has dropped pages or had none.
    #[must_use]
    pub fn begin(&self) -> Option<MonoNs> {
        self.lanes.values().filter_map(|lane| lane.pages.front().map(|(begin, _)| *begin)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_keeps_its_last_pages_and_a_busy_lane_does_not_displace_others() {
        let mut window = Window::new(10);
        window.push(1, 7, MonoNs(5), b"calm");
        for begin in 0..100u64 {
            window.push(0, 3, MonoNs(begin * 10), b"busy");
        }
        let held = |from, to| -> Vec<_> {
            window.between(MonoNs(from), MonoNs(to)).map(|page| (page.lane, page.cpu, page.bytes.to_vec())).collect()
        };
        assert_eq!((window.bytes(), window.begin()), (12, Some(MonoNs(980))));
        assert_eq!(held(0, 2000).len(), 3);
        // A page that starts before the interval may extend into it; one that starts after it does not.
        assert_eq!(held(985, 989), [(0, 3, b"busy".to_vec()), (1, 7, b"calm".to_vec())]);
        assert_eq!(held(990, 2000), [(0, 3, b"busy".to_vec()), (1, 7, b"calm".to_vec())]);
    }

    #[test]
    fn a_page_larger_than_the_window_is_kept_alone() {
        let mut window = Window::new(3);
        window.push(0, 0, MonoNs(1), b"one");
        window.push(0, 0, MonoNs(2), b"larger");
        assert_eq!(window.bytes(), 6);
        window.push(0, 0, MonoNs(3), b"two");
        assert_eq!((window.bytes(), window.begin()), (3, Some(MonoNs(3))));
    }
}
