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

/// Case 1: all three real-time, the message server bound to a processor. The number of round trips is not published.
const CASE_1: &[&str] =
    &["--server", "fifo:20@last", "--manager", "fifo:20", "--client", "fifo:20", "--rounds", "200000"];
const CASE_1_QUICK: &[&str] = &["--server", "fifo:20@last", "--manager", "fifo:20", "--client", "fifo:20"];
/// Case 2: all three time-sharing, free.
const CASE_2: &[&str] = &["--server", "other", "--manager", "other", "--client", "other", "--rounds", "200000"];
const CASE_2_QUICK: &[&str] = &["--server", "other", "--manager", "other", "--client", "other"];

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
            ],
            runs: &[Run {
                figures: &[
                    ("class:", "time sharing"),
                    ("class:", "real time"),
                    ("class:", "queue"),
                    ("class:", "shell"),
                ],
                ..CLASSES
            }],
            differs: "n - 1, n and n + 1 loops on n CPUs; that one can log in is measured as the time of a shell",
            ..Entry::NONE
        },
        Entry {
            key: "madoca/every-cpu",
            what: "Real-time loops on every processor",
            published: &[Published::new(WHO, YEAR, BOARDS, "4 real-time loops: the operating system hangs")],
            runs: &[
                Run {
                    bench: "classes",
                    full: &["--every-cpu"],
                    quick: &["--every-cpu"],
                    must: &[("every_cpu", "true")],
                    figures: &[("every CPU:", "")],
                    by_hand: true,
                    ..Run::NONE
                },
                Run {
                    bench: "runaway",
                    full: &["--every-cpu"],
                    quick: &["--every-cpu", "--trials", "20"],
                    must: &[("every_cpu", "true"), ("policy", "fifo:50")],
                    figures: &[("loops on every CPU", "")],
                    by_hand: true,
                    ..Run::NONE
                },
            ],
            differs: "half a second, or until the guard demotes the loops; Linux stops real-time tasks for 5 % of each second by default",
            needs: "a machine that may stop for half a second",
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
            runs: &[Run { figures: &[("binding:", "time sharing"), ("binding:", "real time")], ..CLASSES }],
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
            runs: &[Run { figures: &[("set:", "in the set"), ("set:", "queue")], ..CLASSES }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/runaway",
            what: "A real-time process out of control is stopped from another processor instead of powering off",
            runs: &[Run { bench: "runaway", must: &[("every_cpu", "false")], figures: &[("", "")], ..Run::NONE }],
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
                quick: CASE_1_QUICK,
                must: &[("server", "fifo:20@last"), ("manager", "fifo:20"), ("client", "fifo:20")],
                figures: &[
                    ("round trips", "message"),
                    ("round trips", "standard deviation"),
                    ("round trips", "maximum"),
                    ("round trips", "share"),
                ],
                ..Run::NONE
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
                quick: CASE_2_QUICK,
                must: &[("server", "other"), ("manager", "other"), ("client", "other")],
                figures: &[
                    ("round trips", "message"),
                    ("round trips", "standard deviation"),
                    ("round trips", "maximum"),
                    ("round trips", "share"),
                ],
                ..Run::NONE
            }],
            ..Entry::NONE
        },
        Entry {
            key: "madoca/framework",
            what: "Equipment control, polling into memory, transfer to a database, fast feedback, event-synchronised acquisition at 1 to 60 Hz",
            shown: "tahti em, tahti up, tahti archive (docs/reference/equipment.md, docs/reference/plant, docs/reference/archive.md)",
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
                    must: &[
                        ("period", "100us"),
                        ("wait", "sleep"),
                        ("compare", "true"),
                        ("load", "none"),
                        ("policy", "fifo:80"),
                    ],
                    figures: &[("stability", ""), ("wake-up latency", "CPU")],
                    ..Run::NONE
                },
                Run {
                    bench: "wakeup",
                    full: &["--period", "100us", "--wait", "spin", "--compare", "--for", "60s"],
                    quick: &["--period", "100us", "--wait", "spin", "--compare", "--for", "4s"],
                    smallest: &["--period", "100us", "--wait", "spin", "--compare", "--for", "1s"],
                    must: &[
                        ("period", "100us"),
                        ("wait", "spin"),
                        ("compare", "true"),
                        ("load", "none"),
                        ("policy", "fifo:80"),
                    ],
                    figures: &[("stability", ""), ("wake-up latency", "CPU")],
                    ..Run::NONE
                },
            ],
            differs: "stable if at most 0.1 % of the cycles are skipped",
            ..Entry::NONE
        },
    ],
};
