//! Periodic scans of one owner: schedule and measurements.

use base::{DurNs, Histogram, MonoNs};
use db::{Db, Now};
use ring::{AtomicU64, SharedHistogram};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const LATENESS: usize = 0;
const DURATION: usize = SharedHistogram::WORDS;
const OVERRUNS: usize = 2 * SharedHistogram::WORDS;
const PASSES: usize = OVERRUNS + 1;
const RECORDS: usize = PASSES + 1;
const RESET: usize = RECORDS + 1;
const WORDS: usize = RESET + 1;

/// PINI choices processed before and after scans are paused and resumed: PAUSE and PAUSED, RUN and RUNNING.
const PINI_PAUSE: [u16; 2] = [4, 5];
const PINI_RUN: [u16; 2] = [2, 3];

/// Measurements of a scan. The owner writes them; other threads can read them at the same time.
#[derive(Clone, Debug)]
pub struct ScanStats(Arc<[AtomicU64]>);

impl Default for ScanStats {
    fn default() -> Self {
        let stats = Self((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        [LATENESS, DURATION].into_iter().filter_map(|at| stats.histogram(at)).for_each(|histogram| histogram.clear());
        stats
    }
}

impl ScanStats {
    fn histogram(&self, at: usize) -> Option<SharedHistogram<'_>> {
        SharedHistogram::over(&self.0[at..])
    }

    /// Delay of each pass after its planned time.
    #[must_use]
    pub fn lateness(&self) -> Histogram {
        self.histogram(LATENESS).map(|histogram| histogram.read()).unwrap_or_default()
    }

    /// Duration of each pass.
    #[must_use]
    pub fn duration(&self) -> Histogram {
        self.histogram(DURATION).map(|histogram| histogram.read()).unwrap_or_default()
    }

    /// Passes skipped because the previous one took too long.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.0[OVERRUNS].load(Ordering::Relaxed)
    }

    /// Number of passes.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.0[PASSES].load(Ordering::Relaxed)
    }

    /// Number of records in the last pass.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.0[RECORDS].load(Ordering::Relaxed)
    }

    /// Restarts the measurement with the next pass.
    pub fn reset(&self) {
        self.0[RESET].store(1, Ordering::Relaxed);
    }

    /// Records a pass. For the owner: neither allocates nor blocks.
    fn pass(&self, lateness: DurNs, duration: DurNs, missed: u64, records: usize) {
        if self.0[RESET].swap(0, Ordering::Relaxed) != 0 {
            [LATENESS, DURATION]
                .into_iter()
                .filter_map(|at| self.histogram(at))
                .for_each(|histogram| histogram.clear());
            [OVERRUNS, PASSES].into_iter().for_each(|at| self.0[at].store(0, Ordering::Relaxed));
        }
        self.0[RECORDS].store(records as u64, Ordering::Relaxed);
        if let (Some(late), Some(took)) = (self.histogram(LATENESS), self.histogram(DURATION)) {
            late.record(lateness);
            took.record(duration);
        }
        self.0[OVERRUNS].fetch_add(missed, Ordering::Relaxed);
        self.0[PASSES].fetch_add(1, Ordering::Relaxed);
    }
}

/// Interval between two checks for skipped passes.
const CHECK_EVERY: DurNs = DurNs::from_secs(1);
/// Number of consecutive checks with new skipped passes after which they are reported, for scans without a thread of their own.
const CHECKS: u32 = 10;

/// Watches whether scans skip passes.
#[derive(Debug, Default)]
pub(crate) struct OverrunWatch {
    check_at: MonoNs,
    /// For each thread: skipped passes at the last check, and the number of consecutive checks with new ones.
    threads: Vec<(u64, u32)>,
}

impl OverrunWatch {
    /// Checks the scans of all threads, if a check is due. `threads`: whether the plant declares the thread, and its scans. Returns
    /// the scans that skip passes, with their threads: declared ones from the first pass on.
    pub(crate) fn check<'a>(
        &mut self,
        now: MonoNs,
        threads: impl Iterator<Item = (bool, &'a Scans)>,
    ) -> Vec<(usize, String)> {
        if now < self.check_at {
            return Vec::new();
        }
        self.check_at = now + CHECK_EVERY;
        let mut found = Vec::new();
        for (nth, (is_declared, scans)) in threads.enumerate() {
            if self.threads.len() <= nth {
                self.threads.push((0, 0));
            }
            let (before, checks) = &mut self.threads[nth];
            let overruns = scans.overruns();
            let is_new = overruns > std::mem::replace(before, overruns);
            *checks = if is_new { *checks + 1 } else { 0 };
            if is_new && (is_declared || *checks >= CHECKS) {
                found.extend(scans.longest_overrun().map(|text| (nth, text)));
            }
        }
        found
    }
}

/// A periodic scan.
#[derive(Clone, Debug)]
pub struct ScanClock {
    /// Number in menuScan.
    pub index: u16,
    /// Choice in menuScan.
    pub name: String,
    /// Period.
    pub period: DurNs,
    /// Measurements.
    pub stats: ScanStats,
    next: MonoNs,
    /// Whether the scan is idle: its last pass had no records.
    rests: bool,
}

impl ScanClock {
    fn is_due(&self, now: MonoNs) -> bool {
        !self.rests && self.next <= now
    }
}

/// The periodic scans of a database, fastest first.
#[derive(Clone, Debug, Default)]
pub struct Scans {
    clocks: Vec<ScanClock>,
    paused: bool,
}

impl Scans {
    /// Skipped passes of all scans.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.clocks.iter().map(|clock| clock.stats.overruns()).sum()
    }

    /// The scan that skipped most passes, for users.
    fn longest_overrun(&self) -> Option<String> {
        let clock = self.clocks.iter().max_by_key(|clock| clock.stats.overruns())?;
        let longest = clock.stats.duration().max().unwrap_or(DurNs::ZERO);
        let (skipped, passes) = (clock.stats.overruns(), clock.stats.passes());
        let (name, ms) = (&clock.name, longest.0 as f64 / 1e6);
        Some(format!("scan {name} skipped {skipped} of {} passes: the longest one took {ms:.1} ms", skipped + passes))
    }

    /// Reads the scans from the database. Existing scans keep their schedule and measurements.
    pub fn plan(&mut self, db: &Db, now: Now) {
        let mut old = std::mem::take(&mut self.clocks);
        for scan in db.scans() {
            let kept = old.iter().position(|clock| clock.index == scan.index).map(|at| old.swap_remove(at));
            self.clocks.push(kept.unwrap_or_else(|| ScanClock {
                index: scan.index,
                name: scan.name,
                period: scan.period,
                stats: ScanStats::default(),
                next: aligned(now, scan.period),
                rests: false,
            }));
        }
        // If several scans are due, the fastest runs first.
        self.clocks.sort_by_key(|clock| clock.period);
    }

    /// Whether scans are paused.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Pauses or resumes scans. `process` processes the records with a PINI choice.
    pub(crate) fn pause(&mut self, on: bool, mut process: impl FnMut(u16, Now)) {
        let [before, after] = if on { PINI_PAUSE } else { PINI_RUN };
        let now = crate::engine::now();
        process(before, now);
        self.paused = on;
        self.align(now);
        process(after, now);
    }

    /// Restarts the schedule from now; passed due times are dropped.
    pub(crate) fn align(&mut self, now: Now) {
        self.clocks.iter_mut().for_each(|clock| clock.next = aligned(now, clock.period));
    }

    /// Schedule and measurements of each scan.
    #[must_use]
    pub fn clocks(&self) -> &[ScanClock] {
        &self.clocks
    }

    /// Time of the next pass. `records` returns the number of records of a menuScan choice. A scan without records, now and
    /// in its last pass, causes no wake-up until it gets some.
    pub fn next(&mut self, now: MonoNs, records: impl Fn(u16) -> usize) -> Option<MonoNs> {
        for clock in &mut self.clocks {
            let rests = clock.stats.records() == 0 && records(clock.index) == 0;
            if clock.rests && !rests && clock.next <= now {
                // Periods in which the scan was idle do not count as skipped.
                clock.next = clock.next + DurNs(((now - clock.next).0 / clock.period.0 + 1) * clock.period.0);
            }
            clock.rests = rests;
        }
        self.clocks.iter().filter(|clock| !clock.rests).map(|clock| clock.next).min().filter(|_| !self.paused)
    }

    /// Whether a pass is due at `now`.
    #[must_use]
    pub fn is_due(&self, now: MonoNs) -> bool {
        !self.paused && self.clocks.iter().any(|clock| clock.is_due(now))
    }

    /// Runs the `nth` scan if it is due, and returns whether it was. `pass` processes the records of a menuScan choice and
    /// returns their number. `clock` is read before and after.
    ///
    /// Real-time: apart from the records' processing, neither allocates nor blocks.
    pub fn run(&mut self, nth: usize, clock: impl Fn() -> Now, pass: impl FnOnce(u16, Now) -> usize) -> bool {
        let Some(scan) = self.clocks.get_mut(nth).filter(|scan| !self.paused && !scan.rests) else { return false };
        let start = clock();
        if !scan.is_due(start.mono) {
            return false;
        }
        let lateness = start.mono - scan.next;
        let records = pass(scan.index, start);
        let end = clock().mono;
        scan.next = scan.next + scan.period;
        let mut missed = 0;
        if scan.next <= end {
            missed = ((end - scan.next).0 / scan.period.0) as u64 + 1;
            scan.next = scan.next + DurNs(missed as i64 * scan.period.0);
        }
        scan.stats.pass(lateness, end - start.mono, missed, records);
        true
    }
}

/// Runs a pass of one database. Returns the number of records.
pub(crate) fn scan_one(db: &mut Db, scan: u16, now: Now) -> usize {
    db.scan(scan, now);
    db.scanned(scan)
}

/// The next multiple of `period` of the wall clock, as a time of the monotonic clock.
fn aligned(now: Now, period: DurNs) -> MonoNs {
    let period = period.0.max(1) as u64;
    let wall = now.wall.as_nanos();
    now.mono + DurNs((period - wall % period) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Stamp;
    use db::Macros;
    use std::cell::Cell;

    #[test]
    fn scans_start_at_whole_multiples_of_their_period() {
        let now = Now { wall: Stamp { secs: 100, nanos: 250_000_000 }, mono: MonoNs(5_000_000_000) };
        assert_eq!(aligned(now, DurNs::from_secs(1)), MonoNs(5_750_000_000));
        assert_eq!(aligned(now, DurNs::from_ms(100)), MonoNs(5_050_000_000));
    }

    #[test]
    fn a_long_scan_pass_skips_the_passes_that_it_delays_and_counts_them() {
        let mut db = Db::new();
        let text = "record(ai, \"a\") { field(SCAN, \".1 second\") }\nrecord(ai, \"b\") { field(SCAN, \"5 second\") }";
        db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap();
        let start = Now { wall: Stamp { secs: 100, nanos: 0 }, mono: MonoNs(0) };
        db.init(start);
        let mut scans = Scans::default();
        scans.plan(&db, start);
        let first = scans.next(start.mono, |scan| db.scanned(scan)).unwrap();
        assert!(!scans.is_due(MonoNs(first.0 - 1)) && scans.is_due(first));
        // Each reading of the clock is 130 ms after the previous one.
        let time = Cell::new(first + DurNs::from_ms(20));
        let clock = || {
            let mono = time.get();
            time.set(mono + DurNs::from_ms(130));
            Now { mono, ..start }
        };
        assert!(scans.run(0, clock, |scan, now| scan_one(&mut db, scan, now)));
        let stats = &scans.clocks()[0].stats;
        assert_eq!((stats.passes(), stats.overruns()), (1, 1));
        assert_eq!(stats.lateness().max(), Some(DurNs::from_ms(20)));
        assert_eq!(stats.duration().max(), Some(DurNs::from_ms(130)));
        assert_eq!((stats.records(), scans.clocks()[0].next), (1, first + DurNs::from_ms(200)));
        stats.reset();
        time.set(first + DurNs::from_ms(200));
        assert!(scans.run(0, clock, |scan, now| scan_one(&mut db, scan, now)));
        let stats = &scans.clocks()[0].stats;
        assert_eq!((stats.passes(), stats.lateness().max()), (1, Some(DurNs::from_ms(0))), "measured from the reset");
    }

    #[test]
    fn skipped_passes_are_reported_at_once_for_a_declared_thread_and_after_ten_seconds_in_a_row_for_others() {
        let mut scans = Scans::default();
        let start = Now { wall: Stamp { secs: 100, nanos: 0 }, mono: MonoNs(0) };
        scans.plan(&Db::new(), start);
        let mut watch = OverrunWatch::default();
        let mut second = 0;
        let mut check = |scans: &Scans| {
            second += 1;
            let both = [(false, scans), (true, scans)].into_iter();
            let found = watch.check(MonoNs(second * 1_000_000_000), both);
            found.into_iter().map(|(thread, _)| thread).collect::<Vec<_>>()
        };
        let skip = |scans: &Scans| scans.clocks[0].stats.pass(DurNs(0), DurNs::from_ms(130), 1, 1);
        assert_eq!(check(&scans), [0; 0]);
        for _ in 0..9 {
            skip(&scans);
            assert_eq!(check(&scans), [1]);
        }
        skip(&scans);
        assert_eq!(check(&scans), [0, 1]);
        assert_eq!(check(&scans), [0; 0]);
        skip(&scans);
        assert_eq!(check(&scans), [1]);
        let text = scans.longest_overrun().unwrap();
        assert_eq!(text, "scan .1 second skipped 11 of 22 passes: the longest one took 130.0 ms");
    }

    #[test]
    fn rates_without_records_cause_no_wake_up_and_begin_at_their_next_border_with_records() {
        let mut scans = Scans::default();
        let start = Now { wall: Stamp { secs: 100, nanos: 0 }, mono: MonoNs(0) };
        scans.plan(&Db::new(), start);
        let (slow, fast) = (scans.clocks()[3].index, scans.clocks()[0].index);
        assert_eq!((&*scans.clocks()[3].name, &*scans.clocks()[0].name), ("1 second", ".1 second"));
        let at = |ms: u64| MonoNs(ms * 1_000_000);
        let only = |rate: u16| move |scan| usize::from(scan == rate);
        assert_eq!(scans.next(at(0), |_| 0), None);
        assert_eq!(scans.next(at(0), only(slow)), Some(at(1_000)));
        assert!(!scans.is_due(at(999)) && scans.is_due(at(1_000)));
        // A client writes SCAN long after the last due times of the fast scan.
        assert_eq!(scans.next(at(1_234), only(fast)), Some(at(1_300)));
        let clock = |ms| move || Now { mono: at(ms), ..start };
        assert!(!scans.run(0, clock(1_299), |_, _| 1) && scans.run(0, clock(1_300), |_, _| 1));
        assert_eq!(scans.clocks()[0].stats.overruns(), 0);
        // Its records have left. One more pass detects that.
        assert_eq!(scans.next(at(1_310), |_| 0), Some(at(1_400)));
        assert!(scans.run(0, clock(1_400), |_, _| 0));
        assert_eq!((scans.next(at(1_410), |_| 0), scans.clocks()[0].stats.records()), (None, 0));
    }
}
