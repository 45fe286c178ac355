//! Arrays of a scan, and posts.

use super::*;
use crate::model::values::array_of;
use crate::rec::synapps::elements;
use base::Value;

/// Minimum time between posts of scalars, in seconds: 20 points per second.
const SCALARS: f64 = 0.05;
/// Smallest ATIME that posts arrays during a scan.
const MIN_ATIME: f32 = 0.1;

fn seconds_since(from: MonoNs, now: MonoNs) -> f64 {
    now.0.saturating_sub(from.0) as f64 / 1e9
}

/// Called after a name changed: forgets the data of its detector.
pub(super) fn clear(db: &mut Db, body: Body<SScan>, place: usize) {
    if let Some(detector) = place.checked_sub(DETECTOR).filter(|detector| *detector < DETECTORS) {
        let r = &mut db.records[body];
        r.results[detector] = Array::F32(Vec::new());
        r.results_now[detector] = Array::F32(Vec::new());
        r.value[detector] = 0.0;
    }
}

/// Takes units, precision and limits of a process variable: the control limits of a positioner, the display limits of a
/// detector.
pub(super) fn take_properties(db: &mut Db, rec: RecId, body: Body<SScan>, place: usize) {
    let is_positioner = place < POSITIONERS;
    if !is_positioner && !(DETECTOR..TRIGGER).contains(&place) {
        return;
    }
    let link = db.records[body].link(place);
    let source = db.links.remotes.source(link.target).cloned();
    let meta = match source {
        Some(source) => Some(db.meta(&source)),
        None => db.links.remotes.meta(link.target).cloned(),
    };
    let Some(meta) = meta else { return };
    let count = elements(db, link) as u32;
    let r = &mut db.records[body];
    let first = if is_positioner {
        (r.high[place], r.low[place]) = (meta.control.high, meta.control.low);
        r.egu[place].set(meta.units.bytes());
        r.prec[place] = meta.precision;
        [SScan::P1HR, SScan::P1LR, SScan::P1EU, SScan::P1PR].map(|first| name_of::<SScan>(first, place))
    } else {
        let at = place - DETECTOR;
        (r.det_high[at], r.det_low[at]) = (meta.display.high, meta.display.low);
        r.det_egu[at].set(meta.units.bytes());
        r.det_prec[at] = meta.precision;
        r.elements[at] = count;
        if r.results[at].is_empty() {
            let empty = Array::zeros(FieldType::F32, r.mpts as usize);
            (r.results[at], r.results_now[at]) = (empty.clone(), empty);
        }
        [SScan::D01HR, SScan::D01LR, SScan::D01EU, SScan::D01PR].map(|first| name_of::<SScan>(first, at))
    };
    for field in first {
        db.post_named(rec, field, ALL);
    }
}

/// Reports a table that has fewer positions than the scan has points. Returns whether it is long enough.
pub(super) fn check_table(db: &mut Db, rec: RecId, body: Body<SScan>, positioner: usize) -> bool {
    let r = &db.records[body];
    let is_short = r.mode[positioner] == mode::TABLE && r.table_points[positioner] < r.npts as usize;
    if is_short {
        message(db, rec, body, &format!("Pts in P{} Table < # of Steps", positioner + 1));
    }
    alert(db, rec, body, is_short);
    !is_short
}

/// Value of a table of positions.
pub(super) fn table(r: &SScan, positioner: usize, point: usize) -> f64 {
    match &r.table[positioner] {
        Array::F64(values) => values.get(point).copied().unwrap_or(0.0),
        _ => 0.0,
    }
}

/// Prepares the arrays of a new scan.
pub(super) fn prepare(db: &mut Db, body: Body<SScan>) {
    let r = &mut db.records[body];
    let size = r.mpts as usize;
    r.acquired = (0..DETECTORS).filter(|at| r.is_used(DETECTOR + at)).fold(0, |bits, at| bits | 1 << at);
    for positions in &mut r.positions_now {
        fill(positions, FieldType::F64, size);
    }
    for at in 0..DETECTORS {
        if r.acquired >> at & 1 != 0 {
            fill(&mut r.results_now[at], FieldType::F32, size);
        }
    }
    (r.scalars_posted, r.arrays_posted) = (None, r.started);
}

/// Sets an array to zeros.
fn fill(array: &mut Array, kind: FieldType, size: usize) {
    *array = Array::zeros(kind, size);
}

/// Stores the data of the present point, and goes on to the next one.
pub(super) fn record(db: &mut Db, rec: RecId, body: Body<SScan>) {
    let now = db.time.now.mono;
    let r = &db.records[body];
    let point = r.cpt.max(0) as usize;
    for at in 0..POSITIONERS {
        let r = &db.records[body];
        let (used, link) = (r.is_used(READBACK + at), r.link(READBACK + at));
        let measured = if used { read(db, link) } else { None };
        let r = &mut db.records[body];
        let value = match measured {
            Some(value) => value,
            None if used => r.readback[at],
            None if r.is_time(at) => seconds_since(r.started, now),
            None if !r.is_used(at) => r.cpt.into(),
            // Where a positioner in fly mode should be.
            None if r.flies(at) && r.flying => phases::position(r, at, point),
            None => r.desired[at],
        };
        r.readback[at] = value;
        if let Array::F64(values) = &mut r.positions_now[at]
            && let Some(place) = values.get_mut(point)
        {
            *place = value;
        }
    }
    for at in 0..DETECTORS {
        let r = &db.records[body];
        if r.acquired >> at & 1 == 0 {
            continue;
        }
        let link = r.link(DETECTOR + at);
        let value = read(db, link).unwrap_or(0.0) as f32;
        let r = &mut db.records[body];
        r.value[at] = value + r.previous(at, point);
        if let Array::F32(values) = &mut r.results_now[at]
            && let Some(place) = values.get_mut(point)
        {
            *place = r.value[at];
        }
    }
    db.records[rec].udf = 0;
    let r = &mut db.records[body];
    r.cpt = if r.acqt == 0 { r.cpt + 1 } else { r.npts };
    r.val = r.cpt.into();
    if r.copyto != 0 && r.atime >= MIN_ATIME {
        let through = r.copyto;
        repeat_last(r, through);
    }
}

impl SScan {
    /// Value of the previous scan at a point, if ACQM adds it.
    fn previous(&self, detector: usize, point: usize) -> f32 {
        const ACCUMULATE: u16 = 1;
        const ADD: u16 = 2;
        let adds = self.acqm == ADD || (self.acqm == ACCUMULATE && self.last_mode == ACCUMULATE);
        match &self.results[detector] {
            Array::F32(values) if adds && point < self.last_points as usize => {
                values.get(point).copied().unwrap_or(0.0)
            }
            _ => 0.0,
        }
    }
}

/// Repeats the last values in the rest of the arrays, for displays that plot all elements. A negative number means all.
fn repeat_last(r: &mut SScan, through: i32) {
    let Some(last) = r.cpt.checked_sub(1).filter(|last| *last >= 0) else { return };
    let last = last as usize;
    let end = if through < 0 { r.mpts as usize } else { (through.min(r.mpts)) as usize };
    for array in r.positions_now.iter_mut().chain(&mut r.results_now) {
        match array {
            Array::F64(values) if last < end && end <= values.len() => {
                let value = values[last];
                values[last..end].fill(value);
            }
            Array::F32(values) if last < end && end <= values.len() => {
                let value = values[last];
                values[last..end].fill(value);
            }
            _ => {}
        }
    }
}

/// Acquired detectors that are arrays, one bit each.
pub(super) fn arrays_acquired(db: &Db, body: Body<SScan>) -> u128 {
    let r = &db.records[body];
    let is_array = |at: &usize| r.acquired >> at & 1 != 0 && elements(db, r.link(DETECTOR + at)) > 1;
    (0..DETECTORS).filter(is_array).fold(0, |bits, at| bits | 1 << at)
}

/// Reads the first NPTS elements of detectors that are arrays.
pub(super) fn read_arrays(db: &mut Db, body: Body<SScan>) {
    let arrays = arrays_acquired(db, body);
    for at in (0..DETECTORS).filter(|at| arrays >> at & 1 != 0) {
        let r = &db.records[body];
        let (link, count) = (r.link(DETECTOR + at), r.npts as usize);
        let value = match db.links.remotes.source(link.target).cloned() {
            Some(source) => Some(db.get(&source, count)),
            None => db.links.remotes.value(link.target).cloned(),
        };
        let values = value.as_ref().and_then(|value: &Value| array_of(value, FieldType::F32, count, 0));
        let Some(Array::F32(values)) = values else { continue };
        let r = &mut db.records[body];
        for (point, value) in values.into_iter().enumerate() {
            let sum = value + r.previous(at, point);
            if let Array::F32(places) = &mut r.results_now[at]
                && let Some(place) = places.get_mut(point)
            {
                *place = sum;
            }
        }
    }
    let r = &mut db.records[body];
    if r.acqt == 0 || r.cpt == 0 {
        return;
    }
    for at in (0..POSITIONERS).filter(|at| r.valid[*at] == nv::OK) {
        let points: Vec<f64> = (0..r.npts as usize).map(|point| phases::position(r, at, point)).collect();
        if let Array::F64(places) = &mut r.positions_now[at] {
            places.iter_mut().zip(points).for_each(|(place, value)| *place = value);
        }
    }
}

/// Sends positioners after the scan to a feature of the reference detector's data, as PASM requires.
fn find_feature(db: &mut Db, rec: RecId, body: Body<SScan>) {
    use super::feature::{center_of_mass, pasm, point};
    let r = &mut db.records[body];
    if r.pasm < pasm::PEAK {
        return;
    }
    let name = pasm::NAMES.get(usize::from(r.pasm)).copied().unwrap_or_default();
    let (used, count) = ((0..POSITIONERS).filter(|at| r.is_used(*at)), r.cpt.max(0) as usize);
    let used: Vec<usize> = used.collect();
    let reference = (r.refd - 1).clamp(0, DETECTORS as i16 - 1) as usize;
    let (Some(first), Array::F32(data)) = (used.first(), &r.results_now[reference]) else { return };
    let data = data.get(..count).unwrap_or_default();
    if count < 2 || data.is_empty() || r.acquired >> reference & 1 == 0 {
        message(db, rec, body, &format!("Can't move to {name}"));
        return alert(db, rec, body, true);
    }
    let positions = |at: usize| match &r.positions_now[at] {
        Array::F64(values) => values.get(..count).unwrap_or_default(),
        _ => &[],
    };
    let mark = if r.pasm == pasm::CENTER_OF_MASS { None } else { point(r.pasm, positions(*first), data) };
    let target = |at: usize| match mark {
        Some(mark) => positions(at).get(mark).copied(),
        None if r.pasm == pasm::CENTER_OF_MASS => center_of_mass(positions(at), data),
        None => None,
    };
    let targets: Vec<Option<f64>> = used.iter().map(|at| target(*at)).collect();
    let found = targets.iter().any(Option::is_some);
    for (at, target) in used.into_iter().zip(targets) {
        r.desired[at] = target.unwrap_or(r.before[at]);
    }
    message(db, rec, body, &format!("{name} {}", if found { "found." } else { "NOT found." }));
    if !found {
        alert(db, rec, body, true);
    }
}

/// Ends the acquisition: the present arrays become the finished ones. Posts all, DATA as the last.
pub(super) fn pack(db: &mut Db, rec: RecId, body: Body<SScan>) {
    set_dstate(db, rec, body, dstate::PACKED);
    repeat_last(&mut db.records[body], -1);
    find_feature(db, rec, body);
    let r = &mut db.records[body];
    // The arrays of the scan in progress keep its data until the next one begins, as in synApps.
    r.positions.clone_from(&r.positions_now);
    for at in 0..DETECTORS {
        if r.acquired >> at & 1 != 0 {
            r.results[at].clone_from(&r.results_now[at]);
        }
    }
    (r.last_points, r.last_mode) = (r.cpt, r.acqm);
    scalars(db, rec, body, true);
    set_dstate(db, rec, body, dstate::POSTED);
    arrays(db, rec, body, ALL);
    let r = &mut db.records[body];
    let failed = r.failed;
    (r.bcpt, r.data) = (r.cpt, 1);
    let stopped = [(SScan::XSC, std::mem::take(&mut r.xsc)), (SScan::EXSC, std::mem::take(&mut r.exsc))];
    if failed {
        alert(db, rec, body, true);
    }
    for (field, _) in stopped.into_iter().filter(|(_, before)| *before != 0) {
        post(db, rec, field);
    }
    post(db, rec, SScan::BCPT);
    post(db, rec, SScan::DATA);
    let r = &mut db.records[body];
    (r.claimed, r.await_) = (false, if r.aawait == 0 { r.await_ } else { 1 });
    if r.aawait != 0 {
        post(db, rec, SScan::AWAIT);
    }
}

pub(super) fn set_dstate(db: &mut Db, rec: RecId, body: Body<SScan>, state: u16) {
    if changed(&mut db.records[body].dstate, state) {
        post(db, rec, SScan::DSTATE);
    }
}

/// Posts the arrays of the present and of the finished scan. They share their memory in C, and so their posts.
fn arrays(db: &mut Db, rec: RecId, body: Body<SScan>, mask: EventMask) {
    for at in 0..POSITIONERS {
        db.post_named(rec, name_of::<SScan>(SScan::P1RA, at), mask);
        db.post_named(rec, name_of::<SScan>(SScan::P1CA, at), mask);
    }
    for at in 0..DETECTORS {
        if db.records[body].acquired >> at & 1 != 0 {
            db.post_named(rec, name_of::<SScan>(SScan::D01DA, at), mask);
            db.post_named(rec, name_of::<SScan>(SScan::D01CA, at), mask);
        }
    }
}

/// Posts the scalars that changed, at most 20 times a second unless `now`: VAL is the last, so that a client that receives it
/// has all others.
pub(super) fn scalars(db: &mut Db, rec: RecId, body: Body<SScan>, now: bool) {
    let time = db.time.now.mono;
    let r = &mut db.records[body];
    if r.dstate == dstate::POSTED {
        return;
    }
    let recent = |posted: MonoNs| seconds_since(posted, time) <= SCALARS;
    if now || !r.scalars_posted.is_some_and(recent) {
        r.scalars_posted = Some(time);
        for at in 0..DETECTORS {
            let r = &mut db.records[body];
            let value = r.value[at];
            if changed(&mut r.value_posted[at], value) {
                db.post_named(rec, name_of::<SScan>(SScan::D01CV, at), ALL);
            }
        }
        for at in 0..POSITIONERS {
            let r = &mut db.records[body];
            let (desired, readback) = (r.desired[at], r.readback[at]);
            let moved = [changed(&mut r.desired_posted[at], desired), changed(&mut r.readback_posted[at], readback)];
            for (first, moved) in [SScan::P1DV, SScan::R1CV].into_iter().zip(moved) {
                if moved {
                    db.post_named(rec, name_of::<SScan>(first, at), ALL);
                }
            }
        }
        let r = &mut db.records[body];
        let point = r.cpt;
        if changed(&mut r.pcpt, point) {
            post(db, rec, SScan::CPT);
            if point != 0 {
                db.post_value(rec, ALL);
            }
        }
    }
    let r = &mut db.records[body];
    if r.atime >= MIN_ATIME && seconds_since(r.arrays_posted, time) > f64::from(r.atime) {
        r.arrays_posted = time;
        arrays(db, rec, body, EventMask::VALUE);
    }
}

/// Fills the present arrays with the planned positions and the numbers of the points.
pub(super) fn preview(db: &mut Db, rec: RecId, body: Body<SScan>) {
    for at in 0..POSITIONERS {
        let r = &mut db.records[body];
        let last = (r.npts - 1).max(0) as usize;
        let points = (0..r.mpts as usize).map(|point| point.min(last));
        let positions = points.clone().map(|point| phases::position(r, at, point)).collect();
        let numbers = points.map(|point| point as f32).collect();
        r.positions_now[at] = Array::F64(positions);
        r.results_now[at] = Array::F32(numbers);
        db.post_named(rec, name_of::<SScan>(SScan::P1CA, at), ALL);
        db.post_named(rec, name_of::<SScan>(SScan::D01CA, at), ALL);
    }
}
