//! Common code of the bit records: the inputs bi, mbbi and mbbiDirect, and the outputs bo, busy, mbbo and mbboDirect.
//! Type-specific functions are in the type's file.

use super::Bodies;
use super::message::Message;
use crate::model::id::RecId;
use crate::model::link::ResolvedLink;
use crate::run::engine::Db;
use crate::text::conv::Number;
use base::Status;

/// Start, processing and reading of a bit input. VAL of `$T` has type `$val`. Its raw value is read as `$raw` and simulated
/// as `$sim`. `$before` selects whether simulation is initialized even if the device support is missing. `$other` reads
/// through other device supports.
macro_rules! bits_input {
    ($T:ident, $val:ty, $raw:ty, $sim:ty, $before:literal, $other:expr; $($more:tt)*) => {
        impl RecordType for $T {
            crate::rec::simulation!();

            /// Start: loads constants, sets the mask and the last values.
            fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
                let device = db.device(rec);
                if device == Device::Missing && !$before {
                    return;
                }
                init_sim(db, rec, body);
                let (common, r) = db.records.both(rec, body);
                if let Some(sval) = r.sim.siol.number::<$sim>() {
                    r.sval = sval as _;
                }
                if device == Device::Missing {
                    return;
                }
                r.set_mask(device);
                if device == Device::SoftRaw {
                    if let Some(rval) = r.inp.number() {
                        r.rval = rval;
                    }
                } else if let Some(val) = r.inp.number::<$val>() {
                    r.val = val as _;
                    common.udf = 0;
                }
                r.mlst = r.val;
                r.oraw = r.rval;
                r.started();
            }

            /// Reads the device or link, converts, checks alarms, posts monitors.
            fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
                let before = db.records[rec].time;
                let read = |db: &mut Db| read(db, rec, body, resumed);
                let simulated = |db: &mut Db, simm| simulated(db, rec, body, simm);
                let read = match read_input(db, rec, body, resumed, true, read, simulated) {
                    Ok(read) => read,
                    Err(outcome) => return outcome,
                };
                let (common, r) = db.records.both(rec, body);
                if read == ReadOutcome::Raw {
                    r.convert();
                    common.udf = 0;
                }
                check_alarms(common, r, before);
                monitor(db, rec, body);
                read.outcome()
            }

            $($more)*
        }

        fn read(db: &mut Db, rec: RecId, body: Body<$T>, resumed: bool) -> ReadOutcome {
            let link = db.records[body].inp.brief();
            match db.device(rec) {
                Device::Soft | Device::SoftAsync => {
                    read_soft(db, rec, link, resumed, ReadOutcome::Value, |bodies, value: $val| bodies[body].val = value as _)
                }
                Device::SoftRaw => match db.get_link::<$raw>(rec, link) {
                    Ok(value) => {
                        let r = &mut db.records[body];
                        if let Some(value) = value {
                            r.rval = value as _;
                        }
                        r.mask_raw();
                        take_stamp(db, rec, link);
                        ReadOutcome::Raw
                    }
                    Err(_) => $T::RAW_FAILED,
                },
                Device::External => match db.device_read(rec, resumed) {
                    ReadResult::Pending => ReadOutcome::Pending,
                    ReadResult::Value(fed) => device_value(db, rec, body, &fed),
                    ReadResult::Constant | ReadResult::Failed => ReadOutcome::Failed,
                },
                _ => $other(db, rec, body),
            }
        }

        fn simulated(db: &mut Db, rec: RecId, body: Body<$T>, simm: u16) -> ReadOutcome {
            crate::rec::read_simulated(db, rec, body, Db::get_link::<u32>, |db, value| {
                let r = &mut db.records[body];
                if let Some(value) = value {
                    r.sval = value as _;
                }
                if simm == 1 {
                    r.val = r.sval as _;
                    return ReadOutcome::Value;
                }
                r.rval = r.simulated_raw();
                ReadOutcome::Raw
            })
        }
    };
}
pub(crate) use bits_input;

/// Reads the desired value from DOL, if it is given. Returns whether there is a value. `undefined` is the alarm message of a
/// value that was never set.
pub(crate) fn fetch_bits<N: Number>(
    db: &mut Db,
    rec: RecId,
    dol: Option<ResolvedLink>,
    undefined: Message,
    set: impl FnOnce(&mut Bodies, N),
) -> bool {
    if let Some(dol) = dol {
        let Ok(Some(val)) = db.get_link::<N>(rec, dol) else {
            db.records[rec].raise(Status::Link, 3);
            return false;
        };
        set(&mut db.records.bodies, val);
    } else if db.records[rec].udf != 0 {
        let udfs = db.records[rec].udfs;
        db.records[rec].raise_with(Status::Udf, udfs, undefined);
        return false;
    }
    db.records[rec].udf = 0;
    true
}

/// Processing and writing of a bit output. `$other` writes through other device supports and returns whether it did. `$ended`
/// computes the processing result from the record and whether the write failed.
macro_rules! bits_output {
    ($T:ident, $other:expr, $ended:expr; $($more:tt)*) => {
        impl RecordType for $T {
            crate::rec::simulation!();

            /// Fetches DOL, checks alarms, writes the output, posts monitors.
            fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
                if db.device(rec) == Device::Missing {
                    return no_device(db, rec);
                }
                if !resumed && fetch(db, rec, body) {
                    convert(db, rec, body);
                    stamp_output(db, rec, body);
                }
                let (common, r) = db.records.both(rec, body);
                check_alarms(common, r);
                let ivoa = r.ivoa;
                let ivov = |db: &mut Db| {
                    let r = &mut db.records[body];
                    r.val = r.ivov;
                    convert(db, rec, body);
                };
                let write = |db: &mut Db| write(db, rec, body, resumed);
                let driven = drive_stamped(db, (rec, body), resumed, ivoa, ivov, write);
                let Some(failed) = driven else { return ProcessResult::Pending };
                written(db, rec, body);
                monitor(db, rec, body);
                $ended(&db.records[body], failed)
            }

            fn read_back(&mut self, raw: i32) {
                self.rval = self.masked(raw as u32);
                self.rbv = self.rval;
            }

            $($more)*
        }

        impl $T {
            /// Applies MASK to a raw value; a mask of 0 keeps all bits.
            fn masked(&self, raw: u32) -> u32 {
                if self.mask == 0 { raw } else { raw & self.mask }
            }
        }

        fn write(db: &mut Db, rec: RecId, body: Body<$T>, resumed: bool) -> bool {
            let simm = match output_mode(db, rec, body, resumed, true) {
                Ok(simm) => simm,
                Err(pending) => return pending,
            };
            let (real, device) = (simm == 0, db.device(rec));
            if real && $other(&mut *db, body, device) {
                return false;
            }
            let r = &db.records[body];
            let raw = if real { device == Device::SoftRaw } else { simm == 2 };
            let value = r.value(raw, real);
            if real && device == Device::External {
                let (raw, name) = r.for_device();
                let output = Output { value: Value::Scalar(value), raw: raw.into(), name, converted: false };
                return db.device_write(rec, resumed, output);
            }
            let link = if real { r.out.brief() } else { r.sim.siol.brief() };
            db.write_out(rec, link, value, real, resumed)
        }
    };
}
pub(crate) use bits_output;
