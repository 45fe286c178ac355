//! Delays over the time of the measurement; each opens its parts.

use crate::chart::{COLOURS, escaped};
use crate::{Spike, micros};
use base::DurNs;
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 22.0;
const BELOW: f64 = 34.0;
const ABOVE: f64 = 12.0;

/// A drawing of the spikes of several rows, each with color number and name, and the parts of each below; empty without spikes. `id` is
/// unique on the page.
pub(crate) fn timeline(series: &[(usize, String, &[Spike])], id: usize) -> String {
    let all = || series.iter().flat_map(|(.., spikes)| spikes.iter());
    let Some(axes) = Axes::of(all()) else { return String::new() };
    let mut svg = format!(
        "<figure class=\"spikes\"><figcaption>the longest delays over the time of the measurement: select one to see its causes</figcaption>\n\
         <svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"group\" aria-label=\"delays over time\">\n"
    );
    axes.grid(&mut svg);
    let mut parts = String::new();
    for (nth, name, spikes) in series {
        let _ = write!(svg, "<g class=\"series s{}\" data-series=\"{nth}\">", nth % COLOURS);
        for (place, spike) in spikes.iter().enumerate() {
            let key = format!("spike-{id}-{nth}-{place}");
            let (x, y, head) = (axes.x(spike.at_ns), axes.y(spike.late_ns), headline(name, spike));
            let _ = write!(
                svg,
                "<a href=\"#{key}\"><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{:.1}\"/><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">\
                 <title>{} us late</title></circle></a>",
                HEIGHT - BELOW,
                escaped(&micros(time(spike.late_ns)))
            );
            breakdown(&mut parts, &key, &head, spike);
        }
        svg.push_str("</g>\n");
    }
    format!(
        "{svg}</svg>\n<details class=\"breakdowns\"><summary>all delays with their causes</summary>\n{parts}</details></figure>\n"
    )
}

/// A spike in a line: delay, time, main cause.
fn headline(name: &str, spike: &Spike) -> String {
    let cause = spike.parts.first().map_or(String::new(), |(culprit, _)| format!(": {culprit}"));
    format!("{} us late at {:.3} s, {name}{cause}", micros(time(spike.late_ns)), spike.at_ns as f64 / 1e9)
}

fn breakdown(out: &mut String, key: &str, head: &str, spike: &Spike) {
    let parts: Vec<String> =
        spike.parts.iter().map(|(culprit, ns)| format!("{} us {}", micros(time(*ns)), escaped(culprit))).collect();
    let _ = writeln!(out, "<details id=\"{key}\"><summary>{}</summary>{}</details>", escaped(head), parts.join("<br>"));
}

fn time(ns: u64) -> DurNs {
    DurNs(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// The longest, in lines, with their causes.
pub(crate) fn lines(spikes: &[Spike], max: usize) -> Vec<String> {
    let mut worst: Vec<&Spike> = spikes.iter().collect();
    worst.sort_by_key(|spike| std::cmp::Reverse(spike.late_ns));
    let parts = |spike: &Spike| -> Vec<String> {
        spike.parts.iter().map(|(culprit, ns)| format!("{} us {culprit}", micros(time(*ns)))).collect()
    };
    let line = |spike: &Spike| {
        let at = spike.at_ns as f64 / 1e9;
        format!("{} us late at {at:.3} s: {}", micros(time(spike.late_ns)), parts(spike).join(", "))
    };
    worst.into_iter().take(max).map(line).collect()
}

/// Time of the measurement, and decades of delay.
struct Axes {
    until_ns: f64,
    from: f64,
    to: f64,
}

fn decades(ns: u64) -> f64 {
    (ns.max(1) as f64).log10()
}

impl Axes {
    fn of<'a>(all: impl Iterator<Item = &'a Spike> + Clone) -> Option<Self> {
        let min = all.clone().map(|spike| decades(spike.late_ns)).reduce(f64::min)?.floor();
        let max = all.clone().map(|spike| decades(spike.late_ns)).fold(min, f64::max).ceil().max(min + 1.0);
        let until = all.map(|spike| spike.at_ns).max()?.max(1);
        Some(Self { until_ns: until as f64, from: min, to: max })
    }

    fn x(&self, at_ns: u64) -> f64 {
        LEFT + at_ns as f64 / self.until_ns * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, late_ns: u64) -> f64 {
        let room = HEIGHT - BELOW - ABOVE;
        HEIGHT - BELOW - room * (decades(late_ns) - self.from) / (self.to - self.from)
    }

    fn grid(&self, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for decade in self.from as i64..=self.to as i64 {
            let ns = 10f64.powi(decade as i32);
            let y = self.y(ns as u64);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                crate::chart::time(ns)
            );
        }
        for quarter in 0..=4u64 {
            let at = (self.until_ns / 4.0 * quarter as f64) as u64;
            let x = self.x(at);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{ABOVE}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
                bottom + 16.0,
                crate::short(at as f64 / 1e9)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spike(at_ns: u64, late_ns: u64) -> Spike {
        Spike { at_ns, late_ns, parts: vec![("softirq <BLOCK>".into(), late_ns - 2), ("timer interrupt".into(), 2)] }
    }

    #[test]
    fn each_spike_links_to_its_parts() {
        let spikes = [spike(0, 90_000), spike(2_000_000_000, 1_500_000)];
        let drawn = timeline(&[(0, "open".into(), &spikes[..]), (1, "shielded".into(), &spikes[..1])], 7);
        for key in ["spike-7-0-0", "spike-7-0-1", "spike-7-1-0"] {
            assert!(drawn.contains(&format!("href=\"#{key}\"")) && drawn.contains(&format!("id=\"{key}\"")), "{drawn}");
        }
        assert!(drawn.contains("1500 us late at 2.000 s, open: softirq &lt;BLOCK&gt;"), "{drawn}");
        assert!(!drawn.contains("NaN") && !drawn.contains("inf") && !drawn.contains("<BLOCK>"));
        assert_eq!(timeline(&[(0, "open".into(), &[])], 1), "");
        assert_eq!(lines(&spikes, 1), ["1500 us late at 2.000 s: 1500 us softirq <BLOCK>, 0.00 us timer interrupt"]);
    }

    #[test]
    fn spikes_with_extreme_numbers_are_drawn() {
        let strange = [
            Spike { at_ns: u64::MAX, late_ns: 0, parts: Vec::new() },
            Spike { at_ns: 0, late_ns: u64::MAX, parts: Vec::new() },
        ];
        let drawn = timeline(&[(0, "strange".into(), &strange[..])], 0);
        assert!(drawn.contains("<circle") && !drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }
}
