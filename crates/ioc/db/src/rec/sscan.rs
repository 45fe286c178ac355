//! sscan record (synApps): moves up to four positioners through a series of points, triggers detectors at each point, and
//! collects up to 70 detector values and four positions into arrays.
//!
//! Text fields name the process variables; all links use channels. Writes wait for their completion. While it scans, the record
//! is not active (PACT), but its forward link and put callbacks wait until the scan has ended.
//!
//! [`control`] has the writes by clients, [`phases`] the sequence of a scan, [`data`] the arrays and posts, [`linear`] the
//! parameters of positioners, [`feature`] the positions to which they can go after a scan.

mod control;
mod data;
mod feature;
mod linear;
mod phases;

use super::inputs::{name_of, nth};
use crate::model::link::{CA, CP, Link, LinkField, LinkKind, LinkText, ResolvedLink, parse};
use crate::model::slot::{Layout, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, changed};
use crate::run::engine::{Db, ProcessResult};
use crate::text::conv;
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, MonoNs, Scalar, Str40};

/// Numbers of positioners, of detectors, and of all process variables.
const POSITIONERS: usize = 4;
const DETECTORS: usize = 70;
const PVS: usize = AFTER + 1;
/// Index of the first readback, detector and trigger in the list of names, and of the single ones.
const READBACK: usize = POSITIONERS;
const DETECTOR: usize = READBACK + POSITIONERS;
const TRIGGER: usize = DETECTOR + DETECTORS;
const ARRAY_TRIGGER: usize = TRIGGER + 4;
const BEFORE: usize = ARRAY_TRIGGER + 1;
const AFTER: usize = BEFORE + 1;

record! {
    /// Fields of an sscan record.
    SScan {
        vers: f64 [VERS],
        val: f64 [VAL],
        smsg: Text<40> [SMSG],
        cmnd: u16 [CMND],
        alrt: u8 [ALRT],
        mpts: i32 [MPTS],
        exsc: i16 [EXSC],
        xsc: i16 [XSC],
        pxsc: u8 [PXSC],
        busy: u8 [BUSY],
        kill: u8 [KILL],
        wait: i16 [WAIT],
        wcnt: i16 [WCNT],
        awct: i16 [AWCT],
        wtng: i16 [WTNG],
        await_: i16 [AWAIT],
        aawait: u16 [AAWAIT],
        data: i16 [DATA],
        refd: i16 [REFD],
        npts: i32 [NPTS],
        fpts: u16 [FPTS],
        ffo: u16 [FFO],
        cpt: i32 [CPT],
        bcpt: i32 [BCPT],
        dpt: i32 [DPT],
        pcpt: i32 [PCPT],
        pasm: u16 [PASM],
        atime: f32 [ATIME],
        names: [Text<40>; PVS] [
            P1PV P2PV P3PV P4PV R1PV R2PV R3PV R4PV D01PV D02PV D03PV D04PV D05PV D06PV D07PV D08PV D09PV
            D10PV D11PV D12PV D13PV D14PV D15PV D16PV D17PV D18PV D19PV D20PV D21PV D22PV D23PV D24PV
            D25PV D26PV D27PV D28PV D29PV D30PV D31PV D32PV D33PV D34PV D35PV D36PV D37PV D38PV D39PV
            D40PV D41PV D42PV D43PV D44PV D45PV D46PV D47PV D48PV D49PV D50PV D51PV D52PV D53PV D54PV
            D55PV D56PV D57PV D58PV D59PV D60PV D61PV D62PV D63PV D64PV D65PV D66PV D67PV D68PV D69PV
            D70PV T1PV T2PV T3PV T4PV A1PV BSPV ASPV
        ],
        waits: [u16; 2] [BSWAIT ASWAIT],
        valid: [u16; PVS] [
            P1NV P2NV P3NV P4NV R1NV R2NV R3NV R4NV D01NV D02NV D03NV D04NV D05NV D06NV D07NV D08NV D09NV
            D10NV D11NV D12NV D13NV D14NV D15NV D16NV D17NV D18NV D19NV D20NV D21NV D22NV D23NV D24NV
            D25NV D26NV D27NV D28NV D29NV D30NV D31NV D32NV D33NV D34NV D35NV D36NV D37NV D38NV D39NV
            D40NV D41NV D42NV D43NV D44NV D45NV D46NV D47NV D48NV D49NV D50NV D51NV D52NV D53NV D54NV
            D55NV D56NV D57NV D58NV D59NV D60NV D61NV D62NV D63NV D64NV D65NV D66NV D67NV D68NV D69NV
            D70NV T1NV T2NV T3NV T4NV A1NV BSNV ASNV
        ],
        before: [f64; POSITIONERS] [P1PP P2PP P3PP P4PP],
        present: [f64; POSITIONERS] [P1CV P2CV P3CV P4CV],
        desired: [f64; POSITIONERS] [P1DV P2DV P3DV P4DV],
        desired_posted: [f64; POSITIONERS] [P1LV P2LV P3LV P4LV],
        start: [f64; POSITIONERS] [P1SP P2SP P3SP P4SP],
        step: [f64; POSITIONERS] [P1SI P2SI P3SI P4SI],
        end: [f64; POSITIONERS] [P1EP P2EP P3EP P4EP],
        center: [f64; POSITIONERS] [P1CP P2CP P3CP P4CP],
        width: [f64; POSITIONERS] [P1WD P2WD P3WD P4WD],
        readback: [f64; POSITIONERS] [R1CV R2CV R3CV R4CV],
        readback_posted: [f64; POSITIONERS] [R1LV R2LV R3LV R4LV],
        tolerance: [f64; POSITIONERS] [R1DL R2DL R3DL R4DL],
        high: [f64; POSITIONERS] [P1HR P2HR P3HR P4HR],
        low: [f64; POSITIONERS] [P1LR P2LR P3LR P4LR],
        table: [Array; POSITIONERS] [P1PA P2PA P3PA P4PA],
        positions: [Array; POSITIONERS] [P1RA P2RA P3RA P4RA],
        positions_now: [Array; POSITIONERS] [P1CA P2CA P3CA P4CA],
        frozen_start: [u16; POSITIONERS] [P1FS P2FS P3FS P4FS],
        frozen_step: [u16; POSITIONERS] [P1FI P2FI P3FI P4FI],
        frozen_end: [u16; POSITIONERS] [P1FE P2FE P3FE P4FE],
        frozen_center: [u16; POSITIONERS] [P1FC P2FC P3FC P4FC],
        frozen_width: [u16; POSITIONERS] [P1FW P2FW P3FW P4FW],
        mode: [u16; POSITIONERS] [P1SM P2SM P3SM P4SM],
        relative: [u16; POSITIONERS] [P1AR P2AR P3AR P4AR],
        egu: [Text<16>; POSITIONERS] [P1EU P2EU P3EU P4EU],
        prec: [i16; POSITIONERS] [P1PR P2PR P3PR P4PR],
        det_high: [f64; DETECTORS] [
            D01HR D02HR D03HR D04HR D05HR D06HR D07HR D08HR D09HR D10HR D11HR D12HR D13HR D14HR D15HR
            D16HR D17HR D18HR D19HR D20HR D21HR D22HR D23HR D24HR D25HR D26HR D27HR D28HR D29HR D30HR
            D31HR D32HR D33HR D34HR D35HR D36HR D37HR D38HR D39HR D40HR D41HR D42HR D43HR D44HR D45HR
            D46HR D47HR D48HR D49HR D50HR D51HR D52HR D53HR D54HR D55HR D56HR D57HR D58HR D59HR D60HR
            D61HR D62HR D63HR D64HR D65HR D66HR D67HR D68HR D69HR D70HR
        ],
        det_low: [f64; DETECTORS] [
            D01LR D02LR D03LR D04LR D05LR D06LR D07LR D08LR D09LR D10LR D11LR D12LR D13LR D14LR D15LR
            D16LR D17LR D18LR D19LR D20LR D21LR D22LR D23LR D24LR D25LR D26LR D27LR D28LR D29LR D30LR
            D31LR D32LR D33LR D34LR D35LR D36LR D37LR D38LR D39LR D40LR D41LR D42LR D43LR D44LR D45LR
            D46LR D47LR D48LR D49LR D50LR D51LR D52LR D53LR D54LR D55LR D56LR D57LR D58LR D59LR D60LR
            D61LR D62LR D63LR D64LR D65LR D66LR D67LR D68LR D69LR D70LR
        ],
        results: [Array; DETECTORS] [
            D01DA D02DA D03DA D04DA D05DA D06DA D07DA D08DA D09DA D10DA D11DA D12DA D13DA D14DA D15DA
            D16DA D17DA D18DA D19DA D20DA D21DA D22DA D23DA D24DA D25DA D26DA D27DA D28DA D29DA D30DA
            D31DA D32DA D33DA D34DA D35DA D36DA D37DA D38DA D39DA D40DA D41DA D42DA D43DA D44DA D45DA
            D46DA D47DA D48DA D49DA D50DA D51DA D52DA D53DA D54DA D55DA D56DA D57DA D58DA D59DA D60DA
            D61DA D62DA D63DA D64DA D65DA D66DA D67DA D68DA D69DA D70DA
        ],
        results_now: [Array; DETECTORS] [
            D01CA D02CA D03CA D04CA D05CA D06CA D07CA D08CA D09CA D10CA D11CA D12CA D13CA D14CA D15CA
            D16CA D17CA D18CA D19CA D20CA D21CA D22CA D23CA D24CA D25CA D26CA D27CA D28CA D29CA D30CA
            D31CA D32CA D33CA D34CA D35CA D36CA D37CA D38CA D39CA D40CA D41CA D42CA D43CA D44CA D45CA
            D46CA D47CA D48CA D49CA D50CA D51CA D52CA D53CA D54CA D55CA D56CA D57CA D58CA D59CA D60CA
            D61CA D62CA D63CA D64CA D65CA D66CA D67CA D68CA D69CA D70CA
        ],
        value: [f32; DETECTORS] [
            D01CV D02CV D03CV D04CV D05CV D06CV D07CV D08CV D09CV D10CV D11CV D12CV D13CV D14CV D15CV
            D16CV D17CV D18CV D19CV D20CV D21CV D22CV D23CV D24CV D25CV D26CV D27CV D28CV D29CV D30CV
            D31CV D32CV D33CV D34CV D35CV D36CV D37CV D38CV D39CV D40CV D41CV D42CV D43CV D44CV D45CV
            D46CV D47CV D48CV D49CV D50CV D51CV D52CV D53CV D54CV D55CV D56CV D57CV D58CV D59CV D60CV
            D61CV D62CV D63CV D64CV D65CV D66CV D67CV D68CV D69CV D70CV
        ],
        value_posted: [f32; DETECTORS] [
            D01LV D02LV D03LV D04LV D05LV D06LV D07LV D08LV D09LV D10LV D11LV D12LV D13LV D14LV D15LV
            D16LV D17LV D18LV D19LV D20LV D21LV D22LV D23LV D24LV D25LV D26LV D27LV D28LV D29LV D30LV
            D31LV D32LV D33LV D34LV D35LV D36LV D37LV D38LV D39LV D40LV D41LV D42LV D43LV D44LV D45LV
            D46LV D47LV D48LV D49LV D50LV D51LV D52LV D53LV D54LV D55LV D56LV D57LV D58LV D59LV D60LV
            D61LV D62LV D63LV D64LV D65LV D66LV D67LV D68LV D69LV D70LV
        ],
        elements: [u32; DETECTORS] [
            D01NE D02NE D03NE D04NE D05NE D06NE D07NE D08NE D09NE D10NE D11NE D12NE D13NE D14NE D15NE
            D16NE D17NE D18NE D19NE D20NE D21NE D22NE D23NE D24NE D25NE D26NE D27NE D28NE D29NE D30NE
            D31NE D32NE D33NE D34NE D35NE D36NE D37NE D38NE D39NE D40NE D41NE D42NE D43NE D44NE D45NE
            D46NE D47NE D48NE D49NE D50NE D51NE D52NE D53NE D54NE D55NE D56NE D57NE D58NE D59NE D60NE
            D61NE D62NE D63NE D64NE D65NE D66NE D67NE D68NE D69NE D70NE
        ],
        det_egu: [Text<16>; DETECTORS] [
            D01EU D02EU D03EU D04EU D05EU D06EU D07EU D08EU D09EU D10EU D11EU D12EU D13EU D14EU D15EU
            D16EU D17EU D18EU D19EU D20EU D21EU D22EU D23EU D24EU D25EU D26EU D27EU D28EU D29EU D30EU
            D31EU D32EU D33EU D34EU D35EU D36EU D37EU D38EU D39EU D40EU D41EU D42EU D43EU D44EU D45EU
            D46EU D47EU D48EU D49EU D50EU D51EU D52EU D53EU D54EU D55EU D56EU D57EU D58EU D59EU D60EU
            D61EU D62EU D63EU D64EU D65EU D66EU D67EU D68EU D69EU D70EU
        ],
        det_prec: [i16; DETECTORS] [
            D01PR D02PR D03PR D04PR D05PR D06PR D07PR D08PR D09PR D10PR D11PR D12PR D13PR D14PR D15PR
            D16PR D17PR D18PR D19PR D20PR D21PR D22PR D23PR D24PR D25PR D26PR D27PR D28PR D29PR D30PR
            D31PR D32PR D33PR D34PR D35PR D36PR D37PR D38PR D39PR D40PR D41PR D42PR D43PR D44PR D45PR
            D46PR D47PR D48PR D49PR D50PR D51PR D52PR D53PR D54PR D55PR D56PR D57PR D58PR D59PR D60PR
            D61PR D62PR D63PR D64PR D65PR D66PR D67PR D68PR D69PR D70PR
        ],
        commands: [f32; 7] [T1CD T2CD T3CD T4CD A1CD BSCD ASCD],
        paus: u16 [PAUS],
        lpau: u16 [LPAU],
        pdly: f32 [PDLY],
        ddly: f32 [DDLY],
        rdly: f32 [RDLY],
        faze: u16 [FAZE],
        acqm: u16 [ACQM],
        acqt: u16 [ACQT],
        dstate: u16 [DSTATE],
        copyto: i32 [COPYTO],
    } private {
        links: Vec<Link>,
        // Process variables whose completion the scan waits for, one bit each.
        pending: u128,
        // Detectors of the present scan, one bit each.
        acquired: u128,
        delay: Delay,
        // The delay after a pause (RDLY) is not over.
        resuming: bool,
        started: MonoNs,
        // Times of the last posts of scalars and of arrays.
        scalars_posted: Option<MonoNs>,
        arrays_posted: MonoNs,
        // Positioners in fly mode were sent to their ends.
        flying: bool,
        // The end of the scan has begun.
        ending: bool,
        aborted: bool,
        failed: bool,
        // AWAIT was set by a client.
        claimed: bool,
        // Points and ACQM of the previous scan.
        last_points: i32,
        last_mode: u16,
        // Values in the tables of positions.
        table_points: [usize; POSITIONERS],
        // Parameters of positioners in table mode, and the freeze flags while FFO overrides them.
        saved: [Option<[f64; 5]>; POSITIONERS],
        saved_flags: Option<Box<[u16; 5 * POSITIONERS + 1]>>,
    }
}

/// State of a settling delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Delay {
    #[default]
    None,
    Running,
    Over,
}

/// FAZE: phase of the scan.
mod faze {
    pub(super) const IDLE: u16 = 0;
    pub(super) const INIT: u16 = 1;
    pub(super) const BEFORE: u16 = 2;
    pub(super) const BEFORE_WAIT: u16 = 3;
    pub(super) const MOVE: u16 = 4;
    pub(super) const MOVE_WAIT: u16 = 5;
    pub(super) const TRIGGER: u16 = 6;
    pub(super) const TRIGGER_WAIT: u16 = 7;
    pub(super) const RETRACE: u16 = 8;
    pub(super) const RETRACE_WAIT: u16 = 9;
    pub(super) const AFTER: u16 = 10;
    pub(super) const AFTER_WAIT: u16 = 11;
    pub(super) const DONE: u16 = 12;
    pub(super) const PENDING: u16 = 13;
    pub(super) const PREVIEW: u16 = 14;
    pub(super) const RECORD: u16 = 15;
}

/// DSTATE: state of the arrays.
mod dstate {
    pub(super) const UNPACKED: u16 = 0;
    pub(super) const TRIGGER: u16 = 1;
    pub(super) const TRIGGER_WAIT: u16 = 2;
    pub(super) const GET_WAIT: u16 = 3;
    pub(super) const SAVE_WAIT: u16 = 5;
    pub(super) const PACKED: u16 = 6;
    pub(super) const POSTED: u16 = 7;
}

/// PnNV: state of a name.
mod nv {
    pub(super) const OK: u16 = 0;
    pub(super) const NONE: u16 = 1;
    pub(super) const BAD: u16 = 6;
}

/// PnSM: how the positions of a positioner are given.
mod mode {
    pub(super) const TABLE: u16 = 1;
    pub(super) const FLY: u16 = 2;
}

/// Callbacks: a settling delay is over; the scan goes on; the delay after a pause is over.
const SETTLED: u8 = 0;
const GO: u8 = 1;
const RESUME: u8 = 2;

/// Digits after the point of fields that are not of a positioner or detector.
const DIGITS: i16 = 3;

/// Events of most posts.
const ALL: EventMask = EventMask(EventMask::VALUE.0 | EventMask::LOG.0);

impl RecordType for SScan {
    /// Start: connects the links, makes the parameters consistent.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.links = vec![Link::EMPTY; PVS];
        r.results = [const { Array::F32(Vec::new()) }; DETECTORS];
        r.results_now = [const { Array::F32(Vec::new()) }; DETECTORS];
        r.mpts = r.mpts.clamp(1, MAX_POINTS);
        r.npts = r.npts.clamp(1, r.mpts);
        let size = r.mpts as usize;
        for array in r.table.iter_mut().chain(&mut r.positions).chain(&mut r.positions_now) {
            *array = Array::zeros(FieldType::F64, size);
        }
        for place in 0..PVS {
            if let Err(what) = connect(db, rec, body, place) {
                db.notice(format!("{}: {what}", db.records.name(rec)));
            }
        }
        control::points_changed(db, rec, body, None);
    }

    /// Starts, continues or ends a scan. The forward link follows at its end.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        let ended = phases::run(db, rec, body);
        let r = &mut db.records[body];
        r.pxsc = r.xsc as u8;
        let mask = db.reset_alarms(rec);
        if !mask.is_empty() {
            db.post_value(rec, mask);
        }
        if ended { ProcessResult::Done } else { ProcessResult::NoForward }
    }

    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return db.records[body].accepts(field);
        }
        if let Some(place) = nth(field, Self::P1PV, PVS) {
            data::clear(db, body, place);
            return connect(db, rec, body, place).map_err(|what| PutError::BadLink { what });
        }
        control::written(db, rec, body, field)
    }

    fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, number: u8) {
        let r = &mut db.records[body];
        if number == SETTLED && r.delay == Delay::Running {
            r.delay = Delay::Over;
        }
        r.resuming &= number != RESUME;
        db.run(rec);
    }

    /// A process variable has completed.
    fn link_written(db: &mut Db, rec: RecId, body: Body<Self>) {
        phases::completed(db, rec, body);
        db.run(rec);
    }

    /// Updates the states of the names, and continues a scan that waits for them.
    fn connection_changed(db: &mut Db, rec: RecId, body: Body<Self>) {
        (0..PVS).for_each(|place| look_at_name(db, rec, body, place));
        if db.records[body].xsc != 0 {
            db.scan_once(rec);
        }
    }

    fn removed(db: &mut Db, _: RecId, body: Body<Self>) {
        for link in std::mem::take(&mut db.records[body].links) {
            db.release_link(link.brief());
        }
    }

    /// A put callback waits for the end of the scan.
    fn holds_puts(&self) -> bool {
        self.busy != 0 || self.faze == faze::PENDING
    }

    fn shape(&self, field: u16) -> (u32, FieldType) {
        let is_detector = [Self::D01DA, Self::D01CA].into_iter().any(|first| nth(field, first, DETECTORS).is_some());
        (self.mpts.max(1) as u32, if is_detector { FieldType::F32 } else { FieldType::F64 })
    }

    fn counts_elements(field: u16) -> bool {
        field == Self::MPTS
    }

    /// Stores a table of positions. Its number of values must be at least NPTS when the scan starts.
    fn store_array(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, values: Array) -> Result<(), PutError> {
        let (Some(positioner), Array::F64(mut values)) = (nth(field, Self::P1PA, POSITIONERS), values) else {
            return Err(PutError::NoModify);
        };
        let r = &mut db.records[body];
        r.table_points[positioner] = values.len();
        values.resize(r.mpts as usize, 0.0);
        r.table[positioner] = Array::F64(values);
        data::check_table(db, rec, body, positioner);
        Ok(())
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let positioner = Self::POSITIONER_FIELDS.iter().find_map(|first| nth(field, *first, POSITIONERS));
        let detector = Self::DETECTOR_FIELDS.iter().find_map(|first| nth(field, *first, DETECTORS));
        let of = match (positioner, detector) {
            (Some(at), _) => (&self.egu[at], self.prec[at], self.low[at], self.high[at]),
            (_, Some(at)) => (&self.det_egu[at], self.det_prec[at], self.det_low[at], self.det_high[at]),
            _ => {
                let digits = if field == Self::ATIME { 1 } else { DIGITS };
                let is_real = matches!(kind, Some(FieldType::F32 | FieldType::F64));
                return Properties::BOUNDED.digits(if is_real { digits } else { 0 }, true);
            }
        };
        let (egu, prec, low, high) = of;
        let units = Str40::new(egu.bytes());
        Properties { units, ..Properties::BOUNDED.digits(prec.clamp(0, 10), true) }.within(low, high)
    }
}

/// Highest MPTS.
const MAX_POINTS: i32 = 10_000_000;

impl SScan {
    /// First fields of the rows with units, precision and range of a positioner, and of a detector.
    const POSITIONER_FIELDS: &'static [u16] = &[
        Self::P1PP,
        Self::P1CV,
        Self::P1DV,
        Self::P1LV,
        Self::P1SP,
        Self::P1SI,
        Self::P1EP,
        Self::P1CP,
        Self::P1WD,
        Self::R1CV,
        Self::R1LV,
        Self::R1DL,
        Self::P1HR,
        Self::P1LR,
        Self::P1PA,
        Self::P1RA,
        Self::P1CA,
    ];
    const DETECTOR_FIELDS: &'static [u16] =
        &[Self::D01HR, Self::D01LR, Self::D01DA, Self::D01CA, Self::D01CV, Self::D01LV];

    /// The link of a name.
    fn link(&self, place: usize) -> ResolvedLink {
        self.links.get(place).unwrap_or(&Link::EMPTY).brief()
    }

    /// Whether the process variable of a name takes part in scans.
    fn is_used(&self, place: usize) -> bool {
        self.valid[place] == nv::OK
    }

    /// Whether a readback is the time since the start of the scan.
    fn is_time(&self, positioner: usize) -> bool {
        self.names[READBACK + positioner].bytes().eq_ignore_ascii_case(b"time")
    }

    /// Whether a positioner moves while data are acquired.
    fn flies(&self, positioner: usize) -> bool {
        self.mode[positioner] == mode::FLY || self.acqt != 0
    }
}

/// Connects the link of a name.
fn connect(db: &mut Db, rec: RecId, body: Body<SScan>, place: usize) -> Result<(), String> {
    let name = String::from_utf8_lossy(db.records[body].names[place].bytes()).trim().to_owned();
    let is_time = (READBACK..DETECTOR).contains(&place) && db.records[body].is_time(place - READBACK);
    let (link, wrong) = match parse(&name, LinkField::In) {
        Ok(LinkText::Pv(name, _)) if !is_time => {
            // A positioner's value is displayed as it changes.
            let over = if place < POSITIONERS { CA | CP } else { CA };
            (db.link_over_channel(rec, name, place < TRIGGER, over), None)
        }
        Ok(LinkText::Pv(..) | LinkText::Constant("")) => (Link::EMPTY, None),
        Ok(_) => (Link::EMPTY, Some(format!("found \"{name}\", expected the name of a process variable"))),
        Err(what) => (Link::EMPTY, Some(what)),
    };
    let Some(old) = db.records[body].links.get_mut(place) else { return Ok(()) };
    let old = std::mem::replace(old, link).brief();
    db.records[body].pending &= !(1 << place);
    db.release_link(old);
    look_at_name(db, rec, body, place);
    wrong.map_or(Ok(()), Err)
}

/// Updates the state of a name. A process variable that has connected gives its units, precision and limits.
fn look_at_name(db: &mut Db, rec: RecId, body: Body<SScan>, place: usize) {
    let r = &db.records[body];
    let link = r.link(place);
    let is_time = (READBACK..DETECTOR).contains(&place) && r.is_time(place - READBACK);
    let state = match () {
        () if link.kind == LinkKind::Remote && db.is_connected(link) => nv::OK,
        () if is_time || r.names[place].bytes().trim_ascii().is_empty() => nv::NONE,
        () => nv::BAD,
    };
    if changed(&mut db.records[body].valid[place], state) {
        if state == nv::OK {
            data::take_properties(db, rec, body, place);
        }
        db.post_named(rec, name_of::<SScan>(SScan::P1NV, place), ALL);
    }
}

/// Posts a field.
fn post(db: &mut Db, rec: RecId, field: u16) {
    db.post_named(rec, SScan::NAMES[usize::from(field)], ALL);
}

/// Sets SMSG.
fn message(db: &mut Db, rec: RecId, body: Body<SScan>, text: &str) {
    if db.records[body].smsg.bytes() != text.as_bytes() {
        db.records[body].smsg.set(text.as_bytes());
        post(db, rec, SScan::SMSG);
    }
}

/// Sets ALRT.
fn alert(db: &mut Db, rec: RecId, body: Body<SScan>, on: bool) {
    if changed(&mut db.records[body].alrt, on.into()) {
        post(db, rec, SScan::ALRT);
    }
}

/// Value of a link. A process variable of this database is read directly, since its monitor may be behind.
fn read(db: &mut Db, link: ResolvedLink) -> Option<f64> {
    match db.links.remotes.source(link.target).map(|source| (source.record, source.field)) {
        _ if link.kind != LinkKind::Remote || !db.is_connected(link) => None,
        Some((record, field)) => db.read_number(record, field),
        None => conv::number(db.links.remotes.value(link.target)?.get(0)?),
    }
}

#[cfg(test)]
mod tests;
