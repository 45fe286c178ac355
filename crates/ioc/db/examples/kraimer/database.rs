//! The benchmark database of ANL/APS as `.db` text. The original is lost, so this one follows its description.
//!
//! This example uses it with the engine alone, `tahti bench ioc` with the whole IOC.

/// Links between the records, in two readings of the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Each record reads the one before it and processes the next one by its forward link.
    Forward,
    /// Each record processes the next one by reading it.
    Passive,
}

/// Records that one pass of [`kraimer`] processes: 300 calc and ai, 6 times a sub-fanout, the main one.
pub(crate) const RECORDS_PER_PASS: f64 = 307.0;

/// The calc and ai records of one copy, which a display monitors.
pub(crate) fn monitored(copy: usize) -> Vec<String> {
    let calcs = ["A", "B"].iter().flat_map(|sub| (1..=5).map(move |calc| format!("c{copy}:c{sub}{calc}")));
    calcs.flat_map(|calc| (0..10).map(move |ai| if ai == 0 { calc.clone() } else { format!("{calc}_{ai}") })).collect()
}

/// The benchmark database: `main` processes two sub-fanouts three times each, these five calc each, and each calc a
/// chain of nine ai. `scan` is the `SCAN` of `main`. Monitors receive an update for each processing (MDEL -1);
/// otherwise they would receive none, because the values do not change.
pub(crate) fn kraimer(copies: usize, reading: Reading, scan: &str) -> String {
    let mut text = String::new();
    for copy in 0..copies {
        fanouts(&mut text, copy, scan);
        for calc in monitored(copy).iter().step_by(10) {
            chain(&mut text, calc, reading);
        }
    }
    text
}

fn fanouts(text: &mut String, copy: usize, scan: &str) {
    *text += &format!("record(fanout,\"c{copy}:main\"){{field(SCAN,\"{scan}\")");
    for link in 0..6 {
        *text += &format!("field(LNK{},\"c{copy}:sub{}\")", link + 1, if link % 2 == 0 { "A" } else { "B" });
    }
    *text += "}\n";
    for sub in ["A", "B"] {
        *text += &format!("record(fanout,\"c{copy}:sub{sub}\"){{");
        (1..=5).for_each(|calc| *text += &format!("field(LNK{calc},\"c{copy}:c{sub}{calc}\")"));
        *text += "}\n";
    }
}

fn chain(text: &mut String, calc: &str, reading: Reading) {
    let (input, forward) = match reading {
        Reading::Forward => (format!("{calc}_9"), format!("{calc}_1")),
        Reading::Passive => (format!("{calc}_1 PP"), String::new()),
    };
    *text += &format!(
        "record(calc,\"{calc}\"){{field(CALC,\"A+1\")field(MDEL,\"-1\")field(INPA,\"{input}\")field(FLNK,\"{forward}\")}}\n"
    );
    for ai in 1..=9 {
        let next = format!("{calc}_{}", ai + 1);
        let (input, forward) = match reading {
            Reading::Forward if ai == 1 => (calc.to_owned(), next),
            Reading::Forward if ai == 9 => (format!("{calc}_8"), String::new()),
            Reading::Forward => (format!("{calc}_{}", ai - 1), next),
            Reading::Passive if ai == 9 => ("1".to_owned(), String::new()),
            Reading::Passive => (format!("{next} PP"), String::new()),
        };
        *text += &format!(
            "record(ai,\"{calc}_{ai}\"){{field(MDEL,\"-1\")field(INP,\"{input}\")field(FLNK,\"{forward}\")}}\n"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_103_records_of_which_100_are_monitored() {
        for reading in [Reading::Forward, Reading::Passive] {
            let text = kraimer(2, reading, "Passive");
            assert_eq!(text.lines().count(), 206);
            assert_eq!(monitored(1).len(), 100);
            assert!(monitored(1).iter().all(|name| text.contains(&format!("\"{name}\"){{"))), "{text}");
        }
    }
}
