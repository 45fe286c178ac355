//! Begins and ends the parts of tahti that change the machine in every order, on the model of the kernel. Each part must end
//! released, and the final state of the machine must equal its initial state.

mod model;

use base::{Deadline, DurNs, Policy, Priority};
use host::partition::Ground;
use host::plan::{GUARD, PlanError, Want};
use host::plant::Partition;
use keep::partition::{lower, raise, resctrl};
use keep::shield::machine::RealMachine;
use keep::shield::{Error, ShieldGroup, apply_on, release_on, repair_on};
use model::four::{NO_CGROUP, V1, V2, as_can_be_told, boot};
use model::{Dir, Machine};
use sys::kernel::Kernel as _;
use testkit::kernel::{Task, TaskKind};

/// A part of tahti that changes the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// `tahti shield apply` and `release`.
    Shield,
    /// A partition of a plant.
    Partition,
    /// `tahti run --policy fifo:10` with its guard.
    Run,
    /// A process of a plant with frames, in the shield if there is one, and the supervisor's guard.
    Plant,
    /// A check of the shield, and at its end the forced release of anything that is still applied.
    Restore,
}

const PARTS: [Part; 5] = [Part::Shield, Part::Partition, Part::Run, Part::Plant, Part::Restore];

/// A part begins (`true`) or ends (`false`).
type Event = (Part, bool);

const RESERVED: Policy =
    Policy::Deadline(Deadline { runtime: DurNs::from_ms(1), deadline: DurNs::from_ms(10), period: DurNs::from_ms(10) });

struct World {
    machine: Machine,
    shield: Dir,
    plant: Dir,
    place: Option<ShieldGroup>,
}

impl World {
    fn new((version, rest): (&str, &str)) -> Self {
        Self { machine: boot(version, rest), shield: Dir::new(), plant: Dir::new(), place: None }
    }

    /// Starts a process with one thread, a child of init.
    fn start(&self, tid: u32, comm: &str, policy: Policy) {
        let mut kernel = self.machine.0.borrow_mut();
        let parent = kernel.task(1).unwrap().clone();
        let task =
            Task { tgid: tid, comm: comm.into(), kind: TaskKind::User, start_ticks: tid.into(), policy, ..parent };
        kernel.start(tid, task);
    }

    /// Changes the shield while the guards have dropped their reservations, as tahti does.
    fn aside<T>(&self, act: impl FnOnce(&mut RealMachine<&Machine>) -> T) -> T {
        let guards: Vec<u32> = {
            let kernel = self.machine.0.borrow();
            kernel
                .tasks()
                .filter(|(_, task)| task.comm == GUARD && task.policy == RESERVED)
                .map(|(tid, _)| tid)
                .collect()
        };
        let set = |tid: u32, policy: Policy| self.machine.0.borrow_mut().set_policy(tid, policy);
        guards.iter().for_each(|tid| set(*tid, Policy::Fifo(Priority(99))).unwrap());
        let done = act(&mut RealMachine::new(&self.machine));
        // A guard that is not admitted again stays in the fixed-priority class.
        for tid in guards {
            let _ = set(tid, RESERVED);
        }
        done
    }

    fn act(&mut self, (part, begins): Event, when: &str) {
        match (part, begins) {
            (Part::Shield, true) => {
                let want = Want { cpus: "2".parse().unwrap(), ..Want::default() };
                let applied = self.aside(|machine| apply_on(machine, &want, &self.shield.0));
                let applied = applied.unwrap_or_else(|error| panic!("{when}: {error}"));
                assert_eq!(applied.drift, [], "{when}");
                self.place = Some(applied.place);
            }
            (Part::Shield, false) => {
                let released = self.aside(|machine| release_on(machine, &self.shield.0, false)).unwrap();
                assert!(released.is_whole(), "{when}: {released:?}");
                self.place = None;
            }
            (Part::Partition, true) => {
                let hmi = Partition { name: "hmi".into(), cache: Some(20), required: true, ..Partition::default() };
                let ground = Ground { resctrl: resctrl(&|path| (&self.machine).read(path).ok()), ..Ground::default() };
                let raised = raise(&mut RealMachine::new(&self.machine), &self.plant.0, &[hmi], ground, false);
                let raised = raised.unwrap_or_else(|error| panic!("{when}: {error}"));
                assert_eq!(raised.lacks, [] as [String; 0], "{when}");
            }
            (Part::Partition, false) => {
                let lowered = lower(&mut RealMachine::new(&self.machine), &self.plant.0).unwrap();
                assert_eq!(lowered.left, [] as [String; 0], "{when}");
            }
            (Part::Run, true) => {
                self.start(400, "sleep", Policy::Fifo(Priority(10)));
                self.start(401, GUARD, RESERVED);
            }
            (Part::Run, false) => [400, 401].iter().for_each(|tid| self.machine.0.borrow_mut().exit(*tid)),
            (Part::Plant, true) => {
                self.start(501, GUARD, RESERVED);
                self.start(500, "frame", Policy::Fifo(Priority(80)));
                if let Some(place) = &self.place {
                    let mut kernel = self.machine.0.borrow_mut();
                    place.entry().into_iter().for_each(|file| kernel.write(&file, "500").unwrap());
                    kernel.set_affinity(500, "2".parse().unwrap()).unwrap();
                }
            }
            (Part::Plant, false) => [500, 501].iter().for_each(|tid| self.machine.0.borrow_mut().exit(*tid)),
            (Part::Restore, true) => {
                self.aside(|machine| repair_on(machine, &self.shield.0))
                    .unwrap_or_else(|error| panic!("{when}: {error}"));
            }
            (Part::Restore, false) => {
                let released = self.aside(|machine| release_on(machine, &self.shield.0, true)).unwrap();
                assert!(released.is_whole(), "{when}: {released:?}");
                self.place = None;
            }
        }
    }
}

/// Every order in which these parts begin and end; each part ends after it began.
fn orders(parts: &[Part]) -> Vec<Vec<Event>> {
    fn go(waiting: &[Part], running: &[Part], so_far: &mut Vec<Event>, all: &mut Vec<Vec<Event>>) {
        if waiting.is_empty() && running.is_empty() {
            all.push(so_far.clone());
        }
        let without = |list: &[Part], part: Part| list.iter().copied().filter(|one| *one != part).collect::<Vec<_>>();
        for part in waiting {
            so_far.push((*part, true));
            go(&without(waiting, *part), &[running, &[*part]].concat(), so_far, all);
            so_far.pop();
        }
        for part in running {
            so_far.push((*part, false));
            go(waiting, &without(running, *part), so_far, all);
            so_far.pop();
        }
    }
    let mut all = Vec::new();
    go(parts, &[], &mut Vec::new(), &mut all);
    all
}

/// All sets with `count` parts.
fn sets(count: u32) -> Vec<Vec<Part>> {
    let chosen = |bits: u32| (0..).zip(PARTS).filter(|(nth, _)| bits >> nth & 1 == 1).map(|(_, part)| part).collect();
    (0..1u32 << PARTS.len()).filter(|bits| bits.count_ones() == count).map(chosen).collect()
}

const MACHINES: [(&str, &str); 4] = [("6.12.1", V1), ("6.12.1", V2), ("7.0.2", V2), ("6.12.1", NO_CGROUP)];

fn run(machine: (&str, &str), order: &[Event]) {
    let when = format!("{} {order:?}", machine.0);
    let mut world = World::new(machine);
    let before = world.machine.0.borrow().state();
    order.iter().for_each(|event| world.act(*event, &when));
    let expected = format!("{:#?}", as_can_be_told(&world.machine, machine.1, &before));
    let after = format!("{:#?}", world.machine.0.borrow().state());
    let differs: Vec<_> = expected.lines().zip(after.lines()).filter(|(old, new)| old != new).take(4).collect();
    assert!(expected == after, "{when}: the machine differs: {differs:#?}");
}

#[test]
fn every_pair_of_parts_in_every_order_restores_the_machine() {
    let mut count = 0;
    for machine in MACHINES {
        for order in sets(2).iter().flat_map(|parts| orders(parts)) {
            run(machine, &order);
            count += 1;
        }
    }
    println!("{count} orders of two parts");
    // Ten pairs, six orders each.
    assert_eq!(count, 10 * 6 * MACHINES.len());
}

/// One order in five of three parts, alternating between the machines: all 900 take a minute.
#[test]
fn three_parts_in_a_fifth_of_all_orders_restore_the_machine() {
    let mut count = 0;
    for (nth, order) in sets(3).iter().flat_map(|parts| orders(parts)).step_by(5).enumerate() {
        run(MACHINES[nth % MACHINES.len()], &order);
        count += 1;
    }
    println!("{count} orders of three parts");
    assert_eq!(count, 10 * 90 / 5);
}

#[test]
fn a_foreign_reservation_prevents_a_shield_and_is_reported_with_a_remedy() {
    for machine in MACHINES {
        let world = World::new(machine);
        world.start(600, "llrf", RESERVED);
        let before = world.machine.0.borrow().state();
        let want = Want { cpus: "2".parse().unwrap(), ..Want::default() };
        let refused = world.aside(|machine| apply_on(machine, &want, &world.shield.0)).unwrap_err();
        let Error::Plan(errors) = &refused else { panic!("{refused}") };
        assert!(matches!(&errors.0[..], [PlanError::Deadline { .. }]), "{refused}");
        let text = refused.to_string();
        assert!(
            text.contains("thread 600 (llrf) of process 600 (llrf)") && text.contains("try: end process 600"),
            "{text}"
        );
        assert_eq!(world.machine.0.borrow().state(), before);
    }
}
