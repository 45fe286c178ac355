//! A fork-join team on the test machine, with any privileges and any number of CPUs.

use base::{DurNs, Policy, Priority};
use kernels::{Level, Panels};
use rt::team::{Team, TeamError, TeamSpec, Worker};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// Workers without fixed CPUs, as test machines have few.
fn spec(workers: usize) -> TeamSpec {
    TeamSpec { limit: DurNs::from_ms(60_000), ..TeamSpec::new("test", vec![None; workers]) }
}

#[test]
fn a_matrix_product_has_the_same_bits_for_any_number_of_spinning_or_sleeping_workers() {
    let (rows, columns, level) = (203, 97, Level::best());
    let element = |row: usize, column: usize| ((row * 31 + column * 17) % 101) as f32 / 7.0 - 6.0;
    let vector =
        |round: usize| (0..columns).map(|column| ((column * 13 + round) % 29) as f32 - 14.0).collect::<Vec<_>>();
    let whole = Panels::pack_with(rows, columns, element, |_| ());
    for (workers, spin) in [(0, 0), (1, 0), (1, 50), (2, 50), (4, 0), (7, 50)] {
        let spec = TeamSpec { spin: DurNs::from_us(spin), ..spec(workers) };
        // Each worker packs its own rows.
        let make = move |me: Worker| {
            let rows = whole_rows(me, rows);
            let (begin, count) = (rows.start, rows.len());
            let part = Panels::pack_with(count, columns, |row, column| element(begin + row, column), |_| ());
            (part, vec![0.0f32; count])
        };
        let job = move |x: &Vec<f32>, (panels, y): &mut (Panels<f32>, Vec<f32>), _| {
            panels.multiply(level, x, y).unwrap();
        };
        let mut team = Team::start(spec, vec![0.0; columns], make, job).unwrap();
        assert_eq!(team.size(), workers + 1);
        for round in 0..20 {
            *team.shared_mut().unwrap() = vector(round);
            assert_eq!(team.run().unwrap().len(), workers + 1);
            let mut y = Vec::new();
            team.each(|_, (_, part)| y.extend_from_slice(part)).unwrap();
            let mut expected = vec![0.0; rows];
            whole.multiply(level, &vector(round), &mut expected).unwrap();
            assert_eq!(y, expected, "{workers} workers, round {round}");
        }
        assert!(team.times().iter().all(|times| times.took > DurNs::ZERO && times.late >= DurNs::ZERO));
    }
}

/// The rows of a worker's share of panels.
fn whole_rows(me: Worker, rows: usize) -> std::ops::Range<usize> {
    let panels = me.share(rows.div_ceil(kernels::PANEL));
    (panels.start * kernels::PANEL).min(rows)..(panels.end * kernels::PANEL).min(rows)
}

#[test]
fn each_part_is_created_and_used_by_one_thread_which_neither_allocates_nor_faults_in_jobs() {
    let me = |_: Worker| (sys::thread::id(), [0; 2]);
    let job = |_: &(), (tid, seen): &mut (i32, [u64; 2]), worker: Worker| {
        assert!(worker.index == 0 || *tid == sys::thread::id());
        *seen = [sys::alloc::thread_counts().unwrap_or_default().taken, sys::thread::usage().major_faults];
    };
    let mut team = Team::start(spec(2), (), me, job).unwrap();
    let seen = |team: &mut Team<(), (i32, [u64; 2])>| {
        let mut all = Vec::new();
        team.each(|_, (_, seen)| all.push(*seen)).unwrap();
        all
    };
    team.run().unwrap();
    let before = seen(&mut team);
    let taken = sys::alloc::thread_counts().unwrap_or_default().taken;
    (0..1000).for_each(|_| _ = team.run().unwrap());
    assert_eq!(sys::alloc::thread_counts().unwrap_or_default().taken, taken);
    // Reading all parts allocates on the leader's thread, so its count is not compared.
    assert_eq!(seen(&mut team)[1..], before[1..]);
}

#[test]
fn a_late_worker_is_named_and_the_team_continues_once_it_returns() {
    let (held, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (holds, counts) = (held.clone(), done.clone());
    let job = move |_: &u32, _: &mut (), me: Worker| {
        while me.index == 2 && holds.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        counts.fetch_add(1, Ordering::AcqRel);
    };
    let spec = TeamSpec { limit: DurNs::from_ms(20), ..spec(3) };
    let mut team = Team::start(spec, 1, |_| (), job).unwrap();
    let late = |error: TeamError| matches!(error, TeamError::Late { worker: 2, .. });
    // On a busy machine other workers may be late, too.
    while !late(team.run().unwrap_err()) {}
    while done.load(Ordering::Acquire) % 4 != 3 {
        std::thread::yield_now();
    }
    assert!(late(team.run().unwrap_err()), "again, immediately");
    assert!(late(team.shared_mut().unwrap_err()), "it is accessible");
    assert_eq!(*team.shared(), 1);
    assert!(team.run().unwrap_err().to_string().starts_with("worker 2 is still in its job"));
    held.store(false, Ordering::Release);
    while let Err(error) = team.run() {
        assert!(matches!(error, TeamError::Late { .. }), "{error}");
    }
    *team.shared_mut().unwrap() = 2;
}

#[test]
fn a_worker_that_panics_is_named_permanently_and_the_others_end() {
    let job = |_: &(), _: &mut (), me: Worker| assert!(me.index != 1, "a deliberate fault of the job");
    let mut team = Team::start(spec(2), (), |_| (), job).unwrap();
    for _ in 0..2 {
        assert!(matches!(team.run().unwrap_err(), TeamError::Gone { worker: 1 }));
    }
    let make = |me: Worker| assert!(me.index != 2, "a deliberate fault of the constructor");
    let refused = Team::start(spec(2), (), make, |(), (), _| ());
    assert!(matches!(refused.err(), Some(TeamError::Gone { worker: 2 })));
}

#[test]
fn shared_missing_or_too_few_cpus_are_refused() {
    let start = |spec: TeamSpec| Team::start(spec, (), |_| (), |(), (), _| ()).err().map(|error| error.to_string());
    let cpus = sys::sched::affinity(0).unwrap();
    let here = cpus.lowest().unwrap();
    let twice = TeamSpec { leader: Some(here), ..TeamSpec::new("test", vec![Some(here)]) };
    assert_eq!(start(twice).unwrap(), format!("CPU {here} is given to two of the team; expected a CPU for each"));
    let absent = start(TeamSpec::new("test", vec![None, Some(1000)])).unwrap();
    assert!(
        absent.starts_with("worker 2: CPU 1000: ") && absent.contains("expected a CPU of this process"),
        "{absent}"
    );
    let crowded =
        TeamSpec { class: Some(Policy::Fifo(Priority(1))), ..TeamSpec::new("test", vec![None; cpus.count()]) };
    let refused = start(crowded).unwrap();
    assert!(refused.contains(&format!("has {} CPUs; expected a CPU for each", cpus.count())), "{refused}");
    assert_eq!(start(TeamSpec { leader: Some(here), ..TeamSpec::new("test", vec![]) }), None, "the leader alone");
}

#[test]
fn workers_create_their_parts_in_parallel() {
    // Each worker waits until all have arrived.
    let all = Arc::new(Barrier::new(3));
    let team = Team::start(spec(2), (), move |_| _ = all.wait(), |(), (), _| ()).unwrap();
    assert_eq!(team.tids().count(), 2);
}
