//! Third-party clients of the EPICS Archiver Appliance at the dashboard's address.

#[path = "../../../operate/retrieval/tests/suite/clients.rs"]
mod clients;

use harness::port::free_port;
use harness::process::Running;
use harness::{Folder, fresh, tahti};

/// The port of a dashboard that serves the archive without a token. It is served while the other returned values
/// live.
fn served() -> (u16, Running, [Folder; 2]) {
    let (port, archive, run) = (free_port(), clients::archive(), Folder::new());
    let mut command = tahti();
    command.args(["dash", "serve", "--plant", &fresh("page"), &format!("--listen=127.0.0.1:{port}"), "--retrieval"]);
    command.arg("--archive").arg(&archive.0).env("TAHTI_RUN", &run.0);
    (port, Running::until(&mut command, "serves at"), [archive, run])
}

#[test]
fn ess_client_reads_every_type_and_every_post_processor_from_a_dashboard() {
    let (port, ..) = &served();
    clients::ess_reads_every_type_and_every_post_processor(*port);
}

#[test]
fn pyarchappl_and_aapy_read_both_formats_from_a_dashboard() {
    let (port, ..) = &served();
    clients::pyarchappl_and_aapy_read_both_formats(*port);
}
