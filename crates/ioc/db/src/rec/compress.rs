//! compress record.

use super::arrays::ELEMENTS_LIMIT;
use crate::model::link::{Link, LinkKind};
use crate::model::slot::{Inline, record};
use crate::rec::common::Common;
use crate::rec::{ArrayView, Body, Properties, RecId, RecordType};
use crate::run::engine::{Db, ProcessResult};
use crate::text::error::PutError;
use base::{Array, EventMask, FieldType, Scalar, Status, Str40};

record! {
    /// Fields of a compress record.
    Compress {
        val: Array [VAL],
        inp: Link [INP],
        res: i16 [RES],
        alg: u16 [ALG],
        pbuf: u16 [PBUF],
        balg: u16 [BALG],
        nsam: u32 [NSAM],
        n: u32 [N],
        ihil: f64 [IHIL],
        ilil: f64 [ILIL],
        hopr: f64 [HOPR],
        lopr: f64 [LOPR],
        prec: i16 [PREC],
        egu: Inline<16> [EGU],
        off: u32 [OFF],
        nuse: u32 [NUSE],
        ouse: u32 [OUSE],
        inpn: i32 [INPN],
        cvb: f64 [CVB],
        inx: u32 [INX],
    } private {
        sum: Vec<f64>,
    }
}

impl RecordType for Compress {
    /// Start: allocates the sample buffer.
    fn init(db: &mut Db, _: RecId, body: Body<Self>) {
        let r = &mut db.records[body];
        r.nsam = r.nsam.clamp(1, ELEMENTS_LIMIT as u32);
        reset(r);
    }

    /// Reads the input, compresses, posts monitors if there is a new sample.
    fn process(db: &mut Db, rec: RecId, body: Body<Self>, _: bool) -> ProcessResult {
        let r = &db.records[body];
        let (link, alg) = (r.inp.brief(), r.alg);
        let count = match link.kind {
            LinkKind::Db => db.element_count(link.record(), link.field),
            LinkKind::Remote => db.channel_elements(link.target).map_or(0, |now| now.max(r.inpn.max(0) as usize)),
            _ => 0,
        };
        let mut waits = false;
        if count == 0 {
            db.records[rec].raise(Status::Link, 3);
        } else {
            let r = &mut db.records[body];
            if r.inpn != count as i32 {
                if r.inpn != 0 {
                    reset(r);
                }
                r.inpn = count as i32;
            }
            match db.get_link_array(rec, link, FieldType::F64, count) {
                Ok(Some(Array::F64(values))) if !values.is_empty() => {
                    let r = &mut db.records[body];
                    waits = match alg {
                        ARRAY_AVERAGE => average(r, &values),
                        CIRCULAR => {
                            r.put(&values);
                            false
                        }
                        _ if values.len() > 1 => compress_array(r, &values),
                        _ => compress_scalar(r, values[0]),
                    };
                    db.recycle_array(Array::F64(values));
                }
                _ => {
                    db.records[rec].raise(Status::Link, 3);
                }
            }
        }
        if waits {
            return ProcessResult::NoForward;
        }
        db.records[rec].udf = 0;
        db.stamp_now(rec);
        let alarm = db.reset_alarms(rec);
        let mask = alarm | EventMask::VALUE | EventMask::LOG;
        let r = &mut db.records[body];
        let used = r.nuse != r.ouse;
        if used || !alarm.is_empty() {
            r.ouse = r.nuse;
            db.post_named(rec, "NUSE", mask);
        }
        db.post_value(rec, mask);
        ProcessResult::Done
    }

    /// A write to RES, ALG and similar fields restarts the compression.
    fn special(db: &mut Db, _: RecId, body: Body<Self>, _: u16, after: bool) -> Result<(), PutError> {
        if after {
            reset(&mut db.records[body]);
        }
        Ok(())
    }

    fn properties(&self, field: u16, kind: Option<FieldType>) -> Properties {
        let mut of = Properties::BOUNDED.digits(self.prec, field == Self::VAL);
        if kind == Some(FieldType::F64) || field == Self::VAL {
            of.units = Str40::new(self.egu.bytes());
        }
        let ranged = matches!(field, Self::VAL | Self::IHIL | Self::ILIL);
        if ranged { of.within(self.lopr, self.hopr) } else { of }
    }

    fn shape(&self, _: u16) -> (u32, FieldType) {
        (self.nsam, FieldType::F64)
    }

    fn counts_elements(field: u16) -> bool {
        field == Self::NSAM
    }

    /// As in C, the array cannot be written while samples are ordered newest first.
    fn is_writable(&self, field: u16) -> bool {
        field != Self::VAL || self.balg == 0
    }

    /// Samples written by a client count as new, but, as in C, they replace the oldest ones.
    fn store_array(db: &mut Db, rec: RecId, body: Body<Self>, _: u16, values: Array) -> Result<(), PutError> {
        let r = &mut db.records[body];
        if r.balg == 1 {
            return Err(PutError::NoModify);
        }
        let Array::F64(values) = values else { return Ok(()) };
        let (first, before, nsam) = (r.first(), r.nuse, r.nsam as usize);
        if let Array::F64(ring) = &mut r.val {
            values.iter().enumerate().for_each(|(at, value)| ring[(first + at) % nsam] = *value);
        }
        r.off = ((r.off as usize + values.len()) % nsam) as u32;
        r.nuse = r.nuse.saturating_add(values.len() as u32).min(r.nsam);
        if r.nuse != before {
            db.post_named(rec, "NUSE", EventMask::VALUE | EventMask::LOG);
        }
        Ok(())
    }

    /// The samples, oldest first (newest first with LIFO).
    fn seen(&self, _: &Common) -> ArrayView {
        ArrayView::Ring { first: self.first(), used: self.nuse as usize }
    }

    /// With one sample, newest first, the element in memory differs from the visible one.
    fn in_memory(&self, field: u16) -> Option<Scalar> {
        (field == Self::VAL && self.balg == 1 && self.nsam == 1).then_some(Scalar::F64(0.0))
    }
}

/// Algorithms (ALG).
const LOW: u16 = 0;
const HIGH: u16 = 1;
const AVERAGE: u16 = 2;
const ARRAY_AVERAGE: u16 = 3;
const CIRCULAR: u16 = 4;
const MEDIAN: u16 = 5;

fn reset(r: &mut Compress) {
    r.nuse = 0;
    r.off = 0;
    r.inx = 0;
    r.cvb = 0.0;
    r.res = 0;
    r.val = Array::F64(vec![0.0; r.nsam as usize]);
    r.sum.clear();
}

impl Compress {
    fn put(&mut self, values: &[f64]) {
        let fifo = self.balg == 0;
        let nsam = self.nsam;
        let Array::F64(ring) = &mut self.val else { return };
        let mut at = self.off;
        for value in values {
            if !fifo {
                at = (at + nsam - 1) % nsam;
            }
            ring[at as usize] = *value;
            if fifo {
                at = (at + 1) % nsam;
            }
        }
        self.off = at;
        self.nuse = self.nuse.saturating_add(values.len() as u32).min(nsam);
    }

    /// Index of the first sample.
    const fn first(&self) -> usize {
        let (off, nuse, nsam) = (self.off as usize, self.nuse as usize, self.nsam as usize);
        if self.balg == 0 { (off + nsam - nuse) % nsam } else { off }
    }
}

/// Compresses N values of an array to one. Returns whether there was no result.
fn compress_array(r: &mut Compress, mut values: &[f64]) -> bool {
    if r.ilil < r.ihil {
        while let Some((first, rest)) = values.split_first() {
            if *first >= r.ilil && *first <= r.ihil {
                break;
            }
            values = rest;
        }
    }
    if r.n == 0 {
        r.n = 1;
    }
    let n = r.n as usize;
    let limit = values.len().min((r.nsam as usize).saturating_mul(n));
    let mut written = 0;
    for group in values[..limit].chunks(n) {
        if group.len() < n && r.pbuf == 0 {
            break;
        }
        let value = match r.alg {
            LOW => group.iter().copied().fold(group[0], |low, value| if low > value { value } else { low }),
            HIGH => group.iter().copied().fold(group[0], |high, value| if high < value { value } else { high }),
            AVERAGE => group.iter().sum::<f64>() / group.len() as f64,
            MEDIAN => {
                let mut sorted = group.to_vec();
                sorted.sort_by(f64::total_cmp);
                sorted[group.len() / 2]
            }
            _ => 0.0,
        };
        r.put(&[value]);
        written += 1;
    }
    written == 0
}

/// Averages N arrays element by element. Returns whether more arrays are needed.
fn average(r: &mut Compress, values: &[f64]) -> bool {
    // As in C, the result has as many elements as the last array. Shorter arrays before it are padded with zeros.
    let used = (r.nsam as usize).min(values.len());
    if r.inx == 0 {
        r.sum.clear();
    }
    r.sum.resize(r.sum.len().max(used), 0.0);
    for (sum, value) in r.sum.iter_mut().zip(values) {
        *sum += value;
    }
    r.inx += 1;
    if r.n == 0 {
        r.n = 1;
    }
    if r.inx < r.n {
        return true;
    }
    let factor = 1.0 / f64::from(r.n);
    let means: Vec<f64> = r.sum[..used].iter().map(|sum| if r.n > 1 { sum * factor } else { *sum }).collect();
    r.put(&means);
    r.inx = 0;
    false
}

/// Compresses N scalars to one. Returns whether more values are needed.
fn compress_scalar(r: &mut Compress, value: f64) -> bool {
    match r.alg {
        LOW if value < r.cvb || r.inx == 0 => r.cvb = value,
        HIGH if value > r.cvb || r.inx == 0 => r.cvb = value,
        AVERAGE | MEDIAN => r.cvb = (f64::from(r.inx) * r.cvb + value) / (f64::from(r.inx) + 1.0),
        _ => {}
    }
    r.inx += 1;
    if r.inx >= r.n || r.pbuf == 1 {
        let value = r.cvb;
        r.put(&[value]);
        if r.inx >= r.n {
            r.inx = 0;
        }
        return false;
    }
    true
}
