//! Simulation mode.

use crate::model::link::Link;
use crate::model::slot::{Fields, Idle, Rarely, Slot};
use crate::rec::table::{Bodies, Kind};
use crate::run::callback::Callback;
use crate::run::engine::Db;
use base::Status;

/// The fields of simulation mode.
#[derive(Clone, Debug)]
pub(crate) struct Sim {
    pub(crate) siol: Link,
    pub(crate) siml: Link,
    pub(crate) simm: u16,
    pub(crate) sims: u16,
    pub(crate) oldsimm: u16,
    pub(crate) sscn: u16,
    pub(crate) sdly: f64,
}

impl Fields for Sim {
    const COUNT: usize = 7;
    fn slot(&mut self, index: usize) -> Slot<'_> {
        match index {
            0 => self.siol.slot(0),
            1 => self.siml.slot(0),
            2 => self.simm.slot(0),
            3 => self.sims.slot(0),
            4 => self.oldsimm.slot(0),
            5 => self.sscn.slot(0),
            _ => self.sdly.slot(0),
        }
    }
}

impl Idle for Sim {
    // SSCN and SDLY are those of the field table.
    const IDLE: &'static Self =
        &Self { siol: Link::EMPTY, siml: Link::EMPTY, simm: 0, sims: 0, oldsimm: 0, sscn: u16::MAX, sdly: -1.0 };
    fn is_idle(&self) -> bool {
        let Self { siol, siml, simm, sims, oldsimm, sscn, sdly } = self;
        siol.is_empty() && siml.is_empty() && (simm | sims | oldsimm) == 0 && *sscn == u16::MAX && *sdly == -1.0
    }
}

/// Where a record stands in simulation mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not simulated.
    Real,
    /// Simulated, now.
    Simulated(u16),
    /// Simulated, after a delay.
    Delayed,
    /// SIMM holds no choice.
    Bad,
}

/// Finds a record's simulation fields in its block.
pub(crate) type SimOf = fn(&mut Bodies, usize) -> &mut Rarely<Sim>;

/// Reads SIML and says what mode a record is in (recGblGetSimm and the switch after it).
#[inline]
pub(crate) fn mode(db: &mut Db, rec: u32, body: usize, resumed: bool, raw: bool, sim_of: SimOf) -> Mode {
    let sim = sim_of(&mut db.bodies, body);
    if sim.rests() || (sim.simm == 0 && sim.siml.is_constant() && sim.sscn == u16::MAX) {
        return Mode::Real;
    }
    mode_slow(db, rec, body, resumed, raw, sim_of)
}

/// Stamps an output record.
#[inline]
pub(crate) fn stamp_output(db: &mut Db, rec: u32, body: usize, sim_of: SimOf) {
    let simm = sim_of(&mut db.bodies, body).simm;
    db.stamp_simulated(rec, simm, None);
}

#[cold]
fn mode_slow(db: &mut Db, rec: u32, body: usize, resumed: bool, raw: bool, sim_of: SimOf) -> Mode {
    if !resumed {
        let sim = sim_of(&mut db.bodies, body);
        if sim.sscn != u16::MAX {
            sim.oldsimm = sim.simm;
        }
        let link = sim.siml.brief();
        match db.try_link::<u16>(rec, link) {
            Ok(Some(simm)) => sim_of(&mut db.bodies, body).simm = simm,
            Ok(None) => {}
            Err(_) => {
                if db.common[rec as usize].nsev == 0 {
                    db.common[rec as usize].nsta = Status::Link as u16;
                }
            }
        }
        check_simm(db, rec, body, sim_of);
    }
    let sim = sim_of(&mut db.bodies, body);
    let (simm, sims, sdly) = (sim.simm, sim.sims, sim.sdly);
    match simm {
        0 => Mode::Real,
        1 | 2 if simm == 1 || raw => {
            db.common[rec as usize].raise(Status::Simm, sims);
            if resumed || sdly < 0.0 {
                return Mode::Simulated(simm);
            }
            db.call_back_after(rec, Callback::Resume, sdly);
            Mode::Delayed
        }
        _ => {
            db.common[rec as usize].raise(Status::Soft, 3);
            db.failed = true;
            Mode::Bad
        }
    }
}

/// Exchanges SCAN and SSCN when the mode has changed (recGblCheckSimm).
pub(crate) fn check_simm(db: &mut Db, rec: u32, body: usize, sim_of: SimOf) {
    let sim = sim_of(&mut db.bodies, body);
    if sim.sscn == u16::MAX || sim.simm == sim.oldsimm {
        return;
    }
    let sscn = sim.sscn;
    db.scan_delete(rec);
    let scan = std::mem::replace(&mut db.common[rec as usize].scan, sscn);
    db.scan_add(rec);
    sim_of(&mut db.bodies, body).sscn = scan;
}

/// At start: a constant SIML sets the mode (recGblInitSimm).
pub(crate) fn init_sim(db: &mut Db, rec: u32, body: usize, sim_of: SimOf) {
    let sim = sim_of(&mut db.bodies, body);
    if sim.siml.is_constant() {
        if sim.sscn != u16::MAX {
            sim.oldsimm = sim.simm;
        }
        if let Some(simm) = sim.siml.number::<u16>() {
            sim.simm = simm;
        }
        check_simm(db, rec, body, sim_of);
    }
}

/// Where a type's simulation fields are; `None` for types without.
pub(crate) fn sim_of(kind: Kind) -> Option<SimOf> {
    macro_rules! arms {
        ($($variant:ident $block:ident)*) => {
            match kind {
                $(Kind::$variant => Some(|bodies, body| &mut bodies.$block[body].sim),)*
                _ => None,
            }
        };
    }
    arms!(Ai ai Ao ao Bi bi Bo bo Int64In int64in Int64Out int64out LongIn longin LongOut longout Aai aai Aao aao Event event
        Histogram histogram Lsi lsi Lso lso Mbbi mbbi MbbiDirect mbbi_direct Mbbo mbbo MbboDirect mbbo_direct
        StringIn stringin StringOut stringout Waveform waveform)
}
