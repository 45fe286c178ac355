//! What the loop shows, and what may be changed while it runs: exported variables, its own and those of somebody else.

use crate::failure::Failure;
use base::{DurNs, MonoNs};
use optics::Settings;
use rt::{Exports, Imports, Number, Source, SourceView, VariableSpec};
use std::sync::Arc;

/// A frame's figures, and what was counted since the loop began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) latency_us: f64,
    pub(super) slopes: f64,
    pub(super) stroke: f64,
    pub(super) closed: f64,
    pub(super) gain: f64,
    pub(super) leak: f64,
    pub(super) saturated: f64,
    pub(super) saturations: f64,
    pub(super) whole: f64,
    pub(super) patched: f64,
    pub(super) given_up: f64,
    pub(super) lost: f64,
    pub(super) late: f64,
    pub(super) reordered: f64,
    pub(super) twice: f64,
    pub(super) foreign: f64,
    pub(super) dark: f64,
    pub(super) unbounded: f64,
    pub(super) held: f64,
    pub(super) unsent: f64,
}

impl Figures {
    /// Name, unit and value of each.
    fn all(&self) -> [(&'static str, &'static str, f64); 20] {
        [
            ("latency", "us", self.latency_us),
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
        ]
    }
}

/// The figures as exported variables, for records, the oscilloscope and an archive.
pub(super) struct Shown {
    exports: Exports,
    indices: Vec<usize>,
}

impl Shown {
    pub(super) fn open(name: &str, period: DurNs) -> Result<Self, Failure> {
        let all = Figures::default().all();
        let exports = Exports::open(name, all.len())?;
        exports.set_period(period);
        let add = |(name, unit, _)| exports.add(&VariableSpec { name, unit, first: Number::Float(0.0), safe: None });
        let indices = all.into_iter().map(add).collect::<Result<_, _>>()?;
        Ok(Self { exports, indices })
    }

    pub(super) fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Real-time: a few stores each.
    pub(super) fn set(&self, figures: &Figures, frame: u64, now: MonoNs) {
        for (index, (_, _, value)) in self.indices.iter().zip(figures.all()) {
            self.exports.set(*index, Number::Float(value), frame, now);
        }
    }
}

/// What was counted, in a line.
pub(super) fn counted(exports: &str) -> String {
    let Ok(imports) = Imports::open(exports) else { return "frames: nobody shows them any more".into() };
    let count = |name: &str| match imports.get(name).map(|reading| reading.value) {
        Some(Number::Float(value)) => value as u64,
        _ => 0,
    };
    format!(
        "frames: {} whole, {} without some rows, {} given up; rows: {} lost, {} late, {} reordered, {} twice; datagrams of others {}; \
         spots without light {}, unbounded {}; errors not finite {}; actuators at their bound {}",
        count("whole"),
        count("patched"),
        count("given-up"),
        count("lost"),
        count("late"),
        count("reordered"),
        count("twice"),
        count("foreign"),
        count("dark"),
        count("unbounded"),
        count("held"),
        count("saturations"),
    )
}

/// The settings: those that the loop was started with, until somebody exports others.
pub(super) struct Chosen {
    begun: Settings,
    closed: SourceView,
    gain: SourceView,
    leak: SourceView,
}

impl Chosen {
    pub(super) fn new(source: &Arc<Source>, begun: Settings) -> Self {
        let view = |name| SourceView::new(source, name);
        Self { begun, closed: view("closed"), gain: view("gain"), leak: view("leak") }
    }

    /// Those of now. Real-time: looks into shared memory.
    pub(super) fn now(&mut self) -> Settings {
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
