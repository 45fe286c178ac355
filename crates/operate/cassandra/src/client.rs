//! Session with a cluster: keyspace, tables and prepared statements.

use crate::cell::Cell;
use crate::put::{Bucket, Extent, Put};
use crate::schema::{self, Form, cql};
use base::Cluster;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimestamp, MaybeUnset};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// An error of any kind.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// Timeout of a connection to a node.
const CONNECT: Duration = Duration::from_secs(5);

/// Rows per page.
const PAGE: i32 = 5_000;

/// Maximum size of the credentials file, in bytes.
const CREDENTIALS_MAX: u64 = 4_096;

/// Connects to the cluster. Reads and writes need a majority of a sample's replicas in this data centre.
pub(crate) async fn session(cluster: &Cluster) -> Result<Session, Failure> {
    let profile = ExecutionProfile::builder().consistency(Consistency::LocalQuorum).request_timeout(Some(REQUEST));
    let mut builder = SessionBuilder::new()
        .known_nodes(&cluster.nodes)
        .keyspaces_to_fetch([&cluster.keyspace])
        .connection_timeout(CONNECT)
        .default_execution_profile_handle(profile.build().into_handle());
    if let Some(file) = &cluster.credentials {
        let (user, password) = credentials(Path::new(file))?;
        builder = builder.user(user, password);
    }
    Ok(builder.build().await?)
}

/// Reads user and password from the two lines of a file. Refuses a file that is accessible to other users.
fn credentials(file: &Path) -> Result<(String, String), Failure> {
    let wrong = |why: String| -> Failure { format!("{}: {why}", file.display()).into() };
    let about = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
    if about.permissions().mode() & 0o007 != 0 {
        return Err(wrong(
            "all users may read or change it; expected access for owner and group only: chmod o= FILE".into(),
        ));
    }
    if about.len() > CREDENTIALS_MAX {
        return Err(wrong(format!("{} bytes; expected two lines: user, password", about.len())));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    match text.lines().collect::<Vec<_>>()[..] {
        [user, password] if !user.is_empty() => Ok((user.to_owned(), password.to_owned())),
        ref lines => Err(wrong(format!("{} lines; expected two: user, password", lines.len()))),
    }
}

/// Creates keyspace and tables if missing, and sets the tables' default TTL to that of the cluster.
pub(crate) async fn set_up(session: &Session, cluster: &Cluster) -> Result<(), Failure> {
    session.query_unpaged(schema::keyspace(cluster), &[]).await?;
    for table in schema::tables(cluster) {
        session.query_unpaged(table, &[]).await?;
    }
    let ttl = schema::ttl_secs(cluster);
    for table in schema::FORGETTING {
        let asked = "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
        let found = session.query_unpaged(asked, (&cluster.keyspace, table)).await?;
        let (found,): (Option<i32>,) = found.into_rows_result()?.single_row()?;
        if found != Some(ttl) {
            session
                .query_unpaged(
                    format!("ALTER TABLE {}.{table} WITH default_time_to_live = {ttl}", cluster.keyspace),
                    &[],
                )
                .await?;
        }
    }
    Ok(())
}

/// Prepares a statement. It is idempotent, so it can be repeated if its outcome is unknown.
pub(crate) async fn prepare(session: &Session, cluster: &Cluster, text: &str) -> Result<PreparedStatement, Failure> {
    let mut statement = session.prepare(text.replace("{keyspace}", &cluster.keyspace)).await?;
    statement.set_is_idempotent(true);
    statement.set_page_size(PAGE);
    Ok(statement)
}

/// Writes to a cluster.
pub(crate) struct Writer {
    session: Session,
    signal: PreparedStatement,
    gap: PreparedStatement,
    sample: PreparedStatement,
    chunk: PreparedStatement,
    get_bucket: PreparedStatement,
    newest: PreparedStatement,
    bucket: PreparedStatement,
    extent: PreparedStatement,
    entries: PreparedStatement,
    bucket_ttl: i32,
}

/// Rows in the answer to [`cql::GET_NEWEST`].
const NEWEST: usize = 4;

/// State of a bucket in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketState {
    /// It is not there.
    Missing,
    /// It may get more samples, and its extent is not written yet.
    Open,
    /// Its extent is written.
    Ended,
}

/// Destination of an upload. A write returns after a majority of its replicas has acknowledged it.
pub(crate) trait Sink: Send + Sync + 'static {
    /// Number of known nodes.
    fn nodes(&self) -> usize;

    /// Writes samples, a gap or the description of a signal.
    fn put(&self, put: &Put) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Reads the state of a bucket, and the beginnings of other open ones among the newest buckets of the signal in this form.
    fn state(&self, bucket: &Bucket) -> impl Future<Output = Result<(BucketState, Vec<i64>), Failure>> + Send;

    /// Writes a bucket without extent, in state `before` until now, by which readers find its samples.
    fn begin(&self, bucket: &Bucket, before: BucketState) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Counts the samples of a bucket in the cluster; `None` if they have expired.
    fn extent(&self, bucket: &Bucket) -> impl Future<Output = Result<Option<Extent>, Failure>> + Send;

    /// Writes the extent of a bucket.
    fn end(&self, bucket: &Bucket, extent: Extent) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl Writer {
    pub(crate) async fn open(cluster: &Cluster) -> Result<Self, Failure> {
        let session = session(cluster).await?;
        set_up(&session, cluster).await?;
        Ok(Self {
            signal: prepare(&session, cluster, cql::PUT_SIGNAL).await?,
            gap: prepare(&session, cluster, cql::PUT_GAP).await?,
            sample: prepare(&session, cluster, cql::PUT_SAMPLE).await?,
            chunk: prepare(&session, cluster, cql::PUT_CHUNK).await?,
            get_bucket: prepare(&session, cluster, cql::GET_BUCKET).await?,
            newest: prepare(&session, cluster, cql::GET_NEWEST).await?,
            bucket: prepare(&session, cluster, cql::PUT_BUCKET).await?,
            extent: prepare(&session, cluster, cql::GET_EXTENT).await?,
            entries: prepare(&session, cluster, cql::GET_ENTRIES).await?,
            bucket_ttl: schema::bucket_ttl_secs(cluster),
            session,
        })
    }
}

impl Sink for Writer {
    fn nodes(&self) -> usize {
        self.session.get_cluster_state().get_nodes_info().len()
    }

    async fn put(&self, put: &Put) -> Result<(), Failure> {
        match put {
            Put::Signal(row) => {
                let precision = row.about.precision.map(i32::from);
                let (kind, about) = (row.kind.code() as i8, &row.about);
                let values =
                    (schema::shard(&row.name), &row.name, row.since, kind, &about.units, precision, &about.labels);
                self.session.execute_unpaged(&self.signal, values).await?;
            }
            Put::Gap { name, number, gap } => {
                let (name, cause) = (name.as_deref().unwrap_or(schema::ALL), gap.cause.code() as i8);
                let values = (name, gap.at, number, cause, i64::try_from(gap.lost).unwrap_or(i64::MAX));
                self.session.execute_unpaged(&self.gap, values).await?;
            }
            Put::Rows { name, bucket, rows } => {
                let mut batch = Batch::new(BatchType::Unlogged);
                batch.set_is_idempotent(true);
                rows.iter().for_each(|_| batch.append_statement(self.sample.clone()));
                let values: Vec<_> = rows
                    .iter()
                    .map(|(number, sample)| {
                        // An unset column costs nothing, whereas a null would write a tombstone.
                        let cell = Cell::of(&sample.datum);
                        let (severity, status) = (sample.severity as i8, i32::from(sample.status));
                        let pulse = unless_none(sample.pulse.map(|pulse| pulse as i64));
                        let key = (&**name, CqlTimestamp(*bucket), sample.at, *number);
                        let (value, whole) = (unless_none(cell.value), unless_none(cell.whole));
                        let (words, bytes) = (unless_none(cell.words), unless_none(cell.bytes));
                        (key.0, key.1, key.2, key.3, cell.kind, value, whole, words, bytes, severity, status, pulse)
                    })
                    .collect();
                self.session.batch(&batch, values).await?;
            }
            Put::Chunk { name, bucket, number, at, entry, data } => {
                let values = (&**name, CqlTimestamp(*bucket), at, number, entry, data);
                self.session.execute_unpaged(&self.chunk, values).await?;
            }
        }
        Ok(())
    }

    async fn state(&self, (name, form, begin): &Bucket) -> Result<(BucketState, Vec<i64>), Failure> {
        let found = self.session.execute_unpaged(&self.newest, (&**name, *form as i8)).await?.into_rows_result()?;
        let newest = found.rows::<(CqlTimestamp, Option<i64>)>()?.collect::<Result<Vec<_>, _>>()?;
        let of = |count: Option<i64>| if count.is_some() { BucketState::Ended } else { BucketState::Open };
        let state = match newest.iter().find(|(one, _)| one.0 == *begin) {
            Some((_, count)) => of(*count),
            None if newest.len() < NEWEST || newest.iter().any(|(one, _)| one.0 < *begin) => BucketState::Missing,
            // It is older than the newest ones.
            None => {
                let values = (&**name, *form as i8, CqlTimestamp(*begin));
                let found = self.session.execute_unpaged(&self.get_bucket, values).await?.into_rows_result()?;
                found.maybe_first_row::<(Option<i64>,)>()?.map_or(BucketState::Missing, |(count,)| of(count))
            }
        };
        let open = newest.iter().filter(|(one, count)| one.0 != *begin && count.is_none()).map(|(one, _)| one.0);
        Ok((state, open.collect()))
    }

    async fn begin(&self, (name, form, begin): &Bucket, before: BucketState) -> Result<(), Failure> {
        // A null would write a tombstone. It is needed only over an earlier extent.
        let none: MaybeUnset<Option<i64>> =
            if before == BucketState::Ended { MaybeUnset::Set(None) } else { MaybeUnset::Unset };
        let values = (&**name, *form as i8, CqlTimestamp(*begin), none, none, none, self.bucket_ttl);
        self.session.execute_unpaged(&self.bucket, values).await?;
        Ok(())
    }

    async fn extent(&self, (name, form, begin): &Bucket) -> Result<Option<Extent>, Failure> {
        if *form == Form::Chunks {
            let values = (&**name, CqlTimestamp(*begin), i64::MAX);
            let found = self.session.execute_unpaged(&self.entries, values).await?.into_rows_result()?;
            let rows = found.rows::<EntryRow>()?.collect::<Result<Vec<_>, _>>()?;
            // An unreadable entry is reported to readers of its chunk.
            let entries = rows.iter().filter_map(|(_, _, entry)| segment::pack::entries(entry).ok()?.first().copied());
            return Ok(Extent::of_all(entries.map(|entry| Extent::of_entry(&entry))));
        }
        let values = (&**name, CqlTimestamp(*begin));
        let found = self.session.execute_unpaged(&self.extent, values).await?.into_rows_result()?;
        Ok(extent_in(found.single_row()?))
    }

    async fn end(&self, (name, form, begin): &Bucket, extent: Extent) -> Result<(), Failure> {
        let Extent { count, first, last } = extent;
        let values = (&**name, *form as i8, CqlTimestamp(*begin), count, first, last, self.bucket_ttl);
        self.session.execute_unpaged(&self.bucket, values).await?;
        Ok(())
    }
}

/// Time, number and index entry of a chunk.
pub(crate) type EntryRow = (i64, i64, Vec<u8>);

/// Answer to [`cql::GET_EXTENT`].
pub(crate) type ExtentRow = (i64, Option<i64>, Option<i64>);

/// Extent of rows; `None` if there are none.
pub(crate) fn extent_in((count, first, last): ExtentRow) -> Option<Extent> {
    Some(Extent { count, first: first?, last: last? })
}

fn unless_none<T: scylla::serialize::value::SerializeValue>(value: Option<T>) -> MaybeUnset<T> {
    value.map_or(MaybeUnset::Unset, MaybeUnset::Set)
}
