//! Bursts: several writes of one user to one field in rapid succession are logged in one line, as in caPutLog.

use super::{Entry, Logged};
use base::{DurNs, MonoNs, Scalar};

/// A line of the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogLine {
    /// The last write of the burst, with the value before the first one.
    pub(super) entry: Entry,
    /// Minimum and maximum of the values written in a burst; `None` for texts.
    pub(super) range: Option<(Scalar, Scalar)>,
    /// Number of writes after the first.
    pub(super) further: u32,
}

/// The current burst, if there is one.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    open: Option<(LogLine, MonoNs)>,
}

impl Bursts {
    /// Adds a write at `now`. Its burst ends after `quiet` without a further write. Returns the completed lines, oldest
    /// first.
    pub(super) fn take(&mut self, entry: Entry, now: MonoNs, quiet: DurNs) -> [Option<LogLine>; 2] {
        let done = match &mut self.open {
            Some((line, until)) if entry.joins && now < *until && line.entry.is_of_one_with(&entry) => {
                line.add(entry);
                *until = now + quiet;
                return [None, None];
            }
            _ => self.end(),
        };
        let line = LogLine { range: None, further: 0, entry };
        if !line.entry.joins {
            return [done, Some(line)];
        }
        self.open = Some((line, now + quiet));
        [done, None]
    }

    /// Time at which the burst ends if there is no further write.
    pub(super) fn until(&self) -> Option<MonoNs> {
        self.open.as_ref().map(|(_, until)| *until)
    }

    /// Ends the burst.
    pub(super) fn end(&mut self) -> Option<LogLine> {
        self.open.take().map(|(line, _)| line)
    }
}

impl LogLine {
    fn add(&mut self, next: Entry) {
        self.further += 1;
        let first = |logged: &Option<Logged>| logged.as_ref().and_then(Logged::first);
        if let (Some(before), Some(new)) = (first(&self.entry.new), first(&next.new)) {
            let (least, greatest) = self.range.unwrap_or((before, before));
            let number = |value: Scalar| value.to_f64().unwrap_or(f64::NAN);
            self.range = before.to_f64().map(|_| {
                (
                    if number(new) < number(least) { new } else { least },
                    if number(new) > number(greatest) { new } else { greatest },
                )
            });
        }
        self.entry.new = next.new;
        self.entry.when = next.when;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::super::{Form, QUIET};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn writes_in_rapid_succession_become_one_line_with_their_range() {
        let mut bursts = Bursts::default();
        for (at, old, new) in [(0, 1.0, 7.5), (4, 7.5, 870.5), (8, 870.5, -2.0), (12, -2.0, 8.0)] {
            assert_eq!(bursts.take(entry("X:a", old, new), MonoNs(at * SECOND), QUIET), [None, None]);
        }
        assert_eq!(bursts.until(), Some(MonoNs(17 * SECOND)));
        let line = bursts.end().unwrap();
        let first = |logged: &Option<Logged>| logged.as_ref().and_then(Logged::first);
        assert_eq!((first(&line.entry.old), first(&line.entry.new)), (Some(Scalar::F64(1.0)), Some(Scalar::F64(8.0))));
        assert_eq!(line.further, 3);
        assert_eq!(line.range, Some((Scalar::F64(-2.0), Scalar::F64(870.5))));
        assert_eq!(bursts.end(), None);
    }

    #[test]
    fn another_field_another_user_and_a_pause_end_a_burst() {
        let mut bursts = Bursts::default();
        let (first, mut second) = (entry("X:a", 0.0, 1.0), entry("X:a", 1.0, 2.0));
        bursts.take(first.clone(), MonoNs(0), QUIET);
        assert_eq!(
            bursts.take(entry("X:b", 0.0, 1.0), MonoNs(1), QUIET),
            [Some(LogLine { entry: first, range: None, further: 0 }), None]
        );
        bursts.take(entry("X:a", 0.0, 1.0), MonoNs(2), QUIET);
        second.user = "bert".into();
        let [Some(done), None] = bursts.take(second.clone(), MonoNs(3), QUIET) else {
            panic!("anna's line is complete")
        };
        assert_eq!((done.entry.user.as_str(), done.range), ("anna", None));
        let [Some(done), None] = bursts.take(second, MonoNs(3 + 5 * SECOND), QUIET) else {
            panic!("the pause was long")
        };
        assert_eq!((done.entry.user.as_str(), done.range), ("bert", None));
    }

    #[test]
    fn texts_have_no_range_and_separate_entries_are_not_merged() {
        let mut bursts = Bursts::default();
        let text = |text: &str| Entry { new: Some(Logged::new(&text.into(), &Form::Plain)), ..entry("X:a", 0.0, 0.0) };
        bursts.take(text("one"), MonoNs(0), QUIET);
        bursts.take(text("two"), MonoNs(0), QUIET);
        let alone = Entry { joins: false, ..text("three") };
        let [Some(first), Some(second)] = bursts.take(alone.clone(), MonoNs(0), QUIET) else { panic!("two lines") };
        assert_eq!((first.entry.new, first.range), (text("two").new, None));
        assert_eq!(second, LogLine { entry: alone, range: None, further: 0 });
        assert_eq!(bursts.until(), None);
    }
}
