//! Assembly of frames from datagrams, and handling of frames with missing rows.
//!
//! A frame ends when all its rows have arrived, when a later frame begins, or when the caller stops waiting. With few rows missing the frame is
//! completed without them, otherwise it is skipped. All other datagrams are dropped and counted.

/// State of the current frame.
#[derive(Clone, Debug)]
pub struct Assembly {
    frame: Option<u64>,
    /// Newest frame that has ended.
    ended: Option<u64>,
    seen: Vec<bool>,
    there: usize,
    next: usize,
    missing_max: usize,
    counts: Counts,
}

/// Counters of frames and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Complete frames.
    pub whole: u64,
    /// Frames completed without some rows.
    pub patched: u64,
    /// Frames skipped because too many rows were missing.
    pub given_up: u64,
    /// Rows that never arrived, of frames with at least one row.
    pub lost: u64,
    /// Rows that arrived after the end of their frame.
    pub late: u64,
    /// Rows that arrived before an earlier row of their frame.
    pub reordered: u64,
    /// Duplicate rows.
    pub twice: u64,
    /// Rows with an index out of range.
    pub foreign: u64,
}

/// The action for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowAction {
    /// Compute it now.
    Row {
        /// All rows of the frame have arrived.
        last: bool,
    },
    /// It belongs to a later frame: [`end`](Assembly::end) the current one, then take the row again.
    Later,
    /// Ignore it. It was counted.
    Dropped,
}

/// Result of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEnd {
    /// All rows arrived.
    Complete(u64),
    /// Some rows are missing, at most the permitted number: frame, missing rows.
    Patched(u64, usize),
    /// Too many rows are missing.
    Skipped(u64),
}

impl Assembly {
    /// Frames of `rows` rows, of which at most `missing_max` may be missing. Allocates.
    #[must_use]
    pub fn new(rows: usize, missing_max: usize) -> Self {
        let missing_max = missing_max.min(rows.saturating_sub(1));
        Self {
            frame: None,
            ended: None,
            seen: vec![false; rows],
            there: 0,
            next: 0,
            missing_max,
            counts: Counts::default(),
        }
    }

    /// Resets frame and counters. Does not allocate.
    pub fn restart(&mut self) {
        (self.frame, self.ended, self.counts) = (None, None, Counts::default());
    }

    /// Number of the current frame.
    #[must_use]
    pub const fn frame(&self) -> Option<u64> {
        self.frame
    }

    /// Missing rows of the current frame, or of the last one if none is current.
    #[must_use]
    pub const fn missing(&self) -> usize {
        self.seen.len() - self.there
    }

    /// Counters of frames and rows.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Rows received of the current frame, or of the last one if none is current.
    #[must_use]
    pub fn seen(&self) -> &[bool] {
        &self.seen
    }

    /// Records a received row. Real-time: does not allocate.
    pub fn take(&mut self, frame: u64, row: usize) -> RowAction {
        if row >= self.seen.len() {
            self.counts.foreign += 1;
            return RowAction::Dropped;
        }
        match self.frame {
            Some(begun) if frame > begun => return RowAction::Later,
            Some(begun) if frame == begun => {}
            // A restarted camera counts from zero. A frame number 1000 or more below the last one is therefore not late.
            _ if self.ended.is_some_and(|ended| frame <= ended && ended - frame < 1000) || self.frame.is_some() => {
                self.counts.late += 1;
                return RowAction::Dropped;
            }
            _ => {
                self.seen.fill(false);
                (self.frame, self.there, self.next) = (Some(frame), 0, 0);
            }
        }
        if self.seen[row] {
            self.counts.twice += 1;
            return RowAction::Dropped;
        }
        self.counts.reordered += u64::from(row < self.next);
        self.next = self.next.max(row + 1);
        self.seen[row] = true;
        self.there += 1;
        RowAction::Row { last: self.there == self.seen.len() }
    }

    /// Ends the current frame, if any. Real-time: does not allocate.
    pub fn end(&mut self) -> Option<FrameEnd> {
        let frame = self.frame.take()?;
        self.ended = Some(frame);
        let missing = self.missing();
        self.counts.lost += missing as u64;
        Some(if missing == 0 {
            self.counts.whole += 1;
            FrameEnd::Complete(frame)
        } else if missing <= self.missing_max {
            self.counts.patched += 1;
            FrameEnd::Patched(frame, missing)
        } else {
            self.counts.given_up += 1;
            FrameEnd::Skipped(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_in_any_order_make_a_frame_and_a_later_frame_ends_an_incomplete_one() {
        let mut frames = Assembly::new(3, 1);
        let more = RowAction::Row { last: false };
        assert_eq!([frames.take(7, 2), frames.take(7, 0), frames.take(7, 0)], [more, more, RowAction::Dropped]);
        assert_eq!(frames.take(7, 1), RowAction::Row { last: true });
        assert_eq!((frames.end(), frames.end()), (Some(FrameEnd::Complete(7)), None));
        assert_eq!([frames.take(7, 1), frames.take(8, 3)], [RowAction::Dropped, RowAction::Dropped]);
        assert_eq!([frames.take(8, 0), frames.take(8, 1), frames.take(9, 0)], [more, more, RowAction::Later]);
        assert_eq!(frames.end(), Some(FrameEnd::Patched(8, 1)));
        assert_eq!(frames.seen(), [true, true, false]);
        assert_eq!([frames.take(9, 0), frames.take(8, 2)], [more, RowAction::Dropped]);
        assert_eq!(frames.end(), Some(FrameEnd::Skipped(9)));
        let expected =
            Counts { whole: 1, patched: 1, given_up: 1, lost: 3, late: 2, reordered: 2, twice: 1, foreign: 1 };
        assert_eq!(frames.counts(), expected);
    }

    #[test]
    fn a_camera_that_restarts_its_frame_numbers_is_followed() {
        let mut frames = Assembly::new(1, 0);
        assert_eq!(frames.take(1_000_000, 0), RowAction::Row { last: true });
        frames.end();
        assert_eq!([frames.take(999_990, 0), frames.take(3, 0)], [RowAction::Dropped, RowAction::Row { last: true }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_row_is_computed_lost_or_counted(rows in prop::collection::vec((0..6u64, 0..5usize), 0..80)) {
            let (mut frames, mut computed, mut later) = (Assembly::new(4, 1), 0, 0);
            for (frame, row) in &rows {
                let mut taken = frames.take(*frame, *row);
                if taken == RowAction::Later {
                    prop_assert!(frames.end().is_some());
                    later += 1;
                    taken = frames.take(*frame, *row);
                }
                if let RowAction::Row { last } = taken {
                    computed += 1;
                    if last {
                        prop_assert_eq!(frames.end(), Some(FrameEnd::Complete(*frame)));
                        later += 1;
                    }
                }
            }
            later += u64::from(frames.end().is_some());
            let counts = frames.counts();
            prop_assert_eq!(computed + counts.late + counts.twice + counts.foreign, rows.len() as u64);
            prop_assert_eq!(computed + counts.lost, 4 * later);
            prop_assert_eq!(counts.whole + counts.patched + counts.given_up, later);
        }
    }
}
