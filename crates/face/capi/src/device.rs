//! User-space device access for C.

use crate::{Failed, answer, handle, open, text};
use base::DurNs;
use rt::Wait;
use rt::device::{DeviceMemory, Message, Region, Signal, Uio, Vfio, await_interrupt};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _};

/// A device, as C holds it.
#[allow(non_camel_case_types, reason = "the name in tahti.h")]
#[derive(Debug)]
pub struct tahti_device {
    held: DeviceHandle,
    /// The mapped registers. They stay mapped while the handle exists.
    regions: Vec<(u32, Region)>,
    /// Memory that the device may access. It stays assigned to the device while the handle exists.
    memory: Vec<DeviceMemory>,
}

#[derive(Debug)]
enum DeviceHandle {
    Uio(Uio),
    Vfio(Vfio, Signal, Message),
}

impl From<DeviceHandle> for tahti_device {
    fn from(held: DeviceHandle) -> Self {
        Self { held, regions: vec![], memory: vec![] }
    }
}

/// See `tahti.h`.
///
/// # Safety
/// `device` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_uio_open(device: *const c_char) -> *mut tahti_device {
    let open = || {
        // SAFETY: the caller's promise.
        let device = unsafe { text("the device", device) }?;
        let node = match device.contains(':') {
            true => Uio::node_of(device)?,
            false => device.to_owned(),
        };
        let uio = Uio::open(&node)?;
        Ok(DeviceHandle::Uio(uio).into())
    };
    handle(open())
}

/// See `tahti.h`.
///
/// # Safety
/// `address` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_vfio_open(address: *const c_char, kind: u32, message: u32) -> *mut tahti_device {
    let open = || {
        // SAFETY: the caller's promise.
        let address = unsafe { text("the address", address) }?;
        let signal = match kind {
            1 => Signal::Msi,
            2 => Signal::MsiX,
            3 => Signal::Pin,
            other => {
                return Err(
                    format!("the kind of interrupt is {other}; expected TAHTI_MSI, TAHTI_MSIX or TAHTI_PIN").into()
                );
            }
        };
        let opened = || {
            let device = Vfio::open(address)?;
            let message = device.message(signal, message)?;
            device.master_bus()?;
            Ok::<_, sys::Error>(DeviceHandle::Vfio(device, signal, message))
        };
        opened().map(tahti_device::from).map_err(Failed::from)
    };
    handle(open())
}

/// See `tahti.h`.
///
/// # Safety
/// `device` is a handle; `bytes` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_device_registers(device: *mut tahti_device, bar: u32, bytes: *mut u64) -> *mut c_void {
    let map = || {
        // SAFETY: the caller's promise.
        let device = unsafe { open(device) }?;
        let region = match device.regions.iter().find(|(of, _)| *of == bar) {
            Some((_, region)) => region.clone(),
            None => {
                let mapped = match &device.held {
                    DeviceHandle::Uio(uio) => uio.bar(bar as usize),
                    DeviceHandle::Vfio(vfio, ..) => vfio.bar(bar),
                };
                let region = mapped?;
                device.regions.push((bar, region.clone()));
                region
            }
        };
        // SAFETY: NULL, or the caller's promise.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = region.bytes() as u64;
        }
        Ok(region.address().cast())
    };
    map().unwrap_or_else(|why: Failed| {
        crate::fail(&why.0);
        std::ptr::null_mut()
    })
}

/// See `tahti.h`.
///
/// # Safety
/// `device` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_device_memory(device: *mut tahti_device, at: u64, bytes: u64) -> *mut c_void {
    let give = || {
        // SAFETY: the caller's promise.
        let device = unsafe { open(device) }?;
        let DeviceHandle::Vfio(vfio, ..) = &device.held else {
            return Err("a UIO device has no memory for DMA; expected a device of tahti_vfio_open".into());
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = vfio.memory(at, bytes)?;
        let address = memory.region().address();
        device.memory.push(memory);
        Ok(address.cast())
    };
    give().unwrap_or_else(|why: Failed| {
        crate::fail(&why.0);
        std::ptr::null_mut()
    })
}

/// See `tahti.h`.
///
/// # Safety
/// `device` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_device_enable(device: *mut tahti_device) -> c_int {
    let enable = || {
        // SAFETY: the caller's promise.
        let enabled = match &unsafe { open(device) }?.held {
            DeviceHandle::Uio(uio) => uio.enable(),
            DeviceHandle::Vfio(vfio, Signal::Pin, _) => vfio.unmask(),
            DeviceHandle::Vfio(..) => Ok(()),
        };
        enabled.map(|()| 0).map_err(|errno| format!("its interrupt cannot be enabled: {errno}").into())
    };
    answer(enable())
}

/// See `tahti.h`.
///
/// # Safety
/// `device` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_device_wait(device: *mut tahti_device, spin_ns: u64, within_ns: i64) -> c_int {
    let wait = || {
        // SAFETY: the caller's promise.
        let held = &unsafe { open(device) }?.held;
        let how = match spin_ns {
            0 => Wait::Sleep,
            u64::MAX => Wait::Spin,
            spin => Wait::Both { spin: DurNs(i64::try_from(spin).unwrap_or(i64::MAX)) },
        };
        // A hundred years: no limit.
        let limit = if within_ns < 0 { DurNs::from_secs(100 * 365 * 86_400) } else { DurNs(within_ns) };
        let came = match held {
            DeviceHandle::Uio(uio) => await_interrupt(uio, how, limit),
            DeviceHandle::Vfio(.., message) => await_interrupt(message, how, limit),
        };
        came.map(|came| c_int::from(came.is_some())).map_err(|errno| format!("the device was removed: {errno}").into())
    };
    answer(wait())
}

/// See `tahti.h`.
///
/// # Safety
/// `device` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_device_fd(device: *mut tahti_device) -> c_int {
    let fd = || {
        // SAFETY: the caller's promise.
        Ok(match &unsafe { open(device) }?.held {
            DeviceHandle::Uio(uio) => uio.as_fd().as_raw_fd(),
            DeviceHandle::Vfio(.., message) => message.as_fd().as_raw_fd(),
        })
    };
    answer(fd())
}

/// See `tahti.h`.
///
/// # Safety
/// `device` is NULL or a handle, which is not used afterwards; nor are its registers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tahti_device_close(device: *mut tahti_device) {
    if !device.is_null() {
        // SAFETY: made by `handle`, given back once.
        drop(unsafe { Box::from_raw(device) });
    }
}
