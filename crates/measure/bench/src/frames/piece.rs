//! A piece of the measurement in a separate process: it can be moved into a shield while the recorder stays outside.

use super::chain::{self, Figures};
use super::pairs;
use crate::explained::Explained;
use crate::measure::{Gate, TaskPlacement, own_program};
use crate::{Failed, Helper, read};
use base::{CpuId, DurNs, Histogram, Outside, Policy};
use clap::Args as _;
use serde::{Deserialize, Serialize};

/// The process.
pub(crate) const FRAME: Helper =
    Helper { name: "frame", arguments: FrameArgs::augment_args, run: |matches| run(&read(matches)?) };

/// Its command line.
#[derive(clap::Args)]
struct FrameArgs {
    #[arg(long)]
    cpu: CpuId,
    #[arg(long = "for")]
    for_: DurNs,
    /// Bare threads in the same minors, and pairs of threads
    #[arg(long)]
    bare: bool,
}

/// Results of a piece.
pub(super) struct Turn {
    pub(super) figures: Figures,
    pub(super) bare: Option<Bare>,
}

/// Results of the pairs of threads.
pub(super) struct Bare {
    pub(super) threads: Histogram,
    pub(super) futex: DurNs,
    pub(super) waking: Histogram,
}

/// The same as text.
#[derive(Serialize, Deserialize)]
struct PieceRecord {
    dispatch: Times,
    late: Times,
    whole: Times,
    minors: u64,
    lost: u64,
    faults: u64,
    allocations: u64,
    missing: Vec<String>,
    bare: Option<(Times, i64, Times)>,
}

/// A histogram as text.
#[derive(Serialize, Deserialize)]
struct Times {
    buckets: Vec<(i64, u64)>,
    early: u64,
    overflow: u64,
    sum_ns: i64,
    min_ns: i64,
    max_ns: i64,
}

impl From<&Histogram> for Times {
    fn from(hist: &Histogram) -> Self {
        let ns = |time: Option<DurNs>| time.map_or(0, |time| time.0);
        Self {
            buckets: hist.buckets().map(|(low, _, count)| (low.0, count)).collect(),
            early: hist.early(),
            overflow: hist.overflow(),
            sum_ns: ns(hist.mean()).saturating_mul(i64::try_from(hist.count()).unwrap_or(i64::MAX)),
            min_ns: ns(hist.min()),
            max_ns: ns(hist.max()),
        }
    }
}

impl From<&Times> for Histogram {
    fn from(times: &Times) -> Self {
        let mut counts = vec![0; Self::BUCKETS];
        for (low, count) in &times.buckets {
            if let Some(bucket) = Self::bucket_of(DurNs(*low)) {
                counts[bucket] = *count;
            }
        }
        let Times { early, overflow, sum_ns, min_ns, max_ns, .. } = *times;
        Self::from_parts(counts, || Outside { early, overflow, sum_ns, min_ns, max_ns })
    }
}

/// Measures a piece on the CPU of `place`, in its shield if it has one; `explained` watches it.
pub(super) fn measure(
    place: &TaskPlacement,
    piece: DurNs,
    bare: bool,
    explained: Option<&Explained>,
) -> Result<Turn, Failed> {
    let program = own_program()?;
    let mut words = vec![
        program.display().to_string(),
        "bench".into(),
        FRAME.name.into(),
        format!("--cpu={}", place.cpu),
        format!("--for={piece}"),
    ];
    words.extend(bare.then(|| "--bare".to_owned()));
    let gate = Gate::start(&words, place, None)?;
    explained.inspect(|explained| explained.watch(gate.pid(), Policy::Fifo(super::PRIORITY), "frame"));
    let output = gate.output()?;
    let sent: PieceRecord =
        serde_json::from_str(&output).map_err(|error| Failed::answer("the frame", error, &output))?;
    let (faults, allocations, missing) = (sent.faults, sent.allocations, sent.missing);
    Ok(Turn {
        figures: Figures {
            dispatch: (&sent.dispatch).into(),
            late: (&sent.late).into(),
            whole: (&sent.whole).into(),
            minors: sent.minors,
            lost: sent.lost,
            faults,
            allocations,
            missing,
        },
        bare: sent.bare.map(|(threads, futex, waking)| Bare {
            threads: (&threads).into(),
            futex: DurNs(futex),
            waking: (&waking).into(),
        }),
    })
}

fn run(args: &FrameArgs) -> Result<(), Failed> {
    let mut threads = Histogram::new();
    let figures = chain::frame(args.cpu, args.for_, args.bare.then_some(&mut threads))?;
    let bare = match args.bare {
        true => {
            let (futex, waking) = (pairs::futex_round_trip(args.cpu)?, pairs::border(args.cpu)?);
            Some(((&threads).into(), futex.0, (&waking).into()))
        }
        false => None,
    };
    let sent = PieceRecord {
        dispatch: (&figures.dispatch).into(),
        late: (&figures.late).into(),
        whole: (&figures.whole).into(),
        minors: figures.minors,
        lost: figures.lost,
        faults: figures.faults,
        allocations: figures.allocations,
        missing: figures.missing,
        bare,
    };
    println!("{}", serde_json::to_string(&sent)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_a_round_trip_through_text() {
        let mut hist = Histogram::new();
        [-5, 0, 31, 70_000, 5_000_000, 100_000_000_000].into_iter().for_each(|ns| hist.record(DurNs(ns)));
        let text = serde_json::to_string(&Times::from(&hist)).unwrap();
        let back = Histogram::from(&serde_json::from_str::<Times>(&text).unwrap());
        assert_eq!((back.count(), back.early(), back.overflow()), (6, 1, 1));
        assert_eq!((back.min(), back.max(), back.quantile(1, 2)), (hist.min(), hist.max(), hist.quantile(1, 2)));
        assert_eq!(back.buckets().collect::<Vec<_>>(), hist.buckets().collect::<Vec<_>>());
    }
}
