//! A client's desk at the oscilloscope: its captures, the loop it follows, and its view.

use super::picture::{self, View};
use super::{Arm, Forcing, Out, TriggerServers, lock};
use crate::refused::Refused;
use base::{DurNs, MonoNs};
use rt::scope::{Cause, Oscilloscope};
use scope::{Capture, CaptureSettings, Kind, Mode};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, Weak};

/// Maximum captures of a client, including those from files.
const KEPT_MAX: usize = rt::scope::CAPTURES_MAX;
/// Maximum captures from files.
pub(crate) const OPENED_MAX: usize = 8;
/// Maximum values in all captures of a client: 16 MiB.
pub(crate) const VALUES_MAX: usize = 2 << 20;
/// Timeout for a loop to accept a setup; afterwards the loop counts as stopped.
const TAKING: DurNs = DurNs::from_secs(2);
/// Minimum interval between automatic pictures.
const PACE: DurNs = DurNs::from_ms(100);
/// Size of a file's part in bytes: a third of a second at 1 Mbit/s.
const PART_BYTES: usize = 48 << 10;
/// Type of a binary message with a part of a file.
const FILE: u8 = 3;

/// A capture with its label.
pub(super) struct LabelledCapture {
    pub(super) id: u32,
    pub(super) label: String,
    pub(super) capture: Capture,
    /// Whether it is from a file.
    opened: bool,
}

/// A loop that is being followed.
struct Live {
    scope: Oscilloscope,
    /// Number of the setup; `None` to follow any setup.
    id: Option<u64>,
    mode: Mode,
    length: usize,
    asked_at: MonoNs,
    taken: bool,
    /// Number of the next capture.
    next: u64,
    /// Watcher of a trigger outside the loop.
    forcing: Option<Forcing>,
}

pub(super) struct Desk {
    of: Weak<Mutex<Out>>,
    live: Option<Live>,
    kept: Vec<LabelledCapture>,
    /// Maximum captures from loops.
    keep: usize,
    last_id: u32,
    view: View,
    /// Whether the picture must be updated, and time of the last update.
    is_new: bool,
    shown_at: MonoNs,
    /// Reason why sampling ended, or what was missed.
    note: String,
    said: String,
}

impl Desk {
    pub(super) fn new(of: Weak<Mutex<Out>>) -> Self {
        Self {
            of,
            live: None,
            kept: Vec::new(),
            keep: KEPT_MAX,
            last_id: 0,
            view: View::default(),
            is_new: false,
            shown_at: MonoNs(0),
            note: String::new(),
            said: String::new(),
        }
    }

    /// Whether its client is still connected.
    pub(super) fn is_there(&self) -> bool {
        self.of.strong_count() > 0
    }

    /// Whether it follows a loop or has something to display.
    pub(super) const fn is_live(&self) -> bool {
        self.live.is_some() || self.is_new
    }

    /// Sets up a loop. One that another client holds can be taken by operators only.
    pub(super) fn arm(&mut self, arm: &Arm, around: &mut TriggerServers, operator: bool) -> Result<(), Refused> {
        let mode = Mode::of_word(&arm.mode).ok_or_else(|| Refused::Mode(arm.mode.clone()))?;
        if !(0.0..=100.0).contains(&arm.pre) || arm.length < 2 || arm.every == 0 {
            return Err(Refused::Setup);
        }
        let wanted = CaptureSettings {
            channels: arm.channels.clone(),
            trigger: arm.trigger.clone().filter(|text| !text.trim().is_empty()),
            mode,
            pre: arm.pre / 100.0,
            length: arm.length,
            every: arm.every,
            holdoff: arm.holdoff,
            captures: None,
            keep: arm.keep,
            detached: false,
        };
        let request = wanted.request(&arm.segment)?;
        let beside = wanted.beside()?;
        let at_hand = self.live.as_ref().filter(|live| live.scope.name() == arm.segment && live.scope.is_alive());
        let own = at_hand.and_then(|live| live.id);
        let opened = match at_hand {
            Some(_) => None,
            None => Some(Oscilloscope::open(&arm.segment)?),
        };
        let scope = opened.as_ref().or(at_hand.map(|live| &live.scope)).ok_or(Refused::NoScope)?;
        allowed(scope, own, operator)?;
        // The watcher must be ready before the loop waits for its trigger.
        let forcing = beside.map(|beside| around.forcing(&beside, &arm.segment)).transpose()?;
        let id = scope.set_up(&request)?;
        let Some(scope) = opened.or_else(|| self.live.take().map(|live| live.scope)) else { return Ok(()) };
        let (length, asked_at) = (usize::try_from(arm.length).unwrap_or(usize::MAX), sys::clock::mono_now());
        let live = Live { scope, id: Some(id), mode, length, asked_at, taken: false, next: 0, forcing };
        (self.live, self.keep) = (Some(live), request.keep);
        self.note.clear();
        // The capture displayed may be from another loop.
        self.view.capture = None;
        Ok(())
    }

    /// Follows the captures of another client's setup.
    pub(super) fn follow(&mut self, segment: &str) -> Result<(), Refused> {
        let scope = Oscilloscope::open(segment)?;
        if scope.status().is_none() {
            return Err(Refused::Idle(segment.to_owned()));
        }
        let asked_at = sys::clock::mono_now();
        let (id, mode, length) = (None, Mode::Normal, 1000);
        let live = Live { scope, id, mode, length, asked_at, taken: true, next: 0, forcing: None };
        (self.live, self.keep) = (Some(live), KEPT_MAX);
        self.note.clear();
        self.view.capture = None;
        Ok(())
    }

    pub(super) fn force(&self, operator: bool) -> Result<(), Refused> {
        let live = self.live.as_ref().ok_or(Refused::NothingToForce)?;
        allowed(&live.scope, live.id, operator)?;
        Ok(live.scope.force(Cause::Forced)?)
    }

    pub(super) fn stop(&mut self, operator: bool) -> Result<(), Refused> {
        let live = self.live.as_ref().ok_or(Refused::NothingToStop)?;
        allowed(&live.scope, live.id, operator)?;
        Ok(live.scope.stop()?)
    }

    /// Sets what is displayed.
    pub(super) fn show(&mut self, view: &View) -> Result<(), Refused> {
        view.check()?;
        self.view = view.clone();
        self.is_new = true;
        self.shown_at = MonoNs(0);
        Ok(())
    }

    /// Queues a capture as a file for the client.
    pub(super) fn export(&self, capture: u32, kind: Kind) -> Result<(), Refused> {
        let bytes = self.find(capture)?.capture.to_bytes(kind);
        let Some(out) = self.of.upgrade() else { return Ok(()) };
        let mut out = lock(&out);
        if !out.parts.is_empty() {
            return Err(Refused::FileInTransit);
        }
        out.parts = parts(capture, &bytes);
        Ok(())
    }

    /// Adds a capture from a file and displays it.
    pub(super) fn opened(&mut self, name: &str, capture: Capture) -> Result<u32, Refused> {
        if self.kept.iter().filter(|kept| kept.opened).count() >= OPENED_MAX {
            return Err(Refused::OpenFiles);
        }
        let values = values(&capture);
        if values > VALUES_MAX / 2 {
            return Err(Refused::Values { name: name.to_owned(), values });
        }
        let id = self.add(self.free(name.to_owned()), capture, true);
        self.view = View { capture: Some(id), columns: self.view.columns, ..View::default() };
        Ok(id)
    }

    pub(super) fn forget(&mut self, capture: u32) -> Result<(), Refused> {
        self.find(capture)?;
        self.kept.retain(|kept| kept.id != capture);
        if self.view.capture == Some(capture) {
            self.view.capture = None;
        }
        self.is_new = true;
        Ok(())
    }

    fn find(&self, capture: u32) -> Result<&LabelledCapture, Refused> {
        let found = self.kept.iter().find(|kept| kept.id == capture);
        found.ok_or(Refused::Capture(capture))
    }

    /// Adds a capture of a loop. Labels are numbered continuously, although each setup counts its captures from 1.
    fn captured(&mut self, name: &str, capture: Capture) {
        self.add(self.free(format!("{name} {}", self.last_id + 1)), capture, false);
    }

    /// Makes a label unique; names of files may coincide with others.
    fn free(&self, label: String) -> String {
        let is_taken = self.kept.iter().any(|kept| kept.label == label);
        if is_taken { format!("{label} ({})", self.last_id + 1) } else { label }
    }

    fn add(&mut self, label: String, capture: Capture, opened: bool) -> u32 {
        self.last_id += 1;
        self.kept.push(LabelledCapture { id: self.last_id, label, capture, opened });
        self.is_new = true;
        loop {
            let of_loops = self.kept.iter().filter(|kept| !kept.opened).count();
            let all: usize = self.kept.iter().map(|kept| values(&kept.capture)).sum();
            if of_loops <= self.keep && self.kept.len() <= KEPT_MAX && all <= VALUES_MAX {
                return self.last_id;
            }
            // Remove the oldest capture that is not displayed, if there is one.
            let (last, view) = (self.last_id, &self.view);
            let looked_at = |kept: &LabelledCapture| [view.capture, view.reference].contains(&Some(kept.id));
            let oldest = self.kept.iter().position(|kept| !kept.opened && kept.id != last && !looked_at(kept));
            let Some(at) = oldest else { return last };
            self.kept.remove(at);
        }
    }

    /// Fetches new captures, and queues changes for the client.
    pub(super) fn look(&mut self, now: MonoNs) {
        if let Some(live) = self.live.take() {
            match self.fetch(live, now) {
                Ok(live) => self.live = live,
                Err(refused) => self.note = refused.to_string(),
            }
        }
        let status = self.status().to_string();
        let Some(out) = self.of.upgrade() else { return };
        let mut out = lock(&out);
        out.looked = self.live.as_ref().map(|_| now);
        if status != self.said {
            self.said.clone_from(&status);
            out.status = Some(json!({ "topic": "scope", "data": self.status() }).to_string());
        }
        if self.is_new && now - self.shown_at >= PACE {
            (self.is_new, self.shown_at) = (false, now);
            if let Some(bytes) = picture::of(&self.view, &self.kept)
                && out.view.replace(bytes).is_some()
            {
                out.replaced += 1;
            }
        }
    }

    /// Fetches captures of the loop. Stops following it if there can be no further captures.
    fn fetch(&mut self, mut live: Live, now: MonoNs) -> Result<Option<Live>, Refused> {
        let name = live.scope.name().to_owned();
        if !live.scope.is_alive() {
            return Err(Refused::Ended(name));
        }
        let Some(status) = live.scope.status() else { return not_taken(live, now) };
        if live.id.is_some_and(|id| id != status.id) {
            return if live.taken { Err(Refused::Replaced) } else { not_taken(live, now) };
        }
        live.taken = true;
        if let Some(why) = live.forcing.as_ref().and_then(Forcing::failed) {
            // Existing captures remain.
            (self.note, live.forcing) = (why.to_string(), None);
        }
        if live.mode == Mode::Roll {
            self.roll(&live);
        } else {
            for (number, rows) in live.scope.captured(live.next) {
                if number > live.next && live.id.is_some() {
                    self.note = format!("{} captures were overwritten before they could be shown", number - live.next);
                }
                live.next = number + 1;
                let capture = Capture::of_imports(live.scope.variables(), &rows);
                self.captured(&name, capture);
            }
        }
        Ok(Some(live))
    }

    /// Replaces the rolling capture by the newest rows.
    fn roll(&mut self, live: &Live) {
        let Some(rows) = live.scope.latest(live.length) else { return };
        let label = format!("newest of {}", live.scope.name());
        let capture = Capture::of_imports(live.scope.variables(), &rows);
        match self.kept.iter_mut().find(|kept| !kept.opened && kept.label == label) {
            Some(kept) => {
                self.is_new |= kept.capture.pulses.last() != capture.pulses.last();
                kept.capture = capture;
            }
            None => drop(self.add(label, capture, false)),
        }
    }

    fn status(&self) -> Value {
        let live = self.live.as_ref().map(|live| {
            let status = live.scope.status().filter(|_| live.taken);
            json!({
                "segment": live.scope.name(), "own": live.id.is_some(), "captures": status.map(|status| status.captures),
                "phase": status.map_or("waits for the loop", |status| status.phase.word()),
                "ignored": status.map(|status| status.ignored),
            })
        });
        let one = |kept: &LabelledCapture| {
            json!({
                "id": kept.id, "label": kept.label, "cause": kept.capture.cause, "rows": kept.capture.len(), "opened": kept.opened,
            })
        };
        json!({ "live": live, "note": self.note, "captures": self.kept.iter().map(one).collect::<Value>() })
    }
}

/// Handles a loop that has not accepted the setup yet.
fn not_taken(live: Live, now: MonoNs) -> Result<Option<Live>, Refused> {
    if now - live.asked_at < TAKING {
        return Ok(Some(live));
    }
    Err(Refused::NotTaken(live.scope.name().to_owned()))
}

/// Whether the client may set up, force and stop the loop: it is free or the client's own, or the client is an operator.
fn allowed(scope: &Oscilloscope, own: Option<u64>, operator: bool) -> Result<(), Refused> {
    let held = scope.status().filter(|status| status.is_held);
    match held {
        Some(status) if !operator && own != Some(status.id) => Err(Refused::Held(scope.name().to_owned())),
        _ => Ok(()),
    }
}

/// Splits a file into messages.
fn parts(capture: u32, file: &[u8]) -> VecDeque<Vec<u8>> {
    let last = file.len().div_ceil(PART_BYTES).saturating_sub(1);
    let one = |(index, part): (usize, &[u8])| {
        let head = [[FILE, u8::from(index < last), 0, 0], capture.to_le_bytes()].concat();
        [head.as_slice(), part].concat()
    };
    file.chunks(PART_BYTES).enumerate().map(one).collect()
}

fn values(capture: &Capture) -> usize {
    capture.len() * (3 + capture.channels.len())
}

/// Lists the variables.
pub(super) fn list() -> Result<Value, Refused> {
    let exported = rt::scope::exported().map_err(Refused::Sockets)?;
    let segments = exported.into_iter().map(|(segment, sampled)| {
        let known = rt::Imports::open(&segment).map_err(|error| error.to_string());
        let variables = known.as_ref().map_err(Clone::clone).and_then(|known| {
            let variables = known.segment().map_err(|error| error.to_string())?;
            let one = |index| {
                Some(json!({ "name": variables.name(index)?.as_str(), "unit": variables.unit(index)?.as_str() }))
            };
            Ok((0..variables.len()).filter_map(one).collect::<Value>())
        });
        match variables {
            Ok(variables) => json!({ "name": segment, "sampled": sampled, "variables": variables }),
            Err(why) => json!({ "name": segment, "sampled": false, "variables": [], "error": why }),
        }
    });
    Ok(json!({ "segments": segments.collect::<Value>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_have_unique_labels_over_setups_and_files_of_the_same_name() {
        let mut desk = Desk::new(Weak::new());
        let capture = || Capture { pulses: vec![1], ..Capture::default() };
        desk.captured("llrf", capture());
        desk.opened("llrf 3", capture()).unwrap();
        // A new setup, for which the loop counts captures from 1 again.
        desk.captured("llrf", capture());
        desk.opened("shot.csv", capture()).unwrap();
        desk.opened("shot.csv", capture()).unwrap();
        let status = desk.status();
        let captures = status["captures"].as_array().unwrap();
        let labels: Vec<&str> = captures.iter().map(|one| one["label"].as_str().unwrap()).collect();
        assert_eq!(labels, ["llrf 1", "llrf 3", "llrf 3 (3)", "shot.csv", "shot.csv (5)"]);
    }

    #[test]
    fn a_file_is_sent_in_parts_and_the_last_one_is_marked() {
        let file: Vec<u8> = (0..PART_BYTES * 2 + 5).map(|at| at as u8).collect();
        let parts = parts(7, &file);
        let heads: Vec<&[u8]> = parts.iter().map(|part| &part[..8]).collect();
        assert_eq!(heads, [[FILE, 1, 0, 0, 7, 0, 0, 0], [FILE, 1, 0, 0, 7, 0, 0, 0], [FILE, 0, 0, 0, 7, 0, 0, 0]]);
        assert_eq!(parts.iter().flat_map(|part| &part[8..]).copied().collect::<Vec<u8>>(), file);
        assert_eq!(self::parts(7, &file[..PART_BYTES]).len(), 1);
    }
}
