//! `tahti bench`: every measurement is a [`Bench`], a row of [`ALL`] in a separate file.
//!
//! A measurement returns tables of figures (crate `report`), which are printed as text, JSON or pages. To add one:
//! `docs/how-to/add-a-bench.md`.

mod all;
mod cyclictest;
mod explained;
mod failed;
mod fingerprint;
mod gate;
pub mod looprun;
mod measure;
pub mod noise;
mod oslat;
mod papers;
mod progress;
mod scratch;
mod sector;
mod served;
mod shielded;
mod wire;

pub use failed::Failed;
pub use gate::reports;
pub use papers::experiments;
pub use progress::Progress;

use clap::{ArgMatches, Command, FromArgMatches};
use host::plan::{Spared, SparedList};
use recorder::Conditions;
use report::{Report, Table};
use std::time::Instant;

/// Declares a module for each line, and the table of the modules' `BENCH`. (`cargo fmt` does not see
/// these files, `cargo xtask test fmt` does.)
macro_rules! benches {
    ($($module:ident $(+ $($more:ident)::+)*;)*) => {
        $(mod $module;)*

        /// Every measurement, in alphabetical order.
        pub static ALL: &[&Bench] = &[$(&$module::BENCH, $(&$($more)::+::BENCH,)*)*];
    };
}
benches! {
    ao;
    archive;
    classes;
    clock;
    compute;
    dashboard;
    device;
    frames;
    guest_start;
    input;
    interference;
    ioc + ioc::groups;
    knobs;
    lost;
    pva;
    quiet;
    response;
    rtt;
    runaway;
    scope;
    shield;
    supervisor;
    wakeup;
}

/// Helper processes that measurements start.
static PARTS: &[Helper] = &[
    classes::SPIN,
    frames::FRAME,
    interference::COMPUTE,
    interference::PRIMES,
    interference::STREAM,
    lost::BUSY,
    measure::LOOP,
    response::RESPONDER,
    rtt::PART,
    runaway::BURN,
    scope::READER,
];

/// A measurement.
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// The experiment that it repeats, in words.
    pub experiment: &'static str,
    /// Adds description and arguments to a command.
    pub arguments: fn(Command) -> Command,
    /// Measures.
    pub run: fn(&ArgMatches, &mut Progress) -> Result<BenchResult, Failed>,
    /// The target, in words; the limits are in the rows.
    pub target: &'static str,
    /// The arguments of a quick run, for `all --quick`.
    pub quick: &'static [&'static str],
    /// Whether it shields CPUs; it then requires `--spare` or `--whole-machine`.
    pub shields: bool,
}

/// Result of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchResult {
    /// Setup, in lines.
    pub setup: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// Conclusions, and what was unavailable, in lines.
    pub notes: Vec<String>,
}

impl From<Table> for BenchResult {
    fn from(table: Table) -> Self {
        Self { tables: vec![table], ..Self::default() }
    }
}

/// A process of a measurement, hidden from `--help`.
struct Helper {
    name: &'static str,
    arguments: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<(), Failed>,
}

/// The arguments of a measurement as its own type.
///
/// # Errors
/// They do not fit the type: an internal error, because clap has checked them before.
pub fn read<A: FromArgMatches>(matches: &ArgMatches) -> Result<A, Failed> {
    Ok(A::from_arg_matches(matches)?)
}

// Output options of every measurement. (No doc comment: it would replace the measurement's own.)
#[derive(clap::Args)]
struct Shown {
    /// Print JSON, the input of `compare` and `tahti report`
    #[arg(long)]
    json: bool,
    /// Format of latencies
    #[arg(long, value_enum, default_value = "table")]
    view: View,
}

/// Format of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum View {
    /// One line each
    Table,
    /// Also each as VxWorks' jitterReport
    Vxworks,
}

// Processes that the shield of a measurement may move. (No doc comment: see `Shown`.)
#[derive(clap::Args)]
struct Touched {
    /// Processes that the shield must not touch: PID alone with its threads, PID+ with its descendants
    #[arg(long, value_name = "PIDS", env = "TAHTI_SPARE")]
    spare: Vec<SparedList>,
    /// Shield from every task of this machine
    #[arg(long)]
    whole_machine: bool,
}

impl Touched {
    /// The spared processes. Shielding from every other task needs an explicit confirmation.
    fn spare(&self) -> Result<Vec<Spared>, Failed> {
        let spare: Vec<Spared> = self.spare.iter().flat_map(|list| list.0.clone()).collect();
        if spare.is_empty() && !self.whole_machine {
            return Err(Failed::NotConfirmed);
        }
        Ok(spare)
    }
}

/// The command line behind `tahti bench`.
#[derive(Debug)]
pub struct Args {
    what: String,
    matches: ArgMatches,
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((what, matches)) => Ok(Self { what: what.to_owned(), matches: matches.clone() }),
            None => Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let benches = ALL.iter().map(|bench| bench.command());
        let parts = PARTS.iter().map(|part| (part.arguments)(Command::new(part.name)).hide(true));
        command
            .about("Measure this machine and compare it with published figures")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommands(benches)
            .subcommand(all::Args::augment_args(Command::new("all")))
            .subcommand(gate::Args::augment_args(Command::new("compare")))
            .subcommands(parts)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Output and outcome of a command.
pub struct Output {
    /// For standard output.
    pub text: String,
    /// Success: measured, or no figure got worse.
    pub good: bool,
}

/// Measures, or compares two measurements.
///
/// # Errors
/// It could not be measured.
pub fn run(args: &Args) -> Result<Output, Failed> {
    if let Some(part) = PARTS.iter().find(|part| part.name == args.what) {
        return (part.run)(&args.matches).map(|()| Output { text: String::new(), good: true });
    }
    match ALL.iter().find(|bench| bench.name == args.what) {
        Some(bench) => bench.shown(&args.matches),
        None if args.what == "all" => all::run(&read(&args.matches)?),
        None => gate::run(&read(&args.matches)?),
    }
}

impl Bench {
    /// Its command line.
    #[must_use]
    pub fn command(&self) -> Command {
        let command = <Shown as clap::Args>::augment_args((self.arguments)(Command::new(self.name)));
        let published: String =
            papers::published_for(self.name).iter().map(|one| format!("\n{}", one.line())).collect();
        command.after_help(format!("Experiment: {}\nTarget: {}{published}", self.experiment, self.target))
    }

    /// Its description, in a line.
    #[must_use]
    pub fn what(&self) -> String {
        (self.arguments)(Command::new(self.name)).get_about().map(ToString::to_string).unwrap_or_default()
    }

    /// Measures, and adds machine, arguments and published figures.
    fn measure(&self, matches: &ArgMatches, arguments: Vec<String>) -> Result<Report, Failed> {
        let (begun, steal, kept) = (Instant::now(), fingerprint::Steal::read(), Conditions::look());
        let mut found = (self.run)(matches, &mut Progress::of(self.name))?;
        found.notes.extend(kept.changed(&Conditions::look()));
        let report = Report {
            bench: self.name.into(),
            experiment: self.experiment.into(),
            what: self.what(),
            target: self.target.into(),
            arguments,
            ended_s: sys::clock::wall_ns() / 1_000_000_000,
            took_s: begun.elapsed().as_secs_f64(),
            machine: fingerprint::take(&steal),
            setup: found.setup,
            tables: found.tables,
            notes: found.notes,
            ..Report::default()
        };
        let mut published = papers::published_beside(&report);
        published.retain(|one| !report.tables.iter().any(|table| table.published.contains(one)));
        Ok(Report { published, ..report })
    }

    fn shown(&self, matches: &ArgMatches) -> Result<Output, Failed> {
        let shown: Shown = read(matches)?;
        let words = std::env::args().skip_while(|word| word != self.name).skip(1);
        let report = self.measure(matches, words.filter(|word| word != "--json").collect())?;
        let mut text = if shown.json { report::json(&report) + "\n" } else { report::text(&report) };
        if shown.view == View::Vxworks && !shown.json {
            let rows = report.tables.iter().flat_map(|table| &table.rows);
            for (row, latency) in rows.filter_map(|row| Some((row, row.latency.as_ref()?))) {
                text += &format!("\n{}\n{}", row.name, report::vxworks(latency));
            }
        }
        Ok(Output { text, good: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    #[test]
    fn every_bench_has_a_description_and_accepts_its_quick_arguments() {
        Args::augment_args(Command::new("bench")).debug_assert();
        for bench in ALL {
            assert!(
                !bench.what().is_empty() && !bench.experiment.is_empty() && !bench.target.is_empty(),
                "{}",
                bench.name
            );
            assert_eq!(bench.command().get_about().map(ToString::to_string), Some(bench.what()));
            let words = std::iter::once(&bench.name).chain(bench.quick);
            let parsed = bench.command().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{}: {parsed:?}", bench.name);
        }
        assert!(ALL.is_sorted_by_key(|bench| bench.name));
    }

    #[test]
    fn shared_arguments_do_not_replace_the_description_of_a_bench() {
        let commands = [Shown::augment_args(Command::new("x")), Touched::augment_args(Command::new("x"))];
        assert!(commands.iter().all(|command| command.get_about().is_none()));
    }

    #[test]
    fn a_report_survives_a_round_trip_through_json() {
        let matches = clock::BENCH.command().get_matches_from(["clock", "--rounds", "4"]);
        let report = clock::BENCH.measure(&matches, vec!["--rounds".into(), "4".into()]).unwrap();
        assert_eq!(report.tables[0].rows[0].ours.as_ref().map(|ours| ours.samples.len()), Some(4));
        assert_eq!(report::read(&report::json(&report)), Ok(vec![report]));
    }
}
