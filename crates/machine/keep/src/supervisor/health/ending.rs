//! The end of a process that was asked to end.

use host::health::Observation;
use host::plant::Signal;
use host::supervise::{Cause, End, Unit};

/// Shells add this to the number of the signal that ended their command, as their own exit status.
const BY_SIGNAL: i32 = 128;

/// Observes the last end of a process: 0 or a signal of its stop sequence if it was asked to end.
pub(super) fn stops(unit: &Unit) -> Observation {
    let Some((_, Cause::Asked(end))) = &unit.history.ended else {
        return Observation::NotDue("it was not asked to end".to_owned());
    };
    let is_sent = |number: i32| unit.spec.stop.iter().any(|step| i32::from(step.signal.0) == number);
    let is_by_signal = |code: i32| code.checked_sub(BY_SIGNAL).is_some_and(is_sent);
    match *end {
        End::Exit(0) => Observation::Kept,
        End::Exit(code) if is_by_signal(code) => Observation::Kept,
        End::Signal(signal) if is_sent(signal.0.into()) => Observation::Kept,
        End::Signal(Signal::KILL) => {
            Observation::Within("it did not end within its stop sequence; SIGKILL ended it".to_owned())
        }
        end => Observation::Within(format!("it was asked to end, and ended with {end}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::MonoNs;
    use host::plant::{Anywhere, check};
    use host::supervise::Supervision;

    fn ended(stop: &str, cause: Option<Cause>) -> Observation {
        let text = format!("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = \"x\"\n{stop}\n");
        let plant = check(&text, &Anywhere).plant.unwrap();
        let mut unit = Supervision::new(&plant).units()[0].clone();
        unit.history.ended = cause.map(|cause| (MonoNs(1), cause));
        stops(&unit)
    }

    #[test]
    fn a_process_that_needs_sigkill_or_reports_an_error_when_it_is_asked_to_end_degrades_the_plant() {
        let asked = |stop: &str, end: End| ended(stop, Some(Cause::Asked(end)));
        for end in [End::Exit(0), End::Exit(143), End::Signal(Signal::TERM)] {
            assert_eq!(asked("", end), Observation::Kept, "{end}");
        }
        assert_eq!(asked("stop = [\"TERM 1s\", \"KILL 1s\"]", End::Signal(Signal::KILL)), Observation::Kept);
        for (end, text) in [
            (End::Signal(Signal::KILL), "it did not end within its stop sequence; SIGKILL ended it"),
            (End::Exit(9), "it was asked to end, and ended with exit 9"),
            (End::Exit(130), "it was asked to end, and ended with exit 130"),
            (End::Exit(i32::MIN), "it was asked to end, and ended with exit -2147483648"),
        ] {
            assert_eq!(asked("", end), Observation::Within(text.to_owned()));
        }
        for cause in [None, Some(Cause::Own(End::Exit(9)))] {
            assert!(matches!(ended("", cause), Observation::NotDue(_)));
        }
    }
}
