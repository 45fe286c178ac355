//! SGI REACT.

use super::{ANY, Entry, NOT_GIVEN, Paper, Run};
use report::Published;

const WHO: &str = "SGI REACT, highest of 5,000,000 interrupts for each CPU";
const YEAR: &str = "about 2007";
const FOUR: &str =
    "4-CPU system, Itanium 2 1.0 GHz, 1 CPU receiving interrupts, SLES 10 SP1 kernel 2.6.16; load: 5 to 7 aim7 tasks";
const MANY: &str = "64-CPU system, Itanium 2 1.5 GHz, 28 CPUs receiving interrupts, SLES 10 SP1 kernel 2.6.16; load: 20 to 23 aim7 tasks";

pub(super) const PAPER: Paper = Paper {
    cited: "SGI: Low Latency Real-Time Computing on Multiprocessor Systems Running Standard Linux, about 2007",
    entries: &[
        Entry {
            key: "react/configuration",
            what: "A tool that isolates CPUs from processes, kernel threads, load balancing, interrupts and timers",
            runs: &[Run { bench: "shield", figures: &[("", "")], ..Run::NONE }],
            shown: "tahti shield (docs/explanation/shield.md)",
            ..Entry::NONE
        },
        Entry {
            key: "react/response",
            what: "Highest interrupt response, without and with REACT, unloaded and loaded",
            published: &[
                Published::new(WHO, YEAR, FOUR, "no load 349.30 us without, 11.95 with; load 556.95, 11.15"),
                Published::new(WHO, YEAR, MANY, "no load 484.95 us without, 10.50 with; load 545.35, 18.75"),
            ],
            runs: &[
                Run {
                    bench: "response",
                    full: &["--compare", "--events", "5000000"],
                    quick: &["--compare", "--events", "4000"],
                    smallest: &["--compare", "--events", "800"],
                    must: &[
                        ("compare", "true"),
                        ("load", "all"),
                        ("timer", "false"),
                        ("device", NOT_GIVEN),
                        ("policy", "fifo:80"),
                    ],
                    figures: &[
                        ("from an event on another CPU", "open"),
                        ("from an event on another CPU", "shielded"),
                        ("stages of the response", "event until"),
                        ("stages of the response", "woken until"),
                        ("stages of the response", "has the CPU until"),
                    ],
                    ..Run::NONE
                },
                Run {
                    bench: "response",
                    full: &["--timer", "--compare", "--events", "5000000"],
                    quick: &["--timer", "--compare", "--events", "4000"],
                    smallest: &["--timer", "--compare", "--events", "800"],
                    must: &[("timer", "true"), ("compare", "true"), ("load", "all"), ("policy", "fifo:80")],
                    figures: &[
                        ("from a timer's expiry", "open"),
                        ("from a timer's expiry", "shielded"),
                        ("stages of the response", ""),
                    ],
                    ..Run::NONE
                },
                Run {
                    bench: "response",
                    full: &[
                        "--device",
                        "uio0",
                        "--raise",
                        "0x60=1",
                        "--clear",
                        "0x64=1",
                        "--compare",
                        "--events",
                        "5000000",
                    ],
                    quick: &[
                        "--device",
                        "uio0",
                        "--raise",
                        "0x60=1",
                        "--clear",
                        "0x64=1",
                        "--compare",
                        "--events",
                        "4000",
                    ],
                    must: &[("device", ANY), ("compare", "true"), ("load", "all"), ("policy", "fifo:80")],
                    figures: &[
                        ("from a device's interrupt", "open"),
                        ("from a device's interrupt", "shielded"),
                        ("stages of the response", ""),
                    ],
                    by_hand: true,
                    ..Run::NONE
                },
            ],
            differs: "interrupts of another CPU, of the timer, and of a device that raises one when a register is written; the load is one \
                      process each for CPU, memory, disk and network",
            needs: "a device that interrupts, bound to UIO or VFIO; 64 CPUs for the second row",
            ..Entry::NONE
        },
        Entry {
            key: "react/guidelines",
            what: "Rules for the program: pin threads, lock memory, stay out of the kernel, one thread for each isolated CPU",
            shown: "tahti doctor, tahti run (docs/reference/doctor.md, docs/reference/run.md)",
            ..Entry::NONE
        },
        Entry {
            key: "react/user-level-drivers",
            what: "Drivers in user space: PCI access, user-level interrupts, kernel barriers",
            shown: "rt::Device, rt::Barrier (docs/how-to/drive-a-device-from-user-space.md, docs/reference/toolkit.md)",
            ..Entry::NONE
        },
        Entry {
            key: "react/frame-scheduler",
            what: "Frame rate scheduler: threads scheduled periodically by a clock or an external interrupt",
            runs: &[Run {
                bench: "frames",
                figures: &[("begin of minors", "frame"), ("dispatcher", "own work, median")],
                ..Run::NONE
            }],
            ..Entry::NONE
        },
        Entry {
            key: "react/quiet",
            what: "The shield API: the program switches timer interrupts off for a short critical stretch",
            runs: &[Run {
                bench: "quiet",
                figures: &[("clock readings", "lost"), ("the timer's interrupts", "")],
                ..Run::NONE
            }],
            needs: "a kernel with nohz_full for a stretch without the timer tick",
            ..Entry::NONE
        },
        Entry {
            key: "react/thread-latency",
            what: "Latencies of threads in the tens of us on isolated CPUs, with a jitter of several us",
            runs: &[Run {
                bench: "wakeup",
                full: &["--compare", "--load", "all", "--for", "5min"],
                quick: &["--compare", "--load", "all", "--for", "4s"],
                smallest: &["--compare", "--load", "all", "--for", "1s"],
                must: &[
                    ("period", "1ms"),
                    ("compare", "true"),
                    ("load", "all"),
                    ("wait", "sleep"),
                    ("policy", "fifo:80"),
                ],
                figures: &[("wake-up latency", "CPU")],
                ..Run::NONE
            }],
            ..Entry::NONE
        },
        Entry {
            key: "react/causes",
            what: "Test for latency problems, find their cause, test again at each release",
            shown: "tahti explain, tahti bench compare (docs/reference/measuring.md)",
            ..Entry::NONE
        },
    ],
};
