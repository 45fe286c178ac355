//! Deadbands and alarm limits, shared by the analog record types.

use crate::model::slot::{Fields, Slot, Zero};
use base::{EventMask, Stamp, Status};

/// Adds `mask` if the value left the deadband around `last` (recGblCheckDeadband).
#[inline]
pub(crate) fn check(last: &mut f64, value: f64, deadband: f64, mask: EventMask) -> EventMask {
    let delta = (*last - value).abs();
    // A finite delta decides directly; NaN and infinities need the slow path.
    let moved = if delta.is_finite() { delta > deadband } else { odd(*last, value, deadband) };
    if moved {
        *last = value;
        return mask;
    }
    EventMask::NONE
}

#[cold]
fn odd(last: f64, value: f64, deadband: f64) -> bool {
    let delta = if last.is_finite() && value.is_finite() {
        (last - value).abs()
    } else if value.is_nan() != last.is_nan()
        || value.is_infinite() != last.is_infinite()
        || (value.is_infinite() && value != last)
    {
        f64::INFINITY
    } else {
        0.0
    };
    delta > deadband
}

/// Limits and severities of an analog record. `lalm` is the limit that was exceeded last.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Limits<T> {
    pub(crate) hihi: T,
    pub(crate) high: T,
    pub(crate) low: T,
    pub(crate) lolo: T,
    pub(crate) hyst: T,
    pub(crate) hhsv: u16,
    pub(crate) hsv: u16,
    pub(crate) lsv: u16,
    pub(crate) llsv: u16,
}

impl<T: Fields> Fields for Limits<T> {
    const COUNT: usize = 9;
    fn slot(&mut self, index: usize) -> Slot<'_> {
        match index {
            0 => self.hihi.slot(0),
            1 => self.lolo.slot(0),
            2 => self.high.slot(0),
            3 => self.low.slot(0),
            4 => self.hhsv.slot(0),
            5 => self.llsv.slot(0),
            6 => self.hsv.slot(0),
            7 => self.lsv.slot(0),
            _ => self.hyst.slot(0),
        }
    }
}

impl<T: Zero> Zero for Limits<T> {
    const ZERO: Self = Self {
        hihi: T::ZERO,
        high: T::ZERO,
        low: T::ZERO,
        lolo: T::ZERO,
        hhsv: 0,
        hsv: 0,
        lsv: 0,
        llsv: 0,
        hyst: T::ZERO,
    };
}

/// Alarm range of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    Lolo = 1,
    Low,
    Normal,
    High,
    Hihi,
}

impl Zone {
    const fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Lolo,
            2 => Self::Low,
            3 => Self::Normal,
            4 => Self::High,
            5 => Self::Hihi,
            _ => return None,
        })
    }

    const fn status(self) -> Status {
        match self {
            Self::Lolo => Status::Lolo,
            Self::Low => Status::Low,
            Self::Normal => Status::None,
            Self::High => Status::High,
            Self::Hihi => Status::Hihi,
        }
    }
}

macro_rules! limits {
    ($type:ty, $plus:expr, $minus:expr) => {
        impl Limits<$type> {
            /// Zone, severity and limit of a value, with hysteresis.
            #[inline]
            pub(crate) fn zone(&self, value: $type, lalm: $type) -> (Zone, u16, $type) {
                if (self.hhsv | self.llsv | self.hsv | self.lsv) == 0 {
                    return (Zone::Normal, 0, value);
                }
                if self.hhsv != 0
                    && (value >= self.hihi || (lalm == self.hihi && value >= $minus(self.hihi, self.hyst)))
                {
                    return (Zone::Hihi, self.hhsv, self.hihi);
                }
                if self.llsv != 0 && (value <= self.lolo || (lalm == self.lolo && value <= $plus(self.lolo, self.hyst)))
                {
                    return (Zone::Lolo, self.llsv, self.lolo);
                }
                if self.hsv != 0 && (value >= self.high || (lalm == self.high && value >= $minus(self.high, self.hyst)))
                {
                    return (Zone::High, self.hsv, self.high);
                }
                if self.lsv != 0 && (value <= self.low || (lalm == self.low && value <= $plus(self.low, self.hyst))) {
                    return (Zone::Low, self.lsv, self.low);
                }
                (Zone::Normal, 0, value)
            }

            /// Like [`zone`](Self::zone), then filtered over time (AFTC). `afvl` is the filter state.
            pub(crate) fn filtered(
                &self,
                (zone, severity, limit): (Zone, u16, $type),
                aftc: f64,
                afvl: &mut f64,
                now: Stamp,
                before: Stamp,
            ) -> (Zone, u16, $type) {
                let Some(zone) = filter(zone, aftc, afvl, now, before) else { return (Zone::Normal, severity, limit) };
                match zone {
                    Zone::Hihi => (zone, self.hhsv, self.hihi),
                    Zone::High => (zone, self.hsv, self.high),
                    Zone::Normal => (zone, 0, limit),
                    Zone::Low => (zone, self.lsv, self.low),
                    Zone::Lolo => (zone, self.llsv, self.lolo),
                }
            }
        }
    };
}
limits!(f64, |a, b| a + b, |a, b| a - b);
limits!(i32, i32::wrapping_add, i32::wrapping_sub);
limits!(i64, i64::wrapping_add, i64::wrapping_sub);

/// Filter threshold between rounding up and down.
const THRESHOLD: f64 = 0.6321;

/// One step of the alarm filter; `None` if the result is not a zone.
pub(crate) fn filter(zone: Zone, aftc: f64, afvl: &mut f64, now: Stamp, before: Stamp) -> Option<Zone> {
    let range = f64::from(zone as i32);
    let mut value = *afvl;
    if value == 0.0 {
        value = range;
        *afvl = value;
        return Some(zone);
    }
    let alpha = aftc / (now.secs_since(before) + aftc);
    value = alpha * value + if value > 0.0 { 1.0 - alpha } else { alpha - 1.0 } * range;
    if value - value.floor() > THRESHOLD {
        value = -value;
    }
    *afvl = value;
    Zone::from_number(base::text::to_i32(value.floor()).wrapping_abs())
}

/// One step of the alarm filter, applied to a severity (mbbi).
pub(crate) fn filter_level(severity: u16, aftc: f64, afvl: &mut f64, now: Stamp, before: Stamp) -> u16 {
    let level = f64::from(severity);
    if *afvl == 0.0 {
        *afvl = level;
        return severity;
    }
    let alpha = aftc / (now.secs_since(before) + aftc);
    let mut value = alpha * *afvl + if *afvl > 0.0 { 1.0 - alpha } else { alpha - 1.0 } * level;
    if value - value.floor() > THRESHOLD {
        value = -value;
    }
    *afvl = value;
    base::text::to_i32(value.floor()).unsigned_abs() as u16
}

/// Alarm status of a zone.
pub(crate) const fn status_of(zone: Zone) -> Status {
    zone.status()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits<f64> =
        Limits { hihi: 10.0, high: 8.0, low: 2.0, lolo: 0.0, hhsv: 2, hsv: 1, lsv: 1, llsv: 2, hyst: 1.0 };

    #[test]
    fn a_value_leaves_an_alarm_only_beyond_the_hysteresis() {
        for (value, lalm, expected) in [
            (10.0, 0.0, Zone::Hihi),
            (9.5, 10.0, Zone::Hihi),
            (8.9, 10.0, Zone::High),
            (7.5, 8.0, Zone::High),
            (7.5, 7.5, Zone::Normal),
            (2.0, 5.0, Zone::Low),
            (0.5, 0.0, Zone::Lolo),
        ] {
            assert_eq!(LIMITS.zone(value, lalm).0, expected, "{value} after {lalm}");
        }
    }

    #[test]
    fn deadbands_compare_nan_and_infinity_as_epics_does() {
        let moved = |last: f64, value: f64, band: f64| {
            let mut last = last;
            !check(&mut last, value, band, EventMask::VALUE).is_empty()
        };
        assert!(moved(1.0, 2.0, 0.5) && !moved(1.0, 1.5, 0.5) && moved(1.0, 1.0, -1.0) && !moved(1.0, 1.0, 0.0));
        assert!(moved(1.0, f64::NAN, 5.0) && !moved(f64::NAN, f64::NAN, 0.0) && moved(f64::NAN, f64::NAN, -1.0));
        assert!(moved(f64::INFINITY, f64::NEG_INFINITY, 5.0) && !moved(f64::INFINITY, f64::INFINITY, 0.0));
    }
}
