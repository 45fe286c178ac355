//! `tahti archive get`: prints samples.

use super::{end_of, named, open, readable, time, visible};
use crate::failure::Failure;
use base::DurNs;
use base::csv::quoted;
use retrieval::Opened;
use segment::rows::{Cause, Gap, Signal};
use segment::{Datum, Sample};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Bin, Bins, Reader, Span};

/// Print samples, all or downsampled
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder, or cassandra://HOST,…/KEYSPACE
    folder: PathBuf,
    /// Signal names; * and ? are wildcards
    #[arg(required = true)]
    signals: Vec<String>,
    /// Start: now, a time before now (-1h, -7d), or a time in UTC or with a zone (2026-11-23T15:30:05+01:00)
    #[arg(long, default_value = "-1h", allow_hyphen_values = true)]
    from: String,
    /// End, in the same format
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    to: String,
    /// Downsample to this number of intervals
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["every", "nth"])]
    points: Option<usize>,
    /// Downsample to intervals of this length
    #[arg(long, value_name = "TIME", conflicts_with = "nth")]
    every: Option<DurNs>,
    /// Print every N-th sample
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    nth: Option<u64>,
    /// Apply a post-processor of the EPICS Archiver Appliance: mean_60, optimized_2000, nth_10
    #[arg(long, value_name = "NAME", conflicts_with_all = ["points", "every", "nth", "join"])]
    operator: Option<String>,
    /// Print one row per pulse number that all signals have, with all their values
    #[arg(long, value_enum, conflicts_with_all = ["points", "every", "nth"])]
    join: Option<Join>,
    /// Value of each interval; `envelope` is minimum, mean and maximum
    #[arg(long, value_enum, default_value = "envelope")]
    show: Show,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Join {
    Pulse,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Show {
    Envelope,
    First,
    Last,
    Mean,
    Min,
    Max,
    Std,
    Count,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Csv,
    Json,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let now = i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX);
    let span = Span { from: time::parse(&args.from, now)?, to: time::parse(&args.to, now)? };
    if span.from > span.to {
        return Err(format!("--from {} is after --to {}; expected the earlier one first", args.from, args.to).into());
    }
    let bins =
        match (args.points, args.every) {
            (Some(0), _) => return Err("--points 0: expected 1 or more".into()),
            (Some(count), _) => Some(Bins::count(span.from, span.to, count)),
            (None, Some(width)) => Some(Bins::every(span.from, span.to, width.0).ok_or_else(|| {
                format!("--every {width}: expected a time that divides the span into a million at most")
            })?),
            (None, None) => None,
        };
    let is_wanted = |name: &str| args.signals.iter().any(|pattern| pattern == name || base::glob(pattern, name));
    let archive = open(&args.folder, is_wanted)?;
    let names = named(&*archive, &args.signals)?;
    tell_if_empty(&*archive, &names, span)?;
    if args.join.is_some() {
        super::join::run(&*archive, &names, span, args.format)?;
        return Ok(end_of(&*archive, span));
    }
    if args.format == Format::Csv {
        println!(
            "{}",
            if bins.is_some() {
                format!("signal,time,{}", columns(args.show))
            } else {
                "signal,time,value,severity,status,pulse".into()
            }
        );
    }
    if let Some(word) = &args.operator {
        return operator(args, archive, &names, word, (span, now));
    }
    for name in &names {
        match bins {
            Some(bins) => in_spans(args, &*archive, name, bins)?,
            None => samples(args, &*archive, name, span)?,
        }
    }
    Ok(end_of(&*archive, span))
}

/// If none of the signals has a sample in the span, reports that on standard error, with the time of the newest earlier
/// sample.
fn tell_if_empty(archive: &dyn Reader, names: &[String], span: Span) -> Result<(), Failure> {
    let mut newest = None;
    for name in names {
        match archive.at(name, span.to)? {
            Some(sample) if sample.at >= span.from => return Ok(()),
            sample => newest = newest.max(sample.map(|sample| (sample.at, name))),
        }
    }
    let before = newest.map_or_else(
        || "and none before".into(),
        |(at, name)| format!("the newest one before is {}'s of {}", visible(name), time::show(at)),
    );
    eprintln!("tahti: no sample from {} to {}; {before}", time::show(span.from), time::show(span.to));
    Ok(())
}

/// Prints the statistics of the samples in each bin. Signals that are not numeric support only the first and the last
/// sample.
fn in_spans(args: &Args, archive: &dyn Reader, name: &str, bins: Bins) -> Result<(), Failure> {
    let rows = archive.rows(name)?;
    let strange = rows.iter().rfind(|row| !row.kind.is_number());
    match (args.show, strange) {
        (Show::First | Show::Last, Some(_)) => {
            let samples = readable(archive.samples(name, bins.span())?);
            bins.pick(samples, args.show == Show::Last, |at, sample| {
                print_whole(args, name, at, &sample, &rows);
            })?;
        }
        (_, Some(row)) if !rows.iter().any(|row| row.kind.is_number()) => {
            return Err(format!(
                "{name}: values are {}; expected numbers, which have a mean, a smallest and a largest; --show first, --show last, or --nth NUMBER \
                 show some of the values as they are",
                row.kind
            )
            .into());
        }
        _ => archive.bins(name, bins)?.iter().for_each(|bin| print_bin(args, name, bin)),
    }
    let gaps = archive.gaps(name, bins.span())?;
    gaps.iter().filter(|gap| gap.cause == Cause::Damaged).for_each(|gap| print_gap(args, name, gap));
    Ok(())
}

/// Prints the output of an Archiver Appliance post-processor (`word`).
fn operator(
    args: &Args,
    archive: Box<dyn Reader + Send>,
    names: &[String],
    word: &str,
    (span, now): (Span, i64),
) -> Result<ExitCode, Failure> {
    let archive = Opened(archive);
    for name in names {
        let rows = archive.0.rows(name)?;
        archive.processed(name, word, span, now, |sample| print_sample(args, name, &sample, &rows))?;
    }
    Ok(end_of(&*archive.0, span))
}

/// Prints samples, and between them the reason for each gap.
fn samples(args: &Args, archive: &dyn Reader, name: &str, span: Span) -> Result<(), Failure> {
    let rows = archive.rows(name)?;
    // Must precede the list of gaps: reading samples may find a damaged index, which adds a gap.
    let found = archive.samples(name, span)?;
    let mut gaps = archive.gaps(name, span)?.into_iter().peekable();
    let (step, mut number) = (args.nth.unwrap_or(1), 0u64);
    for sample in found {
        let sample = match sample {
            Ok(sample) => sample,
            Err(error) => {
                let gap = error.gap(span).ok_or(error)?;
                while let Some(gap) = gaps.next_if(|before| before.at <= gap.at) {
                    print_gap(args, name, &gap);
                }
                print_gap(args, name, &gap);
                continue;
            }
        };
        number += 1;
        if (number - 1) % step != 0 {
            continue;
        }
        while let Some(gap) = gaps.next_if(|gap| gap.at <= sample.at) {
            print_gap(args, name, &gap);
        }
        print_sample(args, name, &sample, &rows);
    }
    gaps.for_each(|gap| print_gap(args, name, &gap));
    Ok(())
}

/// The value of a sample as text; an enum value as its label.
fn in_words(sample: &Sample, rows: &[Signal]) -> String {
    match &sample.datum {
        Datum::Number(base::Scalar::Enum(index)) => {
            // Use the label that was valid at the time of the sample.
            let labels = Signal::at(rows, sample.at).map_or(&[][..], |row| &row.about.labels);
            labels.get(usize::from(*index)).cloned().unwrap_or_else(|| index.to_string())
        }
        other => other.to_string(),
    }
}

/// A JSON row with values added, which are encoded as in the HTTP retrieval interface.
pub(super) fn json<'a>(row: &serde_json::Value, values: impl IntoIterator<Item = (&'a str, &'a Datum)>) -> String {
    let mut text = row.to_string().into_bytes();
    // Remove the closing brace; it is written again after the values.
    text.pop();
    for (name, datum) in values {
        text.push(b',');
        text.extend_from_slice(serde_json::Value::from(name).to_string().as_bytes());
        text.push(b':');
        appliance::put_json(&mut text, datum);
    }
    text.push(b'}');
    String::from_utf8_lossy(&text).into_owned()
}

/// Prints one complete value of a span.
fn print_whole(args: &Args, name: &str, at: i64, sample: &Sample, rows: &[Signal]) {
    let (at, value) = (time::show(at), in_words(sample, rows));
    match args.format {
        Format::Text => println!("{}  {at}  {}", visible(name), visible(&value)),
        Format::Csv => println!("{},{at},{}", quoted(name), quoted(&value)),
        Format::Json => {
            let row = serde_json::json!({ "signal": name, "time": at });
            println!("{}", json(&row, [(columns(args.show), &sample.datum)]));
        }
    }
}

fn print_sample(args: &Args, name: &str, sample: &Sample, rows: &[Signal]) {
    let at = time::show(sample.at);
    let value = in_words(sample, rows);
    let severity = base::Severity::from_index(sample.severity.into());
    match args.format {
        Format::Text => {
            let mut line = format!("{}  {at}  {}", visible(name), visible(&value));
            if sample.severity > 0 {
                let _ = write!(line, "  {severity}");
            }
            if let Some(pulse) = sample.pulse {
                let _ = write!(line, "  pulse {pulse}");
            }
            println!("{line}");
        }
        Format::Csv => {
            let pulse = sample.pulse.map(|pulse| pulse.to_string()).unwrap_or_default();
            println!("{},{at},{},{},{},{pulse}", quoted(name), quoted(&value), sample.severity, sample.status);
        }
        Format::Json => {
            let row = serde_json::json!({
                "signal": name, "time": at, "severity": sample.severity, "status": sample.status, "pulse": sample.pulse,
            });
            println!("{}", json(&row, [("value", &sample.datum)]));
        }
    }
}

fn print_gap(args: &Args, name: &str, gap: &Gap) {
    let at = time::show(gap.at);
    let cause = gap.cause.to_string();
    match args.format {
        Format::Text => {
            let lost = if gap.lost > 0 { format!(", {} samples lost", gap.lost) } else { String::new() };
            println!("{}  {at}  -- {cause}{lost}", visible(name));
        }
        // A CSV table has only one kind of row, so gaps are not printed.
        Format::Csv => {}
        Format::Json => {
            println!("{}", serde_json::json!({ "signal": name, "time": at, "gap": cause, "lost": gap.lost }));
        }
    }
}

const fn columns(show: Show) -> &'static str {
    match show {
        Show::Envelope => "min,mean,max,count",
        Show::First => "first",
        Show::Last => "last",
        Show::Mean => "mean",
        Show::Min => "min",
        Show::Max => "max",
        Show::Std => "std",
        Show::Count => "count",
    }
}

fn print_bin(args: &Args, name: &str, bin: &Bin) {
    let all = &bin.summary;
    let at = time::show(bin.at);
    let of = |value: f64| (all.count > 0).then_some(value);
    let values: Vec<Option<f64>> = match args.show {
        Show::Envelope => vec![of(all.min), of(all.mean), of(all.max), Some(all.count as f64)],
        Show::First => vec![of(all.first.value)],
        Show::Last => vec![of(all.last.value)],
        Show::Mean => vec![of(all.mean)],
        Show::Min => vec![of(all.min)],
        Show::Max => vec![of(all.max)],
        Show::Std => vec![of(all.std())],
        Show::Count => vec![Some(all.count as f64)],
    };
    let words = values.iter().map(|value| value.map_or_else(|| "nan".into(), |value| format!("{value}")));
    match args.format {
        Format::Text => println!("{}  {at}  {}", visible(name), words.collect::<Vec<_>>().join("  ")),
        Format::Csv => println!("{},{at},{}", quoted(name), words.collect::<Vec<_>>().join(",")),
        Format::Json => {
            let mut row = serde_json::json!({ "signal": name, "time": at });
            for (column, value) in columns(args.show).split(',').zip(values) {
                row[column] = value.into();
            }
            println!("{row}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_are_valid_json_without_loss() {
        use base::{Array, Scalar};
        let values = [
            Datum::Array(Array::F32(vec![0.1, f32::NAN, -2.0])),
            Datum::Array(Array::U16(vec![])),
            Datum::Number(Scalar::I64(i64::MAX)),
            Datum::from(f64::INFINITY),
            Datum::from("\"\n"),
            Datum::Bool(true),
        ];
        let row = serde_json::json!({ "signal": "A" });
        let lines = values.each_ref().map(|datum| json(&row, [("a\"b", datum)]));
        let ends = ["[0.1,null,-2.0]", "[]", "9223372036854775807", "null", r#""\"\n""#, "1"];
        assert_eq!(lines, ends.map(|end| format!(r#"{{"signal":"A","a\"b":{end}}}"#)));
        assert!(lines.iter().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    }
}
