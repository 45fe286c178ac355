//! Changing sides, with and without the shield, and collecting cycles meanwhile.

use super::Engine;
use crate::supervisor::compare::{COLLECT_EVERY, SEGMENT, SETTLE};
use crate::supervisor::probe;
use base::MonoNs;
use host::supervise::{Event, Phase};
use sys::clock::mono_now;

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
                match self.change_sides(!compare.shielded) {
                    Ok(()) => {
                        compare.shielded = !compare.shielded;
                        let now = mono_now();
                        compare.from = Some(now + SETTLE);
                        (compare.until, compare.collect) = (now + SETTLE + SEGMENT, now);
                    }
                    Err(why) => {
                        self.shortfall("compare", format!("the comparison ends early: {why}"));
                        compare.until = MonoNs(u64::MAX);
                        self.event(Event::Down);
                    }
                }
            }
        }
        self.compare = Some(compare);
    }

    /// Raises or lowers the shield; processes keep their class, and those on it their CPUs.
    fn change_sides(&mut self, shielded: bool) -> Result<(), String> {
        let Some(wanted) = self.plant.shield.clone() else { return Err("the plant has no shield".to_owned()) };
        self.reshield(shielded.then_some(&wanted), wanted.cpus)?;
        let words = self.shield.words(&self.plant);
        self.tell.event(mono_now(), "compare", &words);
        Ok(())
    }
}
