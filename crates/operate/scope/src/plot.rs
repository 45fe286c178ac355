//! A trace drawn with characters, for terminals.

use crate::{Capture, envelope};

/// Draws the rows `from..to` of a channel on `columns` by `rows` characters: its envelope, the trigger's column dotted, the
/// largest and the smallest value at the side. Empty if there is no such channel, row or number.
#[must_use]
pub fn plot(
    capture: &Capture,
    channel: usize,
    (from, to): (usize, usize),
    (columns, rows): (usize, usize),
) -> Vec<String> {
    let spans = envelope(capture, channel, from, to, columns);
    let low = spans.iter().filter_map(|span| span.min).reduce(f64::min);
    let high = spans.iter().filter_map(|span| span.max).reduce(f64::max);
    let (Some(low), Some(high)) = (low, high) else { return Vec::new() };
    let rows = rows.max(2);
    let height = if high > low { high - low } else { 1.0 };
    let place = |value: f64| (((high - value) / height * (rows - 1) as f64).round() as usize).min(rows - 1);
    let trigger =
        capture.trigger().and_then(|row| spans.iter().rposition(|span| span.first <= row).filter(|_| row < to));
    let letter = |row: usize, (index, span): (usize, &crate::Span)| match (span.max, span.min) {
        (Some(max), Some(min)) if (place(max)..=place(min)).contains(&row) => {
            if place(max) == place(min) {
                '·'
            } else {
                '│'
            }
        }
        _ if trigger == Some(index) => '┊',
        _ => ' ',
    };
    let width = [low, high].iter().map(|value| short(*value).len()).max().unwrap_or(0);
    let line = |row: usize| {
        let side = match row {
            0 => short(high),
            _ if row == rows - 1 => short(low),
            _ => String::new(),
        };
        let letters: String = spans.iter().enumerate().map(|span| letter(row, span)).collect();
        format!("{side:>width$} ┤{}", letters.trim_end())
    };
    (0..rows).map(line).collect()
}

/// A value with at most six digits.
fn short(value: f64) -> String {
    let large = value != 0.0 && !(1e-3..1e6).contains(&value.abs());
    if large { format!("{value:.3e}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TRIGGER_MARK;

    #[test]
    fn a_trace_is_drawn_with_its_range_and_its_trigger() {
        let mut capture = Capture::of_values("v", "V", 1e-3, [0.0, 0.0, 0.0, 2.0, 1.0, 0.0].into_iter());
        capture.marks[2] = TRIGGER_MARK;
        assert_eq!(plot(&capture, 0, (0, 6), (6, 3)), ["2.0000 ┤  ┊·", "       ┤  ┊ ·", "0.0000 ┤···  ·"]);
        assert_eq!(plot(&capture, 0, (2, 6), (2, 2)), ["2.0000 ┤│", "0.0000 ┤│·"]);
        assert!(plot(&capture, 1, (0, 6), (6, 3)).is_empty() && plot(&capture, 0, (6, 6), (6, 3)).is_empty());
    }
}
