//! A real watchdog device, which every test guest has (i6300esb). Opening it starts its clock: never on a
//! machine that others use.

use base::DurNs;
use keep::watchdog::{DeadMan, Round};
use std::path::Path;

#[test]
fn a_real_watchdog_takes_its_timeout_is_petted_and_halted() {
    let device = Path::new("/dev/watchdog0");
    let (mut man, shortfall) = DeadMan::open(device, DurNs::from_secs(20)).unwrap();
    assert_eq!((shortfall, man.timeout()), (None, DurNs::from_secs(20)));
    man.depend_on("loop", Box::new(|| 1), DurNs::from_ms(1));
    assert_eq!(man.round(base::MonoNs(0)), Ok(Round::Petted));
    assert!(matches!(man.round(base::MonoNs(5_000_000)), Ok(Round::Withheld(_))));
    man.release("loop");
    man.stop().unwrap();
    // Halted: it can be opened again, and the machine still runs.
    DeadMan::open(device, DurNs::from_secs(20)).unwrap().0.stop().unwrap();
}
