//! A simulated axis: positions and speeds in steps, limit switches and a home switch. It moves without ramps.

use base::MonoNs;

/// Motion of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Motion {
    #[default]
    Idle,
    /// To a position, at a speed.
    To(f64, f64),
    /// At a speed, whose sign is the direction, until it is stopped.
    Jog(f64),
    /// To the home switch, at a speed. The position is then set to 0.
    Home(f64),
}

/// A simulated axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    position: f64,
    motion: Motion,
    /// Time of the position.
    at: MonoNs,
    /// Positions of the limit switches and of the home switch.
    low: f64,
    high: f64,
    home: f64,
    /// Whether the last motion had positive direction.
    pub(crate) is_forward: bool,
    /// Whether it was homed.
    pub(crate) is_homed: bool,
}

impl Default for Axis {
    fn default() -> Self {
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        let (is_forward, is_homed) = (true, false);
        Self { position: 0.0, motion: Motion::Idle, at: MonoNs(0), low, high, home: 0.0, is_forward, is_homed }
    }
}

/// An address that is none of an axis.
#[derive(Debug, thiserror::Error)]
#[error("found \"{0}\", expected \"@LOW HIGH HOME\" in steps with HOME between the limits")]
pub(crate) struct BadAxis(String);

impl Axis {
    /// An axis with an address such as `@-1000 1000 0`: the positions of both limit switches and of the home switch, in steps.
    /// An empty address has no limits.
    pub(crate) fn new(address: &str) -> Result<Self, BadAxis> {
        let words = address.trim().trim_start_matches('@').split_whitespace();
        let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
        match numbers.as_deref() {
            Ok([]) => Ok(Self::default()),
            Ok([low, high, home]) if low <= home && home <= high => {
                Ok(Self { low: *low, high: *high, home: *home, ..Self::default() })
            }
            _ => Err(BadAxis(address.to_owned())),
        }
    }

    pub(crate) const fn position(&self) -> f64 {
        self.position
    }

    /// Sets the position without motion. The switches stay where they are.
    pub(crate) fn load(&mut self, position: f64) {
        let shift = position - self.position;
        self.position = position;
        self.low += shift;
        self.high += shift;
        self.home += shift;
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.motion != Motion::Idle
    }

    pub(crate) fn at_low(&self) -> bool {
        self.position <= self.low
    }

    pub(crate) fn at_high(&self) -> bool {
        self.position >= self.high
    }

    pub(crate) fn at_home(&self) -> bool {
        self.position == self.home
    }

    pub(crate) fn go(&mut self, now: MonoNs, target: f64, speed: f64) {
        self.advance(now);
        self.is_forward = target >= self.position;
        self.motion = Motion::To(target, speed.max(f64::MIN_POSITIVE));
    }

    pub(crate) fn jog(&mut self, now: MonoNs, speed: f64) {
        self.advance(now);
        self.is_forward = speed >= 0.0;
        self.motion = Motion::Jog(speed);
    }

    pub(crate) fn home(&mut self, now: MonoNs, speed: f64) {
        self.advance(now);
        self.is_forward = self.home >= self.position;
        self.motion = Motion::Home(speed.max(f64::MIN_POSITIVE));
    }

    pub(crate) fn stop(&mut self, now: MonoNs) {
        self.advance(now);
        self.motion = Motion::Idle;
    }

    /// Current speed in steps per second.
    pub(crate) const fn speed(&self) -> f64 {
        match self.motion {
            Motion::Idle => 0.0,
            Motion::To(_, speed) | Motion::Home(speed) | Motion::Jog(speed) => speed,
        }
    }

    /// Seconds until the motion ends; infinite if it ends only at a limit that does not exist.
    pub(crate) fn time_left(&self) -> f64 {
        let target = match self.motion {
            Motion::Idle => self.position,
            Motion::To(target, _) => target,
            Motion::Home(_) => self.home,
            Motion::Jog(speed) if speed >= 0.0 => self.high,
            Motion::Jog(_) => self.low,
        };
        let way = (target.clamp(self.low, self.high) - self.position).abs();
        if way == 0.0 { 0.0 } else { way / self.speed().abs() }
    }

    /// Moves the axis to the present. A motion ends at its target and at the limit switches.
    pub(crate) fn advance(&mut self, now: MonoNs) {
        let seconds = (now.0.saturating_sub(self.at.0)) as f64 / 1e9;
        self.at = now;
        let (target, way) = match self.motion {
            Motion::Idle => return,
            Motion::To(target, speed) => (target, speed * seconds),
            Motion::Home(speed) => (self.home, speed * seconds),
            Motion::Jog(speed) => (if speed >= 0.0 { f64::INFINITY } else { f64::NEG_INFINITY }, speed.abs() * seconds),
        };
        let left = target - self.position;
        // The last steps of a rounded time count as done.
        let arrives = left.abs() <= way * (1.0 + 1e-9) + 1e-6;
        let next = if arrives { target } else { self.position + way.copysign(left) };
        self.position = next.clamp(self.low, self.high);
        if arrives || self.position != next {
            if arrives && matches!(self.motion, Motion::Home(_)) {
                self.load(0.0);
                self.is_homed = true;
            }
            self.motion = Motion::Idle;
        }
    }
}
