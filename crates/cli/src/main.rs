//! The one binary: arguments in, text out. Each command is a module; decisions are elsewhere.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Turns a multi-core Linux machine into a real-time controller, and proves that its deadlines hold.
#[derive(Parser)]
#[command(name = "tahti", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {}

#[allow(unreachable_code, reason = "until the first command lands")]
fn main() -> ExitCode {
    match Cli::parse().command {}
}
