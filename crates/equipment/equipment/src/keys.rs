//! The keys of table files, with their documentation.

use crate::device::{DEVICE, DRIVERS, Driver};
use table::{Table, key, rows};

/// `[manager]`
pub(crate) const MANAGER: Table = Table {
    header: "[manager]",
    doc: "Name, files and threads of the manager.",
    keys: &[
        key("name", r#""magnets""#, "letters, digits, `-` and `_`, at most 32", "", "Name of the manager."),
        key(
            "devices",
            r#"["devices.csv"]"#,
            "list of CSV files",
            "none",
            "Files with more devices: a column for each key of `[[device]]`. Relative to this file's folder.",
        ),
        key(
            "map",
            r#"["map.csv"]"#,
            "list of CSV files",
            "none",
            "Files with more rows: a column for each key of `[[map]]`.",
        ),
        key(
            "class",
            r#""fifo:60""#,
            "as `class` in a plant file",
            "`other`",
            "Scheduling class of the lane, which runs rt-safe rows. With a real-time class, the memory is locked.",
        ),
        key("cpu", "3", "number", "the process's CPUs", "The lane's CPU."),
        key(
            "frame",
            r#"{ name = "fast", activity = "magnets" }"#,
            "table of `name` and `activity`",
            "none: the lane has its own timers",
            "Run the lane as this activity of a [frame](../explanation/frames.md), which sets class and CPU. Loops and polls run at the start \
             of each minor frame, requests after them. `PLANT/NAME` for a frame of another plant.",
        ),
    ],
};

/// `[[map]]`
pub(crate) const MAP: Table = Table {
    header: "[[map]]",
    doc: "A row: the requests that it accepts (interpret), the point of a device (execute), and the conversion between raw and \
          engineering value (convert). The first row of the object that accepts the complement applies. Captures such as `{name}` \
          match that part of the device's name: the row applies to each device that matches.",
    keys: &[
        key(
            "verb",
            r#"["put", "set"]"#,
            "`get`, `put`, `set`, `call`, or a list of them",
            "",
            "`put` is answered when the equipment has accepted the value, `set` when the value is reached.",
        ),
        key("object", r#""sr_mag_ps_{name}""#, "pattern", "", "The object."),
        key(
            "complement",
            r#""current_adc""#,
            "pattern; `{value}` is the value",
            "`{value}` for `put` and `set`",
            "The part after the object: `current_adc`, `{value}`, `kp={value}`, `reset`.",
        ),
        key("device", r#""ps_{name}""#, "pattern", "", "The device."),
        key("point", r#""current""#, "pattern", "", "The device's point; see its driver."),
        key(
            "for",
            r#"{ axis = ["x", "y"] }"#,
            "table of lists of texts",
            "none",
            "Captures that are not in the device's name: the row applies to each combination.",
        ),
        key(
            "convert",
            "[{ scale = 0.01 }, { offset = -5 }]",
            "list of steps, see *convert*",
            "none: raw is engineering",
            "Steps from the raw value to the engineering value, in this order; in reverse for a write.",
        ),
        key(
            "unit",
            r#""A""#,
            "text",
            "none",
            "Unit of the engineering value. Values in a compatible unit are converted.",
        ),
        key(
            "limits",
            "[-600, 600]",
            "lowest and highest",
            "none",
            "Minimum and maximum. Other numbers are refused before the access.",
        ),
        key("precision", "3", "0 to 15", "as many digits as needed", "Digits after the point of an answer."),
        key(
            "write",
            "1",
            "number or text",
            "none",
            "Value to write if the complement has no `{value}` (`call`, `put/…/reset`).",
        ),
        key(
            "reached",
            r#"{ complement = "current_adc", within = 0.05, timeout = "10s" }"#,
            "table, see *reached*",
            "`set` is refused",
            "Condition for the answer of `set`.",
        ),
        key(
            "lane",
            r#""real-time""#,
            "`real-time` or `worker`",
            "as the device's driver allows",
            "Required lane, for the check. A device that may block never runs on the real-time lane.",
        ),
        key("about", r#""bend magnets""#, "text", "none", "Text that `describe` adds."),
    ],
};

/// `convert = [{…}]`
pub(crate) const CONVERT: Table = Table {
    header: "convert",
    doc: "A step: exactly one of these keys (`over` belongs to `poly`).",
    keys: &[
        key("scale", "0.01", "number, not 0", "one of them", "value = scale × raw"),
        key("offset", "-5", "number", "one of them", "value = raw + offset"),
        key(
            "poly",
            "[0, 1.2, 0.003]",
            "list of numbers",
            "one of them",
            "value = c0 + c1 raw + c2 raw² …, with `over`.",
        ),
        key(
            "over",
            "[0, 100]",
            "lowest and highest raw value",
            "must be given with `poly`",
            "Range of the polynomial. For a write it must be monotonic there.",
        ),
        key(
            "table",
            "[[0, 0], [10, 4.9], [20, 9.6]]",
            "list of points [raw, value]",
            "one of them",
            "Linear interpolation between points; a value outside is an error.",
        ),
        key(
            "bits",
            r#""4-7""#,
            "bit or range of bits",
            "one of them",
            "These bits of an integer; a write keeps the other bits. Only as the first step.",
        ),
        key(
            "enum",
            "{ off = 0, on = 1 }",
            "table of whole numbers",
            "one of them",
            "Labels for numbers. Only as the last step.",
        ),
        key(
            "text",
            r#""POS {value} mm""#,
            "text with `{value}`",
            "one of them",
            "The raw value is a text of this form. Only as the first step.",
        ),
    ],
};

/// `reached = {…}`
pub(crate) const REACHED: Table = Table {
    header: "reached",
    doc: "Condition under which a `set` has reached its value.",
    keys: &[
        key("complement", r#""current_adc""#, "complement of a `get` row of the same object", "", "Value to compare."),
        key("within", "0.05", "number", "", "Maximum difference, in the row's unit."),
        key(
            "timeout",
            r#""10s""#,
            "time, 1ms to 1h",
            "`10s`",
            "Maximum time; then the answer is TIMEOUT with the present value.",
        ),
    ],
};

/// `[[poll]]`
pub(crate) const POLL: Table = Table {
    header: "[[poll]]",
    doc: "Reads a list of objects at a fixed cycle into shared memory. Clients read the values without a message (`tahti em values \
          NAME`). A value whose read failed keeps its time and becomes stale.",
    keys: &[
        key("name", r#""sr-values""#, "letters, digits, `-` and `_`, at most 32", "", "Name of the table."),
        key("period", r#""100ms""#, "time, 1ms to 1h", "", "Period of the cycle."),
        key(
            "objects",
            r#"["sr_mag_*/current_adc", "sr_bpm_*/*"]"#,
            "list of object/complement, with `*` and `?`",
            "",
            "All `get` rows that match are read.",
        ),
    ],
};

const HEAD: &str = "\
<!-- Made from crates/equipment/equipment/src: change it there, then run `tahti em check --document > docs/reference/equipment-tables.md`. -->

# Equipment tables

Every key of an equipment manager's file. `tahti em check` reports all errors of a file together, with line and column.
";

/// The documentation page on table files, with the drivers of this crate and `more`.
#[must_use]
pub fn document(more: &[Driver]) -> String {
    let mut out = HEAD.to_owned();
    for one in [&MANAGER, &DEVICE, &MAP] {
        out.push_str(&rows(one, "must be given"));
    }
    for one in [&CONVERT, &REACHED, &POLL] {
        out.push_str(&rows(one, "must be given"));
    }
    out.push_str("\n# Drivers\n\nA driver is rt-safe (it neither blocks nor allocates) or may block. Each device that may block has a separate thread.\n");
    for driver in DRIVERS.iter().chain(more) {
        out.push_str(&rows(driver.table, "must be given"));
        // `name` and `driver` are documented once, above.
        let common = |line: &str| line.starts_with("| `name`") || line.starts_with("| `driver`");
        let kept: Vec<&str> = out.lines().collect();
        let from = kept.iter().rposition(|line| line.starts_with("## `")).unwrap_or(0);
        let kept: Vec<&str> =
            kept.iter().enumerate().filter(|(at, line)| *at < from || !common(line)).map(|(_, line)| *line).collect();
        out = kept.join("\n") + &format!("\n\n{}: {}.\n", driver.word, driver.pace_word());
    }
    out
}
