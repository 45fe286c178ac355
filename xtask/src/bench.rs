//! `cargo xtask bench`: builds the binary as it is packaged and runs the measurements in docs/develop/benchmark-tables.md.
//!
//! A section of that page begins with `<!-- bench COMMAND -->` and ends with `<!-- /bench -->`. Between them
//! is the output of `tahti bench COMMAND`.

use crate::run::{Outcome, cargo, output, root, run};
use std::fs;
use std::process::Command;

const PAGE: &str = "docs/develop/benchmark-tables.md";
const HEAD: &str = "<!-- bench ";
const TAIL: &str = "<!-- /bench -->";

/// `[NAME...] [--write]`: runs the page's measurements, all or those named, and prints them or writes them into the page.
/// `cassandra`: uploads into a real node. `-- COMMAND`: runs any measurement.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let mut args = args.into_iter();
    let page_args: Vec<String> = args.by_ref().take_while(|arg| arg != "--").collect();
    let direct: Vec<String> = args.collect();
    let build = || run(&mut cargo(["build", "--profile", "lto", "--quiet", "--package", "cli", "--features", "faer"]));
    if !direct.is_empty() {
        build()?;
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
    let path = root().join(PAGE);
    let mut text = fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let is_wanted = |command: &String| {
        let name = command.split(' ').next().unwrap_or_default();
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    };
    let wanted: Vec<String> = commands(&text).into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let known = commands(&text).join("\n  ");
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
            text = replaced(&text, &command, &printed);
            fs::write(&path, &text).map_err(|error| format!("{PAGE}: {error}"))?;
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
    if words.first().is_some_and(|name| name == "ioc") {
        crate::test::install("networks")?;
        command.env("TAHTI_EPICS", crate::epics::programs()?);
    }
    if words.first().is_some_and(|name| name == "compute") {
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

/// The page with a new text in the section of `command`.
fn replaced(text: &str, command: &str, printed: &str) -> String {
    let head = format!("{HEAD}{command} -->\n");
    let Some((before, rest)) = text.split_once(&head) else { return text.to_owned() };
    let Some((_, after)) = rest.split_once(TAIL) else { return text.to_owned() };
    format!("{before}{head}```text\n$ tahti bench {command}\n{}\n```\n{TAIL}{after}", printed.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_rest_of_the_page_stays() {
        let page = "# A\n<!-- bench x --a -->\nold\n<!-- /bench -->\nkept\n<!-- bench y -->\n<!-- /bench -->\n";
        assert_eq!(commands(page), ["x --a", "y"]);
        let expected = "# A\n<!-- bench x --a -->\n```text\n$ tahti bench x --a\nnew\n```\n<!-- /bench -->\nkept\n<!-- bench y -->\n<!-- /bench -->\n";
        assert_eq!(replaced(page, "x --a", "new\n"), expected);
        assert_eq!(replaced(page, "z", "new"), page);
    }
}
