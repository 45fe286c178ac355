//! `tahti em`: equipment managers.

use equipment::{Checked, DRIVERS, Driver, check, document, dry_run};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Equipment managers: check their tables
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Find everything that is wrong with a manager's tables
    Check(CheckArgs),
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
        matches!(self.what, What::Check(_))
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    match args.what {
        What::Check(args) => look(&args),
    }
}

/// Reads a manager's file and those that it names.
fn read(file: &Path) -> Result<Checked, String> {
    let text = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let folder = file.parent().unwrap_or(Path::new(""));
    let main = text(file).map_err(|why| format!("equipment file {}: {why}", file.display()))?;
    let drivers: Vec<&'static Driver> = DRIVERS.iter().collect();
    Ok(check(&file.display().to_string(), &main, &drivers, &mut |name| text(&folder.join(name))))
}

fn look(args: &CheckArgs) -> ExitCode {
    if args.document {
        print!("{}", document());
        return ExitCode::SUCCESS;
    }
    let checked = match read(args.file.as_deref().unwrap_or(Path::new(""))) {
        Ok(checked) => checked,
        Err(why) => return crate::fail(&why),
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
        Err(why) => crate::fail(&why),
    }
}
