//! `cargo xtask test appliance`: our archive read by other people's clients of the EPICS Archiver Appliance.

use crate::peers;
use crate::run::Outcome;
use crate::suite::{Show, Suite};

/// ESS's client.
const ESS: &[&str] = &["epicsarchiver-retrieval-client[async,cli,sync]==1.0.1"];

/// FRIB's and Diamond's, which need an older protobuf.
const OLD: &[&str] = &["pyarchappl==1.0.3.post3", "aapy==0.12", "protobuf==3.20.3"];

/// Installs the clients and runs the tests with them.
pub(crate) fn main() -> Outcome {
    let (ess, old) = (peers::python("archive-ess", ESS)?, peers::python("archive-old", OLD)?);
    let suite = Suite { programs: vec!["appliance_clients".into()], ..Suite::default() };
    suite.env("TAHTI_ARCHIVE_ESS", ess).env("TAHTI_ARCHIVE_OLD", old).run(Show::Live)
}
