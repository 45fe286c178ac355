//! The sequence of a scan.

use super::data::{self, scalars, set_dstate};
use super::feature::pasm;
use super::*;
use crate::run::callback::Callback;
use base::Value;

/// Steps of a scan that are done at once.
const STEPS: usize = 1_000;

/// Processes the record: starts or continues a scan. Returns whether the scan has ended.
pub(super) fn run(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    follow_positioners(db, rec, body);
    let r = &mut db.records[body];
    if r.kill != 0 {
        return kill(db, rec, body);
    }
    if r.busy == 0 {
        if r.xsc == 0 {
            // A scan that had not started was stopped.
            let withdrawn = r.faze == faze::PENDING;
            if withdrawn {
                set_faze(db, rec, body, faze::IDLE);
                message(db, rec, body, "Scan aborted");
            }
            return withdrawn;
        }
        if !may_start(db, rec, body) {
            return false;
        }
        begin(db, rec, body);
    }
    if (0..STEPS).all(|_| step(db, rec, body)) {
        // A scan that waits for nothing lets other records run.
        db.call_back(rec, Callback::Own(GO));
    }
    scalars(db, rec, body, false);
    let r = &db.records[body];
    if r.faze != faze::DONE {
        return false;
    }
    // A scan that failed keeps its reason.
    match (r.aborted, r.failed) {
        (true, _) => message(db, rec, body, "Scan aborted by operator"),
        (_, true) => {}
        _ => message(db, rec, body, "SCAN Complete"),
    }
    finish(db, rec, body)
}

/// The record is idle again.
fn finish(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    db.records[body].busy = 0;
    post(db, rec, SScan::BUSY);
    set_faze(db, rec, body, faze::IDLE);
    true
}

pub(super) fn set_faze(db: &mut Db, rec: RecId, body: Body<SScan>, phase: u16) {
    if changed(&mut db.records[body].faze, phase) {
        post(db, rec, SScan::FAZE);
    }
}

/// Updates and posts the values of the positioners.
fn follow_positioners(db: &mut Db, rec: RecId, body: Body<SScan>) {
    for at in 0..POSITIONERS {
        let link = db.records[body].link(at);
        if let Some(value) = read(db, link)
            && changed(&mut db.records[body].present[at], value)
        {
            db.post_named(rec, name_of::<SScan>(SScan::P1CV, at), ALL);
        }
    }
}

/// Whether all names that are not empty are connected.
pub(super) fn all_connected(r: &SScan) -> bool {
    r.valid.iter().all(|state| *state != nv::BAD)
}

/// Whether a requested scan may start. Otherwise it waits.
fn may_start(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    let r = &db.records[body];
    let reason = match () {
        () if r.paus != 0 || r.resuming => "Scan is paused ...",
        () if r.wtng != 0 => "waiting for client ...",
        () if !all_connected(r) => "Waiting for PV's to connect",
        () => {
            alert(db, rec, body, false);
            return true;
        }
    };
    message(db, rec, body, reason);
    set_faze(db, rec, body, faze::PENDING);
    false
}

/// Starts a scan, and clears the marks of the previous one.
fn begin(db: &mut Db, rec: RecId, body: Body<SScan>) {
    db.stamp_now(rec);
    set_dstate(db, rec, body, dstate::UNPACKED);
    let now = db.time.now.mono;
    let r = &mut db.records[body];
    (r.data, r.busy, r.cpt, r.started, r.pending, r.delay) = (0, 1, 0, now, 0, Delay::None);
    (r.flying, r.ending, r.aborted, r.failed) = (false, false, false, false);
    data::prepare(db, body);
    post(db, rec, SScan::DATA);
    release_clients(db, rec, body);
    set_faze(db, rec, body, faze::INIT);
    post(db, rec, SScan::BUSY);
    aim(db, rec, body);
}

/// Clients no longer hold the scan.
fn release_clients(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &mut db.records[body];
    let held = [
        (SScan::WAIT, std::mem::take(&mut r.wait)),
        (SScan::WCNT, std::mem::take(&mut r.wcnt)),
        (SScan::WTNG, std::mem::take(&mut r.wtng)),
    ];
    for (field, _) in held.into_iter().filter(|(_, before)| *before != 0) {
        post(db, rec, field);
    }
}

/// Checks the limits and sets the first positions. A scan that violates a limit stays busy until it is stopped, so that an
/// outer scan does not go on without its data.
fn aim(db: &mut Db, rec: RecId, body: Body<SScan>) {
    if !check_limits(db, rec, body) {
        let r = &mut db.records[body];
        (r.xsc, r.exsc) = (0, 0);
        post(db, rec, SScan::XSC);
        post(db, rec, SScan::EXSC);
        return set_faze(db, rec, body, faze::INIT);
    }
    for at in 0..POSITIONERS {
        let r = &mut db.records[body];
        if r.is_used(at) {
            r.desired[at] = position(r, at, 0);
        }
    }
    let r = &db.records[body];
    if r.is_used(BEFORE) && r.faze == faze::INIT {
        set_faze(db, rec, body, faze::BEFORE);
        message(db, rec, body, "Before Scan FLNK ...");
    } else {
        set_faze(db, rec, body, faze::MOVE);
        message(db, rec, body, "Scanning ...");
    }
}

/// Planned position of a positioner at a point. In fly mode, where it should be if it moves uniformly.
pub(super) fn position(r: &SScan, at: usize, point: usize) -> f64 {
    let from = if r.relative[at] != 0 { r.before[at] } else { 0.0 };
    let value =
        if r.mode[at] == mode::TABLE { data::table(r, at, point) } else { r.start[at] + r.step[at] * point as f64 };
    from + value
}

/// Last position of a positioner in fly mode.
fn last_position(r: &SScan, at: usize) -> f64 {
    let from = if r.relative[at] != 0 { r.before[at] } else { 0.0 };
    let last = (r.npts - 1).max(0) as usize;
    from + if r.mode[at] == mode::TABLE { data::table(r, at, last) } else { r.end[at] }
}

/// Notes the positions before the scan, and checks all planned ones against the ranges of the positioners.
pub(super) fn check_limits(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    let used: Vec<usize> = (0..POSITIONERS).filter(|at| db.records[body].is_used(*at)).collect();
    for at in &used {
        let link = db.records[body].link(*at);
        let Some(value) = read(db, link) else {
            message(db, rec, body, "Can't get current position");
            alert(db, rec, body, true);
            return false;
        };
        db.records[body].before[*at] = value;
        db.post_named(rec, name_of::<SScan>(SScan::P1PP, *at), ALL);
    }
    for at in used {
        if !data::check_table(db, rec, body, at) {
            return false;
        }
        let r = &db.records[body];
        let (low, high) = (r.low[at], r.high[at]);
        for point in 0..r.npts as usize {
            let r = &db.records[body];
            let value =
                if r.mode[at] == mode::FLY && point > 0 { last_position(r, at) } else { position(r, at, point) };
            let which = match () {
                () if low != 0.0 && value < low => "Value < LO_Limit",
                () if high != 0.0 && value > high => "Value > HI_Limit",
                () => continue,
            };
            message(db, rec, body, &format!("P{} {which} @ point {point}", at + 1));
            alert(db, rec, body, true);
            return false;
        }
    }
    message(db, rec, body, "SCAN Values within limits");
    true
}

/// Does the next step. Returns whether another one may follow at once.
fn step(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    collect_completions(db, body);
    let r = &db.records[body];
    let waits = r.pending != 0;
    if r.xsc == 0 && !r.ending {
        return r.faze != faze::INIT && abort(db, rec, body, waits);
    }
    if !r.ending && lost(r) {
        message(db, rec, body, "Lost connection to Control PV");
        alert(db, rec, body, true);
        db.records[body].failed = true;
        return end(db, rec, body);
    }
    if waits || r.delay == Delay::Running {
        return false;
    }
    if r.paus != 0 && !r.ending {
        message(db, rec, body, "Scan paused by operator");
        return false;
    }
    if r.resuming && !r.ending {
        return false;
    }
    if r.ending && r.dstate < dstate::PACKED {
        return store(db, rec, body);
    }
    let was_ending = r.ending;
    let goes_on = phase(db, rec, body);
    // A step that failed has begun the end.
    goes_on || (!was_ending && db.records[body].ending)
}

/// Does what the phase requires. Returns whether the next phase follows at once.
fn phase(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    let r = &db.records[body];
    match r.faze {
        faze::BEFORE => {
            let waits = r.waits[0] == 0;
            command(db, rec, body, BEFORE, waits) && go_to(db, rec, body, faze::BEFORE_WAIT)
        }
        // The link may have changed parameters of the scan.
        faze::BEFORE_WAIT => {
            aim(db, rec, body);
            true
        }
        faze::MOVE => move_all(db, rec, body) && go_to(db, rec, body, faze::MOVE_WAIT),
        faze::MOVE_WAIT => moved(db, rec, body),
        faze::TRIGGER => trigger(db, rec, body) && go_to(db, rec, body, faze::TRIGGER_WAIT),
        faze::TRIGGER_WAIT => triggered(db, rec, body),
        faze::RECORD => recorded(db, rec, body),
        faze::RETRACE => retrace(db, rec, body),
        faze::RETRACE_WAIT => after_scan(db, rec, body),
        faze::AFTER => {
            let waits = r.waits[1] == 0;
            command(db, rec, body, AFTER, waits);
            go_to(db, rec, body, faze::AFTER_WAIT)
        }
        faze::AFTER_WAIT => go_to(db, rec, body, faze::DONE),
        _ => false,
    }
}

fn go_to(db: &mut Db, rec: RecId, body: Body<SScan>, phase: u16) -> bool {
    set_faze(db, rec, body, phase);
    true
}

/// Notes which process variables have completed.
fn collect_completions(db: &mut Db, body: Body<SScan>) {
    let r = &db.records[body];
    let mut pending = r.pending;
    for place in (0..PVS).filter(|place| r.pending >> place & 1 != 0) {
        if !db.is_waiting(db.records[body].link(place)) {
            pending &= !(1 << place);
        }
    }
    db.records[body].pending = pending;
}

/// Whether a process variable that the scan writes is no longer connected.
fn lost(r: &SScan) -> bool {
    (0..POSITIONERS).chain(TRIGGER..PVS).any(|place| r.valid[place] == nv::BAD)
}

/// Called when a process variable has completed. If one refused its value, which raised the LINK alarm, the scan ends.
pub(super) fn completed(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let r = &db.records[body];
    let is_output = |place: &usize| r.pending >> place & 1 != 0 && !db.is_waiting(r.link(*place));
    let refused = db.records[rec].nsev >= 3 && (0..POSITIONERS).chain(TRIGGER..PVS).any(|place| is_output(&place));
    if refused && r.busy != 0 && !r.ending {
        fail(db, rec, body, "A PV refused its value");
    }
}

/// A client stopped the scan. It ends when its process variables have completed.
fn abort(db: &mut Db, rec: RecId, body: Body<SScan>, waits: bool) -> bool {
    if waits {
        message(db, rec, body, "Abort: waiting for callback(s)");
        return false;
    }
    release_clients(db, rec, body);
    db.records[body].aborted = true;
    end(db, rec, body)
}

/// Ends the acquisition.
fn end(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    db.cancel_delay(rec, Callback::Own(SETTLED));
    let r = &mut db.records[body];
    (r.ending, r.delay) = (true, Delay::None);
    true
}

/// A write failed, or cannot be made. The scan ends.
fn fail(db: &mut Db, rec: RecId, body: Body<SScan>, text: &str) -> bool {
    message(db, rec, body, text);
    alert(db, rec, body, true);
    let r = &mut db.records[body];
    r.failed = true;
    if !r.ending {
        end(db, rec, body);
    }
    false
}

/// Writes a number to a process variable. With `waits` the scan waits for completion. Returns whether it was written.
fn write(db: &mut Db, rec: RecId, body: Body<SScan>, place: usize, value: f64, waits: bool) -> bool {
    let link = db.records[body].link(place);
    if db.is_waiting(link) {
        return false;
    }
    if !waits {
        return db.put_link(rec, link, Scalar::F64(value)).is_ok();
    }
    match db.put_and_wait(rec, link, Value::Scalar(Scalar::F64(value))) {
        Ok(true) => {
            db.records[body].pending |= 1 << place;
            true
        }
        Ok(false) | Err(_) => false,
    }
}

/// Writes the command of a trigger, or of the links before and after the scan.
fn command(db: &mut Db, rec: RecId, body: Body<SScan>, place: usize, waits: bool) -> bool {
    let value = db.records[body].commands[place - TRIGGER].into();
    if write(db, rec, body, place, value, waits) {
        return true;
    }
    let text = match place {
        BEFORE => "Before-scan link is busy".to_owned(),
        AFTER => "Can't fire After-scan link".to_owned(),
        ARRAY_TRIGGER => "Array-read trigger 1 is busy".to_owned(),
        _ => format!("Detector {} is busy", place - TRIGGER + 1),
    };
    fail(db, rec, body, &text)
}

/// Sends all positioners, except those that fly, to the positions of the present point.
fn move_all(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    for at in 0..POSITIONERS {
        let r = &db.records[body];
        if !r.is_used(at) || (r.flies(at) && r.flying) {
            continue;
        }
        let value = r.desired[at];
        if !write(db, rec, body, at, value, true) {
            return fail(db, rec, body, &format!("Positioner {} is already busy", at + 1));
        }
    }
    true
}

/// Waits for a settling time, once per phase. Returns whether it is over.
fn settled(db: &mut Db, rec: RecId, body: Body<SScan>, seconds: f32) -> bool {
    let r = &mut db.records[body];
    if seconds > 0.0 && r.delay == Delay::None {
        r.delay = Delay::Running;
        db.call_back_after(rec, Callback::Own(SETTLED), seconds.into());
        return false;
    }
    r.delay = Delay::None;
    true
}

/// All positioners have arrived: checks their readbacks, and triggers the detectors.
fn moved(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    let r = &db.records[body];
    let delay = if (0..POSITIONERS).any(|at| r.is_used(at)) { r.pdly } else { 0.0 };
    if !settled(db, rec, body, delay) {
        return false;
    }
    for at in 0..POSITIONERS {
        let r = &db.records[body];
        let (limit, link) = (r.tolerance[at], r.link(READBACK + at));
        if limit == 0.0 || !r.is_used(at) || !r.is_used(READBACK + at) {
            continue;
        }
        let Some(value) = read(db, link) else { continue };
        let r = &mut db.records[body];
        r.readback[at] = value;
        let error = (r.desired[at] - value).abs();
        let what = match () {
            () if limit > 0.0 && error > limit => "delta",
            // A negative number counts steps.
            () if limit < 0.0 && r.mode[at] != mode::TABLE && error > (r.step[at] * limit.round()).abs() => "stepsize",
            () => continue,
        };
        fail(db, rec, body, &format!("SCAN Aborted: P{} Error > {what}", at + 1));
        return true;
    }
    let r = &db.records[body];
    let triggers = (TRIGGER..ARRAY_TRIGGER).any(|place| r.is_used(place));
    let launches = !r.flying && (0..POSITIONERS).any(|at| r.is_used(at) && r.flies(at));
    go_to(db, rec, body, if triggers || launches { faze::TRIGGER } else { faze::TRIGGER_WAIT })
}

/// Sends positioners in fly mode to their ends, and triggers the detectors.
fn trigger(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    for at in 0..POSITIONERS {
        let r = &mut db.records[body];
        if r.is_used(at) && r.flies(at) && !r.flying {
            r.desired[at] = last_position(r, at);
            let value = r.desired[at];
            if !write(db, rec, body, at, value, false) {
                return fail(db, rec, body, &format!("Positioner {} is already busy", at + 1));
            }
        }
    }
    db.records[body].flying = true;
    for place in TRIGGER..ARRAY_TRIGGER {
        if db.records[body].is_used(place) && !command(db, rec, body, place, true) {
            return false;
        }
    }
    let r = &mut db.records[body];
    if r.awct > 0 {
        r.wcnt = r.wcnt.saturating_add(r.awct);
        post(db, rec, SScan::WCNT);
    }
    true
}

/// The detectors have completed: waits for clients and for DDLY, then reads those of other IOCs.
fn triggered(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    if db.records[body].wcnt > 0 {
        if changed(&mut db.records[body].wtng, 1) {
            post(db, rec, SScan::WTNG);
            message(db, rec, body, "Waiting for client");
        }
        return false;
    }
    let r = &db.records[body];
    let delay = if (TRIGGER..ARRAY_TRIGGER).any(|place| r.is_used(place)) { r.ddly } else { 0.0 };
    if !settled(db, rec, body, delay) {
        return false;
    }
    let r = &db.records[body];
    let readbacks = (READBACK..DETECTOR).filter(|place| r.is_used(*place));
    let bits = readbacks.fold(r.acquired << DETECTOR, |bits, place| bits | 1 << place);
    get_all(db, body, bits);
    go_to(db, rec, body, faze::RECORD)
}

/// Requests the present values of process variables of other IOCs.
fn get_all(db: &mut Db, body: Body<SScan>, places: u128) {
    for place in (0..PVS).filter(|place| places >> place & 1 != 0) {
        let link = db.records[body].link(place);
        if db.get_and_wait(link) {
            db.records[body].pending |= 1 << place;
        }
    }
}

/// The values are here: stores them, and goes to the next point or ends the acquisition.
fn recorded(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    data::record(db, rec, body);
    let r = &mut db.records[body];
    if r.cpt >= r.npts {
        return end(db, rec, body);
    }
    for at in 0..POSITIONERS {
        if r.is_used(at) && !r.flies(at) {
            r.desired[at] = position(r, at, r.cpt as usize);
        }
    }
    scalars(db, rec, body, false);
    go_to(db, rec, body, faze::MOVE)
}

/// Reads arrays after their trigger, waits for the client that stores the previous data, and posts all.
fn store(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    let r = &db.records[body];
    match r.dstate {
        dstate::UNPACKED if r.is_used(ARRAY_TRIGGER) => {
            set_dstate(db, rec, body, dstate::TRIGGER);
            command(db, rec, body, ARRAY_TRIGGER, true);
            set_dstate(db, rec, body, dstate::TRIGGER_WAIT);
            true
        }
        dstate::UNPACKED | dstate::TRIGGER_WAIT => {
            let arrays = data::arrays_acquired(db, body);
            set_dstate(db, rec, body, dstate::GET_WAIT);
            get_all(db, body, arrays << DETECTOR);
            true
        }
        dstate::GET_WAIT => {
            data::read_arrays(db, body);
            if db.records[body].await_ != 0 {
                set_dstate(db, rec, body, dstate::SAVE_WAIT);
                return false;
            }
            stored(db, rec, body)
        }
        dstate::SAVE_WAIT if r.await_ != 0 => false,
        _ => stored(db, rec, body),
    }
}

/// The data are posted: sends the positioners to their positions after the scan.
fn stored(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    data::pack(db, rec, body);
    let r = &db.records[body];
    let retraces = r.pasm != pasm::STAY && (0..POSITIONERS).any(|at| r.is_used(at));
    if retraces { go_to(db, rec, body, faze::RETRACE) } else { after_scan(db, rec, body) }
}

fn retrace(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    for at in 0..POSITIONERS {
        let r = &mut db.records[body];
        if !r.is_used(at) {
            continue;
        }
        r.desired[at] = match r.pasm {
            pasm::START => position(r, at, 0),
            pasm::PRIOR => r.before[at],
            _ => r.desired[at],
        };
        let value = r.desired[at];
        if !write(db, rec, body, at, value, true) {
            fail(db, rec, body, &format!("Can't retrace positioner {}", at + 1));
        }
    }
    go_to(db, rec, body, faze::RETRACE_WAIT)
}

fn after_scan(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    let next = if db.records[body].is_used(AFTER) { faze::AFTER } else { faze::DONE };
    go_to(db, rec, body, next)
}

/// A client stops the scan again: it no longer waits for process variables. The previous data are kept for the client that
/// stores them, until the third time. Returns whether the scan has ended.
fn kill(db: &mut Db, rec: RecId, body: Body<SScan>) -> bool {
    collect_completions(db, body);
    release_clients(db, rec, body);
    let r = &mut db.records[body];
    let note = match r.pending.trailing_zeros() as usize {
        0..POSITIONERS => Some("NOTE: positioner still active"),
        POSITIONERS..TRIGGER => Some("NOTE: outstanding getCallback(s)"),
        TRIGGER..ARRAY_TRIGGER => Some("NOTE: detector still active"),
        ARRAY_TRIGGER => Some("NOTE: array-read still active"),
        _ => None,
    };
    (r.pending, r.delay, r.ending, r.aborted) = (0, Delay::None, true, true);
    db.cancel_delay(rec, Callback::Own(SETTLED));
    alert(db, rec, body, false);
    let mut text = note.unwrap_or("Scan aborted by operator");
    let r = &mut db.records[body];
    if r.dstate != dstate::POSTED && r.busy != 0 {
        if r.await_ != 0 && (!r.claimed || r.kill > 2) {
            r.await_ = 0;
            let abandoned = r.claimed;
            post(db, rec, SScan::AWAIT);
            if abandoned {
                text = "Abandoning unsaved scan data";
            }
        }
        if db.records[body].await_ != 0 {
            set_dstate(db, rec, body, dstate::SAVE_WAIT);
            return false;
        }
        data::pack(db, rec, body);
    }
    db.records[body].kill = 0;
    message(db, rec, body, text);
    finish(db, rec, body)
}
