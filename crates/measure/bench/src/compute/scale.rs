//! More CPUs: an empty job, local and shared data, Amdahl's law.

use super::Args;
use super::team::{ADDITIONS, Crew, Kind, LONG, SHORT, crew, words, work};
use crate::failed::joined;
use crate::{Failed, Progress};
use base::{CpuId, CpuSet};
use report::{Figure, Good, Latency, Row, Table, Target};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use sys::clock::mono_now;
use sys::sched::set_affinity;

/// Pieces of a run of empty jobs.
const PIECES: usize = 8;
/// Empty jobs of a piece.
const EMPTY: usize = 10_000;
/// Steps of a whole computation: some hundred microseconds.
const STEPS: u64 = 200_000;
/// Pairs of computations in a round, by one CPU and by several: each is too short to give a stable figure on a shared machine.
const PAIRS: usize = 9;
/// Parallel shares, in percent.
const SHARES: [u64; 5] = [50, 75, 90, 95, 99];

/// Nanoseconds of a job of this kind with workers awake: waking one takes as long as several of these jobs.
fn timed(team: &mut Crew, kind: Kind) -> Result<f64, Failed> {
    team.shared_mut()?.kind = Kind::Empty;
    team.run()?;
    team.shared_mut()?.kind = kind;
    let begun = mono_now();
    team.run()?;
    Ok((mono_now() - begun).0 as f64)
}

/// Round trip of a word to another CPU by two threads that do nothing else: the hardware's part of a dispatch and a join.
/// In nanoseconds, for each piece.
fn to_and_fro(there: CpuId) -> Result<Vec<Vec<f64>>, Failed> {
    /// The number of the current turn, or the end.
    const HERE: u64 = 0;
    const THERE: u64 = 1;
    const OVER: u64 = 2;
    let word = &Own(AtomicU64::new(HERE));
    std::thread::scope(|scope| {
        let (tell, ready) = channel();
        let other = scope.spawn(move || {
            let bound = set_affinity(0, &CpuSet::single(there));
            if bound.is_err() || tell.send(()).is_err() {
                return bound;
            }
            loop {
                match word.0.load(Ordering::Acquire) {
                    THERE => word.0.store(HERE, Ordering::Release),
                    OVER => return bound,
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let piece = |_| {
            let mut piece = Vec::with_capacity(EMPTY);
            let mut last = mono_now();
            for _ in 0..EMPTY {
                word.0.store(THERE, Ordering::Release);
                while word.0.load(Ordering::Acquire) != HERE {}
                let now = mono_now();
                piece.push((now - last).0 as f64);
                last = now;
            }
            piece
        };
        // Sleeps until the other thread, which begins on this CPU, has moved to its own; it has ended if it cannot.
        let pieces = if ready.recv().is_ok() { (0..PIECES).map(piece).collect() } else { Vec::new() };
        word.0.store(OVER, Ordering::Release);
        joined(other.join().map(|bound| bound.map_err(Failed::from)))?;
        Ok(pieces)
    })
}

/// A word on a separate cache line, also separate from the next line.
#[repr(align(128))]
struct Own(AtomicU64);

/// Median and p99 of each piece.
fn of_pieces(pieces: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
    let sorted = |piece: &Vec<f64>| {
        let mut piece = piece.clone();
        piece.sort_by(f64::total_cmp);
        (piece[piece.len() / 2], piece[piece.len() * 99 / 100])
    };
    pieces.iter().map(sorted).unzip()
}

/// A dispatch and a join, by teams without and with time accounting. The end of a job is the start of the next: one clock reading per job.
pub(super) fn empty_jobs(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<Table, Failed> {
    let mut table = Table::new("dispatch and join of an empty job by two threads, one clock reading included")
        .columns("tahti", "round trip of a word");
    let (bare_medians, bare_p99s) = of_pieces(&to_and_fro(cpus[1])?);
    let (bare_median, bare_p99) = (Figure::median(bare_medians), Figure::median(bare_p99s));
    for (place, timed) in [false, true].into_iter().enumerate() {
        let called = if timed { ", with the team's time accounting" } else { "" };
        progress.at(2 * place, 4, "empty jobs");
        let mut team = crew(&cpus[..2], args.class, &words(), (SHORT, timed))?;
        team.shared_mut()?.kind = Kind::Empty;
        (0..EMPTY).try_for_each(|_| team.run().map(drop))?;
        let mut pieces = Vec::new();
        for _ in 0..PIECES {
            let mut piece = Vec::with_capacity(EMPTY);
            let mut last = mono_now();
            for _ in 0..EMPTY {
                team.run()?;
                let now = mono_now();
                piece.push((now - last).0 as f64);
                last = now;
            }
            pieces.push(piece);
        }
        let (medians, p99s) = of_pieces(&pieces);
        let mut all: Vec<u64> = pieces.iter().flatten().map(|ns| *ns as u64).collect();
        let target = |row: Row, limit| if timed { row.good(Good::Low) } else { row.target(Target::at_most(limit)) };
        let median = target(Row::samples(format!("median of each piece{called}"), "ns", medians), 200.0);
        let p99 = target(Row::samples(format!("p99 of each piece{called}"), "ns", p99s), 400.0);
        table = table
            .row(median.against(bare_median.clone()))
            .row(p99.against(bare_p99.clone()))
            .row(Row::reference(format!("all{called}"), Latency::of_times(&mut all)));
    }
    Ok(table)
}

/// The work per CPU is constant: total work divided by that of one CPU.
pub(super) fn locality(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<Vec<Table>, Failed> {
    let words = words();
    let mut teams = (1..=cpus.len())
        .map(|many| crew(&cpus[..many], args.class, &words, (SHORT, true)))
        .collect::<Result<Vec<_>, _>>()?;
    let kinds = [
        ("16 KiB local to each CPU", Kind::Local),
        ("16 MiB shared, words interleaved", Kind::Interleaved),
        ("16 MiB shared, one part per CPU", Kind::Regions),
    ];
    // By kind and size of team, round by round.
    let mut rates = vec![vec![Vec::new(); teams.len()]; kinds.len()];
    let (mut one_line, mut own_lines) = (vec![Vec::new(); teams.len()], vec![Vec::new(); teams.len()]);
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "local and shared data, alternating");
        for (kind, rates) in kinds.iter().zip(&mut rates) {
            let mut alone = 0.0;
            for (team, rates) in teams.iter_mut().zip(rates) {
                let rate = team.size() as f64 / timed(team, kind.1)?;
                alone = if team.size() == 1 { rate } else { alone };
                rates.push(rate / alone);
            }
        }
        for (place, team) in teams.iter_mut().enumerate() {
            one_line[place].push(timed(team, Kind::OneLine)? / ADDITIONS as f64);
            own_lines[place].push(timed(team, Kind::OwnLines)? / ADDITIONS as f64);
        }
    }
    let mut scaling = Table::new("work done by several CPUs, divided by that of one; constant work per CPU");
    scaling
        .notes
        .push("bars: # work done, | linear. Published: local data linear; shared data highest with 3 cores".into());
    for (kind, rates) in kinds.iter().zip(rates) {
        for (many, rates) in (1..).zip(rates).skip(1) {
            let row = Row::samples(format!("{}, {many} CPUs", kind.0), "times", rates).good(Good::High);
            let drawn = row.ours.as_ref().map(|ours| bar(ours.value, many as f64, cpus.len() as f64));
            let row = row.note(drawn.unwrap_or_default());
            let target = Target::at_least(0.95 * many as f64);
            scaling = scaling.row(if kind.1 == Kind::Local { row.target(target) } else { row });
        }
    }
    let mut ownership = Table::new("an addition to a counter that no other CPU reads");
    ownership = ownership.columns("separate lines", "one line");
    for (many, (own, one)) in (1..).zip(own_lines.into_iter().zip(one_line)) {
        let name = if many == 1 { "1 CPU".into() } else { format!("{many} CPUs") };
        ownership = ownership.row(Row::samples(name, "ns", own).good(Good::Low).against(Figure::median(one)));
    }
    Ok(vec![scaling, ownership])
}

/// Columns of a bar as long as the work of all CPUs.
const COLUMNS: f64 = 40.0;

/// A value as a bar, with a mark where it would be if it grew linearly.
fn bar(value: f64, linear: f64, most: f64) -> String {
    let column = |value: f64| ((value / most * COLUMNS).round().max(0.0) as usize).min(2 * COLUMNS as usize);
    let (filled, mark) = (column(value), column(linear).max(1));
    let cell = |at| match at {
        _ if at == mark - 1 => '|',
        _ if at < filled => '#',
        _ => ' ',
    };
    (0..filled.max(mark)).map(cell).collect()
}

/// One computation with a parallel share: measured speed-up and Amdahl's.
pub(super) fn amdahl(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<Table, Failed> {
    let words = words();
    let mut speeds = vec![vec![Vec::new(); SHARES.len()]; cpus.len() - 1];
    let mut state = 1;
    // One team at a time: the workers of two would compete for the CPUs.
    for (many, speeds) in (2..).zip(&mut speeds) {
        let mut team = crew(&cpus[..many], args.class, &words, (LONG, true))?;
        for round in 0..args.rounds {
            progress.at(round, args.rounds, &format!("Amdahl's law: one CPU and {many}, alternating"));
            for (pair, percent) in (0..PAIRS * SHARES.len()).zip(SHARES.iter().cycle()) {
                let speeds = &mut speeds[pair % SHARES.len()];
                let begun = mono_now();
                state = std::hint::black_box(work(STEPS, state));
                let alone = (mono_now() - begun).0 as f64;
                let parallel = STEPS * percent / 100;
                team.shared_mut()?.kind = Kind::Steps(parallel);
                let begun = mono_now();
                state = std::hint::black_box(work(STEPS - parallel, state));
                team.run()?;
                speeds.push(alone / (mono_now() - begun).0 as f64);
            }
        }
    }
    let mut table = Table::new("speed-up by parallel share of a computation").columns("measured", "Amdahl");
    for (many, speeds) in (2..).zip(speeds) {
        for (percent, speeds) in SHARES.iter().zip(speeds) {
            let share = *percent as f64 / 100.0;
            let law = 1.0 / (1.0 - share + share / many as f64);
            let row = Row::samples(format!("{percent} % on {many} CPUs"), "times", speeds).good(Good::High);
            let most = Figure::median(vec![law]).map_or(row.clone(), |law| row.against(Some(law)));
            table = table.row(most.note(format!("at most {:.1} on any number of CPUs", 1.0 / (1.0 - share))));
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_value_and_the_linear_mark() {
        let drawn = |value, linear| bar(value, linear, 4.0).replace("##########", "D");
        assert_eq!(drawn(4.0, 4.0), "DDD#########|");
        assert_eq!(drawn(1.0, 2.0), "D         |");
        assert_eq!(drawn(3.0, 2.0), "D#########|D");
        assert_eq!(drawn(0.0, 1.0), "         |");
    }
}
