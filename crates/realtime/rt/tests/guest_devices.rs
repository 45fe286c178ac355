//! Devices of the emulator, driven from user space: `edu` (`docs/specs/edu.rst` of QEMU) and the doorbell of `ivshmem`.

mod served;

use base::{CpuSet, DurNs};
use host::plan::{Placed, Want};
use keep::{RunDir, shield};
use rt::Wait;
use rt::device::{Signal, Uio, Vfio, await_interrupt};
use std::fs;
use sys::root::RootDir;
use testkit::guest::Bound;

const LIMIT: DurNs = DurNs::from_secs(30);

/// Number of interrupts of `device` on each CPU.
fn counts(device: &str) -> Vec<u64> {
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let table = proc::interrupts::Interrupts::parse(&text).unwrap();
    let row = table
        .rows
        .iter()
        .find(|row| row.actions().any(|action| action.contains(device)))
        .expect("the device has a row");
    row.counts.clone()
}

/// Shields `cpu` with the interrupt of `device` on it, as an operator does. `ring` raises the interrupt several times.
fn placed_on_its_handlers_cpu(device: &str, cpu: u16, mut ring: impl FnMut()) {
    let (root, dir) = (RootDir::machine(), RunDir::from_env());
    let affinity = || keep::machine::snapshot(&root, &CpuSet::single(cpu)).unwrap();
    let asked = |snapshot: &host::snapshot::Snapshot| {
        let found = snapshot.irqs.iter().find(|(key, _)| key.0.contains(device)).expect("it has a handler");
        found.1.requested
    };
    let before = asked(&affinity());
    let irqs = vec![Placed { words: device.to_owned(), cpu }];
    let want = Want { cpus: CpuSet::single(cpu), irqs, own: shield::own_processes(), ..Want::default() };
    let applied = shield::apply(&root, &want, &dir).unwrap();
    let placed = asked(&affinity());
    // The chip may still deliver one interrupt to the previous CPU.
    ring();
    let counted = counts(device);
    (0..20).for_each(|_| ring());
    let moved: Vec<u64> = counts(device).iter().zip(&counted).map(|(now, was)| now - was).collect();
    let released = shield::release(&root, &dir, false).unwrap();
    assert_eq!(placed, CpuSet::single(cpu), "{applied:?}");
    assert!(moved[usize::from(cpu)] >= 20 && moved.iter().sum::<u64>() == moved[usize::from(cpu)], "{moved:?}");
    assert_eq!(asked(&affinity()), before, "{released:?}");
}

mod edu {
    use super::*;

    const IDENTITY: usize = 0;
    const LIVE: usize = 4;
    const RAISE: usize = 0x60;
    const ACKNOWLEDGE: usize = 0x64;

    #[test]
    fn a_device_has_registers_and_pin_interrupts_through_uio() {
        let bound = Bound::edu("uio_pci_generic");
        let device = Uio::open(&Uio::node_of(&bound.address).unwrap()).unwrap();
        assert_eq!(device.driver(), "uio_pci_generic");
        let registers = device.bar(0).unwrap();
        let register = |at| registers.register::<u32>(at).unwrap();
        assert_eq!(register(IDENTITY).read() & 0xffff, 0x00ed);
        register(LIVE).write(0x1234_5678);
        assert_eq!(register(LIVE).read(), !0x1234_5678);
        let (raise, acknowledge) = (register(RAISE), register(ACKNOWLEDGE));
        for (how, times) in [(Wait::Sleep, 50), (Wait::Both { spin: DurNs::from_us(500) }, 50)] {
            for time in 0..times {
                device.enable().unwrap();
                raise.write(1);
                let came = await_interrupt(&device, how, LIMIT).unwrap();
                assert!(came.is_some(), "interrupt {time} with {how:?}");
                acknowledge.write(1);
            }
        }
        device.enable().unwrap();
        assert_eq!(await_interrupt(&device, Wait::Sleep, DurNs::from_ms(20)), Ok(None), "no interrupt");
        placed_on_its_handlers_cpu("uio_pci_generic", 2, || {
            device.enable().unwrap();
            raise.write(1);
            assert!(await_interrupt(&device, Wait::Sleep, LIMIT).unwrap().is_some());
            acknowledge.write(1);
        });
    }

    #[test]
    fn a_device_has_message_interrupts_through_vfio_with_an_iommu() {
        let bound = Bound::edu("vfio-pci");
        let device = Vfio::open(&bound.address).unwrap();
        assert!(device.bar(5).is_err(), "it has one region");
        let registers = device.bar(0).unwrap();
        let register = |at| registers.register::<u32>(at).unwrap();
        assert_eq!(register(IDENTITY).read() & 0xffff, 0x00ed);
        assert_eq!(device.messages(Signal::Msi).unwrap(), 1);
        let message = device.message(Signal::Msi, 0).unwrap();
        device.master_bus().unwrap();
        let (raise, acknowledge) = (register(RAISE), register(ACKNOWLEDGE));
        for how in [Wait::Sleep, Wait::Spin] {
            for time in 0..50 {
                raise.write(1);
                assert_eq!(await_interrupt(&message, how, LIMIT), Ok(Some(1)), "interrupt {time} with {how:?}");
                acknowledge.write(1);
            }
        }
        assert_eq!(await_interrupt(&message, Wait::Sleep, DurNs::from_ms(20)), Ok(None), "no interrupt");
        placed_on_its_handlers_cpu(&format!("({})", bound.address), 3, || {
            raise.write(1);
            assert_eq!(await_interrupt(&message, Wait::Sleep, LIMIT), Ok(Some(1)));
            acknowledge.write(1);
        });
    }

    #[test]
    fn a_pin_interrupt_through_vfio_occurs_once_until_it_is_unmasked() {
        let bound = Bound::edu("vfio-pci");
        let device = Vfio::open(&bound.address).unwrap();
        assert!(device.unmask().is_err(), "it is not switched on");
        assert_eq!(device.messages(Signal::Pin).unwrap(), 1);
        let pin = device.message(Signal::Pin, 0).unwrap();
        let registers = device.bar(0).unwrap();
        let (raise, acknowledge) =
            (registers.register::<u32>(RAISE).unwrap(), registers.register::<u32>(ACKNOWLEDGE).unwrap());
        for time in 0..50 {
            raise.write(1);
            assert_eq!(await_interrupt(&pin, Wait::Sleep, LIMIT), Ok(Some(1)), "interrupt {time}");
            // The interrupt is still asserted, and masked.
            assert_eq!(await_interrupt(&pin, Wait::Sleep, DurNs::from_ms(1)), Ok(None), "after interrupt {time}");
            acknowledge.write(1);
            device.unmask().unwrap();
        }
    }

    #[test]
    fn a_device_copies_mapped_memory_and_reaches_no_other() {
        const FROM: usize = 0x80;
        const TO: usize = 0x88;
        const COUNT: usize = 0x90;
        const COMMAND: usize = 0x98;
        const BUFFER: u64 = 0x4_0000;
        const PAGE: usize = 4096;
        // QEMU aborts if the device's buffer is filled to its last byte.
        const COPIED: usize = PAGE / 2;
        // Within the device's 28 address bits.
        const OURS: u64 = 0x10_0000;
        let bound = Bound::edu("vfio-pci");
        let device = Vfio::open(&bound.address).unwrap();
        let message = device.message(Signal::Msi, 0).unwrap();
        device.master_bus().unwrap();
        let registers = device.bar(0).unwrap();
        let acknowledge = registers.register::<u32>(ACKNOWLEDGE).unwrap();
        let copy = |from: u64, to: u64, out: bool| {
            for (at, value) in [(FROM, from), (TO, to), (COUNT, COPIED as u64), (COMMAND, if out { 7 } else { 5 })] {
                registers.register::<u64>(at).unwrap().write(value);
            }
            assert_eq!(await_interrupt(&message, Wait::Sleep, LIMIT), Ok(Some(1)));
            acknowledge.write(0x100);
        };
        let memory = device.memory(OURS, 2 * PAGE).unwrap();
        assert_eq!((memory.at(), memory.region().bytes()), (OURS, 2 * PAGE));
        let word = |at: usize| memory.region().register::<u64>(at).unwrap();
        (0..COPIED).step_by(8).for_each(|at| word(at).write(at as u64 * 3 + 1));
        copy(OURS, BUFFER, false);
        copy(BUFFER, OURS + PAGE as u64, true);
        assert!((0..COPIED).step_by(8).all(|at| word(PAGE + at).read() == at as u64 * 3 + 1));
        for (at, bytes, why) in
            [(OURS, PAGE, "File exists"), (2 * OURS, 100, "Invalid"), (2 * OURS + 8, PAGE, "Invalid")]
        {
            let refusal = device.memory(at, bytes).unwrap_err().to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
        // Unmapped addresses: the device reads and writes nothing, and no longer reaches the released memory.
        drop(memory);
        let again = device.memory(OURS, PAGE).unwrap();
        copy(BUFFER, OURS + PAGE as u64, true);
        let first = again.region().register::<u64>(0).unwrap();
        assert_eq!(first.read(), 0);
        copy(BUFFER, OURS, true);
        assert_ne!(first.read(), 0);
    }
}

mod frame_on_it {
    use super::*;
    use frame::TimeBase;
    use std::os::fd::AsFd as _;

    #[test]
    fn each_message_interrupt_begins_a_minor() {
        let bound = Bound::edu("vfio-pci");
        let device = Vfio::open(&bound.address).unwrap();
        let message = device.message(Signal::Msi, 0).unwrap();
        device.master_bus().unwrap();
        let registers = device.bar(0).unwrap();
        let (raise, acknowledge) = (registers.register::<u32>(0x60).unwrap(), registers.register::<u32>(0x64).unwrap());
        let mut handed = false;
        served::begins_a_minor_with_each_tick("vfio", TimeBase::Eventfd, |served| {
            if !std::mem::replace(&mut handed, true) {
                rt::frames::hand_trigger(&served.name, message.as_fd()).unwrap();
            }
            acknowledge.write(1);
            raise.write(1);
        });
        acknowledge.write(1);
    }
}

mod frame_on_a_pin {
    use super::*;
    use frame::TimeBase;
    use std::os::fd::AsFd as _;

    /// The device's interrupt begins minors. As in an activity, it is acknowledged and enabled again after each.
    #[test]
    fn each_interrupt_of_a_pin_begins_one_minor() {
        let bound = Bound::edu("uio_pci_generic");
        let node = Uio::node_of(&bound.address).unwrap();
        let device = Uio::open(&node).unwrap();
        let registers = device.bar(0).unwrap();
        let (raise, acknowledge) = (registers.register::<u32>(0x60).unwrap(), registers.register::<u32>(0x64).unwrap());
        let again = || {
            acknowledge.write(1);
            device.enable().unwrap();
            raise.write(1);
        };
        served::begins_a_minor_with_each_tick("uio", TimeBase::Device(format!("/dev/{node}")), |_| again());
        let mut handed = false;
        served::begins_a_minor_with_each_tick("handed", TimeBase::Eventfd, |served| {
            if !std::mem::replace(&mut handed, true) {
                // Clear the interrupts of the previous frame.
                let _ = device.look().unwrap();
                rt::frames::hand_trigger(&served.name, device.as_fd()).unwrap();
            }
            again();
        });
        acknowledge.write(1);
    }
}

mod ivshmem {
    use super::*;

    /// Registers of the device, and the peer that simulates the other machine.
    const POSITION: usize = 8;
    const DOORBELL: usize = 12;
    const PEER: u32 = 1;

    #[test]
    fn a_doorbell_rings_another_machine_and_it_rings_back() {
        let bound = Bound::to("vfio-pci", "1af4", "1110");
        let device = Vfio::open(&bound.address).unwrap();
        assert!(device.messages(Signal::MsiX).unwrap() >= 1);
        let message = device.message(Signal::MsiX, 0).unwrap();
        device.master_bus().unwrap();
        let (registers, memory) = (device.bar(0).unwrap(), device.bar(2).unwrap());
        assert_eq!(registers.register::<u32>(POSITION).unwrap().read(), 0);
        let doorbell = registers.register::<u32>(DOORBELL).unwrap();
        let word = memory.register::<u64>(0).unwrap();
        for round in 1..=100 {
            word.write(round);
            doorbell.write(PEER << 16);
            assert!(await_interrupt(&message, Wait::Sleep, LIMIT).unwrap().is_some(), "round {round}");
            assert_eq!(word.read(), round + 1_000_000, "the other machine has answered");
        }
    }
}
