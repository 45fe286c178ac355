//! Real-time processes on multi-core processors, and MADOCA II, at SPring-8.

use super::{Entry, Paper, Run};
use report::Published;

const WHO: &str = "SPring-8";
const YEAR: &str = "2013";
const BOARDS: &str =
    "VME boards XVB601 (Core i7-620UE 1.06 GHz) and VP717 (Core i7-620LE 2.0 GHz), 4 processors, Solaris 10";
const VP717: &str = "VME board VP717, Core i7-620LE 2.0 GHz, Solaris 10, tick 1 ms";

const CLASSES: Run = Run {
    bench: "classes",
    full: &["--for", "10s"],
    quick: &["--for", "700ms"],
    smallest: &["--for", "500ms"],
    ..Run::NONE
};

/// Case 1: all three real-time, the message server bound to a processor.
const CASE_1: &[&str] = &["--server", "fifo:20@last", "--manager", "fifo:20", "--client", "fifo:20"];
/// Case 2: all three time-sharing, free.
const CASE_2: &[&str] = &["--server", "other", "--manager", "other", "--client", "other"];

pub(super) const PAPER: Paper = Paper {
    cited: "M. Ishii, T. Furukawa, T. Matsumoto (JASRI/SPring-8): Real-Time Process Control on Multi-Core Processors, ICALEPCS 2013",
    entries: &[
        Entry {
            key: "madoca/classes",
            what: "Shares of endless loops, time-sharing and real-time; can one still log in",
            published: &[
                Published::new(WHO, YEAR, BOARDS, "1 time-sharing loop: 25 % of the machine (one processor)"),
                Published::new(WHO, YEAR, BOARDS, "4 time-sharing loops: one of them in the run queue"),
                Published::new(
                    WHO,
                    YEAR,
                    BOARDS,
                    "5 time-sharing loops: 20 % each, two in the run queue; login possible",
                ),
                Published::new(WHO, YEAR, BOARDS, "3 real-time loops: 25 % each; login possible"),
                Published::new(WHO, YEAR, BOARDS, "4 real-time loops: the operating system hangs"),
            ],
            runs: &[Run {
                figures: &[("time-sharing loop", "time sharing"), ("real-time loop", "real time")],
                ..CLASSES
            }],
            needs: "a machine that may stop for real-time loops on every CPU: `tahti bench classes --every-cpu`",
            ..Entry::NONE
        },
        Entry {
            key: "madoca/binding",
            what: "Loops bound to one processor",
            published: &[
                Published::new(
                    WHO,
                    YEAR,
                    BOARDS,
                    "5 free time-sharing loops and a bound one: about 18 % each, the bound one about 14 %",
                ),
                Published::new(
                    WHO,
                    YEAR,
                    BOARDS,
                    "5 free loops, and a real-time and a time-sharing loop bound to one processor: real-time 25 %, time-sharing 0 %",
                ),
            ],
            runs: &[Run {
                figures: &[
                    ("bound to CPU", "bound time sharing"),
                    ("bound to CPU", "bound real time"),
                    ("bound to CPU", "time sharing"),
                ],
                ..CLASSES
            }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/sets",
            what: "Processes and threads in a set of three processors",
            published: &[
                Published::new(
                    WHO,
                    YEAR,
                    BOARDS,
                    "3 or 4 processes: 25 % each, 75 % in total, the fourth in the run queue",
                ),
                Published::new(
                    WHO,
                    YEAR,
                    BOARDS,
                    "1 process with 3 or 4 threads: 75 %, the fourth thread in the run queue",
                ),
            ],
            runs: &[Run { figures: &[("in a set of", "in the set")], ..CLASSES }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/runaway",
            what: "A real-time process out of control is stopped from another processor instead of powering off",
            runs: &[Run { bench: "runaway", figures: &[("", "")], ..Run::NONE }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/case-1",
            what: "Round trip of \"current time\" through the message server, case 1: server real-time and bound, equipment manager and test program real-time",
            published: &[Published::new(
                WHO,
                YEAR,
                VP717,
                "min 1.131, max 1.76, mean 1.293, median 1.286, standard deviation 0.047 ms",
            )],
            runs: &[Run {
                bench: "rtt",
                full: CASE_1,
                quick: CASE_1,
                smallest: CASE_1,
                must: &[("server", "fifo:20@last"), ("manager", "fifo:20"), ("client", "fifo:20")],
                figures: &[("round trips", "message"), ("round trips", "standard deviation"), ("round trips", "share")],
            }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/case-2",
            what: "The same, case 2: all three time-sharing",
            published: &[Published::new(
                WHO,
                YEAR,
                VP717,
                "min 1.029, max 141.985, mean 1.141, median 1.126, standard deviation 0.67 ms; over 99.8 % at about 1 ms",
            )],
            runs: &[Run {
                bench: "rtt",
                full: CASE_2,
                quick: CASE_2,
                smallest: CASE_2,
                must: &[("server", "other"), ("manager", "other"), ("client", "other")],
                figures: &[("round trips", "message"), ("round trips", "standard deviation"), ("round trips", "share")],
            }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/framework",
            what: "Equipment control, polling into memory, transfer to a database, fast feedback, event-synchronised acquisition at 1 to 60 Hz",
            shown: "tahti em, tahti up, tahti archive (docs/equipment.md, docs/plant.md, docs/operate.md)",
            ..Entry::NONE
        },
        Entry {
            key: "madoca/spin",
            what: "0.1 ms: waiting by sleeping (unstable with a tick of 0.1 ms) and by spinning (tick 1 ms)",
            published: &[Published::new(
                WHO,
                YEAR,
                "VME boards, Solaris 10",
                "sleeping at a tick of 0.1 ms: unstable; spinning at a tick of 1 ms: stable",
            )],
            runs: &[
                Run {
                    bench: "wakeup",
                    full: &["--period", "100us", "--wait", "sleep", "--compare", "--for", "60s"],
                    quick: &["--period", "100us", "--wait", "sleep", "--compare", "--for", "4s"],
                    smallest: &["--period", "100us", "--wait", "sleep", "--compare", "--for", "1s"],
                    must: &[("period", "100us"), ("wait", "sleep"), ("compare", "true")],
                    figures: &[("wake-up latency", "CPU")],
                },
                Run {
                    bench: "wakeup",
                    full: &["--period", "100us", "--wait", "spin", "--compare", "--for", "60s"],
                    quick: &["--period", "100us", "--wait", "spin", "--compare", "--for", "4s"],
                    smallest: &["--period", "100us", "--wait", "spin", "--compare", "--for", "1s"],
                    must: &[("period", "100us"), ("wait", "spin"), ("compare", "true")],
                    figures: &[("wake-up latency", "CPU")],
                },
            ],
            ..Entry::NONE
        },
    ],
};
