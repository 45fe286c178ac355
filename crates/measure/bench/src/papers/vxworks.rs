//! VxWorks on Intel servers at ESO.

use super::{Entry, NOT_GIVEN, Paper, Run};
use report::Published;

const WHO: &str = "ESO, VxWorks";
const YEAR: &str = "about 2012";
const SERVERS: &str = "Dell R910 (4 x 10 cores E7-4860) and R710 (2 x 6 cores X5690)";
const LOADED: &str = "Dell R910 or R710, 5 Gbit/s of network traffic, full load on all cores";

pub(super) const PAPER: Paper = Paper {
    cited: "H. Tischer (ESO): VxWorks on Intel for real time high performance computing, about 2012",
    entries: &[
        Entry {
            key: "vxworks/jitter",
            what: "Task response at 4001 Hz with network traffic and full load on all cores, untuned and tuned",
            published: &[
                Published::new(WHO, YEAR, LOADED, "untuned: 818,678 samples, max 15.993, mean 0.419 us"),
                Published::new(
                    WHO,
                    YEAR,
                    LOADED,
                    "tuned (affinity, CPU reservation, interrupt rerouting, no USB): 812,564 samples, max 3.282, mean 0.349 us",
                ),
            ],
            runs: &[Run {
                bench: "wakeup",
                full: &["--period", "4001Hz", "--load", "all", "--compare", "--for", "205s"],
                quick: &["--period", "4001Hz", "--load", "all", "--compare", "--for", "4s"],
                smallest: &["--period", "4001Hz", "--load", "all", "--compare", "--for", "1s"],
                must: &[
                    ("period", "4001Hz"),
                    ("load", "all"),
                    ("compare", "true"),
                    ("wait", "sleep"),
                    ("policy", "fifo:80"),
                ],
                figures: &[("jitter", "CPU"), ("wake-up latency", "CPU")],
                ..Run::NONE
            }],
            differs: "network traffic goes over the loopback at the rate that this machine reaches",
            needs: "a network card with 5 Gbit/s",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/clock",
            what: "The time stamp's own cost: up to 2 us to read the HPET",
            published: &[Published::new(WHO, YEAR, SERVERS, "up to 2 us for a time stamp of the HPET")],
            runs: &[Run { bench: "clock", figures: &[("", "")], ..Run::NONE }],
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/independence",
            what: "Interrupt and task response independent of CPU load",
            published: &[Published::new(WHO, YEAR, SERVERS, "response independent of CPU load (no figure)")],
            runs: &[Run {
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
                figures: &[("p99 compared", "loaded / unloaded")],
                ..Run::NONE
            }],
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/ownership",
            what: "Scaling with cores: small local data sets, and large heavily used shared memory",
            published: &[Published::new(
                WHO,
                YEAR,
                SERVERS,
                "local data: linear with the number of cores; shared data: highest with 3 cores, slower than one core with more cores than one socket has",
            )],
            runs: &[Run {
                bench: "compute",
                figures: &[("work done by several CPUs", ""), ("an addition to a counter", "")],
                ..Run::NONE
            }],
            needs: "CPUs of more than one socket for the fall below one core",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/amdahl",
            what: "Amdahl's law: a parallel share of 90 %",
            published: &[Published::new(WHO, YEAR, SERVERS, "at most 10 times as fast, with any number of CPUs")],
            runs: &[Run { bench: "compute", figures: &[("speed-up by parallel share", "")], ..Run::NONE }],
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/simd",
            what: "Four floats multiplied: the compiler's vectors with and without `restrict`",
            published: &[
                Published::new(
                    WHO,
                    YEAR,
                    "icc -O2 -m64 -xavx",
                    "with `restrict`: 1 multiplication of four floats, 4 instructions",
                ),
                Published::new(
                    WHO,
                    YEAR,
                    "icc -O2 -m64 -xavx",
                    "without: 4 multiplications of one float, 13 instructions",
                ),
                Published::new(
                    WHO,
                    YEAR,
                    "ccpentium -c -O2 -m64 (GNU)",
                    "without: a loop of 4 multiplications of one float",
                ),
            ],
            runs: &[Run { bench: "compute", figures: &[("product of four floats", "")], ..Run::NONE }],
            differs: "the same function in Rust, with arguments that may overlap and that may not: 13 instructions, and 5 (4 with AVX), by rustc 1.95; the bench measures their time",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/dispatch",
            what: "Vector length chosen at run time by the features of the CPU",
            published: &[Published::new(
                WHO,
                YEAR,
                "Intel compiler and performance primitives",
                "adjusts to the CPU without compiling again (no figure)",
            )],
            runs: &[Run { bench: "compute", figures: &[("matrix times vector on one CPU: f32", "")], ..Run::NONE }],
            differs: "matrix times vector at each vector length of the CPU",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/tools",
            what: "SystemViewer, ProfileScope, MemScope, StethoScope, CoverageScope",
            shown: "tahti trace, with events of the programs themselves; tahti profile; tahti profile --memory; tahti scope; tahti report with the compiler's coverage, tahti profile --coverage (docs/reference/measuring.md, docs/reference/profile.md, docs/reference/scope.md)",
            differs: "blocks that are not freed are counted from the start of a program; of a running one, the first use of each page. Coverage is drawn after the program has ended",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/hyper-threads",
            what: "Hyper-threading is not useful for real time: no fair assignment of CPU time, and memory bandwidth is the limit",
            published: &[Published::new(WHO, YEAR, SERVERS, "not useful for real time (no figure)")],
            runs: &[Run {
                bench: "compute",
                figures: &[("two threads on one core", "")],
                // On CPUs that share no core it has no figure.
                by_hand: true,
                ..Run::NONE
            }],
            shown: "tahti doctor reports the siblings of real-time CPUs (docs/reference/doctor.md)",
            needs: "two CPUs that share a core",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/adaptive-optics",
            what: "The use: SPARTA, a real-time computer for adaptive optics",
            published: &[
                Published::new(
                    "DARC",
                    "2010",
                    "PC, CPU",
                    "three sensors, 52 actuators: 245 us, 11 us rms from frame to frame (arXiv 1010.3209)",
                ),
                Published::new(
                    "DARC",
                    "2019",
                    "Xeon Phi",
                    "a matrix of 5,318 x 9,232: 511 us, 15 us rms, 150,000 frames (Jenkins, Durham)",
                ),
                Published::new("METIS", "2024", "two A100", "about 372 us (SPIE 13101-131013V)"),
                Published::new(
                    "pyRTC 1.0",
                    "2025",
                    "Ryzen 9950X3D, RTX 5090",
                    "p99 of a whole loop, CPU and GPU: 10 x 10 12.8 and 195 us, 20 x 20 37.6 and 197 us, 60 x 60 3731 and 290 us",
                ),
            ],
            runs: &[Run {
                bench: "ao",
                quick: &["--frames", "300"],
                smallest: &["--frames", "200"],
                must: &[("across", "40")],
                figures: &[("a frame of", "one CPU"), ("a frame of", "two CPUs")],
                ..Run::NONE
            }],
            differs: "SPARTA's own figures are not in the paper; later publications are listed instead",
            ..Entry::NONE
        },
        Entry {
            key: "vxworks/ptp",
            what: "Outlook: IEEE 1588 clocks, FPGA access, clusters",
            needs: "a network card with a hardware clock (tahti doctor reports it)",
            ..Entry::NONE
        },
    ],
};
