//! `tahti bench compute`: what more CPUs, and wider vectors, do for arithmetic, and what they cannot do.

mod beside;
mod card;
mod products;
mod scale;
mod simd;
mod spots;
mod team;

use crate::failed::joined;
use crate::measure::{settle, usable};
use crate::{Bench, Failed, Found, Progress, read};
use base::{CpuId, CpuSet, Policy};
use clap::{ArgMatches, Args as _};
use std::path::PathBuf;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "compute",
    experiment: "VxWorks on multi-core: local and shared data over the CPUs, Amdahl's law, vector instructions",
    arguments: Args::augment_args,
    run,
    wanted: "an empty job of two threads in at most 200 ns; two CPUs 1.9 times as fast where data is local; matrix times vector at 0.9 of \
             reading alone, measured beside it, from 128 rows on, and in no more time than the better of OpenBLAS's calls takes at every size; f16 \
             in 0.6 of the time of f32 from 1024 rows on; the centres of 1,240 spots in 15 us",
    quick: &["--rounds", "4", "--sizes", "64,256", "--jobs", "200"],
    shields: false,
};

/// What more CPUs and wider vectors do for arithmetic: local and shared data, Amdahl's law, scalar and vector code, the longest times
///
/// All that is compared runs in turn in one process; its threads stay on their CPUs. With one CPU only vectors are measured.
#[derive(clap::Args)]
struct Args {
    /// How often each is measured
    #[arg(long, default_value_t = 16)]
    rounds: usize,
    /// CPUs to measure on, the leader's first; all of this process if not given
    #[arg(long)]
    cpus: Option<CpuSet>,
    /// Class of the threads; as this program's if not given
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
    /// Rows, and columns, of the matrices
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_value = "64,128,256,512,1024,2048,4096")]
    sizes: Vec<usize>,
    /// Jobs of which the longest times are told
    #[arg(long, default_value_t = 2000)]
    jobs: usize,
    /// OpenBLAS's library, to compare with
    #[arg(long, value_name = "FILE", env = "TAHTI_OPENBLAS", default_value = "libopenblas.so.0")]
    openblas: PathBuf,
    /// A Python that has numpy, to compare with
    #[arg(long, value_name = "PROGRAM", env = "TAHTI_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Compare with a graphics card, transfers included
    #[arg(long)]
    gpu: bool,
}

/// Calls before those that are timed: a loop multiplies by one matrix all the time, here others' matrices lie between. A third cache that is shared
/// takes some six passes through 67 MB until it keeps them again: after one pass alone, f16 of 4096 rows took 0.79 of the time of f32, after eight 0.51.
const WARM: usize = 8;

/// Rows of the largest matrix: a GiB of f32.
const ROWS_MAX: usize = 16_384;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, Failed> {
    let args: Args = read(matches)?;
    let ours = sys::sched::affinity(0)?;
    let cpus = args.cpus.unwrap_or(ours);
    usable(&cpus, &format!("--cpus {cpus}"))?;
    if args.rounds == 0 || args.jobs == 0 {
        return Err(Failed::argument(format!("--rounds {} --jobs {}", args.rounds, args.jobs), "1 or more of each"));
    }
    if let Some(wrong) = args.sizes.iter().find(|rows| !(8..=ROWS_MAX).contains(*rows)) {
        return Err(Failed::argument(format!("--sizes {wrong}"), format!("8 to {ROWS_MAX} rows")));
    }
    let cpus: Vec<CpuId> = cpus.iter().collect();
    // On a thread of its own: this one's CPUs and class stay as they are.
    std::thread::scope(|scope| joined(scope.spawn(|| measure(&args, &cpus, progress)).join()))
}

fn measure(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<Found, Failed> {
    settle(cpus[0], args.class)?;
    let mut found = Found::default();
    let class = args.class.map_or("as this program's".into(), |class| class.to_string());
    let names: CpuSet = cpus.iter().copied().collect();
    found.setup.push(format!("CPUs {names}, class {class}; vectors: {}", simd::levels()));
    if cpus.len() > 1 {
        found.tables.push(scale::empty_jobs(args, cpus, progress)?);
        found.tables.extend(scale::locality(args, cpus, progress)?);
        found.tables.push(scale::amdahl(args, cpus, progress)?);
        found.notes.push("the published fall below one core needs CPUs of two sockets".into());
    } else {
        let why = "local and shared data, Amdahl's law: not measured, they need two CPUs or more (--cpus)";
        found.notes.push(why.into());
    }
    found.tables.extend(simd::measure(args, cpus, progress)?);
    let beside = beside::measure(args, progress)?;
    found.tables.extend(beside.tables);
    found.setup.extend(beside.setup);
    found.notes.extend(beside.notes);
    found.tables.push(products::measure(args, progress)?);
    found.tables.push(spots::measure(args, progress)?);
    if args.gpu {
        match card::measure(args, progress) {
            Ok(tables) => found.tables.extend(tables),
            // What else was measured stands.
            Err(error) => found.notes.push(format!("graphics card: not measured: {error}")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_one_cpu_vectors_are_measured_and_what_needs_more_is_said() {
        let cpu = sys::sched::affinity(0).unwrap().lowest().unwrap().to_string();
        let words = ["compute", "--cpus", &cpu, "--rounds", "1", "--sizes", "9", "--jobs", "10"];
        let words =
            words.into_iter().chain(["--openblas", "libno-such-blas.so", "--python", "no-such-python", "--gpu"]);
        let found = run(&BENCH.command().get_matches_from(words), &mut Progress::of("compute")).unwrap();
        assert!(found.notes[0].contains("not measured, they need two CPUs"), "{:?}", found.notes);
        let titled = |title: &str| {
            let table = found.tables.iter().find(|table| table.title.starts_with(title));
            table.unwrap_or_else(|| panic!("{title}: {:?}", found.tables))
        };
        for (name, remedy) in [("OpenBLAS", "--openblas FILE"), ("numpy", "--python PROGRAM")] {
            let note = found.notes.iter().find(|note| note.starts_with(name)).expect("a note of who is missing");
            assert!(note.contains("not compared with") && note.contains(remedy), "{note}");
        }
        // No card on most machines: then it says why.
        let card = found.notes.iter().any(|note| note.starts_with("graphics card: not measured: "));
        assert!(
            card || found.tables.iter().any(|table| table.title.contains("the matrix stays there")),
            "{:?}",
            found.notes
        );
        titled("vectors multiplied element by element");
        titled("centres of gravity of 1240 spots");
        titled("matrix times vector on one CPU: f32 of the matrix read");
        let half = &titled("matrix times vector on one CPU: f16 stored").rows;
        assert!(half.len() == 1 && half[0].ratio.is_some(), "{half:?}");
        let longest = &titled("matrix times vector: the longest times").rows;
        assert_eq!(longest[0].latency.as_ref().map(|latency| latency.count), Some(10));
        assert!(!found.tables.iter().any(|table| table.title.contains("CPUs, each with its own rows")));
        let refused = |words: [&str; 3]| {
            run(&BENCH.command().get_matches_from(words), &mut Progress::of("compute")).unwrap_err().to_string()
        };
        assert!(refused(["compute", "--sizes", "7"]).contains("expected 8 to 16384 rows"));
        assert!(refused(["compute", "--cpus", "1000"]).contains("expected CPUs that this process may use"));
    }
}
