//! `cargo xtask test appliance`: our archive read by other people's clients of the EPICS Archiver Appliance, its Parquet files by
//! other people's readers.

use crate::peers;
use crate::run::{Outcome, cargo, run};
use crate::suite::{Show, Suite};

/// ESS's client.
const ESS: &[&str] = &["epicsarchiver-retrieval-client[async,cli,sync]==1.0.1"];

/// FRIB's and Diamond's, which need an older protobuf.
const OLD: &[&str] = &["pyarchappl==1.0.3.post3", "aapy==0.12", "protobuf==3.20.3"];

/// Readers of Parquet; DuckDB needs pytz for times with a zone.
const TABLES: &[&str] = &["duckdb==2.0.0", "pandas==3.1.1", "pyarrow==26.0.0", "polars==2.1.0", "pytz"];

/// Installs the clients and runs the tests with them.
pub(crate) fn main() -> Outcome {
    let (ess, old) = (peers::python("archive-ess", ESS)?, peers::python("archive-old", OLD)?);
    let suite =
        Suite { programs: ["appliance_clients", "dashboard_clients"].map(String::from).into(), ..Suite::default() };
    suite.env("TAHTI_ARCHIVE_ESS", ess).env("TAHTI_ARCHIVE_OLD", old).run(Show::Live)?;
    let tables = peers::python("tables", TABLES)?;
    // All tests of the crate: what needs its feature is nowhere else. In a target folder of its own, as the feature is.
    let words = ["test", "--package", "columns", "--features", "parquet", "--quiet", "--target-dir", "target/columns"];
    run(cargo(words).env("TAHTI_TABLES", tables))
}
