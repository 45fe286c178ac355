//! sseq record (synApps): up to ten steps, each with a delay, a number or text, and a target. A step can wait until earlier
//! ones have completed.

use super::inputs::{name_of, nth};
use super::synapps::{Takes, get_characters, post_states, put, takes};
use crate::model::link::{Link, LinkKind};
use crate::model::slot::record;
use crate::rec::{Body, Properties, RecId, RecordType, changed};
use crate::run::callback::Callback;
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{EventMask, FieldType, Status, Str40};

record! {
    /// Fields of an sseq record.
    SSeq {
        val: i32 [VAL],
        selm: u16 [SELM],
        seln: u16 [SELN],
        sell: Link [SELL],
        prec: i16 [PREC],
        dly: [f64; 10] [DLY1 DLY2 DLY3 DLY4 DLY5 DLY6 DLY7 DLY8 DLY9 DLYA],
        dol: [Link; 10] [DOL1 DOL2 DOL3 DOL4 DOL5 DOL6 DOL7 DOL8 DOL9 DOLA],
        number: [f64; 10] [DO1 DO2 DO3 DO4 DO5 DO6 DO7 DO8 DO9 DOA],
        lnk: [Link; 10] [LNK1 LNK2 LNK3 LNK4 LNK5 LNK6 LNK7 LNK8 LNK9 LNKA],
        text: [Str40; 10] [STR1 STR2 STR3 STR4 STR5 STR6 STR7 STR8 STR9 STRA],
        dol_type: [i16; 10] [DT1 DT2 DT3 DT4 DT5 DT6 DT7 DT8 DT9 DTA],
        lnk_type: [i16; 10] [LT1 LT2 LT3 LT4 LT5 LT6 LT7 LT8 LT9 LTA],
        wait: [u16; 10] [WAIT1 WAIT2 WAIT3 WAIT4 WAIT5 WAIT6 WAIT7 WAIT8 WAIT9 WAITA],
        cannot_wait: [i16; 10] [WERR1 WERR2 WERR3 WERR4 WERR5 WERR6 WERR7 WERR8 WERR9 WERRA],
        waiting: [i16; 10] [WTG1 WTG2 WTG3 WTG4 WTG5 WTG6 WTG7 WTG8 WTG9 WTGA],
        index: [i16; 10] [IX1 IX2 IX3 IX4 IX5 IX6 IX7 IX8 IX9 IXA],
        dol_state: [u16; 10] [DOL1V DOL2V DOL3V DOL4V DOL5V DOL6V DOL7V DOL8V DOL9V DOLAV],
        lnk_state: [u16; 10] [LNK1V LNK2V LNK3V LNK4V LNK5V LNK6V LNK7V LNK8V LNK9V LNKAV],
        abort: i16 [ABORT],
        aborting: i16 [ABORTING],
        busy: i16 [BUSY],
    } private {
        // Selected steps that are not done, one bit each.
        todo: u16,
        // The step after the delay is due at once or was requested.
        delayed: bool,
        // The next step waits for completion of earlier ones.
        held: bool,
        running: bool,
        over: bool,
    }
}

/// Number of steps.
const STEPS: usize = 10;
/// Callback that runs one step.
const STEP: u8 = 0;

impl RecordType for SSeq {
    /// Start: loads constants, makes numbers and texts agree, checks the links.
    fn init(db: &mut Db, rec: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.seln = r.sell.number().unwrap_or(r.seln);
        for step in 0..STEPS {
            if r.dol[step].is_constant() {
                r.number[step] = r.dol[step].number().unwrap_or(r.number[step]);
                r.text[step] = r.dol[step].short_text().filter(|text| !text.bytes().is_empty()).unwrap_or(r.text[step]);
            }
            if r.text[step].bytes().is_empty() {
                r.text[step] = r.written(step);
            } else {
                r.number[step] = number_of(r.text[step]);
            }
        }
        post_links(db, rec, body);
    }

    /// Selects the steps and starts the first one. Callbacks run the rest.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, resumed: bool) -> ProcessResult {
        if resumed {
            return completed(db, rec, body);
        }
        if db.records[body].busy == 0 {
            db.records[body].busy = 1;
            db.post_named(rec, "BUSY", EventMask::VALUE);
        }
        let Some(selected) = select(db, rec, body) else { return finish(db, rec, body) };
        for step in 0..STEPS {
            if std::mem::take(&mut db.records[body].waiting[step]) != 0 {
                db.post_named(rec, name_of::<Self>(Self::WTG1, step), EventMask::VALUE);
            }
        }
        let r = &mut db.records[body];
        r.todo = (0..STEPS)
            .filter(|step| selected >> step & 1 != 0 && !(r.lnk[*step].is_constant() && r.dol[*step].is_constant()))
            .fold(0, |todo, step| todo | 1 << step);
        (r.running, r.over, r.held) = (true, false, false);
        if next(db, rec, body) { finish(db, rec, body) } else { ProcessResult::Pending }
    }

    /// Makes number and text of a step agree, and handles ABORT.
    fn special(db: &mut Db, rec: RecId, body: Body<Self>, field: u16, after: bool) -> Result<(), PutError> {
        if !after {
            return Ok(());
        }
        if let Some(step) = nth(field, Self::DO1, STEPS) {
            let text = db.records[body].written(step);
            set_text(db, rec, body, step, text, EventMask::VALUE);
        }
        if let Some(step) = nth(field, Self::STR1, STEPS) {
            let number = number_of(db.records[body].text[step]);
            set_number(db, rec, body, step, number, EventMask::VALUE);
        }
        if nth(field, Self::WAIT1, STEPS).is_some() {
            post_links(db, rec, body);
        }
        if field == Self::ABORT { abort(db, rec, body) } else { Ok(()) }
    }

    /// Called after a client wrote a link.
    fn link_put(db: &mut Db, rec: RecId, body: Body<Self>, _: u16) {
        post_links(db, rec, body);
    }

    fn connection_changed(db: &mut Db, rec: RecId, body: Body<Self>) {
        post_links(db, rec, body);
    }

    /// Runs one step: reads DOLn, writes LNKn.
    fn own_callback(db: &mut Db, rec: RecId, body: Body<Self>, _: u8) {
        let r = &mut db.records[body];
        if !r.running {
            return;
        }
        r.delayed = false;
        if r.abort == 0 {
            let step = r.todo.trailing_zeros() as usize;
            r.todo &= r.todo.wrapping_sub(1);
            if step < STEPS {
                fetch(db, rec, body, step);
                write(db, rec, body, step);
            }
        }
        let r = &db.records[body];
        let over = if r.abort == 0 { next(db, rec, body) } else { r.waiting == [0; STEPS] };
        db.records[body].over = over;
        if over {
            db.resume(rec);
        }
    }

    fn properties(&self, _: u16, _: Option<FieldType>) -> Properties {
        Properties::NONE.digits(self.prec, true)
    }
}

impl SSeq {
    /// The number of a step as text.
    fn written(&self, step: usize) -> Str40 {
        base::text::double(self.number[step], u16::try_from(self.prec).unwrap_or(0))
    }

    /// Whether a step that has not completed holds another one. WAITn: 1 holds all, `m + 1` those after step m.
    fn holds(&self, other: usize) -> bool {
        (0..STEPS)
            .any(|step| self.waiting[step] != 0 && (self.wait[step] == 1 || usize::from(self.wait[step]) < other + 2))
    }
}

fn number_of(text: Str40) -> f64 {
    base::text::parse_double(text.bytes()).map_or(0.0, |(number, _)| number)
}

/// Updates the states of all links, and whether a step cannot wait as WAITn requires, because its link is not over a channel.
fn post_links(db: &mut Db, rec: RecId, body: Body<SSeq>) {
    post_states(db, rec, body, (SSeq::DOL1, SSeq::DOL1V), STEPS);
    post_states(db, rec, body, (SSeq::LNK1, SSeq::LNK1V), STEPS);
    for step in 0..STEPS {
        let r = &mut db.records[body];
        let kind = r.lnk[step].brief().kind;
        let cannot = r.wait[step] != 0 && !matches!(kind, LinkKind::Constant | LinkKind::Remote);
        if changed(&mut r.cannot_wait[step], i16::from(cannot)) {
            db.post_named(rec, name_of::<SSeq>(SSeq::WERR1, step), EventMask::VALUE);
        }
    }
}

/// The selected steps, one bit each; `None` without any, or for a wrong selection.
fn select(db: &mut Db, rec: RecId, body: Body<SSeq>) -> Option<u16> {
    let selm = db.records[body].selm;
    if selm == 0 {
        return Some(u16::MAX);
    }
    let sell = db.records[body].sell.brief();
    if let Ok(Some(seln)) = db.get_link::<u16>(rec, sell) {
        db.records[body].seln = seln;
    }
    match (selm, db.records[body].seln) {
        (1, 0) => None,
        (1, seln @ 1..=10) => Some(1 << (seln - 1)),
        (2, mask) => Some(mask),
        _ => {
            db.records[rec].raise(Status::Soft, 3);
            None
        }
    }
}

/// Schedules the next step. Returns whether the sequence is over.
fn next(db: &mut Db, rec: RecId, body: Body<SSeq>) -> bool {
    let r = &mut db.records[body];
    if r.todo == 0 {
        return r.waiting == [0; STEPS];
    }
    let step = r.todo.trailing_zeros() as usize;
    r.held = r.holds(step);
    if r.held {
        return false;
    }
    r.delayed = r.dly[step] > 0.0;
    if r.delayed {
        let delay = r.dly[step];
        db.call_back_after(rec, Callback::Own(STEP), delay);
    } else {
        db.call_back(rec, Callback::Own(STEP));
    }
    false
}

/// Continues after a write has completed, or ends the sequence.
fn completed(db: &mut Db, rec: RecId, body: Body<SSeq>) -> ProcessResult {
    for step in 0..STEPS {
        let r = &db.records[body];
        let link = r.lnk[step].brief();
        if r.waiting[step] != 0 && !db.is_waiting(link) {
            db.records[body].waiting[step] = 0;
            db.post_named(rec, name_of::<SSeq>(SSeq::WTG1, step), EventMask::VALUE);
        }
    }
    let r = &mut db.records[body];
    let idle = r.waiting == [0; STEPS];
    let over = match r.abort {
        _ if r.over => true,
        0 if r.held => next(db, rec, body),
        0 => r.todo == 0 && idle,
        _ => idle,
    };
    if over { finish(db, rec, body) } else { ProcessResult::Pending }
}

fn finish(db: &mut Db, rec: RecId, body: Body<SSeq>) -> ProcessResult {
    db.cancel_delay(rec, Callback::Own(STEP));
    db.records[rec].udf = 0;
    db.stamp_now(rec);
    let mask = db.reset_alarms(rec) | EventMask::VALUE;
    db.post_value(rec, mask);
    let r = &mut db.records[body];
    (r.running, r.over, r.held, r.delayed, r.todo) = (false, false, false, false, 0);
    let aborted = std::mem::take(&mut r.abort) != 0;
    (r.aborting, r.busy) = (0, 0);
    if aborted {
        // The link that aborted the sequence must not start another one.
        db.records[rec].rpro = 0;
        db.post_named(rec, "ABORT", mask);
        db.post_named(rec, "ABORTING", mask);
    }
    db.post_named(rec, "BUSY", mask);
    ProcessResult::Done
}

/// Called after a client wrote ABORT: cancels the delay, and ends the sequence when the steps have completed. A second write no
/// longer waits for them.
fn abort(db: &mut Db, rec: RecId, body: Body<SSeq>) -> Result<(), PutError> {
    let r = &mut db.records[body];
    if r.abort == 0 {
        return Ok(());
    }
    if !r.running {
        r.abort = 0;
        return Err(PutError::BadValue { what: "no sequence runs that could be aborted".into() });
    }
    if r.aborting == 0 {
        r.aborting = 1;
        let delayed = std::mem::take(&mut r.delayed);
        db.post_named(rec, "ABORTING", EventMask::VALUE);
        if delayed {
            db.cancel_delay(rec, Callback::Own(STEP));
            db.call_back(rec, Callback::Own(STEP));
        }
        return Ok(());
    }
    for step in 0..STEPS {
        if std::mem::take(&mut db.records[body].waiting[step]) != 0 {
            db.post_named(rec, name_of::<SSeq>(SSeq::WTG1, step), EventMask::VALUE);
        }
    }
    db.call_back(rec, Callback::Own(STEP));
    Ok(())
}

fn set_text(db: &mut Db, rec: RecId, body: Body<SSeq>, step: usize, text: Str40, mask: EventMask) {
    if changed(&mut db.records[body].text[step], text) {
        db.post_named(rec, name_of::<SSeq>(SSeq::STR1, step), mask);
    }
}

fn set_number(db: &mut Db, rec: RecId, body: Body<SSeq>, step: usize, number: f64, mask: EventMask) {
    if changed(&mut db.records[body].number[step], number) {
        db.post_named(rec, name_of::<SSeq>(SSeq::DO1, step), mask);
    }
}

/// Reads DOLn as a number or text, and sets the other from it. A failed read raises the alarm itself.
fn fetch(db: &mut Db, rec: RecId, body: Body<SSeq>, step: usize) {
    let link = db.records[body].dol[step].brief();
    let all = EventMask::VALUE | EventMask::LOG;
    let text = match takes(db, link) {
        Takes::Unknown => return,
        Takes::Number => {
            if let Ok(Some(number)) = db.get_link::<f64>(rec, link) {
                set_number(db, rec, body, step, number, all);
                let text = db.records[body].written(step);
                set_text(db, rec, body, step, text, EventMask::VALUE);
            }
            return;
        }
        Takes::Text => db.get_link_text(rec, link),
        Takes::Characters(max) => get_characters(db, rec, link, max),
    };
    if let Ok(Some(text)) = text {
        set_text(db, rec, body, step, text, all);
        set_number(db, rec, body, step, number_of(text), EventMask::VALUE);
    }
}

/// Writes LNKn. A target that is not connected is skipped. A write that cannot be waited for aborts the sequence.
fn write(db: &mut Db, rec: RecId, body: Body<SSeq>, step: usize) {
    let r = &db.records[body];
    let (link, value, waits) = (r.lnk[step].brief(), (r.number[step], r.text[step]), r.wait[step] != 0);
    if link.kind == LinkKind::Constant || !db.is_connected(link) {
        return;
    }
    match put(db, rec, link, value, waits) {
        Ok(true) => {
            db.records[body].waiting[step] = 1;
            db.post_named(rec, name_of::<SSeq>(SSeq::WTG1, step), EventMask::VALUE);
        }
        Err(_) if waits => {
            db.records[body].abort = 1;
            db.post_named(rec, "ABORT", EventMask::VALUE);
        }
        // A failed write raises the alarm itself.
        Ok(false) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::rec::test_kit::{number, put, started, text, wait};

    const TWO: &str = "record(sseq, \"s\") { field(DO1, \"1\") field(LNK1, \"slow.A CA\") field(WAIT1, \"Wait\")
             field(STR2, \"go\") field(LNK2, \"t PP\") field(DLY2, \"0.5\") field(FLNK, \"n\") }
         record(calcout, \"slow\") { field(CALC, \"A\") field(ODLY, \"1\") }
         record(stringout, \"t\") {} record(calc, \"n\") { field(CALC, \"VAL+1\") }";

    #[test]
    fn a_step_starts_when_the_one_it_waits_for_has_completed() {
        let mut db = started(TWO);
        put(&mut db, "s.PROC", 1);
        assert_eq!((number(&mut db, "slow.A"), number(&mut db, "s.WTG1"), number(&mut db, "s.BUSY")), (1.0, 1.0, 1.0));
        wait(&mut db, 1.0);
        assert_eq!((number(&mut db, "s.WTG1"), text(&mut db, "t"), number(&mut db, "n")), (0.0, String::new(), 0.0));
        wait(&mut db, 0.5);
        assert_eq!((text(&mut db, "t"), number(&mut db, "n"), number(&mut db, "s.BUSY")), ("go".into(), 1.0, 0.0));
    }

    #[test]
    fn after_m_lets_the_sequence_go_on_up_to_step_m() {
        let mut db = started(
            "record(sseq, \"s\") { field(DO1, \"1\") field(LNK1, \"slow.A CA\") field(WAIT1, \"After2\")
                 field(DO2, \"2\") field(LNK2, \"b\") field(DO3, \"3\") field(LNK3, \"c\") }
             record(calcout, \"slow\") { field(CALC, \"A\") field(ODLY, \"1\") } record(ao, \"b\") {} record(ao, \"c\") {}",
        );
        put(&mut db, "s.PROC", 1);
        assert_eq!((number(&mut db, "b"), number(&mut db, "c"), number(&mut db, "s.BUSY")), (2.0, 0.0, 1.0));
        wait(&mut db, 1.0);
        assert_eq!((number(&mut db, "c"), number(&mut db, "s.BUSY")), (3.0, 0.0));
    }

    #[test]
    fn a_put_callback_spans_the_sequence() {
        let mut db = started(TWO);
        let channel = db.find("s.PROC").unwrap();
        let state = db.put_notify(&channel, &base::Value::from(1), 7, crate::Now::default());
        assert_eq!(state, Ok(crate::NotifyState::Pending));
        wait(&mut db, 1.4);
        assert_eq!(db.take_completed(), []);
        wait(&mut db, 0.2);
        assert_eq!(db.take_completed().iter().map(|done| done.token).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn abort_ends_the_sequence_when_its_steps_have_completed_with_the_forward_link() {
        let mut db = started(TWO);
        let channel = db.find("s.ABORT").unwrap();
        let refused = db.put(&channel, &base::Value::from(1), crate::Now::default());
        assert!(refused.is_err() && number(&mut db, "s.ABORT") == 0.0, "nothing to abort");
        put(&mut db, "s.PROC", 1);
        put(&mut db, "s.ABORT", 1);
        assert_eq!((number(&mut db, "s.ABORTING"), number(&mut db, "n")), (1.0, 0.0));
        wait(&mut db, 1.0);
        assert_eq!((number(&mut db, "s.BUSY"), number(&mut db, "n"), text(&mut db, "t")), (0.0, 1.0, String::new()));
        // During the delay of the second step it ends at once.
        put(&mut db, "s.PROC", 1);
        wait(&mut db, 1.1);
        put(&mut db, "s.ABORT", 1);
        assert_eq!((number(&mut db, "s.BUSY"), number(&mut db, "n"), text(&mut db, "t")), (0.0, 2.0, String::new()));
        // A second abort does not wait for the step.
        put(&mut db, "s.PROC", 1);
        put(&mut db, "s.ABORT", 1);
        put(&mut db, "s.ABORT", 1);
        assert_eq!((number(&mut db, "s.BUSY"), number(&mut db, "s.WTG1"), number(&mut db, "n")), (0.0, 0.0, 3.0));
    }

    #[test]
    fn numbers_and_texts_of_a_step_agree_and_links_that_cannot_wait_are_flagged() {
        let mut db = started(
            "record(sseq, \"s\") { field(PREC, \"2\") field(DO1, \"1.5\") field(DOL2, \"a\") field(LNK2, \"b.VAL\") field(WAIT2, \"Wait\")
                 field(SELM, \"Specified\") field(SELN, \"2\") }
             record(ao, \"a\") { field(VAL, \"7\") } record(ao, \"b\") {}",
        );
        assert_eq!(
            (text(&mut db, "s.STR1"), number(&mut db, "s.WERR2"), text(&mut db, "s.LNK2V")),
            ("1.50".into(), 1.0, "Local PV".into())
        );
        put(&mut db, "s.STR1", "12 mm");
        assert_eq!(number(&mut db, "s.DO1"), 12.0);
        put(&mut db, "s.PROC", 1);
        assert_eq!(
            (number(&mut db, "b"), text(&mut db, "s.STR2"), number(&mut db, "s.BUSY")),
            (7.0, "7.00".into(), 0.0)
        );
        put(&mut db, "s.SELN", 11);
        put(&mut db, "s.PROC", 1);
        assert_eq!(text(&mut db, "s.STAT"), "SOFT");
    }
}
