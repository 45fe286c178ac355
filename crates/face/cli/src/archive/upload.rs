//! `tahti archive upload`.

use super::{folder, visible};
use crate::failure::Failure;
use base::{Cluster, DurNs};
use cassandra::{News, Upload};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use store::written_to;
use sys::signal::{END_SIGNALS, SignalFd};

/// How often it is looked what was logged.
const LOOK: Duration = Duration::from_millis(200);

/// How long the end waits for what was not sent yet; the rest goes after the next start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Send what is logged to a cluster of Cassandra until SIGTERM, beginning where the last one has ended
#[derive(clap::Args)]
pub(super) struct Args {
    /// The archive's folder
    folder: PathBuf,
    /// Where to: cassandra://HOST,…/KEYSPACE[?credentials=FILE]; keyspace and tables are made where there are none
    cluster: Cluster,
    /// How many nodes of each data centre keep a sample; counts when the keyspace is made
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    replication: u8,
    /// After what time the cluster forgets samples; never without it
    #[arg(long, value_name = "TIME")]
    ttl: Option<DurNs>,
    /// How long after it was logged a sample goes: longer than the logger's `sync`, after which it is safe on the disk
    #[arg(long, value_name = "TIME", default_value = "1s")]
    after: DurNs,
    /// Send what is there and end; 1 where some of it could not be sent within a minute
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(ttl) = args.ttl.filter(|ttl| !(3_600..=7_300 * 86_400).contains(&(ttl.0 / 1_000_000_000))) {
        return Err(format!("--ttl {ttl}: expected a time from 1h to 175200h (20 years)").into());
    }
    let ended = SignalFd::new(&END_SIGNALS)?;
    let folder = folder(&args.folder)?;
    let cluster = Cluster { replication: args.replication, ttl: args.ttl, ..args.cluster.clone() };
    let upload = Upload::start(folder.clone(), cluster)?;
    if args.once {
        std::thread::sleep(Duration::from_nanos(args.after.0.unsigned_abs()));
        upload.safe_to(written_to(&folder)?);
        return Ok(end(upload, 12 * PATIENCE));
    }
    // What was written when; it is safe after a while.
    let mut seen = VecDeque::new();
    let mut news = News::default();
    while ended.read()?.is_none() {
        let now = sys::clock::mono_now();
        seen.push_back((now, written_to(&folder)?));
        while let Some((_, position)) = seen.pop_front_if(|(at, _)| *at + args.after <= now) {
            upload.safe_to(position);
        }
        let status = upload.status();
        if news.is_due(&status, now) {
            println!("tahti archive: {}", visible(&status.to_string()));
        }
        std::thread::sleep(LOOK);
    }
    end(upload, PATIENCE);
    Ok(ExitCode::SUCCESS)
}

fn end(upload: Upload, patience: Duration) -> ExitCode {
    let status = upload.end(patience);
    println!("tahti archive: {} samples sent; {}", status.samples, visible(&status.to_string()));
    if status.waiting == 0 && status.is_connected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
