use super::*;
use ring::AtomicU64;
use rt::{Exports, VariableSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use store::{Archive, Config, Span};

const HOUR: i64 = 3_600_000_000_000;
/// Initial offset of the wall clock from the monotonic clock.
const AHEAD: i64 = 1_795_000_000_000_000_000;

/// An exporting process, an archive folder, and a wall clock that tests set.
struct Site {
    name: String,
    folder: harness::Folder,
    offset: Arc<AtomicI64>,
    looks: i64,
}

/// One run of a logger, limited to exported variables.
struct Life {
    page: Page,
    clock: Clock,
    logger: Logger<Folder>,
}

impl Site {
    fn new(name: &str) -> Self {
        let offset = Arc::new(AtomicI64::new(AHEAD));
        Self { name: harness::fresh(name), folder: harness::Folder::new(), offset, looks: 0 }
    }

    fn life(&self, policy: Policy) -> Life {
        let source = host::plant::archive::Source::Variables;
        let page = Page::all(&[Signal { source, name: format!("{}/*", self.name), policy }]).pop().unwrap();
        let offset = self.offset.clone();
        let clock = Clock::reading(Box::new(move || offset.load(Ordering::Relaxed)));
        let logger = Logger::open(Folder::new(&self.folder.0), Config::default(), 0).unwrap();
        Life { page, clock, logger }
    }

    /// Polls and syncs, at a time at which the connection is checked too.
    fn look(&mut self, life: &mut Life) {
        self.looks += LOOK_AFTER.0;
        life.page.look(self.looks, &mut life.clock, &mut life.logger, &mut |_| ()).unwrap();
        life.logger.sync(self.looks);
    }

    fn exports(&self) -> (Exports, usize) {
        let exports = Exports::open(&self.name, 1).unwrap();
        let index = exports.add(&VariableSpec { name: "v", unit: "V", first: Number::Int(0), safe: None }).unwrap();
        (exports, index)
    }

    fn set(&self, clock: i64) {
        self.offset.store(AHEAD + clock, Ordering::Relaxed);
    }

    fn archive(&self) -> Archive<Folder> {
        Archive::open(Folder::new(&self.folder.0)).unwrap()
    }

    /// The values in order of their pulses, and the gaps with the number of lost samples.
    fn kept(&self) -> (Vec<i64>, Vec<(String, u64)>) {
        let (archive, name) = (self.archive(), format!("{}/v", self.name));
        let mut samples: Vec<Sample> = archive.samples(&name, Span::ALL).unwrap().map(Result::unwrap).collect();
        samples.sort_by_key(|sample| sample.pulse);
        let gaps = archive.gaps(&name, Span::ALL).into_iter().map(|gap| (gap.cause.to_string(), gap.lost));
        (samples.iter().map(|sample| sample.datum.to_f64().unwrap() as i64).collect(), gaps.collect())
    }
}

const ALL: Policy = Policy::Monitor { deadband: 0.0 };

/// Writes one value per pulse, 1 ms apart.
fn write((exports, index): &(Exports, usize), pulses: impl Iterator<Item = u64>) {
    for pulse in pulses {
        assert!(exports.set(*index, Number::Int(pulse as i64), pulse, MonoNs(pulse * 1_000_000)));
    }
}

#[test]
fn a_pattern_is_unconnected_until_a_process_exports_a_variable_that_fits() {
    let site = Site::new("unconnected");
    let mut life = site.life(Policy::Monitor { deadband: 0.0 });
    life.page.wanted = ["v*", "other"].map(|name| (name.to_owned(), Policy::Monitor { deadband: 0.0 })).to_vec();
    let text = |life: &Life| {
        let mut list = Unconnected::default();
        life.page.add_to(&mut list);
        list.text().replace(&site.name, "PAGE")
    };
    assert_eq!(text(&life), "2 of 2 signals not connected: PAGE/v*, PAGE/other");
    let _exports = site.exports();
    life.page.look(LOOK_AFTER.0, &mut life.clock, &mut life.logger, &mut |_| ()).unwrap();
    assert_eq!(text(&life), "1 of 2 signals not connected: PAGE/other");
}

#[test]
fn a_process_that_is_alive_but_writes_nothing_for_2_s_is_a_gap_and_not_connected() {
    let mut site = Site::new("frozen");
    let (exports, mut life) = (site.exports(), site.life(ALL));
    exports.0.set_period(DurNs::from_ms(1));
    let is_listed = |life: &Life| {
        let mut list = Unconnected::default();
        life.page.add_to(&mut list);
        !list.text().is_empty()
    };
    write(&exports, 1..=10);
    let mut lists = Vec::new();
    for _ in 0..6 {
        site.look(&mut life);
        lists.push(is_listed(&life));
    }
    // The first check connects, at 0.5 s.
    assert_eq!(lists, [false, false, false, false, false, true]);
    write(&exports, 3001..=3010);
    site.look(&mut life);
    assert!(!is_listed(&life));
    let (values, gaps) = site.kept();
    assert_eq!(values, (1..=10).chain(3001..=3010).collect::<Vec<_>>());
    assert_eq!(gaps, [("disconnected".to_owned(), 0)]);
    let at = site.archive().gaps(&format!("{}/v", site.name), Span::ALL)[0].at;
    assert_eq!(at, AHEAD + 10_000_001, "it begins after the last value");
}

#[test]
fn clock_steps_during_logging_lose_and_duplicate_nothing_and_are_noted() {
    let mut site = Site::new("clock");
    let (exports, mut life) = (site.exports(), site.life(ALL));
    write(&exports, 1..=10);
    site.look(&mut life);
    for (clock, pulses) in [(-HOUR, 11..=20), (3 * HOUR, 21..=30), (0, 31..=40)] {
        site.set(clock);
        // The poll compares the clocks first, so these samples get the new offset.
        write(&exports, pulses);
        site.look(&mut life);
    }
    let (values, gaps) = site.kept();
    assert_eq!(values, (1..=40).collect::<Vec<_>>());
    assert_eq!(gaps, [("clock set back".to_owned(), 0), ("clock set back".to_owned(), 0)]);
    // Each sample is at its own stamp.
    let (archive, name) = (site.archive(), format!("{}/v", site.name));
    let at = |at: i64| archive.at(&name, AHEAD + at).unwrap().and_then(|sample| sample.pulse);
    assert_eq!(
        [at(-1), at(15_000_000), at(100_000_000), at(HOUR), at(4 * HOUR)].map(Option::unwrap),
        [20, 10, 40, 40, 30]
    );
}

#[test]
fn a_clock_step_without_a_logger_neither_hides_nor_duplicates_samples_with_a_pulse() {
    for clock in [-HOUR, HOUR] {
        let mut site = Site::new("between");
        let (exports, mut life) = (site.exports(), site.life(ALL));
        write(&exports, 1..=50);
        site.look(&mut life);
        drop(life);
        site.set(clock);
        write(&exports, 51..=60);
        let mut life = site.life(ALL);
        site.look(&mut life);
        write(&exports, 61..=70);
        site.look(&mut life);
        assert_eq!(site.kept().0, (1..=70).collect::<Vec<_>>(), "{clock}");
    }
}

#[test]
fn values_without_a_pulse_are_stored_after_a_clock_step_back_without_a_logger() {
    let mut site = Site::new("no-pulse");
    let ((exports, index), mut life) = (site.exports(), site.life(ALL));
    let write = |values: std::ops::RangeInclusive<i64>| {
        values.for_each(|value| assert!(exports.set(index, Number::Int(value), 0, MonoNs(value as u64 * 1_000_000))));
    };
    write(1..=10);
    site.look(&mut life);
    drop(life);
    write(11..=20);
    let mut life = site.life(ALL);
    site.look(&mut life);
    let count = |site: &Site| site.kept().0.len();
    assert_eq!(count(&site), 20, "each sample is stored once if the clock is not set");
    drop(life);
    site.set(-HOUR);
    let mut life = site.life(ALL);
    write(21..=30);
    site.look(&mut life);
    write(31..=40);
    site.look(&mut life);
    let values = site.kept().0;
    assert!((1..=40).all(|value| values.contains(&value)), "{values:?}");
}

#[test]
fn samples_overwritten_without_a_logger_are_counted_if_each_pulse_has_a_sample() {
    let mut site = Site::new("away");
    let (exports, mut life) = (site.exports(), site.life(ALL));
    write(&exports, (2..=100).step_by(2));
    site.look(&mut life);
    drop(life);
    write(&exports, (102..=2_000).step_by(2));
    let mut life = site.life(ALL);
    site.look(&mut life);
    let (values, gaps) = site.kept();
    assert_eq!(values, (2..=100).step_by(2).chain((1_490..=2_000).step_by(2)).collect::<Vec<_>>());
    assert_eq!(gaps, [("logger away".to_owned(), 694)]);
    assert_eq!(values.len() + 694, 1_000, "all samples are stored or counted");
    assert_eq!(life.logger.account().overflowed, 694);
    // A loop that skips pulses: the loss is known, its size is not.
    drop(life);
    write(&exports, (2_001..=3_000).filter(|pulse| pulse % 7 > 1));
    let mut life = site.life(ALL);
    site.look(&mut life);
    assert_eq!(site.kept().1.last(), Some(&("logger away".to_owned(), 0)));
    // With a deadband, the number of samples that would have been kept is unknown.
    drop(life);
    write(&exports, 3_001..=4_000);
    let mut life = site.life(Policy::Monitor { deadband: 5.0 });
    site.look(&mut life);
    assert_eq!(site.kept().1.len(), 2);
}

/// A process's exported memory, which ends with the process.
fn process(kind: Number, unit: &str, run: impl FnOnce(&Variables<'_>)) {
    let words: Vec<AtomicU64> = (0..Variables::words_keeping(1, 256)).map(|_| AtomicU64::new(0)).collect();
    let segment = Variables::format_keeping(&words, 256).unwrap();
    segment.add(&VariableSpec { name: "v", unit, first: kind, safe: None }).unwrap();
    run(&segment);
}

/// First poll of a new process's only variable.
fn connect(site: &Site, life: &mut Life, segment: &Variables<'_>) {
    let (wanted, logger) = (&life.page.wanted, &mut life.logger);
    Variable::new(&site.name, wanted, (segment, 0), 0, &life.clock, logger, &mut |_| ()).unwrap().unwrap();
    life.logger.sync(0);
}

#[test]
fn a_process_restarted_without_a_logger_has_lost_no_more_samples_than_it_wrote() {
    let site = Site::new("anew");
    let write = |segment: &Variables<'_>, pulses: std::ops::RangeInclusive<u64>| {
        pulses.for_each(|pulse| assert!(segment.set(0, Number::Int(pulse as i64), pulse, MonoNs(pulse * 1_000_000))));
        connect(&site, &mut site.life(ALL), segment);
    };
    process(Number::Int(0), "V", |segment| write(segment, 1..=100));
    // Its pulses continue with time; 44 of its own samples were overwritten.
    process(Number::Int(0), "V", |segment| write(segment, 10_001..=10_300));
    assert_eq!(site.kept().1, [("logger away".to_owned(), 44)]);
    // Pulses start again at 1.
    process(Number::Int(0), "V", |segment| write(segment, 1..=5));
    let (values, gaps) = site.kept();
    assert_eq!((values.len(), gaps.len()), (100 + 256 + 5, 2), "{gaps:?}");
}

#[test]
fn a_variable_whose_type_changes_keeps_its_earlier_samples_and_metadata() {
    let site = Site::new("type");
    let mut life = site.life(ALL);
    process(Number::Int(0), "V", |segment| {
        (1..=3).for_each(|pulse| assert!(segment.set(0, Number::Int(pulse), pulse as u64, MonoNs(pulse as u64))));
        connect(&site, &mut life, segment);
    });
    process(Number::Float(0.0), "kV", |segment| {
        assert!(segment.set(0, Number::Float(4.5), 4, MonoNs(4)));
        connect(&site, &mut life, segment);
    });
    let name = format!("{}/v", site.name);
    let archive = site.archive();
    let rows: Vec<_> = archive.rows(&name).into_iter().map(|row| (row.kind.to_string(), row.about.units)).collect();
    let all: Vec<String> =
        archive.samples(&name, Span::ALL).unwrap().map(|sample| sample.unwrap().datum.to_string()).collect();
    assert_eq!(all, ["1", "2", "3", "4.5"]);
    assert_eq!(
        (rows.first().unwrap(), rows.last().unwrap()),
        (&("i64".into(), "V".into()), &("f64".into(), "kV".into()))
    );
}

#[test]
fn an_invalid_signal_name_is_reported_and_the_other_variables_are_archived() {
    let mut site = Site::new("names");
    let exports = Exports::open(&site.name, 2).unwrap();
    let add = |name| exports.add(&VariableSpec { name, unit: "", first: Number::Int(0), safe: None }).unwrap();
    add("a\nb");
    let good = add("good");
    assert!(exports.set(good, Number::Int(7), 1, MonoNs(1)));
    let (mut life, mut told) = (site.life(ALL), Vec::new());
    life.page.look(0, &mut life.clock, &mut life.logger, &mut |line| told.push(line.to_owned())).unwrap();
    assert!(told.iter().any(|line| line.contains("not archived: the signal's name has")), "{told:?}");
    site.look(&mut life);
    assert_eq!(site.archive().names(), [format!("{}/good", site.name)]);
}

#[test]
fn on_a_fault_the_samples_before_it_are_kept_at_full_rate_for_the_configured_time() {
    let site = Site::new("fault");
    let mut life = site.life(Policy::OnFault { before: DurNs::from_ms(20) });
    let words: Vec<AtomicU64> = (0..Variables::words_keeping(1, 256)).map(|_| AtomicU64::new(0)).collect();
    let segment = Variables::format_keeping(&words, 256).unwrap();
    let safe = Some(Number::Int(-1));
    segment.add(&VariableSpec { name: "v", unit: "", first: Number::Int(0), safe }).unwrap();
    let (wanted, logger) = (&life.page.wanted, &mut life.logger);
    let variable = Variable::new(&site.name, wanted, (&segment, 0), 0, &life.clock, logger, &mut |_| ());
    let mut variable = variable.unwrap().unwrap();
    for pulse in 1..=100 {
        assert!(segment.set(0, Number::Int(pulse), pulse as u64, MonoNs(pulse as u64 * 1_000_000)));
    }
    variable.take(&segment, 0, &life.clock, logger);
    assert_eq!(logger.account().taken, 0);
    segment.stand_safe(true);
    variable.take(&segment, 0, &life.clock, logger);
    logger.sync(1);
    let (values, _) = site.kept();
    // The last one marks the fault: the safe value.
    assert_eq!((values.len(), values.contains(&79), values.contains(&-1)), (22, false, true), "{values:?}");
    assert!((80..=100).all(|value| values.contains(&value)), "{values:?}");
}
