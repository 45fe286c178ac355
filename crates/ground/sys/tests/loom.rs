//! Checks with loom every order in which a team's threads may see each other's writes:
//! `RUSTFLAGS="--cfg loom" cargo test --package sys --test loom --release`.
#![cfg(loom)]
#![allow(unsafe_code, reason = "memory that loom watches is shared on purpose")]

use loom::cell::UnsafeCell;
use loom::thread;
use sys::turn::{Lead, Member, Place, team};

/// Memory for which loom reports an access during a concurrent write.
#[derive(Debug)]
struct Watched(UnsafeCell<u64>);

impl Watched {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn read(&self) {
        self.0.with(|_| ());
    }

    fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

// SAFETY: loom checks in these tests that no thread accesses it while another one writes.
unsafe impl Sync for Watched {}

/// Works for `turns` turns, sleeping between them.
fn work(mut member: Member<Watched, Watched>, turns: usize) {
    for _ in 0..turns {
        loop {
            if let Some((shared, part)) = member.turn() {
                shared.read();
                part.write();
                break;
            }
            if member.is_closed() {
                return;
            }
            member.sleep();
        }
        member.pass();
    }
}

fn await_back(lead: &Lead<Watched, Watched>, member: usize) -> Place {
    loop {
        match lead.place(member) {
            Place::Out => lead.sleep(member, None),
            place => return place,
        }
    }
}

#[test]
fn a_part_has_one_owner_at_a_time_and_no_thread_sleeps_for_ever() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (mut lead, mut members) = team(Watched::new(), vec![Watched::new()]);
        let member = members.remove(0);
        let worker = thread::spawn(move || work(member, 2));
        assert_eq!(await_back(&lead, 0), Place::Back);
        lead.part(0).unwrap().write();
        lead.shared_mut().unwrap().write();
        lead.pass(0);
        lead.shared().read();
        // The lead is dropped while the member works, passes, or sleeps.
        drop(lead);
        worker.join().unwrap();
    });
}

#[test]
fn shared_data_is_changed_only_while_no_member_has_a_turn() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(1);
    model.check(|| {
        let (mut lead, members) = team(Watched::new(), vec![Watched::new(), Watched::new()]);
        let workers: Vec<_> = members.into_iter().map(|member| thread::spawn(move || work(member, 2))).collect();
        assert_eq!((await_back(&lead, 0), await_back(&lead, 1)), (Place::Back, Place::Back));
        lead.shared_mut().unwrap().write();
        lead.pass(0);
        lead.pass(1);
        if let Some(shared) = lead.shared_mut() {
            shared.write();
        }
        drop(lead);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn a_member_that_ends_in_its_turn_wakes_the_lead_and_leaves_its_part() {
    loom::model(|| {
        let (mut lead, mut members) = team(Watched::new(), vec![Watched::new()]);
        let mut member = members.remove(0);
        let worker = thread::spawn(move || member.turn().unwrap().1.write());
        assert_eq!(await_back(&lead, 0), Place::Gone);
        lead.part(0).unwrap().write();
        worker.join().unwrap();
    });
}
