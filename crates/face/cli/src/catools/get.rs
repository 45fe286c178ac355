//! `tahti caget`: reads and prints variables.

use super::format::{details, elements, lead, long_text, stamp, wide};
use super::options::{self, Options, Output};
use super::{Args, Tool};
use ca::client::{Event, IoId, RequestError};
use ca::encode::Reading;
use ca::{Basic, Class, Dbr, Eca};
use std::collections::HashMap;
use std::process::ExitCode;

const CAGET: options::Tool = options::Tool {
    name: "caget",
    letters: "taicnhsSVe:f:g:l:#:d:0:w:p:F:",
    anywhere: true,
    usage: "
Usage: tahti caget [options] <PV name> ...

  -h: Help: Print this message
  -V: Version
Channel Access options:
  -w <sec>:  Wait time, specifies CA timeout, default is 1.0 second(s)
  -c: Asynchronous get (as many elements as there are)
  -p <prio>: CA priority (0-99, default 0=lowest)
Format options:
      Default output format is \"name value\"
  -t: Terse mode - print only value, without name
  -a: Wide mode \"name timestamp value stat sevr\" (read PVs as DBR_TIME_xxx)
  -d <type>: Request specific dbr type; use string (DBR_ prefix may be omitted)
      or number of one of the following types:
 DBR_STRING     0  DBR_STS_FLOAT    9  DBR_TIME_LONG   19  DBR_CTRL_SHORT    29
 DBR_INT        1  DBR_STS_ENUM    10  DBR_TIME_DOUBLE 20  DBR_CTRL_INT      29
 DBR_SHORT      1  DBR_STS_CHAR    11  DBR_GR_STRING   21  DBR_CTRL_FLOAT    30
 DBR_FLOAT      2  DBR_STS_LONG    12  DBR_GR_SHORT    22  DBR_CTRL_ENUM     31
 DBR_ENUM       3  DBR_STS_DOUBLE  13  DBR_GR_INT      22  DBR_CTRL_CHAR     32
 DBR_CHAR       4  DBR_TIME_STRING 14  DBR_GR_FLOAT    23  DBR_CTRL_LONG     33
 DBR_LONG       5  DBR_TIME_INT    15  DBR_GR_ENUM     24  DBR_CTRL_DOUBLE   34
 DBR_DOUBLE     6  DBR_TIME_SHORT  15  DBR_GR_CHAR     25  DBR_STSACK_STRING 37
 DBR_STS_STRING 7  DBR_TIME_FLOAT  16  DBR_GR_LONG     26  DBR_CLASS_NAME    38
 DBR_STS_SHORT  8  DBR_TIME_ENUM   17  DBR_GR_DOUBLE   27
 DBR_STS_INT    8  DBR_TIME_CHAR   18  DBR_CTRL_STRING 28
  -n: Print DBF_ENUM value as number (default is enum string)
  -# <count>: Print first <count> elements of an array
  -S: Print array of char as a string (long string)
  -e <nr>, -f <nr>, -g <nr>: Use %e, %f, %g format, with a precision of <nr> digits
  -s: Get value as string (honors server-side precision)
  -lx, -lo, -lb: Round to long integer and print as hex, octal, binary number
  -0x, -0o, -0b: Print integers as hex, octal, binary number
  -F <ofs>: Use <ofs> as an alternate output field separator
",
};

/// Result of one read: the type with the reading, or the Channel Access status.
pub(super) type Answer = Result<(Dbr, Reading), Eca>;

pub(crate) fn run(args: Args) -> ExitCode {
    let options = match options::parse(&CAGET, &args.words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut tool = match Tool::open(&options.words, &options) {
        Ok(tool) => tool,
        Err(code) => return code,
    };
    if !tool.connect(&options) {
        return ExitCode::FAILURE;
    }
    let answers = tool.read_all(&options, options.callback);
    for (pv, answer) in tool.pvs.iter().zip(answers) {
        let native = tool.session.client.info(pv.id).map_or(Basic::Double, |info| info.native);
        print(&options, &pv.name, native, answer);
    }
    ExitCode::SUCCESS
}

impl Tool {
    /// Reads every variable once. `None` means that the variable did not answer before the timeout.
    pub(super) fn read_all(&mut self, options: &Options, dynamic: bool) -> Vec<Option<Answer>> {
        let mut answers: Vec<Option<Answer>> = Vec::new();
        let mut waiting: HashMap<IoId, usize> = HashMap::new();
        for (index, pv) in self.pvs.iter().enumerate() {
            let Some(info) = self.session.client.info(pv.id) else {
                answers.push(Some(Err(Eca::DISCONN)));
                continue;
            };
            let dbr = match options.output {
                Output::Type(dbr) => dbr,
                _ => options.type_for(&info),
            };
            let wanted = if options.count > 0 {
                options.count.min(info.count)
            } else if dynamic {
                0
            } else {
                info.count
            };
            match self.session.client.read(pv.id, dbr, wanted) {
                Ok(io) => {
                    waiting.insert(io, index);
                    answers.push(None);
                }
                Err(RequestError::NoAccess) => answers.push(Some(Err(Eca::NORDACCESS))),
                Err(_) => answers.push(Some(Err(Eca::DISCONN))),
            }
        }
        let until = options.until();
        while !waiting.is_empty() {
            match self.step(until) {
                Ok(Some(Event::Read { io, result, .. })) => {
                    if let Some(index) = waiting.remove(&io) {
                        answers[index] = Some(result);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => {
                    eprintln!("Read operation timed out: some PV data was not read.");
                    break;
                }
            }
        }
        answers
    }
}

/// Prints one reading, or the reason why there is none.
pub(super) fn print(options: &Options, name: &str, native: Basic, answer: Option<Answer>) {
    let trouble = match &answer {
        None => Some("*** no data available (timeout)".to_owned()),
        Some(Err(Eca::DISCONN)) => Some("*** not connected".to_owned()),
        Some(Err(Eca::NORDACCESS)) => Some("*** no read access".to_owned()),
        Some(Err(status)) => Some(format!("*** CA error {status}")),
        Some(Ok(_)) => None,
    };
    let Some(Ok((dbr, reading))) = answer else {
        let trouble = trouble.unwrap_or_default();
        return match options.output {
            Output::Terse => println!("{trouble}"),
            Output::Type(_) => println!("{name}\n    {trouble}"),
            Output::Wide => println!("{}{} {trouble}", lead(options, name, 1), stamp(iocd::engine::wall())),
            Output::Plain => println!("{}{trouble}", lead(options, name, 1)),
        };
    };
    let text = || long_text(options, &reading, options.count > 0).unwrap_or_else(|| elements(options, dbr, &reading));
    match options.output {
        Output::Plain | Output::Terse => {
            let mut line =
                if options.output == Output::Plain { lead(options, name, reading.value.len()) } else { String::new() };
            let several = options.count > 0 || reading.value.len() > 1;
            if several && long_text(options, &reading, options.count > 0).is_none() {
                line.push_str(&format!("{}{}", reading.value.len(), options.separator));
            }
            println!("{line}{}", text());
        }
        Output::Wide => println!("{}", wide(options, name, &stamp(reading.stamp), dbr, &reading)),
        Output::Type(_) => {
            println!("{name}\n    Native data type: {}\n    Request type:     {}", field_type(native), dbr.name());
            if dbr == Dbr::CLASS_NAME {
                println!("    Class Name:       {}", reading.record_type);
                return;
            }
            println!("    Element count:    {}\n    Value:            {}", reading.value.len(), text());
            if !matches!(dbr.parts(), Some((Class::Plain, _))) {
                println!("{}", details(dbr, &reading));
            }
        }
    }
}

/// Name of a field type in the EPICS headers.
pub(super) const fn field_type(basic: Basic) -> &'static str {
    match basic {
        Basic::String => "DBF_STRING",
        Basic::Short => "DBF_SHORT",
        Basic::Float => "DBF_FLOAT",
        Basic::Enum => "DBF_ENUM",
        Basic::Char => "DBF_CHAR",
        Basic::Long => "DBF_LONG",
        Basic::Double => "DBF_DOUBLE",
    }
}
