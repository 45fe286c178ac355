//! Third-party clients of the EPICS Archiver Appliance with our archive. All traffic is on loopback, on a free port.

#[path = "suite/clients.rs"]
mod clients;

use harness::Folder;
use retrieval::Retrieval;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use web::{Limits, Server};

/// A server on a thread that ends on drop.
struct Served {
    port: u16,
    stop: Option<UnixStream>,
    thread: Option<std::thread::JoinHandle<()>>,
    _folder: Folder,
}

impl Served {
    fn new() -> Self {
        let folder = clients::archive();
        let site = Arc::new(Retrieval::new(retrieval::folder(folder.0.clone()), false));
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), vec![], Limits::default()).unwrap();
        let port = server.address().port();
        let (stop, stopped) = UnixStream::pair().unwrap();
        stopped.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || server.run(site, stopped.into()).unwrap());
        Self { port, stop: Some(stop), thread: Some(thread), _folder: folder }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn ess_client_reads_every_type_over_a_new_year_and_every_post_processor() {
    clients::ess_reads_every_type_and_every_post_processor(Served::new().port);
}

#[test]
fn pyarchappl_and_aapy_read_both_formats_over_a_new_year() {
    clients::pyarchappl_and_aapy_read_both_formats(Served::new().port);
}
