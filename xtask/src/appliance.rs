//! `cargo xtask test appliance`: third-party clients of the EPICS Archiver Appliance read our archive, and third-party readers
//! read its Parquet files.

use crate::peers;
use crate::run::{Outcome, cargo, run};
use crate::suite::{Show, Suite};

/// ESS's client.
const ESS: &[&str] = &["epicsarchiver-retrieval-client[async,cli,sync]==1.0.1"];

/// Clients of FRIB and Diamond, which need an older protobuf.
const OLD: &[&str] = &["pyarchappl==1.0.3.post3", "aapy==0.12", "protobuf==3.20.3"];

/// Readers of Parquet. DuckDB needs pytz for times with a time zone.
const TABLES: &[&str] = &["duckdb==2.0.0", "pandas==3.1.1", "pyarrow==26.0.0", "polars==2.1.0", "pytz"];

/// Tests with clients of the Archiver Appliance.
const OF_CLIENTS: [&str; 2] = ["appliance_clients", "dashboard_clients"];

/// Tests that need the feature `parquet`.
const OF_TABLES: [&str; 2] = ["packs_are_tables", "table_readers"];

/// All test programs of the stage.
pub(crate) fn tests() -> Vec<&'static str> {
    [OF_CLIENTS, OF_TABLES].concat()
}

/// Installs the clients and runs the tests with them.
pub(crate) fn main() -> Outcome {
    let (ess, old) = (peers::python("archive-ess", ESS)?, peers::python("archive-old", OLD)?);
    let suite = Suite { programs: OF_CLIENTS.map(String::from).into(), ..Suite::default() };
    suite.env("TAHTI_ARCHIVE_ESS", ess).env("TAHTI_ARCHIVE_OLD", old).run(Show::Live)?;
    let tables = peers::python("tables", TABLES)?;
    // No other stage enables this feature, so the unit tests behind it run here. A separate target folder avoids rebuilding
    // the rest.
    let words = ["test", "--package", "columns", "--features", "parquet", "--quiet", "--target-dir", "target/columns"];
    let mut command = cargo(words);
    command.arg("--lib").args(OF_TABLES.iter().flat_map(|test| ["--test", test]));
    run(command.env("TAHTI_TABLES", tables))
}
