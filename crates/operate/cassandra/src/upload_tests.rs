//! Tests with a cluster that acknowledges late, never, or not at all. The mark, up to which files may be removed, must not pass what the
//! cluster has acknowledged.

use super::*;
use crate::client::BucketState;
use crate::put::{Bucket, Extent};
use crate::schema::Form;
use segment::Sample;
use segment::rows::About;
use std::collections::HashMap;
use store::{Config, Logger, Memory};
use tokio::sync::Notify;

/// Outcome of a request.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Acknowledged,
    /// Acknowledged after `Fake::released` was notified.
    Late,
    Never,
    Refused,
    /// The task of the request panics.
    Panics,
}

/// A cluster in memory.
struct Fake {
    files: Memory,
    /// Outcomes of the next requests. The last one applies to all further requests.
    fates: Mutex<Vec<Fate>>,
    released: Notify,
    asked: Mutex<usize>,
    /// Signals and numbers of the acknowledged samples, with their bucket.
    samples: Mutex<HashMap<(Arc<str>, i64), Bucket>>,
    buckets: Mutex<HashMap<Bucket, Option<Extent>>>,
    /// Position of the mark at each acknowledged request.
    marks: Mutex<Vec<Position>>,
}

impl Fake {
    fn new(files: &Memory, fates: &[Fate]) -> Arc<Self> {
        Arc::new(Self {
            files: files.clone(),
            fates: Mutex::new(fates.iter().rev().copied().collect()),
            released: Notify::new(),
            asked: Mutex::new(0),
            samples: Mutex::default(),
            buckets: Mutex::default(),
            marks: Mutex::default(),
        })
    }

    async fn answer(&self) -> Result<(), Failure> {
        *locked(&self.asked) += 1;
        let fate = {
            let mut fates = locked(&self.fates);
            if fates.len() > 1 { fates.pop() } else { fates.last().copied() }
        };
        match fate.unwrap_or(Fate::Acknowledged) {
            Fate::Acknowledged => {}
            Fate::Late => {
                self.released.notified().await;
                // Wakes the next waiting request.
                self.released.notify_one();
            }
            Fate::Never => std::future::pending().await,
            Fate::Refused => return Err("overloaded".into()),
            Fate::Panics => panic!("a request that ends without an answer"),
        }
        locked(&self.marks).push(done(&self.files));
        Ok(())
    }
}

impl Sink for Fake {
    fn nodes(&self) -> usize {
        1
    }

    async fn put(&self, put: &Put) -> Result<(), Failure> {
        self.answer().await?;
        let mut samples = locked(&self.samples);
        match put {
            Put::Rows { name, bucket, rows } => {
                let bucket = (name.clone(), Form::Rows, *bucket);
                samples.extend(rows.iter().map(|(number, _)| ((name.clone(), *number), bucket.clone())));
            }
            Put::Chunk { name, bucket, number, entry, .. } => {
                let bucket = (name.clone(), Form::Chunks, *bucket);
                let count: i64 =
                    segment::pack::entries(entry).unwrap().iter().map(|entry| i64::from(entry.count)).sum();
                samples.extend((*number..*number + count).map(|number| ((name.clone(), number), bucket.clone())));
            }
            Put::Signal(_) | Put::Gap { .. } => {}
        }
        Ok(())
    }

    async fn state(&self, bucket: &Bucket) -> Result<(BucketState, Vec<i64>), Failure> {
        self.answer().await?;
        let buckets = locked(&self.buckets);
        let state = match buckets.get(bucket) {
            None => BucketState::Missing,
            Some(None) => BucketState::Open,
            Some(Some(_)) => BucketState::Ended,
        };
        let is_other = |one: &Bucket| one != bucket && (&one.0, one.1) == (&bucket.0, bucket.1);
        let open = buckets.iter().filter(|(one, extent)| extent.is_none() && is_other(one));
        Ok((state, open.map(|((_, _, begin), _)| *begin).collect()))
    }

    async fn begin(&self, bucket: &Bucket, before: BucketState) -> Result<(), Failure> {
        self.answer().await?;
        let old = locked(&self.buckets).insert(bucket.clone(), None);
        assert_eq!(old.flatten().is_some(), before == BucketState::Ended);
        Ok(())
    }

    async fn extent(&self, bucket: &Bucket) -> Result<Option<Extent>, Failure> {
        self.answer().await?;
        let count = locked(&self.samples).values().filter(|one| *one == bucket).count() as i64;
        Ok(Some(Extent { count, first: 0, last: 0 }))
    }

    async fn end(&self, bucket: &Bucket, extent: Extent) -> Result<(), Failure> {
        self.answer().await?;
        locked(&self.buckets).insert(bucket.clone(), Some(extent));
        Ok(())
    }
}

const SAMPLES: i64 = 200;

/// A log of one portion, and the position up to which it is safe.
fn log() -> (Memory, Position) {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let slow = logger.signal("SLOW", About::default(), 0).unwrap();
    let fast = logger.signal("FAST", About::default(), 0).unwrap();
    for k in 0..SAMPLES / 2 {
        logger.push(slow, &Sample::new(k * 1_000_000_000, k as f64));
        logger.push(fast, &Sample::new(k * 1_000_000, k as f64));
    }
    logger.sync(1);
    let limit = logger.safe_to();
    Mark { log: 7, done: Position::default(), planned: Position::default() }.write(&files, MARK).unwrap();
    (files, limit)
}

fn done(files: &Memory) -> Position {
    Mark::read(files, MARK).unwrap().unwrap().done
}

/// Sends the log until all of it is acknowledged, or the upload is abandoned.
fn send(files: &Memory, limit: Position, fake: &Arc<Fake>) -> (Arc<Shared>, JoinHandle<()>) {
    let shared = Arc::new(Shared::default());
    *locked(&shared.limit) = limit;
    shared.ends.store(true, Ordering::Release);
    let mark = Mark::read(files, MARK).unwrap().unwrap();
    let work = Work::new(files.clone(), mark, "cassandra://db/plant".parse().unwrap(), shared.clone());
    let fake = fake.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (shared, std::thread::spawn(move || runtime.block_on(work.take(fake))))
}

/// Waits until a condition holds.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Checks that everything was acknowledged, in buckets that readers find, and that the mark did not advance before.
fn all_was_acknowledged(files: &Memory, limit: Position, fake: &Fake) {
    assert_eq!(locked(&fake.samples).len() as i64, SAMPLES);
    assert!(locked(&fake.samples).values().all(|bucket| locked(&fake.buckets).contains_key(bucket)));
    assert!(locked(&fake.marks).iter().all(|mark| *mark == Position::default()));
    assert_eq!(done(files), limit);
}

#[test]
fn the_mark_waits_for_a_cluster_that_acknowledges_late() {
    let (files, limit) = log();
    let fake = Fake::new(&files, &[Fate::Late]);
    let (_, thread) = send(&files, limit, &fake);
    until("a request", || *locked(&fake.asked) > 0);
    assert_eq!(done(&files), Position::default());
    assert!(store::due(&files, u64::MAX, true).unwrap().is_none(), "no file can be packed yet");
    fake.released.notify_one();
    thread.join().unwrap();
    all_was_acknowledged(&files, limit, &fake);
}

#[test]
fn refused_and_lost_portions_are_sent_again_before_the_mark_moves() {
    use Fate::{Acknowledged, Panics, Refused};
    let orders: [&[Fate]; 4] = [
        &[Refused, Refused, Acknowledged],
        &[Panics, Acknowledged],
        &[Acknowledged, Acknowledged, Refused, Acknowledged, Panics, Acknowledged],
        &[Acknowledged, Acknowledged, Acknowledged, Acknowledged, Panics, Refused, Panics, Acknowledged],
    ];
    for fates in orders {
        let (files, limit) = log();
        let fake = Fake::new(&files, fates);
        let (_, thread) = send(&files, limit, &fake);
        thread.join().unwrap();
        all_was_acknowledged(&files, limit, &fake);
    }
}

#[test]
fn unacknowledged_samples_are_sent_by_the_next_start() {
    let (files, limit) = log();
    for acknowledged in 0..6 {
        let mut fates = vec![Fate::Acknowledged; acknowledged];
        fates.push(Fate::Never);
        let fake = Fake::new(&files, &fates);
        let (shared, thread) = send(&files, limit, &fake);
        until("a request without an answer", || *locked(&fake.asked) > acknowledged);
        shared.is_abandoned.store(true, Ordering::Release);
        thread.join().unwrap();
        assert_eq!(done(&files), Position::default(), "{acknowledged} acknowledged");
    }
    let fake = Fake::new(&files, &[Fate::Acknowledged]);
    let (_, thread) = send(&files, limit, &fake);
    thread.join().unwrap();
    all_was_acknowledged(&files, limit, &fake);
}

#[test]
fn a_portion_grows_with_the_number_of_signals_up_to_a_bound() {
    let of = |signals| (Size::of(signals).bytes, Size::of(signals).pace.as_secs());
    assert_eq!([of(0), of(5_000), of(20_000)], [(1 << 20, 5), (1 << 20, 5), (4_000_000, 15)]);
    assert_eq!([of(100_000), of(usize::MAX)], [(16 << 20, 30); 2]);
}

/// Sends a log of samples at these seconds of two signals, as portions that end behind each group. Returns the buckets.
fn send_groups(fake: &Arc<Fake>, groups: &[&[i64]]) {
    let files = &fake.files;
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let ids = ["A", "B"].map(|name| logger.signal(name, About::default(), 0).unwrap());
    for group in groups {
        for (second, id) in group.iter().flat_map(|second| ids.map(|id| (*second, id))) {
            logger.push(id, &Sample::new(second * 1_000_000_000, second as f64));
        }
        logger.sync(1);
        let (_, thread) = send(files, logger.safe_to(), fake);
        thread.join().unwrap();
    }
}

#[test]
fn a_bucket_that_ends_has_the_count_of_its_samples_also_if_several_uploads_have_sent_them() {
    const DAY: i64 = 86_400;
    let files = Memory::default();
    Mark { log: 7, done: Position::default(), planned: Position::default() }.write(&files, MARK).unwrap();
    let fake = Fake::new(&files, &[Fate::Acknowledged]);
    // Each group is sent by an upload of its own. The last one has a late sample of the first day.
    send_groups(&fake, &[&[1, 2, 3], &[4, DAY, DAY + 1], &[5, 2 * DAY]]);
    let buckets = locked(&fake.buckets);
    let counts =
        |day: i64| ["A", "B"].map(|name| buckets[&(name.into(), Form::Rows, day * DAY * 1_000)].map(|all| all.count));
    assert_eq!((counts(0), counts(1), counts(2)), ([Some(5); 2], [Some(2); 2], [None; 2]));
}

/// A portion needs one statement for a batch per signal. With 20,000 signals at 1 Hz a portion of 1 MiB has two or three samples of each. Its
/// bucket needs two when it begins.
#[test]
fn many_slow_signals_need_fewer_than_one_statement_for_two_samples() {
    const SIGNALS: u32 = 20_000;
    const SECONDS: i64 = 12;
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let ids: Vec<_> =
        (0..SIGNALS).map(|k| logger.signal(&format!("PLANT:S{k}"), About::default(), 0).unwrap()).collect();
    for second in 0..SECONDS {
        for id in &ids {
            logger.push(*id, &Sample::new(second * 1_000_000_000, second as f64 * 0.7));
        }
        logger.sync(second);
    }
    let limit = logger.safe_to();
    Mark { log: 7, done: Position::default(), planned: Position::default() }.write(&files, MARK).unwrap();
    let fake = Fake::new(&files, &[Fate::Acknowledged]);
    let (_, thread) = send(&files, limit, &fake);
    thread.join().unwrap();
    let samples = i64::from(SIGNALS) * SECONDS;
    assert_eq!(locked(&fake.samples).len() as i64, samples);
    // The description of each signal is written once.
    let statements = *locked(&fake.asked) as i64 - i64::from(SIGNALS);
    println!("{statements} statements for {samples} samples: {:.2} each", statements as f64 / samples as f64);
    assert!(statements * 2 < samples, "{statements} statements for {samples} samples");
}

/// Number of statements that carry samples, as (batches of rows, chunks), for a log of `signals` signals with `samples`
/// samples each.
fn statements(signals: u32, samples: i64) -> (usize, usize) {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let ids: Vec<_> = (0..signals).map(|k| logger.signal(&format!("S{k}"), About::default(), 0).unwrap()).collect();
    for second in 0..samples {
        ids.iter().for_each(|id| {
            let _ = logger.push(*id, &Sample::new(second * 1_000_000_000, second as f64));
        });
        logger.sync(second);
    }
    let window = Follow::new(files, Position::default()).window(logger.safe_to(), None).unwrap().unwrap();
    let puts: Vec<Put> = Puts::new(&window).collect();
    let count = |is: fn(&Put) -> bool| puts.iter().filter(|put| is(put)).count();
    (count(|put| matches!(put, Put::Rows { .. })), count(|put| matches!(put, Put::Chunk { .. })))
}

#[test]
fn slow_signals_are_chunks_in_a_portion_of_many_signals_and_rows_in_one_of_few() {
    assert_eq!(statements(4_999, 5), (4_999, 0));
    assert_eq!(statements(5_000, 5), (0, 5_000));
    assert_eq!(statements(5_000, 3), (5_000, 0));
}

/// Damage to the files of an archive.
type Harm = fn(&Memory, &[String]);

fn flip(files: &Memory, name: &str) {
    let half = files.bytes(name).unwrap().len() / 2;
    flip_at(files, name, half);
}

fn flip_at(files: &Memory, name: &str, at: usize) {
    let mut bytes = files.bytes(name).unwrap();
    bytes[at] ^= 0x10;
    files.set_bytes(name, bytes);
}

/// Flips a bit that samples depend on: a pack also has parts for other readers.
fn flip_sample(files: &Memory, name: &str) {
    let len = files.bytes(name).unwrap().len();
    for at in (0..len).step_by(len / 16) {
        flip_at(files, name, at);
        if readable(files) < MANY as usize {
            return;
        }
        flip_at(files, name, at);
    }
    panic!("no sample depends on {name}");
}

fn remove(files: &Memory, name: &str) {
    files.remove(name).unwrap();
}

/// Number of samples of [`many`].
const MANY: i64 = 400;

/// A closed log of many segments, the first of them as a pack, and the names of its files, oldest first.
fn many() -> (Memory, Vec<String>) {
    let files = Memory::default();
    let config = Config { segment_size: base::Size(600), ..Config::default() };
    let mut logger = Logger::open(files.clone(), config, 0).unwrap();
    let ids = ["SLOW", "FAST"].map(|name| logger.signal(name, About::default(), 0).unwrap());
    for k in 0..MANY {
        logger.push(ids[k as usize % 2], &Sample::new(k * 1_000_000, k as f64 / 8.0));
        if k % 5 == 4 {
            logger.sync(k);
        }
    }
    logger.close(0, 1_000_000_000);
    store::pack(&files, 1, 3).unwrap();
    let mut names: Vec<String> = files.list().unwrap().into_iter().map(|(name, _)| name).collect();
    names.retain(|name| name.ends_with(".segment") || name.ends_with(store::PACK));
    names.sort_unstable();
    (files, names)
}

/// Number of samples that a reader finds.
fn readable(files: &Memory) -> usize {
    let archive = store::Archive::open(files.clone()).unwrap();
    let count = |name| archive.samples(name, store::Span::ALL).unwrap().filter(Result::is_ok).count();
    count("SLOW") + count("FAST")
}

#[test]
fn damage_is_counted_and_printed_and_readable_samples_are_sent() {
    let harms: [(&str, Harm); 7] = [
        ("a flipped bit of a pack", |files, names| flip_sample(files, &names[0])),
        ("a flipped bit of a segment", |files, names| flip(files, &names[2])),
        ("a missing pack", |files, names| remove(files, &names[0])),
        ("a missing segment", |files, names| remove(files, &names[2])),
        ("a missing last segment", |files, names| remove(files, names.last().unwrap())),
        ("all but the first file missing", |files, names| names[1..].iter().for_each(|name| remove(files, name))),
        ("all files missing", |files, names| names.iter().for_each(|name| remove(files, name))),
    ];
    for (what, harm) in harms {
        let (files, names) = many();
        assert!(names[0].ends_with(store::PACK) && names.len() > 6, "{names:?}");
        assert_eq!(readable(&files), MANY as usize);
        harm(&files, &names);
        Mark { log: 7, done: Position::default(), planned: Position::default() }.write(&files, MARK).unwrap();
        let limit = store::written_to(&files).unwrap();
        let fake = Fake::new(&files, &[Fate::Acknowledged]);
        let (shared, thread) = send(&files, limit, &fake);
        thread.join().unwrap();
        let status = locked(&shared.status).clone();
        assert!(status.damaged > 0, "{what}: {status:?}");
        assert!(status.to_string().contains("places of the log are damaged"), "{what}: {status}");
        // The log is read in order, so a damaged index of a pack does not prevent samples from being sent.
        assert!(locked(&fake.samples).len() >= readable(&files), "{what}");
        assert!(readable(&files) < MANY as usize, "{what}");
        assert_eq!((done(&files), status.waiting), (limit, 0), "{what}");
    }
    let (files, _) = many();
    Mark { log: 7, done: Position::default(), planned: Position::default() }.write(&files, MARK).unwrap();
    let fake = Fake::new(&files, &[Fate::Acknowledged]);
    let (shared, thread) = send(&files, store::written_to(&files).unwrap(), &fake);
    thread.join().unwrap();
    assert_eq!(
        (locked(&fake.samples).len(), locked(&shared.status).damaged),
        (MANY as usize, 0),
        "an archive without damage"
    );
}

#[test]
fn a_damaged_or_missing_manifest_is_named_and_every_sample_is_sent() {
    let harms: [(&str, Harm); 3] = [
        ("whole", |_, _| ()),
        ("a flipped bit", |files, _| flip(files, "manifest")),
        ("missing", |files, _| remove(files, "manifest")),
    ];
    for (what, harm) in harms {
        let (files, names) = many();
        harm(&files, &names);
        Mark { log: 7, done: Position::default(), planned: Position::default() }.write(&files, MARK).unwrap();
        let fake = Fake::new(&files, &[Fate::Acknowledged]);
        let (shared, thread) = send(&files, store::written_to(&files).unwrap(), &fake);
        thread.join().unwrap();
        let status = locked(&shared.status).clone();
        assert_eq!(status.manifest.is_some(), what != "whole", "{what}: {status}");
        assert_eq!(status.to_string().contains("damaged: manifest: "), what != "whole", "{what}: {status}");
        assert_eq!(locked(&fake.samples).len(), MANY as usize, "{what}");
    }
}

#[test]
fn damage_in_the_segment_that_is_being_written_is_counted() {
    let (files, limit) = log();
    let (name, _) = files.list().unwrap().into_iter().find(|(name, _)| name.ends_with(".segment")).unwrap();
    let mut bytes = files.bytes(&name).unwrap();
    bytes[100] ^= 1;
    files.set_bytes(&name, bytes);
    let fake = Fake::new(&files, &[Fate::Acknowledged]);
    let (shared, thread) = send(&files, limit, &fake);
    thread.join().unwrap();
    assert!(locked(&shared.status).damaged > 0, "{:?}", locked(&shared.status));
}

/// Gaps among the statements for a window.
fn gaps(window: &Window) -> Vec<(i64, segment::rows::Cause)> {
    let of = |put| if let Put::Gap { gap, .. } = put { Some((gap.at, gap.cause)) } else { None };
    Puts::new(window).filter_map(of).collect()
}

#[test]
fn segments_that_were_removed_unsent_are_a_gap_also_where_a_portion_has_no_samples() {
    use segment::rows::{Cause, Gap, Signal};
    let (started, about) = (Gap { id: None, at: 8, cause: Cause::Started, lost: 0 }, About::default());
    let signal = Signal { id: 0, since: 5, kind: segment::Kind::Bool, name: "A".to_owned(), about };
    let mut window = Window { missed: 2, signals: vec![signal], ..Window::default() };
    assert_eq!(gaps(&window), [(5, Cause::DiskFull)]);
    window.gaps = vec![(1, None, started)];
    assert_eq!(gaps(&window), [(5, Cause::DiskFull), (8, Cause::Started)]);
}

#[test]
fn an_upload_counts_segments_that_were_removed_before_it_reached_the_cluster() {
    let (files, names) = many();
    let begin = store::begin(&files).unwrap();
    Mark { log: 7, done: begin, planned: begin }.write(&files, MARK).unwrap();
    // As the logger does when its limit of size is reached, while the cluster is away.
    let limited = Config { total_max: Some(base::Size(3_000)), segment_size: base::Size(600), ..Config::default() };
    let mut logger = Logger::open(files.clone(), limited, 0).unwrap();
    let id = logger.signal("SLOW", About::default(), 0).unwrap();
    for k in 0..20 {
        logger.push(id, &Sample::new(2_000_000_000 + k, k as f64));
        logger.sync(k);
    }
    let account = logger.account();
    assert!(account.removed > 1 && !files.list().unwrap().iter().any(|(name, _)| *name == names[0]), "{account:?}");
    let fake = Fake::new(&files, &[Fate::Acknowledged]);
    let (shared, thread) = send(&files, logger.safe_to(), &fake);
    thread.join().unwrap();
    // The first file is a pack of three segments.
    assert_eq!((locked(&shared.status).missed, account.unsent), (account.removed + 2, account.removed + 2));
}
