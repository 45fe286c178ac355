//! histogram record.

use crate::model::link::Link;
use crate::model::slot::{Lazy, record};
use crate::rec::{Body, Mode, Properties, RecId, RecordType, Sim, init_sim, mode, no_device, simulation, stamp_input};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Status, Str40};

record! {
    /// Fields of a histogram record.
    Histogram {
        val: Array [VAL],
        nelm: u16 [NELM],
        csta: i16 [CSTA],
        cmd: u16 [CMD],
        ulim: f64 [ULIM],
        llim: f64 [LLIM],
        wdth: f64 [WDTH],
        sgnl: f64 [SGNL],
        prec: i16 [PREC],
        svl: Link [SVL],
        mdel: i16 [MDEL],
        mcnt: i16 [MCNT],
        sdel: f64 [SDEL],
        sval: f64 [SVAL],
        hopr: u32 [HOPR],
        lopr: u32 [LOPR],
        sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
    }
}

impl RecordType for Histogram {
    simulation!();

    /// Start: allocates the bins, computes their width, loads constants.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.nelm = r.nelm.max(1);
        r.val = Array::U32(vec![0; usize::from(r.nelm)]);
        r.wdth = (r.ulim - r.llim) / f64::from(r.nelm);
        start_watchdog(db, rec, body);
        init_sim(db, rec, body);
        let device = db.device(rec);
        let r = &mut db.records[body];
        if let Some(sval) = r.sim.siol.number() {
            r.sval = sval;
        }
        if device != Device::Missing
            && let Some(sgnl) = r.svl.number()
        {
            r.sgnl = sgnl;
            db.records[rec].udf = 0;
        }
    }

    /// Reads the signal, counts it, posts monitors.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if db.device(rec) != Device::Soft {
            return no_device(db, rec);
        }
        let link = match mode(db, rec, body, resumed, false) {
            Mode::Real => Some((db.records[body].svl.brief(), false)),
            Mode::Simulated(_) => Some((db.records[body].sim.siol.brief(), true)),
            Mode::Delayed => return ProcessResult::Pending,
            Mode::Bad => None,
        };
        let read = link.map(|(link, simulated)| (db.get_link::<f64>(rec, link), simulated));
        let done = match read {
            Some((Ok(value), simulated)) => {
                let r = &mut db.records[body];
                if simulated {
                    r.sval = value.unwrap_or(r.sval);
                    r.sgnl = r.sval;
                    db.records[rec].udf = 0;
                } else if let Some(value) = value {
                    r.sgnl = value;
                }
                true
            }
            // If the signal cannot be read, the read raises the alarm and the previous value is counted again.
            Some((Err(_), simulated)) => !simulated,
            None => false,
        };
        stamp_input(db, rec, body);
        if done {
            add_count(db, rec, body);
        }
        let mut mask = db.reset_alarms(rec);
        let r = &mut db.records[body];
        if r.mcnt > r.mdel {
            mask |= EventMask::VALUE | EventMask::LOG;
            r.mcnt = 0;
        }
        if !mask.is_empty() {
            db.post_value(rec, mask);
        }
        if done { ProcessResult::Done } else { ProcessResult::Failed }
    }

    /// Handles writes to commands, signal and limits.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        match field {
            Self::CMD => {
                match db.records[body].cmd {
                    0 | 1 => clear(db, rec, body),
                    2 => db.records[body].csta = 1,
                    3 => db.records[body].csta = 0,
                    _ => return Ok(()),
                }
                db.records[body].cmd = 0;
            }
            Self::SGNL => add_count(db, rec, body),
            Self::SDEL => start_watchdog(db, rec, body),
            _ => {
                let r = &mut db.records[body];
                r.wdth = (r.ulim - r.llim) / f64::from(r.nelm);
                clear(db, rec, body);
            }
        }
        Ok(())
    }

    /// SDEL has passed: posts counts that were not posted yet.
    fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, _: u8) {
        if db.records[body].mcnt > 0 {
            db.stamp_now(rec);
            db.post_value(rec, EventMask::VALUE | EventMask::LOG);
            db.records[body].mcnt = 0;
        }
        start_watchdog(db, rec, body);
    }

    fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
        let of = Properties::BOUNDED;
        match field {
            Self::VAL => of.within(self.lopr.into(), self.hopr.into()),
            Self::WDTH => of.within(0.0, self.ulim - self.llim).digits(self.prec, true),
            Self::ULIM | Self::LLIM | Self::SGNL | Self::SVAL => of.digits(self.prec, true),
            Self::SDEL => Properties { units: Str40::from("s"), ..of.digits(2, true) },
            _ => of,
        }
    }

    fn shape(&self, _: u16) -> (u32, FieldType) {
        (u32::from(self.nelm), FieldType::U32)
    }

    fn store_array(db: &mut Db, _: RecId, body: Body<Self>, _: u16, values: Array) -> Result<(), PutError> {
        if let (Array::U32(bins), Array::U32(values)) = (&mut db.records[body].val, values) {
            let count = bins.len().min(values.len());
            bins[..count].copy_from_slice(&values[..count]);
        }
        Ok(())
    }
}

/// Callback that posts the counts every SDEL seconds.
const WATCHDOG: u8 = 0;

fn start_watchdog(db: &mut Db, rec: RecId, body: Body<Histogram>) {
    let sdel = db.records[body].sdel;
    if sdel > 0.0 {
        db.cancel_delay(rec, Callback::Own(WATCHDOG));
        db.call_back_after(rec, Callback::Own(WATCHDOG), sdel);
    }
}

/// Increments the bin of SGNL.
fn add_count(db: &mut Db, rec: RecId, body: Body<Histogram>) {
    let (common, r) = db.records.both(rec, body);
    if r.csta == 0 {
        return;
    }
    if r.llim >= r.ulim && common.nsev < 3 {
        common.stat = Status::Soft as u16;
        common.sevr = 3;
        return;
    }
    if r.sgnl < r.llim || r.sgnl >= r.ulim {
        return;
    }
    let above = r.sgnl - r.llim;
    let bin = (1..=r.nelm).find(|bin| above <= f64::from(*bin) * r.wdth).map_or(r.nelm, |bin| bin - 1);
    if let Array::U32(bins) = &mut r.val
        && let Some(count) = bins.get_mut(usize::from(bin))
    {
        *count = count.wrapping_add(1).max(1);
        r.mcnt = r.mcnt.wrapping_add(1);
    }
}

fn clear(db: &mut Db, rec: RecId, body: Body<Histogram>) {
    let r = &mut db.records[body];
    r.val = Array::U32(vec![0; usize::from(r.nelm)]);
    r.mcnt = r.mdel.wrapping_add(1);
    db.records[rec].udf = 0;
}
