//! Changing sides, with and without the shield, and collecting cycles meanwhile.

use super::Engine;
use super::reshields::Then;
use crate::supervisor::compare::{COLLECT_EVERY, SEGMENT, SETTLE};
use crate::supervisor::probe;
use base::MonoNs;
use host::supervise::{Event, Phase};
use sys::clock::mono_now;

const NEVER: MonoNs = MonoNs(u64::MAX);

impl Engine {
    /// When the comparison wants to be looked after.
    pub(super) fn next_compare(&self) -> Option<MonoNs> {
        self.compare.as_ref().filter(|compare| compare.from.is_some()).map(|compare| compare.collect)
    }

    /// Collects cycles, and changes sides when a segment is over.
    pub(super) fn compare(&mut self, now: MonoNs) {
        let Some(mut compare) = self.compare.take() else { return };
        if self.all.phase() == Phase::Up {
            if compare.from.is_none() {
                compare.from = Some(now + SETTLE);
                (compare.until, compare.collect) = (now + SETTLE + SEGMENT, now);
            }
            if now >= compare.collect {
                compare.collect = now + COLLECT_EVERY;
                let counts = compare.from.is_some_and(|from| now >= from);
                let side = compare.side();
                let steal = probe::steal();
                for (id, kid) in self.kids.iter_mut().enumerate().take(compare.loops.len()) {
                    let Some(page) = &mut kid.page else { continue };
                    let cpu = page.cpu();
                    let ticks = cpu.and_then(|cpu| steal.get(&cpu)).copied().unwrap_or(0);
                    let calm = std::mem::replace(&mut compare.steal[id], ticks) == ticks;
                    let side = &mut compare.loops[id][side];
                    let lost = page.cycles(|cycle| {
                        if counts {
                            side.all.record(cycle.latency());
                            if calm {
                                side.calm.record(cycle.latency());
                            }
                        }
                    });
                    side.lost += if counts { lost } else { 0 };
                }
            }
            if now >= compare.until {
                let side = compare.side();
                compare.segments[side] += 1;
                // Until the other side stands nothing counts.
                (compare.from, compare.until) = (Some(NEVER), NEVER);
                let shielded = !compare.shielded;
                self.compare = Some(compare);
                if let Err(why) = self.change_sides(shielded) {
                    self.changed_sides(shielded, Err(why));
                }
                return;
            }
        }
        self.compare = Some(compare);
    }

    /// Begins to raise or lower the shield; processes keep their class, and those on it their CPUs.
    fn change_sides(&mut self, shielded: bool) -> Result<(), String> {
        let Some(wanted) = self.plant.shield.clone() else { return Err("the plant has no shield".to_owned()) };
        let cpus = wanted.cpus;
        self.reshield(shielded.then_some(wanted), cpus, Then::Compare { shielded })
    }

    /// The other side stands, or cannot be had.
    pub(super) fn changed_sides(&mut self, shielded: bool, outcome: Result<(), String>) {
        let now = mono_now();
        match outcome {
            Ok(()) => {
                let words = self.shield.words(&self.plant);
                self.tell.event(now, "compare", &words);
                let Some(compare) = &mut self.compare else { return };
                compare.shielded = shielded;
                compare.from = Some(now + SETTLE);
                (compare.until, compare.collect) = (now + SETTLE + SEGMENT, now);
            }
            Err(why) => {
                self.shortfall("compare", format!("the comparison ends early: {why}"));
                self.event(Event::Down);
            }
        }
    }
}
