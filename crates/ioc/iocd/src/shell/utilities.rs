//! Conditions and loops of scripts: commands of the module utilities of ISIS.
//!
//! A condition is a variable with a blank or a `#`, which makes a line of a script a comment: `$(IFPORT) asynSetOption …`.

use super::commands::{Command, CommandResult, arg, command, needed, number, said, with_macros};
use super::{Failed, Shell};
use db::Macros;

/// Maximum number of rounds of a loop.
const ROUNDS_MAX: i64 = 10_000;
const LOOP_ARGUMENTS: &str = "macros variable start stop [step]";

pub(super) const COMMANDS: &[Command] = &[
    command!(
        "dbLoadRecordsList",
        "file macros variable list [separators]",
        "loads a file for each value of a list; \\$(variable) in its name and macros is the value",
        |shell, args| for_each(shell, args, items(args), load)
    ),
    command!(
        "dbLoadRecordsLoop",
        "file macros variable start stop [step]",
        "loads a file for each number of a range; \\$(variable) in its name and macros is the number",
        |shell, args| for_each(shell, args, range(args)?, load)
    ),
    command!(
        "iocshCmdList",
        "command macros variable list [separators]",
        "runs a command for each value of a list; \\$(variable) in it and its macros is the value",
        |shell, args| for_each(shell, args, items(args), run)
    ),
    command!(
        "iocshCmdLoop",
        "command macros variable start stop [step]",
        "runs a command for each number of a range; \\$(variable) in it and its macros is the number",
        |shell, args| for_each(shell, args, range(args)?, run)
    ),
    command!(
        "stringiftest",
        "name text [operation [other]]",
        "sets IFname to a blank and IFNOTname to #, or the reverse; operation 2: if text is not empty, 4: if it equals other, +8: reversed, +1: printed",
        |shell, args| {
            let name = needed(args, "stringiftest name text [operation [other]]")?;
            let (holds, fails) = if holds(args) { (" ", "#") } else { ("#", " ") };
            set(shell, args, &[(format!("IF{name}"), holds), (format!("IFNOT{name}"), fails)])
        }
    ),
    command!(
        "stringtest",
        "variable text [operation [other]]",
        "sets a variable to a blank if the condition holds (see stringiftest), else to #",
        |shell, args| {
            let name = needed(args, "stringtest variable text [operation [other]]")?;
            set(shell, args, &[(name.to_owned(), if holds(args) { " " } else { "#" })])
        }
    ),
];

/// Whether the condition of `stringtest` holds.
fn holds(args: &[String]) -> bool {
    let (text, operation) = (arg(args, 1), number(args, 2));
    let holds = if operation & 6 == 4 { text == arg(args, 3) } else { !text.is_empty() };
    holds != (operation & 8 != 0)
}

fn set(shell: &mut Shell, args: &[String], variables: &[(String, &str)]) -> CommandResult {
    let mut out = String::new();
    for (name, value) in variables {
        shell.env.insert(name.clone(), (*value).to_owned());
        if number(args, 2) & 1 != 0 {
            out += &format!("setting {name}=\"{value}\"\n");
        }
    }
    said(shell, &out)
}

/// Values of a list.
fn items(args: &[String]) -> Vec<String> {
    let separators = Some(arg(args, 4)).filter(|text| !text.is_empty()).unwrap_or(";");
    arg(args, 3).split(|c| separators.contains(c)).filter(|value| !value.is_empty()).map(str::to_owned).collect()
}

/// Numbers of a range.
fn range(args: &[String]) -> Result<Vec<String>, Failed> {
    let whole = |index: usize, name: &str| {
        let text = arg(args, index).trim();
        if text.is_empty() {
            return Ok(0);
        }
        let wrong = |_| Failed(format!("found {name} \"{text}\", expected a whole number: {LOOP_ARGUMENTS}"));
        text.parse::<i32>().map(i64::from).map_err(wrong)
    };
    let (start, stop, step) = (whole(3, "start")?, whole(4, "stop")?, whole(5, "step")?.max(1));
    let rounds = (stop - start) / step + 1;
    if rounds > ROUNDS_MAX {
        return Err(Failed(format!("found {rounds} rounds from {start} to {stop}, expected at most {ROUNDS_MAX}")));
    }
    Ok((0..).map(|nth| start + nth * step).take_while(|value| *value <= stop).map(|value| value.to_string()).collect())
}

/// Calls `work` with the first argument and the macros, for each value of the variable. Later rounds are not prevented by an error.
fn for_each(
    shell: &mut Shell,
    args: &[String],
    values: Vec<String>,
    work: fn(&mut Shell, &str, &str) -> CommandResult,
) -> CommandResult {
    let (what, macros, variable) =
        (needed(args, "a file or command, then macros, variable, values")?, arg(args, 1), arg(args, 2));
    if variable.is_empty() {
        return work(shell, what, macros);
    }
    let (count, mut failed) = (values.len(), Vec::new());
    for value in values {
        let mut known = Macros::default();
        shell.env.iter().for_each(|(name, text)| known.set(name, text));
        known.set(variable, &value);
        // The backslash protects the macro from the expansion of the line.
        let expand = |text: &str| known.expand(&text.replace("\\$", "$")).0.into_owned();
        let (what, macros) = (expand(what), expand(macros));
        let comma = if macros.is_empty() { "" } else { "," };
        match work(shell, &what, &format!("{macros}{comma}{variable}={value}")) {
            Ok(None) => {}
            Ok(end) => return Ok(end),
            Err(Failed(error)) => failed.push(format!("{variable}={value}: {error}")),
        }
    }
    match failed.len() {
        0 => Ok(None),
        some => Err(Failed(format!("{some} of {count} rounds failed\n{}", failed.join("\n")))),
    }
}

fn load(shell: &mut Shell, file: &str, macros: &str) -> CommandResult {
    shell.load_records(file, macros).map(|()| None)
}

fn run(shell: &mut Shell, line: &str, macros: &str) -> CommandResult {
    with_macros(shell, macros, |shell| shell.run_line(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(lines: &[&str]) -> Shell {
        let mut shell = Shell::new(false, []);
        for line in lines {
            shell.run_line(line).unwrap_or_else(|failed| panic!("{line}: {}", failed.0));
        }
        shell
    }

    #[test]
    fn conditions_make_lines_of_a_script_comments() {
        let shell = shell(&[
            "stringiftest(\"PORT\", \"\")",
            "$(IFPORT) epicsEnvSet PORTS 1",
            "$(IFNOTPORT) epicsEnvSet NONE 1",
            "stringiftest(\"KIND\", \"a\", 5, \"a\")",
            "stringiftest(\"EMPTY\", \"\", 10)",
            "stringiftest(\"OTHER\", \"a\", 12, \"a\")",
            "stringtest(\"X\", \"a\", 4, \"b\")",
        ]);
        let is = |name: &str| shell.env.get(name).cloned();
        assert_eq!((is("PORTS"), is("NONE").as_deref()), (None, Some("1")));
        assert_eq!((is("IFKIND").as_deref(), is("IFNOTKIND").as_deref()), (Some(" "), Some("#")));
        assert_eq!((is("IFEMPTY").as_deref(), is("IFOTHER").as_deref()), (Some(" "), Some("#")));
        assert_eq!(is("X").as_deref(), Some("#"));
    }

    #[test]
    fn a_file_is_loaded_for_each_number_of_a_range_and_each_value_of_a_list() {
        let folder = std::env::temp_dir().join(format!("utilities-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["r.db", "sa.db", "sb.db"] {
            std::fs::write(folder.join(file), "record(ai, \"$(P)$(I)\") {}\n").unwrap();
        }
        let folder_text = folder.display().to_string();
        let mut shell = shell(&[
            &format!("epicsEnvSet DIR {folder_text}"),
            r#"dbLoadRecordsLoop("$(DIR)/r.db", "P=X:\$(I):", "I", 2, 6, 2)"#,
            r#"dbLoadRecordsList("$(DIR)/s\$(I).db", "P=Y:", "I", "a;b")"#,
            r#"iocshCmdLoop("epicsEnvSet LAST$(Q=)\$(I) \$(I)", "Q=q", "I", 1, 2)"#,
            r#"dbLoadRecordsLoop("$(DIR)/r.db", "P=Z:", "I", 3, 2)"#,
        ]);
        let _ = std::fs::remove_dir_all(folder);
        assert_eq!(shell.record_names(), "X:2:2\nX:4:4\nX:6:6\nY:a\nY:b\n");
        assert_eq!(shell.env.get("LAST2").map(String::as_str), Some("2"));
        assert!(!shell.env.contains_key("I"), "the variable of a loop ends with it");
    }

    #[test]
    fn a_loop_reports_its_failed_rounds_and_a_range_without_numbers_or_bound() {
        let mut shell = shell(&[]);
        let mut error = |line: &str| shell.run_line(line).unwrap_err().0;
        let missing = error(r#"dbLoadRecordsLoop("absent\$(I).db", "", "I", 1, 2)"#);
        assert!(missing.starts_with("2 of 2 rounds failed\nI=1: ") && missing.contains("absent2.db"), "{missing}");
        assert!(error(r#"dbLoadRecordsLoop("a.db", "", "I", x, 2)"#).contains("found start \"x\""));
        assert!(error(r#"dbLoadRecordsLoop("a.db", "", "I", -2147483648, 2147483647)"#).contains("at most 10000"));
    }
}
