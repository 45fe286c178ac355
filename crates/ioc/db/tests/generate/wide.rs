//! Random databases of all record types: simulation, links to and from any field, links that are written at run time.

use super::{Dice, NUMBERS, SEVERITIES, fields, links};
use std::fmt::Write;

const KINDS: &[&str] = &[
    "ai",
    "ao",
    "calc",
    "calcout",
    "longin",
    "longout",
    "int64in",
    "int64out",
    "bi",
    "bo",
    "mbbi",
    "mbbo",
    "mbbiDirect",
    "mbboDirect",
    "stringin",
    "stringout",
    "sel",
    "fanout",
    "sub",
    "waveform",
    "aai",
    "aao",
    "subArray",
    "compress",
    "histogram",
    "lsi",
    "lso",
    "event",
    "permissive",
    "state",
];
/// Source fields of links.
const READ: &[&str] =
    &["", "", "", "", ".VAL", ".SEVR", ".STAT", ".UDF", ".NAME", ".DESC", ".SCAN", ".DISV", ".PHAS", ".AMSG", ".TPRO"];
const WRITTEN: &[&str] = &["", "", "", "", ".VAL", ".DESC", ".PROC", ".DISA", ".PHAS", ".UDFS", ".TPRO", ".PRIO"];
const TEXTS: &[&str] = &["", "on", "two", "7", "-3.5", "0x1f", "a text", " 12 ", "off", "MAJOR"];

/// Additional fields of a type, which narrow cases do not use.
fn more(kind: &str) -> &'static [(&'static str, &'static [&'static str])] {
    const TYPES: &[&str] = &["DOUBLE", "LONG", "SHORT", "STRING", "UCHAR", "CHAR", "FLOAT", "INT64"];
    match kind {
        "waveform" => &[("FTVL", TYPES), ("NELM", &["1", "3", "5"]), ("MPST", &["On Change"]), ("PREC", &["2"])],
        "aai" => &[("FTVL", TYPES), ("NELM", &["1", "3"]), ("APST", &["On Change"])],
        "aao" => &[("FTVL", TYPES), ("NELM", &["1", "3"]), ("OMSL", &["supervisory", "closed_loop"])],
        "subArray" => &[("FTVL", TYPES), ("MALM", &["1", "4"]), ("NELM", &["1", "2"]), ("INDX", &["0", "1", "3"])],
        "compress" => &[
            ("ALG", &["N to 1 Low Value", "N to 1 High Value", "N to 1 Average", "Average", "Circular Buffer"]),
            ("NSAM", &["1", "3"]),
            ("N", &["1", "2"]),
            ("BALG", &["FIFO Buffer", "LIFO Buffer"]),
        ],
        "histogram" => &[("ULIM", &["10"]), ("LLIM", &["0", "-5"]), ("NELM", &["2", "5"])],
        "lsi" | "lso" => &[("SIZV", &["10", "41", "80"])],
        "longout" => &[("OOPT", &["Every Time", "On Change", "When Zero", "Transition To Non-zero"])],
        "ai" | "mbbi" | "longin" => &[("AFTC", &["0"])],
        _ => &[],
    }
}

/// Input and output fields of the types that narrow cases do not use.
fn ends(kind: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        "waveform" | "aai" | "subArray" | "compress" | "lsi" | "event" => (&["INP"], &[]),
        "aao" | "lso" => (&["DOL"], &["OUT"]),
        "histogram" => (&["SVL"], &[]),
        _ => (links(kind).0, links(kind).1),
    }
}

fn has_simulation(kind: &str) -> bool {
    let without = ["calc", "calcout", "sel", "fanout", "sub", "subArray", "compress", "permissive", "state"];
    !without.contains(&kind)
}

struct Case {
    dice: Dice,
    kinds: Vec<&'static str>,
}

impl Case {
    fn record(&mut self) -> usize {
        self.dice.roll(self.kinds.len())
    }

    fn input(&mut self) -> String {
        match self.dice.roll(6) {
            0 => self.dice.pick(NUMBERS).to_owned(),
            1 => String::new(),
            _ => {
                let (target, field) = (self.record(), self.dice.pick(READ));
                let (process, severity) =
                    (self.dice.pick(&["", " PP", " NPP"]), self.dice.pick(&["", " MS", " MSI", " MSS"]));
                format!("r{target}{field}{process}{severity}")
            }
        }
    }

    fn output(&mut self) -> String {
        let (target, field) = (self.record(), self.dice.pick(WRITTEN));
        format!("r{target}{field}{}{}", self.dice.pick(&["", " PP"]), self.dice.pick(&["", " MS"]))
    }

    fn definition(&mut self, number: usize) -> String {
        let kind = self.kinds[number];
        let mut text = format!("record({kind}, \"r{number}\") {{\n");
        let mut field = |name: &str, value: &str| writeln!(text, "  field({name}, \"{value}\")").unwrap();
        for (name, words) in fields(kind).iter().chain(more(kind)) {
            if self.dice.roll(2) == 0 {
                field(name, self.dice.pick(words));
            }
        }
        if matches!(kind, "calc" | "calcout") {
            field("CALC", self.dice.pick(super::CALCS));
        }
        let (inputs, outputs) = ends(kind);
        for name in inputs {
            if self.dice.roll(4) != 0 {
                field(name, &self.input());
            }
        }
        for name in outputs {
            if self.dice.roll(3) != 0 {
                field(name, &self.output());
            }
        }
        if has_simulation(kind) && self.dice.roll(3) == 0 {
            field("SIOL", &if inputs.contains(&"INP") || kind == "histogram" { self.input() } else { self.output() });
            field("SIMS", self.dice.pick(SEVERITIES));
            match self.dice.roll(3) {
                0 => field("SIML", &self.input()),
                1 => field("SIMM", "YES"),
                _ => {}
            }
        }
        for name in links(kind).2.iter().chain(&["FLNK"]) {
            if self.dice.roll(3) == 0 {
                field(name, &format!("r{}", self.record()));
            }
        }
        if self.dice.roll(10) == 0 {
            field("TSEL", &format!("r{}.TIME", self.record()));
        }
        text + "}\n"
    }

    fn put(&mut self) -> String {
        let number = self.record();
        let kind = self.kinds[number];
        let (inputs, outputs) = ends(kind);
        let (field, value) = match self.dice.roll(10) {
            0 | 1 => ("PROC", "1".to_owned()),
            2 => {
                let all: Vec<_> = fields(kind).into_iter().chain(more(kind).iter().copied()).collect();
                match all.len() {
                    0 => ("PROC", "1".to_owned()),
                    len => {
                        let (field, words) = all[self.dice.roll(len)];
                        (field, self.dice.pick(words).to_owned())
                    }
                }
            }
            // C treats a link of calcout that is written at run time as a constant, in INAV and similar fields.
            3 | 4 if kind == "calcout" => ("PROC", "1".to_owned()),
            3 if !inputs.is_empty() => (inputs[self.dice.roll(inputs.len())], self.input()),
            4 if !outputs.is_empty() => (outputs[self.dice.roll(outputs.len())], self.output()),
            5 if has_simulation(kind) => ("SIMM", self.dice.pick(&["NO", "YES", "RAW"]).to_owned()),
            // C's dbpf accepts a text for an array only as JSON.
            6 if !more(kind).iter().any(|(field, _)| *field == "FTVL") => ("VAL", self.dice.pick(TEXTS).to_owned()),
            7 => (self.dice.pick(&["DISA", "DISP", "UDF", "DISV", "PHAS"]), self.dice.pick(&["0", "1"]).to_owned()),
            _ => ("VAL", self.dice.pick(NUMBERS).to_owned()),
        };
        // If a ring does not begin at its start, C's puts of doubles read beyond the given array (docs/reference/database.md).
        let field = if kind == "compress" && field == "VAL" { "PROC" } else { field };
        format!("#! put r{number}.{field} {value}\n")
    }
}

/// A database with its steps.
pub(crate) fn database(seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x55);
    let count = 4 + dice.roll(8);
    let kinds = (0..count).map(|_| dice.pick(KINDS)).collect();
    let mut case = Case { dice, kinds };
    let mut text = format!("# generated from seed {seed}, wide\n");
    for number in 0..count {
        text += &case.definition(number);
    }
    text.push_str("#! wait 0.05\n#! dump\n");
    for _ in 0..14 {
        text += &case.put();
        if case.dice.roll(3) == 0 {
            text.push_str("#! dump\n");
        }
    }
    text
}
