//! What is shown of a capture, as a binary message: never its rows, but an envelope of what is visible.

use super::desk::Kept;
use scope::{Capture, Operation, Persistence, Window, cursors, envelope, maths, measure, spectrum};
use serde::Deserialize;
use serde_json::{Value, json};

/// The kind of a binary message that holds a picture.
const PICTURE: u8 = 2;
/// Columns of an envelope.
const COLUMNS_MAX: u16 = 2000;
/// Channels that are made of others.
const MATHS_MAX: usize = 4;
/// Points of an XY picture.
const POINTS_MAX: usize = 2000;
/// Columns and rows of a picture that counts.
const GRID: (usize, usize) = (300, 120);

/// What is to be shown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct View {
    /// The capture; without one the newest.
    pub capture: Option<u32>,
    /// Seconds from the trigger; without them all of it.
    pub window: Option<(f64, f64)>,
    /// Columns of the envelope at most, 1 to 2000.
    pub columns: u16,
    /// Two times from the trigger.
    pub cursors: Option<(f64, f64)>,
    /// The spectrum, by `rectangle`, `hann` or `flat-top`.
    pub fft: Option<String>,
    /// Counts of this channel's trace over all captures that have it.
    pub persistence: Option<usize>,
    /// One channel over another: x and y.
    pub xy: Option<(usize, usize)>,
    /// A capture that is drawn behind.
    pub reference: Option<u32>,
    /// Channels made of others: `minus` or `times`, and two channels' numbers.
    pub maths: Vec<(String, usize, usize)>,
}

impl View {
    /// Whether it can be shown.
    ///
    /// # Errors
    /// What cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.maths.len() > MATHS_MAX {
            return Err(format!("{} channels made of others; expected {MATHS_MAX} at most", self.maths.len()));
        }
        self.maths.iter().try_for_each(|(word, _, _)| word.parse::<Operation>().map(drop))?;
        self.fft.as_deref().map_or(Ok(()), |word| window(word).map(drop))
    }
}

fn window(word: &str) -> Result<Window, String> {
    match word {
        "rectangle" => Ok(Window::Rectangle),
        "hann" => Ok(Window::Hann),
        "flat-top" => Ok(Window::FlatTop),
        _ => Err(format!("window {word:?}; expected rectangle, hann or flat-top")),
    }
}

/// A message: kind `u8`, 3 bytes of zero, length of the head `u32`, the head as JSON, and then columns, little endian. Times of the
/// envelope (`times`), and of the reference's, are `f64`; what follows is `f32`: for each trace its least and its largest values less
/// `base`, the same of the reference, lines of each spectrum (`lines`), pairs of XY (`points`); at last the counts of `persistence`
/// by rows, `u8`.
#[derive(Default)]
struct Columns {
    times: Vec<f64>,
    values: Vec<f32>,
    counts: Vec<u8>,
}

/// What `view` shows; `None` where there is nothing to show.
pub(super) fn of(view: &View, kept: &[Kept]) -> Option<Vec<u8>> {
    let by_id = |id: u32| kept.iter().find(|kept| kept.id == id);
    // The newest is of a loop; one of a file is chosen.
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

/// The envelopes of all channels in a window: how many columns, and what is told of each.
fn traces(view: &View, capture: &Capture, asked: (f64, f64), columns: &mut Columns) -> (usize, Value) {
    let (from, to) = capture.rows_between(asked);
    // A row on each side, so that lines go on to the edges.
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
        // A value that has the mean's size but little change would lose it in 24 bits.
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

/// Spectra of all channels, the largest line of each column.
fn spectra(capture: &Capture, window: Window, most: u16, columns: &mut Columns) -> Value {
    let each = (0..capture.channels.len()).map(|index| {
        let Some(found) = spectrum(capture, index, window) else { return Value::Null };
        let lines = found.amplitudes.len();
        let shown = lines.min(most.clamp(1, COLUMNS_MAX).into());
        let edge = |column: usize| lines * column / shown;
        // The first line is the mean, which would dwarf the others.
        let line = |at: usize| if at == 0 { 0.0 } else { found.amplitudes[at] };
        columns.values.extend((0..shown).map(|at| (edge(at)..edge(at + 1)).map(line).fold(0.0, f64::max) as f32));
        json!({ "lines": shown, "end": found.resolution * lines as f64, "resolution": found.resolution, "highest": found.highest() })
    });
    each.collect()
}

/// Rows of one channel over another; of many each so many-th.
fn xy(capture: &Capture, asked: (f64, f64), (x, y): (usize, usize), columns: &mut Columns) -> Option<Value> {
    let (from, to) = capture.rows_between(asked);
    let (across, up) = (capture.channels.get(x)?, capture.channels.get(y)?);
    let step = to.saturating_sub(from).div_ceil(POINTS_MAX).max(1);
    let rows: Vec<usize> = (from..to).step_by(step).collect();
    rows.iter().for_each(|row| columns.values.extend([across.values[*row] as f32, up.values[*row] as f32]));
    Some(json!({ "x": x, "y": y, "points": rows.len(), "each": step }))
}

/// How often traces of a channel passed each place, over all captures that have it.
fn grid(capture: &Capture, channel: usize, kept: &[Kept], columns: &mut Columns) -> Option<Value> {
    let name = &capture.channels.get(channel)?.name;
    let having = |kept: &'_ Kept| kept.capture.channels.iter().position(|channel| channel.name == *name);
    let all: Vec<(&Capture, usize)> = kept.iter().filter_map(|kept| Some((&kept.capture, having(kept)?))).collect();
    let measured = || all.iter().filter_map(|(capture, index)| measure(capture, *index));
    let low = measured().map(|found| found.min).reduce(f64::min)?;
    let high = measured().map(|found| found.max).reduce(f64::max)?;
    // A value at the very edge is inside.
    let (low, high) =
        if low < high { (low - (high - low) * 0.01, high + (high - low) * 0.01) } else { (low - 1.0, high + 1.0) };
    let mut picture = Persistence::new(GRID.0, GRID.1, (low, high));
    all.iter().for_each(|(capture, index)| picture.add(capture, *index));
    picture.counts().flatten().for_each(|count| columns.counts.push((*count).min(255) as u8));
    Some(
        json!({ "channel": channel, "columns": GRID.0, "rows": GRID.1, "low": low, "high": high, "captures": all.len() }),
    )
}
