//! A real watchdog device: for machines that have one, such as the test guests with softdog or i6300esb.
//! Run only where `TAHTI_WATCHDOG` names the device: opening it starts its clock.

use base::DurNs;
use keep::watchdog::{DeadMan, Round};
use std::path::Path;

#[test]
fn a_real_watchdog_takes_its_timeout_is_petted_and_halted() {
    assert!(rustix::process::geteuid().is_root(), "this test must run as root (--unprivileged leaves it out)");
    let device = std::env::var("TAHTI_WATCHDOG").expect("TAHTI_WATCHDOG must name the device to be tested");
    let (mut man, shortfall) = DeadMan::open(Path::new(&device), DurNs::from_secs(20)).unwrap();
    assert_eq!((shortfall, man.timeout()), (None, DurNs::from_secs(20)));
    man.depend_on("loop", Box::new(|| 1), DurNs::from_ms(1));
    assert_eq!(man.round(base::MonoNs(0)), Ok(Round::Petted));
    assert!(matches!(man.round(base::MonoNs(5_000_000)), Ok(Round::Withheld(_))));
    man.release("loop");
    man.stop().unwrap();
    // Halted: it can be opened again, and the machine still runs.
    DeadMan::open(Path::new(&device), DurNs::from_secs(20)).unwrap().0.stop().unwrap();
}
