//! A simple archive in memory.

use appliance::{Answer, Call, Method, Request, Samples, Source, SourceError};
use segment::rows::{About, Gap, Signal};
use segment::{Sample, Summary};
use std::collections::BTreeMap;

pub(crate) const SECOND: i64 = 1_000_000_000;
/// 2026-11-23T12:00:00Z.
pub(crate) const NOON: i64 = 1_795_435_200 * SECOND;

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) signals: BTreeMap<String, (Vec<Signal>, Vec<Sample>)>,
    pub(crate) gaps: Vec<Gap>,
}

impl Model {
    /// An archive with one signal.
    pub(crate) fn of(name: &str, samples: Vec<Sample>) -> Self {
        let mut model = Self::default();
        model.add(name, About::default(), samples);
        model
    }

    pub(crate) fn add(&mut self, name: &str, about: About, samples: Vec<Sample>) {
        let kind = samples.first().map_or(segment::Kind::Number(base::FieldType::F64), |first| first.datum.kind());
        let row = Signal { id: 0, since: i64::MIN, kind, name: name.into(), about };
        self.signals.insert(name.into(), (vec![row], samples));
    }

    /// An archive with `count` samples, one per second from noon: 0, 1, 2, …
    pub(crate) fn counting(name: &str, count: i64) -> Self {
        Self::of(name, (0..count).map(|k| Sample::new(NOON + k * SECOND, k as f64)).collect())
    }

    pub(crate) fn ask(&self, path: &str, query: &str) -> Answer {
        self.request(&Request { method: Method::Get, path, query, body: b"" })
    }

    /// Answers a request. The clock is at one hour after noon.
    pub(crate) fn request(&self, request: &Request<'_>) -> Answer {
        Call::read(request, NOON + 3_600 * SECOND).map_or_else(Answer::from, |call| call.answer(self))
    }

    pub(crate) fn body(&self, answer: &Answer) -> Vec<u8> {
        let mut out = Vec::new();
        answer.write(self, &mut out).unwrap();
        out
    }

    /// The body of a successful answer.
    pub(crate) fn bytes(&self, path: &str, query: &str) -> Vec<u8> {
        let answer = self.ask(path, query);
        let bytes = self.body(&answer);
        assert_eq!(answer.status, 200, "{path}?{query}: {}", String::from_utf8_lossy(&bytes));
        bytes
    }

    pub(crate) fn json(&self, path: &str, query: &str) -> serde_json::Value {
        let bytes = self.bytes(path, query);
        serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&bytes)))
    }

    /// The samples of an answer in JSON: seconds since noon, and values.
    pub(crate) fn points(&self, pv: &str, from: i64, to: i64) -> Vec<(f64, serde_json::Value)> {
        let query = format!("pv={pv}&from={}&to={}", clock(from), clock(to));
        let json = self.json("/retrieval/data/getData.json", &query);
        let since = |row: &serde_json::Value| {
            (row["secs"].as_i64().unwrap() - NOON / SECOND) as f64 + row["nanos"].as_i64().unwrap() as f64 / 1e9
        };
        json[0]["data"].as_array().unwrap().iter().map(|row| (since(row), row["val"].clone())).collect()
    }

    /// As [`Self::points`], if all values are numbers.
    pub(crate) fn numbers(&self, pv: &str, from: i64, to: i64) -> Vec<(f64, f64)> {
        self.points(pv, from, to).into_iter().map(|(at, value)| (at, value.as_f64().unwrap_or(f64::NAN))).collect()
    }
}

/// A second after noon, in the format of requests.
pub(crate) fn clock(second: i64) -> String {
    let second = second + 12 * 3_600;
    let (day, second) = (23 + second.div_euclid(86_400), second.rem_euclid(86_400));
    format!("2026-11-{day:02}T{:02}:{:02}:{:02}.000Z", second / 3_600, second / 60 % 60, second % 60)
}

impl Source for Model {
    fn names(&self) -> Result<Vec<String>, SourceError> {
        Ok(self.signals.keys().cloned().collect())
    }

    fn rows(&self, name: &str) -> Result<Vec<Signal>, SourceError> {
        Ok(self.signals.get(name).map(|(rows, _)| rows.clone()).unwrap_or_default())
    }

    fn span(&self, name: &str) -> Result<Option<(i64, i64)>, SourceError> {
        let samples = &self.signals[name].1;
        Ok(samples.first().zip(samples.last()).map(|(first, last)| (first.at, last.at)))
    }

    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, SourceError> {
        Ok(self.signals[name].1.iter().rev().find(|sample| sample.at <= at).cloned())
    }

    fn samples(&self, name: &str, from: i64, to: i64) -> Result<Samples<'_>, SourceError> {
        let inside = move |sample: &&Sample| (from..=to).contains(&sample.at);
        Ok(Box::new(self.signals[name].1.iter().filter(inside).cloned().map(Ok)))
    }

    fn bins(&self, name: &str, from: i64, width: i64, count: usize) -> Result<Vec<(i64, Summary)>, SourceError> {
        assert_eq!(from.rem_euclid(width), 0, "a multiple of the width");
        let mut bins: BTreeMap<i64, Summary> = BTreeMap::new();
        for sample in self.samples(name, from, from.saturating_add(width * count as i64 - 1))? {
            let sample = sample?;
            let Some(value) = sample.datum.to_f64() else { continue };
            let begin = sample.at.div_euclid(width) * width;
            bins.entry(begin).or_default().add(sample.at, value, sample.severity);
        }
        Ok(bins.into_iter().collect())
    }

    fn gaps(&self, _: &str, from: i64, to: i64) -> Result<Vec<Gap>, SourceError> {
        Ok(self.gaps.iter().filter(|gap| (from..=to).contains(&gap.at)).copied().collect())
    }
}
