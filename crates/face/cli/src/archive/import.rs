//! `tahti archive import`: reads samples from files of other programs.

use super::decode::Decoded;
use super::visible;
use crate::failure::Failure;
use crate::progress::{Progress, ProgressArgs, interrupted};
use exchange::{CsvReader, ExchangeError, PbReader, Row};
use segment::Sample;
use segment::rows::{About, Gap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Archive, Config, Folder, Logger, Pushed, Samples, SignalId, Span};

/// Add samples from files to an archive without a running logger; skips existing samples
#[derive(clap::Args)]
pub(super) struct Args {
    /// Archive folder; created if missing
    folder: PathBuf,
    /// Files of `tahti archive export`: CSV with columns signal, time_ns, type, value; Archiver Appliance files (.pb);
    /// or Parquet (.parquet) with columns signal, time, value
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Store the samples of signal OLD as NEW
    #[arg(long, value_name = "OLD=NEW", value_parser = two_names)]
    rename: Vec<(String, String)>,
    #[command(flatten)]
    progress: ProgressArgs,
}

fn two_names(text: &str) -> Result<(String, String), String> {
    let names = text.split_once('=').filter(|(old, new)| !old.is_empty() && !new.is_empty());
    names.map(|(old, new)| (old.to_owned(), new.to_owned())).ok_or_else(|| "expected OLD=NEW".to_owned())
}

/// Renamed signals: the old name, the new name, and whether a signal with the old name was found.
struct Renames<'a>(Vec<(&'a str, &'a str, bool)>);

impl Renames<'_> {
    fn apply(&mut self, row: &mut Row) {
        let name = match row {
            Row::Signal { name, .. } | Row::Sample { name, .. } => Some(name),
            Row::Gap { name, .. } => name.as_mut(),
        };
        let Some(name) = name else { return };
        if let Some((_, new, came)) = self.0.iter_mut().find(|(old, ..)| old == name) {
            *came = true;
            (*new).clone_into(name);
        }
    }
}

/// Number of samples after which the imported samples are synced to disk.
const SAFE_EACH: u64 = 100_000;

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let folder = Folder::make(&args.folder).map_err(|error| format!("{}: {error}", args.folder.display()))?;
    // Take the lock first. New samples are compared with those in the archive, which must not change meanwhile.
    let mut logger = Logger::open(folder.clone(), Config::default(), mono())?;
    logger.takes_history();
    let archive = Archive::open(folder)?;
    let mut renames = Renames(args.rename.iter().map(|(old, new)| (old.as_str(), new.as_str(), false)).collect());
    let mut import = Import { archive: &archive, logger, known: None, there: 0, taken: 0 };
    let mut progress = Progress::begin(&args.progress)?;
    let mut reading = Reading::new(&args.files);
    for path in &args.files {
        for row in open(path, &reading.bytes)? {
            let goes_on = progress.step(reading.share(), || format!("{} samples read", import.taken + import.there));
            // Ctrl-C also ends the child process that reads a Parquet file. The row then carries an error.
            if !goes_on || (row.is_err() && progress.is_interrupted()) {
                import.logger.finish(mono());
                return Err(interrupted(&import.so_far(), "run the command again; it skips the samples that exist"));
            }
            let mut row =
                row.map_err(|error| format!("{}: {error}; {}", visible(&path.display().to_string()), import.so_far()))?;
            renames.apply(&mut row);
            import.row(row)?;
        }
        reading.is_read(path);
    }
    progress.clear();
    import.logger.finish(mono());
    println!("{}", import.so_far());
    if let Some((old, ..)) = renames.0.iter().find(|(_, _, came)| !came) {
        return Err(format!(
            "the files have no signal {old}, named by --rename; to list their signals, import them into an empty folder"
        )
        .into());
    }
    let account = import.logger.account();
    if account.safe == account.taken && account.refused == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let why = import.logger.last_error().unwrap_or("values that are too long");
    Err(format!("{} samples could not be kept: {why}", account.taken - account.safe + account.refused).into())
}

/// Progress through the input files.
struct Reading {
    /// Bytes read so far, including read-ahead beyond the current row.
    bytes: Arc<AtomicU64>,
    /// Total length of the files that were read completely.
    before: u64,
    total: u64,
}

impl Reading {
    fn new(files: &[PathBuf]) -> Self {
        let total = files.iter().map(|path| len(path)).sum();
        Self { bytes: Arc::default(), before: 0, total }
    }

    fn share(&self) -> Option<f64> {
        (self.total > 0).then(|| self.bytes.load(Ordering::Relaxed) as f64 / self.total as f64)
    }

    /// Marks a file as completely read. Needed because a Parquet file is read by another process.
    fn is_read(&mut self, path: &Path) {
        self.before += len(path);
        self.bytes.store(self.before, Ordering::Relaxed);
    }
}

/// A file's length; 0 if the file does not exist, which is reported when it is opened.
fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// A file that counts the bytes read from it.
struct Counted(File, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(bytes)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Opens a file as an iterator over its rows. The file name extension selects the format.
fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Box<dyn Iterator<Item = Result<Row, ExchangeError>>>, Failure> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let is_a = |form: &str| path.extension().is_some_and(|extension| extension == form);
    if is_a("parquet") {
        return Ok(Box::new(Decoded::start(path)?));
    }
    let file = File::open(path).map_err(|error| failed(&error))?;
    let input = BufReader::new(Counted(file, read.clone()));
    if is_a("pb") {
        return Ok(Box::new(PbReader::new(input)));
    }
    Ok(Box::new(CsvReader::new(input).map_err(|error| failed(&error))?))
}

struct Import<'a> {
    archive: &'a Archive<Folder>,
    logger: Logger<Folder>,
    /// The signal of the previous row.
    known: Option<ArchivedSamples<'a>>,
    /// Samples that the archive already had.
    there: u64,
    taken: u64,
}

impl<'a> Import<'a> {
    fn so_far(&mut self) -> String {
        self.logger.sync(mono());
        format!("{} samples imported, {} were there already", self.logger.account().safe, self.there)
    }

    fn row(&mut self, row: Row) -> Result<(), Failure> {
        match row {
            Row::Signal { name, since, about, .. } => {
                self.logger.signal(&name, about, since)?;
            }
            Row::Gap { name, at, cause, lost } => {
                let there = self.archive.gaps(name.as_deref().unwrap_or_default(), Span { from: at, to: at });
                let is_there = |gap: &Gap| (gap.id.is_some(), gap.cause, gap.lost) == (name.is_some(), cause, lost);
                if there.iter().any(is_there) {
                    return Ok(());
                }
                let id = name.map(|name| self.signal(&name, at)).transpose()?;
                self.logger.gap(id, at, cause, lost);
            }
            Row::Sample { name, sample } => {
                let id = self.signal(&name, sample.at)?;
                let archive = self.archive;
                let known = self.known.get_or_insert_with(|| ArchivedSamples::new(archive, &name, id));
                if known.has(&sample)? {
                    self.there += 1;
                    return Ok(());
                }
                match self.logger.push(id, &sample) {
                    Pushed::Repeated => self.there += 1,
                    Pushed::Taken | Pushed::Refused => self.taken += 1,
                }
                if self.taken.is_multiple_of(SAFE_EACH) {
                    self.logger.sync(mono());
                }
            }
        }
        Ok(())
    }

    /// The id of the signal with this name. A new signal gets the metadata that the archive has for the name.
    fn signal(&mut self, name: &str, at: i64) -> Result<SignalId, Failure> {
        if let Some(known) = self.known.as_ref().filter(|known| known.name == name) {
            return Ok(known.id);
        }
        let id = match self.logger.find(name) {
            Some(id) => id,
            None => {
                let about = self.archive.rows(name).pop().map_or_else(About::default, |row| row.about);
                self.logger.signal(name, about, at)?
            }
        };
        self.known = Some(ArchivedSamples::new(self.archive, name, id));
        Ok(id)
    }
}

/// The samples that the archive has of a signal, read in step with the imported ones.
struct ArchivedSamples<'a> {
    archive: &'a Archive<Folder>,
    name: String,
    id: SignalId,
    samples: Option<std::iter::Peekable<Samples<'a, Folder>>>,
    /// The last time stamp that was looked up, and the archived samples with that time stamp.
    at: i64,
    same: Vec<Sample>,
}

impl<'a> ArchivedSamples<'a> {
    fn new(archive: &'a Archive<Folder>, name: &str, id: SignalId) -> Self {
        Self { archive, name: name.to_owned(), id, samples: None, at: i64::MIN, same: Vec::new() }
    }

    fn has(&mut self, sample: &Sample) -> Result<bool, Failure> {
        if self.samples.is_none() || sample.at < self.at {
            let span = Span { from: sample.at, to: Span::ALL.to };
            self.samples = Some(self.archive.samples(&self.name, span)?.peekable());
            self.same.clear();
        }
        if sample.at != self.at {
            self.same.clear();
        }
        self.at = sample.at;
        let Some(samples) = &mut self.samples else { return Ok(false) };
        while let Some(there) = samples.next_if(|there| there.as_ref().map_or(true, |there| there.at <= sample.at)) {
            let there = there?;
            if there.at == sample.at {
                self.same.push(there);
            }
        }
        Ok(self.same.iter().any(|there| is_same(there, sample)))
    }
}

/// Whether two samples are equal. Values are compared as text, so that NaN equals NaN.
fn is_same(one: &Sample, other: &Sample) -> bool {
    let alarm = |sample: &Sample| (sample.severity, sample.status, sample.pulse, sample.datum.kind());
    one.at == other.at && alarm(one) == alarm(other) && one.datum.print() == other.datum.print()
}

fn mono() -> i64 {
    i64::try_from(sys::clock::mono_now().0).unwrap_or(i64::MAX)
}
