//! The archive compared with a model: a list of all pushed samples.

mod common;

use base::{Array, Scalar};
use common::found;
use proptest::prelude::*;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::BTreeMap;
use store::{Archive, Bins, Config, Logger, Memory, Span, due, pack, verify};

#[derive(Clone, Debug)]
enum Step {
    Push { signal: usize, step: i64, value: i16, kind: u8, pulse: Option<u64>, severity: u8 },
    Gap(usize),
    Sync,
    Restart,
    Pack { all: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let push = (
        0..3usize,
        prop_oneof![4 => Just(100i64), 2 => 0..500i64, 1 => -300..0i64],
        any::<i16>(),
        0..12u8,
        prop::option::weighted(0.2, 0..9u64),
        0..4u8,
    );
    prop_oneof![
        30 => push.prop_map(|(signal, step, value, kind, pulse, severity)| Step::Push { signal, step, value, kind, pulse, severity }),
        1 => (0..3usize).prop_map(Step::Gap),
        4 => Just(Step::Sync),
        2 => Just(Step::Restart),
        1 => any::<bool>().prop_map(|all| Step::Pack { all }),
    ]
}

/// Mostly doubles, sometimes another type.
fn datum(kind: u8, value: i16) -> Datum {
    match kind {
        0 => Datum::Bool(value > 0),
        1 => Datum::Number(Scalar::I32(value.into())),
        2 => Datum::from(value.to_string().as_str()),
        3 => Datum::Array(Array::F64(vec![f64::from(value); (value & 3) as usize])),
        _ => Datum::from(f64::from(value) / 100.0),
    }
}

const NAMES: [&str; 3] = ["RF:A", "RF:B", "MAG:C"];

struct Run {
    files: Memory,
    logger: Option<(Logger<Memory>, Vec<store::SignalId>)>,
    /// The accepted samples of each signal in the order of time; those with the same time in the order of arrival.
    model: BTreeMap<&'static str, Vec<Sample>>,
    now: i64,
    at: i64,
}

impl Run {
    fn open(&mut self) {
        self.logger = None;
        let config = Config { segment_size: base::Size(400), ..Config::default() };
        let mut logger = Logger::open(self.files.clone(), config, self.now).unwrap();
        let ids = NAMES.map(|name| logger.signal(name, About::default(), self.at).unwrap());
        self.logger = Some((logger, ids.to_vec()));
    }

    fn step(&mut self, step: &Step) {
        let Some((logger, ids)) = &mut self.logger else { return };
        self.now += 1;
        match step {
            Step::Push { signal, step, value, kind, pulse, severity } => {
                self.at += step;
                let sample = Sample {
                    severity: *severity,
                    status: u16::from(*severity),
                    pulse: *pulse,
                    ..Sample::new(self.at, datum(*kind, *value))
                };
                let known = self.model.entry(NAMES[*signal]).or_default();
                if logger.push(ids[*signal], &sample) == store::Pushed::Taken {
                    let place = known.partition_point(|other| other.at <= sample.at);
                    known.insert(place, sample);
                } else {
                    assert!(known.contains(&sample));
                }
            }
            Step::Gap(signal) => logger.gap(Some(ids[*signal]), self.at, Cause::Disconnected, 0),
            Step::Sync => logger.sync(self.now),
            Step::Restart => {
                logger.sync(self.now);
                self.open();
            }
            Step::Pack { all } => {
                let open = logger.open_from();
                if let Some((first, last)) = due(&self.files, open, *all).unwrap() {
                    pack(&self.files, first, last).unwrap();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_archive_returns_the_samples_that_were_stored(steps in prop::collection::vec(step(), 0..150), from in 0i64..8_000, len in 0i64..8_000) {
        let mut run = Run { files: Memory::default(), logger: None, model: BTreeMap::new(), now: 0, at: 0 };
        run.open();
        steps.iter().for_each(|step| run.step(step));
        let (logger, _) = run.logger.as_mut().unwrap();
        logger.sync(run.now);
        let account = logger.account();
        prop_assert_eq!((account.taken, account.failures), (account.safe, 0));
        prop_assert!(verify(&run.files).unwrap().iter().all(|checked| checked.damage.is_empty() && checked.tail == 0));
        let archive = Archive::open(run.files.clone()).unwrap();
        for span in [Span::ALL, Span { from, to: from + len }] {
            for name in NAMES {
                let taken = run.model.get(name).map_or(&[][..], Vec::as_slice);
                let within: Vec<&Sample> = taken.iter().filter(|sample| (span.from..=span.to).contains(&sample.at)).collect();
                let expected: Vec<String> = within.iter().map(|sample| format!("{sample:?}")).collect();
                prop_assert_eq!(found(&run.files, name, span), expected, "{} {:?}", name, span);
                let at = archive.at(name, span.to).unwrap().map(|sample| sample.at);
                prop_assert_eq!(at, taken.iter().filter(|sample| sample.at <= span.to).map(|sample| sample.at).max());
            }
        }
        for name in NAMES {
            let taken = run.model.get(name).map_or(&[][..], Vec::as_slice);
            let bins = Bins::count(from, from + len, 7);
            let filled = archive.bins(name, bins).unwrap();
            let numbers: Vec<f64> = taken
                .iter()
                .filter(|sample| filled.is_empty() || sample.at >= from)
                .filter(|sample| (from..from + ((len as u64 + 1).div_ceil(7) * 7) as i64).contains(&sample.at))
                .filter_map(|sample| sample.datum.to_f64())
                .collect();
            let count: u64 = filled.iter().map(|bin| bin.summary.count).sum();
            prop_assert_eq!(count as usize, numbers.len());
            let max = filled.iter().map(|bin| bin.summary.max).fold(f64::NEG_INFINITY, f64::max);
            prop_assert_eq!(max, numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            let sum: f64 = filled.iter().map(|bin| bin.summary.mean * bin.summary.count as f64).sum();
            prop_assert!((sum - numbers.iter().sum::<f64>()).abs() < 1e-6);
        }
    }
}

#[test]
fn a_change_of_units_and_of_type_is_a_row_with_its_date_also_in_packs() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let about = |units: &str| About { units: units.into(), ..About::default() };
    let signal = logger.signal("A", about("V"), 10).unwrap();
    logger.push(signal, &Sample::new(10, 1.0));
    logger.signal("A", about("mV"), 20).unwrap();
    logger.push(signal, &Sample::new(20, 1000.0));
    logger.push(signal, &Sample::new(30, 7i64));
    logger.sync(0);
    let rows = |files: &Memory| {
        let rows = Archive::open(files.clone()).unwrap().rows("A");
        rows.iter().map(|row| format!("{} {} {}", row.since, row.kind, row.about.units)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&files), ["10 f64 V", "20 f64 mV", "30 i64 mV"]);
    drop(logger);
    pack(&files, 1, 1).unwrap();
    assert_eq!(rows(&files), ["10 f64 V", "20 f64 mV", "30 i64 mV"]);
    assert_eq!(common::all(&files, "A").len(), 3);
    // A restart with the same properties is no change.
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let signal = logger.signal("A", about("mV"), 40).unwrap();
    logger.push(signal, &Sample::new(40, 8i64));
    logger.sync(0);
    assert_eq!(rows(&files).len(), 3);
}

#[test]
fn a_change_of_units_is_stored_although_no_sample_follows() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let about = |units: &str| About { units: units.into(), ..About::default() };
    let signal = logger.signal("A", about("V"), 5).unwrap();
    logger.push(signal, &Sample::new(10, 1.0));
    logger.sync(0);
    logger.signal("A", about("mV"), 20).unwrap();
    logger.sync(1);
    let rows = Archive::open(files).unwrap().rows("A");
    let rows: Vec<_> = rows.iter().map(|row| (row.since, row.about.units.as_str())).collect();
    assert_eq!(rows, [(5, "V"), (20, "mV")]);
}

#[test]
fn gaps_keep_their_cause_and_signal_in_packs() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let [a, b] = ["A", "B"].map(|name| logger.signal(name, About::default(), 0).unwrap());
    logger.push(b, &Sample::new(1, 1.0));
    logger.gap(Some(a), 5, Cause::Disconnected, 0);
    logger.gap(Some(b), 6, Cause::Overflow, 12);
    logger.gap(None, 7, Cause::Paused, 0);
    assert_eq!(logger.close(0, 9).failures, 0);
    let gaps = |name: &str| {
        let gaps = Archive::open(files.clone()).unwrap().gaps(name, Span::ALL);
        gaps.iter().map(|gap| format!("{} {} {}", gap.at, gap.cause, gap.lost)).collect::<Vec<_>>()
    };
    let expected = (
        ["5 disconnected 0", "7 paused 0", "9 logger stopped 0"],
        ["6 overflow 12", "7 paused 0", "9 logger stopped 0"],
    );
    assert_eq!(
        (gaps("A"), gaps("B")),
        (expected.0.map(str::to_owned).to_vec(), expected.1.map(str::to_owned).to_vec())
    );
    pack(&files, 1, 1).unwrap();
    assert_eq!(
        (gaps("A"), gaps("B")),
        (expected.0.map(str::to_owned).to_vec(), expected.1.map(str::to_owned).to_vec())
    );
}
