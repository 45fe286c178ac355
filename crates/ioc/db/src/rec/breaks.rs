//! Breakpoint tables: piecewise linear conversion between raw values and engineering units.

use crate::model::schema::{BreakTable, Schema};

/// The table for a choice of menuConvert.
fn table(schema: &Schema, linr: u16) -> Option<&BreakTable> {
    let menu = schema.menu_index("menuConvert")?;
    let name = schema.menus[menu].choices.get(usize::from(linr))?;
    schema.tables.iter().find(|table| table.name == *name)
}

/// Searches the interval that contains `value`, starting from the previous one. Returns whether the value is inside the
/// table.
fn walk(value: f64, count: usize, start: i16, key: impl Fn(usize) -> f64) -> (usize, i16, bool) {
    let last = count as i16 - 2;
    let mut at = start.clamp(0, last);
    let mut interval = at as usize;
    let mut inside = true;
    let rising = key(interval + 1) > key(interval);
    let beyond = |edge: f64| if rising { value > edge } else { value <= edge };
    let before = |edge: f64| if rising { value < edge } else { value > edge };
    while beyond(key(interval + 1)) {
        at += 1;
        if at > last {
            inside = false;
            break;
        }
        interval += 1;
    }
    while before(key(interval)) {
        if at <= 0 {
            inside = false;
            break;
        }
        at -= 1;
        interval -= 1;
    }
    (interval, at, inside)
}

/// Converts raw to engineering units. Beyond the table, the last segment is extrapolated and the result is false.
pub(crate) fn raw_to_eng(schema: &Schema, value: &mut f64, linr: u16, init: bool, lbrk: &mut i16) -> bool {
    let Some(table) = table(schema, linr) else { return false };
    if init {
        *lbrk = 0;
    }
    let points = &table.points;
    let (interval, at, inside) = walk(*value, points.len(), *lbrk, |index| points[index].0);
    *lbrk = at;
    let (low, high) = (points[interval], points[interval + 1]);
    let slope = (high.1 - low.1) / (high.0 - low.0);
    *value = low.1 + (*value - low.0) * slope;
    inside
}

/// Converts engineering units to raw, like [`raw_to_eng`].
pub(crate) fn eng_to_raw(schema: &Schema, value: &mut f64, linr: u16, init: bool, lbrk: &mut i16) -> bool {
    let Some(table) = table(schema, linr) else { return false };
    if init {
        *lbrk = 0;
    }
    let points = &table.points;
    let (interval, at, inside) = walk(*value, points.len(), *lbrk, |index| points[index].1);
    *lbrk = at;
    let (low, high) = (points[interval], points[interval + 1]);
    let slope = (high.1 - low.1) / (high.0 - low.0);
    *value = low.0 + (*value - low.1) / slope;
    inside
}
