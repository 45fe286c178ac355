//! EPICS on VME boards at KEK.

use super::{ANY, Entry, Paper, Run};
use report::Published;

const WHO: &str = "KEK";
const YEAR: &str = "1997";
const POWERPC: &str = "PowerCore-6604, PowerPC 604e 200 MHz, VxWorks 5.3 beta, EPICS 3.12";
const M68K: &str = "SYS68K/CPU-40, MC68040 25 MHz, VxWorks 5.2, EPICS 3.12";

/// Cases of `bench ioc` run apart, so that one of them can be repeated alone.
const fn ioc(
    full: &'static [&'static str],
    quick: &'static [&'static str],
    figures: &'static [(&'static str, &'static str)],
) -> Run {
    Run { bench: "ioc", full, quick, smallest: quick, figures, ..Run::NONE }
}

pub(super) const PAPER: Paper = Paper {
    cited: "J. Odagiri, A. Akiyama, N. Yamamoto, T. Katoh (KEK): Performance Evaluation of EPICS on PowerPC, 1997",
    entries: &[
        Entry {
            key: "kek/ioc",
            what: "The IOC: run-time database with scanners and monitors, Channel Access server, device support",
            shown: "tahti ioc (docs/reference/ioc.md)",
            ..Entry::NONE
        },
        Entry {
            key: "kek/database",
            what: "The benchmark database of ANL/APS: 300 record processings a scan",
            runs: &[
                ioc(&["--only", "database-"], &["--quick", "--only", "database-"], &[("database-", "CPU per record")]),
                ioc(&["--only", "periodic-"], &["--quick", "--only", "periodic-"], &[("periodic-", "CPU per record")]),
            ],
            differs: "the original database is lost; ours is made from its description, in two readings (F: forward links, P: process-passive inputs)",
            ..Entry::NONE
        },
        Entry {
            key: "kek/scan-load",
            what: "Table II: CPU load at scan periods of 1.0, 0.5, 0.2 and 0.1 s, 100 records monitored",
            published: &[
                Published::new(WHO, YEAR, POWERPC, "0.60, 1.2, 3.0, 6.1 %"),
                Published::new(WHO, YEAR, M68K, "5.8, 12, 27, 56 %"),
            ],
            runs: &[ioc(&["--only", "periods"], &["--quick", "--only", "periods"], &[("periods:", "second")])],
            ..Entry::NONE
        },
        Entry {
            key: "kek/search",
            what: "Tables III and IV: ca_search, with CPU load and network load",
            published: &[
                Published::new(WHO, YEAR, POWERPC, "953 us, 98 % CPU, 17 % of 10 Mbit/s"),
                Published::new(WHO, YEAR, M68K, "1189 us, 68 % CPU, 20 % of 10 Mbit/s"),
            ],
            runs: &[ioc(
                &["--only", "connect"],
                &["--quick", "--only", "connect"],
                &[("connect:", "search: time"), ("connect:", "search: CPU load"), ("connect:", "search: traffic")],
            )],
            ..Entry::NONE
        },
        Entry {
            key: "kek/transfer",
            what: "Tables III and IV: ca_put, ca_get and both alternating, with CPU load and network load",
            published: &[
                Published::new(
                    WHO,
                    YEAR,
                    POWERPC,
                    "put 23, get 58, put and get 76 us; CPU 52, 18, 30 %; network 75, 50, 60 % of 10 Mbit/s",
                ),
                Published::new(
                    WHO,
                    YEAR,
                    M68K,
                    "put 109, get 118, put and get 246 us; CPU 100, 82, 88 %; network 18, 25, 20 % of 10 Mbit/s",
                ),
            ],
            runs: &[ioc(
                &["--only", "transfer"],
                &["--quick", "--only", "transfer"],
                &[("transfer:", ": time"), ("transfer:", ": CPU load"), ("transfer:", ": traffic")],
            )],
            ..Entry::NONE
        },
        Entry {
            key: "kek/interrupt",
            what: "Table V: from a VME interrupt to its vector, and to the first instruction of the service routine",
            published: &[
                Published::new(WHO, YEAR, POWERPC, "vector 1.0 us, service routine 6.0 us"),
                Published::new(WHO, YEAR, M68K, "vector 2.1 us, service routine 5.4 us"),
            ],
            runs: &[Run {
                bench: "response",
                full: &[
                    "--device", "uio0", "--raise", "0x60=1", "--clear", "0x64=1", "--load", "none", "--events", "40000",
                ],
                quick: &["--device", "uio0", "--raise", "0x60=1", "--clear", "0x64=1", "--load", "none"],
                must: &[("device", ANY), ("load", "none"), ("policy", "fifo:80")],
                figures: &[("stages of the response", "until the handler is entered")],
                by_hand: true,
                ..Run::NONE
            }],
            differs: "from the write of the register that raises the interrupt, with the bus, to the kernel's event at the handler",
            needs: "a device that interrupts, bound to UIO or VFIO (docs/how-to/drive-a-device-from-user-space.md)",
            ..Entry::NONE
        },
        Entry {
            key: "kek/post-event",
            what: "Table VI: from an interrupt that posts an event to the first and second record that it processes",
            published: &[
                Published::new(WHO, YEAR, POWERPC, "first 12.5 us, second 19.5 us"),
                Published::new(WHO, YEAR, M68K, "first 73 us, second 122 us"),
            ],
            runs: &[Run {
                bench: "response",
                full: &["--device", "uio0", "--raise", "0x60=1", "--clear", "0x64=1", "--ioc", "--events", "40000"],
                quick: &["--device", "uio0", "--raise", "0x60=1", "--clear", "0x64=1", "--ioc", "--events", "4000"],
                must: &[("device", ANY), ("ioc", "true")],
                figures: &[("to the records of the IOC", "until")],
                by_hand: true,
                ..Run::NONE
            }],
            differs: "from the write of the register that raises the interrupt; a thread of the IOC takes the interrupt, and another one, in a \
                      real-time class, scans. `tahti bench ioc --only event` measures the last step alone: from the time stamp of the record that \
                      posts the event to the stamps of the records that it processes, on the same thread",
            needs: "a device that interrupts, bound to UIO",
            ..Entry::NONE
        },
    ],
};
