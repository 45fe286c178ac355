//! Time stamps of individual records: the kernel's wall clock, extrapolated by the processor's counter for at most 100 µs.
//!
//! Reading the kernel's clock costs as much as processing a small record, because the read waits until all preceding
//! instructions are done. Reading the counter costs little more than a third of that. So the kernel's clock is read again
//! only when its last reading is [`CARRY_MAX`] old. A step of the clock becomes visible at most that much later. Without a
//! counter, and until its rate is known, each stamp is a reading of the kernel's clock.

use base::Stamp;
use std::cell::Cell;
use std::sync::OnceLock;
use sys::root::RootDir;

/// Maximum time in ns for which a reading of the kernel's clock is extrapolated.
const CARRY_MAX: u64 = 100_000;
/// Minimum time in ns over which the counter's rate is measured, and the time after which the measurement restarts.
const RATE_MIN: u64 = 10_000_000;
const RATE_MAX: u64 = 1_000_000_000;
/// Maximum number of counts for reading both clocks. A slower reading was interrupted and is not used.
const READING_MAX: u64 = 4_096;
/// The rate's error during extrapolation is far below this (ns). A larger step back is a real step of the clock, and is
/// passed on.
const STEP_MIN: u64 = 1_000;

/// Counter and both kernel clocks, read together.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// Counter before and after reading the clocks.
    counts: [u64; 2],
    wall_ns: u64,
    mono_ns: u64,
}

/// The extrapolated clock of a thread.
#[derive(Clone, Copy, Debug)]
struct Carried {
    /// The last reading; then the maximum counts of its extrapolation, and the nanoseconds per 2^32 counts.
    base: Reading,
    counts_max: u64,
    rate: u64,
    /// Start of the rate measurement.
    origin: Option<Reading>,
    /// The last stamp.
    last_ns: u64,
}

impl Carried {
    const NEW: Self = Self {
        base: Reading { counts: [0; 2], wall_ns: 0, mono_ns: 0 },
        counts_max: 0,
        rate: 0,
        origin: None,
        last_ns: 0,
    };

    /// Wall clock in ns at `count`. `read` reads the kernel's clock.
    fn at(&mut self, count: u64, read: impl FnOnce() -> Reading) -> u64 {
        let since = count.wrapping_sub(self.base.counts[0]);
        let now = if since < self.counts_max {
            self.base.wall_ns + ((u128::from(since) * u128::from(self.rate)) >> 32) as u64
        } else {
            self.take(read())
        };
        // The rate is not exact, so a new reading may be a few nanoseconds before the last stamp.
        if now < self.last_ns && self.last_ns - now < STEP_MIN {
            return self.last_ns;
        }
        self.last_ns = now;
        now
    }

    /// Starts the extrapolation from a reading, if possible. Returns its wall clock.
    fn take(&mut self, reading: Reading) -> u64 {
        let wall = reading.wall_ns;
        self.counts_max = 0;
        let took = reading.counts[1].wrapping_sub(reading.counts[0]);
        if took > READING_MAX {
            return wall;
        }
        let (counts, span) = self.origin.map_or((0, 0), |origin| {
            let span = reading.mono_ns.saturating_sub(origin.mono_ns);
            // A counter that went back, for example after a suspend, gives no rate.
            (reading.counts[0].saturating_sub(origin.counts[0]), span)
        });
        match (counts, span) {
            (0, _) => (self.origin, self.rate) = (Some(reading), 0),
            (_, RATE_MIN..) => {
                self.rate = ((u128::from(span) << 32) / u128::from(counts)) as u64;
                if span > RATE_MAX {
                    self.origin = Some(reading);
                }
            }
            _ => {}
        }
        if self.rate != 0 {
            self.base = reading;
            self.counts_max = ((u128::from(CARRY_MAX) << 32) / u128::from(self.rate)) as u64;
        }
        wall
    }
}

thread_local! {
    static CLOCK: Cell<Carried> = const { Cell::new(Carried::NEW) };
}

/// Clock for stamping individual records: [`carried`] if the kernel trusts the processor's counter, otherwise the kernel's
/// clock.
pub(crate) fn clock() -> fn() -> Stamp {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let trusted =
        || sys::clock::counter().is_some() && RootDir::machine().read(file).is_ok_and(|it| it.trim() == "tsc");
    if *TRUSTED.get_or_init(trusted) { carried } else { crate::engine::wall }
}

/// Current wall clock, at most [`CARRY_MAX`] after its last reading.
///
/// Real-time: neither allocates nor blocks.
fn carried() -> Stamp {
    let Some(count) = sys::clock::counter() else { return crate::engine::wall() };
    CLOCK.with(|cell| {
        let mut clock = cell.get();
        let now = clock.at(count, read);
        cell.set(clock);
        Stamp::from_unix(now / 1_000_000_000, (now % 1_000_000_000) as u32)
    })
}

fn read() -> Reading {
    let count = || sys::clock::counter().unwrap_or_default();
    let before = count();
    let (wall_ns, mono_ns) = (sys::clock::wall_ns(), sys::clock::mono_now().0);
    Reading { counts: [before, count()], wall_ns, mono_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated counter of 3 counts per ns, and a wall clock that the test can step.
    struct World {
        ns: u64,
        wall_at_0: u64,
        readings: u32,
    }

    impl World {
        fn stamp(&mut self, clock: &mut Carried) -> u64 {
            let (ns, wall_at_0, readings) = (self.ns, self.wall_at_0, &mut self.readings);
            clock.at(ns * 3, || {
                *readings += 1;
                Reading { counts: [ns * 3, ns * 3 + 90], wall_ns: wall_at_0 + ns, mono_ns: ns }
            })
        }
    }

    const WALL: u64 = 1_700_000_000_000_000_000;

    fn world() -> (World, Carried) {
        let mut world = World { ns: 5_000, wall_at_0: WALL, readings: 0 };
        let mut clock = Carried::NEW;
        for _ in 0..20 {
            world.stamp(&mut clock);
            world.ns += 1_000_000;
        }
        assert_eq!(world.readings, 20, "until the rate is known, then one in 100 us");
        (world, clock)
    }

    #[test]
    fn stamps_follow_the_clock_and_few_of_them_read_it() {
        let (mut world, mut clock) = world();
        world.readings = 0;
        for _ in 0..100_000 {
            let stamp = world.stamp(&mut clock);
            assert!(stamp.abs_diff(WALL + world.ns) <= 1, "{stamp} at {}", world.ns);
            world.ns += 100;
        }
        assert!((95..=105).contains(&world.readings), "{} readings in 10 ms", world.readings);
    }

    #[test]
    fn a_step_of_the_clock_is_visible_within_the_carry_in_both_directions() {
        for step in [-3_000_000_000i64, -50_000, 7_000_000_000] {
            let (mut world, mut clock) = world();
            world.stamp(&mut clock);
            world.wall_at_0 = world.wall_at_0.checked_add_signed(step).unwrap();
            world.ns += CARRY_MAX + 1;
            assert_eq!(world.stamp(&mut clock), world.wall_at_0 + world.ns, "a step of {step} ns");
        }
    }

    #[test]
    fn an_error_of_the_rate_never_makes_time_stamps_decrease() {
        let (mut world, mut clock) = world();
        let mut last = 0;
        for _ in 0..10_000 {
            // The measured rate of the counter is a ten-thousandth too high.
            clock.rate = (1 << 32) / 3 / 10_000 * 10_001;
            let stamp = world.stamp(&mut clock);
            assert!(stamp >= last, "{stamp} after {last}");
            last = stamp;
            world.ns += 333;
        }
    }

    #[test]
    fn an_interrupted_reading_and_a_decreasing_counter_are_not_extrapolated() {
        let (mut world, mut clock) = world();
        world.ns += CARRY_MAX;
        let late = Reading { counts: [world.ns * 3, world.ns * 3 + 1_000_000], wall_ns: WALL + 1, mono_ns: world.ns };
        clock.take(late);
        world.readings = 0;
        world.stamp(&mut clock);
        assert_eq!(world.readings, 1, "the interrupted reading is not used");
        // After a suspend, the counter starts again from a low value.
        let back = Reading { counts: [10, 20], wall_ns: WALL + 9_000_000_000, mono_ns: world.ns + 5 };
        assert_eq!(clock.at(10, || back), WALL + 9_000_000_000);
        assert_eq!(
            clock.at(12, || Reading { wall_ns: WALL + 9_000_000_003, counts: [12, 22], ..back }),
            WALL + 9_000_000_003
        );
    }

    #[test]
    fn this_machines_stamps_are_within_a_carry_of_its_clock() {
        let clock = clock();
        let mut steps = 0;
        for _ in 0..200_000 {
            let (before, stamp, after) = (crate::engine::wall(), clock(), crate::engine::wall());
            let ns = |stamp: Stamp| stamp.to_unix().0 * 1_000_000_000 + u64::from(stamp.to_unix().1);
            // Other programs may take the CPU for any time between two readings, but not within one extrapolated stamp.
            if ns(stamp) + CARRY_MAX >= ns(before) && ns(stamp) <= ns(after) + CARRY_MAX {
                continue;
            }
            // The machine's clock was stepped. That is visible until the previous reading has expired.
            steps += 1;
            assert!(steps <= 3, "{before} {stamp} {after}");
            sys::clock::sleep_until(sys::clock::mono_now() + base::DurNs(2 * CARRY_MAX as i64));
        }
    }
}
