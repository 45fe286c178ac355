//! Frames whose time base is an edge that the kernel stamps: a pulse source at the emulator's parallel port, and
//! a GPIO line of a chip that the test simulates (the kernel's driver for the CP2112, over `uhid`).

mod served;

use frame::TimeBase;
use served::begins_a_minor_with_each_tick;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;

#[test]
fn each_pulse_of_a_source_of_time_begins_a_minor() {
    testkit::guest::required();
    // The control register of the first parallel port: select, init, interrupts on, strobe released. The emulator raises the
    // interrupt of the printer's acknowledge at each such write except the first.
    const CONTROL: u64 = 0x37a;
    let port = File::options().write(true).open("/dev/port").unwrap();
    let write = || port.write_all_at(&[0x1c], CONTROL).unwrap();
    write();
    begins_a_minor_with_each_tick("pps", TimeBase::Pps("/dev/pps0".to_owned()), |_| write());
}

#[test]
fn each_edge_of_a_gpio_line_begins_a_minor() {
    testkit::guest::required();
    let chip = Chip::plug_in();
    let base = |falling| TimeBase::Gpio { chip: chip.node.clone(), line: 3, falling };
    begins_a_minor_with_each_tick("rising", base(false), |_| {
        chip.set(true);
        chip.set(false);
    });
    // No frame monitors the line now.
    chip.levels.store(true, Ordering::SeqCst);
    begins_a_minor_with_each_tick("falling", base(true), |_| {
        chip.set(false);
        chip.set(true);
    });
}

/// A simulated CP2112, a USB chip with eight GPIO lines that its driver polls. A thread of the test answers for it.
struct Chip {
    node: String,
    levels: Arc<AtomicBool>,
    polls: Arc<AtomicU64>,
    unplug: File,
}

/// `linux/uhid.h`.
const DESTROY: u32 = 1;
const GET_REPORT: u32 = 9;
const GET_REPORT_REPLY: u32 = 10;
const CREATE: u32 = 11;
const SET_REPORT: u32 = 13;
const SET_REPORT_REPLY: u32 = 14;
const EVENT: usize = 4380;
/// The report with the levels of the lines.
const GPIO_GET: u8 = 3;
/// One report of 63 bytes without a meaning, as every HID device must have a report.
const DESCRIPTOR: [u8; 19] =
    [0x06, 0x00, 0xff, 0x09, 0x01, 0xa1, 0x01, 0x09, 0x01, 0x15, 0, 0x25, 0x7f, 0x75, 8, 0x95, 63, 0x81, 0x02];

impl Chip {
    fn plug_in() -> Self {
        let mut far = File::options().read(true).write(true).open("/dev/uhid").unwrap();
        let unplug = far.try_clone().unwrap();
        let before = nodes();
        let mut create = vec![0; EVENT];
        create[..4].copy_from_slice(&CREATE.to_ne_bytes());
        create[4..10].copy_from_slice(b"CP2112");
        let mut put = |at: usize, bytes: &[u8]| create[4 + at..][..bytes.len()].copy_from_slice(bytes);
        put(256, &(DESCRIPTOR.len() as u16 + 1).to_ne_bytes());
        put(258, &3u16.to_ne_bytes());
        put(260, &0x10c4u32.to_ne_bytes());
        put(264, &0xea90u32.to_ne_bytes());
        put(276, &DESCRIPTOR);
        put(276 + DESCRIPTOR.len(), &[0xc0]);
        far.write_all(&create).unwrap();
        let (levels, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        std::thread::spawn({
            let (levels, polls) = (levels.clone(), polls.clone());
            move || answer(&mut far, &levels, &polls)
        });
        let node = loop {
            if let Some(node) = nodes().into_iter().find(|node| !before.contains(node)) {
                break node;
            }
            yield_now();
        };
        Self { node, levels, polls, unplug }
    }

    /// Sets all lines, and waits until the driver has read them twice.
    fn set(&self, high: bool) {
        self.levels.store(high, Ordering::SeqCst);
        let seen = self.polls.load(Ordering::SeqCst);
        while self.polls.load(Ordering::SeqCst) < seen + 2 {
            yield_now();
        }
    }
}

impl Drop for Chip {
    fn drop(&mut self) {
        let mut destroy = vec![0; EVENT];
        destroy[..4].copy_from_slice(&DESTROY.to_ne_bytes());
        self.unplug.write_all(&destroy).unwrap();
    }
}

fn nodes() -> Vec<String> {
    let entries = fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path().display().to_string());
    entries.filter(|path| path.starts_with("/dev/gpiochip")).collect()
}

/// Answers the driver's requests until the chip is unplugged.
fn answer(far: &mut File, levels: &AtomicBool, polls: &AtomicU64) {
    let mut event = vec![0; EVENT];
    while far.read(&mut event).is_ok() {
        let kind = u32::from_ne_bytes(event[..4].try_into().unwrap());
        let (id, report) = (event[4..8].to_vec(), event[8]);
        let mut reply = vec![0; EVENT];
        let kind = match kind {
            GET_REPORT => GET_REPORT_REPLY,
            SET_REPORT => SET_REPORT_REPLY,
            _ => continue,
        };
        reply[..4].copy_from_slice(&kind.to_ne_bytes());
        reply[4..8].copy_from_slice(&id);
        if kind == GET_REPORT_REPLY {
            // The maximum length that the driver may request. It uses what it needs.
            reply[10..12].copy_from_slice(&64u16.to_ne_bytes());
            reply[12] = report;
            if report == GPIO_GET {
                reply[13] = if levels.load(Ordering::SeqCst) { 0xff } else { 0 };
                polls.fetch_add(1, Ordering::SeqCst);
            }
        }
        if far.write_all(&reply).is_err() {
            return;
        }
    }
}
