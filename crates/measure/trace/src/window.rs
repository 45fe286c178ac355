//! The last pages of every lane, within a bound: what a flight recorder keeps.

use crate::stored::Page;
use base::{CpuId, MonoNs};
use std::collections::{BTreeMap, VecDeque};

/// The last pages. Each lane has room of its own, so that a busy CPU takes nothing from a calm one.
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
    /// An empty one, with room for so many bytes of each lane.
    #[must_use]
    pub fn new(lane_bytes_max: usize) -> Self {
        Self { lanes: BTreeMap::new(), lane_bytes_max }
    }

    /// Keeps a page of `lane` that begins at `begin`; the oldest ones go for it where there is no room.
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

    /// The pages that hold events between two moments, each lane's in order.
    pub fn between(&self, from: MonoNs, to: MonoNs) -> impl Iterator<Item = Page<'_>> {
        self.lanes.iter().flat_map(move |(&lane, of)| {
            // A page ends where the next begins.
            let first = of.pages.partition_point(|(begin, _)| *begin <= from).saturating_sub(1);
            let pages = of.pages.range(first..).take_while(move |(begin, _)| *begin <= to);
            pages.map(move |(_, bytes)| Page { lane, cpu: of.cpu, bytes })
        })
    }

    /// Bytes that are held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lanes.values().map(|lane| lane.bytes).sum()
    }

    /// The moment from which on all is held: before it, some lane has let pages go or had none yet.
    #[must_use]
    pub fn begin(&self) -> Option<MonoNs> {
        self.lanes.values().filter_map(|lane| lane.pages.front().map(|(begin, _)| *begin)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_keeps_its_last_pages_and_a_busy_one_takes_nothing_from_a_calm_one() {
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
        // A page that began before the window reaches into it; one that begins behind it does not.
        assert_eq!(held(985, 989), [(0, 3, b"busy".to_vec()), (1, 7, b"calm".to_vec())]);
        assert_eq!(held(990, 2000), [(0, 3, b"busy".to_vec()), (1, 7, b"calm".to_vec())]);
    }

    #[test]
    fn a_page_larger_than_the_room_is_kept_alone() {
        let mut window = Window::new(3);
        window.push(0, 0, MonoNs(1), b"one");
        window.push(0, 0, MonoNs(2), b"larger");
        assert_eq!(window.bytes(), 6);
        window.push(0, 0, MonoNs(3), b"two");
        assert_eq!((window.bytes(), window.begin()), (3, Some(MonoNs(3))));
    }
}
