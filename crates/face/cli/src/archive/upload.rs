//! `tahti archive upload`: copies an archive to a Cassandra cluster.

use super::{folder, visible};
use crate::failure::Failure;
use crate::progress::{Progress, ProgressArgs, interrupted};
use base::{Cluster, DurNs};
use cassandra::{News, Status, Upload};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use store::written_to;
use sys::signal::{SignalFd, end_signals};

/// Interval between checks for new samples.
const LOOK: Duration = Duration::from_millis(200);

/// At shutdown, maximum wait for samples that were not sent yet. The rest is sent after the next start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Copy samples to a Cassandra cluster until SIGTERM; continues where the last upload ended
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder
    folder: PathBuf,
    /// Target, cassandra://HOST,…/KEYSPACE[?credentials=FILE]. Creates the keyspace and tables if missing
    cluster: Cluster,
    /// Copies of a sample in each data centre; used when the keyspace is created
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    replication: u8,
    /// Delete samples older than this (default: keep forever)
    #[arg(long, value_name = "TIME")]
    ttl: Option<DurNs>,
    /// Age of a sample when it is sent; must exceed `sync` of the logger
    #[arg(long, value_name = "TIME", default_value = "1s")]
    after: DurNs,
    /// Send the present samples and exit; exit status 1 if this takes longer than one minute, or if the archive is damaged
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(ttl) = args.ttl.filter(|ttl| !(3_600..=7_300 * 86_400).contains(&(ttl.0 / 1_000_000_000))) {
        return Err(format!("--ttl {ttl}: expected a time from 1h to 175200h (20 years)").into());
    }
    let ended = SignalFd::new(&end_signals())?;
    let folder = folder(&args.folder)?;
    let cluster = Cluster { replication: args.replication, ttl: args.ttl, ..args.cluster.clone() };
    let upload = Upload::start(folder.clone(), cluster)?;
    if args.once {
        std::thread::sleep(Duration::from_nanos(args.after.0.unsigned_abs()));
        upload.safe_to(written_to(&folder)?);
        return once(upload, Progress::begin(&args.progress)?);
    }
    // Log positions with the time they were seen. A position counts as safe after `args.after`.
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
    Ok(shown(&upload.end(PATIENCE), false))
}

/// Sends the samples that the archive has now, then ends.
fn once(upload: Upload, mut progress: Progress) -> Result<ExitCode, Failure> {
    let (mut most, mut is_interrupted) = (0, false);
    let status = upload.end_while(12 * PATIENCE, |status| {
        most = status.waiting.max(most);
        let share = (status.samples > 0).then(|| 1.0 - status.waiting as f64 / most.max(1) as f64);
        is_interrupted = !progress.step(share, || format!("{} samples sent", status.samples));
        !is_interrupted
    });
    progress.clear();
    if is_interrupted {
        let done = format!("{} samples sent", status.samples);
        return Err(interrupted(&done, "run the command again; it continues after the last sample that was sent"));
    }
    Ok(shown(&status, true))
}

/// Prints how many samples were sent. Returns the exit status.
fn shown(status: &Status, once: bool) -> ExitCode {
    println!("tahti archive: {} samples sent; {}", status.samples, visible(&status.to_string()));
    if is_good(status, once) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the log is not damaged and, with `once`, all samples were sent. Without `once`, samples may wait for the next
/// start.
fn is_good(status: &Status, once: bool) -> bool {
    status.damaged == 0 && status.manifest.is_none() && (!once || (status.waiting == 0 && status.is_connected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_archive_fails_the_upload_and_waiting_samples_fail_only_with_once() {
        let sent = Status { is_connected: true, ..Status::default() };
        let (waits, damaged) = (Status { waiting: 1, ..sent.clone() }, Status { damaged: 1, ..sent.clone() });
        let unlisted = Status { manifest: Some("manifest: it is missing".to_owned()), ..sent.clone() };
        let away = Status { is_connected: false, ..sent.clone() };
        for once in [false, true] {
            assert!(is_good(&sent, once) && !is_good(&damaged, once) && !is_good(&unlisted, once), "once {once}");
            assert_eq!((is_good(&waits, once), is_good(&away, once)), (!once, !once));
        }
    }
}
