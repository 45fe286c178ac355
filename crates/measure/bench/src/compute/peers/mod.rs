//! Matrix times vector by other libraries, alternating with ours: OpenBLAS, numpy, `faer`; half precision against single.

#[cfg(feature = "faer")]
mod faer;
mod program;

use super::{Args, WARM};
use crate::{BenchResult, Failed, Progress};
use kernels::{F16, Level, Panels};
use program::Program;
use report::{Figure, Row, Table, Target};
use std::hint::black_box;
use sys::clock::mono_now;

/// Minimum bytes of a timed call: small matrices are multiplied repeatedly.
const BYTES: usize = 8 << 20;
/// Rows from which on a matrix of f32 exceeds any CPU's second cache: 4 MiB.
const THIRD_CACHE: usize = 1024;

/// An element of the common matrix.
pub(super) fn element(row: usize, column: usize) -> f32 {
    ((row * 31 + column * 17) % 101) as f32 / 50.0 - 1.0
}

/// An implementation.
enum Peer {
    Program(Program),
    #[cfg(feature = "faer")]
    Faer,
}

/// One of a peer's calls: of a matrix that is stored by rows or by columns.
struct Call {
    peer: usize,
    by_rows: bool,
    times_ns: Vec<f64>,
}

/// The available peers in the order of the rows, with setup lines and notes.
struct Peers {
    all: Vec<(&'static str, Peer)>,
    setup: Vec<String>,
    notes: Vec<String>,
}

impl Peers {
    fn find(args: &Args) -> Self {
        let mut peers = Self { all: Vec::new(), setup: Vec::new(), notes: Vec::new() };
        let openblas = Program::openblas(&args.openblas);
        peers.add("OpenBLAS", openblas, "apt install libopenblas0 gcc, or name the library with --openblas FILE");
        peers.add(
            "numpy",
            Program::numpy(&args.python),
            "apt install python3-numpy, or name an interpreter with --python PROGRAM",
        );
        #[cfg(feature = "faer")]
        peers.all.push(("faer", Peer::Faer));
        #[cfg(not(feature = "faer"))]
        peers.notes.push("faer: not compared with; build with `--features faer` for it".into());
        peers
    }

    fn add(&mut self, name: &'static str, started: Result<Program, Failed>, remedy: &str) {
        match started {
            Ok(program) => {
                self.setup.push(format!("{name}: {}, one thread", program.version.trim()));
                self.all.push((name, Peer::Program(program)));
            }
            Err(why) => self.notes.push(format!("{name}: not compared with ({why}); {remedy}")),
        }
    }
}

pub(super) fn measure(args: &Args, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let mut peers = Peers::find(args);
    let level = Level::best();
    let mut compared = Table::new(format!(
        "matrix times vector on one CPU, f32 by `{level}`, compared with the better call of each library"
    ))
    .columns("tahti", "library");
    let mut half =
        Table::new("matrix times vector on one CPU: f16 stored, divided by f32 stored").columns("f16", "f32");
    for (place, &size) in args.sizes.iter().enumerate() {
        progress.at(place, args.sizes.len(), &format!("{size} rows and columns with other libraries"));
        let mut of_size = OfSize::new(size, level);
        let mut calls: Vec<Call> = (0..peers.all.len())
            .flat_map(|peer| [true, false].map(|by_rows| Call { peer, by_rows, times_ns: Vec::new() }))
            .collect();
        let (mut single, mut halves) = (Vec::new(), Vec::new());
        for round in 0..=args.rounds {
            let ours = of_size.ours();
            let ours_half = of_size.halves();
            for call in &mut calls {
                let (name, peer) = &mut peers.all[call.peer];
                let took = of_size.theirs(name, peer, call.by_rows)?;
                // The first round warms the caches.
                if round > 0 {
                    call.times_ns.push(took);
                }
            }
            if round > 0 {
                single.push(ours);
                halves.push(ours_half);
            }
        }
        for (number, (name, _)) in peers.all.iter().enumerate() {
            let of = calls.iter().filter(|call| call.peer == number);
            let of = of.filter_map(|call| Some((call.by_rows, Figure::median(call.times_ns.clone())?)));
            let Some((by_rows, best)) = of.min_by(|one, two| one.1.value.total_cmp(&two.1.value)) else { continue };
            let row = Row::samples(format!("{size} x {size}, {name}"), "us", single.clone());
            let row = row.note(if by_rows { "library by rows" } else { "library by columns" });
            compared.rows.push(row.target(Target::ratio_at_most(1.0)).against(Some(best)));
        }
        let row = Row::samples(format!("{size} x {size}"), "us", halves).against(Figure::median(single));
        half.rows.push(if size >= THIRD_CACHE { row.target(Target::ratio_at_most(0.6)) } else { row });
    }
    let mut tables = vec![half];
    if !compared.rows.is_empty() {
        tables.insert(0, compared);
    }
    Ok(BenchResult { setup: peers.setup, tables, notes: peers.notes })
}

/// The matrices of one size.
struct OfSize {
    size: usize,
    times: usize,
    level: Level,
    panels: Panels<f32>,
    halves: Panels<F16>,
    #[cfg(feature = "faer")]
    stored: [Vec<f32>; 2],
    x: Vec<f32>,
    y: Vec<f32>,
}

impl OfSize {
    fn new(size: usize, level: Level) -> Self {
        let half = |row, column| F16::from_f32(element(row, column));
        Self {
            size,
            times: BYTES.div_ceil(size * size * 4),
            level,
            panels: Panels::pack_with(size, size, element, sys::mem::on_huge_pages),
            halves: Panels::pack_with(size, size, half, sys::mem::on_huge_pages),
            #[cfg(feature = "faer")]
            stored: [true, false].map(|by_rows| {
                let place = |at: usize| if by_rows { (at / size, at % size) } else { (at % size, at / size) };
                (0..size * size).map(place).map(|(row, column)| element(row, column)).collect()
            }),
            x: vec![0.5; size],
            y: vec![0.0; size],
        }
    }

    /// Microseconds of a call, after [`WARM`] untimed ones.
    fn timed(times: usize, mut call: impl FnMut()) -> f64 {
        (0..WARM).for_each(|_| call());
        let begun = mono_now();
        (0..times).for_each(|_| call());
        (mono_now() - begun).0 as f64 / (times * 1000) as f64
    }

    fn ours(&mut self) -> f64 {
        let Self { level, panels, x, y, .. } = self;
        Self::timed(self.times, || panels.multiply(*level, black_box(x), black_box(y)).expect("sizes that fit"))
    }

    fn halves(&mut self) -> f64 {
        let Self { level, halves, x, y, .. } = self;
        Self::timed(self.times, || halves.multiply(*level, black_box(x), black_box(y)).expect("sizes that fit"))
    }

    /// The same of a peer, whose result is checked.
    fn theirs(&mut self, name: &str, peer: &mut Peer, by_rows: bool) -> Result<f64, Failed> {
        let (took, sum) = match peer {
            Peer::Program(program) => program.products(by_rows, self.size, self.times)?,
            #[cfg(feature = "faer")]
            Peer::Faer => {
                faer::products(by_rows, &self.stored[usize::from(!by_rows)], &self.x, &mut self.y, self.times)
            }
        };
        self.panels.multiply(self.level, &self.x, &mut self.y).expect("sizes that fit");
        let ours: f64 = self.y.iter().map(|y| f64::from(*y)).sum();
        let bound = 1e-5 * (self.size * self.size) as f64;
        if (ours - sum).abs() <= bound {
            return Ok(took / (self.times * 1000) as f64);
        }
        Err(Failed::answer(format!("{name}, {} rows and columns", self.size), format!("a sum of {ours}"), sum))
    }
}
