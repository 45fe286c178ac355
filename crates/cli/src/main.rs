//! The one binary: arguments in, text out. Each command is a module; decisions are elsewhere.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod doctor;

/// Turns a multi-core Linux machine into a real-time controller, and proves that its deadlines hold.
#[derive(Parser)]
#[command(name = "tahti", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One line per command, in alphabetical order.
#[derive(Subcommand)]
enum Command {
    Doctor(doctor::Args),
}

/// A command line that is not understood (`EX_USAGE` of sysexits.h): 1 and 2 belong to the commands.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    // Before anything else allocates: a keeper stays small.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == keep::keeper::SUBCOMMAND) {
        return keeper(words.collect());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version go to stdout and are no error; a reader that went away is none either.
            let _ = answer.print();
            return if answer.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Doctor(args) => doctor::run(args),
    }
}

/// The hidden life of the binary as the keeper of one child (`keep::keeper`).
fn keeper(words: Vec<std::ffi::OsString>) -> ExitCode {
    match keep::keeper::run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tahti keeper: {error}");
            ExitCode::FAILURE
        }
    }
}
