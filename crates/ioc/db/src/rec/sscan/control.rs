//! Writes to fields of the record.

use super::linear::{CENTER, END, Linear, Outcome, POINTS, START, STEP, WIDTH};
use super::phases::{self, set_faze};
use super::*;
use crate::run::callback::Callback;

/// CMND: requests of clients.
mod cmnd {
    pub(super) const CLEAR_MESSAGE: u16 = 0;
    pub(super) const CHECK_LIMITS: u16 = 1;
    pub(super) const PREVIEW: u16 = 2;
    pub(super) const CLEAR_ALL: u16 = 3;
    pub(super) const CLEAR_POSITIONERS_AND_MODES: u16 = 4;
    pub(super) const CLEAR_POSITIONERS: u16 = 5;
    pub(super) const CLEAR_READBACKS_AND_MODES: u16 = 6;
    pub(super) const CLEAR_READBACKS: u16 = 7;
}

/// First fields of the linear parameters, with their names in a set.
const PARAMETERS: [(u16, u8); 5] =
    [(SScan::P1SP, START), (SScan::P1SI, STEP), (SScan::P1EP, END), (SScan::P1CP, CENTER), (SScan::P1WD, WIDTH)];
/// First fields of the freeze flags, in the same order.
const FLAGS: [u16; 5] = [SScan::P1FS, SScan::P1FI, SScan::P1FE, SScan::P1FC, SScan::P1FW];

impl SScan {
    /// Whether a client may write a field now. During a scan few fields may change.
    pub(super) fn accepts(&self, field: u16) -> Result<(), PutError> {
        let is_link = nth(field, Self::P1PV, PVS).is_some() || matches!(field, Self::ACQM | Self::ACQT);
        let is_inside = (faze::MOVE..faze::AFTER).contains(&self.faze) || self.faze == faze::RECORD;
        let is_control =
            matches!(field, Self::CMND | Self::EXSC | Self::PAUS | Self::WAIT | Self::AWCT | Self::AWAIT | Self::ATIME);
        if self.busy != 0 && (is_link || (is_inside && !is_control)) {
            let name = Self::NAMES[usize::from(field)];
            return Err(PutError::BadValue {
                what: format!("{name} cannot change during a scan; write 0 to EXSC first"),
            });
        }
        Ok(())
    }

    /// The freeze flags of a positioner.
    const fn flags(&mut self, positioner: usize) -> [&mut u16; 5] {
        [
            &mut self.frozen_start[positioner],
            &mut self.frozen_step[positioner],
            &mut self.frozen_end[positioner],
            &mut self.frozen_center[positioner],
            &mut self.frozen_width[positioner],
        ]
    }

    fn linear(&mut self, at: usize) -> Linear {
        let points = if self.fpts != 0 { POINTS } else { 0 };
        let flags = self.flags(at).into_iter().zip(PARAMETERS);
        let frozen = flags.filter(|(flag, _)| **flag != 0).fold(points, |set, (_, (_, parameter))| set | parameter);
        Linear {
            start: self.start[at],
            step: self.step[at],
            end: self.end[at],
            center: self.center[at],
            width: self.width[at],
            points: self.npts,
            max_points: self.mpts,
            frozen,
        }
    }

    /// Linear parameters of a positioner, in the order of [`PARAMETERS`].
    const fn parameters(&mut self, at: usize) -> [&mut f64; 5] {
        [&mut self.start[at], &mut self.step[at], &mut self.end[at], &mut self.center[at], &mut self.width[at]]
    }
}

/// Called after a client wrote a field.
pub(super) fn written(db: &mut Db, rec: RecId, body: Body<SScan>, field: u16) -> Result<(), PutError> {
    let r = &mut db.records[body];
    match field {
        SScan::EXSC => return executed(db, rec, body),
        SScan::PAUS => paused(db, rec, body),
        SScan::CMND => commanded(db, rec, body),
        SScan::WAIT => waited(db, rec, body),
        SScan::AWAIT => {
            r.claimed |= r.await_ != 0;
            if r.dstate == dstate::SAVE_WAIT && r.await_ == 0 {
                db.scan_once(rec);
            }
        }
        SScan::AWCT => r.awct = r.awct.max(0),
        SScan::REFD => r.refd = r.refd.clamp(1, DETECTORS as i16),
        SScan::PDLY => r.pdly = r.pdly.max(0.0),
        SScan::DDLY => r.ddly = r.ddly.max(0.0),
        SScan::RDLY => r.rdly = r.rdly.max(0.0),
        // The next scan starts from nothing.
        SScan::ACQM => r.last_mode = 0,
        SScan::NPTS => {
            r.npts = r.npts.clamp(1, r.mpts);
            message(db, rec, body, "");
            alert(db, rec, body, false);
            points_changed(db, rec, body, None);
        }
        SScan::FFO => overridden(db, rec, body),
        SScan::FPTS if r.ffo != 0 => clear_flags(db, rec, body),
        _ => {}
    }
    if let Some((parameter, at)) =
        PARAMETERS.iter().find_map(|(first, parameter)| Some((*parameter, nth(field, *first, POSITIONERS)?)))
    {
        follow(db, rec, body, at, parameter);
    }
    if FLAGS.iter().any(|first| nth(field, *first, POSITIONERS).is_some()) && db.records[body].ffo != 0 {
        clear_flags(db, rec, body);
    }
    if let Some(at) = nth(field, SScan::P1SM, POSITIONERS) {
        mode_changed(db, rec, body, at);
    }
    Ok(())
}

/// Called after a write to EXSC: requests a scan, or stops it. Stopping it again no longer waits.
fn executed(db: &mut Db, rec: RecId, body: Body<SScan>) -> Result<(), PutError> {
    let r = &mut db.records[body];
    if r.exsc == 0 {
        if r.xsc != 0 {
            r.xsc = 0;
            post(db, rec, SScan::XSC);
            message(db, rec, body, "Aborting scan");
        } else if !matches!(r.faze, faze::IDLE | faze::PREVIEW) {
            r.kill = r.kill.saturating_add(1);
            let text = format!("Killing scan (kill={}/3)", r.kill);
            message(db, rec, body, &text);
        } else {
            message(db, rec, body, "Scan record is idle");
        }
        return Ok(());
    }
    let refused = match () {
        () if r.xsc != 0 => "Already scanning",
        () if r.busy != 0 && r.dstate == dstate::SAVE_WAIT => "Waiting for saveData",
        () if r.busy != 0 => "Waiting for callback",
        () => {
            r.xsc = 1;
            post(db, rec, SScan::XSC);
            for place in 0..POSITIONERS {
                // Limits may have changed since the positioner was connected.
                if db.records[body].is_used(place) {
                    data::take_properties(db, rec, body, place);
                }
            }
            let waits = !phases::all_connected(&db.records[body]);
            alert(db, rec, body, waits);
            return Ok(());
        }
    };
    message(db, rec, body, refused);
    Err(PutError::BadValue { what: refused.to_owned() })
}

/// Called after a write to PAUS.
fn paused(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &mut db.records[body];
    let now = r.paus;
    if !changed(&mut r.lpau, now) {
        return;
    }
    let delay = r.rdly;
    r.resuming = now == 0;
    db.cancel_delay(rec, Callback::Own(RESUME));
    if now != 0 {
        return message(db, rec, body, "Scan pause asserted");
    }
    message(db, rec, body, "Scan pause rescinded");
    db.call_back_after(rec, Callback::Own(RESUME), delay.into());
}

/// Called after a write to WAIT: 1 makes the scan wait for one more client, 0 for one less.
fn waited(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &mut db.records[body];
    let count = if r.wait != 0 { r.wcnt.saturating_add(1) } else { (r.wcnt - 1).max(0) };
    if changed(&mut r.wcnt, count) {
        post(db, rec, SScan::WCNT);
    }
    let r = &mut db.records[body];
    if r.wtng != 0 && r.wcnt == 0 {
        r.wtng = 0;
        let text = if r.paus != 0 { "Wait end, but scan is paused ..." } else { "Scanning ..." };
        post(db, rec, SScan::WTNG);
        message(db, rec, body, text);
        db.scan_once(rec);
    }
}

/// Called after a write to CMND.
fn commanded(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &mut db.records[body];
    if r.xsc != 0 || r.busy != 0 {
        r.cmnd = cmnd::CLEAR_MESSAGE;
    }
    let command = r.cmnd;
    match command {
        cmnd::CLEAR_MESSAGE => {
            message(db, rec, body, "");
            alert(db, rec, body, false);
        }
        cmnd::CHECK_LIMITS => {
            alert(db, rec, body, false);
            phases::check_limits(db, rec, body);
        }
        cmnd::PREVIEW => {
            set_faze(db, rec, body, faze::PREVIEW);
            data::preview(db, rec, body);
        }
        _ => {}
    }
    let modes =
        matches!(command, cmnd::CLEAR_ALL | cmnd::CLEAR_POSITIONERS_AND_MODES | cmnd::CLEAR_READBACKS_AND_MODES);
    if modes {
        clear_modes(db, rec, body);
    }
    let places = match command {
        cmnd::CLEAR_ALL => 0..PVS,
        cmnd::CLEAR_POSITIONERS_AND_MODES | cmnd::CLEAR_POSITIONERS => 0..POSITIONERS,
        cmnd::CLEAR_READBACKS_AND_MODES | cmnd::CLEAR_READBACKS => 0..DETECTOR,
        _ => 0..0,
    };
    for place in places {
        if !db.records[body].names[place].bytes().is_empty() {
            db.records[body].names[place].set(b"");
            data::clear(db, body, place);
            // An empty name is never wrong.
            let _ = connect(db, rec, body, place);
            db.post_named(rec, name_of::<SScan>(SScan::P1PV, place), ALL);
        }
    }
}

/// Sets modes and freeze flags to their initial values.
fn clear_modes(db: &mut Db, rec: RecId, body: Body<SScan>) {
    clear_flags(db, rec, body);
    for at in 0..POSITIONERS {
        let r = &mut db.records[body];
        (r.mode[at], r.relative[at]) = (0, 0);
        db.post_named(rec, name_of::<SScan>(SScan::P1SM, at), ALL);
        db.post_named(rec, name_of::<SScan>(SScan::P1AR, at), ALL);
        mode_changed(db, rec, body, at);
    }
    let r = &mut db.records[body];
    (r.pasm, r.ffo, r.saved_flags) = (0, 0, None);
    post(db, rec, SScan::PASM);
    post(db, rec, SScan::FFO);
}

/// The freeze flags are cleared. That of the number of points is set, as at start.
fn clear_flags(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &mut db.records[body];
    let mut flags = [0; 5 * POSITIONERS + 1];
    flags[5 * POSITIONERS] = u16::from(r.ffo == 0);
    set_flags(db, rec, body, &flags);
}

/// All freeze flags: five of each positioner, then that of NPTS.
fn set_flags(db: &mut Db, rec: RecId, body: Body<SScan>, flags: &[u16; 5 * POSITIONERS + 1]) {
    for at in 0..POSITIONERS {
        for (index, first) in FLAGS.into_iter().enumerate() {
            if changed(db.records[body].flags(at)[index], flags[5 * at + index]) {
                db.post_named(rec, name_of::<SScan>(first, at), ALL);
            }
        }
    }
    if changed(&mut db.records[body].fpts, flags[5 * POSITIONERS]) {
        post(db, rec, SScan::FPTS);
    }
}

/// Called after a write to FFO: `Override` clears the freeze flags, `Use F-Flags` restores them.
fn overridden(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &mut db.records[body];
    if r.ffo == 0 {
        if let Some(flags) = r.saved_flags.take() {
            set_flags(db, rec, body, &flags);
        }
        return;
    }
    if r.saved_flags.is_none() {
        let mut flags = [0; 5 * POSITIONERS + 1];
        for at in 0..POSITIONERS {
            for (place, flag) in flags[5 * at..].iter_mut().zip(r.flags(at)) {
                *place = *flag;
            }
        }
        flags[5 * POSITIONERS] = r.fpts;
        r.saved_flags = Some(Box::new(flags));
    }
    clear_flags(db, rec, body);
}

/// Called after a linear parameter of a positioner was written.
fn follow(db: &mut Db, rec: RecId, body: Body<SScan>, at: usize, parameter: u8) {
    message(db, rec, body, "");
    alert(db, rec, body, false);
    if db.records[body].mode[at] == mode::TABLE {
        set_parameters(db, rec, body, at, [0.0; 5]);
        message(db, rec, body, &format!("Positioner #{} is in Table Mode !", at + 1));
        return alert(db, rec, body, true);
    }
    let mut linear = db.records[body].linear(at);
    let outcome = linear.follow(parameter);
    take(db, rec, body, at, linear);
    report(db, rec, body, at, outcome);
    if changed(&mut db.records[body].npts, linear.points) {
        post(db, rec, SScan::NPTS);
        points_changed(db, rec, body, Some(at));
    }
}

fn report(db: &mut Db, rec: RecId, body: Body<SScan>, at: usize, outcome: Outcome) {
    let what = match outcome {
        Outcome::Consistent => return,
        Outcome::TooManyPoints => "Request Exceeded Maximum Points !",
        Outcome::TooConstrained => "SCAN Parameters Too Constrained !",
    };
    message(db, rec, body, &format!("P{} {what}", at + 1));
    alert(db, rec, body, true);
}

fn take(db: &mut Db, rec: RecId, body: Body<SScan>, at: usize, linear: Linear) {
    set_parameters(db, rec, body, at, [linear.start, linear.step, linear.end, linear.center, linear.width]);
}

/// Sets the linear parameters of a positioner and posts those that changed.
fn set_parameters(db: &mut Db, rec: RecId, body: Body<SScan>, at: usize, values: [f64; 5]) {
    for (index, ((first, _), value)) in PARAMETERS.into_iter().zip(values).enumerate() {
        if changed(db.records[body].parameters(at)[index], value) {
            db.post_named(rec, name_of::<SScan>(first, at), ALL);
        }
    }
}

/// Called after the number of points changed, at the `cause` of a positioner: the parameters of the others follow.
pub(super) fn points_changed(db: &mut Db, rec: RecId, body: Body<SScan>, cause: Option<usize>) {
    for at in (0..POSITIONERS).filter(|at| Some(*at) != cause) {
        let r = &mut db.records[body];
        if r.mode[at] == mode::TABLE {
            if r.is_used(at) {
                data::check_table(db, rec, body, at);
            }
            continue;
        }
        let mut linear = r.linear(at);
        let outcome = linear.follow(POINTS);
        take(db, rec, body, at, linear);
        report(db, rec, body, at, outcome);
    }
}

/// Called after PnSM changed: in table mode, the linear parameters are 0. They return with the other modes.
fn mode_changed(db: &mut Db, rec: RecId, body: Body<SScan>, at: usize) {
    let r = &mut db.records[body];
    match (r.mode[at] == mode::TABLE, r.saved[at]) {
        (true, None) => {
            r.saved[at] = Some(r.parameters(at).map(|value| *value));
            set_parameters(db, rec, body, at, [0.0; 5]);
            data::check_table(db, rec, body, at);
        }
        (false, Some(values)) => {
            r.saved[at] = None;
            set_parameters(db, rec, body, at, values);
            points_changed(db, rec, body, None);
        }
        _ => {}
    }
}
