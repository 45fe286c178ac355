//! Common code of longin, int64in, longout and int64out. They differ only in the width of their numbers.

/// An integer input record: fields, start and processing.
macro_rules! whole_input {
    ($T:ident, $type:ty; $($more:tt)*) => {
        record! {
            /// Fields of an integer input.
            $T {
                val: $type [VAL],
                inp: Link [INP],
                egu: Inline<16> [EGU],
                hopr: $type [HOPR],
                lopr: $type [LOPR],
                aftc: f64 [AFTC],
                afvl: f64 [AFVL],
                adel: $type [ADEL],
                mdel: $type [MDEL],
                lalm: $type [LALM],
                alst: $type [ALST],
                mlst: $type [MLST],
                sval: $type [SVAL],
                limits: Limits<$type> [HIHI LOLO HIGH LOW HHSV LLSV HSV LSV HYST],
                sim: Lazy<Sim> [SIOL SIML SIMM SIMS OLDSIMM SSCN SDLY],
            }
        }

        impl RecordType for $T {
            crate::rec::simulation!();

        /// Start: loads constants and sets the last values.
        fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
            init_sim(db, rec, body);
            let device = db.device(rec);
            let (common, r) = db.records.both(rec, body);
            if let Some(sval) = r.sim.siol.number() {
                r.sval = sval;
            }
            if device == Device::Missing {
                return;
            }
            if let Some(val) = r.inp.number() {
                r.val = val;
                common.udf = 0;
            }
            r.mlst = r.val;
            r.alst = r.val;
            r.lalm = r.val;
        }

        /// Reads the input, checks alarm limits, posts monitors.
        fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
            let before = db.records[rec].time;
            let read = |db: &mut Db| read(db, rec, body, resumed);
            let simulated = |db: &mut Db, _| simulated(db, rec, body);
            let read = match read_input(db, rec, body, resumed, false, read, simulated) {
                Ok(read) => read,
                Err(outcome) => return outcome,
            };
            if read == ReadOutcome::Value {
                db.records[rec].udf = 0;
            }
            let (common, r) = db.records.both(rec, body);
            check_limits_filtered!(*common, r, before);
            monitor(db, rec, body);
            read.outcome()
        }

            fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
                Properties { bounded: false, ..number_properties!(self, field, kind, Self::SVAL) }
            }

            $($more)*
        }

        fn read(db: &mut Db, rec: RecId, body: Body<$T>, resumed: bool) -> ReadOutcome {
            let link = db.records[body].inp.brief();
            match db.device(rec) {
                Device::Soft | Device::SoftAsync => {
                    read_soft(db, rec, link, resumed, ReadOutcome::Failed, |bodies, value: $type| bodies[body].val = value)
                }
                Device::External => match db.device_read(rec, resumed) {
                    ReadResult::Constant | ReadResult::Failed => ReadOutcome::Failed,
                    ReadResult::Pending => ReadOutcome::Pending,
                    ReadResult::Value(fed) => match fed.scalar().and_then(crate::text::conv::number::<$type>) {
                        Some(value) => {
                            db.records[body].val = value;
                            ReadOutcome::Value
                        }
                        None => ReadOutcome::Failed,
                    },
                },
                Device::GeneralTime => {
                    // GETERRCNT counts clock errors; tahti has none.
                    db.records[body].val = 0;
                    ReadOutcome::Value
                }
                _ => {
                    cannot_read(db, rec)
                }
            }
        }

        fn simulated(db: &mut Db, rec: RecId, body: Body<$T>) -> ReadOutcome {
            crate::rec::read_simulated(db, rec, body, Db::get_link::<$type>, |db, value| {
                let r = &mut db.records[body];
                r.sval = value.unwrap_or(r.sval);
                r.val = r.sval;
                ReadOutcome::Value
            })
        }

        whole_monitor!($T);
    };
}
pub(crate) use whole_input;

/// Deadbands and events of an integer record.
macro_rules! whole_monitor {
    ($T:ident) => {
        fn monitor(db: &mut Db, rec: RecId, body: Body<$T>) {
            let mut mask = db.reset_alarms(rec);
            let r = &mut db.records[body];
            if r.mdel < 0 || r.mlst.abs_diff(r.val) > r.mdel.unsigned_abs() {
                mask |= EventMask::VALUE;
                r.mlst = r.val;
            }
            if r.adel < 0 || r.alst.abs_diff(r.val) > r.adel.unsigned_abs() {
                mask |= EventMask::LOG;
                r.alst = r.val;
            }
            if !mask.is_empty() {
                db.post_value(rec, mask);
            }
        }
    };
}
pub(crate) use whole_monitor;

/// Start and processing of an integer output record; `$write` writes VAL.
macro_rules! whole_output {
    ($T:ident, $type:ty, $scalar:ident, $start:expr, $due:expr, $written:expr; $($more:tt)*) => {
        impl RecordType for $T {
            const HIDES_FAILED_WRITE: bool = true;

            crate::rec::simulation!();

        /// Start: loads a constant DOL and sets the last values.
        fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
            init_sim(db, rec, body);
            if db.device(rec) == Device::Missing {
                return;
            }
            let (common, r) = db.records.both(rec, body);
            if let Some(val) = r.dol.number() {
                r.val = val;
                common.udf = 0;
            }
            r.mlst = r.val;
            r.alst = r.val;
            r.lalm = r.val;
            $start(r);
        }

        /// Fetches DOL, checks alarm limits, writes the output, posts monitors.
        fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
            if db.device(rec) == Device::Missing {
                return no_device(db, rec);
            }
            if !resumed {
                let r = &db.records[body];
                let mut value = Some(r.val);
                if r.omsl == 1 && !r.dol.is_constant() {
                    let dol = r.dol.brief();
                    value = match db.get_link::<$type>(rec, dol) {
                        Ok(value) => {
                            db.records[rec].udf = 0;
                            value
                        }
                        Err(_) => None,
                    };
                }
                if let Some(value) = value {
                    let r = &mut db.records[body];
                    r.val = if r.drvh > r.drvl { value.clamp(r.drvl, r.drvh) } else { value };
                }
                stamp_output(db, rec, body);
            }
            let (common, r) = db.records.both(rec, body);
            check_limits!(*common, r);
            let ivoa = r.ivoa;
            let ivov = |db: &mut Db| {
                let r = &mut db.records[body];
                r.val = r.ivov;
            };
            let write = |db: &mut Db| write(db, rec, body, resumed);
            let Some(failed) = drive_stamped(db, (rec, body), resumed, ivoa, ivov, write) else { return ProcessResult::Pending };
            monitor(db, rec, body);
            if failed { ProcessResult::Failed } else { ProcessResult::Done }
        }

            fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
                let of = number_properties!(self, field, kind);
                let drive = Range { low: self.drvl.number(), high: self.drvh.number() };
                let control = of.control.map(|range| if drive.high > drive.low { drive } else { range });
                Properties { bounded: false, control, ..of }
            }

            $($more)*
        }

        /// Writes the output or its simulation. Returns whether a callback is pending.
        fn write(db: &mut Db, rec: RecId, body: Body<$T>, resumed: bool) -> bool {
            let simulated = match output_mode(db, rec, body, resumed, false) {
                Ok(simm) => simm != 0,
                Err(pending) => return pending,
            };
            let r = &db.records[body];
            let link = if simulated { r.sim.siol.brief() } else { r.out.brief() };
            let value = Scalar::$scalar(r.val);
            let mut pending = false;
            if !simulated && $due(r) && db.device(rec) == Device::External {
                let output = Output {
                    value: Value::Scalar(value),
                    raw: i64::from(db.records[body].val),
                    name: None,
                    converted: false,
                };
                pending = db.device_write(rec, resumed, output);
            } else if simulated || $due(r) {
                pending = db.write_out(rec, link, value, !simulated, resumed);
            }
            if !simulated && !pending {
                $written(&mut db.records[body]);
            }
            pending
        }

        whole_monitor!($T);
    };
}
pub(crate) use whole_output;
