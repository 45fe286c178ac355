//! Channel Access message by message: both servers, C's and ours, get the same bytes and must return the same bytes.
//!
//! The cases follow those of catvs and extend them. Values that a server may choose are replaced before comparing:
//! channel numbers, its port, and processing times.

mod circuits;
mod fields;
mod generated;
mod reads;
mod searches;
mod subscriptions;
mod wire;
mod writes;

pub(crate) const DATABASE: &str = r#"
record(longout, "$(P)i") { field(VAL, "42") field(EGU, "n") field(HOPR, "100") field(LOW, "-5") field(LSV, "MINOR") }
record(ao, "$(P)d") { field(VAL, "1.5") field(PREC, "3") field(EGU, "mm") field(HIHI, "90") field(HHSV, "MAJOR")
    field(DRVH, "100") field(DRVL, "-100") field(HOPR, "50") field(LOPR, "-50") }
record(stringout, "$(P)s") { field(VAL, "a word") }
record(mbbo, "$(P)e") { field(ZRST, "zero") field(ONST, "one") field(TWST, "two") field(TWSV, "MAJOR") field(VAL, "1") }
record(waveform, "$(P)a") { field(FTVL, "SHORT") field(NELM, "5") }
record(waveform, "$(P)c") { field(FTVL, "CHAR") field(NELM, "20") }
record(waveform, "$(P)w") { field(FTVL, "STRING") field(NELM, "3") }
record(waveform, "$(P)big") { field(FTVL, "DOUBLE") field(NELM, "20000") }
record(lso, "$(P)long") { field(SIZV, "100") }
record(ao, "$(P)dead") { field(MDEL, "2") field(ADEL, "4") field(HIHI, "50") field(HHSV, "MAJOR") }
record(calcout, "$(P)busy") { field(CALC, "A") field(ODLY, "1") }
record(longout, "$(P)locked") { field(DISP, "1") }
"#;

/// The names in [`DATABASE`] with their types on the wire.
pub(crate) const CHANNELS: &[(&str, u16)] = &[
    ("X:i", 5),
    ("X:d", 6),
    ("X:s", 0),
    ("X:e", 3),
    ("X:a", 1),
    ("X:c", 4),
    ("X:w", 0),
    ("X:i.DESC", 0),
    ("X:d.SCAN", 3),
];
