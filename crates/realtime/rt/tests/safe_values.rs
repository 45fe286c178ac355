//! Variables of an activity that misbehaves: their safe values replace its own until it behaves again.

mod served;

use base::{DurNs, Lateness, ResultDeadline};
use frame::{Activity, Recovery, Spec, TimeBase};
use rt::frames::{Member, Watcher, trigger};
use rt::{Exports, Imports, Number, VariableSpec};
use served::{PATIENCE, Served, Triggered};

/// A frame with a software trigger. Its only activity exports `drive`, with the normal value 1 and the safe value 0.
struct Bench {
    served: Served,
    exports: Exports,
    imports: Imports,
}

impl Bench {
    fn new(what: &str, minor: DurNs, deadline: Option<ResultDeadline>) -> Self {
        let name = format!("test{}/{what}", std::process::id());
        let control = Activity::new("control", Some(DurNs::from_us(100)), 0..1);
        let control = Activity { recovery: Recovery::SafeValue, deadline, ..control };
        let spec = Spec { base: TimeBase::Software, ..Spec::new(&name, vec![minor], vec![control]) };
        let served = Served::serving(spec, PATIENCE, &[]);
        let exported = format!("{what}-{}", std::process::id());
        let exports = Exports::open(&exported, 1).unwrap();
        let spec = VariableSpec { name: "drive", unit: "V", first: Number::Float(1.0), safe: Some(Number::Float(0.0)) };
        exports.add(&spec).unwrap();
        Self { served, exports, imports: Imports::open(&exported).unwrap() }
    }

    fn join(&self) -> Member {
        Member::join(&self.served.name, "control", Some(&self.exports), PATIENCE).unwrap()
    }

    /// The variable's value, and whether it is the safe one.
    fn drive(&self) -> (f64, bool) {
        let read = self.imports.get("drive").unwrap();
        let Number::Float(value) = read.value else { panic!("{:?}", read.value) };
        (value, read.safe)
    }

    /// Takes turns until the activity's own values are used again.
    fn behaves(&self, member: &mut Member) {
        while self.drive().1 {
            member.next_turn().unwrap();
        }
    }
}

#[test]
fn safe_values_replace_the_variables_of_an_activity_that_fails() {
    let bench = Bench::new("safe2", DurNs::from_ms(2), None);
    let mut member = bench.join();
    let period = bench.imports.segment().unwrap().period();
    assert_eq!(period, Some(DurNs::from_ms(2)), "the frame exports its period");
    trigger(&bench.served.name).unwrap();
    member.next_turn().unwrap();
    assert_eq!(bench.drive(), (1.0, false));
    // The next minor begins during the call. One trigger alone may come so late that the frame begins anew with it.
    let _triggered = Triggered::start(&bench.served.name);
    bench.served.until("safe values are active", || bench.drive() == (0.0, true));
    // Two minors later the activity behaves again.
    bench.behaves(&mut member);
}

#[test]
fn safe_values_apply_from_a_late_result_of_an_activity_to_the_next_one_in_time() {
    let deadline = ResultDeadline { at: DurNs::from_ms(300), late: Lateness::Hard };
    let bench = Bench::new("hard", DurNs::from_secs(1), Some(deadline));
    let mut member = bench.join();
    trigger(&bench.served.name).unwrap();
    let turn = member.next_turn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(310));
    assert!(turn.is_void(sys::clock::mono_now()) && !bench.drive().1, "its call continues");
    let _triggered = Triggered::start(&bench.served.name);
    member.next_turn().unwrap();
    assert!(bench.drive().1, "the call has ended, late");
    bench.behaves(&mut member);
    let watcher = Watcher::open(&bench.served.name).unwrap();
    let (tally, missed) = (watcher.page().tally(0).unwrap(), watcher.page().hard_misses(0));
    assert!(tally.late >= 1 && tally.due > tally.late && missed >= tally.late, "{tally:?} {missed}");
    assert_eq!(tally.worth % 1_000_000, 0, "a hard result has its whole value or zero");
}
