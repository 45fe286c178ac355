//! Common code of bo and busy. They differ only in the steps after processing.

/// Callback at the end of the HIGH time.
pub(crate) const END_OF_HIGH: u8 = 0;

/// A binary output record with its fields. `$ended` computes the processing result from the record and whether the write
/// failed.
macro_rules! binary_output {
    ($T:ident, $ended:expr; $($more:tt)*) => {
        record! {
            /// Fields of a binary output.
            $T {
                val: u16 [VAL],
                omsl: u16 [OMSL],
                dol: Link [DOL],
                out: Link [OUT],
                high: f64 [HIGH],
                znam: Text<26> [ZNAM],
                onam: Text<26> [ONAM],
                rval: u32 [RVAL],
                oraw: u32 [ORAW],
                mask: u32 [MASK],
                zsv: u16 [ZSV],
                osv: u16 [OSV],
                cosv: u16 [COSV],
                rbv: u32 [RBV],
                orbv: u32 [ORBV],
                mlst: u16 [MLST],
                lalm: u16 [LALM],
                ivoa: u16 [IVOA],
                ivov: u16 [IVOV],
                sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
            }
        }

        bits_output!(
            $T, write_other, $ended;

            const GENERAL_TIMES: &'static [&'static str] = &["RSTERRCNT"];

            /// Start: loads a constant DOL, sets the raw value and the last values.
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
                Self::begin(db, rec, body);
                let r = &mut db.records[body];
                r.orbv = r.rbv;
            }

            /// The HIGH time is over: sets VAL to zero.
            fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, _: u8) {
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

            /// Sets the other fields after VAL was set to the device's value.
            fn begin(db: &mut Db, rec: RecId, body: Body<Self>) {
                convert(db, rec, body);
                let r = &mut db.records[body];
                r.mlst = r.val;
                r.lalm = r.val;
                r.oraw = r.rval;
            }

            /// State for a raw device value.
            fn from_device(db: &mut Db, _: RecId, body: Body<Self>, fed: &DeviceSample) -> Option<Scalar> {
                let raw = fed.raw()? as u32;
                Some(Scalar::Enum(u16::from(db.records[body].masked(raw) != 0)))
            }

            fn properties(&self, field: u16, _: Option<FieldType>) -> Properties {
                match field {
                    Self::HIGH => Properties::of_delay(Range::default()),
                    _ => Properties { display: Properties::NONE.display, ..Properties::BOUNDED },
                }
            }

            fn states(&self) -> States<'_> {
                States::Pair(&self.znam, &self.onam)
            }

            $($more)*
        );

        impl $T {
            fn value(&self, raw: bool, _: bool) -> Scalar {
                if raw { Scalar::I32(self.rval as i32) } else { Scalar::U16(self.val) }
            }

            fn for_device(&self) -> (u32, Option<Str40>) {
                let name = if self.val == 0 { &self.znam } else { &self.onam };
                (self.rval, Some(Str40::new(name.bytes())))
            }
        }

        /// Reads DOL. Processing continues even if that fails.
        fn fetch(db: &mut Db, rec: RecId, body: Body<$T>) -> bool {
            let r = &db.records[body];
            if r.omsl == 1 && !r.dol.is_constant() {
                let dol = r.dol.brief();
                let found = db.get_link::<u16>(rec, dol);
                let (common, r) = db.records.both(rec, body);
                match found {
                    Ok(value) => {
                        r.val = value.unwrap_or(r.val);
                        common.udf = 0;
                    }
                    Err(_) => drop(common.raise(Status::Link, 3)),
                }
            }
            true
        }

        /// Computes the raw value from VAL.
        fn convert(db: &mut Db, _: RecId, body: Body<$T>) {
            let r = &mut db.records[body];
            r.rval = match (r.mask, r.val) {
                (0, val) => u32::from(val),
                (_, 0) => 0,
                (mask, _) => mask,
            };
        }

        fn write_other(db: &mut Db, body: Body<$T>, device: Device) -> bool {
            match device {
                Device::DbState => {
                    let r = &db.records[body];
                    let (name, on) = (r.out.text().trim_start_matches('@').to_owned(), r.val != 0);
                    db.set_state(&name, on);
                    true
                }
                // RSTERRCNT resets error counters of clocks; tahti has none.
                Device::GeneralTime => true,
                _ => false,
            }
        }

        /// Starts the HIGH time.
        fn written(db: &mut Db, rec: RecId, body: Body<$T>) {
            let r = &db.records[body];
            if r.val == 1 && r.high > 0.0 {
                let high = r.high;
                db.cancel_delay(rec, Callback::Own(END_OF_HIGH));
                db.call_back_after(rec, Callback::Own(END_OF_HIGH), high);
            }
        }

        fn check_alarms(common: &mut Common, r: &mut $T) {
            if common.udf == 1 {
                common.raise_undefined();
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
