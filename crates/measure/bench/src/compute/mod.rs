//! `tahti bench compute`: speed-up of arithmetic by more CPUs and wider vectors, and its limits.

mod card;
mod peers;
mod products;
mod scale;
mod simd;
mod spots;
mod team;
mod threads;

use crate::failed::joined;
use crate::measure::{settle, usable};
use crate::{Bench, BenchResult, Failed, Progress, read};
use base::{CpuId, CpuSet, Policy};
use clap::{ArgMatches, Args as _};
use std::path::PathBuf;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "compute",
    experiment: "VxWorks on multi-core: local and shared data over the CPUs, Amdahl's law, vector instructions",
    arguments: Args::augment_args,
    run,
    target: "an empty job of two threads in at most 200 ns; two CPUs 1.9 times as fast with local data; matrix times vector at 0.9 of the \
             rate of reading alone from 128 rows on, and at every size no slower than the better one of OpenBLAS's calls; f16 in 0.6 of the \
             time of f32 from 1024 rows on; the centres of 1,240 spots in 15 us",
    quick: &["--rounds", "4", "--sizes", "64,256", "--jobs", "200"],
    shields: false,
};

/// Speed-up of arithmetic by more CPUs and wider vectors: local and shared data, Amdahl's law, scalar and vector code, maximum times
///
/// The compared variants alternate in one process, whose threads are bound to CPUs. With one CPU only vectors are measured.
#[derive(clap::Args)]
struct Args {
    /// Measurements of each figure
    #[arg(long, default_value_t = 16)]
    rounds: usize,
    /// CPUs to measure on, the leader's first [default: all of this process]
    #[arg(long)]
    cpus: Option<CpuSet>,
    /// Scheduling class of the threads [default: this program's]
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
    /// Rows and columns of the matrices
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_value = "64,128,256,512,1024,2048,4096")]
    sizes: Vec<usize>,
    /// Jobs that the maximum times are taken from
    #[arg(long, default_value_t = 2000)]
    jobs: usize,
    /// OpenBLAS library to compare with
    #[arg(long, value_name = "FILE", env = "TAHTI_OPENBLAS", default_value = "libopenblas.so.0")]
    openblas: PathBuf,
    /// Python interpreter with numpy to compare with
    #[arg(long, value_name = "PROGRAM", env = "TAHTI_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Also measure a graphics card, transfers included
    #[arg(long)]
    gpu: bool,
}

/// Calls before the timed ones. A real loop always multiplies by the same matrix; here other matrices come between. A shared third cache needs about
/// six passes through 67 MB to hold them again: after one pass, f16 of 4096 rows took 0.79 of the time of f32, after eight 0.51.
const WARM: usize = 8;

/// Rows of the largest matrix: a GiB of f32.
const ROWS_MAX: usize = 16_384;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
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
    // On a separate thread: CPUs and class of this one do not change.
    std::thread::scope(|scope| joined(scope.spawn(|| measure(&args, &cpus, progress)).join()))
}

fn measure(args: &Args, cpus: &[CpuId], progress: &mut Progress) -> Result<BenchResult, Failed> {
    settle(cpus[0], args.class)?;
    let mut found = BenchResult::default();
    let class = args.class.map_or("this program's".into(), |class| class.to_string());
    let names: CpuSet = cpus.iter().copied().collect();
    found.setup.push(format!("CPUs {names}, class {class}; vectors: {}", simd::levels()));
    if cpus.len() > 1 {
        found.tables.push(scale::empty_jobs(args, cpus, progress)?);
        found.tables.extend(scale::locality(args, cpus, progress)?);
        found.tables.push(scale::amdahl(args, cpus, progress)?);
        match threads::measure(args, cpus, progress)? {
            Ok(table) => found.tables.push(table),
            Err(why) => found.notes.push(why),
        }
        found.notes.push("the published drop below one core needs CPUs of two sockets".into());
    } else {
        let why = "local and shared data, Amdahl's law: not measured, they need two CPUs or more (--cpus)";
        found.notes.push(why.into());
    }
    found.tables.extend(simd::measure(args, cpus, progress)?);
    let compared = peers::measure(args, progress)?;
    found.tables.extend(compared.tables);
    found.setup.extend(compared.setup);
    found.notes.extend(compared.notes);
    found.tables.push(products::listing(args));
    found.tables.push(products::measure(args, progress)?);
    found.tables.push(spots::measure(args, progress)?);
    if args.gpu {
        match card::measure(args, progress) {
            Ok(tables) => found.tables.extend(tables),
            // The other measurements remain valid.
            Err(error) => found.notes.push(format!("graphics card: not measured: {error}")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_one_cpu_vectors_are_measured_and_notes_list_the_rest() {
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
            let note = found.notes.iter().find(|note| note.starts_with(name)).expect("a note on the missing library");
            assert!(note.contains("not compared with") && note.contains(remedy), "{note}");
        }
        // Without a card a note gives the reason.
        let card = found.notes.iter().any(|note| note.starts_with("graphics card: not measured: "));
        assert!(
            card || found.tables.iter().any(|table| table.title.contains("the matrix stays on the card")),
            "{:?}",
            found.notes
        );
        titled("vectors multiplied element by element");
        titled("product of four floats");
        titled("centres of gravity of 1240 spots");
        titled("matrix times vector on one CPU: f32 of the matrix read");
        let half = &titled("matrix times vector on one CPU: f16 stored").rows;
        assert!(half.len() == 1 && half[0].ratio.is_some(), "{half:?}");
        let longest = &titled("matrix times vector: maximum times").rows;
        assert_eq!(longest[0].latency.as_ref().map(|latency| latency.count), Some(10));
        assert!(!found.tables.iter().any(|table| table.title.contains("CPUs, each with its own rows")));
        let refused = |words: [&str; 3]| {
            run(&BENCH.command().get_matches_from(words), &mut Progress::of("compute")).unwrap_err().to_string()
        };
        assert!(refused(["compute", "--sizes", "7"]).contains("expected 8 to 16384 rows"));
        assert!(refused(["compute", "--cpus", "1000"]).contains("expected CPUs that this process may use"));
    }
}
