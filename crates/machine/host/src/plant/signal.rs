//! Reads `[[signal]]`: the archived signals, their sources, and the selection of values.

use super::keys::{Table, key};
use base::DurNs;
use std::collections::HashSet;
use std::ops::Range;
use table::{Diagnostics, Section, clipped, tables};
use toml::de::{DeTable, DeValue};

/// Maximum length of a signal's name in bytes.
const NAME_BYTES_MAX: usize = 1_024;
/// Suffix of the file of a stream.
const STREAM: &str = ".im.shm";
/// Maximum of `every`.
const EVERY_MAX: u64 = 1_000_000_000;

/// `[[signal]]`, for the documentation.
pub const SIGNAL: Table = Table {
    header: "[[signal]]",
    doc: "Signals to archive from one source, with one policy. Servers are found by `EPICS_CA_ADDR_LIST`, for PVAccess by `EPICS_PVA_ADDR_LIST`, and the \
          related variables.",
    keys: &[
        key(
            "names",
            r#"["RF:TEMP", "pva://RF:IMAGE"]"#,
            "list of names",
            "none",
            "Variables of Channel Access servers. With `pva://`, of PVAccess servers: number, text, enumeration or array in the field `value`, stored under \
             the name without `pva://`.",
        ),
        key(
            "variables",
            r#"["llrf/*", "sr-values/sr_now_rf/voltage"]"#,
            "list of `PAGE/NAME`, the name with `*` and `?`",
            "none",
            "Exported variables of processes on this machine: loops, frames, polls. Each written sample is stored with its pulse number.",
        ),
        key(
            "loops",
            r#"["llrf/*", "llrf/poller/p99"]"#,
            "list of `PLANT/PATTERN`, the pattern with `*` and `?`",
            "none",
            "Wake-up latency of a plant's loops, per second: `PROCESS/count`, `p50`, `p99`, `p999`, `max`, `misses`, `histogram`. With a `deadline` \
             also the value of results: `worth`, `late`.",
        ),
        key(
            "frames",
            r#"["llrf/*", "llrf/fast/overruns"]"#,
            "list of `PLANT/PATTERN`, the pattern with `*` and `?`",
            "none",
            "Statistics of a plant's frames, per second: `FRAME/minors`, `lost`, `overruns`, `underruns`, `absences`, start latency of minor frames \
             (`late-p99` and others), the dispatcher's work (`work-…`). Per activity: `FRAME/ACTIVITY/calls`, its faults and its work.",
        ),
        key(
            "messages",
            r#"["main/put/sr_*"]"#,
            "list of `SERVER/VERBS/OBJECTS`, verbs and objects with `*` and `?`",
            "none",
            "Requests that passed a message server, as in its log and in `tahti msg watch`: one text per request.",
        ),
        key(
            "alarms",
            r#"["llrf/*"]"#,
            "list of `NAME/PATTERN`, the pattern with `*` and `?`",
            "none",
            "Alarms of the `[alarms]` table with this name, by path: `PATH/state` with severity and acknowledgement, `PATH/message`, `PATH/value`.",
        ),
        key(
            "streams",
            r#"["/dev/shm/ao_*.im.shm"]"#,
            "list of `FOLDER/NAME.im.shm`, the name with `*` and `?`; all in one folder",
            "none",
            "Images in shared memory in the format of ImageStreamIO 2.00, from any program: `streams/NAME`, one array per image, with its time and \
             frame number. One of `every`, `scan`, `deadband`, `on_fault` is required.",
        ),
        key(
            "deadband",
            "0.1",
            "number that is not negative",
            "0",
            "Store a value if it differs from the last stored one by more than this, or if its alarm changes.",
        ),
        key(
            "scan",
            r#""1s""#,
            "time, 1ms to 24h",
            "every update is stored",
            "Store only the newest value, once per this time. Not together with `deadband`.",
        ),
        key(
            "every",
            "100",
            "number, 1 to 1000000000",
            "every update is stored",
            "Store the first value in each group of this many pulses, so that all signals of a loop have samples of the same pulses. For values \
             without a pulse number, store one of this many. Not together with `scan`, `deadband` or `on_fault`.",
        ),
        key(
            "on_fault",
            r#""5s""#,
            "time, 1ms to 60s",
            "stored all the time",
            "Store nothing until a fault, then every update of this time before it. A fault is the loss of the process or server, or the start of a \
             MAJOR or INVALID alarm, such as an active safe value. Not together with `deadband` or `scan`.",
        ),
    ],
};

/// An archived signal, or a pattern of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Its source.
    pub source: Source,
    /// Its name. For all sources except Channel Access and PVAccess: the server or page to read, a slash, and a pattern.
    pub name: String,
    /// Selection of the archived values.
    pub policy: Policy,
}

impl Signal {
    /// Page and pattern of exported variables.
    #[must_use]
    pub fn variables(&self) -> Option<(&str, &str)> {
        (self.source == Source::Variables).then(|| self.name.split_once('/'))?
    }

    /// Folder of streams, and the pattern of their names, which are the file names without the suffix.
    #[must_use]
    pub fn streams(&self) -> Option<(&str, &str)> {
        (self.source == Source::Streams).then(|| self.name.strip_suffix(STREAM)?.rsplit_once('/'))?
    }

    /// Pattern of the names in the archive; `None` for a Channel Access variable, which keeps its name.
    fn archived_as(&self) -> Option<String> {
        let kind = match self.source {
            Source::ChannelAccess => return None,
            Source::PvAccess | Source::Variables => return Some(self.name.clone()),
            Source::Loops => "loops",
            Source::Frames => "frames",
            Source::Messages => "messages",
            Source::Alarms => "alarms",
            Source::Streams => return self.streams().map(|(_, pattern)| format!("streams/{pattern}")),
        };
        Some(format!("{kind}/{}", self.name))
    }
}

/// Source of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A Channel Access server.
    ChannelAccess,
    /// A PVAccess server.
    PvAccess,
    /// Shared memory of a process on this machine.
    Variables,
    /// Wake-up latency of the loops that a supervisor monitors.
    Loops,
    /// Statistics of frames.
    Frames,
    /// Messages through a message server.
    Messages,
    /// Alarms of an alarm process.
    Alarms,
    /// Images in shared memory.
    Streams,
}

/// A source in `[[signal]]`.
struct Form {
    key: &'static str,
    source: Source,
    /// For error messages: the source that the name does not match, and the expected form. Empty if any name is valid.
    what: &'static str,
    form: &'static str,
    /// Number of parts, separated by slashes; `None` for a file path.
    parts: Option<usize>,
}

const fn form(key: &'static str, source: Source, what: &'static str, form: &'static str, parts: usize) -> Form {
    Form { key, source, what, form, parts: Some(parts) }
}

const FORMS: [Form; 7] = [
    form("names", Source::ChannelAccess, "variable", "", 1),
    form("variables", Source::Variables, "exported variable", "PAGE/NAME, such as llrf/*", 2),
    form("loops", Source::Loops, "loop of a plant", "PLANT/PATTERN, such as llrf/*/p99", 2),
    form("frames", Source::Frames, "frame of a plant", "PLANT/PATTERN, such as llrf/*/overruns", 2),
    form("messages", Source::Messages, "message of a server", "SERVER/VERBS/OBJECTS, such as main/put/*", 3),
    form("alarms", Source::Alarms, "alarm", "NAME/PATTERN, such as llrf/*", 2),
    Form {
        key: "streams",
        source: Source::Streams,
        what: "stream's file",
        form: "FOLDER/NAME.im.shm, such as /dev/shm/ao_*.im.shm",
        parts: None,
    },
];

impl Form {
    /// Whether a name has all parts. The first part (server, page or folder) must not be a pattern.
    fn fits(&self, name: &str) -> bool {
        let parts: Vec<&str> = match self.parts {
            Some(1) => return true,
            Some(parts) => Some(name.splitn(parts, '/').collect::<Vec<_>>()).filter(|found| found.len() == parts),
            None => name
                .strip_suffix(STREAM)
                .and_then(|name| name.rsplit_once('/'))
                .map(|(folder, name)| vec![folder, name]),
        }
        .unwrap_or_default();
        parts.first().is_some_and(|first| !first.contains(['*', '?'])) && parts.iter().all(|part| !part.is_empty())
    }
}

/// Selection of the archived values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Values that differ from the last archived one by more than the deadband, or in their alarm; all values if the
    /// deadband is 0.
    Monitor {
        /// In the unit of the variable.
        deadband: f64,
    },
    /// The newest value, periodically.
    Scan {
        /// The period.
        period: DurNs,
    },
    /// The first value in every `pulses` pulses; for values without a pulse number, every `pulses`-th value.
    Every {
        /// Number of pulses; never 0.
        pulses: u64,
    },
    /// All values before a fault.
    OnFault {
        /// Time before the fault.
        before: DurNs,
    },
}

/// Reads all signals. `archive` is the position for the error that there are none.
pub(super) fn signals(root: &DeTable<'_>, archive: Range<usize>, found: &mut Diagnostics<'_>) -> Vec<Signal> {
    let (mut signals, mut spans, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let listed = tables(root, "signal", true, found);
    if listed.is_empty() {
        found.error(archive, "the archive has no signals", "[[signal]]", "add [[signal]] with `names` or `variables`");
    }
    for (table, span) in listed {
        let section = Section::open(table, span, &SIGNAL, "[[signal]]", found);
        let Some(policy) = policy(&section, found) else { continue };
        if FORMS.iter().all(|form| section.value(form.key).is_none()) {
            section.missing("names", found);
        }
        if section.value("streams").is_some() && POLICIES.iter().all(|key| section.value(key).is_none()) {
            let message = "`streams` without the number of images to store";
            let remedy = "add `every = 100`, or `every = 1` for all: 1,000 images of 200 kB a second fill a disk";
            found.error(section.range(), message, POLICIES.join(", "), remedy);
        }
        for form in &FORMS {
            for (name, span) in section.texts(form.key, found).unwrap_or_default() {
                let (source, name) = match (form.source, name.strip_prefix("pva://"), name.strip_prefix("ca://")) {
                    (Source::ChannelAccess, Some(name), _) => (Source::PvAccess, name),
                    (Source::ChannelAccess, None, Some(name)) => (Source::ChannelAccess, name),
                    (source, ..) => (source, name),
                };
                if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                    let expected = format!("1 to {NAME_BYTES_MAX} bytes, no control characters");
                    found.error(span, format!("{:?} is not a variable name", clipped(name)), expected, "");
                } else if !form.fits(name) {
                    let message = format!("{:?} names no {}", clipped(name), form.what);
                    found.error(span, message, form.form, "");
                } else if !names.insert((source, name.to_owned())) {
                    found.error(span, format!("`{name}` is named twice"), "each variable once", "remove one");
                } else {
                    signals.push(Signal { source, name: name.to_owned(), policy });
                    spans.push(span);
                }
            }
        }
    }
    named_twice(&spans, &signals, found);
    one_folder(&spans, &signals, found);
    signals
}

/// Finds streams in a second folder. Two streams with the same name would be archived as the same signal.
fn one_folder(spans: &[Range<usize>], signals: &[Signal], found: &mut Diagnostics<'_>) {
    let mut streams = signals.iter().zip(spans).filter_map(|(signal, span)| Some((signal.streams()?.0, span)));
    let Some((first, _)) = streams.next() else { return };
    for (folder, span) in streams.filter(|(folder, _)| *folder != first) {
        let message = format!("streams of {:?} together with those of {:?}", clipped(folder), clipped(first));
        found.error(span.clone(), message, "streams of one folder, with different names", "use one archive per folder");
    }
}

/// Finds Channel Access variables with the name of a signal of another source. They would be archived as the same
/// signal.
fn named_twice(spans: &[Range<usize>], signals: &[Signal], found: &mut Diagnostics<'_>) {
    let others: Vec<(&Signal, String)> =
        signals.iter().filter_map(|other| Some((other, other.archived_as()?))).collect();
    for (signal, span) in signals.iter().zip(spans).filter(|(signal, _)| signal.source == Source::ChannelAccess) {
        let is_same = |(_, pattern): &&(&Signal, String)| *pattern == signal.name || base::glob(pattern, &signal.name);
        if let Some((other, _)) = others.iter().find(is_same) {
            let message = format!("`{}` and `{}` would be archived as the same signal", signal.name, other.name);
            found.error(span.clone(), message, "each signal from one source", "remove one");
        }
    }
}

/// The keys that select the archived values.
const POLICIES: [&str; 4] = ["every", "scan", "deadband", "on_fault"];

fn policy(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Policy> {
    let scan = section.time("scan", DurNs::from_ms(1), DurNs::from_secs(86_400), found);
    let deadband = section.value("deadband").and_then(|value| {
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        if number.is_none_or(|number| !number.is_finite() || number < 0.0) {
            section.wrong("deadband", value, "a number that is not negative", found);
        }
        number
    });
    let fault = section.time("on_fault", DurNs::from_ms(1), DurNs::from_secs(60), found);
    if let Some((pulses, span)) = section.number("every", 1, EVERY_MAX, found) {
        if POLICIES[1..].iter().any(|key| section.value(key).is_some()) {
            found.error(span, "`every` together with `scan`, `deadband` or `on_fault`", "one of them", "remove one");
            return None;
        }
        return Some(Policy::Every { pulses });
    }
    match (scan, deadband, fault) {
        (Some((_, span)), Some(_), _) => {
            found.error(span, "`scan` together with `deadband`", "one of them", "remove one");
            None
        }
        (Some(_), _, Some((_, span))) | (_, Some(_), Some((_, span))) => {
            found.error(span, "`on_fault` together with `scan` or `deadband`", "one of them", "remove one");
            None
        }
        (Some((period, _)), None, None) => Some(Policy::Scan { period }),
        (None, None, Some((before, _))) => Some(Policy::OnFault { before }),
        (None, deadband, None) => Some(Policy::Monitor { deadband: deadband.unwrap_or(0.0) }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::read;
    use super::*;

    #[test]
    fn variables_are_named_with_their_page_and_kept_on_a_fault() {
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nvariables = [\"llrf/*\", \"A\"]\non_fault = \"5s\"\n[[signal]]\nnames = [\"llrf\"]\non_fault = \"5s\"\nscan = \"1s\"\n";
        let (_, found) = read(text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4, 8], "{found:?}");
        let (archive, found) = read(&text.replace(", \"A\"", "").replace("scan = \"1s\"\n", ""));
        let signals = archive.unwrap_or_else(|| panic!("{found:?}")).signals;
        assert_eq!((signals[0].variables(), signals[1].variables()), (Some(("llrf", "*")), None));
        assert_eq!(signals[0].policy, Policy::OnFault { before: DurNs::from_secs(5) });
    }

    #[test]
    fn every_source_has_its_form_and_its_plant_or_server_is_not_a_pattern() {
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nloops = [\"p/*\", \"p\"]\nframes = [\"*/a\"]\nmessages = [\"main/put\"]\nalarms = [\"p/\"]\n";
        let (_, found) = read(text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4, 5, 6, 7], "{found:?}");
        let good = text.replace(", \"p\"", "").replace("*/a", "p/*/lost").replace("main/put", "main/put/*");
        let (archive, found) = read(&good.replace("p/\"", "p/*\""));
        let signals = archive.unwrap_or_else(|| panic!("{found:?}")).signals;
        let names: Vec<_> = signals.iter().map(|signal| signal.archived_as().unwrap()).collect();
        assert_eq!(names, ["loops/p/*", "frames/p/*/lost", "messages/main/put/*", "alarms/p/*"]);
    }

    #[test]
    fn streams_are_files_of_one_folder_and_need_the_number_of_images_to_store() {
        let lines = |text: &str| read(text).1.iter().map(|finding| finding.line).collect::<Vec<_>>();
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nstreams = [\"/dev/shm/ao_*.im.shm\", \"./x.im.shm\"]\nevery = 100\n[[signal]]\nvariables = [\"ao/*\"]\nevery = 10\n";
        assert_eq!(lines(text), [4], "two folders");
        let good = text.replace(", \"./x.im.shm\"", "");
        let (archive, found) = read(&good);
        let signals = archive.unwrap_or_else(|| panic!("{found:?}")).signals;
        assert_eq!((signals[0].streams(), signals[1].streams()), (Some(("/dev/shm", "ao_*")), None));
        assert_eq!(signals[0].archived_as().as_deref(), Some("streams/ao_*"));
        assert_eq!([signals[0].policy, signals[1].policy], [100, 10].map(|pulses| Policy::Every { pulses }));
        // A missing suffix, a missing folder, a pattern of folders, an empty name.
        for wrong in ["/dev/shm/ao_*", "ao.im.shm", "/ao.im.shm", "/*/ao.im.shm", "/dev/shm/.im.shm"] {
            assert_eq!(lines(&good.replace("/dev/shm/ao_*.im.shm", wrong)), [4], "{wrong}");
        }
        let unsaid = read(&good.replace("every = 100\n", "")).1;
        assert!(unsaid[0].message.contains("without the number of images to store"), "{unsaid:?}");
        for key in ["scan = \"1s\"", "deadband = 0", "on_fault = \"5s\""] {
            assert_eq!(lines(&good.replace("every = 100", &format!("every = 100\n{key}"))), [5], "{key}");
        }
        assert_eq!(lines(&good.replace("every = 100", "every = 0")), [5]);
    }

    #[test]
    fn a_variable_that_would_be_another_sources_signal_is_refused_with_its_line() {
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nvariables = [\"llrf/a*\", \"llrf/amplitude\"]\nloops = [\"p/*\"]\n[[signal]]\nnames = [\n  \"llrf/amplitude\",\n  \"loops/p/x/p99\",\n  \"llrf/beam\",\n]\n";
        let (archive, found) = read(text);
        assert!(archive.is_none());
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [8, 9], "{found:?}");
        assert!(found[0].message.contains("and `llrf/a*` would be"), "{found:?}");
    }
}
