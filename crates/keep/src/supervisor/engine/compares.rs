//! Raising and lowering the shield under running processes, and collecting cycles meanwhile.

use super::Engine;
use crate::supervisor::compare::{COLLECT_EVERY, SEGMENT, SETTLE};
use crate::supervisor::probe;
use crate::supervisor::shielding::Shielding;
use base::{CpuSet, MonoNs};
use host::plant::Cpus;
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
        // The masks that threads on the shield chose for themselves.
        let mut masks: Vec<(i32, CpuSet)> = Vec::new();
        let mut others = Vec::new();
        for (unit, kid) in self.all.units().iter().zip(&self.kids) {
            let (Some(child), Some(process)) = (kid.child, self.plant.process(&unit.spec.name)) else { continue };
            let tids = probe::family(child.pid);
            match process.cpus {
                Cpus::Housekeeping => others.extend(tids),
                Cpus::Shield | Cpus::List(_) => {
                    masks.extend(tids.into_iter().filter_map(|tid| Some((tid, sys::sched::affinity(tid).ok()?))));
                }
            }
        }
        self.stop_guard();
        if shielded {
            let raised = Shielding::raise(&wanted, true);
            self.shield = raised.shield;
            if !self.shield.is_ours() {
                return Err(raised.lacks.join("; "));
            }
        } else {
            let lowered = self.shield.lower();
            if !lowered.whole {
                return Err(lowered.said.join("; "));
            }
        }
        (self.common.isolated, self.common.shield_groups) = (self.shield.cpus(), self.shield.groups());
        for (tid, mask) in masks {
            if mask.is_subset(&wanted.cpus) {
                self.shield.enter(tid)?;
            }
            // A thread that has ended meanwhile needs no CPU.
            let _ = sys::sched::set_affinity(tid, &mask);
        }
        let free = self.common.resolve(Cpus::Housekeeping);
        for tid in others {
            let _ = sys::sched::set_affinity(tid, &free);
        }
        self.start_guard();
        self.saved = None;
        let words = self.shield.words(&self.plant);
        self.tell.event(mono_now(), "compare", &words);
        Ok(())
    }
}
