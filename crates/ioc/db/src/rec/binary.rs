//! What bo and busy have in common: all but what follows a processing.

/// The callback that ends HIGH.
pub(crate) const END_OF_HIGH: u8 = 0;

/// Start and processing of a binary output; `$ended` says what a processing comes to, by the record and whether it failed.
macro_rules! binary_output {
    ($T:ident, $ended:expr; $($more:tt)*) => {
        impl RecordType for $T {
            const GENERAL_TIMES: &'static [&'static str] = &["RSTERRCNT"];

            fn sim(&mut self) -> Option<&mut Rarely<Sim>> {
                Some(&mut self.sim)
            }

            /// At start: a constant DOL, the raw value, last values.
            fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
                init_sim(db, rec, body);
                if db.device(rec) == Device::Missing {
                    return;
                }
                let (common, r) = db.records.both(rec, body);
                if let Some(val) = r.dol.number::<u16>() {
                    r.val = u16::from(val != 0);
                    common.udf = 0;
                }
                r.update_raw();
                r.mlst = r.val;
                r.lalm = r.val;
                r.oraw = r.rval;
                r.orbv = r.rbv;
            }

            /// Fetches, checks, writes, tells.
            fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> Outcome {
                if db.device(rec) == Device::Missing {
                    return no_device(db, rec);
                }
                if !resumed {
                    let r = &db.records[body];
                    if r.omsl == 1 && !r.dol.is_constant() {
                        let dol = r.dol.brief();
                        match db.get_link::<u16>(rec, dol) {
                            Ok(value) => {
                                if let Some(value) = value {
                                    db.records[body].val = value;
                                }
                                db.records[rec].udf = 0;
                            }
                            Err(_) => {
                                db.records[rec].raise(Status::Link, 3);
                            }
                        }
                    }
                    db.records[body].update_raw();
                    stamp_output(db, rec, body);
                }
                check_alarms(db, rec, body);
                let ivoa = db.records[body].ivoa;
                let ivov = |db: &mut Db| {
                    let r = &mut db.records[body];
                    r.val = r.ivov;
                    r.update_raw();
                };
                if drive_output(db, rec, resumed, ivoa, ivov, |db| write(db, rec, body, resumed)) {
                    return Outcome::Pending;
                }
                if resumed {
                    stamp_output(db, rec, body);
                }
                let r = &db.records[body];
                if r.val == 1 && r.high > 0.0 {
                    let high = r.high;
                    db.cancel_delay(rec, Callback::Own(END_OF_HIGH));
                    db.call_back_after(rec, Callback::Own(END_OF_HIGH), high);
                }
                let failed = db.pass.failed;
                monitor(db, rec, body);
                $ended(&db.records[body], failed)
            }

            /// HIGH has passed: back to zero.
            fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>) {
                if db.records[rec].pact != 0 {
                    let r = &db.records[body];
                    if r.val == 1 && r.high > 0.0 {
                        let high = r.high;
                        db.call_back_after(rec, Callback::Own(END_OF_HIGH), high);
                    }
                    return;
                }
                db.records[body].val = 0;
                db.run(rec);
            }

            /// VAL is what the device has.
            fn begin(db: &mut Db, _: RecId, body: Body<Self>) {
                let r = &mut db.records[body];
                r.update_raw();
                r.mlst = r.val;
                r.lalm = r.val;
                r.oraw = r.rval;
            }

            /// The state that a raw value of the device is.
            fn from_device(db: &mut Db, _: RecId, body: Body<Self>, fed: &Fed) -> Option<Scalar> {
                let raw = fed.raw()? as u32;
                let mask = db.records[body].mask;
                Some(Scalar::Enum(u16::from(if mask == 0 { raw } else { raw & mask } != 0)))
            }

            fn read_back(&mut self, raw: i32) {
                self.rval = if self.mask == 0 { raw as u32 } else { raw as u32 & self.mask };
                self.rbv = self.rval;
            }

            fn states(&self) -> States<'_> {
                States::Pair(&self.znam, &self.onam)
            }

                    $($more)*
        }

        impl $T {
            fn update_raw(&mut self) {
                self.rval = match (self.mask, self.val) {
                    (0, val) => u32::from(val),
                    (_, 0) => 0,
                    (mask, _) => mask,
                };
            }
        }

        fn write(db: &mut Db, rec: RecId, body: Body<$T>, resumed: bool) -> bool {
            let simm = match mode(db, rec, body, resumed, true) {
                Mode::Real => 0,
                Mode::Simulated(simm) => simm,
                Mode::Delayed => return true,
                Mode::Bad => return false,
            };
            let device = db.device(rec);
            let r = &db.records[body];
            if simm == 0 && device == Device::DbState {
                let (name, on) = (r.out.text().trim_start_matches('@').to_owned(), r.val != 0);
                db.set_state(&name, on);
                return false;
            }
            // RSTERRCNT: there are no errors of clocks to forget.
            if simm == 0 && device == Device::GeneralTime {
                return false;
            }
            let link = if simm == 0 { r.out.brief() } else { r.sim.siol.brief() };
            let raw = if simm == 0 { device == Device::SoftRaw } else { simm == 2 };
            let value = if raw { Scalar::I32(r.rval as i32) } else { Scalar::U16(r.val) };
            if simm == 0 && db.device(rec) == Device::External {
                let r = &db.records[body];
                let name = if r.val == 0 { &r.znam } else { &r.onam };
                let name = Some(Str40::new(name.bytes()));
                let output = Output { value: Value::Scalar(value), raw: i64::from(r.rval), name, converted: false };
                return db.device_write(rec, resumed, output);
            }
            db.write_out(rec, link, value, simm == 0, resumed)
        }

        fn check_alarms(db: &mut Db, rec: RecId, body: Body<$T>) {
            let (common, r) = db.records.both(rec, body);
            if common.udf == 1 {
                let udfs = common.udfs;
                common.raise(Status::Udf, udfs);
            }
            common.raise(Status::State, if r.val == 0 { r.zsv } else { r.osv });
            if r.val != r.lalm {
                common.raise(Status::Cos, r.cosv);
                r.lalm = r.val;
            }
        }

        fn monitor(db: &mut Db, rec: RecId, body: Body<$T>) {
            let alarm = db.reset_alarms(rec);
            let r = &mut db.records[body];
            let moved = [changed(&mut r.mlst, r.val), changed(&mut r.oraw, r.rval), changed(&mut r.orbv, r.rbv)];
            post_raw(db, rec, alarm, moved);
        }
    };
}
pub(crate) use binary_output;
