//! `tahti archive status`: the state of an archive that is being written.

use super::{folder, time, visible};
use crate::failure::Failure;
use crate::out::bytes;
use collect::status::{Status, ask};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the state of the logger of a folder: rates, losses, disk use
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder
    folder: PathBuf,
    /// Print JSON; times in nanoseconds
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    folder(&args.folder)?;
    let shown = args.folder.display();
    let status = ask(&args.folder).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("no process logs to {shown} on this machine; expected a running tahti archive serve")
        }
        _ => format!("{shown}: {error}"),
    })?;
    if args.json {
        println!("{}", serde_json::to_string(&status)?);
    } else {
        show(&status);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(status: &Status) {
    let Status { signals, samples, disk, .. } = status;
    let channels = format!("{} of {} channels connected", signals.connected, signals.channels);
    println!("logs since   {}", time::show(status.since));
    println!("signals      {} known, {channels}", signals.known);
    println!("samples      {:.0}/s, {} taken, {} safe", status.samples_per_s, samples.taken, samples.safe);
    let ago = status.last_sync.map_or_else(|| "none yet".to_owned(), |ago| format!("{:.1} s ago", secs(ago)));
    println!("last sync    {ago}");
    let unsure = if samples.unsure > 0 { format!(", {} unsure", samples.unsure) } else { String::new() };
    println!(
        "lost         {} disk full or failed, {} overflow, {} too long{unsure}",
        samples.lost_on_disk, samples.lost_by_overflow, samples.refused
    );
    if let Some(error) = &status.last_error {
        println!("last error   {}", visible(error));
    }
    let unsent = if disk.unsent > 0 { format!(" ({} segments unsent)", disk.unsent) } else { String::new() };
    println!(
        "disk         {} segments, {} packs, {}; {} free, {} files removed{unsent}",
        disk.segments,
        disk.packs,
        bytes(disk.bytes),
        bytes(disk.free),
        disk.removed
    );
    if let Some(cluster) = &status.cluster {
        let state = if cluster.connected { "connected" } else { "unavailable" };
        println!(
            "cluster      {state}, {} samples sent, {} wait; {} requests sent again, {} values too long, {} segments removed unsent",
            cluster.sent,
            bytes(cluster.waiting),
            cluster.again,
            cluster.refused,
            cluster.missed
        );
        if let Some(error) = cluster.last_error.as_deref().filter(|_| !cluster.connected) {
            println!("             {}", visible(error));
        }
    }
}

fn secs(time_ns: i64) -> f64 {
    time_ns as f64 / 1e9
}
