//! Rendering of a capture as a binary message: an envelope of the visible part, not its rows.

use super::desk::LabelledCapture;
use crate::refused::Refused;
use scope::{Capture, Operation, Persistence, Window, cursors, envelope, maths, measure, spectrum};
use serde::Deserialize;
use serde_json::{Value, json};

/// Type of a binary message with a picture.
const PICTURE: u8 = 2;
/// Maximum columns of an envelope.
const COLUMNS_MAX: u16 = 2000;
/// Maximum computed channels.
const MATHS_MAX: usize = 4;
/// Maximum points of an XY plot.
const POINTS_MAX: usize = 2000;
/// Columns and rows of a persistence plot.
const GRID: (usize, usize) = (300, 120);

/// The view that a client has requested.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct View {
    /// Number of the capture; default: the newest.
    pub capture: Option<u32>,
    /// Time window in seconds relative to the trigger; default: the whole capture.
    pub window: Option<(f64, f64)>,
    /// Maximum columns of the envelope, 1 to 2000.
    pub columns: u16,
    /// Cursors: two times relative to the trigger.
    pub cursors: Option<(f64, f64)>,
    /// Spectrum with the window `rectangle`, `hann` or `flat-top`.
    pub fft: Option<String>,
    /// Persistence plot of this channel over all captures that have it.
    pub persistence: Option<usize>,
    /// XY plot of two channels: x and y.
    pub xy: Option<(usize, usize)>,
    /// Reference capture, drawn in the background.
    pub reference: Option<u32>,
    /// Computed channels: `minus` or `times`, and two channel numbers.
    pub maths: Vec<(String, usize, usize)>,
}

impl View {
    /// Checks the view.
    ///
    /// # Errors
    /// If a part of it is invalid.
    pub(super) fn check(&self) -> Result<(), Refused> {
        if self.maths.len() > MATHS_MAX {
            return Err(Refused::Channels { count: self.maths.len(), most: MATHS_MAX });
        }
        self.maths
            .iter()
            .try_for_each(|(word, _, _)| word.parse::<Operation>().map(drop).map_err(Refused::Operation))?;
        self.fft.as_deref().map_or(Ok(()), |word| window(word).map(drop))
    }
}

fn window(word: &str) -> Result<Window, Refused> {
    match word {
        "rectangle" => Ok(Window::Rectangle),
        "hann" => Ok(Window::Hann),
        "flat-top" => Ok(Window::FlatTop),
        _ => Err(Refused::Window(word.to_owned())),
    }
}

/// Data of a message: type `u8`, 3 zero bytes, length of the head `u32`, the head as JSON, then columns, little-endian. Times of
/// the envelope (`times`) and of the reference's are `f64`. Then `f32`: minimum and maximum of each trace minus `base`, the same
/// of the reference, lines of each spectrum (`lines`), pairs of XY (`points`). Last, the counts of `persistence` by rows, `u8`.
#[derive(Default)]
struct Columns {
    times: Vec<f64>,
    values: Vec<f32>,
    counts: Vec<u8>,
}

/// Renders a view; `None` if there is nothing to display.
pub(super) fn of(view: &View, kept: &[LabelledCapture]) -> Option<Vec<u8>> {
    let by_id = |id: u32| kept.iter().find(|kept| kept.id == id);
    // The newest one is from a loop; one from a file is displayed when it is opened.
    let shown = view.capture.and_then(by_id).or_else(|| kept.last())?;
    let mut capture = shown.capture.clone();
    add_maths(view, &mut capture);
    let seconds = capture.seconds();
    let whole = (*seconds.first()?, *seconds.last()?);
    let asked = view.window.filter(|(from, to)| from < to).unwrap_or(whole);
    let mut columns = Columns::default();
    let (times, traces) = traces(view, &capture, asked, &mut columns);
    let behind = view.reference.and_then(by_id).map(|kept| {
        let mut capture = kept.capture.clone();
        add_maths(view, &mut capture);
        let (times, traces) = self::traces(&View { cursors: None, ..view.clone() }, &capture, asked, &mut columns);
        json!({ "id": kept.id, "label": kept.label, "times": times, "traces": traces })
    });
    let spectrum = view.fft.as_deref().and_then(|word| window(word).ok());
    let spectrum = spectrum.map(|window| spectra(&capture, window, view.columns, &mut columns));
    let xy = view.xy.and_then(|pair| xy(&capture, asked, pair, &mut columns));
    let grid = view.persistence.and_then(|channel| grid(&capture, channel, kept, &mut columns));
    let of = |mark: u64| capture.marks.iter().filter(|marks| *marks & mark != 0).count();
    let head = json!({
        "capture": shown.id, "label": shown.label, "cause": capture.cause, "rows": capture.len(), "whole": whole, "window": asked,
        "trigger": capture.trigger().map(|row| capture.pulses[row].to_string()), "period_s": capture.period(),
        "misses": of(rt::scope::marks::MISS), "missing": capture.missing(),
        "times": times, "traces": traces, "reference": behind, "spectrum": spectrum, "xy": xy, "persistence": grid,
    });
    Some(message(&head, &columns))
}

fn message(head: &Value, columns: &Columns) -> Vec<u8> {
    let head = head.to_string();
    let mut out = vec![PICTURE, 0, 0, 0];
    out.extend((head.len() as u32).to_le_bytes());
    out.extend(head.as_bytes());
    columns.times.iter().for_each(|time| out.extend(time.to_le_bytes()));
    columns.values.iter().for_each(|value| out.extend(value.to_le_bytes()));
    out.extend(&columns.counts);
    out
}

fn add_maths(view: &View, capture: &mut Capture) {
    for (word, one, two) in &view.maths {
        let made = word.parse().ok().and_then(|operation| maths(capture, operation, (*one, *two)));
        capture.channels.extend(made);
    }
}

/// Envelopes of all channels in a window: number of columns, and a description of each.
fn traces(view: &View, capture: &Capture, asked: (f64, f64), columns: &mut Columns) -> (usize, Value) {
    let (from, to) = capture.rows_between(asked);
    // Include a row on each side, so that lines extend to the edges.
    let (from, to) = (from.saturating_sub(1), (to + 1).min(capture.len()));
    let seconds = capture.seconds();
    let most = view.columns.clamp(1, COLUMNS_MAX).into();
    let mut times = 0;
    let mut each = Vec::new();
    for (index, channel) in capture.channels.iter().enumerate() {
        let spans = envelope(capture, index, from, to, most);
        if index == 0 {
            times = spans.len();
            columns.times.extend(spans.iter().map(|span| seconds[span.first]));
        }
        let found = measure(capture, index);
        let base = found.map_or(0.0, |found| found.mean);
        // Subtract the mean: small variations on a large value would be lost in 24 bits.
        let narrow = |value: Option<f64>| value.map_or(f32::NAN, |value| (value - base) as f32);
        columns.values.extend(spans.iter().map(|span| narrow(span.min)));
        columns.values.extend(spans.iter().map(|span| narrow(span.max)));
        each.push(json!({
            "name": channel.name, "unit": channel.unit, "base": base,
            "min": found.map(|found| found.min), "max": found.map(|found| found.max), "mean": found.map(|found| found.mean),
            "rms": found.map(|found| found.rms), "frequency": found.and_then(|found| found.frequency),
            "cursors": view.cursors.and_then(|at| cursors(capture, index, at)).map(|read| json!({
                "seconds": read.seconds, "values": read.values, "pulses": [read.pulses.0.to_string(), read.pulses.1.to_string()],
                "time": read.time(), "difference": read.difference(),
            })),
        }));
    }
    (times, Value::Array(each))
}

/// Spectra of all channels; each column has its largest line.
fn spectra(capture: &Capture, window: Window, most: u16, columns: &mut Columns) -> Value {
    let each = (0..capture.channels.len()).map(|index| {
        let Some(found) = spectrum(capture, index, window) else { return Value::Null };
        let lines = found.amplitudes.len();
        let shown = lines.min(most.clamp(1, COLUMNS_MAX).into());
        let edge = |column: usize| lines * column / shown;
        // The first line is the mean and would hide the others.
        let line = |at: usize| if at == 0 { 0.0 } else { found.amplitudes[at] };
        columns.values.extend((0..shown).map(|at| (edge(at)..edge(at + 1)).map(line).fold(0.0, f64::max) as f32));
        json!({ "lines": shown, "end": found.resolution * lines as f64, "resolution": found.resolution, "highest": found.highest() })
    });
    each.collect()
}

/// Points of one channel against another; thinned if there are too many.
fn xy(capture: &Capture, asked: (f64, f64), (x, y): (usize, usize), columns: &mut Columns) -> Option<Value> {
    let (from, to) = capture.rows_between(asked);
    let (across, up) = (capture.channels.get(x)?, capture.channels.get(y)?);
    let step = to.saturating_sub(from).div_ceil(POINTS_MAX).max(1);
    let rows: Vec<usize> = (from..to).step_by(step).collect();
    rows.iter().for_each(|row| columns.values.extend([across.values[*row] as f32, up.values[*row] as f32]));
    Some(json!({ "x": x, "y": y, "points": rows.len(), "each": step }))
}

/// Counts how often a channel's traces pass each cell, over all captures that have it.
fn grid(capture: &Capture, channel: usize, kept: &[LabelledCapture], columns: &mut Columns) -> Option<Value> {
    let name = &capture.channels.get(channel)?.name;
    let having = |kept: &'_ LabelledCapture| kept.capture.channels.iter().position(|channel| channel.name == *name);
    let all: Vec<(&Capture, usize)> = kept.iter().filter_map(|kept| Some((&kept.capture, having(kept)?))).collect();
    let measured = || all.iter().filter_map(|(capture, index)| measure(capture, *index));
    let low = measured().map(|found| found.min).reduce(f64::min)?;
    let high = measured().map(|found| found.max).reduce(f64::max)?;
    // Include values at the edge.
    let (low, high) =
        if low < high { (low - (high - low) * 0.01, high + (high - low) * 0.01) } else { (low - 1.0, high + 1.0) };
    let mut picture = Persistence::new(GRID.0, GRID.1, (low, high));
    all.iter().for_each(|(capture, index)| picture.add(capture, *index));
    picture.counts().flatten().for_each(|count| columns.counts.push((*count).min(255) as u8));
    Some(
        json!({ "channel": channel, "columns": GRID.0, "rows": GRID.1, "low": low, "high": high, "captures": all.len() }),
    )
}
