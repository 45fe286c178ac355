//! Histograms as a drawing: time and samples on logarithmic scales, with a mark at the maximum.

use crate::{Latency, micros};
use base::DurNs;
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 22.0;
const BELOW: f64 = 34.0;
const ABOVE: f64 = 12.0;
/// Steps of a line, limited to keep the page small.
const STEPS: usize = 160;
/// Number of colors of the page.
pub(crate) const COLOURS: usize = 6;

/// A drawing of several histograms, each with its name; empty if none has samples.
pub(crate) fn chart(series: &[(String, &Latency)]) -> String {
    let Some(axes) = Axes::of(series) else { return String::new() };
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"histograms of latencies\">\n"
    );
    axes.grid(&mut svg);
    for (nth, (name, latency)) in series.iter().enumerate() {
        axes.line(&mut svg, nth, name, latency);
    }
    svg + "</svg>\n"
}

/// Decades of nanoseconds and of samples.
struct Axes {
    from: f64,
    to: f64,
    max: f64,
}

/// The logarithm of a time; times below 1 ns count as 1 ns.
fn decades(ns: i64) -> f64 {
    (ns.max(1) as f64).log10()
}

impl Axes {
    fn of(series: &[(String, &Latency)]) -> Option<Self> {
        let buckets = || series.iter().flat_map(|(_, latency)| &latency.buckets);
        let min = buckets().map(|(low, _, _)| decades(*low)).reduce(f64::min)?;
        let longest = series.iter().filter_map(|(_, latency)| latency.max_ns).map(decades);
        let max = buckets().map(|(_, high, _)| decades(*high)).chain(longest).reduce(f64::max)?;
        let mut axes = Self { from: min.floor(), to: max.ceil().max(min.floor() + 1.0), max: 1.0 };
        let counts = series.iter().flat_map(|(_, latency)| axes.steps(latency));
        axes.max = counts.fold(1.0f64, |max, count| max.max(count.max(1.0).log10())).ceil();
        Some(axes)
    }

    fn x(&self, decade: f64) -> f64 {
        LEFT + (decade - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }

    /// One sample is slightly above the axis.
    fn y(&self, count: f64) -> f64 {
        let room = HEIGHT - BELOW - ABOVE;
        if count < 1.0 { HEIGHT - BELOW } else { HEIGHT - BELOW - room * (0.06 + 0.94 * count.log10() / self.max) }
    }

    /// Samples in each step of the axis.
    fn steps(&self, latency: &Latency) -> Vec<f64> {
        let mut steps = vec![0.0; STEPS];
        for (low, _, count) in &latency.buckets {
            let place = (decades(*low) - self.from) / (self.to - self.from) * STEPS as f64;
            steps[(place.max(0.0) as usize).min(STEPS - 1)] += *count as f64;
        }
        steps
    }

    fn grid(&self, svg: &mut String) {
        let bottom = HEIGHT - BELOW;
        for decade in self.from as i64..=self.to as i64 {
            let x = self.x(decade as f64);
            let label = time(10f64.powi(decade as i32));
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{ABOVE}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 16.0
            );
        }
        for decade in 0..=self.max as i64 {
            let (count, right) = (10f64.powi(decade as i32), WIDTH - RIGHT);
            let y = self.y(count);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{count:.0}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
    }

    fn line(&self, svg: &mut String, nth: usize, name: &str, latency: &Latency) {
        let steps = self.steps(latency);
        let width = (self.to - self.from) / STEPS as f64;
        let mut path = format!("M{LEFT:.1} {:.1}", HEIGHT - BELOW);
        let mut last = 0.0;
        for (place, count) in steps.iter().enumerate() {
            if *count != last {
                let x = self.x(self.from + place as f64 * width);
                let _ = write!(path, "H{x:.1}V{:.1}", self.y(*count));
                last = *count;
            }
        }
        if last != 0.0 {
            let _ = write!(path, "H{:.1}V{:.1}", WIDTH - RIGHT, HEIGHT - BELOW);
        }
        let colour = nth % COLOURS;
        let _ = write!(svg, "<g class=\"series s{colour}\" data-series=\"{nth}\"><path d=\"{path}\"/>");
        if let Some(max) = latency.max_ns {
            let (x, longest) = (self.x(decades(max)), micros(DurNs(max)));
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: maximum {longest} us</title></circle>",
                self.y(1.0),
                escaped(name)
            );
        }
        svg.push_str("</g>\n");
    }
}

/// A rounded time.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.0} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.0} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.0} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Text escaped for HTML and XML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            // XML cannot represent them.
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Histogram;

    #[test]
    fn control_characters_which_xml_cannot_have_are_replaced() {
        assert_eq!(escaped("a\x1b[1m<b>\0\n"), "a\u{fffd}[1m&lt;b&gt;\u{fffd}\n");
    }

    #[test]
    fn every_histogram_is_drawn_with_its_maximum() {
        let mut hist = Histogram::new();
        (1..2000).for_each(|us| hist.record(DurNs::from_us(us)));
        let latency = Latency::from(&hist);
        let svg = chart(&[("<open>".into(), &latency), ("shielded".into(), &latency)]);
        assert_eq!(svg.matches("<path").count(), 2);
        assert!(svg.contains("&lt;open&gt;: maximum 1999 us"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(chart(&[("none".into(), &Latency::default())]), "");
    }

    #[test]
    fn a_histogram_with_extreme_numbers_is_drawn() {
        let strange = Latency {
            buckets: vec![(i64::MIN, i64::MAX, u64::MAX), (5, 3, 0)],
            max_ns: Some(-1),
            ..Latency::default()
        };
        let svg = chart(&[("strange".into(), &strange)]);
        assert!(svg.contains("<path") && !svg.contains("NaN"), "{svg}");
    }
}
