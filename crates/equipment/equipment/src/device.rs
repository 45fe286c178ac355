//! The interface between tables and devices, and the available drivers.

use crate::datum::{Datum, DeviceFault};
use base::MonoNs;
use table::{Key, Table, key};

/// A device: points that can be read and written. Points are numbered when the tables are read.
pub trait Device {
    /// Reads a point.
    ///
    /// # Errors
    /// The reason why there is no value.
    fn read(&mut self, point: usize, now: MonoNs) -> Result<Datum<'_>, DeviceFault>;

    /// Writes a point.
    ///
    /// # Errors
    /// The reason why the value was not written.
    fn write(&mut self, point: usize, value: &Datum<'_>, now: MonoNs) -> Result<(), DeviceFault>;
}

/// The timing class of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Neither blocks nor allocates. May run on a real-time lane.
    RtSafe,
    /// May wait for another process or device. Runs on a separate thread.
    MayBlock,
}

/// A kind of device: an entry of [`DRIVERS`], or of the list of a program with additional drivers.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// The word in the key `driver`.
    pub word: &'static str,
    /// The timing class.
    pub pace: Pace,
    /// The keys, with their documentation.
    pub table: &'static Table,
    /// Parses a point name, and returns its access rights.
    ///
    /// # Errors
    /// No point of the driver has such a name.
    pub point: fn(&str) -> Result<Access, ExpectedPoint>,
}

/// A driver has no point of a name. The text is the expected names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExpectedPoint(pub String);

/// The access rights of a point, as far as the driver knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write. The device itself may still refuse.
    ReadWrite,
    /// Read only. The check refuses rows that write it.
    ReadOnly,
}

impl Driver {
    /// The timing class in the documentation.
    #[must_use]
    pub const fn pace_word(&self) -> &'static str {
        match self.pace {
            Pace::RtSafe => "rt-safe",
            Pace::MayBlock => "may-block",
        }
    }
}

const NAME: Key =
    key("name", r#""ps_b""#, "letters, digits, `_`, `-`, `.`, `:`", "", "Name of the device, unique in the file.");
const DRIVER: Key = key("driver", r#""power-supply""#, "one of the drivers below", "", "The driver.");

/// `[[device]]`: the keys of all drivers.
pub(crate) const DEVICE: Table = Table {
    header: "[[device]]",
    doc: "A device. Each driver has more keys, and points; see *Drivers*. In a CSV file each key is a column.",
    keys: &[NAME, DRIVER],
};

const SEED: Key = key("seed", "7", "0 to 4294967295", "`1`", "Seed of the noise, which is reproducible.");
const NOISE: Key = key("noise", "0.01", "number", "`0`", "Standard deviation of a reading.");
const PERIOD: Key = key("period", r#""100ms""#, "time, 1ms to 1h", "", "Period.");
const TIMEOUT: Key = key("timeout", r#""500ms""#, "time, 1ms to 1min", "`1s`", "Maximum time for an answer.");

/// The drivers of this crate.
pub const DRIVERS: &[Driver] = &[
    Driver {
        word: "power-supply",
        pace: Pace::RtSafe,
        table: &Table {
            header: "power-supply",
            doc: "A simulated magnet power supply. Points: `setpoint`, `current` (A), `on`, `ramping`.",
            keys: &[
                NAME,
                DRIVER,
                key("current_max", "600", "number", "`600`", "Maximum current in both directions, in A."),
                key("ramp", "100", "number", "`100`", "Ramp of the current, in A/s; 0: immediately."),
                key("lag", r#""50ms""#, "time, 0 to 1h", "`50ms`", "Time constant of the load."),
                key("on", "true", "true or false", "`false`", "On at the start."),
                NOISE,
                SEED,
            ],
        },
        point: |point| among(crate::sim::PowerSupply::POINTS, crate::sim::PowerSupply::WRITABLE, point),
    },
    Driver {
        word: "bpm",
        pace: Pace::RtSafe,
        table: &Table {
            header: "bpm",
            doc: "A simulated beam position monitor. Points: `x`, `y` (mm), `kick`.",
            keys: &[
                NAME,
                DRIVER,
                key("x", "0.2", "number", "`0`", "Beam position, in mm."),
                key("y", "-0.1", "number", "`0`", "Beam position, in mm."),
                key("drift", "0.1", "number", "`0`", "Amplitude of a slow drift with a period of 20 s, in mm."),
                key("response", "0.5", "number", "`1`", "Horizontal shift of the beam by a kick of 1, in mm."),
                NOISE,
                SEED,
            ],
        },
        point: |point| among(crate::sim::Bpm::POINTS, crate::sim::Bpm::WRITABLE, point),
    },
    Driver {
        word: "rf-station",
        pace: Pace::RtSafe,
        table: &Table {
            header: "rf-station",
            doc: "A simulated RF station. Points: `amplitude_set`, `amplitude` (MV), `phase_set`, `phase` (deg), `frequency` (Hz), \
                  `on`, `tripped`, `reset`.",
            keys: &[
                NAME,
                DRIVER,
                key(
                    "amplitude_max",
                    "5",
                    "number",
                    "`5`",
                    "Maximum amplitude, in MV; a higher set point trips the station.",
                ),
                key("fill", r#""20ms""#, "time, 0 to 1h", "`20ms`", "Fill time of the cavity."),
                key("frequency", "508.58e6", "number", "`508.58e6`", "Frequency at the start, in Hz."),
                NOISE,
                SEED,
            ],
        },
        point: |point| among(crate::sim::RfStation::POINTS, crate::sim::RfStation::WRITABLE, point),
    },
    Driver {
        word: "clock",
        pace: Pace::RtSafe,
        table: &Table {
            header: "clock",
            doc: "The time. Points: `mono` (`CLOCK_MONOTONIC`, in s).",
            keys: &[NAME, DRIVER],
        },
        point: |point| among(&["mono"], &[], point),
    },
    Driver {
        word: "memory",
        pace: Pace::RtSafe,
        table: &Table {
            header: "memory",
            doc: "Numbers that keep the value written last; 0 at the start. Points: any word.",
            keys: &[NAME, DRIVER],
        },
        point: word,
    },
    Driver {
        word: "import",
        pace: Pace::RtSafe,
        table: &Table {
            header: "import",
            doc: "Variables that another process exports in shared memory (a loop, a frame, a poller). Points: their names; read \
                  only. Reading a variable that is older than `stale` is an error.",
            keys: &[
                NAME,
                DRIVER,
                key("from", r#""llrf""#, "text", "", "Name of the exported segment."),
                key(
                    "stale",
                    r#""1s""#,
                    "time, 1ms to 1h",
                    "two periods and 10 ms if the exporter sets a period; else never",
                    "Maximum age of a value.",
                ),
            ],
        },
        point: |point| word(point).map(|_| Access::ReadOnly),
    },
    Driver {
        word: "export",
        pace: Pace::RtSafe,
        table: &Table {
            header: "export",
            doc: "Variables that this manager exports in shared memory, for loops, frames and IOCs. Points: their names. A read \
                  returns the value written last; 0 at the start.",
            keys: &[NAME, DRIVER, key("as", r#""magnets""#, "text", "", "Name of the exported segment.")],
        },
        point: word,
    },
    Driver {
        word: "feedback",
        pace: Pace::RtSafe,
        table: &Table {
            header: "feedback",
            doc: "An autonomous loop (an agent): a PI controller that reads one object of this manager and writes another. \
                  Messages start, stop and tune it. Points: `on`, `setpoint`, `kp`, `ki`, `input`, `output`, `error`, `cycles`, \
                  `faults`, `skipped` (cycles that were too late). On a fault of either object the output stays; `faults` counts \
                  it.",
            keys: &[
                NAME,
                DRIVER,
                PERIOD,
                key("input", r#""sr_bpm_1/x""#, "object/complement of a `get`", "", "Measured value."),
                key("output", r#""sr_cor_1""#, "object of a `put` of a number", "", "Controlled object."),
                key("setpoint", "0", "number", "`0`", "Target of the input."),
                key("kp", "0.5", "number", "`0`", "Proportional gain: output per input."),
                key("ki", "2", "number", "`0`", "Integral gain: output per input and second."),
                key("low", "-5", "number, below `high`", "", "Minimum output."),
                key("high", "5", "number", "", "Maximum output."),
                key("on", "true", "true or false", "`false`", "Running at the start."),
            ],
        },
        point: |point| among(crate::agent::POINTS, crate::agent::WRITABLE, point),
    },
    Driver {
        word: "copy",
        pace: Pace::RtSafe,
        table: &Table {
            header: "copy",
            doc: "An autonomous loop that reads one object of this manager and writes it, times a gain, to another. Points as `feedback`.",
            keys: &[
                NAME,
                DRIVER,
                PERIOD,
                key("input", r#""magnets/cor_1""#, "object/complement of a `get`", "", "Object to read."),
                key("output", r#""sim_bpm_1/kick""#, "object of a `put` of a number", "", "Object to write."),
                key("gain", "0.5", "number", "`1`", "Output per input."),
                key("on", "true", "true or false", "`true`", "Running at the start."),
            ],
        },
        point: |point| among(crate::agent::POINTS, crate::agent::WRITABLE, point),
    },
    Driver {
        word: "script",
        pace: Pace::MayBlock,
        table: &Table {
            header: "script",
            doc: "Runs a program for each access: `COMMAND get POINT` or `COMMAND put POINT VALUE`. Its output is the value. An \
                  exit status other than 0 is an error, with its standard error as the reason. After `timeout` its process group \
                  is killed. Points: any word.",
            keys: &[
                NAME,
                DRIVER,
                key(
                    "command",
                    r#"["./valve.sh"]"#,
                    "list of texts, or one text",
                    "",
                    "Program and first arguments; no shell is involved.",
                ),
                TIMEOUT,
                key(
                    "user",
                    "65534",
                    "0 to 4294967294",
                    "the manager's",
                    "User of the program, without supplementary groups. Needs root.",
                ),
                key("group", "65534", "0 to 4294967294", "as `user`", "Group of the program."),
                key(
                    "gain_privileges",
                    "true",
                    "true or false",
                    "`false`",
                    "Allow programs that gain privileges, such as sudo. Without it, the program runs with `no_new_privs`.",
                ),
            ],
        },
        point: word,
    },
];

fn among(points: &[&str], writable: &[&str], point: &str) -> Result<Access, ExpectedPoint> {
    if points.contains(&point) {
        return Ok(if writable.contains(&point) { Access::ReadWrite } else { Access::ReadOnly });
    }
    let meant = base::nearest(point, points.iter().copied()).map(|meant| format!(" (did you mean `{meant}`?)"));
    Err(ExpectedPoint(format!("{}{}", points.join(", "), meant.unwrap_or_default())))
}

/// A point name of any printable characters.
fn word(point: &str) -> Result<Access, ExpectedPoint> {
    let fits = !point.is_empty() && point.len() <= 64 && point.chars().all(|c| c.is_ascii_graphic());
    let expected = || ExpectedPoint("1 to 64 printable characters without blanks".to_owned());
    fits.then_some(Access::ReadWrite).ok_or_else(expected)
}
