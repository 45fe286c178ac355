//! A matrix times a vector by a team of real-time threads, each of which owns its rows: `cargo run --release -p rt --example team [WORKERS]`.

use base::{CpuId, CpuSet, DurNs};
use kernels::{Level, Panels};
use rt::team::{Team, TeamSpec, Worker};

const ROWS: usize = 1300;
const COLUMNS: usize = 3200;
const FRAMES: u32 = 1000;

/// A worker's part: its rows of the matrix, which it packs itself, and its rows of the result.
struct Part {
    rows: Panels<f32>,
    y: Vec<f32>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpus: Vec<CpuId> = sys::sched::affinity(0)?.iter().collect();
    let workers = std::env::args().nth(1).map_or(Ok(cpus.len() - 1), |workers| workers.parse())?;
    // The first CPU is the leader's. If there are fewer CPUs than threads, the remaining workers are not bound to a
    // CPU.
    let given = (1..=workers).map(|index| cpus.get(index).copied()).collect();
    sys::sched::set_affinity(0, &CpuSet::single(cpus[0]))?;
    let spec = TeamSpec { leader: Some(cpus[0]), spin: DurNs::from_us(200), ..TeamSpec::new("matrix", given) };

    let make = |me: Worker| {
        let rows = me.share(ROWS);
        let element = |row: usize, column: usize| ((rows.start + row) * 31 + column * 17) as f32 % 1.0;
        Part { rows: Panels::pack_with(rows.len(), COLUMNS, element, |_| ()), y: vec![0.0; rows.len()] }
    };
    let level = Level::best();
    let job = move |slopes: &Vec<f32>, part: &mut Part, _| {
        part.rows.multiply(level, slopes, &mut part.y).expect("as many columns as slopes");
    };
    let mut team = Team::start(spec, vec![0.5; COLUMNS], make, job)?;
    team.missing().for_each(|missing| eprintln!("{missing}"));

    let mut commands = vec![0.0; ROWS];
    let mut longest = vec![DurNs::ZERO; team.size()];
    for frame in 0..FRAMES {
        // Between two jobs only the leader accesses the shared data and the parts.
        team.shared_mut()?[0] = frame as f32;
        let times = team.run()?;
        longest.iter_mut().zip(times).for_each(|(longest, times)| *longest = (*longest).max(times.took));
        team.each(|me, part| commands[me.share(ROWS)].copy_from_slice(&part.y))?;
    }
    for (worker, (last, longest)) in team.times().iter().zip(longest).enumerate() {
        println!("worker {worker}: began after {}, took {}, at most {longest}", last.late, last.took);
    }
    Ok(())
}
