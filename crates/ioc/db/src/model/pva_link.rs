//! Links over PVAccess: `{pva:"NAME"}` and `{pva:{pv:"NAME", …}}`.

use crate::model::json_link::BadJsonLink;
use crate::model::link::{CP, CPP, LinkField, MS, MSI};
use base::json::Json;

/// Processing of the target of an output link, or of the holder of an input link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PvaProcess {
    /// Output: the server decides. Input: none.
    #[default]
    Default,
    /// Output: the target is not processed.
    Never,
    /// Output: the target is processed.
    Always,
    /// Input: each update processes the holder.
    Change,
    /// Input: each update processes the holder if it is passive.
    ChangeIfPassive,
}

/// A link over PVAccess, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvaLink {
    /// Name of the channel (`pv`).
    pub pv: String,
    /// Path of the field; the whole structure if empty (`field`).
    pub field: String,
    /// Number of updates that may wait at the server (`Q`).
    pub queue: u32,
    /// Whether the server waits for acknowledgements (`pipeline`).
    pub pipeline: bool,
    /// Processing (`proc`).
    pub process: PvaProcess,
    /// Propagation of severity: `NMS`, `MS` or `MSI` (`sevr`).
    pub severity: &'static str,
    /// The source's time stamp becomes the holder's (`time`).
    pub time: bool,
    /// Order in which holders are processed after an update (`monorder`).
    pub order: i16,
    /// A write waits for a write of another link to the same channel (`defer`).
    pub defer: bool,
    /// A write without connection waits for it (`retry`).
    pub retry: bool,
    /// The channel must be a record of this IOC (`local`).
    pub local: bool,
    /// The holders of all such links to a channel are processed together (`atomic`).
    pub atomic: bool,
}

/// All options, for corrections of mistyped ones.
const OPTIONS: [&str; 13] =
    ["pv", "field", "Q", "pipeline", "proc", "sevr", "time", "monorder", "defer", "retry", "local", "atomic", "always"];

impl PvaLink {
    /// Reads the value of the key `pva`. Also returns complaints about options that are ignored, as in C.
    pub(crate) fn from_json(json: &Json, field: LinkField) -> Result<(Self, Vec<String>), BadJsonLink> {
        let mut link = Self {
            pv: String::new(),
            field: String::new(),
            queue: 4,
            pipeline: false,
            process: PvaProcess::Default,
            severity: "NMS",
            time: false,
            order: 0,
            defer: false,
            retry: false,
            local: false,
            atomic: false,
        };
        let mut complaints = Vec::new();
        match json {
            Json::Text(name) => link.pv.clone_from(name),
            Json::Map(entries) => {
                for (key, value) in entries {
                    complaints.extend(link.set(key, value));
                }
            }
            _ => return Err(BadJsonLink::Pva),
        }
        if link.pv.is_empty() {
            return Err(BadJsonLink::NoPv);
        }
        // Input links monitor, output links write; the options of the other direction have no effect.
        if field != LinkField::In && matches!(link.process, PvaProcess::Change | PvaProcess::ChangeIfPassive) {
            link.process = PvaProcess::Always;
        }
        Ok((link, complaints))
    }

    /// Sets an option. Returns a complaint if it is ignored.
    fn set(&mut self, key: &str, value: &Json) -> Option<String> {
        let flag = match value {
            Json::Bool(on) => Some(*on),
            Json::Null => Some(false),
            _ => None,
        };
        let text = if let Json::Text(text) = value { Some(text.as_str()) } else { None };
        let expected = match key {
            "pv" | "field" => {
                let place = if key == "pv" { &mut self.pv } else { &mut self.field };
                let Some(text) = text else { return Some(ignored(key, "a text")) };
                text.clone_into(place);
                return None;
            }
            "Q" | "monorder" => {
                let Json::Int(number) = value else { return Some(ignored(key, "a number")) };
                if key == "Q" {
                    self.queue = (*number).clamp(1, 1 << 16) as u32;
                } else {
                    self.order = (*number).clamp(-1024, 1024) as i16;
                }
                return None;
            }
            "proc" => {
                self.process = match (value, text) {
                    (Json::Null, _) | (_, Some("")) => PvaProcess::Default,
                    (Json::Bool(true), _) | (_, Some("PP")) => PvaProcess::Always,
                    (Json::Bool(false), _) | (_, Some("NPP")) => PvaProcess::Never,
                    (_, Some("CP")) => PvaProcess::Change,
                    (_, Some("CPP")) => PvaProcess::ChangeIfPassive,
                    _ => return Some(ignored(key, "true, false, null, \"PP\", \"NPP\", \"CP\" or \"CPP\"")),
                };
                return None;
            }
            "sevr" => {
                self.severity = match (flag, text) {
                    (Some(false), _) | (_, Some("NMS")) => "NMS",
                    // As in C, where status and message of the source are not propagated.
                    (Some(true), _) | (_, Some("MS" | "MSS")) => "MS",
                    (_, Some("MSI")) => "MSI",
                    _ => return Some(ignored(key, "true, false, \"NMS\", \"MS\", \"MSI\" or \"MSS\"")),
                };
                return None;
            }
            "pipeline" => &mut self.pipeline,
            "time" => &mut self.time,
            "defer" => &mut self.defer,
            "retry" => &mut self.retry,
            "local" => &mut self.local,
            "atomic" => &mut self.atomic,
            "always" => return None,
            other => {
                let hint = base::nearest(other, OPTIONS).map_or(String::new(), |it| format!("; nearest is \"{it}\""));
                return Some(format!("pva: unknown option \"{other}\" is ignored{hint}"));
            }
        };
        match flag {
            Some(on) => *expected = on,
            None => return Some(ignored(key, "true or false")),
        }
        None
    }

    /// The link's modifiers in a field of a kind.
    pub(crate) fn flags(&self, field: LinkField) -> u8 {
        if field != LinkField::In {
            return 0;
        }
        let process = match self.process {
            PvaProcess::Change => CP,
            PvaProcess::ChangeIfPassive => CPP,
            _ => 0,
        };
        process
            | match self.severity {
                "MS" => MS,
                "MSI" => MSI,
                _ => 0,
            }
    }

    /// The options as C's reports print them; all with `details`.
    #[must_use]
    pub fn options(&self, details: bool) -> String {
        let process = match self.process {
            PvaProcess::Default => "Def",
            PvaProcess::Never => "NPP",
            PvaProcess::Always => "PP",
            PvaProcess::Change => "CP",
            PvaProcess::ChangeIfPassive => "CPP",
        };
        let letter = |on: bool| if on { 'T' } else { 'F' };
        let mut text = format!(" {process} {}", self.severity);
        if details {
            text.push_str(&format!(
                " Q={} pipe={} defer={} time={} retry={} atomic={} morder={}",
                self.queue,
                letter(self.pipeline),
                letter(self.defer),
                letter(self.time),
                letter(self.retry),
                letter(self.atomic),
                self.order
            ));
        }
        text
    }
}

fn ignored(key: &str, expected: &str) -> String {
    format!("pva: the value of \"{key}\" is ignored, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, field: LinkField) -> Result<(PvaLink, Vec<String>), BadJsonLink> {
        PvaLink::from_json(&base::json::parse(text).unwrap(), field)
    }

    #[test]
    fn a_name_alone_has_the_default_options() {
        let (short, complaints) = read("\"a:b\"", LinkField::In).unwrap();
        assert_eq!((short.pv.as_str(), short.queue, &complaints), ("a:b", 4, &vec![]));
        let long = r#"{pv:"a:b", field:"", local:false, Q:4, pipeline:false, proc:null, sevr:false, time:false,
            monorder:0, retry:false, always:false, defer:false, atomic:false}"#;
        assert_eq!(read(long, LinkField::In).unwrap(), (short, vec![]));
    }

    #[test]
    fn all_options_are_read() {
        let text = r#"{pv:"a", field:"b.c", Q:0, pipeline:true, proc:"CP", sevr:"MSI", time:true, monorder:5000,
            defer:true, retry:true, local:true, atomic:true}"#;
        let (link, complaints) = read(text, LinkField::In).unwrap();
        assert_eq!((link.field.as_str(), link.queue, link.order, complaints), ("b.c", 1, 1024, vec![]));
        assert_eq!(link.options(true), " CP MSI Q=1 pipe=T defer=T time=T retry=T atomic=T morder=1024");
        assert_eq!((link.flags(LinkField::In), link.flags(LinkField::Out)), (CP | MSI, 0));
        for (value, process) in
            [("true", PvaProcess::Always), ("false", PvaProcess::Never), ("\"CPP\"", PvaProcess::ChangeIfPassive)]
        {
            assert_eq!(read(&format!("{{pv:\"a\", proc:{value}}}"), LinkField::In).unwrap().0.process, process);
        }
        assert_eq!(read("{pv:\"a\", sevr:\"MSS\"}", LinkField::In).unwrap().0.severity, "MS", "as in C");
    }

    #[test]
    fn ignored_options_are_reported_and_a_missing_name_is_an_error() {
        for (text, part) in [
            ("{pv:\"a\", pipelin:true}", "nearest is \"pipeline\""),
            ("{pv:\"a\", proc:\"XX\"}", "\"proc\" is ignored"),
            ("{pv:\"a\", time:1}", "expected true or false"),
            ("{pv:\"a\", Q:\"4\"}", "expected a number"),
        ] {
            let complaints = read(text, LinkField::In).unwrap().1;
            assert!(complaints.len() == 1 && complaints[0].contains(part), "{complaints:?}");
        }
        for text in ["1", "{}", "{field:\"value\"}", "\"\""] {
            assert!(read(text, LinkField::In).is_err(), "{text}");
        }
    }
}
