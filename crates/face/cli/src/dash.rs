//! `tahti dash`: serves the dashboard of a plant.

use crate::control::{PlantArgs, Whole, connect, plant_name};
use crate::failure::{Failure, end};
use dash::{Options, Role};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use web::IdentityFiles;

/// Serve the dashboard of a plant, or print its address
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti dash url                 address with token, read only
  tahti dash url rf              the page of plant rf
  tahti dash url --operator      for operators; needs `write = true` in [dashboard]
  tahti dash serve --plant rf    for a plant that runs without a dashboard")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: DashCommand,
}

#[derive(clap::Subcommand)]
enum DashCommand {
    Serve(Serve),
    Url(Url),
}

/// Serve the dashboard until Ctrl-C
#[derive(clap::Args)]
struct Serve {
    #[command(flatten)]
    which: PlantArgs,
    /// Address and port [default: 127.0.0.1:8765, or the next free port up to 8784]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Further host name of this machine in addresses; repeatable
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    tls: Tls,
    /// Allow operators, who may make changes
    #[arg(long)]
    write: bool,
    /// Archive folder for the past of strip charts
    #[arg(long, value_name = "FOLDER")]
    archive: Option<PathBuf>,
    /// Serve the archive at /retrieval without a token
    #[arg(long, requires = "archive")]
    retrieval: bool,
    /// Serve the plant's tables over PVAccess, to every client that reaches it
    #[arg(long)]
    pvaccess: bool,
    /// Folder of saved settings
    #[arg(long, value_name = "FOLDER")]
    settings: Option<PathBuf>,
    /// Message server of the console
    #[arg(long, default_value = "main", env = "TAHTI_MESSAGES")]
    messages: String,
    /// Check the certificate and serve nothing: for `tahti check`
    #[arg(long, hide = true)]
    check: bool,
}

/// Serving by TLS
#[derive(clap::Args)]
pub(crate) struct Tls {
    /// Serve HTTPS with this certificate chain (PEM); needs a build with `--features tls`
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate (PEM), not readable by others
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

impl Tls {
    pub(crate) fn files(&self) -> Option<IdentityFiles> {
        Some(IdentityFiles { certificate: self.certificate.clone()?, key: self.key.clone()? })
    }
}

/// Print the address of the dashboard, with its token
#[derive(clap::Args)]
struct Url {
    #[command(flatten)]
    which: Whole,
    /// Print the address for operators
    #[arg(long)]
    operator: bool,
}

impl Args {
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.what, DashCommand::Url(_))
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(match args.what {
        DashCommand::Serve(args) => serve(args),
        DashCommand::Url(args) => url(&args),
    })
}

fn serve(args: Serve) -> Result<(), Failure> {
    let Serve { which, listen, names, tls, write, archive, retrieval, pvaccess, settings, messages, check } = args;
    let identity = tls.files();
    if check {
        return Ok(identity.map_or(Ok(()), |files| files.check())?);
    }
    let plant = plant_name(which.plant.as_deref())?;
    let options = Options { plant, listen, names, identity, write, archive, retrieval, pvaccess, settings, messages };
    Ok(dash::serve(&options)?)
}

fn url(args: &Url) -> Result<(), Failure> {
    let plant = plant_name(args.which.given())?;
    let role = if args.operator { Role::Operator } else { Role::Viewer };
    let address = dash::address(&plant, role);
    if matches!(&address, Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
        // A plant that does not exist, or is not up, is the cause.
        connect(&plant)?;
    }
    let address = address.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if args.operator => {
            format!("plant {plant:?} has no dashboard for operators; set `write = true` in [dashboard]")
        }
        std::io::ErrorKind::NotFound => {
            format!(
                "plant {plant:?} has no dashboard, or none that serves yet (`tahti logs dashboard` says why); where it was switched off, \
                 by `enabled` of [dashboard] or --no-dashboard, `tahti dash serve` makes one"
            )
        }
        _ => format!("the address of plant {plant:?} cannot be read: {error}; only root and the user of the plant can read it"),
    })?;
    println!("{address}");
    Ok(())
}
