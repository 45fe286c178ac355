//! A real watchdog device, which every test guest has (i6300esb). Opening it starts its timer, so this test never runs on
//! a shared machine.

use base::DurNs;
use keep::watchdog::Watchdog;
use std::path::Path;

#[test]
fn a_real_watchdog_accepts_its_timeout_is_petted_and_disarmed() {
    testkit::guest::required();
    let device = Path::new("/dev/watchdog0");
    let (dog, shortfall) = Watchdog::open(device, DurNs::from_secs(20)).unwrap();
    assert_eq!((shortfall, dog.timeout()), (None, DurNs::from_secs(20)));
    dog.pet().unwrap();
    dog.disarm().unwrap();
    // The watchdog is stopped: it can be opened again, and the machine still runs.
    Watchdog::open(device, DurNs::from_secs(20)).unwrap().0.disarm().unwrap();
}
