//! Which datagrams belong to the frame that is being computed, and what becomes of one of which some do not come.
//!
//! The rule: a frame ends when all its rows are there, when a later one begins, or when the caller says that it has waited long enough. With
//! few rows missing it is completed without them, else it is given up. Whatever else comes is dropped, and counted.

/// A frame in the making.
#[derive(Clone, Debug)]
pub struct Assembly {
    frame: Option<u64>,
    /// The newest that has ended.
    ended: Option<u64>,
    seen: Vec<bool>,
    there: usize,
    next: usize,
    missing_max: usize,
    counts: Counts,
}

/// What came, and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames of which each row came.
    pub whole: u64,
    /// Frames that were completed without some rows.
    pub patched: u64,
    /// Frames that were given up: too many rows were missing.
    pub given_up: u64,
    /// Rows that never came, of frames of which some did.
    pub lost: u64,
    /// Rows that came when their frame was over.
    pub late: u64,
    /// Rows that came before an earlier one of their frame.
    pub reordered: u64,
    /// Rows that had come already.
    pub twice: u64,
    /// Rows that there are not.
    pub foreign: u64,
}

/// What a row is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// To be computed now; whether it was the frame's last.
    Row {
        /// Whether all rows are there.
        last: bool,
    },
    /// It begins a later frame: [`end`](Assembly::end) this one first, then take it again.
    Later,
    /// Nothing: it was counted.
    Dropped,
}

/// How a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// Each row is there.
    Yes(u64),
    /// So many are missing, few enough.
    Patched(u64, usize),
    /// Too many are missing.
    GivenUp(u64),
}

impl Assembly {
    /// Frames of so many rows, of which at most so many may be missing. Allocates.
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

    /// Begins anew: no frame has begun, nothing was counted. Allocates nothing.
    pub fn restart(&mut self) {
        (self.frame, self.ended, self.counts) = (None, None, Counts::default());
    }

    /// The frame that has begun.
    #[must_use]
    pub const fn frame(&self) -> Option<u64> {
        self.frame
    }

    /// Rows that have not come of the frame that has begun or ended last.
    #[must_use]
    pub const fn missing(&self) -> usize {
        self.seen.len() - self.there
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The rows that have come of the frame that has begun or ended last.
    #[must_use]
    pub fn seen(&self) -> &[bool] {
        &self.seen
    }

    /// A row has come. Real-time: allocates nothing.
    pub fn take(&mut self, frame: u64, row: usize) -> Taken {
        if row >= self.seen.len() {
            self.counts.foreign += 1;
            return Taken::Dropped;
        }
        match self.frame {
            Some(begun) if frame > begun => return Taken::Later,
            Some(begun) if frame == begun => {}
            // A camera that begins anew counts from the start: what is far behind is no straggler.
            _ if self.ended.is_some_and(|ended| frame <= ended && ended - frame < 1000) || self.frame.is_some() => {
                self.counts.late += 1;
                return Taken::Dropped;
            }
            _ => {
                self.seen.fill(false);
                (self.frame, self.there, self.next) = (Some(frame), 0, 0);
            }
        }
        if self.seen[row] {
            self.counts.twice += 1;
            return Taken::Dropped;
        }
        self.counts.reordered += u64::from(row < self.next);
        self.next = self.next.max(row + 1);
        self.seen[row] = true;
        self.there += 1;
        Taken::Row { last: self.there == self.seen.len() }
    }

    /// Ends the frame that has begun, if one has. Real-time: allocates nothing.
    pub fn end(&mut self) -> Option<Whole> {
        let frame = self.frame.take()?;
        self.ended = Some(frame);
        let missing = self.missing();
        self.counts.lost += missing as u64;
        Some(if missing == 0 {
            self.counts.whole += 1;
            Whole::Yes(frame)
        } else if missing <= self.missing_max {
            self.counts.patched += 1;
            Whole::Patched(frame, missing)
        } else {
            self.counts.given_up += 1;
            Whole::GivenUp(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_in_any_order_make_a_frame_and_a_later_frame_ends_one_that_lacks_some() {
        let mut frames = Assembly::new(3, 1);
        let more = Taken::Row { last: false };
        assert_eq!([frames.take(7, 2), frames.take(7, 0), frames.take(7, 0)], [more, more, Taken::Dropped]);
        assert_eq!(frames.take(7, 1), Taken::Row { last: true });
        assert_eq!((frames.end(), frames.end()), (Some(Whole::Yes(7)), None));
        assert_eq!([frames.take(7, 1), frames.take(8, 3)], [Taken::Dropped, Taken::Dropped]);
        assert_eq!([frames.take(8, 0), frames.take(8, 1), frames.take(9, 0)], [more, more, Taken::Later]);
        assert_eq!(frames.end(), Some(Whole::Patched(8, 1)));
        assert_eq!(frames.seen(), [true, true, false]);
        assert_eq!([frames.take(9, 0), frames.take(8, 2)], [more, Taken::Dropped]);
        assert_eq!(frames.end(), Some(Whole::GivenUp(9)));
        let expected =
            Counts { whole: 1, patched: 1, given_up: 1, lost: 3, late: 2, reordered: 2, twice: 1, foreign: 1 };
        assert_eq!(frames.counts(), expected);
    }

    #[test]
    fn a_camera_that_begins_anew_is_followed() {
        let mut frames = Assembly::new(1, 0);
        assert_eq!(frames.take(1_000_000, 0), Taken::Row { last: true });
        frames.end();
        assert_eq!([frames.take(999_990, 0), frames.take(3, 0)], [Taken::Dropped, Taken::Row { last: true }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_row_is_computed_lost_or_counted(rows in prop::collection::vec((0..6u64, 0..5usize), 0..80)) {
            let (mut frames, mut computed, mut later) = (Assembly::new(4, 1), 0, 0);
            for (frame, row) in &rows {
                let mut taken = frames.take(*frame, *row);
                if taken == Taken::Later {
                    prop_assert!(frames.end().is_some());
                    later += 1;
                    taken = frames.take(*frame, *row);
                }
                if let Taken::Row { last } = taken {
                    computed += 1;
                    if last {
                        prop_assert_eq!(frames.end(), Some(Whole::Yes(*frame)));
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
