//! Prints captures as text.

use super::options::{Args, Window};
use super::visible;
use ::scope::{Capture, cursors, measure, plot, spectrum};
use rt::Number;
use rt::scope::marks;

/// Width and height of a plot in characters.
const SIZE: (usize, usize) = (72, 8);
/// Maximum number of spectral lines that are printed.
const LINES: usize = 3;

/// Prints a capture: its description, and for each variable the trace, the measurements and the other requested
/// results.
pub(super) fn capture(args: &Args, capture: &Capture, what: &str) {
    println!("{}", headline(capture, what));
    for (index, channel) in capture.channels.iter().enumerate() {
        let unit = if channel.unit.is_empty() { String::new() } else { format!(" [{}]", channel.unit) };
        println!("{}{}", visible(&channel.name), visible(&unit));
        if !args.no_plot {
            plot(capture, index, span(args, capture), SIZE).iter().for_each(|line| println!("  {line}"));
        }
        measured(args, capture, index);
    }
}

/// The range of rows to plot.
fn span(args: &Args, capture: &Capture) -> (usize, usize) {
    args.zoom.map_or((0, capture.len()), |zoom| capture.rows_between(zoom))
}

fn headline(capture: &Capture, what: &str) -> String {
    let seconds = capture.seconds();
    let (first, last) = (seconds.first().copied().unwrap_or(0.0), seconds.last().copied().unwrap_or(0.0));
    let why = match capture.trigger() {
        Some(row) => format!("{} at pulse {}", visible(&capture.cause), capture.pulses[row]),
        None => "no trigger".to_owned(),
    };
    let of = |mark: u64| capture.marks.iter().filter(|marks| *marks & mark != 0).count();
    let mut line = format!("{what}: {why}, {} rows from {} to {}", capture.len(), time(first), time(last));
    for (mark, word) in [(marks::MISS, "deadline misses"), (marks::FAULT, "faults")] {
        if of(mark) > 0 {
            line += &format!(", {word}: {}", of(mark));
        }
    }
    if capture.missing() > 0 {
        line += &format!(", skipped pulses: {}", capture.missing());
    }
    line
}

fn measured(args: &Args, capture: &Capture, index: usize) {
    let Some(found) = measure(capture, index) else { return println!("  no numbers") };
    let hertz = found.frequency.map(|hertz| format!("  frequency {} Hz", short(hertz))).unwrap_or_default();
    println!(
        "  min {}  mean {}  max {}  peak to peak {}  RMS {}{hertz}",
        short(found.min),
        short(found.mean),
        short(found.max),
        short(found.peak_to_peak()),
        short(found.rms)
    );
    if let Some(two) = args.cursors.and_then(|at| cursors(capture, index, at)) {
        let rate = if two.time() == 0.0 { "-".to_owned() } else { short(1.0 / two.time()) };
        println!(
            "  cursors: {} at {} (pulse {}), {} at {} (pulse {}); {} in {}, {rate} Hz",
            short(two.values.0),
            time(two.seconds.0),
            two.pulses.0,
            short(two.values.1),
            time(two.seconds.1),
            two.pulses.1,
            short(two.difference()),
            time(two.time())
        );
    }
    if args.fft {
        transformed(args, capture, index);
    }
}

/// Prints the highest peaks of a spectrum.
fn transformed(args: &Args, capture: &Capture, index: usize) {
    let window = match args.window {
        Window::Rectangle => ::scope::Window::Rectangle,
        Window::Hann => ::scope::Window::Hann,
        Window::FlatTop => ::scope::Window::FlatTop,
    };
    let Some(found) = spectrum(capture, index, window) else {
        return println!("  spectrum: none of fewer than 8 rows, or of rows that are no numbers");
    };
    let lines = &found.amplitudes;
    let is_peak =
        |line: &usize| lines[*line] >= lines[line - 1] && lines.get(line + 1).is_none_or(|next| lines[*line] > *next);
    let mut peaks: Vec<usize> = (1..lines.len()).filter(is_peak).collect();
    peaks.sort_by(|a, b| lines[*b].total_cmp(&lines[*a]));
    if peaks.is_empty() {
        return println!("  spectrum of {} rows: no line is above its neighbours", found.rows);
    }
    let named = peaks
        .iter()
        .take(LINES)
        .map(|line| format!("{} at {} Hz", short(lines[*line]), short(*line as f64 * found.resolution)));
    let gaps = if capture.missing() > 0 { "; blurred, because pulses are missing" } else { "" };
    println!(
        "  spectrum of {} rows, {} Hz a line: {}{gaps}",
        found.rows,
        short(found.resolution),
        named.collect::<Vec<_>>().join(", ")
    );
}

/// A number with five decimals, without trailing zeros; a very small or large one with an exponent.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) {
        let text = format!("{value:.5}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    format!("{value:.4e}")
}

pub(super) fn number(value: Number) -> String {
    match value {
        Number::Float(value) => short(value),
        Number::Int(value) => value.to_string(),
        Number::Bool(value) => value.to_string(),
    }
}

/// A time in seconds, printed with a suitable unit.
fn time(seconds: f64) -> String {
    let (scale, unit) = match seconds.abs() {
        size if size >= 1.0 || size == 0.0 => (1.0, "s"),
        size if size >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "us"),
    };
    format!("{} {unit}", short((seconds * scale * 1e3).round() / 1e3))
}
