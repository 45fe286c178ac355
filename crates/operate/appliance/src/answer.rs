//! Answers to requests.

use crate::call::{Ask, Call, Kind};
use crate::flow::SignalRequest;
use crate::format::{Format, Head, Writer};
use crate::gaps::is_damage;
use crate::names::{details, matching, metadata, resolve, status};
use crate::{Failed, Operator, Refused, Source, at_time};
use segment::Sample;
use segment::rows::{Cause, Gap, Signal};
use serde_json::json;
use std::io::Write;

/// An answer. The header is known; the body is generated when it is written.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// Time span in which damage may have changed the answer: nanoseconds since 1970, both ends inclusive.
    pub span: (i64, i64),
    body: Body,
}

/// The whole time range.
const ALL: (i64, i64) = (i64::MIN, i64::MAX);

#[derive(Clone, Debug)]
enum Body {
    Text(Vec<u8>),
    Data { format: Format, parts: Vec<(String, Operator)>, from: i64, to: i64, now: i64, latest: bool },
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        let body = Body::Text(format!("{refused}\n").into_bytes());
        Self { status: refused.status, content_type: "text/plain; charset=utf-8", span: ALL, body }
    }
}

impl Call {
    /// Answers from an archive that has at least the [wanted](Self::wants) signals.
    #[must_use]
    pub fn answer(&self, source: &dyn Source) -> Answer {
        self.try_answer(source).unwrap_or_else(Answer::from)
    }

    fn try_answer(&self, source: &dyn Source) -> Result<Answer, Refused> {
        let json = |value: serde_json::Value| Answer {
            status: 200,
            content_type: "application/json",
            span: ALL,
            body: Body::Text(format!("{value}\n").into_bytes()),
        };
        Ok(match &self.0 {
            Kind::Data { format, asks, from, to, now, latest } => {
                let parts = asks.iter().map(|ask| part(source, ask)).collect::<Result<Vec<_>, _>>()?;
                let mut begin = *from;
                for (name, _) in &parts {
                    begin = begin.min(since(source, name, (*from, *to))?);
                }
                let body = Body::Data { format: *format, parts, from: *from, to: *to, now: *now, latest: *latest };
                Answer { status: 200, content_type: format.content_type(), span: (begin, *to), body }
            }
            Kind::AtTime { names, at, oldest } => {
                Answer { span: (*oldest, *at), ..json(at_time::at_time(source, names, *at, *oldest)?) }
            }
            Kind::Names { filter, limit, is_text: false } => json(matching(source, filter, *limit)?.into()),
            Kind::Names { filter, limit, is_text: true } => {
                let lines: String = matching(source, filter, *limit)?.iter().flat_map(|name| [name, "\n"]).collect();
                let body = Body::Text(lines.into_bytes());
                Answer { status: 200, content_type: "text/plain; charset=utf-8", span: ALL, body }
            }
            Kind::Version => json(json!({ "version": concat!("tahti ", env!("CARGO_PKG_VERSION")) })),
            Kind::Details(name) => json(details(source, name)?),
            Kind::Metadata(name) => json(metadata(source, name)?),
            Kind::IsArchived(name) => json(json!({ "status": resolve(source, name)?.is_some().to_string() })),
            Kind::Known(names) => {
                let mut known = Vec::new();
                for name in names {
                    if resolve(source, name)?.is_some() {
                        known.push(name.clone());
                    }
                }
                json(known.into())
            }
            Kind::Status { patterns, now } => json(status(source, patterns, *now)?),
        })
    }
}

/// Start of the span in which damage may change the answer for a signal. A request for an instant is answered by the newest sample at or before
/// it.
fn since(source: &dyn Source, name: &str, (from, to): (i64, i64)) -> Result<i64, crate::SourceError> {
    if from < to {
        return Ok(from);
    }
    Ok(source.at(name, from)?.map_or(i64::MIN, |sample| sample.at))
}

/// Damage that no row has reported. `reported` is the time of the last row that reported damage.
fn unreported(gaps: &[Gap], reported: Option<i64>) -> Vec<Gap> {
    let is_new = |gap: &&Gap| gap.cause == Cause::Damaged && reported.is_none_or(|at| gap.at > at);
    gaps.iter().filter(is_new).copied().collect()
}

/// The requested signal and the operator for it.
fn part(source: &dyn Source, ask: &Ask) -> Result<(String, Operator), Refused> {
    // A signal whose name looks like a post-processor call is taken literally.
    if ask.text != ask.name
        && let Some(name) = resolve(source, &ask.text)?
    {
        return Ok((name, Operator::Raw));
    }
    if let Some(refused) = &ask.refused {
        return Err(refused.clone());
    }
    let name = resolve(source, &ask.name)?.ok_or_else(|| Refused::unknown(&ask.name))?;
    suits(&source.rows(&name)?, &ask.text, ask.operator)?;
    Ok((name, ask.operator))
}

/// Refuses a post-processor for a signal that has never been numeric. Non-numeric periods of a numeric signal are skipped.
fn suits(rows: &[Signal], text: &str, operator: Operator) -> Result<(), Refused> {
    let is_strange = operator.needs_numbers() && !rows.iter().any(|row| row.kind.is_number());
    match rows.last().filter(|_| is_strange) {
        Some(row) => {
            let kind = row.kind;
            Err(Refused::bad(format!("{text:?}: values are {kind}; expected numbers, which the post-processor needs")))
        }
        None => Ok(()),
    }
}

/// Passes the result of a post-processor (such as `mean_60`) on a signal's samples to `take`. Both ends of the span are inclusive. `now` is the
/// latest time for which bins are filled.
///
/// # Errors
/// The post-processor does not exist or does not fit the signal, or the archive cannot be read.
pub fn processed(
    source: &dyn Source,
    (name, word): (&str, &str),
    (from, to): (i64, i64),
    now: i64,
    mut take: impl FnMut(Sample),
) -> Result<(), Failed> {
    let operator = Operator::read(word)?;
    operator.bounded(word, from, to)?;
    suits(&source.rows(name)?, name, operator)?;
    let asked = SignalRequest { source, name, from, to, now };
    asked.give(operator, &mut |row| {
        take(row.sample);
        Ok(())
    })
}

impl Answer {
    /// The whole body, if it has already been generated.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Text(bytes) => Some(bytes),
            Body::Data { .. } => None,
        }
    }

    /// Writes the body, from the archive that the answer was made from. Blocks on reading and writing.
    ///
    /// # Errors
    /// The answer ended early. The part written so far is incomplete.
    pub fn write(&self, source: &dyn Source, out: &mut dyn Write) -> Result<(), Failed> {
        let (format, parts, from, to, now, latest) = match &self.body {
            Body::Text(bytes) => return Ok(out.write_all(bytes)?),
            Body::Data { format, parts, from, to, now, latest } => (*format, parts, *from, *to, *now, *latest),
        };
        let mut writer = Writer::new(format, out);
        for (name, operator) in parts {
            let head = Head { name: name.clone(), rows: source.rows(name)?, latest, from };
            writer.signal(&head);
            let asked = SignalRequest { source, name, from, to, now };
            let mut reported = None;
            asked.give(*operator, &mut |row| {
                if is_damage(&row.fields) {
                    reported = Some(row.sample.at);
                }
                writer.row(&head, &row)
            })?;
            let gaps = source.gaps(name, since(source, name, (from, to))?, to)?;
            writer.signal_ends(&head, &gaps, &unreported(&gaps, reported));
        }
        writer.end()
    }
}
