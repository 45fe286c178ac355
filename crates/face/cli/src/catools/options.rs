//! Command-line options of EPICS' Channel Access tools.

use super::format::{Integers, Reals};
use crate::getopt::{self, End, Part};
use base::text::leading_int;
use base::{DurNs, MonoNs};
use ca::client::ChannelInfo;
use ca::{Basic, Class, Dbr};
use canet::session::Session;
use std::process::ExitCode;

/// Output format of caget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Plain,
    Terse,
    Wide,
    Type(Dbr),
}

/// Time format of camonitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Absolute,
    Relative,
    Incremental,
    ByChannel,
}

/// The options of all tools.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) timeout_secs: f64,
    pub(super) priority: u16,
    pub(super) output: Output,
    pub(super) callback: bool,
    pub(super) count: u32,
    pub(super) separator: char,
    pub(super) enums_as_numbers: bool,
    pub(super) enums_as_text: bool,
    pub(super) chars_as_text: bool,
    pub(super) reals_as_text: bool,
    pub(super) array: bool,
    pub(super) reals: Reals,
    pub(super) rounded: Option<Integers>,
    pub(super) integers: Integers,
    pub(super) mask: u8,
    pub(super) times: Times,
    pub(super) server_time: bool,
    pub(super) client_time: bool,
    /// Remaining arguments: names and values.
    pub(super) words: Vec<String>,
}

/// Name, usage and options of a tool. In `letters`, a colon follows each option that takes a value.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) letters: &'static str,
    /// Whether options may follow names. False for caput, where a value may be a negative number.
    pub(super) anywhere: bool,
    pub(super) usage: &'static str,
}

/// Parses the command line. Prints help and errors itself; `Err` is then the exit code.
pub(super) fn parse(tool: &Tool, words: &[String]) -> Result<Options, ExitCode> {
    let timeout = std::env::var("EPICS_CLI_TIMEOUT").ok().and_then(|text| text.trim().parse().ok());
    let mut options = Options {
        timeout_secs: timeout.unwrap_or(1.0),
        priority: 0,
        output: Output::Plain,
        callback: false,
        count: 0,
        separator: ' ',
        enums_as_numbers: false,
        enums_as_text: false,
        chars_as_text: false,
        reals_as_text: false,
        array: false,
        reals: Reals::General(6),
        rounded: None,
        integers: Integers::Decimal,
        mask: 5,
        times: Times::Absolute,
        server_time: true,
        client_time: false,
        words: Vec::new(),
    };
    let taken = getopt::each(tool.letters, tool.anywhere, words, |part| {
        match part {
            Part::Word(word) => options.words.push(word.to_owned()),
            Part::Option('h', _) => {
                eprint!("{}", tool.usage);
                return Err(End::Printed);
            }
            Part::Option('V', _) => {
                println!("\ntahti {}, CA Protocol version 4.13", env!("CARGO_PKG_VERSION"));
                return Err(End::Printed);
            }
            Part::Option(letter, value) => apply(tool, &mut options, letter, value),
        }
        Ok(())
    });
    let taken = match taken {
        Ok(()) if options.words.is_empty() => Err(End::Wrong("No pv name specified.".to_owned())),
        taken => taken,
    };
    taken.map_err(|end| end.report(tool.name)).map(|()| options)
}

fn apply(tool: &Tool, options: &mut Options, letter: char, value: &str) {
    let name = tool.name;
    let ignored = |what: &str| eprintln!("'{value}' is not a valid {what} - ignored. ('{name} -h' for help.)");
    match (letter, name) {
        ('t', "camonitor") => times(options, value),
        ('t', "caput") => options.output = Output::Terse,
        ('t', _) => set_output(options, Output::Terse, name),
        ('a', "caput") => {
            options.array = true;
            options.chars_as_text = false;
        }
        ('a', _) => set_output(options, Output::Wide, name),
        ('l', "caput") => options.output = Output::Wide,
        ('s', "caput") => {
            options.enums_as_text = true;
            options.enums_as_numbers = false;
        }
        ('d', _) => match type_named(value) {
            Some(dbr) => set_output(options, Output::Type(dbr), name),
            None => eprintln!("Requested dbr type out of range or invalid - ignored. ('caget -h' for help.)"),
        },
        ('c', _) => options.callback = true,
        ('n', _) => {
            options.enums_as_numbers = true;
            options.enums_as_text = false;
        }
        ('s', "cainfo") => match value.trim().parse() {
            Ok(0u32) => {}
            Ok(_) => eprintln!("cainfo -s shows the inside of C's client library, which is not here - ignored."),
            Err(_) => ignored("interest level"),
        },
        ('s', _) => options.reals_as_text = true,
        ('S', _) => {
            options.chars_as_text = true;
            options.array = false;
        }
        ('w', _) => match value.trim().parse::<f64>() {
            Ok(seconds) if !seconds.is_nan() => options.timeout_secs = seconds,
            _ => eprintln!(
                "'{value}' is not a valid timeout value - ignored, using '{:.1}'. ('{name} -h' for help.)",
                options.timeout_secs
            ),
        },
        ('#', _) => match leading_int(value) {
            // EPICS converts a negative count to unsigned, which requests all elements.
            Some(count) => options.count = u32::try_from(count).unwrap_or(u32::MAX),
            None => ignored("array element count"),
        },
        ('p', _) => match leading_int(value) {
            Some(level) => options.priority = u16::try_from(level).map_or(99, |level| level.min(99)),
            None => ignored("CA priority"),
        },
        ('F', _) => options.separator = value.chars().next().unwrap_or('\0'),
        ('e' | 'f' | 'g', _) => match leading_int(value) {
            Some(digits @ 0..=18) => {
                let digits = digits as usize;
                options.reals = match letter {
                    'e' => Reals::Exponent(digits),
                    'f' => Reals::Fixed(digits),
                    _ => Reals::General(digits),
                };
            }
            Some(digits) => eprintln!("Precision {digits} for option '-{letter}' out of range - ignored."),
            None => eprintln!("Invalid precision argument '{value}' for option '-{letter}' - ignored."),
        },
        ('l' | '0', _) => match value.chars().next() {
            Some('x') => integers(options, letter, Integers::Hex),
            Some('o') => integers(options, letter, Integers::Octal),
            Some('b') => integers(options, letter, Integers::Binary),
            _ => eprintln!("Invalid argument '{value}' for option '-{letter}' - ignored."),
        },
        ('m', _) => {
            options.mask = value.chars().fold(0, |mask, letter| {
                mask | match letter {
                    'v' => 1,
                    'l' => 2,
                    'a' => 4,
                    'p' => 8,
                    _ => {
                        eprintln!("Invalid argument '{value}' for option '-m' - ignored.");
                        0
                    }
                }
            });
            if options.mask == 0 {
                options.mask = 5;
            }
        }
        _ => {}
    }
}

const fn integers(options: &mut Options, letter: char, format: Integers) {
    if letter == 'l' {
        options.rounded = Some(format);
    } else {
        options.integers = format;
    }
}

fn set_output(options: &mut Options, output: Output, name: &str) {
    if options.output != Output::Plain {
        eprintln!("Options t,d,a are mutually exclusive. ('{name} -h' for help.)");
    }
    options.output = output;
}

fn times(options: &mut Options, value: &str) {
    (options.server_time, options.client_time) = (false, false);
    for letter in value.chars() {
        match letter {
            's' => options.server_time = true,
            'c' => options.client_time = true,
            'n' => {}
            'r' => options.times = Times::Relative,
            'i' => options.times = Times::Incremental,
            'I' => options.times = Times::ByChannel,
            _ => eprintln!("Invalid argument '{letter}' for option '-t' - ignored."),
        }
    }
}

/// A DBR type by number or by name, with or without `DBR_`.
fn type_named(text: &str) -> Option<Dbr> {
    let dbr = if let Some(number) = leading_int(text) {
        Dbr::from_wire(u16::try_from(number).ok()?)
    } else {
        let name = text.trim().strip_prefix("DBR_").unwrap_or(text.trim()).replace("INT", "SHORT");
        (0..=38).filter_map(Dbr::from_wire).find(|dbr| dbr.name().strip_prefix("DBR_") == Some(&name))
    };
    dbr.filter(|dbr| !matches!(*dbr, Dbr::PUT_ACKT | Dbr::PUT_ACKS))
}

/// A deadline that is never reached.
pub(super) const FOREVER: MonoNs = MonoNs(u64::MAX >> 1);

impl Options {
    /// Deadline of the tool. As in the EPICS tools, a timeout of 0 s means no limit; a negative one means no wait.
    pub(super) fn until(&self) -> MonoNs {
        match self.timeout_secs {
            0.0 => FOREVER,
            secs => Session::now() + DurNs((secs.clamp(0.0, 1e9) * 1e9) as i64),
        }
    }

    /// The default type of a request. Arrays of enums are requested as numbers, because the C server refuses to convert
    /// them to strings.
    pub(super) fn type_for(&self, info: &ChannelInfo) -> Dbr {
        let basic = match info.native {
            Basic::Enum if self.enums_as_numbers || info.count > 1 => Basic::Short,
            Basic::Enum => Basic::String,
            Basic::Float | Basic::Double if self.reals_as_text => Basic::String,
            other => other,
        };
        Dbr::new(Class::Time, basic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAGET: Tool = Tool { name: "caget", letters: "taicnhsSVe:f:g:l:#:d:0:w:p:F:", anywhere: true, usage: "" };
    const CAPUT: Tool = Tool { name: "caput", letters: "cw:nslt", anywhere: false, ..CAGET };

    fn read(line: &str) -> Options {
        read_of(&CAGET, line)
    }

    fn read_of(tool: &Tool, line: &str) -> Options {
        parse(tool, &line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn options_may_be_clustered_and_joined_with_their_values() {
        let options = read("-cnw2.5 -f8 -#3 a b");
        assert!(options.callback && options.enums_as_numbers);
        assert_eq!((options.timeout_secs, options.count, options.reals), (2.5, 3, Reals::Fixed(8)));
        assert_eq!(options.words, ["a", "b"]);
    }

    #[test]
    fn options_may_follow_names_except_in_caput_where_values_may_be_negative() {
        let options = read("a -d DBR_CTRL_DOUBLE b -n -- -c");
        assert_eq!((options.output, options.enums_as_numbers), (Output::Type(Dbr::from_wire(34).unwrap()), true));
        assert_eq!((options.words, options.callback), (vec!["a".to_owned(), "b".into(), "-c".into()], false));
        assert_eq!(read_of(&CAPUT, "-c x -5").words, ["x", "-5"]);
    }

    #[test]
    fn caput_uses_the_last_of_contradictory_options() {
        let options = read_of(&CAPUT, "-s -n -l -t x 1");
        assert_eq!((options.enums_as_text, options.enums_as_numbers, options.output), (false, true, Output::Terse));
        let options = read_of(&CAPUT, "-n -s -t -l x 1");
        assert_eq!((options.enums_as_text, options.enums_as_numbers, options.output), (true, false, Output::Wide));
    }

    #[test]
    fn numbers_are_read_as_scanf_reads_them() {
        let options = read("-# 3x -p -1 -e 2nd -f -1 -g ten -w -1 a");
        assert_eq!((options.count, options.priority, options.reals), (3, 99, Reals::Exponent(2)));
        assert!(options.until() <= Session::now(), "a negative time is no wait");
        assert_eq!(read("-w 0 a").until(), FOREVER);
        assert_eq!((read("-#-1 a").count, read("-#x a").count), (u32::MAX, 0));
    }

    #[test]
    fn types_have_numbers_and_names() {
        for (given, number) in [("0", 0), ("DBR_CTRL_DOUBLE", 34), ("TIME_INT", 15), ("38", 38), ("5x", 5)] {
            assert_eq!(type_named(given).map(Dbr::wire), Some(number), "{given}");
        }
        for given in ["35", "PUT_ACKS", "-1", "nothing"] {
            assert_eq!(type_named(given), None, "{given}");
        }
    }
}
