//! The text formats of metrics: OpenMetrics 1.0, and the older format of Prometheus (0.0.4).

use base::DurNs;
use std::fmt::{self, Write as _};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0, which has units, states and exemplars.
    OpenMetrics,
    /// Prometheus 0.0.4.
    Prometheus,
}

impl Format {
    /// The format for an `accept` header.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        let is_open = |kind: &str| kind.trim().starts_with("application/openmetrics-text");
        match accept.is_some_and(|accept| accept.split(',').any(is_open)) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Its content type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
    /// Constant labels of the value 1.
    Info,
    /// One label value has the value 1, the others 0.
    StateSet,
}

/// A page of metrics. Families are written one after the other.
pub(crate) struct Page {
    format: Format,
    text: String,
    /// The present family, without suffix.
    name: String,
    kind: Kind,
}

/// A number as both formats write it.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            value if value.is_infinite() => f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" }),
            value => write!(f, "{value}"),
        }
    }
}

/// Seconds of a duration.
pub(crate) fn seconds(span: DurNs) -> f64 {
    span.0 as f64 / 1e9
}

impl Page {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, text: String::new(), name: String::new(), kind: Kind::Gauge }
    }

    /// Begins a family. `name` has the unit, but neither the prefix `tahti_` nor a suffix such as `_total`.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        (self.name, self.kind) = (format!("tahti_{name}"), kind);
        let is_open = self.format == Format::OpenMetrics;
        let suffix = match kind {
            _ if is_open => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Info if is_open => "info",
            Kind::StateSet if is_open => "stateset",
            Kind::Info | Kind::StateSet => "gauge",
        };
        let name = format!("{}{suffix}", self.name);
        let unit = ["seconds", "bytes", "ratio"].into_iter().find(|unit| self.name.ends_with(&format!("_{unit}")));
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if let Some(unit) = unit.filter(|_| is_open) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {help}");
    }

    /// A sample of the present family.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            _ => "",
        };
        self.line(suffix, labels, value);
        self.text.push('\n');
    }

    /// A sample of a counter with the last event that it counted: its labels, value, and time in seconds since 1970.
    pub(crate) fn sample_with(&mut self, labels: &[(&str, &str)], value: f64, last: (&[(&str, &str)], f64, f64)) {
        self.line("_total", labels, value);
        if self.format == Format::OpenMetrics {
            let (labels, value, at) = last;
            self.text.push_str(" # {");
            self.labels(labels);
            let _ = write!(self.text, "}} {} {at:.3}", Number(value));
        }
        self.text.push('\n');
    }

    /// The states of a family of states: one of `states` is `now`.
    pub(crate) fn states(&mut self, states: &[&str], now: &str) {
        let label = self.name.clone();
        for state in states {
            self.sample(&[(&label, state)], f64::from(u8::from(*state == now)));
        }
    }

    /// A histogram, from buckets in rising order: upper edge in nanoseconds, count. Its limits are powers of two from 1 µs to
    /// 0.134 s, which are edges of the buckets.
    pub(crate) fn histogram(&mut self, labels: &[(&str, &str)], buckets: &[(i64, u64)], beyond: u64, sum: DurNs) {
        let (mut left, mut count) = (buckets.iter().peekable(), 0);
        for limit in (10..=27).map(|power| 1_i64 << power) {
            while let Some((_, more)) = left.next_if(|(upper, _)| *upper <= limit) {
                count += more;
            }
            let limit = Number(limit as f64 / 1e9).to_string();
            self.line("_bucket", &[labels, &[("le", &limit)]].concat(), count as f64);
            self.text.push('\n');
        }
        count += left.map(|(_, more)| more).sum::<u64>() + beyond;
        for (suffix, more, value) in [
            ("_bucket", &[("le", "+Inf")][..], count as f64),
            ("_sum", &[], seconds(sum)),
            ("_count", &[], count as f64),
        ] {
            self.line(suffix, &[labels, more].concat(), value);
            self.text.push('\n');
        }
    }

    /// The whole text.
    pub(crate) fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        if !labels.is_empty() {
            self.text.push('{');
            self.labels(labels);
            self.text.push('}');
        }
        let _ = write!(self.text, " {}", Number(value));
    }

    fn labels(&mut self, labels: &[(&str, &str)]) {
        for (at, (name, value)) in labels.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(self.text, "{comma}{name}=\"");
            for one in value.chars() {
                match one {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    one => self.text.push(one),
                }
            }
            self.text.push('"');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_the_client_accepts() {
        let prometheus = "application/openmetrics-text; version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!([Format::accepted(Some("text/html,*/*")), Format::accepted(None)], [Format::Prometheus; 2]);
    }

    #[test]
    fn types_suffixes_and_states_follow_each_format() {
        let write = |format| {
            let mut page = Page::new(format);
            page.family("build", Kind::Info, "Version.");
            page.sample(&[("version", "1\"\\\n")], 1.0);
            page.family("plant_verdict", Kind::StateSet, "Verdict.");
            page.states(&["good", "failed"], "failed");
            page.family("process_cpu_seconds", Kind::Counter, "CPU.");
            page.sample_with(&[("process", "loop")], 1.5, (&[("cause", "timer")], 0.25, 1_795_473_165.1));
            page.end()
        };
        let open = "# TYPE tahti_build info\n# HELP tahti_build Version.\ntahti_build_info{version=\"1\\\"\\\\\\n\"} 1\n\
                    # TYPE tahti_plant_verdict stateset\n# HELP tahti_plant_verdict Verdict.\n\
                    tahti_plant_verdict{tahti_plant_verdict=\"good\"} 0\ntahti_plant_verdict{tahti_plant_verdict=\"failed\"} 1\n\
                    # TYPE tahti_process_cpu_seconds counter\n# UNIT tahti_process_cpu_seconds seconds\n\
                    # HELP tahti_process_cpu_seconds CPU.\n\
                    tahti_process_cpu_seconds_total{process=\"loop\"} 1.5 # {cause=\"timer\"} 0.25 1795473165.100\n# EOF\n";
        assert_eq!(write(Format::OpenMetrics), open);
        let old = "# TYPE tahti_build_info gauge\n# HELP tahti_build_info Version.\ntahti_build_info{version=\"1\\\"\\\\\\n\"} 1\n\
                   # TYPE tahti_plant_verdict gauge\n# HELP tahti_plant_verdict Verdict.\n\
                   tahti_plant_verdict{tahti_plant_verdict=\"good\"} 0\ntahti_plant_verdict{tahti_plant_verdict=\"failed\"} 1\n\
                   # TYPE tahti_process_cpu_seconds_total counter\n# HELP tahti_process_cpu_seconds_total CPU.\n\
                   tahti_process_cpu_seconds_total{process=\"loop\"} 1.5\n";
        assert_eq!(write(Format::Prometheus), old);
    }

    #[test]
    fn buckets_are_cumulative_and_those_beyond_the_limits_are_counted() {
        let mut page = Page::new(Format::OpenMetrics);
        page.family("x_seconds", Kind::Histogram, "X.");
        page.histogram(&[("loop", "a")], &[(1000, 3), (1055, 4), (1 << 27, 1), (1 << 30, 2)], 5, DurNs(2_500_000_000));
        let text = page.end();
        for line in [
            "tahti_x_seconds_bucket{loop=\"a\",le=\"0.000001024\"} 3",
            "tahti_x_seconds_bucket{loop=\"a\",le=\"0.000002048\"} 7",
            "tahti_x_seconds_bucket{loop=\"a\",le=\"0.134217728\"} 8",
            "tahti_x_seconds_bucket{loop=\"a\",le=\"+Inf\"} 15",
            "tahti_x_seconds_sum{loop=\"a\"} 2.5",
            "tahti_x_seconds_count{loop=\"a\"} 15",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.contains("_bucket")).count(), 19);
    }
}
