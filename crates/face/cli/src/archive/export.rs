//! `tahti archive export`: writes samples as CSV, JSON Lines, Parquet or Archiver Appliance files.

use super::{end_of, folder, named, time};
use crate::failure::Failure;
use crate::progress::{Progress, ProgressArgs, interrupted};
use exchange::{CsvWriter, ExchangeError, LinesWriter, ParquetWriter, PbWriter, Row, Writer};
use segment::rows::Gap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Archive, Folder, Span};

/// Write samples to a file for other programs; `import` reads it back
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder
    folder: PathBuf,
    /// Signal names; * and ? are wildcards
    #[arg(required = true)]
    signals: Vec<String>,
    /// Start: now, a time before now (-1h, -7d), or a time in UTC or with a zone (2026-11-23T15:30:05+01:00) [default: first sample]
    #[arg(long, allow_hyphen_values = true)]
    from: Option<String>,
    /// End, in the same format
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    to: String,
    /// Output file, must not exist [default: standard output]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// File format
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,
    /// In CSV: add rows with the metadata of signals (type `about`) and with gaps and their causes (type `gap`)
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    progress: ProgressArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Csv,
    Jsonl,
    /// Columns for DuckDB, pandas and polars; gaps are rows
    Parquet,
    /// Files of the EPICS Archiver Appliance, without gaps and pulse numbers
    Pb,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let now = i64::try_from(sys::clock::wall_ns()).unwrap_or(i64::MAX);
    let from = args.from.as_ref().map_or(Ok(i64::MIN), |from| time::parse(from, now))?;
    let span = Span { from, to: time::parse(&args.to, now)? };
    let is_wanted = |name: &str| args.signals.iter().any(|pattern| pattern == name || base::glob(pattern, name));
    let archive = Archive::open_for(folder(&args.folder)?, is_wanted)?;
    let names = named(&archive, &args.signals)?;
    let out: Box<dyn Write + Send> = match &args.output {
        Some(path) => Box::new(File::create_new(path).map_err(|error| format!("{}: {error}", path.display()))?),
        None => Box::new(std::io::stdout()),
    };
    let count = write(&archive, &names, span, args, BufWriter::new(out)).inspect_err(|_| {
        // A partial file looks complete, so remove it. This command created it: it did not exist before.
        args.output.iter().for_each(|path| drop(std::fs::remove_file(path)));
    })?;
    if args.output.is_some() {
        println!("{count} samples of {} signals", names.len());
    }
    Ok(end_of(&archive, span))
}

/// Writes all samples of these signals and returns their number.
fn write(
    archive: &Archive<Folder>,
    names: &[String],
    span: Span,
    args: &Args,
    out: impl Write + Send + 'static,
) -> Result<u64, Failure> {
    let mut writer: Box<dyn Writer> = match args.format {
        Format::Csv => Box::new(CsvWriter::new(out, args.whole)),
        Format::Jsonl => Box::new(LinesWriter::new(out)),
        Format::Parquet => Box::new(ParquetWriter::new(out).map_err(failed)?),
        Format::Pb => Box::new(PbWriter::new(out)),
    };
    let mut count = 0;
    let mut progress = Progress::begin(&args.progress)?;
    for (index, name) in names.iter().enumerate() {
        let known = archive.about(name)?.and_then(|found| found.span).unwrap_or(span);
        let (from, to) = (known.from.max(span.from), known.to.min(span.to));
        let mut goes_on = |at: i64, written: u64| {
            let of_signal = (at as f64 - from as f64) / (to as f64 - from as f64).max(1.0);
            let share = (index as f64 + of_signal) / names.len() as f64;
            progress.step(Some(share), || format!("{} samples written", count + written))
        };
        count += signal(archive, name, span, index == 0, writer.as_mut(), &mut goes_on)?;
    }
    writer.finish().map_err(failed)?;
    Ok(count)
}

/// Writes all samples and gaps of one signal. Gaps that concern all signals are written with the first signal.
/// `goes_on` receives the time of each sample and the number of samples before it. The export stops if it returns false.
fn signal(
    archive: &Archive<Folder>,
    name: &str,
    span: Span,
    is_first: bool,
    writer: &mut dyn Writer,
    goes_on: &mut dyn FnMut(i64, u64) -> bool,
) -> Result<u64, Failure> {
    for row in archive.rows(name) {
        let (since, kind, about) = (row.since, row.kind, row.about);
        writer.write(&Row::Signal { name: name.to_owned(), since, kind, about }).map_err(failed)?;
    }
    // Must precede the list of gaps: reading samples may find a damaged index, which adds a gap.
    let found = archive.samples(name, span)?;
    let gaps = archive.gaps(name, span).into_iter().filter(|gap| is_first || gap.id.is_some()).map(|gap| {
        let name = gap.id.map(|_| name.to_owned());
        (gap.at, Row::Gap { name, at: gap.at, cause: gap.cause, lost: gap.lost })
    });
    let mut gaps = gaps.peekable();
    let mut count = 0;
    for sample in found {
        let sample = match sample {
            Ok(sample) => sample,
            Err(error) => {
                let Gap { at, cause, lost, .. } = error.gap(span).ok_or(error)?;
                while let Some((_, gap)) = gaps.next_if(|(before, _)| *before < at) {
                    writer.write(&gap).map_err(failed)?;
                }
                writer.write(&Row::Gap { name: Some(name.to_owned()), at, cause, lost }).map_err(failed)?;
                continue;
            }
        };
        while let Some((_, gap)) = gaps.next_if(|(at, _)| *at < sample.at) {
            writer.write(&gap).map_err(failed)?;
        }
        if !goes_on(sample.at, count) {
            return Err(interrupted(
                "the output is not complete; a file of --output is removed",
                "run the command again",
            ));
        }
        writer.write(&Row::Sample { name: name.to_owned(), sample }).map_err(failed)?;
        count += 1;
    }
    gaps.try_for_each(|(_, gap)| writer.write(&gap)).map_err(failed)?;
    Ok(count)
}

fn failed(error: ExchangeError) -> String {
    format!("failed to write: {error}")
}
