//! The parts of tahti that change the machine, each pair in every order of beginning and end, with the real program and
//! kernel. The guards of `tahti run` and of a plant reserve CPU time (DEADLINE), which the kernel ties to the CPU sets that
//! a shield changes.

use base::CpuSet;
use harness::plant::{Bench, sh};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use sys::process::Process;
use sys::root::RootDir;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// `tahti shield apply` and `release`.
    Shield,
    /// `tahti run --policy fifo:10`.
    Run,
    /// A plant with a real-time process.
    Plant,
}

/// A part begins (`true`) or ends (`false`).
type Event = (Part, bool);

/// Every order in which two parts begin and end; each part ends after it began.
fn orders(one: Part, other: Part) -> Vec<Vec<Event>> {
    let (a, b) = ([(one, true), (one, false)], [(other, true), (other, false)]);
    vec![
        vec![a[0], a[1], b[0], b[1]],
        vec![a[0], b[0], a[1], b[1]],
        vec![a[0], b[0], b[1], a[1]],
        vec![b[0], b[1], a[0], a[1]],
        vec![b[0], a[0], b[1], a[1]],
        vec![b[0], a[0], a[1], b[1]],
    ]
}

/// Settings, folders of control groups, requested interrupt masks, and the mask of init.
fn state() -> BTreeMap<String, String> {
    let snapshot = keep::machine::snapshot(&RootDir::machine(), &"0-3".parse::<CpuSet>().unwrap()).unwrap();
    let mut all = BTreeMap::new();
    all.extend(snapshot.files.iter().map(|(path, value)| (path.clone(), format!("{value:?}"))));
    all.extend(snapshot.irqs.iter().map(|(key, irq)| (format!("{key:?}"), irq.requested.to_string())));
    all.insert("control groups".to_owned(), format!("{:?}", snapshot.dirs));
    all.insert("init".to_owned(), sys::sched::affinity(1).unwrap().to_string());
    all
}

/// Scheduling policies of the threads called `tahti-guard`.
fn guards() -> Vec<String> {
    let mut all = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(threads) = std::fs::read_dir(process.path().join("task")) else { continue };
        for thread in threads.flatten() {
            let read = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            if read("comm").trim() == host::plan::GUARD {
                let sched = read("sched");
                let policy = sched.lines().find_map(|line| line.strip_prefix("policy"));
                all.extend(policy.map(|rest| rest.trim_matches([' ', ':']).to_owned()));
            }
        }
    }
    all
}

struct Machine {
    bench: Bench,
    run: Option<Child>,
}

impl Machine {
    fn shield(&self, words: &[&str]) {
        // Nothing is spared, as on a machine of its own.
        let output = self.bench.tahti(&[&["shield"], words].concat()).env_remove("TAHTI_SPARE").output().unwrap();
        assert!(output.status.success(), "shield {words:?}: {}", harness::process::text(&output));
    }

    fn act(&mut self, (part, begins): Event) {
        match (part, begins) {
            (Part::Shield, true) => self.shield(&["apply", "--cpus", "3"]),
            (Part::Shield, false) => self.shield(&["release"]),
            (Part::Run, true) => {
                let before = guards().len();
                let mut command = self.bench.tahti(&["run", "--policy", "fifo:10", "--", "sleep", "1000"]);
                self.run = Some(command.process_group(0).spawn().unwrap());
                self.bench.until("the guard runs", || guards().len() > before);
            }
            (Part::Run, false) => {
                let mut run = self.run.take().unwrap();
                Process::open(run.id() as i32).unwrap().signal(sys::signal::SIGTERM).unwrap();
                run.wait().unwrap();
            }
            (Part::Plant, true) => drop(self.bench.ok(&["up", ".", "--detach"])),
            // Also a plant that was up before the shield does not fail: its processes leave the shielded CPU as declared.
            (Part::Plant, false) => drop(self.bench.ok(&["down", "p"])),
        }
    }
}

#[test]
fn each_pair_of_parts_in_every_order_is_admitted_and_restores_the_machine() {
    testkit::guest::required();
    let bench = Bench::new("orders", &sh("loop", "sleep 1000", "class = \"fifo:20\"\ncpus = \"housekeeping\""));
    let mut machine = Machine { bench, run: None };
    let before = state();
    let mut count = 0;
    for (one, other) in [(Part::Shield, Part::Run), (Part::Shield, Part::Plant), (Part::Run, Part::Plant)] {
        for order in orders(one, other) {
            for event in &order {
                machine.act(*event);
                // FIFO: the kernel did not admit the reservation again, and the guard continues without one.
                let policies = guards();
                assert!(
                    policies.iter().all(|policy| policy == "6" || policy == "1"),
                    "{order:?}, {event:?}: {policies:?}"
                );
            }
            let after = state();
            let changed: Vec<_> = before.iter().filter(|(key, value)| after.get(*key) != Some(value)).collect();
            assert!(changed.is_empty() && after.len() == before.len(), "{order:?}: {changed:?}");
            assert_eq!(guards(), [] as [String; 0], "{order:?}");
            count += 1;
        }
    }
    println!("{count} orders");
}
