//! Random databases and puts. The same seed gives the same ones.

pub(crate) mod wide;

use std::fmt::Write;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.roll(words.len())]
    }
}

const NUMBERS: &[&str] = &[
    "0", "1", "-1", "2", "3", "5", "7.5", "-2.25", "10", "100", "1000.125", "12", "15", "16", "65535", "70000", "-5",
    "0.001", "1e6",
];
const SEVERITIES: &[&str] = &["NO_ALARM", "MINOR", "MAJOR", "INVALID"];
const CALCS: &[&str] = &[
    "A+B",
    "A*2-C",
    "A>B?C:D",
    "MAX(A,B,C)",
    "A&B|C",
    "(A+1)%5",
    "A:=A+1;A*2",
    "SQRT(ABS(A))",
    "A/B",
    "!A",
    "VAL+1",
    "D:=VAL;A-D",
    "~A",
    "A<<2",
    "NINT(A/3)",
    "A#B",
    "ISNAN(A)",
];

/// Fields of a type, with the words that they may hold.
fn fields(kind: &str) -> Vec<(&'static str, &'static [&'static str])> {
    let limits: &[(&str, &[&str])] = &[
        ("HIHI", &["10", "5", "100"]),
        ("HIGH", &["4", "8"]),
        ("LOW", &["0", "-1"]),
        ("LOLO", &["-3", "-10"]),
        ("HHSV", SEVERITIES),
        ("HSV", SEVERITIES),
        ("LSV", SEVERITIES),
        ("LLSV", SEVERITIES),
        ("HYST", &["0", "1", "2"]),
        ("MDEL", &["0", "-1", "2"]),
        ("ADEL", &["0", "3"]),
        ("EGU", &["V", "mm"]),
        ("HOPR", &["10"]),
    ];
    let convert: &[(&str, &[&str])] = &[
        ("LINR", &["NO CONVERSION", "LINEAR", "SLOPE", "typeKdegC", "typeJdegF"]),
        ("ESLO", &["1", "2", "0.5"]),
        ("EOFF", &["0", "3"]),
        ("EGUL", &["0", "-10"]),
        ("EGUF", &["100"]),
        ("ASLO", &["0", "1", "2"]),
        ("AOFF", &["0", "1.5"]),
        ("ROFF", &["0", "5"]),
        ("PREC", &["0", "3", "6"]),
    ];
    let ivoa: &[(&str, &[&str])] = &[
        ("IVOA", &["Continue normally", "Don't drive outputs", "Set output to IVOV"]),
        ("IVOV", &["1", "2"]),
        ("OMSL", &["supervisory", "closed_loop"]),
    ];
    let soft_raw: &[(&str, &[&str])] = &[("DTYP", &["Soft Channel", "Raw Soft Channel"])];
    let states: &[(&str, &[&str])] = &[
        ("ZRST", &["off", "zero"]),
        ("ONST", &["on"]),
        ("TWST", &["two"]),
        ("ZRVL", &["0", "1"]),
        ("ONVL", &["1", "4"]),
        ("TWVL", &["2"]),
        ("ONSV", SEVERITIES),
        ("TWSV", SEVERITIES),
        ("UNSV", SEVERITIES),
        ("COSV", SEVERITIES),
        ("NOBT", &["0", "2", "4"]),
        ("SHFT", &["0", "1", "3"]),
    ];
    let two: &[(&str, &[&str])] = &[
        ("ZNAM", &["off", "no"]),
        ("ONAM", &["on"]),
        ("ZSV", SEVERITIES),
        ("OSV", SEVERITIES),
        ("COSV", SEVERITIES),
        ("MASK", &["0", "1", "6"]),
    ];
    let groups: &[&[(&'static str, &'static [&'static str])]] = match kind {
        "ai" => &[limits, convert, soft_raw, &[("SMOO", &["0", "0.5"]), ("AFTC", &["0"])]],
        "ao" => &[
            limits,
            convert,
            ivoa,
            soft_raw,
            &[("OROC", &["0", "1"]), ("DRVH", &["20"]), ("DRVL", &["-5"]), ("OIF", &["Full", "Incremental"])],
        ],
        "calc" => &[limits],
        "calcout" => &[
            limits,
            &ivoa_without_omsl(),
            &[
                (
                    "OOPT",
                    &[
                        "Every Time",
                        "On Change",
                        "When Zero",
                        "When Non-zero",
                        "Transition To Zero",
                        "Transition To Non-zero",
                    ],
                ),
                ("DOPT", &["Use CALC", "Use OCAL"]),
                ("OCAL", CALCS),
            ],
        ],
        "longin" | "int64in" => &[limits],
        "longout" | "int64out" => &[limits, ivoa, &[("DRVH", &["20"]), ("DRVL", &["-5"])]],
        "bi" => &[two, soft_raw],
        "bo" => &[two, soft_raw, ivoa],
        "mbbi" => &[states, soft_raw],
        "mbbo" => &[states, soft_raw, ivoa],
        "mbbiDirect" => &[soft_raw, &[("NOBT", &["0", "4", "8"]), ("SHFT", &["0", "2"])]],
        "mbboDirect" => {
            &[soft_raw, ivoa, &[("NOBT", &["0", "4", "8"]), ("SHFT", &["0", "2"]), ("B1", &["1"]), ("B3", &["1"])]]
        }
        "printf" => &[&[
            ("FMT", &["%d", "%5.2f|%-4d|%s", "%s %x", "%*d %g", "%hd%%%lld", "%q %s"]),
            ("SIZV", &["0", "20", "80"]),
            ("IVLS", &["?", ""]),
        ]],
        "sub" => &[limits, &[("SNAM", &["nobodyKnows"]), ("BRSV", SEVERITIES)]],
        "aSub" => &[&[
            ("SNAM", &["", "nobodyKnows"]),
            ("FTA", &["DOUBLE", "LONG", "STRING", "SHORT"]),
            ("NOA", &["1", "4"]),
            ("FTVA", &["DOUBLE", "LONG", "STRING"]),
            ("NOVA", &["1", "3"]),
            ("EFLG", &["NEVER", "ON CHANGE", "ALWAYS"]),
            ("LFLG", &["IGNORE", "READ"]),
        ]],
        "stringin" => &[&[("MPST", &["On Change", "Always"])]],
        "stringout" => &[ivoa],
        "sel" => &[
            limits,
            &[("SELM", &["Specified", "High Signal", "Low Signal", "Median Signal"]), ("SELN", &["0", "1", "2", "13"])],
        ],
        "fanout" | "seq" => &[&[
            ("SELM", &["All", "Specified", "Mask"]),
            ("SELN", &["0", "1", "2", "5"]),
            ("OFFS", &["0", "1"]),
            ("SHFT", &["-1", "0", "1"]),
        ]],
        "dfanout" => &[
            limits,
            &[
                ("SELM", &["All", "Specified", "Mask"]),
                ("SELN", &["0", "1", "2", "5"]),
                ("OMSL", &["supervisory", "closed_loop"]),
            ],
        ],
        _ => &[],
    };
    groups.iter().flat_map(|group| group.iter().copied()).collect()
}

const fn ivoa_without_omsl() -> [(&'static str, &'static [&'static str]); 2] {
    [("IVOA", &["Continue normally", "Don't drive outputs", "Set output to IVOV"]), ("IVOV", &["1", "2"])]
}

/// Link fields of a type: inputs, outputs, forward links.
fn links(kind: &str) -> (&'static [&'static str], &'static [&'static str], &'static [&'static str]) {
    match kind {
        "ai" | "longin" | "int64in" | "bi" | "mbbi" | "mbbiDirect" | "stringin" => (&["INP"], &[], &[]),
        "ao" | "longout" | "int64out" | "bo" | "mbbo" | "mbboDirect" | "stringout" => (&["DOL"], &["OUT"], &[]),
        "calc" | "sub" => (&["INPA", "INPB", "INPC", "INPD"], &[], &[]),
        "printf" => (&["INP0", "INP1", "INP2"], &["OUT"], &[]),
        "aSub" => (&["INPA", "INPB", "SUBL"], &["OUTA", "OUTB"], &[]),
        "calcout" => (&["INPA", "INPB", "INPC", "INPD"], &["OUT"], &[]),
        "sel" => (&["INPA", "INPB", "INPC", "NVL"], &[], &[]),
        "fanout" => (&["SELL"], &[], &["LNK0", "LNK1", "LNK2"]),
        "dfanout" => (&["DOL", "SELL"], &["OUTA", "OUTB", "OUTC"], &[]),
        "seq" => (&["SELL", "DOL0", "DOL1", "DOL2"], &["LNK0", "LNK1", "LNK2"], &[]),
        _ => (&[], &[], &[]),
    }
}

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
    "dfanout",
    "seq",
    "printf",
    "sub",
    "aSub",
];

/// A database with its steps.
pub(crate) fn database(seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let count = 4 + dice.roll(8);
    let kinds: Vec<&str> = (0..count).map(|_| dice.pick(KINDS)).collect();
    let mut text = format!("# generated from seed {seed}\n");
    for (number, kind) in kinds.iter().enumerate() {
        writeln!(text, "record({kind}, \"r{number}\") {{").unwrap();
        for (field, words) in fields(kind) {
            if dice.roll(2) == 0 {
                writeln!(text, "  field({field}, \"{}\")", dice.pick(words)).unwrap();
            }
        }
        if matches!(*kind, "calc" | "calcout") {
            writeln!(text, "  field(CALC, \"{}\")", dice.pick(CALCS)).unwrap();
        }
        let (inputs, outputs, forwards) = links(kind);
        for input in inputs {
            let word = match dice.roll(4) {
                0 => continue,
                1 => dice.pick(NUMBERS).to_owned(),
                _ => format!(
                    "r{}{}{}",
                    dice.roll(count),
                    dice.pick(&["", " PP", " NPP"]),
                    dice.pick(&["", " MS", " MSI", " MSS", " NMS"])
                ),
            };
            writeln!(text, "  field({input}, \"{word}\")").unwrap();
        }
        for output in outputs {
            if dice.roll(3) != 0 {
                let target = dice.roll(count);
                writeln!(
                    text,
                    "  field({output}, \"r{target}{}{}\")",
                    dice.pick(&["", " PP"]),
                    dice.pick(&["", " MS"])
                )
                .unwrap();
            }
        }
        for forward in forwards.iter().chain(&["FLNK"]) {
            if dice.roll(3) == 0 {
                writeln!(text, "  field({forward}, \"r{}\")", dice.roll(count)).unwrap();
            }
        }
        // C's seq runs in another thread. With it, the effect of PINI depends on timing.
        if dice.roll(8) == 0 && !kinds.contains(&"seq") {
            text.push_str("  field(PINI, \"YES\")\n");
        }
        if dice.roll(12) == 0 {
            writeln!(
                text,
                "  field(DISV, \"{}\")\n  field(SDIS, \"r{}\")\n  field(DISS, \"MINOR\")",
                dice.roll(2),
                dice.roll(count)
            )
            .unwrap();
        }
        text.push_str("}\n");
    }
    text.push_str("#! wait 0.05\n#! dump\n");
    for _ in 0..12 {
        let number = dice.roll(count);
        let kind = kinds[number];
        let (field, value) = match dice.roll(5) {
            0 => ("PROC".to_owned(), "1".to_owned()),
            1 => {
                let all = fields(kind);
                if all.is_empty() {
                    continue;
                }
                let (field, words) = all[dice.roll(all.len())];
                (field.to_owned(), dice.pick(words).to_owned())
            }
            _ => ("VAL".to_owned(), dice.pick(NUMBERS).to_owned()),
        };
        writeln!(text, "#! put r{number}.{field} {value}").unwrap();
        if kinds.contains(&"seq") {
            text.push_str("#! wait 0.05\n");
        }
        if dice.roll(3) == 0 {
            text.push_str("#! dump\n");
        }
    }
    text
}
