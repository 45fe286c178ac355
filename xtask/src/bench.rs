//! `cargo xtask bench`: builds the binary as it is packaged and runs the measurements in docs/develop/benchmark-tables.md.
//!
//! That page names each measurement as `<!-- bench COMMAND -->`. Its complete output is in docs/develop/benchmark-runs.txt, behind
//! the line `$ tahti bench COMMAND`.

use crate::run::{Outcome, cargo, output, root, run};
use std::fs;
use std::process::Command;

const PAGE: &str = "docs/develop/benchmark-tables.md";
const RUNS: &str = "docs/develop/benchmark-runs.txt";
const HEAD: &str = "<!-- bench ";
const PROMPT: &str = "$ tahti bench ";

/// `[NAME...] [--write]`: runs the page's measurements, all or those named. With `--write` their output replaces the one in
/// docs/develop/benchmark-runs.txt.
/// `cassandra`: uploads into a real node. `-- COMMAND`: runs any measurement.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let mut args = args.into_iter();
    let page_args: Vec<String> = args.by_ref().take_while(|arg| arg != "--").collect();
    let direct: Vec<String> = args.collect();
    let build = || run(&mut cargo(["build", "--profile", "lto", "--quiet", "--package", "cli", "--features", "faer"]));
    if !direct.is_empty() {
        build()?;
        if direct[0] == "all" {
            peers();
        }
        return run(tahti(&direct)?.args(&direct));
    }
    if page_args == ["cassandra"] {
        return cassandra();
    }
    // Report errors before the build, which takes minutes.
    let (flags, names): (Vec<_>, Vec<_>) = page_args.into_iter().partition(|arg| arg.starts_with("--"));
    let write = match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--write"] => true,
        _ => return Err(format!("unknown option {}: expected --write", flags.join(" "))),
    };
    let page = fs::read_to_string(root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let path = root().join(RUNS);
    let mut runs = fs::read_to_string(&path).map_err(|error| format!("{RUNS}: {error}"))?;
    let is_wanted = |command: &String| {
        let name = command.split(' ').next().unwrap_or_default();
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    };
    let wanted: Vec<String> = commands(&page).into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let known = commands(&page).join("\n  ");
        return Err(format!("no measurement of {PAGE} is called {}; it has\n  {known}", names.join(" ")));
    }
    build()?;
    peers();
    for command in wanted {
        println!("\n== tahti bench {command}");
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let printed = output(tahti(&words)?.args(&words))?;
        print!("{printed}");
        if write {
            runs = replaced(&runs, &command, &printed);
            fs::write(&path, &runs).map_err(|error| format!("{RUNS}: {error}"))?;
        }
    }
    Ok(())
}

/// Starts a real node for the upload, as the tests do. `tahti bench` itself starts no database.
fn cassandra() -> Outcome {
    crate::test::install("cassandra")?;
    let words =
        ["run", "--release", "--quiet", "--package", "cassandra", "--features", "driver", "--example", "throughput"];
    let mut command = cargo(words);
    command.args(["--target-dir", "target/cassandra"]);
    run(command.env("TAHTI_CASSANDRA", crate::test::cassandra_jars()?).env("TAHTI_JAVA", crate::peers::java_17()?))
}

/// `tahti bench`, with the programs that a measurement compares with.
fn tahti(words: &[String]) -> Result<Command, String> {
    let mut command = Command::new(root().join("target/lto/tahti"));
    command.arg("bench");
    let is_for = |bench: &str| words.first().is_some_and(|name| name == bench || name == "all");
    if is_for("ioc") {
        crate::test::install("networks")?;
        command.env("TAHTI_EPICS", crate::epics::programs()?);
    }
    if is_for("pva") {
        let python = crate::peers::python("qsrv2", &["pvxslibs==1.5.3", "epicscorelibs==7.0.10.99.0.2"])?;
        command.env("TAHTI_QSRV2", python.join("python"));
    }
    if is_for("compute") {
        crate::test::install("appliance")?;
        crate::peers::debian(&["gcc", "libopenblas0"])?;
        command.env("TAHTI_PYTHON", crate::peers::python("numpy", &["numpy"])?.join("python"));
    }
    Ok(command)
}

/// Installs the programs that measurements compare with, if possible. The measurements report missing ones themselves.
fn peers() {
    let missing = Command::new("cyclictest").arg("--help").output().is_err();
    if missing && let Err(why) = run(Command::new("apt-get").args(["install", "--yes", "--quiet", "rt-tests"])) {
        println!("rt-tests could not be installed ({why}): nothing will be compared with cyclictest");
    }
}

/// The commands in the page, in their order.
fn commands(text: &str) -> Vec<String> {
    let command = |line: &str| line.strip_prefix(HEAD)?.strip_suffix(" -->").map(str::to_owned);
    text.lines().filter_map(command).collect()
}

/// The runs with a new output of `command`: at the end if it has none.
fn replaced(runs: &str, command: &str, printed: &str) -> String {
    let head = format!("{PROMPT}{command}\n");
    let text = format!("{head}{}\n\n", printed.trim_end());
    let Some(at) = runs.find(&head) else { return format!("{}\n\n{text}", runs.trim_end()) };
    let rest = &runs[at + head.len()..];
    let is_end = |line: &str| line.starts_with(PROMPT) || line.starts_with("====");
    let len: usize = rest.split_inclusive('\n').take_while(|line| !is_end(line)).map(str::len).sum();
    format!("{}{text}{}", &runs[..at], &rest[len..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_replaced_and_the_others_stay() {
        assert_eq!(commands("# A\n<!-- bench x --a -->\nkept\n<!-- bench y -->\n"), ["x --a", "y"]);
        let runs = "first\n====\nA\n\n$ tahti bench x --a\nold\n\n$ tahti bench y\nold\n\n====\nB\n";
        let new = "first\n====\nA\n\n$ tahti bench x --a\nnew\n\n$ tahti bench y\nold\n\n====\nB\n";
        assert_eq!(replaced(runs, "x --a", "new\n"), new);
        let last = "first\n====\nA\n\n$ tahti bench x --a\nold\n\n$ tahti bench y\nnew\n\n====\nB\n";
        assert_eq!(replaced(runs, "y", "new"), last);
        assert_eq!(replaced("first\n", "z", "new"), "first\n\n$ tahti bench z\nnew\n\n");
    }
}
