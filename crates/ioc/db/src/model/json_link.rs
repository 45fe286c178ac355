//! Computing JSON links: `{calc:…}`, `{state:…}`, and `{debug:…}` or `{trace:…}` around them.

use crate::calc::{self, INPUTS, Program};
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

/// Parses a JSON link; `None` for a constant.
pub(crate) fn from_json(json: &Json, field: LinkField) -> Result<Option<JsonLink>, String> {
    let Json::Map(entries) = json else { return Err("expected one of const, calc, pva, state, debug, trace".into()) };
    let [(kind, value)] = &entries[..] else {
        return Err(format!(
            "a JSON link has {} keys, expected one of const, calc, pva, state, debug, trace",
            entries.len()
        ));
    };
    match kind.as_str() {
        "const" if field != LinkField::In => Err("const is for input links only".into()),
        "const" => {
            check_const(value)?;
            Ok(None)
        }
        "calc" | "state" if field == LinkField::Forward => Err(format!("{kind} cannot be a forward link")),
        "calc" => Calc::from_json(value, field).map(|calc| Some(JsonLink::Calc(Box::new(calc)))),
        "state" => {
            let Json::Text(name) = value else { return Err("state expects the name of a state in quotes".into()) };
            let bare = name.strip_prefix('!').filter(|bare| !bare.is_empty());
            Ok(Some(JsonLink::State { name: bare.unwrap_or(name).to_owned(), invert: bare.is_some(), value: false }))
        }
        "pva" => Err("pva cannot be inside of another JSON link".into()),
        "debug" | "trace" => Ok(from_json(value, field)?.map(|inner| JsonLink::Trace(Box::new(inner)))),
        other => {
            let known = base::nearest(other, ["const", "calc", "pva", "state", "debug", "trace"]);
            let hint = known.map_or(String::new(), |known| format!("; nearest is \"{known}\""));
            Err(format!("no JSON link is called \"{other}\"{hint}"))
        }
    }
}

/// Checks that a constant is a value, or a list of values of one kind.
fn check_const(value: &Json) -> Result<(), String> {
    let class = |item: &Json| match item {
        Json::Bool(_) | Json::Int(_) | Json::Real(_) => Ok(0),
        Json::Text(_) => Ok(1),
        Json::Null | Json::List(_) | Json::Map(_) => {
            Err("const expects numbers, texts, or a list of one of them".into())
        }
    };
    let Json::List(items) = value else { return class(value).map(drop) };
    let mut classes = items.iter().map(class);
    let Some(first) = classes.next() else { return Ok(()) };
    let first: i32 = first?;
    for other in classes {
        let other: i32 = other?;
        if other != first {
            return Err("const: numbers and texts in one list".into());
        }
    }
    Ok(())
}

impl Calc {
    fn from_json(json: &Json, field: LinkField) -> Result<Self, String> {
        let Json::Map(entries) = json else { return Err("calc expects a map with expr".into()) };
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
                return Err(format!("calc: key \"{key}\" is set twice"));
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
                    calc.time =
                        Some(index.filter(|index| *index < INPUTS).ok_or("calc: time expects an argument, A to U")?);
                }
                ("args", Json::List(items)) if items.len() > INPUTS => {
                    return Err(format!("calc: {} arguments, expected at most {INPUTS}", items.len()));
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
                    return Err(format!("calc: \"{key}\" has a value of another kind than expected"));
                }
                _ => {
                    return Err(format!(
                        "calc: unknown key \"{key}\", expected expr, args, prec, units, time, major, minor, out"
                    ));
                }
            }
        }
        match field {
            LinkField::In if calc.expr.is_none() => Err("calc: no expression (\"expr\")".into()),
            LinkField::Out if calc.out.is_none() => Err("calc: no output link (\"out\")".into()),
            _ => Ok(calc),
        }
    }

    fn argument(&mut self, at: usize, item: &Json) -> Result<(), String> {
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
            _ => return Err("calc: an argument is a number or a JSON link".into()),
        }
        Ok(())
    }
}

fn program(text: &str) -> Result<Program, String> {
    calc::compile(text.as_bytes()).map_err(|error| format!("calc: {} in expression \"{text}\"", error.text()))
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
