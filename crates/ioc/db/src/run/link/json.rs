//! Reading and writing through JSON links.

use crate::model::id::RecId;
use crate::model::json_link::{Calc, JsonLink};
use crate::model::link::ResolvedLink;
use crate::rec::message::Message;
use crate::run::engine::Db;
use crate::run::link::LinkError;
use crate::text::conv;
use base::{Scalar, Stamp, Status};

impl Db {
    /// Adds a JSON link and returns its number.
    pub(crate) fn add_json(&mut self, link: JsonLink) -> u32 {
        link.names(&mut |name| {
            if !self.states.contains_key(name) {
                self.states.insert(name.to_owned(), false);
            }
        });
        self.links.json.add(link)
    }

    /// Reads a JSON link.
    pub(crate) fn json_get(&mut self, rec: RecId, link: ResolvedLink) -> Result<Scalar, LinkError> {
        let Some(mut json) = self.links.json.take(link.target) else { return Err(LinkError) };
        let value = self.json_read(rec, &mut json);
        self.links.json.put_back(link.target, json);
        value
    }

    /// Writes a JSON link.
    pub(crate) fn json_put(&mut self, rec: RecId, link: ResolvedLink, value: Scalar) -> Result<(), LinkError> {
        let Some(mut json) = self.links.json.take(link.target) else { return Err(LinkError) };
        let done = self.json_write(rec, &mut json, value);
        self.links.json.put_back(link.target, json);
        done
    }

    fn json_read(&mut self, rec: RecId, link: &mut JsonLink) -> Result<Scalar, LinkError> {
        match link {
            JsonLink::State { name, invert, value } => {
                let on = self.states.get(name.as_str()).copied().unwrap_or(false);
                *value = on != *invert;
                Ok(Scalar::I16(i16::from(*value)))
            }
            JsonLink::Trace(inner) => {
                let value = self.json_read(rec, inner);
                self.notice(format!("{}: JSON link read {value:?}", self.records.name(rec)));
                value
            }
            JsonLink::Calc(calc) => {
                self.json_arguments(rec, calc);
                if let Some(expr) = &calc.expr {
                    expr.run(&mut calc.args, &mut calc.value, &mut self.seed).map_err(|()| LinkError)?;
                }
                self.json_alarms(rec, calc)?;
                Ok(Scalar::F64(calc.value))
            }
        }
    }

    fn json_write(&mut self, rec: RecId, link: &mut JsonLink, value: Scalar) -> Result<(), LinkError> {
        match link {
            JsonLink::State { name, invert, value: last } => {
                let on = match value {
                    // Only these two texts are false.
                    Scalar::String(text) => !matches!(text.bytes(), b"" | b"0"),
                    number => conv::number::<f64>(number).ok_or(LinkError)? != 0.0,
                };
                *last = on;
                if self.states.contains_key(name.as_str()) {
                    self.set_state(name, on != *invert);
                }
                Ok(())
            }
            JsonLink::Trace(inner) => {
                self.notice(format!("{}: JSON link writes {value:?}", self.records.name(rec)));
                self.json_write(rec, inner, value)
            }
            JsonLink::Calc(calc) => {
                self.json_arguments(rec, calc);
                calc.value = conv::number(value).ok_or(LinkError)?;
                if let Some(expr) = &calc.expr {
                    expr.run(&mut calc.args, &mut calc.value, &mut self.seed).map_err(|()| LinkError)?;
                }
                self.json_alarms(rec, calc)?;
                let value = Scalar::F64(calc.value);
                match &mut calc.out {
                    Some(out) => self.json_write(rec, out, value),
                    None => Ok(()),
                }
            }
        }
    }

    /// Reads the arguments that come from links.
    fn json_arguments(&mut self, rec: RecId, calc: &mut Calc) {
        for (at, link) in &mut calc.inputs {
            match self.json_read(rec, link) {
                Ok(value) => calc.args[*at] = conv::number(value).unwrap_or(calc.args[*at]),
                Err(LinkError) => {
                    self.records[rec].raise(Status::Link, 3);
                }
            }
        }
        let common = &mut self.records[rec];
        if calc.time.is_some_and(|index| index < calc.count) && common.rare.tsel.is_constant() && common.tse == -2 {
            // No link type of base provides a time stamp for an argument, so the record in C gets none either.
            (common.time, common.utag) = (Stamp::EPOCH, 0);
        }
    }

    fn json_alarms(&mut self, rec: RecId, calc: &mut Calc) -> Result<(), LinkError> {
        calc.severity = 0;
        for (test, severity, message) in [(&calc.major, 2, Message::MAJOR), (&calc.minor, 1, Message::MINOR)] {
            let Some(test) = test else { continue };
            let mut on = calc.value;
            test.run(&mut calc.args, &mut on, &mut self.seed).map_err(|()| LinkError)?;
            if on != 0.0 {
                calc.severity = severity;
                self.records[rec].raise_with(Status::Link, severity, message);
                break;
            }
        }
        Ok(())
    }
}
