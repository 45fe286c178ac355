//! Tables and statements.
//!
//! | table | a partition | a row |
//! |---|---|---|
//! | `signal` | a sixteenth of the names | description of a signal since an instant |
//! | `sample` | a day of a signal | a sample, each column readable with `cqlsh` |
//! | `chunk` | an hour of a signal | up to 8,192 samples of a fast signal, in columns as in a segment ([`segment::chunk`]) |
//! | `bucket` | a signal | a partition of `sample` or `chunk`: number of samples, first and last timestamp; all null until it ends |
//! | `gap` | a signal; a tab, which is not a valid signal name, for all signals | reason for missing samples |
//!
//! `at` is in nanoseconds since 1970, UTC. `number` is the place in the log. It is unique, and unchanged when a portion of the log is sent
//! again, so there are no duplicates. Rows are never deleted explicitly; they expire by the table's TTL.

use base::{Cluster, DurNs};

/// Name for all signals in the table of gaps. A signal name has no control characters, and a key must not be empty.
pub(crate) const ALL: &str = "\t";

/// Number of partitions for the names.
pub(crate) const SHARDS: i8 = 16;

/// Approximate number of compaction windows over the lifetime of a table's samples.
const WINDOWS: i64 = 30;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Storage form of samples, and length of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Form {
    /// One row per sample, in buckets of a day.
    Rows = 0,
    /// Chunks, in buckets of an hour.
    Chunks = 1,
}

impl Form {
    pub(crate) const ALL: [Self; 2] = [Self::Rows, Self::Chunks];

    const fn secs(self) -> i64 {
        match self {
            Self::Rows => DAY,
            Self::Chunks => HOUR,
        }
    }

    /// Start of the bucket that contains an instant, in milliseconds since 1970, as in Cassandra's `timestamp`.
    pub(crate) const fn bucket(self, at: i64) -> i64 {
        at.div_euclid(self.secs() * 1_000_000_000) * self.secs() * 1_000
    }

    /// Start of the next bucket, in milliseconds since 1970.
    pub(crate) const fn end(self, begin: i64) -> i64 {
        begin.saturating_add(self.secs() * 1_000)
    }

    pub(crate) const fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Rows),
            1 => Some(Self::Chunks),
            _ => None,
        }
    }
}

/// Partition of a name in the table of signals (FNV-1a).
pub(crate) fn shard(name: &str) -> i8 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash % SHARDS as u64) as i8
}

/// Seconds after which samples expire; 0 for never.
pub(crate) fn ttl_secs(cluster: &Cluster) -> i32 {
    cluster.ttl.map_or(0, |DurNs(ns)| i32::try_from(ns / 1_000_000_000).unwrap_or(i32::MAX))
}

/// Seconds after which a row of `bucket` expires: not before the samples of the bucket, the last of which may be a day younger.
pub(crate) fn bucket_ttl_secs(cluster: &Cluster) -> i32 {
    // Cassandra's maximum is 20 years.
    match ttl_secs(cluster) {
        0 => 0,
        secs => secs.saturating_add(DAY as i32).min(630_720_000),
    }
}

/// Tables with rows that expire.
pub(crate) const FORGETTING: [&str; 4] = ["sample", "chunk", "bucket", "gap"];

/// Statement that creates the keyspace.
pub(crate) fn keyspace(cluster: &Cluster) -> String {
    format!(
        "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {}}}",
        cluster.keyspace, cluster.replication
    )
}

/// Statements that create the tables.
pub(crate) fn tables(cluster: &Cluster) -> [String; 5] {
    let (keyspace, ttl) = (&cluster.keyspace, ttl_secs(cluster));
    let window = match i64::from(ttl) / WINDOWS {
        0 => ("DAYS", WINDOWS),
        secs if secs < DAY => ("HOURS", (secs / HOUR).max(1)),
        secs => ("DAYS", secs / DAY),
    };
    let by_time = format!(
        "WITH compaction = {{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': '{}', \
         'compaction_window_size': '{}'}} AND default_time_to_live = {ttl}",
        window.0, window.1
    );
    let plain = format!("WITH default_time_to_live = {ttl}");
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.signal (shard tinyint, name text, since bigint, kind tinyint, \
             units text, precision int, labels frozen<list<text>>, PRIMARY KEY ((shard), name, since))"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.sample (signal text, day timestamp, at bigint, number bigint, \
             kind tinyint, value double, whole bigint, words text, bytes blob, severity tinyint, status int, \
             pulse bigint, PRIMARY KEY ((signal, day), at, number)) {by_time}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.chunk (signal text, hour timestamp, at bigint, number bigint, \
             entry blob, data blob, PRIMARY KEY ((signal, hour), at, number)) {by_time}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.bucket (signal text, form tinyint, beginning timestamp, count bigint, \
             first bigint, last bigint, PRIMARY KEY ((signal), form, beginning)) {plain}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.gap (signal text, at bigint, number bigint, cause tinyint, \
             lost bigint, PRIMARY KEY ((signal), at, number)) {plain}"
        ),
    ]
}

/// Prepared statements. Each names the keyspace explicitly, so that it is valid on a restarted node.
pub(crate) mod cql {
    pub(crate) const PUT_SIGNAL: &str = "INSERT INTO {keyspace}.signal (shard, name, since, kind, units, precision, labels) VALUES (?, ?, ?, ?, ?, ?, ?)";
    pub(crate) const PUT_SAMPLE: &str = "INSERT INTO {keyspace}.sample (signal, day, at, number, kind, value, whole, words, bytes, severity, status, pulse) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    pub(crate) const PUT_CHUNK: &str =
        "INSERT INTO {keyspace}.chunk (signal, hour, at, number, entry, data) VALUES (?, ?, ?, ?, ?, ?)";
    pub(crate) const PUT_BUCKET: &str = "INSERT INTO {keyspace}.bucket (signal, form, beginning, count, first, last) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?";
    pub(crate) const PUT_GAP: &str =
        "INSERT INTO {keyspace}.gap (signal, at, number, cause, lost) VALUES (?, ?, ?, ?, ?)";
    pub(crate) const GET_NAMES: &str = "SELECT name FROM {keyspace}.signal WHERE shard = ?";
    pub(crate) const GET_SIGNAL: &str =
        "SELECT since, kind, units, precision, labels FROM {keyspace}.signal WHERE shard = ? AND name = ?";
    pub(crate) const GET_BUCKETS: &str =
        "SELECT form, beginning, count, first, last FROM {keyspace}.bucket WHERE signal = ?";
    pub(crate) const GET_BUCKET: &str =
        "SELECT count FROM {keyspace}.bucket WHERE signal = ? AND form = ? AND beginning = ?";
    /// The form is restricted, but the order must begin with it.
    pub(crate) const GET_NEWEST: &str = "SELECT beginning, count FROM {keyspace}.bucket WHERE signal = ? AND form = ? \
         ORDER BY form DESC, beginning DESC LIMIT 4";
    pub(crate) const GET_EXTENT: &str =
        "SELECT COUNT(*), MIN(at), MAX(at) FROM {keyspace}.sample WHERE signal = ? AND day = ?";
    pub(crate) const GET_SAMPLES: &str = "SELECT at, number, kind, value, whole, words, bytes, severity, status, pulse FROM {keyspace}.sample \
         WHERE signal = ? AND day = ? AND at >= ? AND at <= ?";
    pub(crate) const GET_LAST: &str = "SELECT at, number, kind, value, whole, words, bytes, severity, status, pulse FROM {keyspace}.sample \
         WHERE signal = ? AND day = ? AND at >= ? AND at <= ? ORDER BY at DESC, number DESC LIMIT 1";
    pub(crate) const GET_ENTRIES: &str =
        "SELECT at, number, entry FROM {keyspace}.chunk WHERE signal = ? AND hour = ? AND at <= ?";
    pub(crate) const GET_CHUNK: &str =
        "SELECT data FROM {keyspace}.chunk WHERE signal = ? AND hour = ? AND at = ? AND number = ?";
    pub(crate) const GET_GAPS: &str =
        "SELECT at, number, cause, lost FROM {keyspace}.gap WHERE signal = ? AND at >= ? AND at <= ?";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_assigned_to_their_bucket_also_before_1970() {
        let day_ms = 86_400_000;
        for (at, rows, chunks) in [
            (0, 0, 0),
            (-1, -day_ms, -3_600_000),
            (90_000_000_000_000, day_ms, 25 * 3_600_000),
            (i64::MIN, -106_752 * day_ms, -2_562_048 * 3_600_000),
        ] {
            assert_eq!((Form::Rows.bucket(at), Form::Chunks.bucket(at)), (rows, chunks), "{at}");
        }
    }

    #[test]
    fn the_time_to_live_of_samples_sets_the_compaction_window() {
        let mut cluster = Cluster::new(["a"], "plant").unwrap();
        let table = |cluster: &Cluster| tables(cluster)[1].clone();
        assert!(table(&cluster).ends_with("'compaction_window_size': '30'} AND default_time_to_live = 0"));
        cluster.ttl = Some(DurNs::from_secs(365 * 86_400));
        assert!(
            table(&cluster).contains("'DAYS', 'compaction_window_size': '12'} AND default_time_to_live = 31536000")
        );
        cluster.ttl = Some(DurNs::from_secs(86_400));
        assert!(table(&cluster).contains("'HOURS', 'compaction_window_size': '1'}"));
    }
}
