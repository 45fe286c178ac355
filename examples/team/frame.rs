//! A team in an activity of a frame: in each call, the activity's thread and its workers multiply a matrix by a vector.
//! Each thread owns a part of the rows.
//!
//! Add it to a plant with `[[frame]]` as a process and start the plant with `tahti up`:
//! `cargo run --release -p rt --example team_in_frame -- FRAME ACTIVITY [CPU...]`. The CPUs are for the workers, and
//! must differ from the frame's.

use base::{CpuId, DurNs};
use kernels::{Level, Panels};
use rt::frames::Member;
use rt::team::{Team, TeamSpec, Worker};

const ROWS: usize = 256;
const COLUMNS: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(frame), Some(activity)) = (words.next(), words.next()) else {
        return Err(
            "expected FRAME ACTIVITY [CPU...]: a frame that `tahti up` has started, and one of its activities".into()
        );
    };
    let workers: Vec<Option<CpuId>> = words.map(|cpu| cpu.parse().map(Some)).collect::<Result<_, _>>()?;

    // The team starts before this thread joins the frame: workers inherit class and CPU, which the frame sets for this
    // thread.
    let make = |me: Worker| {
        let rows = me.share(ROWS);
        let element = |row: usize, column: usize| ((rows.start + row) * 31 + column * 17) as f32 % 1.0;
        (Panels::pack_with(rows.len(), COLUMNS, element, |_| ()), vec![0.0; rows.len()])
    };
    let level = Level::best();
    let job = move |x: &Vec<f32>, (rows, y): &mut (Panels<f32>, Vec<f32>), _: Worker| {
        rows.multiply(level, x, y).expect("as many columns as numbers");
    };
    // Workers poll for the next job a little longer than a minor frame lasts, so that they start without a wake-up.
    let spec = TeamSpec { spin: DurNs::from_ms(2), limit: DurNs::from_ms(50), ..TeamSpec::new("in-frame", workers) };
    let mut team = Team::start(spec, vec![0.5; COLUMNS], make, job)?;

    let mut member = Member::join(&frame, &activity, None, DurNs::from_secs(10))?;
    let (mut results, mut longest, mut calls) = (vec![0.0; ROWS], DurNs::ZERO, 0u64);
    while let Some(turn) = member.next_turn() {
        team.shared_mut()?[0] = turn.pulse as f32;
        longest = team.run()?.iter().fold(longest, |longest, times| longest.max(DurNs(times.late.0 + times.took.0)));
        team.each(|me, (_, y)| results[me.share(ROWS)].copy_from_slice(y))?;
        calls += 1;
    }
    println!("{calls} calls; a worker was done {longest} after the dispatch at most");
    Ok(())
}
