//! The archive in real Cassandra nodes: they contain each sample of a folder exactly once, even if nodes or uploads fail.

use base::{Array, Cluster, Scalar};
use cassandra::{Archive, Status, Upload};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{Bins, Config, Folder, Logger, Reader, SignalId, Span};
use testkit::cassandra::Node;

/// Timeout of a wait.
const LONG: Duration = Duration::from_secs(240);

/// Time of the first sample.
const T0: i64 = 1_795_000_000_000_000_000;

/// A folder that is removed on drop.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tahti-cassandra-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Pseudo-random numbers, the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn folder(place: &Place, name: &str) -> Folder {
    Folder::make(place.0.join(name)).unwrap()
}

/// Waits for a condition.
fn waits(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn all(reader: &dyn Reader, name: &str, span: Span) -> Vec<String> {
    reader.samples(name, span).unwrap().map(|sample| format!("{:?}", sample.unwrap())).collect()
}

/// Checks that two archives give the same answers.
fn is_alike(one: &dyn Reader, other: &dyn Reader, spans: &[Span]) {
    let names = one.names().unwrap();
    assert_eq!(names, other.names().unwrap());
    assert_eq!(one.matching("F*").unwrap(), other.matching("F*").unwrap());
    assert_eq!((one.about("none").unwrap(), other.about("none").unwrap()), (None, None));
    for name in &names {
        let about = |reader: &dyn Reader| {
            let about = reader.about(name).unwrap().unwrap();
            let rows: Vec<_> =
                about.rows.iter().map(|row| format!("{} {} {:?}", row.since, row.kind, row.about)).collect();
            (about.count, about.span, rows)
        };
        assert_eq!(about(one), about(other), "{name}");
        for span in spans {
            let (here, there) = (all(one, name, *span), all(other, name, *span));
            let differs = here.iter().zip(&there).position(|(one, other)| one != other);
            assert_eq!((here.len(), differs), (there.len(), None), "{name} {span:?}");
            let at = |reader: &dyn Reader| reader.at(name, span.to).unwrap().map(|sample| sample.at);
            assert_eq!(at(one), at(other), "{name} {span:?}");
            let gaps = |reader: &dyn Reader| {
                let gaps = reader.gaps(name, *span).unwrap();
                gaps.iter().map(|gap| format!("{} {} {}", gap.at, gap.cause, gap.lost)).collect::<Vec<_>>()
            };
            assert_eq!(gaps(one), gaps(other), "{name} {span:?}");
            if *span == Span::ALL {
                continue;
            }
            let bins = |reader: &dyn Reader| {
                let bins = reader.bins(name, Bins::count(span.from, span.to, 9)).unwrap();
                let row = |bin: &store::Bin| {
                    let all = &bin.summary;
                    (
                        bin.at,
                        all.count,
                        all.nans,
                        format!("{:.6e} {:.6e} {:.6e} {:?} {:?}", all.min, all.max, all.mean, all.first, all.last),
                    )
                };
                bins.iter().map(row).collect::<Vec<_>>()
            };
            assert_eq!(bins(one), bins(other), "{name} {span:?}");
        }
    }
}

/// Slow and fast signals of all types over two days, with clocks set back, gaps, pulses, alarms, changes of type, restarts.
fn log_much(folder: &Folder) {
    let mut noise = Noise(1);
    let mut at = T0;
    for start in 0..3 {
        // Of two changes at the same time, a cluster keeps the later one, and a folder keeps both.
        at += 1;
        let config = Config { segment_size: base::Size(20_000), ..Config::default() };
        let mut logger = Logger::open(folder.clone(), config, 0).unwrap();
        let about =
            |units: &str| About { units: units.into(), precision: Some(2), labels: vec!["off".into(), "on".into()] };
        let names = ["SLOW", "FAST", "MIXED", "grün"];
        let ids: Vec<SignalId> = names
            .iter()
            .map(|name| logger.signal(name, about(if start == 0 { "V" } else { "mV" }), at).unwrap())
            .collect();
        logger.signal("NEVER", about(""), at).unwrap();
        logger.gap(None, at, Cause::Started, 0);
        for step in 0..400i64 {
            at += 200_000_000_000;
            let back = if noise.below(20) == 0 { 1_000_000_000_000 } else { 0 };
            let slow =
                Sample { severity: noise.below(4) as u8, status: 3, ..Sample::new(at - back, step as f64 / 8.0) };
            logger.push(ids[0], &slow);
            for k in 0..60 {
                let fast = Sample { pulse: Some(k as u64), ..Sample::new(at - back + k * 1_000_000, (k as f64).sin()) };
                logger.push(ids[1], &fast);
            }
            let datum = match noise.below(7) {
                0 => Datum::Bool(step % 2 == 0),
                1 => Datum::Number(Scalar::U64(u64::MAX - step as u64)),
                2 => Datum::from("text"),
                3 => Datum::Array(Array::F64(vec![1.5; (step % 4) as usize])),
                4 => Datum::Blob(vec![0xff, step as u8]),
                5 => Datum::from(f64::NAN),
                _ => Datum::Number(Scalar::Enum(1)),
            };
            logger.push(ids[2], &Sample::new(at, datum));
            if noise.below(50) == 0 {
                logger.gap(Some(ids[3]), at, Cause::Disconnected, 2);
                logger.push(ids[3], &Sample::new(at, Datum::from(step)));
            }
            if step % 3 == 0 {
                logger.sync(step);
            }
        }
        assert_eq!(logger.close(0, at).failures, 0);
    }
}

/// Uploads all samples of the folder.
fn sent(folder: &Folder, cluster: &Cluster) -> Status {
    let limit = Logger::open(folder.clone(), Config::default(), 0).unwrap().safe_to();
    let upload = Upload::start(folder.clone(), cluster.clone()).unwrap();
    upload.safe_to(limit);
    let status = upload.end(LONG);
    assert_eq!((status.waiting, &status.error), (0, &None), "{status:?}");
    status
}

#[test]
fn a_cluster_returns_the_samples_of_the_folder_and_repeated_uploads_duplicate_nothing() {
    let place = Place::new("alike");
    let node = Node::start(&place.0, 1, 1);
    let cluster = Cluster::new([node.address().as_str()], "alike").unwrap();
    let folder = folder(&place, "archive");
    log_much(&folder);
    let status = sent(&folder, &cluster);
    assert_eq!((status.refused, status.missed, status.again), (0, 0, 0), "{status:?}");
    let spans = [
        Span::ALL,
        Span { from: T0 + 1, to: T0 + 40_000_000_000_000 },
        Span { from: T0 + 81_000_000_000_000, to: T0 + 170_000_000_000_123 },
    ];
    let (here, there) = (store::Archive::open(folder.clone()).unwrap(), Archive::open(cluster.clone()).unwrap());
    is_alike(&here, &there, &spans);
    // As if the upload had been killed before it recorded that a portion was stored.
    let mark = store::Mark::read(&folder, "cassandra").unwrap().unwrap();
    let begin = store::Position::default();
    store::Mark { done: begin, planned: begin, ..mark }.write(&folder, "cassandra").unwrap();
    assert_eq!(sent(&folder, &cluster).samples, status.samples);
    is_alike(&here, &Archive::open(cluster).unwrap(), &spans);
}

/// Logs increasing numbers, alternating between two signals, until the upload has enough; returns their count.
fn log_numbers(logger: &mut Logger<Folder>, ids: [SignalId; 2], upload: &Upload, from: u64, count: u64) -> u64 {
    for k in from..from + count {
        // One slow signal, one fast.
        let (id, step) = if k % 50 == 0 { (ids[0], 1_000_000_000) } else { (ids[1], 1_000_000) };
        logger.push(id, &Sample::new(T0 + k as i64 * step, k as f64));
        if k % 500 == 0 {
            logger.sync(k as i64);
            upload.safe_to(logger.safe_to());
        }
    }
    logger.sync(0);
    upload.safe_to(logger.safe_to());
    from + count
}

/// The numbers of both signals that a reader finds, in order.
fn numbers(reader: &dyn Reader) -> Vec<u64> {
    let mut numbers = Vec::new();
    for name in ["SLOW", "FAST"] {
        let samples = reader.samples(name, Span::ALL).unwrap();
        numbers.extend(samples.map(|sample| sample.unwrap().datum.to_f64().unwrap() as u64));
    }
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_node_that_is_killed_during_uploads_has_every_sample_once_in_the_end() {
    let place = Place::new("killed");
    let mut node = Node::start(&place.0, 1, 1);
    let cluster = Cluster::new([node.address().as_str()], "killed").unwrap();
    let folder = folder(&place, "archive");
    let config = Config { segment_size: base::Size(200_000), ..Config::default() };
    let mut logger = Logger::open(folder.clone(), config, 0).unwrap();
    let ids = ["SLOW", "FAST"].map(|name| logger.signal(name, About::default(), T0).unwrap());
    let upload = Upload::start(folder.clone(), cluster.clone()).unwrap();
    let mut logged = 0;
    for round in 1..=2u64 {
        logged = log_numbers(&mut logger, ids, &upload, logged, 200_000);
        waits("some samples are in the cluster", || upload.status().samples > (round - 1) * 200_000);
        node.kill();
        logged = log_numbers(&mut logger, ids, &upload, logged, 50_000);
        waits("how much waits, and why", || {
            let status = upload.status();
            !status.is_connected && status.waiting > 0 && status.error.is_some()
        });
        // The outage may have any duration.
        let away = std::env::var("TAHTI_OUTAGE_SECONDS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(3);
        std::thread::sleep(Duration::from_secs(away));
        node.again();
    }
    let status = upload.end(LONG);
    assert_eq!((status.waiting, status.missed, status.refused), (0, 0, 0), "{status:?}");
    let archive = Archive::open(cluster.clone()).unwrap();
    assert_eq!(numbers(&archive), (0..logged).collect::<Vec<_>>());
    let count = |name: &str| archive.about(name).unwrap().unwrap().count;
    assert_eq!(count("SLOW") + count("FAST"), logged, "the counts are of each sample once");
    drop(logger);
    is_alike(&store::Archive::open(folder).unwrap(), &archive, &[]);
}

#[test]
fn three_nodes_store_and_return_samples_while_one_of_them_is_dead() {
    let place = Place::new("three");
    let mut nodes: Vec<Node> = (1..=3).map(|number| Node::start(&place.0, number, 1)).collect();
    let addresses: Vec<String> = nodes.iter().map(Node::address).collect();
    let mut cluster = Cluster::new(addresses.iter().map(String::as_str), "three").unwrap();
    cluster.replication = 3;
    let folder = folder(&place, "archive");
    let mut logger = Logger::open(folder.clone(), Config::default(), 0).unwrap();
    let ids = ["SLOW", "FAST"].map(|name| logger.signal(name, About::default(), T0).unwrap());
    let upload = Upload::start(folder, cluster.clone()).unwrap();
    let logged = log_numbers(&mut logger, ids, &upload, 0, 100_000);
    waits("some samples are in the cluster", || upload.status().samples > 0);
    nodes[2].kill();
    let logged = log_numbers(&mut logger, ids, &upload, logged, 100_000);
    let status = upload.end(LONG);
    assert_eq!((status.waiting, status.missed), (0, 0), "{status:?}");
    assert_eq!(numbers(&Archive::open(cluster).unwrap()), (0..logged).collect::<Vec<_>>());
}

#[test]
fn a_log_is_sent_by_one_upload_at_a_time_which_locks_it_from_its_start() {
    let place = Place::new("one");
    let folder = folder(&place, "log");
    let cluster = Cluster::new(["127.0.0.1:1"], "one").unwrap();
    let upload = Upload::start(folder.clone(), cluster.clone()).unwrap();
    assert!(place.0.join("log/cassandra.mark").exists(), "later packs use the mark");
    let refused = Upload::start(folder.clone(), cluster.clone()).err().unwrap().to_string();
    assert!(refused.contains("another process sends this log") && refused.contains("stop the other"), "{refused}");
    drop(upload);
    drop(Upload::start(folder, cluster).unwrap());
}

#[test]
fn an_absent_cluster_is_reported_and_the_log_loses_nothing() {
    let place = Place::new("away");
    let folder = folder(&place, "archive");
    let cluster = Cluster::new(["127.0.0.9:9"], "away").unwrap();
    let mut logger = Logger::open(folder.clone(), Config::default(), 0).unwrap();
    let ids = ["SLOW", "FAST"].map(|name| logger.signal(name, About::default(), T0).unwrap());
    let upload = Upload::start(folder.clone(), cluster.clone()).unwrap();
    log_numbers(&mut logger, ids, &upload, 0, 1_000);
    waits("the outage is reported", || upload.status().error.is_some() && upload.status().waiting > 0);
    assert!(!upload.end(Duration::ZERO).is_connected);
    drop(logger);
    assert_eq!(numbers(&store::Archive::open(folder).unwrap()).len(), 1_000);
    let error = Archive::open(cluster).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("cassandra://127.0.0.9:9/away: failed to open it"), "{error}");
}
