//! `tahti em`: equipment managers.

use crate::failure::Failure;
use em::{Options, plug_in, read, serve, values};
use equipment::{document, dry_run};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination as _};
use sys::clock::mono_now;
use sys::notify::Supervisor;

/// Run equipment managers, check their tables, show polled values
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: EmCommand,
}

#[derive(clap::Subcommand)]
enum EmCommand {
    /// Report every error in the tables of a manager
    Check(CheckArgs),
    /// Run a manager until SIGTERM; SIGHUP reloads its tables
    Serve(ServeArgs),
    /// Print polled values from shared memory
    Values(ValuesArgs),
}

#[derive(clap::Args)]
struct ServeArgs {
    /// Table file of the manager
    file: PathBuf,
    /// Message server
    #[arg(long, default_value = "main", env = "TAHTI_MESSAGES")]
    server: String,
    /// Exit if the class, CPU or memory lock is unavailable
    #[arg(long)]
    require_rt: bool,
}

#[derive(clap::Args)]
struct ValuesArgs {
    /// Name of the `[[poll]]` table
    name: String,
    /// Pattern; * and ? are wildcards
    #[arg(default_value = "*")]
    pattern: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CheckArgs {
    /// Table file of the manager
    #[arg(required_unless_present = "document")]
    file: Option<PathBuf>,
    /// Print each step of a request without executing it
    #[arg(long, value_name = "VERB/OBJECT/COMPLEMENT")]
    dry_run: Option<String>,
    /// Assumed answer of the device, for --dry-run
    #[arg(long, value_name = "VALUE", requires = "dry_run")]
    raw: Option<String>,
    /// Print the errors as JSON
    #[arg(long)]
    json: bool,
    /// Print the reference of all keys (Markdown)
    #[arg(long)]
    document: bool,
}

impl Args {
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.what, EmCommand::Check(_) | EmCommand::Values(_))
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    match args.what {
        EmCommand::Check(args) => look(&args),
        EmCommand::Serve(args) => run_manager(args),
        EmCommand::Values(args) => show(&args),
    }
}

fn run_manager(args: ServeArgs) -> ExitCode {
    let ServeArgs { file, server, require_rt } = args;
    let options = Options { file, server, drivers: &[], plug_in: plug_in(), require_rt };
    let mut supervisor = Supervisor::from_env();
    match serve(&options, &mut |line| println!("{line}"), &mut |why| supervisor.works(mono_now(), why)) {
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
    // Stale values are printed, but the exit status differs, so that scripts do not use them as live values.
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
