//! scaler record (synApps): up to 64 counters that start together and stop when a preset is reached.
//!
//! Channel 1 counts a clock of FREQ, so that S1 is a time. CNT starts and stops a count of the user. With CONT `AutoCount`, counts
//! in the background fill the time between, and leave CNT alone. While it counts, the record is not active (PACT), but its
//! forward link and put callbacks wait until the count has ended.

mod counters;

use super::inputs::{name_of, nth};
use crate::model::link::Link;
use crate::model::slot::{Inline, Text, record};
use crate::rec::{Body, Properties, RecId, RecordType, changed, no_device};
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Scalar, Str40};
use counters::{CHANNELS, Counters};

record! {
    /// Fields of a scaler record.
    Scaler {
        vers: f32 [VERS],
        val: f64 [VAL],
        freq: f64 [FREQ],
        cnt: u16 [CNT],
        pcnt: u16 [PCNT],
        ss: i16 [SS],
        us: i16 [US],
        cont: u16 [CONT],
        out: Link [OUT],
        rate: f32 [RATE],
        rat1: f32 [RAT1],
        dly: f32 [DLY],
        dly1: f32 [DLY1],
        nch: i16 [NCH],
        directions: [u16; CHANNELS] [
            D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 D12 D13 D14 D15 D16 D17 D18 D19 D20 D21 D22 D23 D24 D25 D26 D27 D28 D29
            D30 D31 D32 D33 D34 D35 D36 D37 D38 D39 D40 D41 D42 D43 D44 D45 D46 D47 D48 D49 D50 D51 D52 D53 D54 D55
            D56 D57 D58 D59 D60 D61 D62 D63 D64
        ],
        gates: [u16; CHANNELS] [
            G1 G2 G3 G4 G5 G6 G7 G8 G9 G10 G11 G12 G13 G14 G15 G16 G17 G18 G19 G20 G21 G22 G23 G24 G25 G26 G27 G28 G29
            G30 G31 G32 G33 G34 G35 G36 G37 G38 G39 G40 G41 G42 G43 G44 G45 G46 G47 G48 G49 G50 G51 G52 G53 G54 G55
            G56 G57 G58 G59 G60 G61 G62 G63 G64
        ],
        tp: f64 [TP],
        tp1: f64 [TP1],
        presets: [u32; CHANNELS] [
            PR1 PR2 PR3 PR4 PR5 PR6 PR7 PR8 PR9 PR10 PR11 PR12 PR13 PR14 PR15 PR16 PR17 PR18 PR19 PR20 PR21 PR22 PR23
            PR24 PR25 PR26 PR27 PR28 PR29 PR30 PR31 PR32 PR33 PR34 PR35 PR36 PR37 PR38 PR39 PR40 PR41 PR42 PR43 PR44
            PR45 PR46 PR47 PR48 PR49 PR50 PR51 PR52 PR53 PR54 PR55 PR56 PR57 PR58 PR59 PR60 PR61 PR62 PR63 PR64
        ],
        t: f64 [T],
        counts: [u32; CHANNELS] [
            S1 S2 S3 S4 S5 S6 S7 S8 S9 S10 S11 S12 S13 S14 S15 S16 S17 S18 S19 S20 S21 S22 S23 S24 S25 S26 S27 S28 S29
            S30 S31 S32 S33 S34 S35 S36 S37 S38 S39 S40 S41 S42 S43 S44 S45 S46 S47 S48 S49 S50 S51 S52 S53 S54 S55
            S56 S57 S58 S59 S60 S61 S62 S63 S64
        ],
        names: [Text<16>; CHANNELS] [
            NM1 NM2 NM3 NM4 NM5 NM6 NM7 NM8 NM9 NM10 NM11 NM12 NM13 NM14 NM15 NM16 NM17 NM18 NM19 NM20 NM21 NM22 NM23
            NM24 NM25 NM26 NM27 NM28 NM29 NM30 NM31 NM32 NM33 NM34 NM35 NM36 NM37 NM38 NM39 NM40 NM41 NM42 NM43 NM44
            NM45 NM46 NM47 NM48 NM49 NM50 NM51 NM52 NM53 NM54 NM55 NM56 NM57 NM58 NM59 NM60 NM61 NM62 NM63 NM64
        ],
        egu: Inline<16> [EGU],
        prec: i16 [PREC],
        cout: Link [COUT],
        coutp: Link [COUTP],
    } private {
        counters: Counters,
        // The delay before a background count is over.
        due: bool,
    }
}

/// SS: state of the counters.
mod ss {
    pub(super) const IDLE: i16 = 0;
    /// A background count follows after a delay.
    pub(super) const WAITING: i16 = 1;
    pub(super) const COUNTING: i16 = 2;
}

/// US: state of the user's count.
mod us {
    pub(super) const IDLE: i16 = 0;
    /// DLY is running.
    pub(super) const WAITING: i16 = 1;
    pub(super) const REQUESTED: i16 = 2;
    pub(super) const COUNTING: i16 = 3;
}

/// Callbacks: the counters are displayed, DLY is over, the next background count is due, a preset is reached.
const DISPLAY: u8 = 0;
const DELAY: u8 = 1;
const BACKGROUND: u8 = 2;
const PRESET: u8 = 3;

/// Seconds for which the result of a user's count is held before a background count starts.
const HOLD: f64 = 10.0;
/// Seconds until a record that could not process reads its counters again.
const AGAIN: f64 = 1.0;
/// Highest rate of the display, and the rate below which nothing is displayed, in Hz.
const MAX_RATE: f32 = 60.0;
const MIN_RATE: f32 = 0.1;
/// Preset of a channel whose gate is opened without one.
const DEFAULT_PRESET: u32 = 1_000;
/// Shortest TP1 in seconds that replaces the user's presets.
const MIN_TP1: f64 = 0.001;
/// Shortest time in seconds after which a count ends, so that background counts without a time do not block other records.
const SHORTEST: f64 = 0.001;

impl RecordType for Scaler {
    /// Start: finds the counters, and makes TP and PR1 agree.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        if db.device(rec) == Device::Missing {
            return;
        }
        match Counters::new(&db.address(rec)) {
            Ok(counters) => db.records[body].counters = counters,
            Err(what) => {
                let name = db.records.name(rec).to_owned();
                db.notice(format!("{name}.OUT: {what}"));
            }
        }
        let r = &mut db.records[body];
        r.nch = r.counters.channels() as i16;
        r.val = 0.0;
        r.clamp_rates();
        if r.freq == 0.0 {
            r.freq = 1e7;
        }
        if r.tp == 0.0 && r.presets[0] == 0 {
            r.tp = 1.0;
        }
        if r.tp == 0.0 {
            r.tp = f64::from(r.presets[0]) / r.freq;
        } else {
            r.presets[0] = ticks(r.tp * r.freq);
        }
    }

    /// Starts and ends counts, displays the counters. The forward link follows when no count is in progress.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        if db.device(rec) == Device::Missing {
            return no_device(db, rec);
        }
        db.records[rec].udf = 0;
        let now = db.time.now.mono;
        let was_counting = db.records[body].ss == ss::COUNTING;
        let mut ended = false;
        if was_counting && db.records[body].counters.is_over(now) {
            stop(db, rec, body);
            let r = &mut db.records[body];
            // A background count leaves CNT alone.
            if r.us == us::COUNTING {
                r.cnt = 0;
                db.post_named(rec, "CNT", EventMask::VALUE);
            }
        }
        let r = &mut db.records[body];
        let started = r.cnt != 0 && r.us == us::REQUESTED;
        if r.cnt != 0 && r.pcnt == 0 {
            if r.ss != ss::IDLE {
                stop(db, rec, body);
            }
            if started {
                start(db, rec, body);
            }
        } else if r.cnt == 0 && r.pcnt != 0 {
            stop(db, rec, body);
            let r = &mut db.records[body];
            (r.us, r.pcnt, ended) = (us::IDLE, 0, true);
        }
        display(db, rec, body);
        if started || ended {
            let r = &db.records[body];
            let (value, links) = (Scalar::U16(r.cnt), [r.cout.brief(), r.coutp.brief()]);
            // A failed write raises the alarm itself.
            let _ = db.put_link(rec, links[0], value);
            if ended {
                let _ = db.put_link(rec, links[1], value);
            }
        }
        let r = &db.records[body];
        let is_over = r.ss == ss::IDLE && r.us == us::IDLE && r.pcnt == 0;
        if r.ss == ss::IDLE {
            finish(db, rec, body, is_over && was_counting);
        }
        background(db, rec, body, ended);
        if is_over { ProcessResult::Done } else { ProcessResult::NoForward }
    }

    /// Makes presets, gates and times agree, and handles CNT and CONT.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        let r = &mut db.records[body];
        match field {
            Self::CNT => requested(db, rec, body),
            Self::CONT => process_if_scanned(db, rec),
            Self::TP => {
                r.presets[0] = ticks(r.tp * r.freq);
                db.post_named(rec, "PR1", EventMask::VALUE);
                open_gate(db, rec, body, 0);
            }
            Self::PR1 => {
                r.tp = f64::from(r.presets[0]) / r.freq;
                db.post_named(rec, "TP", EventMask::VALUE);
            }
            Self::RATE | Self::RAT1 => r.clamp_rates(),
            _ => {}
        }
        let r = &mut db.records[body];
        if let Some(channel) = nth(field, Self::PR1, CHANNELS).filter(|channel| r.presets[*channel] > 0) {
            open_gate(db, rec, body, channel);
        } else if let Some(channel) = nth(field, Self::G1, CHANNELS)
            && r.gates[channel] != 0
            && r.presets[channel] == 0
        {
            r.presets[channel] = DEFAULT_PRESET;
            db.post_named(rec, name_of::<Self>(Self::PR1, channel), EventMask::VALUE);
        }
        Ok(())
    }

    fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, number: u8) {
        let r = &mut db.records[body];
        match number {
            DISPLAY => {
                if r.ss == ss::COUNTING {
                    display(db, rec, body);
                }
                return;
            }
            DELAY if r.cnt != 0 && r.us != us::COUNTING => r.us = us::REQUESTED,
            BACKGROUND => r.due = true,
            _ => {}
        }
        db.run(rec);
        // A disabled record was not processed. It tries again later.
        let now = db.time.now.mono;
        let r = &mut db.records[body];
        let missed = match number {
            DELAY => r.us == us::REQUESTED,
            BACKGROUND => std::mem::take(&mut r.due),
            _ => r.ss == ss::COUNTING && r.counters.is_over(now),
        };
        if missed {
            db.call_back_after(rec, Callback::Own(number), AGAIN);
        }
    }

    /// A put callback waits for the end of the count.
    fn holds_puts(&self) -> bool {
        self.ss == ss::COUNTING || self.us != us::IDLE
    }

    fn properties(&self, _: u16, kind: Option<FieldType>) -> Properties {
        let units = if kind == Some(FieldType::F64) { Str40::new(self.egu.bytes()) } else { Str40::EMPTY };
        Properties { units, ..Properties::NONE.digits(self.prec, true) }
    }
}

impl Scaler {
    fn clamp_rates(&mut self) {
        for rate in [&mut self.rate, &mut self.rat1] {
            *rate = rate.clamp(0.0, MAX_RATE);
        }
    }
}

/// A number of clock ticks or counts.
fn ticks(number: f64) -> u32 {
    // The cast saturates.
    number.round() as u32
}

fn process_if_scanned(db: &mut Db, rec: RecId) {
    if db.records[rec].scan != 0 {
        db.scan_once(rec);
    }
}

/// The channel becomes a preset counter.
fn open_gate(db: &mut Db, rec: RecId, body: Body<Scaler>, channel: usize) {
    let r = &mut db.records[body];
    (r.gates[channel], r.directions[channel]) = (1, 1);
    db.post_named(rec, name_of::<Scaler>(Scaler::D1, channel), EventMask::VALUE);
    db.post_named(rec, name_of::<Scaler>(Scaler::G1, channel), EventMask::VALUE);
}

/// Called after a write to CNT: announces the count, and starts it after DLY. A second start is ignored.
fn requested(db: &mut Db, rec: RecId, body: Body<Scaler>) {
    let r = &db.records[body];
    if r.cnt != 0 && r.us != us::IDLE {
        return;
    }
    let (link, value) = (r.coutp.brief(), Scalar::U16(r.cnt));
    // A failed write raises the alarm itself.
    let _ = db.put_link(rec, link, value);
    let r = &mut db.records[body];
    if r.cnt == 0 {
        if r.us != us::COUNTING {
            r.us = us::IDLE;
            db.cancel_delay(rec, Callback::Own(DELAY));
        }
    } else if r.dly > 0.0 {
        r.us = us::WAITING;
        let delay = r.dly.into();
        db.call_back_after(rec, Callback::Own(DELAY), delay);
        return;
    } else {
        r.us = us::REQUESTED;
    }
    process_if_scanned(db, rec);
}

/// Starts the user's count.
fn start(db: &mut Db, rec: RecId, body: Body<Scaler>) {
    let r = &mut db.records[body];
    let preset = ticks(r.tp * r.freq);
    let moved = changed(&mut r.presets[0], preset);
    (r.us, r.pcnt) = (us::COUNTING, r.cnt);
    if moved {
        r.tp = f64::from(preset) / r.freq;
        db.post_named(rec, "PR1", EventMask::VALUE);
        db.post_named(rec, "TP", EventMask::VALUE);
    }
    arm(db, rec, body, None);
}

/// Starts the counters, with the user's presets or for a time in seconds.
fn arm(db: &mut Db, rec: RecId, body: Body<Scaler>, seconds: Option<f64>) {
    let now = db.time.now.mono;
    let r = &mut db.records[body];
    let (freq, gates, presets) = (r.freq, r.gates, r.presets);
    match seconds {
        Some(seconds) => r.counters.start(now, freq, |channel| (channel == 0).then(|| ticks(seconds * freq))),
        None => {
            r.directions = gates;
            r.counters.start(now, freq, |channel| (gates[channel] != 0).then_some(presets[channel]));
        }
    }
    r.ss = ss::COUNTING;
    let left = r.counters.time_left(now);
    db.cancel_delay(rec, Callback::Own(BACKGROUND));
    if left.is_finite() {
        db.call_back_after(rec, Callback::Own(PRESET), left.max(SHORTEST));
    }
}

/// Stops the counters.
fn stop(db: &mut Db, rec: RecId, body: Body<Scaler>) {
    let now = db.time.now.mono;
    let r = &mut db.records[body];
    r.counters.stop(now);
    r.ss = ss::IDLE;
    for callback in [DISPLAY, BACKGROUND, PRESET] {
        db.cancel_delay(rec, Callback::Own(callback));
    }
}

/// Reads the counters and posts those that changed. Requests the next display.
fn display(db: &mut Db, rec: RecId, body: Body<Scaler>) {
    let now = db.time.now.mono;
    for channel in 0..db.records[body].counters.channels() {
        let r = &mut db.records[body];
        let count = if r.us == us::WAITING { 0 } else { r.counters.read(channel, now) };
        if changed(&mut r.counts[channel], count) {
            db.post_named(rec, name_of::<Scaler>(Scaler::S1, channel), EventMask::VALUE);
        }
    }
    let r = &mut db.records[body];
    let seconds = if r.freq > 0.0 { f64::from(r.counts[0]) / r.freq } else { 0.0 };
    let moved = changed(&mut r.t, seconds);
    let rate = if r.us == us::COUNTING { r.rate } else { r.rat1 };
    let next = (r.ss == ss::COUNTING && rate > MIN_RATE).then(|| 1.0 / f64::from(rate));
    if moved {
        db.post_named(rec, "T", EventMask::VALUE);
    }
    db.cancel_delay(rec, Callback::Own(DISPLAY));
    if let Some(delay) = next {
        db.call_back_after(rec, Callback::Own(DISPLAY), delay);
    }
}

/// Stamps the record and posts the counters, after a count VAL as the last.
fn finish(db: &mut Db, rec: RecId, body: Body<Scaler>, has_counted: bool) {
    db.stamp_now(rec);
    let alarm = db.reset_alarms(rec);
    for channel in 0..db.records[body].counters.channels() {
        db.post_named(rec, name_of::<Scaler>(Scaler::S1, channel), EventMask::LOG);
    }
    let r = &mut db.records[body];
    let mask = if has_counted { alarm | EventMask::VALUE } else { alarm };
    if has_counted {
        r.val = r.t;
    }
    if !mask.is_empty() {
        db.post_value(rec, mask);
    }
}

/// Starts a background count, or requests it after its delay. `held`: the result of a user's count is held.
fn background(db: &mut Db, rec: RecId, body: Body<Scaler>, held: bool) {
    let r = &mut db.records[body];
    if r.us != us::IDLE || r.ss == ss::COUNTING {
        return;
    }
    if r.cont == 0 {
        r.ss = ss::IDLE;
        db.cancel_delay(rec, Callback::Own(BACKGROUND));
        return;
    }
    let delay = f64::from(r.dly1).max(if held { HOLD } else { 0.0 });
    if delay > 0.0 && !std::mem::take(&mut r.due) {
        if r.ss != ss::WAITING {
            r.ss = ss::WAITING;
            db.call_back_after(rec, Callback::Own(BACKGROUND), delay);
        }
        return;
    }
    let seconds = (r.tp1 >= MIN_TP1).then_some(r.tp1);
    arm(db, rec, body, seconds);
    display(db, rec, body);
}

#[cfg(test)]
mod tests;
