//! Control: an integrator for each actuator, with a leak and a bound.

/// What may be changed while the loop runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Whether the mirror follows; else it is flat.
    pub closed: bool,
    /// Of each measured error this share is taken off.
    pub gain: f32,
    /// Of each command this share is kept.
    pub leak: f32,
}

impl Settings {
    /// The largest gain; the least is 0.
    pub const GAIN_MAX: f32 = 2.0;
    /// The largest leak; the least is 0.
    pub const LEAK_MAX: f32 = 1.0;

    /// The same, each within what it can be; what is no number becomes the least.
    #[must_use]
    pub fn bounded(self) -> Self {
        let within = |value: f32, most: f32| if value > 0.0 { value.min(most) } else { 0.0 };
        Self { closed: self.closed, gain: within(self.gain, Self::GAIN_MAX), leak: within(self.leak, Self::LEAK_MAX) }
    }
}

/// How a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Actuators at their bound.
    pub saturated: usize,
    /// Whether the error was not finite: the commands are as before.
    pub held: bool,
}

/// A command for each actuator, in nanometres.
#[derive(Clone, Debug)]
pub struct Integrator {
    commands: Vec<f32>,
    stroke: f32,
}

/// A command below this is nothing: it must not decay into numbers that take the CPU long.
const NOTHING: f32 = 1e-20;

impl Integrator {
    /// A flat mirror with so many actuators, each of which goes so far, in nanometres, up and down. Allocates.
    #[must_use]
    pub fn new(actuators: usize, stroke: f32) -> Self {
        Self { commands: vec![0.0; actuators], stroke: stroke.abs() }
    }

    /// The commands.
    #[must_use]
    pub fn commands(&self) -> &[f32] {
        &self.commands
    }

    /// Puts all actuators to 0.
    pub fn flatten(&mut self) {
        self.commands.fill(0.0);
    }

    /// The next commands: `command·leak − gain·error`, within the stroke. What is beyond is not remembered, so an actuator leaves its bound as
    /// soon as the error turns. An error that is not finite changes nothing. Real-time: allocates nothing.
    pub fn step(&mut self, error: &[f32], settings: Settings) -> Step {
        let Settings { closed, gain, leak } = settings.bounded();
        // The sum is finite only where all are.
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
    fn an_actuator_at_its_bound_is_counted_and_leaves_it_as_soon_as_the_error_turns() {
        let mut mirror = Integrator::new(2, 10.0);
        assert_eq!((0..100).map(|_| mirror.step(&[-4.0, 0.0], SETTINGS).saturated).sum::<usize>(), 96);
        assert_eq!(mirror.commands(), [10.0, 0.0]);
        assert_eq!(mirror.step(&[4.0, 0.0], SETTINGS), Step::default());
        assert_eq!(mirror.commands(), [8.0, 0.0]);
    }

    #[test]
    fn what_is_not_finite_changes_nothing_and_an_open_loop_is_flat() {
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
    fn a_leak_forgets_down_to_nothing_and_settings_are_bounded() {
        let mut mirror = Integrator::new(1, 10.0);
        mirror.step(&[-4.0], SETTINGS);
        (0..200).for_each(|_| _ = mirror.step(&[0.0], Settings { leak: 0.5, ..SETTINGS }));
        assert_eq!(mirror.commands(), [0.0]);
        let wild = Settings { closed: true, gain: f32::NAN, leak: 7.0 };
        assert_eq!(wild.bounded(), Settings { closed: true, gain: 0.0, leak: 1.0 });
    }
}
