//! `tahti archive list`: the signals of an archive.

use super::{end_of, open, time, visible};
use crate::failure::Failure;
use std::path::PathBuf;
use std::process::ExitCode;
use store::{SignalInfo, Span};

/// List the signals
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder, or cassandra://HOST,…/KEYSPACE
    folder: PathBuf,
    /// Pattern; * and ? are wildcards
    #[arg(default_value = "*")]
    pattern: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let archive = open(&args.folder, |_| true)?;
    let names = archive.matching(&args.pattern)?;
    let found: Result<Vec<Option<SignalInfo>>, _> = names.iter().map(|name| archive.about(name)).collect();
    let found: Vec<SignalInfo> = found?.into_iter().flatten().collect();
    if args.json {
        println!("{}", serde_json::Value::Array(found.iter().map(json).collect()));
    } else {
        let width = found.iter().map(|one| one.name.chars().count()).max().unwrap_or(0).max(6);
        println!("{:width$}  {:>12}  {:8} {:8} {:30} last", "signal", "samples", "type", "units", "first");
        for one in &found {
            let (kind, units) =
                one.rows.last().map_or_else(Default::default, |row| (row.kind.to_string(), row.about.units.clone()));
            let stamp = |at: Option<i64>| at.map_or_else(|| "-".into(), time::show);
            let (first, last) = (stamp(one.span.map(|span| span.from)), stamp(one.span.map(|span| span.to)));
            let (name, units) = (visible(&one.name).to_string(), visible(&units).to_string());
            println!("{name:width$}  {:>12}  {kind:8} {units:8} {first:30} {last}", one.count);
        }
    }
    let end = end_of(&*archive, Span::ALL);
    if found.is_empty() {
        return Err(format!("no signal matches {:?}; tahti archive list FOLDER shows all", args.pattern).into());
    }
    Ok(end)
}

fn json(one: &SignalInfo) -> serde_json::Value {
    let row = |row: &segment::rows::Signal| {
        serde_json::json!({
            "since": time::show(row.since), "type": row.kind.to_string(), "units": row.about.units,
            "precision": row.about.precision, "labels": row.about.labels,
        })
    };
    serde_json::json!({
        "name": one.name, "samples": one.count,
        "first": one.span.map(|span| time::show(span.from)), "last": one.span.map(|span| time::show(span.to)),
        "rows": one.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
