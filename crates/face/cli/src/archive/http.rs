//! `tahti archive http`: the archive for clients of the EPICS Archiver Appliance.

use super::{cluster, folder};
use crate::failure::Failure;
use retrieval::Retrieval;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use sys::signal::{SignalFd, end_signals};
use web::{Limits, Server};

/// Serve an archive over HTTP, as the EPICS Archiver Appliance, read-only
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder, or cassandra://HOST,…/KEYSPACE
    archive: PathBuf,
    /// Address and port; every client that reaches it can read the archive
    #[arg(long, default_value = "127.0.0.1:17665")]
    listen: SocketAddr,
    /// Further host name of this machine; repeatable
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    tls: crate::dash::Tls,
    /// Allow web pages of other sites to read the archive (CORS)
    #[arg(long)]
    cors: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    // Open the archive once, so that an invalid path is reported at startup and not to each client. A cluster is opened
    // again for each request.
    let open = match cluster(&args.archive)? {
        Some(cluster) => {
            cassandra::Archive::open(cluster.clone())?;
            retrieval::opened(move |_| cassandra::Archive::open(cluster.clone()))
        }
        None => {
            folder(&args.archive)?;
            retrieval::folder(args.archive.clone())
        }
    };
    let ended = SignalFd::new(&end_signals())?;
    let ended = ended.as_fd().try_clone_to_owned()?;
    let site = Arc::new(Retrieval::new(open, args.cors));
    let failed = |error: std::io::Error| format!("{}: {error}; --listen chooses another address", args.listen);
    let server = Server::bind(args.listen, args.names.clone(), Limits::default()).map_err(failed)?;
    let server = server.with_identity(args.tls.files())?;
    println!("tahti archive: serves {} at {}/retrieval", args.archive.display(), server.url());
    if !server.address().ip().is_loopback() {
        println!(
            "tahti archive: any client that reaches {} can read the archive, without a password",
            server.address()
        );
    }
    server.run(site, ended).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
