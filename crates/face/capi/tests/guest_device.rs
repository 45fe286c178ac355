//! A program in C drives QEMU's educational device.

mod separate;

use std::process::Command;
use testkit::guest::Bound;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

#[test]
fn a_program_in_c_drives_a_device_through_uio_and_through_vfio() {
    testkit::guest::required();
    let program = separate::compiled("device");
    for (how, driver) in [("uio", "uio_pci_generic"), ("vfio", "vfio-pci"), ("pin", "vfio-pci")] {
        let bound = Bound::edu(driver);
        let output = Command::new(&*program).args([how, &bound.address]).output().unwrap();
        assert!(output.status.success(), "{how}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("the kind of interrupt is 7; expected TAHTI_MSI, TAHTI_MSIX or TAHTI_PIN"), "{said}");
    }
}
