//! Computing JSON links: `{calc:…}`, `{state:…}`, and `{debug:…}` or `{trace:…}` around them.

use crate::calc::{self, CalcError, INPUTS, Program};
use crate::model::constant::json_const;
use crate::model::link::LinkField;
use base::Str40;
use base::json::Json;

/// A computing JSON link.
#[derive(Clone, Debug)]
pub(crate) enum JsonLink {
    Calc(Box<Calc>),
    /// A state of dbStateCreate; `!` inverts it.
    State {
        name: String,
        invert: bool,
        /// Value read or written last, for reports.
        value: bool,
    },
    /// Reports each value read or written in a notice.
    Trace(Box<Self>),
}

/// `{calc:{expr:…}}`
#[derive(Clone, Debug)]
pub(crate) struct Calc {
    pub(crate) expr: Option<Program>,
    pub(crate) major: Option<Program>,
    pub(crate) minor: Option<Program>,
    pub(crate) args: [f64; INPUTS],
    pub(crate) count: usize,
    /// Links of the arguments that are not constants, with their argument index.
    pub(crate) inputs: Vec<(usize, JsonLink)>,
    pub(crate) out: Option<JsonLink>,
    /// Digits after the point, reported to the record.
    pub(crate) precision: i16,
    pub(crate) units: Str40,
    /// The argument that provides the record's time stamp (TSE −2).
    pub(crate) time: Option<usize>,
    pub(crate) value: f64,
    /// Alarm raised last: 0 none, 1 minor, 2 major.
    pub(crate) severity: u16,
}

/// The names of JSON links.
const KINDS: [&str; 6] = ["const", "calc", "pva", "state", "debug", "trace"];

/// The reason why JSON is no link.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadJsonLink {
    #[error("expected one of {}", KINDS.join(", "))]
    NoMap,
    #[error("a JSON link has {0} keys, expected one of {kinds}", kinds = KINDS.join(", "))]
    Keys(usize),
    #[error("no JSON link is called \"{0}\"{hint}", hint = hint(.0))]
    Kind(String),
    #[error("const is for input links only")]
    ConstOut,
    #[error("const expects numbers, texts, or a list of one of them")]
    Const,
    #[error("const: numbers and texts in one list")]
    MixedConst,
    #[error("{0} cannot be a forward link")]
    Forward(String),
    #[error("state expects the name of a state in quotes")]
    State,
    #[error("pva cannot be inside of another JSON link")]
    InnerPva,
    #[error("pva expects the name of a channel, or a map with pv")]
    Pva,
    #[error("pva: the name of the channel (\"pv\") is missing")]
    NoPv,
    #[error("calc expects a map with expr")]
    Calc,
    #[error("calc: key \"{0}\" is set twice")]
    Twice(String),
    #[error("calc: time expects an argument, A to U")]
    Time,
    #[error("calc: {0} arguments, expected at most {INPUTS}")]
    Arguments(usize),
    #[error("calc: an argument is a number or a JSON link")]
    Argument,
    #[error("calc: \"{0}\" has a value of another kind than expected")]
    Value(String),
    #[error("calc: unknown key \"{0}\", expected expr, args, prec, units, time, major, minor, out")]
    Key(String),
    #[error("calc: no expression (\"expr\")")]
    NoExpression,
    #[error("calc: no output link (\"out\")")]
    NoOutput,
    #[error("calc: {error} in expression \"{text}\"")]
    Expression { error: CalcError, text: String },
}

/// The most similar name of a JSON link.
fn hint(name: &str) -> String {
    base::nearest(name, KINDS).map_or(String::new(), |known| format!("; nearest is \"{known}\""))
}

/// Parses a JSON link; `None` for a constant.
pub(crate) fn from_json(json: &Json, field: LinkField) -> Result<Option<JsonLink>, BadJsonLink> {
    let Json::Map(entries) = json else { return Err(BadJsonLink::NoMap) };
    let [(kind, value)] = &entries[..] else { return Err(BadJsonLink::Keys(entries.len())) };
    match kind.as_str() {
        "const" if field != LinkField::In => Err(BadJsonLink::ConstOut),
        "const" => {
            check_const(value)?;
            Ok(None)
        }
        "calc" | "state" if field == LinkField::Forward => Err(BadJsonLink::Forward(kind.clone())),
        "calc" => Calc::from_json(value, field).map(|calc| Some(JsonLink::Calc(Box::new(calc)))),
        "state" => {
            let Json::Text(name) = value else { return Err(BadJsonLink::State) };
            let bare = name.strip_prefix('!').filter(|bare| !bare.is_empty());
            Ok(Some(JsonLink::State { name: bare.unwrap_or(name).to_owned(), invert: bare.is_some(), value: false }))
        }
        "pva" => Err(BadJsonLink::InnerPva),
        "debug" | "trace" => Ok(from_json(value, field)?.map(|inner| JsonLink::Trace(Box::new(inner)))),
        other => Err(BadJsonLink::Kind(other.to_owned())),
    }
}

/// Checks that a constant is a value, or a list of values of one kind.
fn check_const(value: &Json) -> Result<(), BadJsonLink> {
    let class = |item: &Json| match item {
        Json::Bool(_) | Json::Int(_) | Json::Real(_) => Ok(0),
        Json::Text(_) => Ok(1),
        Json::Null | Json::List(_) | Json::Map(_) => Err(BadJsonLink::Const),
    };
    let Json::List(items) = value else { return class(value).map(drop) };
    let mut classes = items.iter().map(class);
    let Some(first) = classes.next() else { return Ok(()) };
    let first: i32 = first?;
    for other in classes {
        let other: i32 = other?;
        if other != first {
            return Err(BadJsonLink::MixedConst);
        }
    }
    Ok(())
}

impl Calc {
    fn from_json(json: &Json, field: LinkField) -> Result<Self, BadJsonLink> {
        let Json::Map(entries) = json else { return Err(BadJsonLink::Calc) };
        let mut calc = Self {
            expr: None,
            major: None,
            minor: None,
            args: [0.0; INPUTS],
            count: 0,
            inputs: Vec::new(),
            out: None,
            precision: 15,
            units: Str40::EMPTY,
            time: None,
            value: 0.0,
            severity: 0,
        };
        for (at, (key, value)) in entries.iter().enumerate() {
            if entries[..at].iter().any(|(earlier, _)| earlier == key) {
                return Err(BadJsonLink::Twice(key.clone()));
            }
            match (key.as_str(), value) {
                ("expr", Json::Text(text)) => calc.expr = Some(program(text)?),
                ("major", Json::Text(text)) => calc.major = Some(program(text)?),
                ("minor", Json::Text(text)) => calc.minor = Some(program(text)?),
                ("units", Json::Text(text)) => calc.units = Str40::from(text.as_str()),
                ("prec", Json::Int(digits)) => calc.precision = *digits as i16,
                ("time", Json::Text(name)) => {
                    let letter = name.as_bytes().first().map(u8::to_ascii_uppercase).filter(|_| name.len() == 1);
                    let index = letter.filter(u8::is_ascii_uppercase).map(|letter| usize::from(letter - b'A'));
                    calc.time = Some(index.filter(|index| *index < INPUTS).ok_or(BadJsonLink::Time)?);
                }
                ("args", Json::List(items)) if items.len() > INPUTS => {
                    return Err(BadJsonLink::Arguments(items.len()));
                }
                ("args", Json::List(items)) => {
                    for (at, item) in items.iter().enumerate() {
                        calc.argument(at, item)?;
                    }
                }
                ("args", item) => calc.argument(0, item)?,
                ("out", link) if field == LinkField::Out => {
                    calc.out = from_json(link, LinkField::Out)?;
                }
                ("expr" | "major" | "minor" | "units" | "prec" | "time", _) => {
                    return Err(BadJsonLink::Value(key.clone()));
                }
                _ => return Err(BadJsonLink::Key(key.clone())),
            }
        }
        match field {
            LinkField::In if calc.expr.is_none() => Err(BadJsonLink::NoExpression),
            LinkField::Out if calc.out.is_none() => Err(BadJsonLink::NoOutput),
            _ => Ok(calc),
        }
    }

    fn argument(&mut self, at: usize, item: &Json) -> Result<(), BadJsonLink> {
        self.count = at + 1;
        match item {
            Json::Int(value) => self.args[at] = *value as f64,
            Json::Real(value) => self.args[at] = *value,
            Json::Map(_) => match from_json(item, LinkField::In)? {
                Some(link) => self.inputs.push((at, link)),
                None => {
                    let text = match json_const(item) {
                        Some(Json::List(items)) => items.first(),
                        other => other,
                    };
                    self.args[at] = match text {
                        Some(Json::Int(value)) => *value as f64,
                        Some(Json::Real(value)) => *value,
                        Some(Json::Bool(on)) => f64::from(u8::from(*on)),
                        Some(Json::Text(text)) => crate::text::conv::prefix(text, 10).unwrap_or(0.0),
                        _ => 0.0,
                    };
                }
            },
            _ => return Err(BadJsonLink::Argument),
        }
        Ok(())
    }
}

fn program(text: &str) -> Result<Program, BadJsonLink> {
    calc::compile(text.as_bytes()).map_err(|error| BadJsonLink::Expression { error, text: text.to_owned() })
}

impl JsonLink {
    /// The calc link that provides a record's units and precision.
    pub(crate) fn calc(&self) -> Option<&Calc> {
        match self {
            Self::Calc(calc) => Some(calc),
            Self::Trace(inner) => inner.calc(),
            Self::State { .. } => None,
        }
    }

    /// Calls `make` for each state that must exist.
    pub(crate) fn names(&self, make: &mut impl FnMut(&str)) {
        match self {
            Self::State { name, .. } => make(name),
            Self::Trace(inner) => inner.names(make),
            Self::Calc(calc) => {
                calc.inputs.iter().map(|(_, link)| link).chain(&calc.out).for_each(|link| link.names(make));
            }
        }
    }
}

/// All JSON links. Slots of removed links are reused.
#[derive(Default)]
pub(crate) struct JsonLinks {
    links: Vec<Option<JsonLink>>,
    free: Vec<u32>,
}

impl JsonLinks {
    pub(crate) fn get(&self, id: u32) -> Option<&JsonLink> {
        self.links.get(id as usize)?.as_ref()
    }

    /// Adds a link and returns its number.
    pub(crate) fn add(&mut self, link: JsonLink) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.links[id as usize] = Some(link);
                id
            }
            None => {
                self.links.push(Some(link));
                self.links.len() as u32 - 1
            }
        }
    }

    /// Takes a link out while it runs, so that it can read states and raise alarms.
    pub(crate) fn take(&mut self, id: u32) -> Option<JsonLink> {
        self.links.get_mut(id as usize)?.take()
    }

    /// Puts a link back.
    pub(crate) fn put_back(&mut self, id: u32, link: JsonLink) {
        self.links[id as usize] = Some(link);
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.links[id as usize] = None;
        self.free.push(id);
    }
}
