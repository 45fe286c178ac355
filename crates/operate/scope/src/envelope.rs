//! Minimum and maximum of many rows in few columns, and counts over many captures.

use crate::Capture;

/// Summary of the rows of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The first of its rows.
    pub first: usize,
    /// The smallest value; `None` if none is a number.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
}

/// Summarises the rows `from..to` of a channel in up to `columns` columns. Each column has at least one row, so the largest zoom
/// shows single samples.
#[must_use]
pub fn envelope(capture: &Capture, channel: usize, from: usize, to: usize, columns: usize) -> Vec<Span> {
    let Some(channel) = capture.channels.get(channel) else { return Vec::new() };
    let to = to.min(channel.values.len());
    let rows = to.saturating_sub(from);
    let columns = columns.min(rows);
    let edge = |column: usize| from + (rows as u128 * column as u128 / columns as u128) as usize;
    let span = |column: usize| {
        let numbers = channel.values[edge(column)..edge(column + 1)].iter().copied().filter(|value| value.is_finite());
        let fold = |pick: fn(f64, f64) -> f64| numbers.clone().reduce(pick);
        Span { first: edge(column), min: fold(f64::min), max: fold(f64::max) }
    };
    (0..columns).map(span).collect()
}

/// Number of passes of a trace through each cell of a picture, over many captures.
#[derive(Clone, Debug, PartialEq)]
pub struct Persistence {
    columns: usize,
    rows: usize,
    range: (f64, f64),
    /// Row by row from the top.
    counts: Vec<u32>,
}

impl Persistence {
    /// An empty picture for values from `range.0` to `range.1`. It has at least one column and row.
    #[must_use]
    pub fn new(columns: usize, rows: usize, range: (f64, f64)) -> Self {
        let (columns, rows) = (columns.clamp(1, 4096), rows.clamp(1, 4096));
        Self { columns, rows, range, counts: vec![0; columns * rows] }
    }

    /// Adds a channel's trace: in each column, all rows of the picture from the smallest to the largest value. Values outside the
    /// range are not counted.
    pub fn add(&mut self, capture: &Capture, channel: usize) {
        let spans = envelope(capture, channel, 0, capture.len(), self.columns);
        let (low, high) = self.range;
        let place = |value: f64| (high - value) / (high - low) * self.rows as f64;
        for (index, span) in spans.iter().enumerate() {
            let column = index * self.columns / spans.len().max(1);
            let (Some(min), Some(max)) = (span.min, span.max) else { continue };
            let (top, bottom) = (place(max), place(min));
            if !(bottom >= 0.0 && top < self.rows as f64) {
                continue;
            }
            for row in top.max(0.0) as usize..=(bottom as usize).min(self.rows - 1) {
                let count = &mut self.counts[row * self.columns + column];
                *count = count.saturating_add(1);
            }
        }
    }

    /// The counts of each row, from the top.
    pub fn counts(&self) -> impl Iterator<Item = &[u32]> {
        self.counts.chunks(self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ramp(count: u32) -> Capture {
        Capture::of_values("v", "", 1e-3, (0..count).map(f64::from))
    }

    #[test]
    fn an_envelope_covers_a_whole_capture_or_single_rows() {
        let spans = envelope(&ramp(100), 0, 0, 100, 4);
        assert_eq!((spans[1].first, spans[1].min, spans[3].max), (25, Some(25.0), Some(99.0)));
        let spans = envelope(&ramp(100), 0, 10, 13, 4);
        assert_eq!(spans.iter().map(|span| span.min).collect::<Vec<_>>(), [Some(10.0), Some(11.0), Some(12.0)]);
        assert!(envelope(&ramp(4), 0, 3, 2, 4).is_empty() && envelope(&ramp(4), 1, 0, 4, 4).is_empty());
        let nothing = Capture::of_values("v", "", 1e-3, [f64::NAN].into_iter());
        assert_eq!(envelope(&nothing, 0, 0, 1, 1)[0].min, None);
    }

    #[test]
    fn overlapping_traces_are_counted_in_each_cell() {
        let mut picture = Persistence::new(2, 2, (0.0, 4.0));
        picture.add(&ramp(4), 0);
        picture.add(&ramp(4), 0);
        picture.add(&Capture::of_values("v", "", 1e-3, [9.0, -9.0].into_iter()), 0);
        assert_eq!(picture.counts().map(<[u32]>::to_vec).collect::<Vec<_>>(), [[0, 2], [2, 2]]);
    }

    proptest! {
        #[test]
        fn an_envelope_holds_every_row_once(rows in 1u32..200, from in 0usize..100, columns in 1usize..50) {
            let capture = ramp(rows);
            let spans = envelope(&capture, 0, from, rows as usize, columns);
            let expected = (rows as usize).saturating_sub(from);
            prop_assert_eq!(spans.len(), columns.min(expected));
            // On a ramp the spans follow each other without a gap.
            for pair in spans.windows(2) {
                prop_assert_eq!(pair[0].max.unwrap() + 1.0, pair[1].min.unwrap());
            }
            if let (Some(first), Some(last)) = (spans.first(), spans.last()) {
                prop_assert_eq!((first.min, last.max), (Some(from as f64), Some(f64::from(rows - 1))));
            }
        }
    }
}
