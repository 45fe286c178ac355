//! An industrial packaging line of the OPEN-NEXT project.

use super::{Entry, Paper, Run};
use report::Published;

const WHO: &str = "HiPeRT Lab, OPEN-NEXT";
const YEAR: &str = "18 October 2017";
const HOST: &str = "Core i7-4770T, 4 cores, 2.5 GHz, Windows 7";

pub(super) const PAPER: Paper = Paper {
    cited: "HiPeRT Lab, University of Modena and Reggio Emilia: an OPEN-NEXT use case, 18 October 2017",
    entries: &[
        Entry {
            key: "open-next/cpu",
            what: "A high-priority task computes a prime number, two low-priority tasks compute pi: execution time at 0, 70 and 100 % interference",
            published: &[Published::new(WHO, YEAR, HOST, "up to 200 times the time; power management is one cause")],
            runs: &[Run {
                bench: "interference",
                full: &["--no-network", "--rounds", "20"],
                quick: &["--no-network", "--rounds", "4"],
                smallest: &["--no-network", "--rounds", "1"],
                must: &[("no_primes", "false"), ("work", "pi")],
                figures: &[("spread of the prime task", "maximum"), ("time of the prime task", "as measured")],
                ..Run::NONE
            }],
            differs: "one task and two threads of interference for each CPU; power management: with and without idle states, and the frequency governor of the shield",
            ..Entry::NONE
        },
        Entry {
            key: "open-next/network",
            what: "iperf3 at high priority with prime95 as interference, 20 runs on a gigabit network",
            published: &[Published::new(
                WHO,
                YEAR,
                "Core i7-4770T, Windows 7, gigabit network",
                "20 runs between about 820 and 950 Mbit/s (axis of a damaged slide)",
            )],
            runs: &[
                Run {
                    bench: "interference",
                    full: &["--no-primes", "--link", "1000", "--work", "fft", "--rounds", "20"],
                    quick: &["--no-primes", "--link", "1000", "--work", "fft", "--rounds", "2"],
                    smallest: &["--no-primes", "--link", "1000", "--work", "fft", "--rounds", "1"],
                    must: &[("no_network", "false"), ("link", "1000"), ("work", "fft"), ("ipv6", "false")],
                    figures: &[("a stream", "")],
                    ..Run::NONE
                },
                Run {
                    bench: "interference",
                    full: &["--no-primes", "--link", "1000", "--work", "fft", "--ipv6", "--rounds", "20"],
                    quick: &["--no-primes", "--link", "1000", "--work", "fft", "--ipv6", "--rounds", "2"],
                    smallest: &["--no-primes", "--link", "1000", "--work", "fft", "--ipv6", "--rounds", "1"],
                    must: &[("no_network", "false"), ("link", "1000"), ("work", "fft"), ("ipv6", "true")],
                    figures: &[("a stream", "")],
                    ..Run::NONE
                },
            ],
            differs: "a pair of virtual interfaces limited to 1000 Mbit/s between two network namespaces (real ones with --between); all computing \
                      tasks on the same machine; Fourier transforms as prime95 computes them",
            ..Entry::NONE
        },
        Entry {
            key: "open-next/goal",
            what: "The goal: the full bandwidth of the 100 Mbit/s link under real-time constraints",
            published: &[Published::new(WHO, YEAR, HOST, "100 Mbit/s (a goal)")],
            runs: &[Run {
                bench: "interference",
                full: &["--no-primes", "--rounds", "20"],
                quick: &["--no-primes", "--rounds", "4"],
                smallest: &["--no-primes", "--rounds", "1"],
                must: &[("no_network", "false"), ("link", "100"), ("ipv6", "false")],
                figures: &[("a stream", "")],
                ..Run::NONE
            }],
            differs: "a pair of virtual interfaces limited to 100 Mbit/s between two network namespaces (real ones with --between)",
            ..Entry::NONE
        },
        Entry {
            key: "open-next/isolation",
            what: "Isolation of components in space and time",
            shown: "tahti shield, [[process]] memory_max, [[partition]] (docs/explanation/shield.md, docs/reference/partitions.md)",
            ..Entry::NONE
        },
        Entry {
            key: "open-next/guests",
            what: "The proposed solution: Linux and Windows side by side under Xen, one core and 1387 MB each",
            shown: "tahti up examples/packaging, [[guest]] (docs/reference/partitions.md)",
            needs: "Windows, and KVM that starts an ordinary kernel, to measure next to it",
            ..Entry::NONE
        },
        Entry {
            key: "open-next/deadlines",
            what: "Hard, firm and soft deadlines: a late result fails the system, is useless, or loses usefulness",
            shown: "deadline, recovery and tolerate in the plant file (docs/explanation/frames.md)",
            ..Entry::NONE
        },
    ],
};
