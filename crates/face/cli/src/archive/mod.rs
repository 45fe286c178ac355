//! `tahti archive`: logs samples, and retrieves, converts and maintains them.

mod decode;
mod export;
mod get;
mod http;
mod import;
mod join;
mod list;
mod status;
pub(crate) mod time;
mod upload;

use crate::failure::{Failure, end, text_of};
use crate::progress::{Progress, ProgressArgs, interrupted};
use base::Cluster;
use host::plant::archive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Archive, Folder, Reader, Span, StoreError};

/// Store samples of signals, and read, export or verify them
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: ArchiveCommand,
}

#[derive(clap::Subcommand)]
enum ArchiveCommand {
    #[command(hide = true)]
    Decode(decode::Args),
    Export(export::Args),
    Get(get::Args),
    Http(http::Args),
    Import(import::Args),
    List(list::Args),
    /// Pack closed segments for faster reading (`serve` does this automatically)
    Pack(PackArgs),
    /// Store the signals of a file until SIGTERM
    Serve(ServeArgs),
    Status(status::Args),
    Upload(upload::Args),
    /// Read a whole archive; exit status 1 if it is damaged
    Verify(VerifyArgs),
}

#[derive(clap::Args)]
struct VerifyArgs {
    /// Archive folder
    folder: PathBuf,
    #[command(flatten)]
    progress: ProgressArgs,
}

#[derive(clap::Args)]
struct PackArgs {
    /// Archive folder
    folder: PathBuf,
    #[command(flatten)]
    progress: ProgressArgs,
}

#[derive(clap::Args)]
struct ServeArgs {
    /// File with the signals to store
    #[arg(required_unless_present_any = ["document", "table"])]
    file: Option<PathBuf>,
    /// A table of such a file, instead of a file (used by `tahti up`)
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    table: Vec<String>,
    /// Report every error in the file and exit
    #[arg(long)]
    check: bool,
    /// Print the reference of all keys (Markdown)
    #[arg(long)]
    document: bool,
}

impl Args {
    pub(crate) const fn only_looks(&self) -> bool {
        matches!(
            self.what,
            ArchiveCommand::Export(_)
                | ArchiveCommand::Get(_)
                | ArchiveCommand::List(_)
                | ArchiveCommand::Status(_)
                | ArchiveCommand::Verify(_)
        )
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(match args.what {
        ArchiveCommand::Decode(args) => decode::run(&args),
        ArchiveCommand::Export(args) => export::run(&args),
        ArchiveCommand::Get(args) => get::run(&args),
        ArchiveCommand::Http(args) => http::run(&args),
        ArchiveCommand::Import(args) => import::run(&args),
        ArchiveCommand::List(args) => list::run(&args),
        ArchiveCommand::Pack(args) => pack(&args),
        ArchiveCommand::Serve(args) => serve(&args),
        ArchiveCommand::Status(args) => status::run(&args),
        ArchiveCommand::Upload(args) => upload::run(&args),
        ArchiveCommand::Verify(args) => verify(&args),
    })
}

/// Opens an archive for reading: a folder, or a keyspace of a cluster. `wanted` selects signals; of other signals in a
/// folder, only the names are loaded.
fn open(path: &PathBuf, wanted: impl Fn(&str) -> bool) -> Result<Box<dyn Reader + Send>, Failure> {
    match cluster(path)? {
        Some(cluster) => Ok(Box::new(cassandra::Archive::open(cluster)?)),
        None => Ok(Box::new(Archive::open_for(folder(path)?, wanted)?)),
    }
}

/// The cluster that the path names; `None` if it is a folder of this machine.
fn cluster(path: &Path) -> Result<Option<Cluster>, Failure> {
    let text = path.to_str().filter(|text| Cluster::is_meant(text));
    Ok(text.map(str::parse).transpose()?)
}

/// The archive folder at a path, which must be a directory.
fn folder(path: &PathBuf) -> Result<Folder, Failure> {
    if path.is_dir() {
        return Ok(Folder::new(path));
    }
    Err(format!("{} is no folder; expected one that `tahti archive serve` has written", path.display()).into())
}

/// The signal names that match the patterns, sorted.
///
/// Fails if a pattern matches no signal; otherwise its samples would be missing without notice.
fn named(archive: &dyn Reader, patterns: &[String]) -> Result<Vec<String>, Failure> {
    let all = archive.names()?;
    let is_meant = |pattern: &String, name: &String| pattern == name || base::glob(pattern, name);
    let without: Vec<&str> =
        patterns.iter().filter(|pattern| !all.iter().any(|name| is_meant(pattern, name))).map(String::as_str).collect();
    if !without.is_empty() {
        return Err(format!("no signal matches {}; tahti archive list FOLDER shows all", without.join(" ")).into());
    }
    Ok(all.into_iter().filter(|name| patterns.iter().any(|pattern| is_meant(pattern, name))).collect())
}

/// Number of damaged files at which packing stops.
const DAMAGED_MAX: usize = 10_000;

/// Maximum number of damaged places that are printed.
const PROBLEMS_MAX: usize = 20;

/// Prints the damaged parts of an archive that may lack samples of the span. Returns the exit status.
fn end_of(archive: &dyn Reader, span: Span) -> ExitCode {
    let problems = archive.problems(span);
    for problem in problems.iter().take(PROBLEMS_MAX) {
        eprintln!("tahti: damaged: {}", visible(&problem.to_string()));
    }
    if problems.len() > PROBLEMS_MAX {
        eprintln!("tahti: damaged: {} more places", problems.len() - PROBLEMS_MAX);
    }
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("  try: tahti archive verify FOLDER, and put the files that it names back from a copy");
    ExitCode::FAILURE
}

/// Filters out errors caused by damage, which the archive reports as problems.
fn readable<'a>(samples: store::Stream<'a>) -> impl Iterator<Item = Result<segment::Sample, StoreError>> + 'a {
    samples.filter(|sample| !sample.as_ref().is_err_and(|error| error.problem().is_some()))
}

/// Escapes control characters, so that names and values from other programs cannot control the terminal.
const fn visible(text: &str) -> base::Visible<'_> {
    base::Visible { text, colours: false }
}

fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    if args.document {
        [archive::ARCHIVE, archive::SIGNAL].iter().for_each(|table| print!("{}", table::rows(table, "must be given")));
        return Ok(ExitCode::SUCCESS);
    }
    let (shown, text) = match &args.file {
        Some(file) => (file.display().to_string(), text_of(file)?),
        None => ("--table".to_owned(), args.table.join("\n")),
    };
    let (wanted, found) = archive::read(&text);
    if !found.is_empty() || args.check {
        eprint!("{}", table::render_all(&found, &shown, &text));
    }
    let Some(wanted) = wanted else { return Ok(ExitCode::FAILURE) };
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    collect::serve(&wanted, &mut |line: &str| println!("tahti archive: {}", visible(line)))?;
    Ok(ExitCode::SUCCESS)
}

fn verify(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let mut progress = Progress::begin(&args.progress)?;
    let (checked, is_whole) =
        store::verify_while(&folder(&args.folder)?, |share| progress.step(Some(share), || "verifying".into()))?;
    progress.clear();
    let (mut samples, mut damaged) = (0, 0);
    for file in &checked {
        samples += file.samples;
        damaged += file.damage.len();
        let tail = match file.tail {
            0 => String::new(),
            len => format!(", then {len} incomplete bytes, as after a crash or while a logger writes"),
        };
        println!("{}  {} bytes, {} blocks, {} samples{tail}", file.name, file.bytes, file.blocks, file.samples);
        for damage in &file.damage {
            println!("  DAMAGED: {} bytes from byte {} on: {}", damage.len, damage.offset, damage.why);
        }
    }
    if !is_whole {
        let done = format!("{} files with {samples} samples verified, {damaged} places damaged", checked.len());
        return Err(interrupted(&done, "run the command again; it begins with the first file"));
    }
    if damaged > 0 {
        println!("DAMAGED: {damaged} places; {samples} samples can be read");
        return Ok(ExitCode::FAILURE);
    }
    println!("good: {} files, {samples} samples", checked.len());
    Ok(ExitCode::SUCCESS)
}

fn pack(args: &PackArgs) -> Result<ExitCode, Failure> {
    let folder = folder(&args.folder)?;
    // The logger holds the lock, so no other process writes meanwhile.
    let logger = store::Logger::open(folder.clone(), store::Config::default(), 0)?;
    let open = logger.open_from();
    let next = || match store::due(&folder, open, true)? {
        None => store::due(&folder, open, false),
        due => Ok(due),
    };
    let mut progress = Progress::begin(&args.progress)?;
    let total = store::unpacked(&folder, open)?;
    let (mut damaged, mut packs) = (0, 0);
    while let Some((first, last)) = next()? {
        let left = store::unpacked(&folder, open)?;
        // Afterwards packs are merged into larger ones, which takes additional time.
        let share = (left > 0).then(|| 1.0 - left as f64 / total.max(1) as f64);
        if progress.is_interrupted() || !progress.step(share, || format!("{packs} packs made")) {
            let done = format!("{packs} packs made; the other files are as they were");
            return Err(interrupted(&done, "run the command again; it continues with the next pack"));
        }
        let packed = match store::pack(&folder, first, last) {
            Ok(packed) => packed,
            Err(error @ StoreError::Damaged { .. }) => {
                // The next pass skips the damaged file. If an error persists, the limit ends the loop.
                progress.clear();
                eprintln!("tahti: not packed: {error}");
                damaged += 1;
                if damaged > DAMAGED_MAX {
                    return Err("too many files are damaged; see tahti archive verify".into());
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        packs += 1;
        progress.clear();
        println!(
            "{}  {} files, {} samples: {} bytes, were {}",
            packed.name, packed.files, packed.samples, packed.after, packed.before
        );
    }
    Ok(if damaged > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
