//! `tahti completion`, `tahti man` and `tahti schema`: shell completions, manual pages and the schema of the plant file, generated
//! from the tables of commands and keys.

use crate::failure::{Failure, in_file};
use crate::out::is_terminal;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{self, ExitCode, Stdio, Termination as _};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti completion bash > /etc/bash_completion.d/tahti
  tahti completion zsh > \"${fpath[1]}/_tahti\"
  tahti completion fish > ~/.config/fish/completions/tahti.fish")]
pub(crate) struct CompletionArgs {
    /// Shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Show a manual page, or write all pages to a folder
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti man                    on a terminal `man` shows it, elsewhere it is printed as it is
  tahti man shield apply > tahti-shield-apply.1
  tahti man --all /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Command of the page [default: tahti itself]
    command: Vec<String>,
    /// Write all pages to this existing folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    all: Option<PathBuf>,
}

/// Print the JSON Schema of the plant file, for completion and hints in editors
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti schema > plant.schema.json     then `#:schema ./plant.schema.json` as first line of plant.toml")]
pub(crate) struct SchemaArgs {}

pub(crate) fn schema(_: SchemaArgs) -> ExitCode {
    println!("{:#}", host::plant::schema());
    ExitCode::SUCCESS
}

pub(crate) fn completion(args: CompletionArgs) -> ExitCode {
    let shell = match args.shell.as_str() {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut text = Vec::new();
    let mut tahti = crate::Cli::command();
    clap_complete::generate(shell, &mut tahti, "tahti", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    // The generated completions for bash and zsh include hidden commands; remove these.
    for name in hidden(&tahti) {
        let offers = |line: &&str| !line.starts_with(&format!("'{name}:"));
        text = text.replace(&format!(" {name}"), "");
        text = text.lines().filter(offers).map(|line| format!("{line}\n")).collect();
    }
    print!("{text}\n{}", names(shell));
    ExitCode::SUCCESS
}

/// Part of a completion script that is added to the generated one: completes names of processes, plants and records
/// with [`crate::complete`].
fn names(shell: Shell) -> &'static str {
    match shell {
        Shell::Zsh => {
            r#"# Names of processes, plants and records.
_tahti_names() {
    local -a names
    names=(${(f)"$(tahti complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#names )) && compadd -a names
    _tahti "$@" || (( $#names ))
}
compdef _tahti_names tahti
"#
        }
        Shell::Fish => {
            r#"# Names of processes, plants and records.
complete -c tahti -a '(tahti complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
"#
        }
        _ => {
            r#"# Names of processes, plants and records.
_tahti_names() {
    local line="${COMP_LINE:0:COMP_POINT}" words word name begin=
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    _tahti "$@"
    word="${words[-1]}"
    # bash replaces only what is behind the last colon.
    [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && begin="${word%:*}:"
    while IFS= read -r name; do
        COMPREPLY+=("${name#"$begin"}")
    done < <(tahti complete -- "${words[@]:1}" 2>/dev/null)
}
complete -F _tahti_names -o nosort -o bashdefault -o default tahti
"#
        }
    }
}

pub(crate) fn man(args: ManArgs) -> ExitCode {
    let mut tahti = crate::Cli::command();
    tahti.build();
    let done = match args.all {
        Some(folder) => pages(&tahti).into_iter().try_for_each(|(name, text)| {
            let file = folder.join(format!("{name}.1"));
            std::fs::write(&file, text).map_err(in_file(&file))
        }),
        None => one(&tahti, &args.command).map(|text| {
            if !(is_terminal() && page_through(&text)) {
                print!("{}", String::from_utf8_lossy(&text));
            }
        }),
    };
    done.map_or_else(|why| why.report(), |()| ExitCode::SUCCESS)
}

/// Displays a page with `man` and its pager. Returns whether that succeeded.
fn page_through(page: &[u8]) -> bool {
    let shown = process::Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    shown.is_ok_and(|mut man| {
        // Fails if the pager is closed before the end of the page, which is no error.
        let _ = man.stdin.take().map(|mut stdin| stdin.write_all(page));
        man.wait().is_ok_and(|status| status.success())
    })
}

/// The page of the command with these names.
fn one(tahti: &Command, words: &[String]) -> Result<Vec<u8>, Failure> {
    let mut command = tahti;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            let known: Vec<_> = shown(command).map(Command::get_name).collect();
            let meant = base::nearest(word, known.iter().copied())
                .map_or(String::new(), |it| format!("; did you mean {it:?}?"));
            format!("{:?} has no command {word:?}{meant}", command.get_display_name().unwrap_or("tahti"))
        })?;
    }
    Ok(page(command))
}

/// All pages with their names: `tahti`, `tahti-shield`, `tahti-shield-apply`.
fn pages(command: &Command) -> Vec<(String, Vec<u8>)> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let own = std::iter::once((name, page(command)));
    own.chain(shown(command).flat_map(pages)).collect()
}

/// Names of the hidden subcommands, at any depth.
fn hidden(command: &Command) -> Vec<String> {
    let below = command.get_subcommands().flat_map(|one| {
        let own = one.is_hide_set().then(|| one.get_name().to_owned());
        own.into_iter().chain(hidden(one))
    });
    below.collect()
}

/// The subcommands that are not hidden.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

fn page(command: &Command) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = clap_mangen::Man::new(command.clone()).section("1").render(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_a_manual_page() {
        crate::Cli::command().debug_assert();
        let mut tahti = crate::Cli::command();
        tahti.build();
        let pages = pages(&tahti);
        for name in ["tahti", "tahti-stop", "tahti-shield-apply", "tahti-msg-send"] {
            let page = pages.iter().find(|(page, _)| page == name).unwrap_or_else(|| panic!("{name}"));
            assert!(String::from_utf8_lossy(&page.1).contains("SYNOPSIS"), "{name}");
        }
        let mut names: Vec<_> = pages.iter().map(|(name, _)| name).collect();
        names.dedup();
        assert_eq!(names.len(), pages.len());
    }

    #[test]
    fn every_command_of_daily_use_has_examples_in_its_help() {
        let mut tahti = crate::Cli::command();
        tahti.build();
        for command in shown(&tahti).filter(|command| !command.has_subcommands()) {
            let name = command.get_name();
            if name.starts_with("ca") || name.starts_with("pv") {
                // EPICS tools have the help text of EPICS.
                continue;
            }
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Examples:\n  tahti "), "{name} has no examples");
        }
    }
}
