//! Decisions of a motor record: what to do after a write, and after the axis stopped.

use super::{Motor, mip};
use crate::model::id::RecId;
use crate::rec::Body;
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::Db;
use base::{EventMask, Scalar};

/// Callback of the axis and of the delay DLY.
const AXIS: u8 = 0;
/// Maximum and minimum number of seconds between two readings of a moving axis. The clock has nanoseconds.
const POLL: f64 = 0.1;
const SOON: f64 = 1e-6;

/// Values of SPMG.
const STOP: u16 = 0;
const PAUSE: u16 = 1;
const MOVE: u16 = 2;
const GO: u16 = 3;

/// Retry modes other than linear retries.
const ARITHMETIC: u16 = 1;
const GEOMETRIC: u16 = 2;
const IN_POSITION: u16 = 3;

impl Motor {
    /// Takes the readback as target.
    pub(super) fn targets_from_readback(&mut self) {
        (self.val, self.dval, self.rval) = (self.rbv, self.drbv, self.rrbv);
        self.keep_targets();
        (self.diff, self.rdif) = (0.0, 0);
    }

    /// The targets are those of the motion in progress.
    fn keep_targets(&mut self) {
        (self.lval, self.ldvl, self.lrvl) = (self.val, self.dval, self.rval);
    }

    fn clear_buttons(&mut self) {
        (self.jogf, self.jogr, self.homf, self.homr) = (0, 0, 0, 0);
        self.mip &= !mip::JOG_REQ;
    }

    /// The motion is over.
    fn done(&mut self) {
        (self.mip, self.dmov, self.backlash, self.settled) = (0, 1, false, false);
        if self.spmg == MOVE {
            (self.spmg, self.lspg) = (PAUSE, PAUSE);
        }
    }

    /// Speed of the axis in steps per second.
    fn steps(&self, speed: f64) -> f64 {
        speed / self.mres.abs()
    }

    const fn is_paused(&self) -> bool {
        self.spmg == STOP || self.spmg == PAUSE
    }

    /// Whether the limit switch in the direction of the command is active.
    const fn is_on_limit(&self) -> bool {
        (self.rhls != 0 && self.cdir != 0) || (self.rlls != 0 && self.cdir == 0)
    }

    fn has_backlash(&self) -> bool {
        self.bdst.abs() >= self.mres.abs()
    }
}

/// Reads position and switches of the axis.
pub(super) fn read(db: &mut Db, rec: RecId, body: Body<Motor>) {
    let now = db.time.now.mono;
    let is_soft = db.device(rec) == Device::Soft;
    let r = &db.records[body];
    let (rinp, dinp, rdbl) = (r.rinp.brief(), r.dinp.brief(), r.rdbl.brief());
    let position = if is_soft { db.get_link::<f64>(rec, rinp).ok().flatten() } else { None };
    let done = if is_soft { db.get_link::<f64>(rec, dinp).ok().flatten() } else { None };
    let readback = if db.records[body].urip != 0 { db.get_link::<f64>(rec, rdbl).ok().flatten() } else { None };
    let r = &mut db.records[body];
    r.axis.advance(now);
    if let Some(position) = position {
        r.axis.load(position);
    }
    let moving = r.axis.is_moving() || done.is_some_and(|done| done == 0.0);
    r.rmp = base::text::to_i32(r.axis.position().round());
    r.rep = r.rmp;
    r.rvel = base::text::to_i32(r.axis.speed().round());
    (r.rhls, r.rlls) = (i16::from(r.axis.at_high()), i16::from(r.axis.at_low()));
    (r.hls, r.lls) = if (r.dir == 0) == (r.mres >= 0.0) { (r.rhls, r.rlls) } else { (r.rlls, r.rhls) };
    (r.tdir, r.athm, r.movn) = (i16::from(r.axis.is_forward), i16::from(r.axis.at_home()), i16::from(moving));
    let bits = [
        (0, r.tdir != 0),
        (1, !moving),
        (2, r.rhls != 0),
        (3, r.athm != 0),
        (10, moving),
        (13, r.rlls != 0),
        (14, r.axis.is_homed),
    ];
    r.msta = bits.into_iter().fold(0, |bits, (bit, on)| bits | u32::from(on) << bit);
    match readback {
        Some(value) => {
            r.drbv = value * if r.rres == 0.0 { 1.0 } else { r.rres };
            r.rrbv = base::text::to_i32((r.drbv / r.mres).round());
        }
        None => (r.rrbv, r.drbv) = (r.rmp, f64::from(r.rmp) * r.mres),
    }
    r.rbv = r.drbv * r.sign() + r.off;
    r.diff = r.dval - r.drbv;
    r.rdif = base::text::to_i32((r.diff / r.mres).round());
}

/// Requests the next reading of the axis: at the end of its motion, at the latest after [`POLL`].
pub(super) fn look_later(db: &mut Db, rec: RecId, body: Body<Motor>) {
    db.cancel_delay(rec, Callback::Own(AXIS));
    let left = db.records[body].axis.time_left();
    if left > 0.0 || db.records[body].movn != 0 {
        let delay = if left > 0.0 { left.clamp(SOON, POLL) } else { POLL };
        db.call_back_after(rec, Callback::Own(AXIS), delay);
    } else {
        db.call_back(rec, Callback::Own(AXIS));
    }
}

/// Sends the axis to a position in steps, at a speed in units.
fn go(db: &mut Db, rec: RecId, body: Body<Motor>, target: f64, speed: f64) {
    let now = db.time.now.mono;
    let is_soft = db.device(rec) == Device::Soft;
    let r = &mut db.records[body];
    r.cdir = i16::from(target >= r.axis.position());
    if is_soft {
        let (out, value) = (r.out.brief(), Scalar::F64(target * r.mres));
        r.axis.load(target);
        // A failed write raises the alarm itself.
        let _ = db.put_link(rec, out, value);
    } else {
        let speed = r.steps(speed);
        r.axis.go(now, target.round(), speed);
        r.movn = i16::from(r.axis.is_moving());
    }
    look_later(db, rec, body);
}

/// Stops the axis.
fn halt(db: &mut Db, rec: RecId, body: Body<Motor>) {
    let now = db.time.now.mono;
    let stoo = db.records[body].stoo.brief();
    if db.device(rec) == Device::Soft {
        let _ = db.put_link(rec, stoo, Scalar::I16(1));
    }
    let r = &mut db.records[body];
    r.axis.stop(now);
    // A running delay ends as planned.
    if !r.settling {
        look_later(db, rec, body);
    }
}

/// After a reading of the axis. Returns whether nothing remains to be decided.
pub(super) fn updated(db: &mut Db, rec: RecId, body: Body<Motor>) -> bool {
    read(db, rec, body);
    let r = &mut db.records[body];
    if r.movn == 0 {
        return stopped(db, rec, body);
    }
    let beyond = (r.jogf != 0 && r.rbv > r.hlm - r.jvel) || (r.jogr != 0 && r.rbv < r.llm + r.jvel);
    let in_wrong_direction = (r.rdif >= 0) != (r.cdir != 0);
    let far = r.diff.abs() > f64::from(r.ntmf) * (r.bdst.abs() + r.rdbd);
    if r.mip & mip::JOG != 0 && r.has_limits() && beyond {
        // A jog ends before the soft limit.
        r.lvio = 1;
        r.clear_buttons();
        r.mip = mip::STOP;
        halt(db, rec, body);
    } else if r.ntm != 0 && in_wrong_direction && far && r.mip & (mip::MOVE | mip::RETRY) != 0 && r.mip & mip::STOP == 0
    {
        r.mip |= mip::STOP;
        r.backlash = false;
        halt(db, rec, body);
    } else {
        look_later(db, rec, body);
    }
    true
}

/// Handles an axis that has stopped. Returns whether no decision remains.
fn stopped(db: &mut Db, rec: RecId, body: Body<Motor>) -> bool {
    let r = &mut db.records[body];
    let (dval, bdst, bvel, velo, mres) = (r.dval, r.bdst, r.bvel, r.velo, r.mres);
    let has_new_target = r.dval != r.ldvl;
    match r.mip {
        0 => return false,
        state if state & mip::STOP != 0 => {
            if state & (mip::MOVE | mip::RETRY) != 0 && has_new_target {
                // The motion was stopped for a new target.
                r.mip = 0;
                return false;
            }
            if r.spmg != PAUSE {
                r.targets_from_readback();
                r.done();
            }
        }
        state if state & (mip::HOME | mip::JOG) != 0 => {
            r.clear_buttons();
            r.targets_from_readback();
            return settle(db, rec, body);
        }
        mip::JOG_STOP => {
            r.targets_from_readback();
            if !r.has_backlash() {
                return settle(db, rec, body);
            }
            r.mip = mip::JOG_BL1;
            let target = (r.dval - bdst) / mres;
            go(db, rec, body, target, velo);
        }
        mip::JOG_BL1 => {
            r.mip = mip::JOG_BL2;
            go(db, rec, body, dval / mres, bvel);
        }
        state if r.is_on_limit() && state & mip::JOG_BL2 == 0 => r.done(),
        _ if has_new_target => {
            (r.mip, r.backlash) = (0, false);
            return false;
        }
        _ if std::mem::take(&mut r.backlash) => {
            r.mip = mip::MOVE_BL;
            go(db, rec, body, dval / mres, bvel);
        }
        _ => return settle(db, rec, body),
    }
    true
}

/// Waits for DLY, then ends the motion or retries. Returns whether nothing remains to be decided.
fn settle(db: &mut Db, rec: RecId, body: Body<Motor>) -> bool {
    let r = &mut db.records[body];
    if r.dly > 0.0 && !r.settled {
        if !std::mem::replace(&mut r.settling, true) {
            r.mip |= mip::DELAY;
            let delay = r.dly;
            db.cancel_delay(rec, Callback::Own(AXIS));
            db.call_back_after(rec, Callback::Own(AXIS), delay);
        }
        return true;
    }
    r.settled = false;
    r.mip &= !mip::DELAY;
    let is_move = r.mip & (mip::MOVE | mip::MOVE_BL | mip::RETRY) != 0;
    if is_move && r.diff.abs() >= r.rdbd && r.rtry > 0 {
        if r.rcnt < r.rtry {
            r.rcnt += 1;
            (r.mip, r.dmov) = (mip::RETRY, 0);
            start(db, rec, body);
            return true;
        }
        r.miss = 1;
    } else {
        r.miss = 0;
    }
    r.done();
    true
}

/// Does what the fields request.
pub(super) fn work(db: &mut Db, rec: RecId, body: Body<Motor>) {
    if std::mem::take(&mut db.records[body].stup) != 0 {
        read(db, rec, body);
    }
    if command(db, rec, body) || buttons(db, rec, body) || !targets(db, rec, body) {
        return;
    }
    let r = &mut db.records[body];
    if r.dval != r.ldvl || r.dmov == 0 {
        if r.sets() {
            let (position, rval) = (r.dval / r.mres, r.dval / r.mres);
            r.axis.load(position.round());
            r.rval = base::text::to_i32(rval.round());
            r.val = r.dval * r.sign() + r.off;
            r.keep_targets();
            read(db, rec, body);
            db.records[body].done();
        } else {
            start(db, rec, body);
        }
    } else if r.sync != 0 && r.mip == 0 {
        r.sync = 0;
        reset(db, rec, "SYNC");
        read(db, rec, body);
        db.records[body].targets_from_readback();
    }
}

/// Posts a button that was reset in the processing that its write caused. The write itself was posted already.
fn reset(db: &mut Db, rec: RecId, button: &str) {
    db.post_named(rec, button, EventMask::VALUE | EventMask::LOG);
}

/// Handles SPMG and STOP. Returns whether nothing else is to be done.
fn command(db: &mut Db, rec: RecId, body: Body<Motor>) -> bool {
    let r = &mut db.records[body];
    let stop = std::mem::take(&mut r.stop) != 0;
    let changed = r.spmg != r.lspg;
    if !stop && !changed {
        return false;
    }
    r.lspg = r.spmg;
    if stop {
        reset(db, rec, "STOP");
    }
    let r = &mut db.records[body];
    if stop || r.is_paused() {
        let for_good = stop || r.spmg == STOP;
        if for_good && r.movn == 0 && !r.settling && (r.mip == 0 || r.mip & mip::STOP != 0) {
            // The axis is at rest already. A target kept by a pause is dropped.
            r.targets_from_readback();
            r.done();
        } else if r.mip != 0 {
            r.clear_buttons();
            r.mip = mip::STOP | r.mip & mip::DELAY;
            if for_good {
                r.keep_targets();
            }
        }
        halt(db, rec, body);
        return true;
    }
    if r.spmg == GO && ((r.jogf != 0 && r.hls == 0) || (r.jogr != 0 && r.lls == 0)) {
        r.mip = mip::JOG_REQ;
    } else if r.mip & mip::STOP != 0 || r.spmg == MOVE {
        (r.mip, r.rcnt) = (0, 0);
    }
    false
}

/// Handles home and jog buttons. Returns whether nothing else is to be done.
fn buttons(db: &mut Db, rec: RecId, body: Body<Motor>) -> bool {
    let now = db.time.now.mono;
    let r = &mut db.records[body];
    let homes =
        (r.homf != 0 && r.mip & mip::HOMF == 0 && r.hls == 0) || (r.homr != 0 && r.mip & mip::HOMR == 0 && r.lls == 0);
    if homes && r.mip & mip::HOME == 0 {
        if r.is_paused() {
            return true;
        }
        r.mip = if r.homf != 0 { mip::HOMF } else { mip::HOMR };
        (r.dmov, r.rcnt, r.backlash) = (0, 0, false);
        r.cdir = i16::from((r.homf != 0) == (r.mres > 0.0));
        let speed = r.steps(r.hvel);
        r.axis.home(now, speed);
        r.movn = i16::from(r.axis.is_moving());
        look_later(db, rec, body);
        return true;
    }
    if r.mip & mip::JOG_REQ != 0 && r.mip & mip::JOG == 0 {
        if r.is_paused() {
            return true;
        }
        let beyond = (r.jogf != 0 && r.val > r.hlm - r.jvel) || (r.jogr != 0 && r.val < r.llm + r.jvel);
        if r.has_limits() && (beyond || r.dllm > r.dhlm) {
            r.lvio = 1;
            r.clear_buttons();
            return true;
        }
        (r.lvio, r.dmov) = (0, 0);
        r.mip = mip::JOG_REQ | if r.jogf != 0 { mip::JOGF } else { mip::JOGR };
        let way = if r.jogf != 0 { r.sign() } else { -r.sign() };
        let speed = r.jvel * way / r.mres;
        r.cdir = i16::from(speed >= 0.0);
        r.axis.jog(now, speed);
        r.movn = i16::from(r.axis.is_moving());
        look_later(db, rec, body);
        return true;
    }
    if r.mip & mip::JOG != 0 && r.mip & mip::JOG_REQ == 0 {
        r.mip = mip::JOG_STOP;
        halt(db, rec, body);
        return true;
    }
    r.mip & (mip::JOG_STOP | mip::JOG_BL1 | mip::JOG_BL2 | mip::JOG) != 0
}

/// Collects new targets. Returns whether the axis may have to move.
fn targets(db: &mut Db, rec: RecId, body: Body<Motor>) -> bool {
    let dol = db.records[body].dol.brief();
    if db.records[body].omsl == 1 && !db.records[body].dol.is_constant() {
        match db.get_link::<f64>(rec, dol) {
            Ok(Some(value)) => {
                db.records[body].val = value;
                db.records[rec].udf = 0;
            }
            Ok(None) => {}
            Err(_) => {
                db.records[rec].udf = 1;
                return false;
            }
        }
    } else {
        let r = &mut db.records[body];
        if r.twf != 0 || r.twr != 0 {
            r.val += if r.twf != 0 { r.twv } else { -r.twv };
            (r.twf, r.twr) = (0, 0);
        }
        if r.rlv != 0.0 {
            r.val += std::mem::take(&mut r.rlv);
        }
        if r.rval != r.lrvl {
            r.dval = f64::from(r.rval) * r.mres;
        }
    }
    let r = &mut db.records[body];
    if r.val != r.lval {
        if r.sets() && r.foff == 0 {
            // The user value is redefined without motion: the offset follows.
            r.off = r.val - r.dval * r.sign();
            r.rbv = r.drbv * r.sign() + r.off;
            r.limits_from_dial();
            r.lval = r.val;
            r.done();
            return false;
        }
        r.dval = (r.val - r.off) * r.sign();
    }
    !r.is_paused()
}

/// Whether a target violates the soft limits. A move back towards the allowed range is allowed.
fn violates(r: &Motor, preferred: bool) -> bool {
    if !r.has_limits() {
        return false;
    }
    if r.dllm > r.dhlm {
        return true;
    }
    if (r.dval > r.dhlm && r.dval < r.ldvl) || (r.dval < r.dllm && r.dval > r.ldvl) {
        return false;
    }
    let way_point = if preferred || !r.has_backlash() { r.dval } else { r.dval - r.bdst };
    [r.dval, way_point].iter().any(|position| *position > r.dhlm || *position < r.dllm)
}

/// Starts the motion to DVAL, if it is far enough and allowed.
fn start(db: &mut Db, rec: RecId, body: Body<Motor>) {
    let r = &mut db.records[body];
    let is_retry = r.mip & mip::RETRY != 0;
    r.val = r.dval * r.sign() + r.off;
    r.rval = base::text::to_i32((r.dval / r.mres).round());
    r.diff = r.dval - r.drbv;
    r.rdif = base::text::to_i32((r.diff / r.mres).round());
    let steps = (r.dval / r.mres).round() - (r.drbv / r.mres).round();
    let too_small = if is_retry {
        steps.abs() < (r.rdbd / r.mres.abs()).round()
    } else {
        steps.abs() < 1.0 || (r.spdb > 0.0 && r.diff.abs() < r.spdb)
    };
    if too_small {
        if r.mip == 0 || is_retry {
            r.done();
        }
        r.keep_targets();
        return;
    }
    // With a separate readback, the axis moves by the difference.
    let relative = r.rtry != 0 && r.rmod != IN_POSITION && (r.ueip != 0 || r.urip != 0);
    let forward = if relative { r.diff > 0.0 } else { r.dval > r.ldvl };
    let preferred = forward == (r.bdst > 0.0);
    r.lvio = i16::from(violates(r, preferred));
    if r.lvio != 0 {
        (r.val, r.dval, r.rval) = (r.lval, r.ldvl, r.lrvl);
        if r.mip == 0 || is_retry {
            r.done();
        }
        return;
    }
    // A motion in progress ends first.
    if r.mip != 0 && !is_retry {
        return;
    }
    if !is_retry {
        (r.rcnt, r.miss) = (0, 0);
    } else if r.rmod == IN_POSITION {
        return look_later(db, rec, body);
    }
    r.mip |= mip::MOVE;
    (r.dmov, r.settled) = (0, false);
    r.keep_targets();
    let factor = match r.rmod {
        ARITHMETIC if is_retry => f64::from(r.rtry - r.rcnt + 1) / f64::from(r.rtry),
        GEOMETRIC if is_retry => 0.5f64.powi(i32::from(r.rcnt) - 1),
        _ => 1.0,
    };
    let here = r.axis.position();
    let way = if relative { r.diff / r.mres } else { r.dval / r.mres - here } * factor;
    let straight = !r.has_backlash() || (preferred && r.bvel == r.velo && r.bacc == r.accl);
    let near = preferred && way.abs() <= 1.0 + (r.bdst / r.mres).abs();
    r.backlash = !straight && !near;
    let (target, speed) = match (straight, near) {
        (true, _) => (here + way * f64::from(r.frac), r.velo),
        (false, true) => (here + way * f64::from(r.frac), r.bvel),
        (false, false) => (here + way - r.bdst / r.mres, r.velo),
    };
    go(db, rec, body, target, speed);
}
