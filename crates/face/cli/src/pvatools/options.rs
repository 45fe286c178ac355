//! Command-line options of EPICS' PVAccess tools.

use super::format::Mode;
use crate::getopt::{self, End, Part};
use base::{DurNs, MonoNs};
use pva::request::Request;
use pvanet::session::Session;
use std::process::ExitCode;

/// The options of all tools.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) request: Request,
    pub(super) timeout_secs: f64,
    pub(super) mode: Mode,
    pub(super) quiet: bool,
    /// Print the server's description of itself.
    pub(super) info: bool,
    /// Remaining arguments: names and values.
    pub(super) words: Vec<String>,
}

/// Name, usage and options of a tool. In `letters`, a colon follows each option that takes a value.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) letters: &'static str,
    /// Options may follow names. A value may be a negative number, so not for pvput.
    pub(super) anywhere: bool,
    pub(super) needs_name: bool,
    pub(super) timeout_secs: f64,
    pub(super) usage: &'static str,
}

/// Parses the command line. Prints help and errors itself; `Err` is then the exit code.
pub(super) fn parse(tool: &Tool, words: &[String]) -> Result<Options, ExitCode> {
    let mut options = Options {
        request: Request::default(),
        timeout_secs: tool.timeout_secs,
        mode: Mode::Plain,
        quiet: false,
        info: false,
        words: Vec::new(),
    };
    let taken = getopt::each(tool.letters, tool.anywhere, words, |part| match part {
        Part::Word(word) => {
            options.words.push(word.to_owned());
            Ok(())
        }
        Part::Option(letter, value) => apply(tool, &mut options, letter, value),
    });
    let taken = match taken {
        Ok(()) if tool.needs_name && options.words.is_empty() => Err(End::Wrong("No pv name(s) specified.".to_owned())),
        taken => taken,
    };
    taken.map_err(|end| end.report(tool.name)).map(|()| options)
}

/// Applies an option.
fn apply(tool: &Tool, options: &mut Options, letter: char, value: &str) -> Result<(), End> {
    match letter {
        'h' => {
            print!("{}", tool.usage);
            return Err(End::Printed);
        }
        'V' => {
            println!("tahti {}, PVAccess version {}", env!("CARGO_PKG_VERSION"), pva::wire::VERSION);
            return Err(End::Printed);
        }
        'r' => options.request = Request::parse(value).map_err(|invalid| End::Wrong(invalid.to_string()))?,
        'w' => match value.trim().parse::<f64>() {
            Ok(seconds) if seconds >= 0.0 => options.timeout_secs = seconds,
            _ => return Err(End::Wrong(format!("'{value}' is not a valid timeout value."))),
        },
        'p' if value != "pva" => {
            return Err(End::Wrong(format!(
                "'{value}' is not a provider of this tool, expected pva; see tahti caget for ca."
            )));
        }
        'M' => {
            options.mode = match value {
                "raw" => Mode::Raw,
                "nt" => Mode::Plain,
                "json" => Mode::Json,
                _ => return Err(End::Wrong(format!("'{value}' is not an output mode, expected raw, nt or json."))),
            }
        }
        'v' => options.mode = if matches!(options.mode, Mode::Raw | Mode::Whole) { Mode::Whole } else { Mode::Raw },
        'q' => options.quiet = true,
        'i' if tool.name == "pvlist" => options.info = true,
        's' if tool.name == "pvcall" => options.words.insert(0, value.to_owned()),
        'a' if tool.name == "pvcall" => options.words.push(value.to_owned()),
        'f' => return Err(End::Wrong("Unsupported option: '-f'.".into())),
        // Accepted and ignored, as by EPICS' tools.
        _ => {}
    }
    Ok(())
}

/// A time that is never reached.
pub(super) const FOREVER: MonoNs = MonoNs(u64::MAX >> 1);

impl Options {
    /// The deadline of a request.
    pub(super) fn until(&self) -> MonoNs {
        Session::now() + DurNs((self.timeout_secs.clamp(0.0, 1e9) * 1e9) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: Tool = Tool {
        name: "pvget",
        letters: "hVr:w:p:M:vqdtinF:f:",
        anywhere: true,
        needs_name: true,
        timeout_secs: 5.0,
        usage: "",
    };

    fn of(line: &str) -> Result<Options, ExitCode> {
        parse(&TOOL, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_may_be_clustered_and_follow_names() {
        let options = of("-qw 2 a -r value,alarm b -M json").unwrap();
        assert_eq!((options.quiet, options.timeout_secs, options.mode), (true, 2.0, Mode::Json));
        assert_eq!(
            (options.words, options.request.fields),
            (vec!["a".into(), "b".into()], vec!["value".into(), "alarm".into()])
        );
        assert_eq!((of("-v a").unwrap().mode, of("-vv a").unwrap().mode), (Mode::Raw, Mode::Whole));
    }

    #[test]
    fn wrong_options_end_the_tool() {
        for line in ["-x a", "-w", "-w soon a", "-M xml a", "-p ca a", "-f file a", "-r field( a", "-q"] {
            assert!(of(line).is_err(), "{line}");
        }
    }
}
