//! A frame as text: the time line of `tahti frames check`.

use crate::admit::Plan;
use crate::spec::Spec;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use base::DurNs;

/// Width of a minor's bar, in columns.
const BAR: usize = 40;
/// Maximum number of lines for minors. Consecutive equal minors are drawn once.
const DRAWN_MAX: usize = 64;

/// Draws the frame's minors, one line each, with a bar to scale. The budgets are in the order in which they are planned.
#[must_use]
pub fn draw(spec: &Spec, plan: &Plan) -> Vec<String> {
    let names: Vec<Option<&str>> = match spec.modes.as_slice() {
        [] => vec![None],
        modes => modes.iter().map(|mode| Some(mode.name.as_str())).collect(),
    };
    let mut lines = vec![format!(
        "frame {}: {} minors, major frame {}, time base {}",
        spec.name,
        spec.minors.len(),
        spec.major(),
        spec.base
    )];
    for (mode, name) in names.into_iter().enumerate() {
        lines.extend(name.map(|name| format!("mode {name}")));
        let mut carried = vec![false; plan.activities()];
        let drawn: Vec<(String, String)> =
            (0..plan.minors()).map(|minor| minor_line(spec, plan, mode, minor, &mut carried)).collect();
        let mut minor = 0;
        let mut count = 0;
        while minor < drawn.len() && count < DRAWN_MAX {
            let same = drawn[minor..].iter().take_while(|line| **line == drawn[minor]).count();
            let number = if same > 1 { format!("{minor}-{}", minor + same - 1) } else { minor.to_string() };
            lines.push(format!("{number:>9} |{}| {}", drawn[minor].0, drawn[minor].1));
            minor += same;
            count += 1;
        }
        if minor < drawn.len() {
            lines.push(format!("          … {} minors more", drawn.len() - minor));
        }
    }
    lines
}

/// The bar and the text of one minor. `carried` records which activities continue a block that began in an earlier minor.
fn minor_line(spec: &Spec, plan: &Plan, mode: usize, minor: usize, carried: &mut [bool]) -> (String, String) {
    let length = plan.length(minor);
    let mut bar = String::new();
    let mut words = Vec::new();
    let (mut sum, mut must) = (DurNs::ZERO, DurNs::ZERO);
    for entry in plan.queue(minor).iter().filter(|entry| plan.runs_in(mode, entry.activity)) {
        let activity = &spec.activities[usize::from(entry.activity)];
        let mark = activity.name.chars().next().unwrap_or('?');
        let budget = activity.budget.unwrap_or(DurNs::ZERO);
        let discipline = match entry.discipline.to_string() {
            plain if plain == "real-time" => String::new(),
            other => format!(" ({other})"),
        };
        if entry.discipline.background {
            words.push(format!("{}{discipline}", activity.name));
            continue;
        }
        sum = DurNs(sum.0.saturating_add(budget.0));
        let goes_on = core::mem::replace(&mut carried[usize::from(entry.activity)], entry.discipline.continuable);
        if entry.discipline.must_yield(goes_on) {
            must = DurNs(must.0.saturating_add(budget.0));
        }
        // A budget has at least one column, and never extends beyond the bar.
        let end = ((sum.0 as i128 * BAR as i128) / i128::from(length.0)).clamp(0, BAR as i128) as usize;
        let columns = bar.chars().count();
        bar.extend(core::iter::repeat_n(mark, end.max(columns + 1).min(BAR) - columns.min(BAR)));
        words.push(format!("{} {budget}{discipline}", activity.name));
    }
    let columns = bar.chars().count();
    bar.extend(core::iter::repeat_n('.', BAR - columns.min(BAR)));
    let percent = i128::from(must.0) * 100 / i128::from(length.0.max(1));
    (bar, format!("{length}, {percent}% must be done: {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Discipline};
    use alloc::vec;

    #[test]
    fn a_timeline_shows_budgets_to_scale_and_equal_minors_once() {
        let us = DurNs::from_us;
        let mut log = Activity::new("log", None, 0..3);
        log.queue.iter_mut().for_each(|(_, discipline)| *discipline = Discipline::BACKGROUND);
        let activities =
            vec![Activity::new("control", Some(us(250)), 0..3), Activity::new("filter", Some(us(100)), 0..1), log];
        let spec = Spec::new("fast", vec![us(1000); 3], activities);
        let lines = draw(&spec, &Plan::admit(&spec).unwrap());
        let expected = [
            "frame fast: 3 minors, major frame 3ms, time base timer",
            "        0 |ccccccccccffff..........................| 1ms, 35% must be done: control 250us, filter 100us, log (background)",
            "      1-2 |cccccccccc..............................| 1ms, 25% must be done: control 250us, log (background)",
        ];
        assert_eq!(lines, expected);
    }
}
