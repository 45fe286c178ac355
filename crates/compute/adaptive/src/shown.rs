//! What the loop shows, and what may be changed while it runs: exported variables, its own and those of somebody else.

use crate::error::Error;
use base::{DurNs, MonoNs};
use optics::Settings;
use rt::{Exports, Imports, Number, Source, SourceView, VariableSpec};
use std::sync::Arc;

/// How many figures there are.
pub(crate) const FIGURES: usize = 28;

/// A frame's figures, and what was counted since the loop began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// From the kernel's last pixel to the command, in microseconds.
    pub latency_us: f64,
    /// Time of its CPU that the loop's thread took since the frame before, in microseconds.
    pub cpu_us: f64,
    /// Root of the mean square of all slopes, in pixels.
    pub slopes: f64,
    /// The same of all commands, in nanometres.
    pub stroke: f64,
    /// Whether the mirror follows.
    pub closed: f64,
    /// Of each error this share was taken off.
    pub gain: f64,
    /// Of each command this share was kept.
    pub leak: f64,
    /// Actuators at their bound.
    pub saturated: f64,
    /// Their sum over all frames.
    pub saturations: f64,
    /// Frames of which each row came.
    pub whole: f64,
    /// Frames that were completed without some rows.
    pub patched: f64,
    /// Frames that were given up.
    pub given_up: f64,
    /// Rows that never came.
    pub lost: f64,
    /// Rows that came when their frame was over.
    pub late: f64,
    /// Rows that came before an earlier one.
    pub reordered: f64,
    /// Rows that had come already.
    pub twice: f64,
    /// Datagrams that are no pixels of this camera.
    pub foreign: f64,
    /// Spots without light.
    pub dark: f64,
    /// Spots whose light is no number.
    pub unbounded: f64,
    /// Frames whose errors were not finite: the command stayed.
    pub held: f64,
    /// Commands that were not sent: the kernel's queue to the mirror was full, or there is no way there. The loop does not wait.
    pub unsent: f64,
    /// Commands that were not sent: they came so late that they were worth nothing.
    pub void: f64,
    /// Images of another size that the camera announced: none of their pixels is taken.
    pub resized: f64,
    /// Parts that were exchanged while it ran.
    pub exchanged: f64,
    /// From a command to the frame that shows it, as it was measured last: microseconds; 0 before.
    pub hardware_us: f64,
    /// The same, in frames.
    pub hardware_frames: f64,
    /// Images that are missing in the streams: the thread that writes them was not in time, or could not write.
    pub unwritten: f64,
    /// Streams that were made anew: another program had cut or removed their file.
    pub restored: f64,
}

impl Figures {
    /// Name, unit and value of each.
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

/// The figures as exported variables, for records, the oscilloscope and an archive.
#[derive(Debug)]
pub struct Shown {
    exports: Exports,
    indices: Vec<usize>,
}

impl Shown {
    /// Opens the variables under this name, each written once a period.
    ///
    /// # Errors
    /// The kernel's; another process that exports under this name.
    pub fn open(name: &str, period: DurNs) -> Result<Self, Error> {
        let all = Figures::default().all();
        let exports = Exports::open(name, all.len())?;
        exports.set_period(period);
        let add = |(name, unit, _)| exports.add(&VariableSpec { name, unit, first: Number::Float(0.0), safe: None });
        let indices = all.into_iter().map(add).collect::<Result<_, _>>()?;
        Ok(Self { exports, indices })
    }

    /// The variables.
    #[must_use]
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Real-time: a few stores each.
    pub(crate) fn set(&self, figures: &Figures, frame: u64, now: MonoNs) {
        for (index, (_, _, value)) in self.indices.iter().zip(figures.all()) {
            self.exports.set(*index, Number::Float(value), frame, now);
        }
    }
}

/// What was counted, in a line.
#[must_use]
pub fn counted(exports: &str) -> String {
    let Ok(imports) = Imports::open(exports) else { return "frames: the loop no longer exports them".into() };
    let count = |name: &str| match imports.get(name).map(|reading| reading.value) {
        Some(Number::Float(value)) => value as u64,
        _ => 0,
    };
    format!(
        "frames: {} whole, {} without some rows, {} given up; rows: {} lost, {} late, {} reordered, {} twice; datagrams of others {}, images of another size {}; \
         spots without light {}, unbounded {}; errors not finite {}; commands too late {}, not sent {}; actuators at their bound {}; \
         stream images not written {}, streams made anew {}",
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

/// The settings: those that the loop was started with, until somebody exports others.
#[derive(Debug)]
pub struct Chosen {
    begun: Settings,
    closed: SourceView,
    gain: SourceView,
    leak: SourceView,
}

impl Chosen {
    /// Those of a source; `begun` where it says nothing.
    #[must_use]
    pub fn new(source: &Arc<Source>, begun: Settings) -> Self {
        let view = |name| SourceView::new(source, name);
        Self { begun, closed: view("closed"), gain: view("gain"), leak: view("leak") }
    }

    /// Those of now. Real-time: looks into shared memory.
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
