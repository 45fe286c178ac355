//! Matrix times vector by scalar code, by the compiler's vectors and by those of each level, compared with reading alone.

use super::peers::element;
use super::{Args, WARM};
use crate::{Failed, Progress};
use base::{CpuId, DurNs};
use kernels::{Level, PANEL, Panels};
use report::{Figure, Good, Latency, Row, Table, Target};
use rt::team::{Team, TeamSpec, Worker};
use std::cell::Cell;
use std::hint::black_box;
use sys::clock::mono_now;

/// Minimum bytes of a timed call: small matrices are multiplied repeatedly.
const BYTES: usize = 1 << 20;

/// Rows from which on memory bandwidth limits.
const ROWS_AT_ROOF: usize = 128;
/// Rows with half a matrix in the second cache, and long compared with a dispatch.
const LOCAL: std::ops::RangeInclusive<usize> = 512..=1024;
/// Pieces of the jobs of one CPU, alternating with those of several.
const PIECES: usize = 20;

/// The levels of this CPU, in words.
pub(super) fn levels() -> String {
    Level::all().map(Level::name).collect::<Vec<_>>().join(", ")
}

/// Column by column, without vectors.
#[inline(never)]
fn scalar(columns: &[f32], x: &[f32], y: &mut [f32]) {
    y.fill(0.0);
    for (column, x) in columns.chunks_exact(y.len()).zip(x) {
        for (y, a) in y.iter_mut().zip(column) {
            *y += a * x;
            // Prevents vectorisation by the compiler.
            black_box(());
        }
    }
}

/// Column by column, by the compiler's vectors: `y` does not alias, as with C's `restrict`.
#[inline(never)]
fn apart(columns: &[f32], x: &[f32], y: &mut [f32]) {
    y.fill(0.0);
    for (column, x) in columns.chunks_exact(y.len()).zip(x) {
        y.iter_mut().zip(column).for_each(|(y, a)| *y += a * x);
    }
}

/// The same if the three may overlap in memory, like pointers in C: the compiler has to check, or not to vectorise.
#[inline(never)]
fn perhaps_together(columns: &[Cell<f32>], x: &[Cell<f32>], y: &[Cell<f32>]) {
    y.iter().for_each(|y| y.set(0.0));
    for (column, x) in columns.chunks_exact(y.len()).zip(x) {
        y.iter().zip(column).for_each(|(y, a)| y.set(y.get() + a.get() * x.get()));
    }
}

/// Gigabytes of the matrix per second, after [`WARM`] untimed calls.
fn rate(bytes: usize, mut call: impl FnMut()) -> f64 {
    let times = BYTES.div_ceil(bytes);
    (0..WARM).for_each(|_| call());
    let begun = mono_now();
    (0..times).for_each(|_| call());
    (times * bytes) as f64 / (mono_now() - begun).0.max(1) as f64
}

/// Variants measured at each size, in addition to reading and the levels.
const PLAIN: [&str; 3] = ["scalar", "compiler, memory may overlap", "compiler, memory apart"];

pub(super) fn measure(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<Vec<Table>, Failed> {
    let levels: Vec<Level> = Level::all().collect();
    let mut tables = vec![
        Table::new("matrix times vector on one CPU: f32 of the matrix read").columns("tahti", "reading alone"),
        Table::new("matrix times vector: maximum times"),
    ];
    let title = format!(
        "matrix times vector by {} CPUs, each with its own rows: median of one CPU divided by theirs",
        cpus.len()
    );
    let mut speed = Table::new(title).columns("1 CPU", "all CPUs");
    for (place, &size) in args.sizes.iter().enumerate() {
        let step = format!("{size} rows and columns");
        progress.at(place, args.sizes.len(), &step);
        let mut columns: Vec<f32> = (0..size * size).map(|at| element(at % size, at / size)).collect();
        let panels = Panels::pack_with(size, size, element, sys::mem::on_huge_pages);
        let (mut x, mut y, bytes) = (vec![0.5f32; size], vec![0.0f32; size], size * size * 4);
        let mut roofs = Vec::new();
        let mut rates = vec![Vec::new(); PLAIN.len() + levels.len()];
        for round in 0..=args.rounds {
            // The machine's roof, as far as a plain loop finds it: the best of every level, in one stream and in several.
            let reads = levels.iter().flat_map(|level| [false, true].map(|streams| (*level, streams)));
            let roof = reads.map(|(level, streams)| {
                rate(bytes, || _ = black_box(kernels::read(level, black_box(&columns), streams)))
            });
            let roof = roof.fold(0.0, f64::max);
            let mut now = vec![
                rate(bytes, || scalar(black_box(&columns), black_box(&x), black_box(&mut y))),
                rate(bytes, || {
                    let of = |memory| Cell::from_mut(memory).as_slice_of_cells();
                    perhaps_together(
                        of(black_box(&mut columns[..])),
                        of(black_box(&mut x[..])),
                        of(black_box(&mut y[..])),
                    );
                }),
                rate(bytes, || apart(black_box(&columns), black_box(&x), black_box(&mut y))),
            ];
            for level in &levels {
                let call = || panels.multiply(*level, black_box(&x), black_box(&mut y)).expect("sizes that fit");
                now.push(rate(bytes, call));
            }
            // The first round warms the caches.
            if round > 0 {
                roofs.push(roof);
                rates.iter_mut().zip(now).for_each(|(rates, now)| rates.push(now));
            }
        }
        let best = Level::best();
        let names = PLAIN.iter().map(|name| ((*name).to_owned(), false));
        let names = names.chain(levels.iter().map(|level| (format!("explicit, {level}"), *level == best)));
        let roof = Figure::median(roofs);
        for ((name, is_best), rates) in names.zip(rates) {
            let row = Row::samples(format!("{size} x {size}, {name}"), "GB/s", rates).good(Good::High);
            let target = is_best && size >= ROWS_AT_ROOF;
            let row = if target { row.target(Target::ratio_at_least(0.9)) } else { row };
            tables[0].rows.push(row.against(roof.clone()));
        }
        let mut times = longest(args, cpus, size)?;
        let of = |times: &[u64]| Figure::median(times.iter().map(|ns| *ns as f64 / 1000.0).collect());
        if let [alone, together] = &times[..] {
            let row = Row { ours: of(alone), good: Good::High, ..Row::figure(format!("{size} x {size}"), "us", 0.0) };
            let local = LOCAL.contains(&size) && cpus.len() == 2;
            let row = if local { row.target(Target::ratio_at_least(1.9)) } else { row };
            speed.rows.push(without_samples(row.against(of(together))));
        }
        for (times, many) in times.iter_mut().zip([1, cpus.len()]) {
            let noun = if many == 1 { "CPU" } else { "CPUs" };
            let row = Row::reference(format!("{size} x {size}, {many} {noun}"), Latency::of_times(times));
            tables[1].rows.push(row.good(Good::Low));
        }
    }
    if cpus.len() > 1 {
        tables.push(speed);
    }
    Ok(tables)
}

/// A row whose figures are medians; the single times are too many for a report.
fn without_samples(mut row: Row) -> Row {
    for figure in [&mut row.ours, &mut row.other].into_iter().flatten() {
        figure.samples.clear();
    }
    row
}

/// A team whose workers own their rows of a matrix.
type Owners = Team<Vec<f32>, (Panels<f32>, Vec<f32>)>;

fn owners(args: &Args, cpus: &[CpuId], size: usize) -> Result<Owners, Failed> {
    let workers = cpus[1..].iter().map(|cpu| Some(*cpu)).collect();
    // As long as a piece of the other variants.
    let spin = DurNs::from_us(200);
    let limit = DurNs::from_ms(60_000);
    // This measurement times whole calls. The team's time accounting would add two clock readings by each thread.
    let spec = TeamSpec { class: args.class, spin, limit, timed: false, ..TeamSpec::new("matrix", workers) };
    let make = move |me: Worker| {
        let panels = me.share(size.div_ceil(PANEL));
        let (begin, end) = ((panels.start * PANEL).min(size), (panels.end * PANEL).min(size));
        let element = |row, column| element(begin + row, column);
        let rows = Panels::pack_with(end - begin, size, element, sys::mem::on_huge_pages);
        (rows, vec![0.0f32; end - begin])
    };
    let level = Level::best();
    let job = move |x: &Vec<f32>, (rows, y): &mut (Panels<f32>, Vec<f32>), _| {
        rows.multiply(level, x, y).expect("sizes that fit");
    };
    Ok(Team::start(spec, vec![0.5; size], make, job)?)
}

/// Nanoseconds of each multiplication by one CPU and by all, in alternating pieces.
fn longest(args: &Args, cpus: &[CpuId], size: usize) -> Result<Vec<Vec<u64>>, Failed> {
    let many = [1, cpus.len()].into_iter().take(cpus.len());
    let mut teams = many.map(|many| owners(args, &cpus[..many], size)).collect::<Result<Vec<_>, _>>()?;
    let mut times: Vec<_> = teams.iter().map(|_| Vec::with_capacity(args.jobs)).collect();
    for piece in 0..PIECES {
        let jobs = args.jobs * (piece + 1) / PIECES - args.jobs * piece / PIECES;
        for (team, times) in teams.iter_mut().zip(&mut times) {
            (0..10).try_for_each(|_| team.run().map(drop))?;
            for _ in 0..jobs {
                let begun = mono_now();
                team.run()?;
                times.push((mono_now() - begun).0 as u64);
            }
        }
    }
    Ok(times)
}
