//! Control: a leaky integrator with a stroke limit for each actuator.

/// Settings that may change while the loop runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The loop is closed. If false, the mirror is flat.
    pub closed: bool,
    /// Share of each measured error that is subtracted.
    pub gain: f32,
    /// Share of each previous command that is kept.
    pub leak: f32,
}

impl Settings {
    /// Maximum gain. The minimum is 0.
    pub const GAIN_MAX: f32 = 2.0;
    /// Maximum leak. The minimum is 0.
    pub const LEAK_MAX: f32 = 1.0;

    /// Clamps gain and leak to their ranges. NaN becomes 0.
    #[must_use]
    pub fn bounded(self) -> Self {
        let within = |value: f32, most: f32| if value > 0.0 { value.min(most) } else { 0.0 };
        Self { closed: self.closed, gain: within(self.gain, Self::GAIN_MAX), leak: within(self.leak, Self::LEAK_MAX) }
    }
}

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Actuators at their limit.
    pub saturated: usize,
    /// The error was not finite, so the commands stayed unchanged.
    pub held: bool,
}

/// Integrator with one command per actuator, in nanometres.
#[derive(Clone, Debug)]
pub struct Integrator {
    commands: Vec<f32>,
    stroke: f32,
}

/// Smaller commands are set to zero. Otherwise they would decay to subnormal numbers, which are slow.
const NOTHING: f32 = 1e-20;

impl Integrator {
    /// A flat mirror with `actuators` actuators and a maximum stroke in each direction, in nanometres. Allocates.
    #[must_use]
    pub fn new(actuators: usize, stroke: f32) -> Self {
        Self { commands: vec![0.0; actuators], stroke: stroke.abs() }
    }

    /// Commands of all actuators, in nanometres.
    #[must_use]
    pub fn commands(&self) -> &[f32] {
        &self.commands
    }

    /// Sets all commands to 0.
    pub fn flatten(&mut self) {
        self.commands.fill(0.0);
    }

    /// Computes the next commands: `command·leak − gain·error`, clamped to the stroke. Nothing accumulates beyond the stroke, so an actuator
    /// leaves its limit as soon as the error changes sign. An error that is not finite changes nothing. Real-time: does not allocate.
    pub fn step(&mut self, error: &[f32], settings: Settings) -> Step {
        let Settings { closed, gain, leak } = settings.bounded();
        // The sum is zero only if all errors are finite.
        if !error.iter().map(|error| error * 0.0).sum::<f32>().eq(&0.0) {
            return Step { saturated: 0, held: true };
        }
        if !closed {
            self.commands.fill(0.0);
            return Step::default();
        }
        let mut saturated = 0;
        for (command, error) in self.commands.iter_mut().zip(error) {
            let next = *command * leak - gain * error;
            saturated += usize::from(next.abs() >= self.stroke);
            let next = next.clamp(-self.stroke, self.stroke);
            *command = if next.abs() < NOTHING { 0.0 } else { next };
        }
        Step { saturated, held: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { closed: true, gain: 0.5, leak: 1.0 };

    #[test]
    fn a_saturated_actuator_is_counted_and_recovers_as_soon_as_the_error_changes_sign() {
        let mut mirror = Integrator::new(2, 10.0);
        assert_eq!((0..100).map(|_| mirror.step(&[-4.0, 0.0], SETTINGS).saturated).sum::<usize>(), 96);
        assert_eq!(mirror.commands(), [10.0, 0.0]);
        assert_eq!(mirror.step(&[4.0, 0.0], SETTINGS), Step::default());
        assert_eq!(mirror.commands(), [8.0, 0.0]);
    }

    #[test]
    fn non_finite_errors_change_no_command_and_an_open_loop_is_flat() {
        let mut mirror = Integrator::new(2, 10.0);
        mirror.step(&[-4.0, 2.0], SETTINGS);
        for error in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(mirror.step(&[1.0, error], SETTINGS), Step { saturated: 0, held: true });
        }
        assert_eq!(mirror.commands(), [2.0, -1.0]);
        mirror.step(&[1.0, 1.0], Settings { closed: false, ..SETTINGS });
        assert_eq!(mirror.commands(), [0.0; 2]);
    }

    #[test]
    fn a_leak_reduces_the_command_to_zero_and_settings_are_bounded() {
        let mut mirror = Integrator::new(1, 10.0);
        mirror.step(&[-4.0], SETTINGS);
        (0..200).for_each(|_| _ = mirror.step(&[0.0], Settings { leak: 0.5, ..SETTINGS }));
        assert_eq!(mirror.commands(), [0.0]);
        let wild = Settings { closed: true, gain: f32::NAN, leak: 7.0 };
        assert_eq!(wild.bounded(), Settings { closed: true, gain: 0.0, leak: 1.0 });
    }
}
