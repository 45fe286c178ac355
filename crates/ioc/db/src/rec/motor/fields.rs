//! Fields of a motor record that depend on each other: resolutions, speeds, limits, buttons.

use super::{Motor, STOPPED, mip};
use crate::model::id::RecId;
use crate::rec::Body;
use crate::run::engine::Db;
use crate::text::error::PutError;

impl Motor {
    /// Sign of user against dial coordinates.
    pub(super) const fn sign(&self) -> f64 {
        if self.dir == 0 { 1.0 } else { -1.0 }
    }

    /// Whether soft limits are in force.
    pub(super) const fn has_limits(&self) -> bool {
        !(self.dhlm == self.dllm && self.dllm == 0.0)
    }

    /// Whether SET makes writes to positions redefine them.
    pub(super) const fn sets(&self) -> bool {
        self.set != 0 && self.igset == 0
    }

    /// Derives user limits and raw limits from the dial limits.
    pub(super) fn limits_from_dial(&mut self) {
        let (high, low) = (self.dhlm * self.sign() + self.off, self.dllm * self.sign() + self.off);
        (self.hlm, self.llm) = if self.dir == 0 { (high, low) } else { (low, high) };
        let (high, low) = (self.dhlm / self.mres, self.dllm / self.mres);
        (self.rhlm, self.rllm) = if self.mres >= 0.0 { (high, low) } else { (low, high) };
    }

    fn limits_from_user(&mut self) {
        let [high, low] = [self.hlm, self.llm].map(|limit| (limit - self.off) * self.sign());
        (self.dhlm, self.dllm) = if self.dir == 0 { (high, low) } else { (low, high) };
        self.limits_from_dial();
    }

    /// Derives speeds in revolutions from those in units.
    fn speeds_from_units(&mut self) {
        let turn = self.urev.abs();
        if turn != 0.0 {
            (self.s, self.sbas, self.smax) = (self.velo / turn, self.vbas / turn, self.vmax / turn);
            self.sbak = self.bvel / turn;
        }
    }

    /// Keeps a speed between VBAS and VMAX (if VMAX is set).
    fn speed_within(&self, speed: f64) -> f64 {
        let speed = speed.max(self.vbas);
        if self.vmax > self.vbas { speed.min(self.vmax) } else { speed }
    }

    /// Derives ACCS from ACCL, or ACCL from ACCS, as ACCU selects.
    fn accelerations(&mut self) {
        let speed = self.velo - self.vbas;
        let speed = if speed > 0.0 { speed } else { self.velo };
        if self.accu == 0 {
            self.accs = speed / self.accl;
        } else if self.accs > 0.0 {
            self.accl = speed / self.accs;
        }
    }

    /// Makes all fields consistent at start.
    pub(super) fn consistent(&mut self) {
        self.srev = self.srev.max(1);
        if self.urev != 0.0 {
            self.mres = self.urev / f64::from(self.srev);
        }
        if self.mres == 0.0 {
            self.mres = 1.0;
        }
        self.urev = self.mres * f64::from(self.srev);
        self.eres = if self.eres == 0.0 { self.mres } else { self.eres };
        let turn = self.urev.abs();
        for (speed, turns) in [
            (&mut self.vbas, self.sbas),
            (&mut self.vmax, self.smax),
            (&mut self.velo, self.s),
            (&mut self.bvel, self.sbak),
        ] {
            if turns != 0.0 {
                *speed = turn * turns;
            }
        }
        self.velo = if self.velo > 0.0 { self.velo } else { self.vbas.max(1.0) };
        self.velo = self.speed_within(self.velo);
        for speed in [&mut self.bvel, &mut self.jvel, &mut self.hvel] {
            *speed = if *speed > 0.0 { *speed } else { self.velo };
        }
        self.accl = if self.accl > 0.0 { self.accl } else { 0.1 };
        self.bacc = if self.bacc > 0.0 { self.bacc } else { 0.1 };
        self.jar = if self.jar > 0.0 { self.jar } else { self.velo / self.accl };
        self.speeds_from_units();
        self.accelerations();
        self.frac = self.frac.clamp(0.1, 1.5);
        self.ntmf = self.ntmf.max(2);
        self.rdbd = self.rdbd.max(self.mres.abs());
        self.limits_from_dial();
    }

    /// A new step size: speeds in revolutions and raw limits stay, those in units follow.
    fn resolution_changed(&mut self, mres: f64) {
        let mres = if mres == 0.0 { 1.0 } else { mres };
        let factor = (mres * f64::from(self.srev)) / if self.urev == 0.0 { 1.0 } else { self.urev };
        let (high, low) = (self.rhlm * mres, self.rllm * mres);
        (self.mres, self.urev) = (mres, mres * f64::from(self.srev));
        (self.dhlm, self.dllm) = if mres >= 0.0 { (high, low) } else { (low, high) };
        for speed in [&mut self.velo, &mut self.vbas, &mut self.vmax, &mut self.bvel, &mut self.jvel, &mut self.hvel] {
            *speed *= factor.abs();
        }
        self.rdbd = self.rdbd.max(mres.abs());
        self.speeds_from_units();
        self.accelerations();
        self.limits_from_dial();
    }

    /// The offset or direction changed: user values follow from dial values, without motion.
    fn user_from_dial(&mut self) {
        self.val = self.dval * self.sign() + self.off;
        self.lval = self.val;
        self.rbv = self.drbv * self.sign() + self.off;
        self.limits_from_dial();
    }
}

/// Called before and after a write. Writes to a drive field clear DMOV at once, so that clients see it change also if the
/// target is the current position.
pub(super) fn written(db: &mut Db, rec: RecId, body: Body<Motor>, field: u16, after: bool) -> Result<(), PutError> {
    if !after {
        return before(db, rec, body, field);
    }
    let r = &mut db.records[body];
    let turn = r.urev.abs();
    match field {
        Motor::MRES => r.resolution_changed(r.mres),
        Motor::UREV => r.resolution_changed(r.urev / f64::from(r.srev)),
        Motor::SREV => {
            r.srev = r.srev.max(1);
            r.resolution_changed(r.urev / f64::from(r.srev));
        }
        Motor::OFF => r.user_from_dial(),
        Motor::DIR => {
            if r.foff == 0 {
                // The offset takes up the change, so that the user value stays.
                r.off = r.val - r.dval * r.sign();
            }
            r.user_from_dial();
        }
        Motor::HLM | Motor::LLM => r.limits_from_user(),
        Motor::DHLM | Motor::DLLM => r.limits_from_dial(),
        Motor::S => r.velo = r.speed_within(turn * r.s),
        Motor::SBAS => r.vbas = turn * r.sbas,
        Motor::SMAX => r.vmax = turn * r.smax,
        Motor::SBAK => r.bvel = turn * r.sbak,
        Motor::VELO => r.velo = r.speed_within(r.velo),
        Motor::BVEL => r.bvel = r.speed_within(r.bvel),
        Motor::JVEL => r.jvel = r.speed_within(r.jvel),
        Motor::HVEL => r.hvel = r.speed_within(r.hvel),
        Motor::VBAS => r.vbas = r.vbas.max(0.0),
        Motor::VMAX => r.vmax = r.vmax.max(0.0),
        Motor::ACCL if r.accl <= 0.0 => r.accl = 0.1,
        Motor::ACCS => r.accu = 1,
        Motor::RDBD => r.rdbd = r.rdbd.max(r.mres.abs()),
        Motor::FRAC => r.frac = r.frac.clamp(0.1, 1.5),
        Motor::NTMF => r.ntmf = r.ntmf.max(2),
        Motor::SSET => (r.set, r.sset) = (1, 0),
        Motor::SUSE => (r.set, r.suse) = (0, 0),
        Motor::FOF => (r.foff, r.fof) = (1, 0),
        Motor::VOF => (r.foff, r.vof) = (0, 0),
        Motor::UEIP if r.ueip != 0 => r.urip = 0,
        Motor::URIP if r.urip != 0 => r.ueip = 0,
        Motor::JOGF | Motor::JOGR => {
            let (on, limit) = if field == Motor::JOGF { (r.jogf, r.hls) } else { (r.jogr, r.lls) };
            if on == 0 {
                r.mip &= !mip::JOG_REQ;
            } else if limit == 0 && r.mip == 0 {
                r.mip |= mip::JOG_REQ;
            }
        }
        _ => {}
    }
    let speeds = [Motor::S, Motor::SBAS, Motor::SMAX, Motor::SBAK, Motor::VELO, Motor::BVEL, Motor::VBAS, Motor::VMAX];
    if speeds.contains(&field) {
        r.speeds_from_units();
    }
    if speeds.contains(&field) || matches!(field, Motor::ACCL | Motor::ACCS | Motor::ACCU) {
        r.accelerations();
    }
    let mask = base::EventMask::VALUE | base::EventMask::LOG;
    if matches!(field, Motor::OFF | Motor::DIR) {
        let r = &mut db.records[body];
        (r.mlst, r.alst) = (r.rbv, r.rbv);
        db.post_value(rec, mask);
        db.post_named(rec, "RBV", mask);
    }
    super::post_changes(db, rec, body, mask);
    Ok(())
}

fn before(db: &mut Db, rec: RecId, body: Body<Motor>, field: u16) -> Result<(), PutError> {
    let common = &db.records[rec];
    let disabled = common.disa == common.disv || common.disp != 0;
    let r = &mut db.records[body];
    let drives = matches!(field, Motor::VAL | Motor::DVAL | Motor::RVAL | Motor::RLV | Motor::TWF | Motor::TWR);
    if drives && !disabled && r.dmov != 0 {
        r.dmov = 0;
        super::post_changes(db, rec, body, base::EventMask::VALUE | base::EventMask::LOG);
    } else if matches!(field, Motor::HOMF | Motor::HOMR) && r.mip & mip::HOME != 0 {
        return Err(PutError::BadValue { what: "the axis is already searching its home position".into() });
    } else if field == Motor::STUP && r.stup != STOPPED {
        return Err(PutError::BadValue { what: "a status update is in progress".into() });
    }
    Ok(())
}
