//! What a table file may say, with its documentation.

use crate::device::{DEVICE, DRIVERS, Driver};
use table::{Table, key, rows};

/// `[manager]`
pub(crate) const MANAGER: Table = Table {
    header: "[manager]",
    doc: "Who the equipment manager is, and which other files belong to it.",
    keys: &[
        key("name", r#""magnets""#, "letters, digits, `-` and `_`, at most 32", "", "Name of the manager."),
        key(
            "devices",
            r#"["devices.csv"]"#,
            "list of CSV files",
            "none",
            "Files with more devices: a column for each key of `[[device]]`. Sought from this file's folder.",
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
            "Class of the lane that runs rt-safe rows. With a real-time class, its memory is locked.",
        ),
        key("cpu", "3", "number", "the process's CPUs", "The lane's CPU."),
        key(
            "frame",
            r#"{ name = "fast", activity = "magnets" }"#,
            "table of `name` and `activity`",
            "the lane keeps its own time",
            "The lane runs as this activity of a frame (docs/frames.md), which gives it class and CPU: loops and polls run at the \
             borders of minors, requests are carried out between them. `PLANT/NAME` for another plant's frame.",
        ),
    ],
};

/// `[[map]]`
pub(crate) const MAP: Table = Table {
    header: "[[map]]",
    doc: "A row: which requests it takes (interpret), which point of which device that means (execute), and how raw values become \
          engineering values (convert). The first row of an object that takes the complement counts. Captures such as `{name}` are \
          whatever stands there in the device's name: the row holds for each device that matches.",
    keys: &[
        key(
            "verb",
            r#"["put", "set"]"#,
            "`get`, `put`, `set`, `call`, or a list of them",
            "",
            "`put`: accepted by the equipment; `set`: value reached.",
        ),
        key("object", r#""sr_mag_ps_{name}""#, "pattern", "", "The object."),
        key(
            "complement",
            r#""current_adc""#,
            "pattern; `{value}` is the value",
            "`{value}` for `put` and `set`",
            "What follows the object: `current_adc`, `{value}`, `kp={value}`, `reset`.",
        ),
        key("device", r#""ps_{name}""#, "pattern", "", "The device."),
        key("point", r#""current""#, "pattern", "", "The device's point; see its driver."),
        key(
            "for",
            r#"{ axis = ["x", "y"] }"#,
            "table of lists of texts",
            "none",
            "Captures that do not stand in the device's name: the row holds for each combination.",
        ),
        key(
            "convert",
            "[{ scale = 0.01 }, { offset = -5 }]",
            "list of steps, see *convert*",
            "none: raw is engineering",
            "From the device's raw value to the engineering value, in this order; backwards when writing.",
        ),
        key(
            "unit",
            r#""A""#,
            "text",
            "none",
            "Unit of the engineering value. Values in units that convert to it are converted.",
        ),
        key(
            "limits",
            "[-600, 600]",
            "lowest and highest",
            "none",
            "Other numbers are refused before the device sees them.",
        ),
        key("precision", "3", "0 to 15", "as many digits as needed", "Digits after the point of an answer."),
        key(
            "write",
            "1",
            "number or text",
            "none",
            "What is written where the complement holds no `{value}` (`call`, `put/…/reset`).",
        ),
        key(
            "reached",
            r#"{ complement = "current_adc", within = 0.05, timeout = "10s" }"#,
            "table, see *reached*",
            "`set` is refused",
            "When `set` has reached its value.",
        ),
        key(
            "lane",
            r#""real-time""#,
            "`real-time` or `worker`",
            "what the device's driver allows",
            "Where it is to run, for the check: a device that may block never runs on the real-time lane.",
        ),
        key("about", r#""bend magnets""#, "text", "none", "What `describe` adds."),
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
            "Where the polynomial holds; it must only rise or only fall there if it is written through.",
        ),
        key(
            "table",
            "[[0, 0], [10, 4.9], [20, 9.6]]",
            "list of points [raw, value]",
            "one of them",
            "Straight lines between points; nothing beyond.",
        ),
        key(
            "bits",
            r#""4-7""#,
            "bit or range of bits",
            "one of them",
            "These bits of a whole number; the others stay as they are when it is written. Only as the first step.",
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
    doc: "When the value of a `set` is reached.",
    keys: &[
        key("complement", r#""current_adc""#, "complement of a `get` row of the same object", "", "What is looked at."),
        key("within", "0.05", "number", "", "How near it must come, in the row's unit."),
        key(
            "timeout",
            r#""10s""#,
            "time, 1ms to 1h",
            "`10s`",
            "How long that may take; then the answer is TIMEOUT with the present value.",
        ),
    ],
};

/// `[[poll]]`
pub(crate) const POLL: Table = Table {
    header: "[[poll]]",
    doc: "A list of objects that is read at a fixed cycle into a table of current values in shared memory: clients read it without a \
          message (`tahti em values NAME`). A value that could not be read keeps its age, and shows as stale.",
    keys: &[
        key("name", r#""sr-values""#, "letters, digits, `-` and `_`, at most 32", "", "Name of the table."),
        key("period", r#""100ms""#, "time, 1ms to 1h", "", "The cycle."),
        key(
            "objects",
            r#"["sr_mag_*/current_adc", "sr_bpm_*/*"]"#,
            "list of object/complement, with `*` and `?`",
            "",
            "What is read: all `get` rows that match.",
        ),
    ],
};

const HEAD: &str = "\
<!-- Made from crates/equipment/equipment/src: change it there, then run `tahti em check --document > docs/equipment-tables.md`. -->

# Equipment tables

What an equipment manager's file may say. `tahti em check` finds everything that is wrong with it at once, with file, line and column.
";

/// The page on table files, with `more` drivers than those of this crate.
#[must_use]
pub fn document(more: &[Driver]) -> String {
    let mut out = HEAD.to_owned();
    for one in [&MANAGER, &DEVICE, &MAP] {
        out.push_str(&rows(one, "must be given"));
    }
    for one in [&CONVERT, &REACHED, &POLL] {
        out.push_str(&rows(one, "must be given"));
    }
    out.push_str("\n# Drivers\n\nA driver is rt-safe (neither blocks nor allocates) or may block; the latter run on threads of their own.\n");
    for driver in DRIVERS.iter().chain(more) {
        out.push_str(&rows(driver.table, "must be given"));
        // `name` and `driver` are told once, above.
        let common = |line: &str| line.starts_with("| `name`") || line.starts_with("| `driver`");
        let kept: Vec<&str> = out.lines().collect();
        let from = kept.iter().rposition(|line| line.starts_with("## `")).unwrap_or(0);
        let kept: Vec<&str> =
            kept.iter().enumerate().filter(|(at, line)| *at < from || !common(line)).map(|(_, line)| *line).collect();
        out = kept.join("\n") + &format!("\n\n{}: {}.\n", driver.word, driver.pace_word());
    }
    out
}
