//! `tahti em`: equipment managers.

use crate::failure::Failure;
use crate::tell::Supervisor;
use em::{Options, plug_in, read, serve, values};
use equipment::{document, dry_run};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination as _};

/// Equipment managers: run them, check their tables, read what they poll
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Find everything that is wrong with a manager's tables
    Check(CheckArgs),
    /// Run a manager until SIGTERM; SIGHUP reads its tables anew
    Serve(ServeArgs),
    /// Show a table of polled values, without a message
    Values(ValuesArgs),
}

#[derive(clap::Args)]
struct ServeArgs {
    /// The manager's file
    file: PathBuf,
    /// The message server
    #[arg(long, default_value = "main", env = "TAHTI_MESSAGES")]
    server: String,
    /// End where the lane does not get its class, CPU or locked memory
    #[arg(long)]
    require_rt: bool,
}

#[derive(clap::Args)]
struct ValuesArgs {
    /// Name of the table: of a `[[poll]]`
    name: String,
    /// Only these, with `*` and `?`
    #[arg(default_value = "*")]
    pattern: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CheckArgs {
    /// The manager's file
    #[arg(required_unless_present = "document")]
    file: Option<PathBuf>,
    /// Show each step of a request, with its values; nothing is executed
    #[arg(long, value_name = "VERB/OBJECT/COMPLEMENT")]
    dry_run: Option<String>,
    /// What the device would answer, for --dry-run
    #[arg(long, value_name = "VALUE", requires = "dry_run")]
    raw: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Print the page on table files (Markdown)
    #[arg(long)]
    document: bool,
}

impl Args {
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.what, What::Check(_) | What::Values(_))
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    match args.what {
        What::Check(args) => look(&args),
        What::Serve(args) => run_manager(args),
        What::Values(args) => show(&args),
    }
}

fn run_manager(args: ServeArgs) -> ExitCode {
    let ServeArgs { file, server, require_rt } = args;
    let options = Options { file, server, drivers: &[], plug_in: plug_in(), require_rt };
    let mut supervisor = Supervisor::from_env();
    match serve(&options, &mut |line| println!("{line}"), &mut |why| supervisor.trouble(why)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::from(error).report(),
    }
}

fn show(args: &ValuesArgs) -> ExitCode {
    let mut all = match values(&args.name) {
        Ok(all) => all,
        Err(error) => return Failure::from(error).report(),
    };
    all.retain(|one| base::glob(&args.pattern, &one.name));
    if args.json {
        let one = |one: &em::Shown| {
            serde_json::json!({
                "name": one.name, "value": one.value, "unit": one.unit, "age_ns": one.age.0, "stale": one.stale
            })
        };
        println!("{}", serde_json::Value::Array(all.iter().map(one).collect()));
    } else {
        let width = all.iter().map(|one| one.name.len()).max().unwrap_or(0);
        for one in &all {
            let value = one
                .value
                .map_or("never read".to_owned(), |value| format!("{}{}", base::text::general(value, 9), one.unit));
            let age = base::DurNs(one.age.0 / 1_000_000 * 1_000_000);
            let mark = if one.stale { format!("  STALE {age}") } else { String::new() };
            println!("{:width$}  {value}{mark}", one.name);
        }
    }
    if all.is_empty() {
        return Failure::from(format!("no value of {:?} matches {:?}", args.name, args.pattern)).report();
    }
    // A stale value is shown, but nobody shall take it for a live one.
    if all.iter().any(|one| one.stale) { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn look(args: &CheckArgs) -> ExitCode {
    if args.document {
        print!("{}", document(em::DRIVERS));
        return ExitCode::SUCCESS;
    }
    let checked = match read(args.file.as_deref().unwrap_or(Path::new("")), &[]) {
        Ok(checked) => checked,
        Err(error) => return Failure::from(error).report(),
    };
    if args.json {
        let files: Vec<_> =
            checked.files.iter().map(|file| serde_json::json!({ "file": file.name, "findings": file.found })).collect();
        println!("{}", serde_json::json!({ "files": files }));
    } else if args.dry_run.is_none() || checked.tables.is_none() {
        print!("{}", checked.render());
    }
    let Some(tables) = checked.tables else { return ExitCode::FAILURE };
    let Some(request) = &args.dry_run else { return ExitCode::SUCCESS };
    match dry_run(&tables, request, args.raw.as_deref()) {
        Ok(steps) => {
            print!("{steps}");
            ExitCode::SUCCESS
        }
        Err(error) => Failure::from(error).report(),
    }
}
