//! A program in C drives QEMU's educational device.

mod separate;

use std::fs;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: rt::Counting = rt::Counting;

/// The educational device, bound to a driver for user space until it is dropped.
struct Bound {
    driver: String,
    address: String,
}

impl Bound {
    const ID: &'static str = "1234 11e8";

    fn to(driver: &str) -> Self {
        let is = |folder: &str, file: &str, wanted: &str| {
            fs::read_to_string(format!("{folder}/{file}")).is_ok_and(|text| text.trim() == wanted)
        };
        let mut devices = fs::read_dir("/sys/bus/pci/devices").unwrap().map(|entry| entry.unwrap().path());
        let found = devices.find(|path| {
            let folder = path.display().to_string();
            is(&folder, "vendor", "0x1234") && is(&folder, "device", "0x11e8")
        });
        let address = found.expect("the guest has this device").file_name().unwrap().display().to_string();
        fs::write(format!("/sys/bus/pci/drivers/{driver}/new_id"), Self::ID).unwrap();
        Self { driver: driver.to_owned(), address }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let driver = format!("/sys/bus/pci/drivers/{}", self.driver);
        fs::write(format!("{driver}/remove_id"), Self::ID).unwrap();
        fs::write(format!("{driver}/unbind"), &self.address).unwrap();
    }
}

#[test]
fn a_program_in_c_drives_a_device_through_uio_and_through_vfio() {
    testkit::guest::required();
    let program = separate::compiled("device");
    for (how, driver) in [("uio", "uio_pci_generic"), ("vfio", "vfio-pci"), ("pin", "vfio-pci")] {
        let bound = Bound::to(driver);
        let output = Command::new(&*program).args([how, &bound.address]).output().unwrap();
        assert!(output.status.success(), "{how}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("the kind of interrupt is 7; expected TAHTI_MSI, TAHTI_MSIX or TAHTI_PIN"), "{said}");
    }
}
