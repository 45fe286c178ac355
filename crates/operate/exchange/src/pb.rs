//! Files of the EPICS Archiver Appliance (`.pb`).

use crate::{ExchangeError, Row, Writer, Wrong};
use appliance::pb::{self, Chunks, Lines};
use segment::rows::Signal;
use segment::{Kind, Sample};
use std::collections::VecDeque;
use std::io::{BufRead, Read as _, Write};

/// Maximum size of a line, in bytes: an array of eight million doubles.
const LINE_MAX: usize = 64 << 20;
/// Size of the output buffer, in bytes.
const PIECE: usize = 32 << 10;

/// Description of a signal in a file: name, type and fields.
type About = (String, Kind, Vec<(String, String)>);

/// Reader of samples. The format has no pulse numbers, and of the causes of gaps only lost connections, starts and pauses. Record fields stored
/// with a value are skipped.
pub struct PbReader<R> {
    input: R,
    chunks: Chunks,
    line: Vec<u8>,
    number: u64,
    /// Rows that have been read but not returned.
    ready: VecDeque<Row>,
    /// Last signal, and its last timestamp.
    about: Option<About>,
    before: Option<i64>,
    has_failed: bool,
}

impl<R: BufRead> PbReader<R> {
    /// Starts reading. Memory: the longest line.
    pub fn new(input: R) -> Self {
        let (chunks, line, ready) = (Chunks::default(), Vec::new(), VecDeque::new());
        Self { input, chunks, line, number: 0, ready, about: None, before: None, has_failed: false }
    }

    /// Reads a line. Returns false at the end.
    fn line(&mut self) -> Result<bool, ExchangeError> {
        self.line.clear();
        self.number += 1;
        let line = self.number;
        let len = (&mut self.input).take(LINE_MAX as u64 + 1).read_until(b'\n', &mut self.line)?;
        if len > LINE_MAX {
            return Err(ExchangeError::Line { line, wrong: Wrong::Long(LINE_MAX) });
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        let found = self.chunks.line(&self.line).map_err(|bad| ExchangeError::Line { line, wrong: bad.into() })?;
        let Some((info, row)) = found else { return Ok(len > 0) };
        let (name, kind) = (info.name.clone(), row.sample.datum.kind());
        let newest = (name.clone(), kind, info.headers.clone());
        if self.about.as_ref() != Some(&newest) {
            if self.about.as_ref().is_none_or(|(before, ..)| *before != name) {
                self.before = None;
            }
            let (since, about) = (row.sample.at, pb::about(&info.headers));
            self.ready.push_back(Row::Signal { name: name.clone(), since, kind, about });
            self.about = Some(newest);
        }
        for (at, cause) in pb::gaps(&row, self.before) {
            self.ready.push_back(Row::Gap { name: Some(name.clone()), at, cause, lost: 0 });
        }
        self.before = Some(row.sample.at);
        self.ready.push_back(Row::Sample { name, sample: row.sample });
        Ok(true)
    }
}

impl<R: BufRead> Iterator for PbReader<R> {
    type Item = Result<Row, ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Some(Ok(row));
            }
            if self.has_failed {
                return None;
            }
            match self.line() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Writer of samples. Gaps and pulse numbers are not written. Samples of one signal and one year give a file as the Appliance writes it.
/// Otherwise the output has several chunks, separated by an empty line, as in the Appliance's HTTP answers.
pub struct PbWriter<W> {
    out: W,
    lines: Lines,
    piece: Vec<u8>,
    name: String,
    rows: Vec<Signal>,
}

impl<W: Write> PbWriter<W> {
    /// Starts the output.
    pub fn new(out: W) -> Self {
        Self { out, lines: Lines::default(), piece: Vec::new(), name: String::new(), rows: Vec::new() }
    }

    fn go_on_with(&mut self, name: &str) {
        if self.name != name {
            name.clone_into(&mut self.name);
            self.rows.clear();
            self.lines.signal(name);
        }
    }
}

impl<W: Write> Writer for PbWriter<W> {
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError> {
        match row {
            Row::Signal { name, since, kind, about } => {
                self.go_on_with(name);
                let (name, about) = (name.clone(), about.clone());
                self.rows.push(Signal { id: 0, since: *since, kind: *kind, name, about });
            }
            Row::Sample { name, sample } => {
                self.go_on_with(name);
                self.lines.row(&self.rows, false, &Sample::clone(sample).into(), &mut self.piece);
                if self.piece.len() >= PIECE {
                    self.out.write_all(&self.piece)?;
                    self.piece.clear();
                }
            }
            Row::Gap { .. } => {}
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExchangeError> {
        self.out.write_all(&self.piece)?;
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Scalar;
    use proptest::prelude::*;
    use segment::Datum;
    use segment::rows::{About, Cause};

    fn read(bytes: &[u8]) -> Vec<Row> {
        PbReader::new(bytes).collect::<Result<_, _>>().unwrap()
    }

    fn written(rows: &[Row]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Box::new(PbWriter::new(&mut out));
        rows.iter().for_each(|row| writer.write(row).unwrap());
        writer.finish().unwrap();
        out
    }

    proptest! {
        #[test]
        fn samples_and_their_metadata_survive_a_round_trip_over_new_years(
            stamps in prop::collection::vec(1_700_000_000_000_000_000i64..1_900_000_000_000_000_000, 1..20),
        ) {
            let mut rows = Vec::new();
            for (name, labels) in [("A", vec![]), ("B", vec!["off".to_owned(), "on".to_owned()])] {
                let about = About { units: "mm".into(), precision: Some(1), labels };
                let kind = Kind::Number(base::FieldType::F64);
                rows.push(Row::Signal { name: name.into(), since: 0, kind, about });
                let sample = |at: &i64| Sample { severity: 1, ..Sample::new(*at, *at as f64) };
                rows.extend(stamps.iter().map(|at| Row::Sample { name: name.into(), sample: sample(at) }));
            }
            let samples = |rows: &[Row]| rows.iter().filter(|row| matches!(row, Row::Sample { .. })).cloned().collect::<Vec<_>>();
            let back = read(&written(&rows));
            prop_assert_eq!(samples(&back), samples(&rows));
            let about = |rows: &[Row]| rows.iter().filter_map(|row| match row {
                Row::Signal { name, about, .. } => Some((name.clone(), about.clone())),
                _ => None,
            }).collect::<Vec<_>>();
            prop_assert_eq!(about(&back), about(&rows));
        }
    }

    #[test]
    fn a_lost_connection_is_a_gap() {
        let info =
            pb::Info { payload: pb::Payload::ScalarInt, name: "A".into(), year: 2026, elements: 1, headers: vec![] };
        let mut bytes = Vec::new();
        info.write(&mut bytes);
        let begin = pb::year_begins(2026);
        let fields = vec![("cnxlostepsecs".to_owned(), (begin + 5).to_string())];
        let sample = Sample::new((begin + 9) * 1_000_000_000, Datum::Number(Scalar::I32(7)));
        pb::Row { sample: sample.clone(), fields }.write(&info, &mut bytes);
        let name = Some("A".to_owned());
        let gap = Row::Gap { name, at: (begin + 5) * 1_000_000_000, cause: Cause::Disconnected, lost: 0 };
        assert_eq!(read(&bytes)[1..], [gap, Row::Sample { name: "A".into(), sample }]);
    }

    #[test]
    fn a_malformed_line_is_reported_once_with_its_number() {
        let mut reader = PbReader::new(&b"\x08\x06\x12\x01A\x18\xea\x0f\n\xff\n\xff\n"[..]);
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert!(error.starts_with("line 2: the line is no protobuf message; expected"), "{error}");
        assert!(reader.next().is_none());
    }
}
