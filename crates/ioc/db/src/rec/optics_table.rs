//! table record (synApps): six motors under a table, driven as three angles and three translations.
//!
//! The user's position (AX to Z) is relative to an offset (AX0 to Z0) from the true one, which follows from the motors. A new
//! position moves all motors, with speeds at which they arrive together, unless a limit of a motor or of the user forbids it.
//! The record does not wait for the motors; their links pass completion on.

mod geometry;

use super::inputs::nth;
use crate::model::link::{Link, LinkKind, ResolvedLink};
use crate::model::slot::{Inline, Layout, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, changed};
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Scalar, Status, Str40};
use geometry::{Geometry, Six, rotation, turned};

record! {
    /// Fields of a table record.
    Table {
        vers: f32 [VERS],
        val: f64 [VAL],
        lx: f64 [LX],
        lz: f64 [LZ],
        fixed: [f64; 3] [SX SY SZ],
        reference: [f64; 3] [RX RY RZ],
        yang: f64 [YANG],
        user: Six [AX AY AZ X Y Z],
        offset: Six [AX0 AY0 AZ0 X0 Y0 Z0],
        true_value: Six [AXL AYL AZL XL YL ZL],
        readback: Six [AXRB AYRB AZRB XRB YRB ZRB],
        encoder: Six [EAX EAY EAZ EX EY EZ],
        high: Six [HLAX HLAY HLAZ HLX HLY HLZ],
        low: Six [LLAX LLAY LLAZ LLX LLY LLZ],
        user_limits: [f64; 12] [UHAX UHAY UHAZ UHX UHY UHZ ULAX ULAY ULAZ ULX ULY ULZ],
        relative_limits: [f64; 12] [UHAXR UHAYR UHAZR UHXR UHYR UHZR ULAXR ULAYR ULAZR ULXR ULYR ULZR],
        drive_link: [Link; 6] [M0XL M0YL M1YL M2XL M2YL M2ZL],
        drive: Six [M0X M0Y M1Y M2X M2Y M2Z],
        drive_in: [Link; 6] [R0XI R0YI R1YI R2XI R2YI R2ZI],
        driven: Six [R0X R0Y R1Y R2X R2Y R2Z],
        encoder_in: [Link; 6] [E0XI E0YI E1YI E2XI E2YI E2ZI],
        encoded: Six [E0X E0Y E1Y E2X E2Y E2Z],
        speed_link: [Link; 6] [V0XL V0YL V1YL V2XL V2YL V2ZL],
        speed: Six [V0X V0Y V1Y V2X V2Y V2Z],
        speed_in: [Link; 6] [V0XI V0YI V1YI V2XI V2YI V2ZI],
        high_in: [Link; 6] [H0XL H0YL H1YL H2XL H2YL H2ZL],
        motor_high: Six [H0X H0Y H1Y H2X H2Y H2Z],
        low_in: [Link; 6] [L0XL L0YL L1YL L2XL L2YL L2ZL],
        motor_low: Six [L0X L0Y L1Y L2X L2Y L2Z],
        init: i16 [INIT],
        zero: i16 [ZERO],
        sync: i16 [SYNC],
        read: i16 [READ],
        set: u16 [SET],
        sset: i16 [SSET],
        suse: i16 [SUSE],
        lvio: i16 [LVIO],
        points: [Array; 3] [PP0 PP1 PP2],
        origins: [Array; 3] [PPO0 PPO1 PPO2],
        matrices: [Array; 2] [A B],
        legu: Inline<16> [LEGU],
        aegu: Text<16> [AEGU],
        prec: i16 [PREC],
        mmap: u32 [MMAP],
        geom: u16 [GEOM],
        torad: f64 [TORAD],
        aunit: u16 [AUNIT],
    } private {
        // Numbers before the present change, in the order of the fields.
        before: Vec<f64>,
        // AUNIT to which the limits and offsets belong, and YANG to which the offsets do.
        unit: u16,
        turned_by: f64,
        // Arrays that have changed since the last posts, in the order of `ARRAYS`.
        fresh: [bool; ARRAYS.len()],
    }
}

/// Numbers below which a limit is not set, and a motor does not move.
const SMALL: f64 = 1e-9;
/// Largest angle in degrees, and the step in which a limit is searched.
const LARGEST: f64 = 89.0;
const STEP: f64 = 10.0;
/// Steps from the smallest to the largest angle, with room for rounding.
const STEPS_MAX: usize = 20;
/// Rounds in which a limit is narrowed down.
const ROUNDS: usize = 50;
/// Arrays that processing calculates.
const ARRAYS: [&str; 7] = ["A", "PP0", "PP1", "PP2", "PPO0", "PPO1", "PPO2"];
/// AUNIT: degrees or microradians.
const DEGREES: u16 = 0;
const MICRORADIAN: f64 = 1e-6;

/// Which motors have all links that are needed for a purpose.
#[derive(Clone, Copy, Debug)]
struct Able {
    /// Its drive field can be read and written.
    drive: [bool; 6],
    limits: [bool; 6],
    encoder: [bool; 6],
    speed: [bool; 6],
}

impl RecordType for Table {
    /// Start: takes the position of the motors.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        (r.unit, r.turned_by) = (r.aunit, r.yang);
        r.take_unit();
        let able = able(db, body);
        read_limits(db, rec, body, able);
        read_drives(db, rec, body, able);
        let r = &mut db.records[body];
        r.relative_from_absolute();
        r.take_motors(able);
        read_back(db, rec, body, able);
    }

    /// Does what is requested: ZERO, READ, SYNC, INIT, a new calibration (SET), or a move.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        db.records[rec].udf = 0;
        db.records[body].note_numbers();
        let able = able(db, body);
        read_limits(db, rec, body, able);
        let r = &mut db.records[body];
        r.lvio = 0;
        if std::mem::take(&mut r.zero) != 0 {
            (r.user, r.offset) = ([0.0; 6], r.true_value);
            r.relative_from_absolute();
        } else if std::mem::take(&mut r.read) != 0 {
            // The readings follow in any case.
        } else if std::mem::take(&mut r.sync) != 0 {
            read_drives(db, rec, body, able);
            db.records[body].take_motors(able);
        } else if std::mem::take(&mut r.init) != 0 {
            r.offset = [0.0; 6];
            r.relative_from_absolute();
            read_drives(db, rec, body, able);
            db.records[body].take_motors(able);
        } else if r.set != 0 {
            r.offset = each(|axis| r.true_value[axis] - r.user[axis]);
            r.relative_from_absolute();
        } else {
            go(db, rec, body, able);
        }
        let r = &mut db.records[body];
        r.true_value = each(|axis| r.user[axis] + r.offset[axis]);
        read_drives(db, rec, body, able);
        read_back(db, rec, body, able);
        db.stamp_now(rec);
        let alarm = db.reset_alarms(rec);
        if !alarm.is_empty() {
            db.post_value(rec, alarm);
        }
        post_changes(db, rec, body, alarm);
        ProcessResult::Done
    }

    /// Setup and commands. A new setup is followed by SYNC.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        let r = &mut db.records[body];
        r.note_numbers();
        match field {
            // The offsets keep their direction relative to the table.
            Self::YANG => {
                let before = std::mem::replace(&mut r.turned_by, r.yang);
                r.offset = turned(turned(r.offset, before), -r.yang);
                r.sync = 1;
            }
            Self::LX | Self::LZ | Self::GEOM => r.sync = 1,
            Self::SX..=Self::SZ | Self::RX..=Self::RZ => r.sync = 1,
            Self::SSET => (r.set, r.sset) = (1, 0),
            Self::SUSE => (r.set, r.suse) = (0, 0),
            Self::SYNC => r.sync = 1,
            Self::INIT => r.init = 1,
            Self::ZERO => r.zero = 1,
            Self::READ => r.read = 1,
            Self::AUNIT => r.take_unit(),
            _ => {}
        }
        if let Some(limit) = nth(field, Self::UHAX, 12) {
            r.relative_limits[limit] = r.user_limits[limit] - r.offset[limit % 6];
        } else if let Some(limit) = nth(field, Self::UHAXR, 12) {
            r.user_limits[limit] = r.relative_limits[limit] + r.offset[limit % 6];
        }
        if field == Self::AUNIT {
            db.post_named(rec, "AEGU", EventMask::VALUE | EventMask::LOG);
        }
        post_changes(db, rec, body, EventMask::NONE);
        Ok(())
    }

    fn shape(&self, field: u16) -> (u32, FieldType) {
        (if field >= Self::A { 9 } else { 3 }, FieldType::F64)
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let rows = [Self::AX, Self::AX0, Self::AXL, Self::AXRB, Self::EAX, Self::HLAX, Self::LLAX];
        let is_angle = field == Self::YANG || rows.into_iter().any(|first| nth(field, first, 3).is_some());
        let units = match kind {
            Some(FieldType::F64) if is_angle => Str40::new(self.aegu.bytes()),
            Some(FieldType::F64) => Str40::new(self.legu.bytes()),
            _ => Str40::EMPTY,
        };
        let of = Properties { units, ..Properties::BOUNDED.digits(self.prec, true) };
        match nth(field, Self::AX, 6) {
            Some(axis) => of.within(self.low[axis], self.high[axis]),
            None => of,
        }
    }
}

fn each(value: impl FnMut(usize) -> f64) -> Six {
    [0, 1, 2, 3, 4, 5].map(value)
}

fn is_set(high: f64, low: f64) -> bool {
    high.abs() > SMALL || low.abs() > SMALL
}

impl Table {
    fn geometry(&self, able: Able) -> Geometry {
        let fixed = [0, 1, 2].map(|axis| self.reference[axis] + self.fixed[axis]);
        Geometry::new(self.geom, (self.lx, self.lz), fixed, able.drive)
    }

    /// Takes over AUNIT, and converts angles that depend on it.
    fn take_unit(&mut self) {
        let per_degree = if self.aunit == DEGREES { 1.0 } else { 1f64.to_radians() / MICRORADIAN };
        self.torad = if self.aunit == DEGREES { 1f64.to_radians() } else { MICRORADIAN };
        self.aegu.set(if self.aunit == DEGREES { b"degrees" } else { b"ur" });
        if std::mem::replace(&mut self.unit, self.aunit) != self.aunit {
            let factor = if self.aunit == DEGREES { MICRORADIAN.to_degrees() } else { per_degree };
            for limits in [&mut self.user_limits, &mut self.relative_limits] {
                for axis in [0, 1, 2, 6, 7, 8] {
                    limits[axis] *= factor;
                }
            }
            self.offset[..3].iter_mut().for_each(|angle| *angle *= factor);
            self.sync = 1;
        }
    }

    fn relative_from_absolute(&mut self) {
        for limit in 0..12 {
            self.relative_limits[limit] = self.user_limits[limit] - self.offset[limit % 6];
        }
    }

    /// True position, relative to the table's axes and in radians, of a position of the user.
    fn local(&self, user: Six) -> Six {
        let mut local = turned(each(|axis| user[axis] + self.offset[axis]), self.yang);
        local[..3].iter_mut().for_each(|angle| *angle *= self.torad);
        local
    }

    /// Motors for a position of the user.
    fn motors(&self, table: &Geometry, user: Six) -> Six {
        table.motors(&self.local(user))
    }

    /// Position of the user for motors.
    fn position(&self, table: &Geometry, motors: &Six) -> Option<Six> {
        let mut local = table.position(motors, &self.local(self.user))?;
        local[..3].iter_mut().for_each(|angle| *angle /= self.torad);
        let lab = turned(local, -self.yang);
        Some(each(|axis| lab[axis] - self.offset[axis]))
    }

    /// Takes the present motors as the target. Without a position for them, the target stays.
    fn take_motors(&mut self, able: Able) {
        let table = self.geometry(able);
        self.drive = self.driven;
        if let Some(user) = self.position(&table, &self.driven) {
            self.user = user;
        }
        self.true_value = each(|axis| self.user[axis] + self.offset[axis]);
    }

    /// Whether motors would exceed their limits.
    fn violates(&self, motors: &Six, able: Able) -> bool {
        (0..6).any(|motor| {
            let (high, low) = (self.motor_high[motor], self.motor_low[motor]);
            let is_limited = able.limits[motor] && able.drive[motor] && is_set(high, low);
            is_limited && (motors[motor] > high + SMALL || motors[motor] < low - SMALL)
        })
    }

    /// Limits of the user's position, each with the others as they are. Both are 0 if there are none.
    fn find_limits(&mut self, able: Able) {
        let table = self.geometry(able);
        for axis in 0..6 {
            let (mut low, mut high) =
                if axis < 3 { self.angle_limits(&table, axis, able) } else { self.shift_limits(&table, axis, able) };
            if is_set(self.user_limits[axis], self.user_limits[axis + 6]) {
                high = high.min(self.relative_limits[axis]);
                low = low.max(self.relative_limits[axis + 6]);
            }
            (self.low[axis], self.high[axis]) =
                if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 0.0) };
        }
    }

    /// Limits of a translation, which moves motors in proportion.
    fn shift_limits(&self, table: &Geometry, axis: usize, able: Able) -> (f64, f64) {
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        let mut shifted = self.user;
        shifted[axis] += 1.0;
        let (here, there) = (self.motors(table, self.user), self.motors(table, shifted));
        for motor in 0..6 {
            let (top, bottom) = (self.motor_high[motor], self.motor_low[motor]);
            let rate = there[motor] - here[motor];
            if able.limits[motor] && is_set(top, bottom) && rate.abs() > SMALL {
                let ends = [(top - here[motor]) / rate, (bottom - here[motor]) / rate];
                high = high.min(self.user[axis] + ends[0].max(ends[1]));
                low = low.max(self.user[axis] + ends[0].min(ends[1]));
            }
        }
        (low, high)
    }

    /// Limits of an angle: the nearest angles at which a motor exceeds its limits.
    fn angle_limits(&self, table: &Geometry, axis: usize, able: Able) -> (f64, f64) {
        let unit = 1f64.to_radians() / self.torad;
        let at = |angle: f64| {
            let mut user = self.user;
            user[axis] = angle;
            self.violates(&self.motors(table, user), able)
        };
        let Some(start) = [self.user[axis], 0.0].into_iter().find(|angle| !at(*angle)) else {
            return (self.user[axis], self.user[axis]);
        };
        let end = |direction: f64| {
            let last = direction * LARGEST * unit;
            let (mut inside, mut outside) = (start, start);
            // An angle beyond the largest one, which a client may have set, takes no steps.
            for _ in 0..STEPS_MAX {
                if at(outside) {
                    break;
                }
                inside = outside;
                if (last - outside) * direction <= 0.0 {
                    return last;
                }
                outside = (outside * direction + STEP * unit).min(LARGEST * unit) * direction;
            }
            if !at(outside) {
                return last;
            }
            for _ in 0..ROUNDS {
                let middle = f64::midpoint(inside, outside);
                *(if at(middle) { &mut outside } else { &mut inside }) = middle;
            }
            inside
        };
        (end(-1.0), end(1.0))
    }

    /// Whether the user's position is outside its limits.
    fn is_outside(&self) -> bool {
        (0..6).any(|axis| {
            let (high, low, value) = (self.high[axis], self.low[axis], self.user[axis]);
            is_set(high, low) && (value > high + SMALL || value < low - SMALL)
        })
    }
}

fn six_links(links: &[Link; 6]) -> [ResolvedLink; 6] {
    [0, 1, 2, 3, 4, 5].map(|motor| links[motor].brief())
}

/// Checks the links.
fn able(db: &Db, body: Body<Table>) -> Able {
    let r = &db.records[body];
    let works = |link: &Link| link.brief().kind != LinkKind::Constant && db.is_connected(link.brief());
    let both = |a: &[Link; 6], b: &[Link; 6]| [0, 1, 2, 3, 4, 5].map(|motor| works(&a[motor]) && works(&b[motor]));
    Able {
        drive: both(&r.drive_link, &r.drive_in),
        limits: both(&r.high_in, &r.low_in),
        encoder: both(&r.encoder_in, &r.encoder_in),
        speed: both(&r.speed_link, &r.speed_in),
    }
}

/// Reads six numbers; 0 for a link that does not work. A failed read raises the alarm itself.
fn read_six(db: &mut Db, rec: RecId, links: [ResolvedLink; 6], works: [bool; 6]) -> Six {
    each(|motor| if works[motor] { db.get_link::<f64>(rec, links[motor]).ok().flatten().unwrap_or(0.0) } else { 0.0 })
}

/// Writes numbers to the links that work. A failed write raises the alarm itself.
fn write_six(db: &mut Db, rec: RecId, links: [ResolvedLink; 6], works: [bool; 6], values: Six) {
    for motor in (0..6).filter(|motor| works[*motor]) {
        let _ = db.put_link(rec, links[motor], Scalar::F64(values[motor]));
    }
}

/// Reads the limits of the motors.
fn read_limits(db: &mut Db, rec: RecId, body: Body<Table>, able: Able) {
    let r = &db.records[body];
    let (high, low) = (six_links(&r.high_in), six_links(&r.low_in));
    let (high, low) = (read_six(db, rec, high, able.limits), read_six(db, rec, low, able.limits));
    let r = &mut db.records[body];
    (r.motor_high, r.motor_low) = (high, low);
}

/// Reads the drive fields of the motors.
fn read_drives(db: &mut Db, rec: RecId, body: Body<Table>, able: Able) {
    let links = six_links(&db.records[body].drive_in);
    db.records[body].driven = read_six(db, rec, links, able.drive);
}

/// Calculates limits, readbacks and pivot points. A setup without a solution raises an alarm.
fn read_back(db: &mut Db, rec: RecId, body: Body<Table>, able: Able) {
    let links = six_links(&db.records[body].encoder_in);
    let encoded = read_six(db, rec, links, able.encoder);
    let r = &mut db.records[body];
    r.encoded = encoded;
    r.find_limits(able);
    let table = r.geometry(able);
    let (readback, encoder) = (r.position(&table, &r.driven), r.position(&table, &r.encoded));
    let local = r.local(r.user);
    let angles = [local[0], local[1], local[2]];
    let (points, origins) = (table.moved(&local), table.pivots);
    r.fresh[0] |= changed(&mut r.matrices[0], Array::F64(rotation(angles).concat()));
    let places = r.points.iter_mut().chain(&mut r.origins).zip(points.into_iter().chain(origins));
    for ((place, point), fresh) in places.zip(&mut r.fresh[1..]) {
        *fresh |= changed(place, Array::F64(point.to_vec()));
    }
    let is_solved = readback.is_some() && encoder.is_some();
    r.readback = readback.unwrap_or(r.readback);
    r.encoder = encoder.unwrap_or(r.encoder);
    if !is_solved {
        db.records[rec].raise(Status::Calc, 3);
    }
}

/// Moves the motors to the user's position, if no limit forbids it.
fn go(db: &mut Db, rec: RecId, body: Body<Table>, able: Able) {
    let r = &mut db.records[body];
    let table = r.geometry(able);
    let before = r.drive;
    let target = r.motors(&table, r.user);
    if r.is_outside() || r.violates(&target, able) || target.iter().any(|motor| !motor.is_finite()) {
        r.lvio = 1;
        r.user = each(|axis| r.true_value[axis] - r.offset[axis]);
        return;
    }
    r.drive = target;
    let (speeds_in, speeds_out, drives) = (six_links(&r.speed_in), six_links(&r.speed_link), six_links(&r.drive_link));
    let normal = read_six(db, rec, speeds_in, able.speed);
    let way = each(|motor| (target[motor] - before[motor]).abs());
    let moves = [0, 1, 2, 3, 4, 5].map(|motor| able.speed[motor] && way[motor] > SMALL);
    let speed = arrive_together(way, normal, moves);
    db.records[body].speed = speed;
    write_six(db, rec, speeds_out, moves, speed);
    // If no motor moves, one is written all the same, so that its end of motion can be awaited.
    let mut goes = [0, 1, 2, 3, 4, 5].map(|motor| able.drive[motor] && way[motor] > SMALL);
    if !goes.contains(&true)
        && let Some(first) = able.drive.iter().position(|works| *works)
    {
        goes[first] = true;
    }
    write_six(db, rec, drives, goes, target);
    // A motor keeps the speed with which it started.
    write_six(db, rec, speeds_out, able.speed, normal);
}

/// Speeds at which motors arrive together, none faster than its normal speed. Motors that do not move keep theirs.
fn arrive_together(way: Six, normal: Six, moves: [bool; 6]) -> Six {
    let moving = || (0..6).filter(|motor| moves[*motor]);
    // Time that the slowest motor takes.
    let time = moving().map(|motor| way[motor] / normal[motor]).fold(0.0, f64::max);
    each(|motor| if moves[motor] && time.is_finite() { way[motor] / time } else { normal[motor] })
}

impl Table {
    /// Notes all numbers, so that [`post_changes`] finds those that change.
    fn note_numbers(&mut self) {
        let mut before = std::mem::take(&mut self.before);
        before.clear();
        before.extend((0..Self::NAMES.len()).map(|field| number(self, field)));
        self.before = before;
    }
}

/// Value of a field that is a number, otherwise 0.
fn number(r: &mut Table, field: usize) -> f64 {
    r.slot(field).scalar().and_then(crate::text::conv::number).unwrap_or(0.0)
}

/// Posts the fields that changed.
fn post_changes(db: &mut Db, rec: RecId, body: Body<Table>, alarm: EventMask) {
    let all = alarm | EventMask::VALUE | EventMask::LOG;
    for (field, name) in Table::NAMES.iter().enumerate() {
        let r = &mut db.records[body];
        let (before, now) = (r.before.get(field).copied(), number(r, field));
        if before.is_some_and(|before| (before - now).abs() > SMALL) {
            db.post_named(rec, name, all);
        }
    }
    let fresh = std::mem::take(&mut db.records[body].fresh);
    for (name, _) in ARRAYS.iter().zip(fresh).filter(|(_, fresh)| *fresh) {
        db.post_named(rec, name, all);
    }
}

#[cfg(test)]
mod tests;
