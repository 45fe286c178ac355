//! "tahti Simulation": signals without equipment, for examples, tests and screens made before the machine exists.
//!
//! | address | value |
//! |---|---|
//! | `@sine low=-1 high=1 period=10s phase=0` | a sine between low and high; phase in degrees |
//! | `@triangle low= high= period=`, `@ramp low= high= period=` | rises and falls; rises and jumps back |
//! | `@square low= high= period= duty=0.5` | high for the share `duty` of the period, then low |
//! | `@noise mean=0 sigma=1` | normally distributed |
//! | `@walk step=1 low=-10 high=10` | a random step per reading, limited to low and high |
//! | `@counter step=1 from=0 modulo=` | counts readings |
//! | `@cell NAME` | the value last written by an output record with the same address |
//! | `@lag NAME tau=1s` | follows cell NAME as a first-order lag |
//!
//! All accept `noise=SIGMA` (added noise), `fail=SHARE` (that share of readings fails with READ) and `seed=`.

use super::{DeviceSupport, Options, Ports, Served};
use base::{DurNs, MonoNs, Scalar, Status, Value};
use db::{AttachError, Attaching, DeviceSample, Direct, Now, Output};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The device support.
pub(super) struct Simulation;

impl DeviceSupport for Simulation {
    fn name(&self) -> &'static str {
        "tahti Simulation"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["ai", "ao", "bi", "bo", "longin", "longout", "int64in", "int64out", "mbbi", "mbbo"]
    }

    fn attach(&self, place: &Attaching<'_>, _: &Ports) -> Result<Served, AttachError> {
        let mut options = Options::parse(place.address);
        let signal = if place.output {
            match options.needed("cell NAME")? {
                "cell" => Signal::Cell(cell(options.needed("the name of a cell")?)),
                other => {
                    let expected = "cell, as records write to nothing else".to_owned();
                    return Err(AttachError::Unexpected { found: format!("signal \"{other}\""), expected });
                }
            }
        } else {
            Signal::parse(&mut options)?
        };
        let seed = place.name.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let random = Random(options.value("seed", seed)?);
        let noise = options.value("noise", 0.0)?;
        let fail = options.value("fail", 0.0)?;
        options.finish()?;
        let whole = !matches!(place.record_type, "ai" | "ao");
        let source = Source { signal, random, noise, fail, whole };
        Ok(Served { direct: Some(Box::new(source)), ..Served::default() })
    }
}

/// A cell by name. Cells are shared by the whole IOC.
fn cell(name: &str) -> Arc<AtomicU64> {
    static CELLS: OnceLock<Mutex<HashMap<String, Arc<AtomicU64>>>> = OnceLock::new();
    // A panic while the lock is held cannot leave the map inconsistent.
    let mut cells = CELLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    cells.entry(name.to_owned()).or_default().clone()
}

enum Signal {
    Sine { low: f64, high: f64, period: DurNs, phase: f64 },
    Triangle { low: f64, high: f64, period: DurNs },
    Ramp { low: f64, high: f64, period: DurNs },
    Square { low: f64, high: f64, period: DurNs, duty: f64 },
    Noise { mean: f64, sigma: f64 },
    Walk { at: f64, step: f64, low: f64, high: f64 },
    Counter { next: f64, step: f64, modulo: f64 },
    Cell(Arc<AtomicU64>),
    Lag { cell: Arc<AtomicU64>, tau: DurNs, at: Option<(f64, MonoNs)> },
}

impl Signal {
    fn parse(options: &mut Options<'_>) -> Result<Self, AttachError> {
        let expected = "sine, triangle, ramp, square, noise, walk, counter, cell or lag";
        let kind = options.needed(expected)?;
        let second = DurNs::from_secs(1);
        Ok(match kind {
            "sine" => Self::Sine {
                low: options.value("low", -1.0)?,
                high: options.value("high", 1.0)?,
                period: options.time("period", DurNs(second.0 * 10))?,
                phase: options.value("phase", 0.0)?,
            },
            "triangle" | "ramp" | "square" => {
                let (low, high) = (options.value("low", 0.0)?, options.value("high", 1.0)?);
                let period = options.time("period", DurNs(second.0 * 10))?;
                match kind {
                    "triangle" => Self::Triangle { low, high, period },
                    "ramp" => Self::Ramp { low, high, period },
                    _ => Self::Square { low, high, period, duty: options.value("duty", 0.5)? },
                }
            }
            "noise" => Self::Noise { mean: options.value("mean", 0.0)?, sigma: options.value("sigma", 1.0)? },
            "walk" => {
                let (low, high) = (options.value("low", -10.0_f64)?, options.value("high", 10.0_f64)?);
                if low.is_nan() || high.is_nan() || low > high {
                    let (found, expected) = (format!("low={low} high={high}"), "low not above high".to_owned());
                    return Err(AttachError::Unexpected { found, expected });
                }
                Self::Walk { at: (low + high) / 2.0, step: options.value("step", 1.0)?, low, high }
            }
            "counter" => Self::Counter {
                next: options.value("from", 0.0)?,
                step: options.value("step", 1.0)?,
                modulo: options.value("modulo", 0.0)?,
            },
            "cell" => Self::Cell(cell(options.needed("the name of a cell")?)),
            "lag" => Self::Lag {
                cell: cell(options.needed("the name of a cell")?),
                tau: options.time("tau", second)?,
                at: None,
            },
            other => {
                let (found, expected) = (format!("signal \"{other}\""), expected.to_owned());
                return Err(AttachError::Unexpected { found, expected });
            }
        })
    }

    fn at(&mut self, now: MonoNs, random: &mut Random) -> f64 {
        let share = |period: DurNs| (now.0 % period.0 as u64) as f64 / period.0 as f64;
        match self {
            Self::Sine { low, high, period, phase } => {
                let angle = (share(*period) + *phase / 360.0) * std::f64::consts::TAU;
                (*low + *high) / 2.0 + (*high - *low) / 2.0 * angle.sin()
            }
            Self::Triangle { low, high, period } => *low + (*high - *low) * (1.0 - (2.0 * share(*period) - 1.0).abs()),
            Self::Ramp { low, high, period } => *low + (*high - *low) * share(*period),
            Self::Square { low, high, period, duty } => {
                if share(*period) < *duty {
                    *high
                } else {
                    *low
                }
            }
            Self::Noise { mean, sigma } => *mean + *sigma * random.normal(),
            Self::Walk { at, step, low, high } => {
                *at = (*at + if random.unit() < 0.5 { -*step } else { *step }).clamp(*low, *high);
                *at
            }
            Self::Counter { next, step, modulo } => {
                let value = *next;
                *next += *step;
                if *modulo > 0.0 {
                    *next %= *modulo;
                }
                value
            }
            Self::Cell(cell) => f64::from_bits(cell.load(Ordering::Relaxed)),
            Self::Lag { cell, tau, at } => {
                let goal = f64::from_bits(cell.load(Ordering::Relaxed));
                let value = match *at {
                    None => goal,
                    Some((value, then)) => {
                        let passed = (now - then).0.max(0) as f64 / tau.0 as f64;
                        goal + (value - goal) * (-passed).exp()
                    }
                };
                *at = Some((value, now));
                value
            }
        }
    }
}

struct Source {
    signal: Signal,
    random: Random,
    noise: f64,
    fail: f64,
    whole: bool,
}

impl Direct for Source {
    fn read(&mut self, now: Now) -> DeviceSample {
        let mut value = self.signal.at(now.mono, &mut self.random);
        if self.noise != 0.0 {
            value += self.noise * self.random.normal();
        }
        if self.fail > 0.0 && self.random.unit() < self.fail {
            return DeviceSample::failed(Status::Read);
        }
        let value = if self.whole { Scalar::I64(value.round() as i64) } else { Scalar::F64(value) };
        DeviceSample::good(Value::Scalar(value), now.wall)
    }

    fn write(&mut self, now: Now, output: &Output) -> DeviceSample {
        let value = match output.value {
            Value::Scalar(Scalar::F64(value)) => value,
            Value::Scalar(Scalar::I64(value)) => value as f64,
            Value::Scalar(Scalar::U16(value)) => value.into(),
            _ => output.raw as f64,
        };
        if let Signal::Cell(cell) = &self.signal {
            cell.store(value.to_bits(), Ordering::Relaxed);
        }
        DeviceSample::done(now.wall)
    }
}

/// Pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    /// Uniformly distributed in 0..1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed around 0 with deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit().max(f64::MIN_POSITIVE), self.unit());
        (-2.0 * radius.ln()).sqrt() * (angle * std::f64::consts::TAU).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{FieldType, Stamp};
    use db::RecId;

    fn attach(address: &str, record_type: &str) -> Result<Box<dyn Direct>, AttachError> {
        let place = Attaching {
            shard: 0,
            record: RecId(1),
            name: "r",
            record_type,
            output: record_type.ends_with("out") || record_type == "ao",
            address,
            elements: FieldType::F64,
            count: 1,
        };
        Ok(Simulation.attach(&place, &Ports::default())?.direct.unwrap())
    }

    fn at(ms: u64) -> Now {
        Now { wall: Stamp::EPOCH, mono: MonoNs(ms * 1_000_000) }
    }

    fn read(device: &mut Box<dyn Direct>, ms: u64) -> f64 {
        match device.read(at(ms)).value {
            Some(Value::Scalar(Scalar::F64(value))) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn signals_follow_the_time() {
        let check = |address: &str, expected: [f64; 4]| {
            let mut device = attach(address, "ai").unwrap();
            let seen = [0, 250, 500, 750].map(|ms| read(&mut device, ms));
            let close = seen.iter().zip(expected).all(|(seen, expected)| (seen - expected).abs() < 1e-9);
            assert!(close, "{address}: {seen:?}, expected {expected:?}");
        };
        check("sine low=0 high=4 period=1s", [2.0, 4.0, 2.0, 0.0]);
        check("sine period=1s phase=90", [1.0, 0.0, -1.0, 0.0]);
        check("ramp high=8 period=1s", [0.0, 2.0, 4.0, 6.0]);
        check("triangle period=1s", [0.0, 0.5, 1.0, 0.5]);
        check("square period=1s duty=0.3 low=-1", [1.0, 1.0, -1.0, -1.0]);
        check("counter from=5 step=2 modulo=9", [5.0, 7.0, 0.0, 2.0]);
    }

    #[test]
    fn a_lag_follows_the_value_written_by_an_output() {
        let mut set = attach("cell test-lag", "ao").unwrap();
        let mut lag = attach("lag test-lag tau=1s", "ai").unwrap();
        assert_eq!(read(&mut lag, 0), 0.0);
        let output = Output { value: Value::from(10.0), raw: 10, name: None, converted: false };
        assert_eq!(set.write(at(0), &output).alarm, base::Alarm::NONE);
        assert!((read(&mut lag, 1000) - 10.0 * (1.0 - (-1.0f64).exp())).abs() < 1e-9);
        assert!((read(&mut lag, 60_000) - 10.0).abs() < 1e-9);
        assert_eq!(read(&mut attach("cell test-lag", "ai").unwrap(), 0), 10.0);
    }

    #[test]
    fn noise_has_its_mean_and_deviation_and_some_readings_fail() {
        let mut noise = attach("noise mean=5 sigma=2 seed=7", "ai").unwrap();
        let all: Vec<f64> = (0..10_000).map(|ms| read(&mut noise, ms)).collect();
        let mean = all.iter().sum::<f64>() / 1e4;
        let deviation = (all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        assert!((mean - 5.0).abs() < 0.1 && (deviation - 2.0).abs() < 0.1, "{mean} {deviation}");
        let mut flaky = attach("counter fail=0.25 seed=7", "ai").unwrap();
        let failed = (0..10_000).filter(|ms| flaky.read(at(*ms)).value.is_none()).count();
        assert!((2_300..2_700).contains(&failed), "{failed}");
        let mut walk = attach("walk step=3 low=-4 high=4", "ai").unwrap();
        assert!((0..100).all(|ms| read(&mut walk, ms).abs() <= 4.0));
    }

    #[test]
    fn a_malformed_address_is_refused_with_the_expected_form() {
        let refused = |address: &str, kind: &str| attach(address, kind).err().unwrap().to_string();
        assert!(refused("", "ai").contains("expected sine"));
        assert!(refused("sinus", "ai").contains("\"sinus\"; expected sine"));
        assert!(refused("sine perod=1s", "ai").contains("unknown key \"perod=\"; expected low="));
        assert!(refused("sine period=0s", "ai").contains("at least 1ms"));
        assert!(refused("walk low=2 high=1", "ai").contains("low not above high"));
        assert!(refused("sine", "ao").contains("expected cell"));
    }
}
