//! An archive over HTTP, byte by byte.

mod suite;

use harness::Folder;
use retrieval::Retrieval;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use suite::{archive, ask};
use web::{Limits, Server};

/// Serves until the stream is dropped.
fn serve(folder: &Folder, is_for_all_pages: bool) -> (UnixStream, String) {
    let site = Arc::new(Retrieval::new(retrieval::folder(folder.0.clone()), is_for_all_pages));
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), vec![], Limits::default()).unwrap();
    let address = server.address().to_string();
    let (stop, stopped) = UnixStream::pair().unwrap();
    stopped.set_nonblocking(true).unwrap();
    std::thread::spawn(move || server.run(site, stopped.into()).unwrap());
    (stop, address)
}

#[test]
fn an_archive_is_served_as_clients_of_the_appliance_ask_for_it() {
    let folder = archive();
    let (_stop, address) = serve(&folder, false);
    suite::is_served_as_clients_ask_for_it(&address);
}

#[test]
fn what_is_refused_is_told_and_other_sites_are_kept_out_unless_they_are_let_in() {
    let folder = archive();
    let (_stop, address) = serve(&folder, false);
    suite::refuses_what_is_not_there_changes_and_other_names(&address);
    let (_open, address) = serve(&folder, true);
    assert!(ask(&address, "GET /retrieval/bpl/getVersion").0.contains("access-control-allow-origin: *"));
}
