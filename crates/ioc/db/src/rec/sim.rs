//! Simulation mode.

use super::{Body, ReadOutcome, RecordType};
use crate::model::id::RecId;
use crate::model::link::{Link, ResolvedLink};
use crate::model::slot::{Fields, Idle, Slot};
use crate::run::callback::Callback;
use crate::run::engine::Db;
use crate::run::link::LinkResult;
use base::Status;

/// Fields of simulation mode.
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
    // SSCN and SDLY have the initial values of the field table.
    const IDLE: &'static Self =
        &Self { siol: Link::EMPTY, siml: Link::EMPTY, simm: 0, sims: 0, oldsimm: 0, sscn: u16::MAX, sdly: -1.0 };
    fn is_idle(&self) -> bool {
        let Self { siol, siml, simm, sims, oldsimm, sscn, sdly } = self;
        siol.is_empty() && siml.is_empty() && (simm | sims | oldsimm) == 0 && *sscn == u16::MAX && *sdly == -1.0
    }
}

/// Implements access to the simulation fields of a type that has them in `sim`.
macro_rules! simulation {
    () => {
        fn sim(&mut self) -> Option<&mut $crate::model::slot::Lazy<$crate::rec::Sim>> {
            Some(&mut self.sim)
        }
    };
}
pub(crate) use simulation;

/// Simulation state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not simulated.
    Real,
    /// Simulated, with the choice of SIMM.
    Simulated(u16),
    /// Simulated after a delay.
    Delayed,
    /// SIMM has an invalid value.
    Bad,
}

/// Reads SIML and returns the simulation state (recGblGetSimm and the switch after it).
#[inline]
pub(crate) fn mode<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>, resumed: bool, raw: bool) -> Mode {
    let Some(sim) = db.records[body].sim() else { return Mode::Real };
    if sim.rests() || (sim.simm == 0 && sim.siml.is_constant() && sim.sscn == u16::MAX) {
        return Mode::Real;
    }
    mode_slow(db, rec, body, resumed, raw)
}

/// Output mode: the choice of SIMM, 0 to write to the device. `Err` if nothing is written now, with whether a callback will
/// follow.
#[inline]
pub(crate) fn output_mode<T: RecordType>(
    db: &mut Db,
    rec: RecId,
    body: Body<T>,
    resumed: bool,
    raw: bool,
) -> Result<u16, bool> {
    match mode(db, rec, body, resumed, raw) {
        Mode::Real => Ok(0),
        Mode::Simulated(simm) => Ok(simm),
        Mode::Delayed => Err(true),
        Mode::Bad => Err(false),
    }
}

/// Reads the simulated value of an input from SIOL with `get`. `take` stores it; it gets `None` for a constant link.
#[cold]
pub(crate) fn read_simulated<T: RecordType, V>(
    db: &mut Db,
    rec: RecId,
    body: Body<T>,
    get: impl FnOnce(&mut Db, RecId, ResolvedLink) -> LinkResult<V>,
    take: impl FnOnce(&mut Db, Option<V>) -> ReadOutcome,
) -> ReadOutcome {
    let siol = db.records[body].sim().map_or(Link::EMPTY.brief(), |sim| sim.siol.brief());
    let Ok(value) = get(db, rec, siol) else { return ReadOutcome::Failed };
    db.records[rec].udf = 0;
    take(db, value)
}

/// Stamps an output record, taking simulation mode into account.
#[inline]
pub(crate) fn stamp_output<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>) {
    let simm = db.records[body].sim().map_or(0, |sim| sim.simm);
    db.stamp_simulated(rec, simm, None);
}

/// Stamps an input record; a simulated one by its SIOL.
#[inline]
pub(crate) fn stamp_input<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>) {
    let (simm, siol) = db.records[body].sim().map_or((0, Link::EMPTY.brief()), |sim| (sim.simm, sim.siol.brief()));
    db.stamp_simulated(rec, simm, Some(siol));
}

#[cold]
fn mode_slow<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>, resumed: bool, raw: bool) -> Mode {
    if !resumed {
        let Some(sim) = db.records[body].sim() else { return Mode::Real };
        if sim.sscn != u16::MAX {
            sim.oldsimm = sim.simm;
        }
        let link = sim.siml.brief();
        match db.try_link::<u16>(rec, link) {
            Ok(Some(simm)) => drop(db.records[body].sim().map(|sim| sim.simm = simm)),
            Ok(None) => {}
            Err(_) => {
                if db.records[rec].nsev == 0 {
                    db.records[rec].nsta = Status::Link as u16;
                }
            }
        }
        check_simm(db, rec, body);
    }
    let Some(sim) = db.records[body].sim() else { return Mode::Real };
    let (simm, sims, sdly) = (sim.simm, sim.sims, sim.sdly);
    match simm {
        0 => Mode::Real,
        1 | 2 if simm == 1 || raw => {
            db.records[rec].raise(Status::Simm, sims);
            if resumed || sdly < 0.0 {
                return Mode::Simulated(simm);
            }
            db.call_back_after(rec, Callback::Resume, sdly);
            Mode::Delayed
        }
        _ => {
            db.records[rec].raise(Status::Soft, 3);
            db.pass.failed = true;
            Mode::Bad
        }
    }
}

/// Swaps SCAN and SSCN if the mode changed (recGblCheckSimm).
pub(crate) fn check_simm<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>) {
    let Some(sim) = db.records[body].sim() else { return };
    if sim.sscn == u16::MAX || sim.simm == sim.oldsimm {
        return;
    }
    let sscn = sim.sscn;
    db.scan_delete(rec);
    let scan = std::mem::replace(&mut db.records[rec].scan, sscn);
    db.scan_add(rec);
    if let Some(sim) = db.records[body].sim() {
        sim.sscn = scan;
    }
}

/// Start: a constant SIML sets the mode (recGblInitSimm).
pub(crate) fn init_sim<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>) {
    let Some(sim) = db.records[body].sim() else { return };
    if sim.siml.is_constant() {
        if sim.sscn != u16::MAX {
            sim.oldsimm = sim.simm;
        }
        if let Some(simm) = sim.siml.number::<u16>() {
            sim.simm = simm;
        }
        check_simm(db, rec, body);
    }
}

/// Called before and after a client writes SIMM.
pub(crate) fn simm_written<T: RecordType>(db: &mut Db, rec: RecId, body: Body<T>, after: bool) {
    if after {
        check_simm(db, rec, body);
    } else if let Some(sim) = db.records[body].sim()
        && sim.sscn != u16::MAX
    {
        sim.oldsimm = sim.simm;
    }
}
