//! Parsed requests.

use crate::format::Format;
use crate::operator::{self, Operator};
use crate::query::{self, Query};
use crate::{Refused, instant};

/// Maximum signals per request.
const NAMES_MAX: usize = 1_000;
/// Maximum patterns per request that are matched against all names.
const PATTERNS_MAX: usize = 100;
const HOUR: i64 = 3_600_000_000_000;

/// Supported HTTP methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST, for read-only requests with a body.
    Post,
}

/// A request as received.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// HTTP method.
    pub method: Method,
    /// Path.
    pub path: &'a str,
    /// Query string, after the question mark.
    pub query: &'a str,
    /// Body.
    pub body: &'a [u8],
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Call(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Samples.
    Data {
        format: Format,
        asks: Vec<Ask>,
        from: i64,
        to: i64,
        now: i64,
        latest: bool,
    },
    /// Newest sample of each signal at or before an instant, unless it is older than `oldest`.
    AtTime {
        names: Vec<String>,
        at: i64,
        oldest: i64,
    },
    /// Names of signals, as lines of text or as JSON.
    Names {
        filter: Filter,
        limit: usize,
        is_text: bool,
    },
    Version,
    Metadata(String),
    Details(String),
    IsArchived(String),
    /// The existing ones of these names.
    Known(Vec<String>),
    Status {
        patterns: Vec<String>,
        now: i64,
    },
}

/// Filter for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Names that the regular expression matches completely.
    Expression(String),
    /// Names that match one of these patterns with `*` and `?`.
    Globs(Vec<String>),
}

/// A signal, and the post-processor for its samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    /// Text as received.
    pub(crate) text: String,
    /// Name without the post-processor.
    pub(crate) name: String,
    pub(crate) operator: Operator,
    /// Error to report if the text is not the name of a signal either.
    pub(crate) refused: Option<Refused>,
}

/// Possible names of a signal in the archive, most likely first.
#[must_use]
pub fn candidates(name: &str) -> [String; 3] {
    let name = ["pva://", "ca://"].iter().find_map(|protocol| name.strip_prefix(protocol)).unwrap_or(name);
    let stem = name.strip_suffix(".VAL").unwrap_or(name);
    [name.to_owned(), stem.to_owned(), format!("{stem}.VAL")]
}

impl Ask {
    fn read(text: &str, processor: Option<&str>) -> Result<Self, Refused> {
        let (word, name) = match (operator::split(text), processor) {
            (Some((word, name)), _) => (Some(word), name),
            (None, word) => (word.map(str::to_owned), text),
        };
        let (operator, refused) = match word.as_deref().map(Operator::read) {
            None => (Operator::Raw, None),
            Some(Ok(operator)) => (operator, None),
            Some(Err(refused)) if name == text => return Err(refused),
            // Signal names may contain brackets.
            Some(Err(refused)) => (Operator::Raw, Some(refused)),
        };
        Ok(Self { text: text.to_owned(), name: name.to_owned(), operator, refused })
    }

    fn wants(&self, name: &str) -> bool {
        candidates(&self.name).iter().any(|known| known == name)
            || candidates(&self.text).iter().any(|known| known == name)
    }
}

impl Call {
    /// Parses a request. `now` is the wall clock in nanoseconds since 1970.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn read(request: &Request<'_>, now: i64) -> Result<Self, Refused> {
        let query = Query::read(request.query)?;
        let path = request.path;
        let inner = ["/retrieval/", "/mgmt/"].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or_default();
        let known = match inner.split_once('/') {
            Some(("data", file)) => data(request, &query, file, now)?,
            Some(("bpl", verb)) => bpl(request, &query, verb, now)?,
            _ => None,
        };
        known.map(Self).ok_or_else(|| Refused {
            status: 404,
            why: format!(
                "there is nothing at {path}; expected /retrieval/data/getData.json?pv=NAME or /retrieval/bpl/getMatchingPVs?pv=*"
            ),
        })
    }

    /// The samples of this signal are needed. Names are always needed.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        let is_one = |wanted: &str| candidates(wanted).iter().any(|known| known == name);
        match &self.0 {
            Kind::Data { asks, .. } => asks.iter().any(|ask| ask.wants(name)),
            Kind::AtTime { names, .. } => names.iter().any(|wanted| is_one(wanted)),
            Kind::Metadata(wanted) | Kind::Details(wanted) | Kind::IsArchived(wanted) => is_one(wanted),
            Kind::Status { patterns, .. } => {
                patterns.iter().any(|pattern| is_one(pattern) || base::glob(pattern, name))
            }
            Kind::Names { .. } | Kind::Version | Kind::Known(_) => false,
        }
    }
}

/// Parses requests below `data/`.
fn data(request: &Request<'_>, query: &Query, file: &str, now: i64) -> Result<Option<Kind>, Refused> {
    let (verb, ending) = file.split_once('.').unwrap_or((file, ""));
    match verb {
        "getDataAtTime" => return at_time(request, query, now).map(Some),
        "getData" | "getDataForPVs" => {}
        _ => return Ok(None),
    }
    let is_one = verb == "getData";
    let format = Format::of(ending).filter(|format| is_one || format.takes_several()).ok_or_else(|| {
        let expected = if is_one { "raw, json, qw, csv, txt" } else { "raw, json, qw" };
        Refused::bad(format!("{file:?} has the format {ending:?}; expected one of {expected}"))
    })?;
    let mut names: Vec<String> = query.all("pv").map(str::to_owned).collect();
    if request.method == Method::Post {
        names.extend(query::names(request.body)?);
    }
    if names.is_empty() || (is_one && names.len() > 1) {
        let found = names.len();
        let expected = if is_one { "one, as pv=NAME; getDataForPVs takes several" } else { "pv=NAME for each" };
        return Err(Refused::bad(format!("the request names {found} signals; expected {expected}")));
    }
    limited(&names)?;
    let (from, to) = span(query, now)?;
    let processor = query.get("pp").or_else(|| query.is_on("usereduced").then_some("firstSample"));
    let asks = names.iter().map(|name| Ask::read(name, processor)).collect::<Result<Vec<_>, _>>()?;
    for ask in &asks {
        ask.operator.bounded(&ask.text, from, to)?;
    }
    let latest = query.is_on("fetchLatestMetadata");
    Ok(Some(Kind::Data { format, asks, from, to, now, latest }))
}

fn limited(names: &[String]) -> Result<(), Refused> {
    if names.len() > NAMES_MAX {
        let found = names.len();
        return Err(Refused::bad(format!("the request names {found} signals; expected at most {NAMES_MAX}")));
    }
    Ok(())
}

fn few_patterns(patterns: &[String]) -> Result<(), Refused> {
    let found = patterns.iter().filter(|pattern| pattern.contains(['*', '?'])).count();
    if found > PATTERNS_MAX {
        let why = format!("the request has {found} patterns with * or ?; expected at most {PATTERNS_MAX}");
        return Err(Refused::bad(why));
    }
    Ok(())
}

fn instant_of(query: &Query, name: &str) -> Result<Option<i64>, Refused> {
    let read = |text: &str| {
        instant::parse(text).ok_or_else(|| {
            Refused::bad(format!("{name}={text:?} is no instant; expected one such as 2026-11-23T14:30:05.000Z"))
        })
    };
    query.get(name).map(read).transpose()
}

/// Requested span. By default it ends one hour after `now`, for clients with a fast clock, and begins 24 hours before its end.
fn span(query: &Query, now: i64) -> Result<(i64, i64), Refused> {
    let to = instant_of(query, "to")?.unwrap_or(now.saturating_add(HOUR));
    let from = instant_of(query, "from")?.unwrap_or(to.saturating_sub(24 * HOUR));
    if to < from {
        return Err(Refused::bad(format!(
            "to={} is before from={}; expected the earlier one as from",
            instant::show(to),
            instant::show(from)
        )));
    }
    Ok((from, to))
}

fn at_time(request: &Request<'_>, query: &Query, now: i64) -> Result<Kind, Refused> {
    if request.method != Method::Post {
        let why =
            "getDataAtTime takes names in its body; expected a POST with a JSON list such as [\"A\", \"B\"]".into();
        return Err(Refused { status: 405, why });
    }
    let at = instant_of(query, "at")?.unwrap_or(now);
    let period = query.get("searchPeriod").unwrap_or("P1D");
    let back = instant::parse_span(period).ok_or_else(|| {
        Refused::bad(format!("searchPeriod={period:?} is no span of time; expected one such as P5D or PT12H"))
    })?;
    let names = query::names(request.body)?;
    limited(&names)?;
    Ok(Kind::AtTime { names, at, oldest: at.saturating_sub(back) })
}

/// Parses requests below `bpl/`.
fn bpl(request: &Request<'_>, query: &Query, verb: &str, now: i64) -> Result<Option<Kind>, Refused> {
    let one = || {
        let found = query.get("pv").filter(|name| !name.is_empty());
        found.map(str::to_owned).ok_or_else(|| Refused::bad(format!("{verb} names no signal; expected pv=NAME")))
    };
    let several = || -> Result<Vec<String>, Refused> {
        let mut names: Vec<String> = query.all("pv").flat_map(|text| text.split(',').map(str::to_owned)).collect();
        if request.method == Method::Post {
            names.extend(query::names(request.body)?);
        }
        limited(&names)?;
        Ok(names)
    };
    Ok(Some(match verb {
        "getVersion" | "getVersions" => Kind::Version,
        "getMatchingPVs" => Kind::Names { filter: filter(query)?, limit: limit(query, 500)?, is_text: false },
        "getAllPVs" => Kind::Names { filter: filter(query)?, limit: limit(query, usize::MAX)?, is_text: false },
        "searchForPVsRegex" => Kind::Names { filter: filter(query)?, limit: usize::MAX, is_text: true },
        "getMetadata" | "getPVTypeInfo" => Kind::Metadata(one()?),
        "getPVDetails" => Kind::Details(one()?),
        "areWeArchivingPV" => Kind::IsArchived(one()?),
        "filterArchivedPVs" => Kind::Known(several()?),
        "getPVStatus" => {
            let patterns = several()?;
            if patterns.is_empty() {
                return Err(Refused::bad("getPVStatus names no signal; expected pv=NAME, with * and ? for several"));
            }
            few_patterns(&patterns)?;
            Kind::Status { patterns, now }
        }
        _ => return Ok(None),
    }))
}

fn filter(query: &Query) -> Result<Filter, Refused> {
    match (query.get("regex"), query.get("pv")) {
        (Some(expression), _) => {
            expression_of(expression)?;
            Ok(Filter::Expression(expression.to_owned()))
        }
        (None, Some(patterns)) => {
            let patterns: Vec<String> = patterns.split(',').map(str::to_owned).collect();
            limited(&patterns)?;
            few_patterns(&patterns)?;
            Ok(Filter::Globs(patterns))
        }
        (None, None) => Ok(Filter::Globs(vec!["*".into()])),
    }
}

/// A regular expression that matches whole names. The engine does not backtrack: with the worst expressions that these limits permit, 100,000
/// names take 0.1 s (measured on one CPU).
pub(crate) fn expression_of(text: &str) -> Result<regex::Regex, Refused> {
    const LEN_MAX: usize = 1_000;
    const COMPILED_BYTES_MAX: usize = 256 << 10;
    const NESTED_MAX: u32 = 50;
    if text.len() > LEN_MAX {
        let found = text.len();
        return Err(Refused::bad(format!("the regular expression has {found} bytes; expected at most {LEN_MAX}")));
    }
    let mut builder = regex::RegexBuilder::new(&format!("^(?:{text})$"));
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).nest_limit(NESTED_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => Refused::bad(format!(
            "the regular expression {text:?} needs more than {COMPILED_BYTES_MAX} bytes; expected fewer or smaller repetitions"
        )),
        error => {
            // The previous lines show the expression with a mark below it.
            let why = error.to_string();
            let why = why.lines().next_back().unwrap_or_default();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            Refused::bad(format!(
                "{text:?} is no regular expression: {why}; expected one without back-references and look-around"
            ))
        }
    })
}

fn limit(query: &Query, other: usize) -> Result<usize, Refused> {
    let Some(text) = query.get("limit") else { return Ok(other) };
    match text.parse::<i64>() {
        Ok(-1) => Ok(usize::MAX),
        Ok(count) if count >= 0 => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        _ => Err(Refused::bad(format!("limit={text:?}; expected a number, or -1 for all"))),
    }
}
