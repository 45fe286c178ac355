//! Variables that the loop exports, and settings that another process may change while it runs.

use crate::error::Error;
use base::{DurNs, MonoNs};
use optics::Settings;
use rt::{Exports, Imports, Number, Source, SourceView, VariableSpec};
use std::sync::Arc;

/// Number of figures.
pub(crate) const FIGURES: usize = 28;

/// Figures of a frame, and counters since the loop started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// From the kernel's timestamp of the last pixel to the command, in microseconds.
    pub latency_us: f64,
    /// CPU time of the loop's thread since the previous frame, in microseconds.
    pub cpu_us: f64,
    /// Root mean square of all slopes, in pixels.
    pub slopes: f64,
    /// Root mean square of all commands, in nanometres.
    pub stroke: f64,
    /// 1 if the loop is closed, else 0.
    pub closed: f64,
    /// Share of each error that is subtracted.
    pub gain: f64,
    /// Share of each previous command that is kept.
    pub leak: f64,
    /// Actuators at their limit.
    pub saturated: f64,
    /// Sum of `saturated` over all frames.
    pub saturations: f64,
    /// Complete frames.
    pub whole: f64,
    /// Frames completed without some rows.
    pub patched: f64,
    /// Frames skipped because too many rows were missing.
    pub given_up: f64,
    /// Rows that never arrived.
    pub lost: f64,
    /// Rows that arrived after the end of their frame.
    pub late: f64,
    /// Rows that arrived before an earlier row of their frame.
    pub reordered: f64,
    /// Duplicate rows.
    pub twice: f64,
    /// Datagrams that are not pixels of this camera.
    pub foreign: f64,
    /// Spots without light.
    pub dark: f64,
    /// Spots with light that is not finite.
    pub unbounded: f64,
    /// Frames with errors that were not finite. The command stayed unchanged.
    pub held: f64,
    /// Commands not sent, because the kernel's queue to the mirror was full or no route exists. The loop does not wait.
    pub unsent: f64,
    /// Commands not sent, because they were too late to be useful.
    pub void: f64,
    /// Announced images of another size. Their pixels are ignored.
    pub resized: f64,
    /// Exchanges of parts while the loop ran.
    pub exchanged: f64,
    /// Last measured delay from a command to the frame that shows it, in microseconds; 0 if it has not been measured.
    pub hardware_us: f64,
    /// The same delay, in frames.
    pub hardware_frames: f64,
    /// Images missing in the streams, because the writer was late or could not write.
    pub unwritten: f64,
    /// Streams created again, because another program had truncated or removed their file.
    pub restored: f64,
}

impl Figures {
    /// Name, unit and value of each figure.
    pub(crate) fn all(&self) -> [(&'static str, &'static str, f64); FIGURES] {
        [
            ("latency", "us", self.latency_us),
            ("cpu", "us", self.cpu_us),
            ("slopes", "px", self.slopes),
            ("command", "nm", self.stroke),
            ("closed", "", self.closed),
            ("gain", "", self.gain),
            ("leak", "", self.leak),
            ("saturated", "", self.saturated),
            ("saturations", "", self.saturations),
            ("whole", "", self.whole),
            ("patched", "", self.patched),
            ("given-up", "", self.given_up),
            ("lost", "", self.lost),
            ("late", "", self.late),
            ("reordered", "", self.reordered),
            ("twice", "", self.twice),
            ("foreign", "", self.foreign),
            ("dark", "", self.dark),
            ("unbounded", "", self.unbounded),
            ("held", "", self.held),
            ("unsent", "", self.unsent),
            ("void", "", self.void),
            ("resized", "", self.resized),
            ("exchanged", "", self.exchanged),
            ("hardware", "us", self.hardware_us),
            ("hardware-frames", "", self.hardware_frames),
            ("unwritten", "", self.unwritten),
            ("restored", "", self.restored),
        ]
    }
}

/// Figures as exported variables, for records, the oscilloscope and an archive.
#[derive(Debug)]
pub struct Shown {
    exports: Exports,
    indices: Vec<usize>,
}

impl Shown {
    /// Opens the variables under this name. Each is written once per period.
    ///
    /// # Errors
    /// An error of the kernel, or another process exports under this name.
    pub fn open(name: &str, period: DurNs) -> Result<Self, Error> {
        let all = Figures::default().all();
        let exports = Exports::open(name, all.len())?;
        exports.set_period(period);
        let add = |(name, unit, _)| exports.add(&VariableSpec { name, unit, first: Number::Float(0.0), safe: None });
        let indices = all.into_iter().map(add).collect::<Result<_, _>>()?;
        Ok(Self { exports, indices })
    }

    /// The exported variables.
    #[must_use]
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Publishes the figures. Real-time: a few stores per variable.
    pub(crate) fn set(&self, figures: &Figures, frame: u64, now: MonoNs) {
        for (index, (_, _, value)) in self.indices.iter().zip(figures.all()) {
            self.exports.set(*index, Number::Float(value), frame, now);
        }
    }
}

/// Counters as one line of text.
#[must_use]
pub fn counted(exports: &str) -> String {
    let Ok(imports) = Imports::open(exports) else { return "frames: the loop no longer exports them".into() };
    let count = |name: &str| match imports.get(name).map(|reading| reading.value) {
        Some(Number::Float(value)) => value as u64,
        _ => 0,
    };
    format!(
        "frames: {} whole, {} without some rows, {} skipped; rows: {} lost, {} late, {} reordered, {} twice; datagrams of others {}, images of another size {}; \
         spots without light {}, unbounded {}; errors not finite {}; commands too late {}, not sent {}; actuators at their bound {}; \
         stream images not written {}, streams created again {}",
        count("whole"),
        count("patched"),
        count("given-up"),
        count("lost"),
        count("late"),
        count("reordered"),
        count("twice"),
        count("foreign"),
        count("resized"),
        count("dark"),
        count("unbounded"),
        count("held"),
        count("void"),
        count("unsent"),
        count("saturations"),
        count("unwritten"),
        count("restored"),
    )
}

/// Current settings: those that the loop was started with, until another process exports others.
#[derive(Debug)]
pub struct Chosen {
    begun: Settings,
    closed: SourceView,
    gain: SourceView,
    leak: SourceView,
}

impl Chosen {
    /// Settings of a source, with `begun` as the default for missing values.
    #[must_use]
    pub fn new(source: &Arc<Source>, begun: Settings) -> Self {
        let view = |name| SourceView::new(source, name);
        Self { begun, closed: view("closed"), gain: view("gain"), leak: view("leak") }
    }

    /// Current settings. Real-time: reads shared memory.
    pub(crate) fn now(&mut self) -> Settings {
        let number = |view: &mut SourceView| {
            let reading = view.read().filter(|reading| reading.writes > 0)?;
            Some(match reading.value {
                Number::Float(value) => value as f32,
                Number::Int(value) => value as f32,
                Number::Bool(value) => f32::from(u8::from(value)),
            })
        };
        let closed = number(&mut self.closed).map_or(self.begun.closed, |value| value != 0.0);
        let (gain, leak) = (number(&mut self.gain), number(&mut self.leak));
        Settings { closed, gain: gain.unwrap_or(self.begun.gain), leak: leak.unwrap_or(self.begun.leak) }.bounded()
    }
}
