//! `tahti --help`: the commands, grouped by subject.

use crate::Cli;
use clap::{Command, CommandFactory as _};

/// Subjects and their commands, in the order of `tahti --help`.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Run a plant",
        &[
            "init", "check", "up", "down", "reload", "ps", "top", "status", "logs", "attach", "start", "stop",
            "restart", "signal", "run", "frames", "guest",
        ],
    ),
    ("Shield", &["doctor", "shield"]),
    (
        "EPICS",
        &[
            "ioc",
            "caget",
            "caput",
            "camonitor",
            "cainfo",
            "carepeater",
            "pvget",
            "pvput",
            "pvmonitor",
            "pvinfo",
            "pvlist",
            "pvcall",
        ],
    ),
    ("Operate", &["dash", "alarm", "archive", "settings", "scope", "msg", "em"]),
    ("Measure", &["explain", "trace", "profile", "bench", "report"]),
    ("Tools", &["demo", "completion", "docs", "man", "schema", "help"]),
];

/// The command line, whose help lists the commands by subject.
pub(crate) fn command() -> Command {
    let tahti = Cli::command();
    let groups: String = GROUPS.iter().map(|(subject, names)| group(&tahti, subject, names)).collect();
    tahti.help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}"))
}

fn group(tahti: &Command, subject: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let command = tahti.find_subcommand(name);
        let about = match command {
            Some(command) => command.get_about().map(ToString::to_string).unwrap_or_default(),
            // clap adds this command when it parses.
            None => "Print the help of a command".to_owned(),
        };
        let aliases = command.map(|command| command.get_visible_aliases().collect::<Vec<_>>()).unwrap_or_default();
        let aliases = aliases.iter().map(|alias| format!(" [alias: {alias}]")).collect::<String>();
        format!("  {name:<11} {about}{aliases}\n")
    };
    format!("\n{subject}:\n{}", names.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_has_a_line_of_at_most_100_characters() {
        let tahti = Cli::command();
        let grouped: Vec<_> =
            GROUPS.iter().flat_map(|(_, names)| *names).copied().filter(|name| *name != "help").collect();
        let shown = tahti.get_subcommands().filter(|one| !one.is_hide_set());
        let mut names: Vec<_> = shown.map(Command::get_name).collect();
        names.sort_unstable();
        let mut sorted = grouped.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, names);
        let help = command().render_help().to_string();
        for name in grouped {
            assert_eq!(help.matches(&format!("\n  {name} ")).count(), 1, "{name}\n{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}
